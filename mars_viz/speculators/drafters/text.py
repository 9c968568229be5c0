"""Drafters that use only the text: no cache, no training, no law; q is 1 at the drafted token. Also one of them before
another drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from mars_viz.run import Settings
from mars_viz.speculators.backend import Part
from mars_viz.speculators.draft import Draft, Drafter, Target
from mars_viz.speculators.drafters import Ngram, Suffix, Trigram
from mars_viz.speculators.site import DrafterPart, Origin, Ready, Site
from mars_viz.walk import Prefix

BETWEEN = -1  # separates the existing text from the prefix; no token


class TextDrafter(Drafter):
    """Drafts deterministically from the prefix, and a text before it; q is 1 at the drafted token."""

    def __init__(self, device: torch.device, before: Sequence[int] = ()):
        self.device = device
        self._before = np.array([*before, BETWEEN], np.int32)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        return Draft.of_chains([self.continued(prefix, count) for prefix in prefixes], self.device)

    def continued(self, prefix: Prefix, count: int) -> Sequence[int]:
        raise NotImplementedError

    def whole(self, prefix: Prefix) -> np.ndarray:
        """Return the text before, `BETWEEN` and the prefix, int32."""
        return np.concatenate([self._before, np.array(prefix, np.int32)])


def places(text: np.ndarray, token: int) -> np.ndarray:
    """Return the indices of a token in a text, in order, int64."""
    return np.flatnonzero(text == token)


def occurrences(text: np.ndarray, n: int, least: int = 1) -> np.ndarray:
    """Return the ends of earlier occurrences of the longest known suffix, of at most n tokens, in order, int64. There
    are none if it has fewer than `least` tokens."""
    ends = places(text, text[-1])[:-1] + 1
    for length in range(2, n + 1):
        fits = ends[ends >= length]
        longer = fits[text[fits - length] == text[-length]]
        if not len(longer):
            return ends if length > least else ends[:0]
        ends = longer
    return ends if n >= least else ends[:0]


def most(tokens: np.ndarray) -> int:
    """Return the most frequent token; if several are equal, the one that occurs last."""
    distinct, last, counts = np.unique(tokens[::-1], return_index=True, return_counts=True)
    best = np.flatnonzero(counts == counts.max())
    return int(distinct[best[np.argmin(last[best])]])


class SuffixDrafter(TextDrafter):
    """Drafts down the tree of continuations of the longest known suffix of at most n tokens. Each step takes the most
    frequent continuation; if several are equal, the latest.

    He et al. 2023, 'REST' (arXiv 2311.08252), over a datastore; Oliaro et al. 2024, 'SuffixDecoding' (arXiv
    2411.04975), over the prompt and the text so far.
    """

    def __init__(self, n: int, before: Sequence[int], device: torch.device, least: int = 1):
        super().__init__(device, before)
        self._n, self._least = n, least

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """Return at most `count` tokens; empty if fewer than the least number of tokens have occurred before."""
        text = self.whole(prefix)
        ends, drafted = occurrences(text, min(self._n, len(prefix)), self._least), list[int]()
        while len(drafted) < count and len(ends := ends[ends < len(text)]):
            follows = text[ends]
            token = most(follows)
            if token == BETWEEN:
                break
            drafted.append(token)
            ends = ends[follows == token] + 1
        return drafted


class TrigramDrafter(TextDrafter):
    """Drafts the most frequent continuation of the last two tokens, including drafted ones, among all pairs read. The
    table depends on the prefix only.

    Liu et al. 2024, 'Adaptive draft-verification' (ADED, arXiv 2407.12021), as a chain.
    """

    def __init__(self, before: Sequence[int], device: torch.device):
        super().__init__(device, before)

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """Return at most `count` tokens, up to the first unknown pair."""
        text, pair = self.whole(prefix), prefix[-2:]
        drafted: list[int] = []
        while len(pair) == 2 and len(drafted) < count:
            starts = places(text[:-2], pair[0])
            starts = starts[text[starts + 1] == pair[1]]
            if not len(starts) or (token := most(text[starts + 2])) == BETWEEN:
                break
            drafted.append(token)
            pair = (pair[1], token)
        return drafted


class NgramDrafter(TextDrafter):
    """Drafts the continuation of the latest earlier occurrence of the longest known suffix, of at most n tokens."""

    def __init__(self, n: int, device: torch.device, least: int = 1):
        super().__init__(device)
        self._n, self._least = n, least

    def continued(self, prefix: Prefix, count: int) -> Prefix:
        """Return at most `count` tokens; empty if fewer than the least number of tokens have occurred before."""
        ends = occurrences(np.array(prefix, np.int32), min(self._n, len(prefix)), self._least)
        return prefix[ends[-1] :][:count] if len(ends) else ()


class MixedDrafter(Drafter):
    """Drafts chains with the first drafter after each prefix for which it has a draft, and with the second after the
    others, as llama.cpp and TensorRT-LLM combine prompt lookup with a draft model.

    Each draft keeps the law of the drafter that made it, so lossless rules stay lossless. Its measured cost is that of
    the second, because the text of a measurement does not repeat itself.
    """

    def __init__(self, first: TextDrafter, second: Drafter):
        self._first, self._second = first, second
        self.reads_target = second.reads_target
        self.spent = second.spent
        self._by: tuple[int, ...] = ()

    def follow(self, target: Target) -> None:
        self._second.follow(target)

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        self._second.prefill(prompts)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        chains = [self._first.continued(prefix, count) for prefix in prefixes]
        self._by = tuple(0 if chain else 1 for chain in chains)
        rest = [i for i, by in enumerate(self._by) if by]
        if not rest:
            none = tuple(np.zeros(len(chain) + 1, np.int32) for chain in chains)
            return Draft.of_chains(chains, self._first.device, none, self._by)
        other = self._second.draft([prefixes[i] for i in rest], count)
        own = other.tokens.shape[1]
        drafted = other.lengths or (own,) * len(rest)
        width = max([own, *map(len, chains)])
        tokens = other.tokens.new_zeros(len(prefixes), width)
        for i, chain in enumerate(chains):
            tokens[i, : len(chain)] = torch.tensor(chain, dtype=torch.int64)
        tokens[rest, :own] = other.tokens
        logits = None
        if other.logits is not None:
            logits = other.logits.new_zeros(len(prefixes), width, other.logits.shape[-1])
            logits[rest, :own] = other.logits
        lengths = [len(chain) for chain in chains]
        passes = [np.zeros(length + 1, np.int32) for length in lengths]
        for at, i in enumerate(rest):
            lengths[i] = drafted[at]
            passes[i] = other.passes[at] if other.passes else np.arange(drafted[at] + 1, dtype=np.int32)
        return Draft(tokens, logits, other.vocabulary, tuple(lengths), passes=tuple(passes), by=self._by)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        own = [tokens for tokens, by in zip(drafted, self._by, strict=True) if by]
        if own:
            self._second.observe(own)


def ready(named: Ngram | Suffix | Trigram, _: Origin) -> Ready:
    """Return the function that reads its text with the target's tokenizer."""

    def load(site: Site) -> DrafterPart:
        tokens, revision = site.read(named.text)
        if isinstance(named, Ngram):
            drafter: TextDrafter = NgramDrafter(named.n, site.place, named.min or 1)
        elif isinstance(named, Suffix):
            drafter = SuffixDrafter(named.n, tokens, site.place, named.min or 1)
        else:
            drafter = TrigramDrafter(tokens, site.place)
        return Part(named.name, lambda _: drafter, revision or named.name)

    return load


def mixed(first: DrafterPart, second: DrafterPart) -> DrafterPart:
    """Return the second drafter with the first one, a `TextDrafter`, before it."""

    def opened(settings: Settings) -> Drafter:
        text = first.open(settings)
        assert isinstance(text, TextDrafter)
        return MixedDrafter(text, second.open(settings))

    name, revision = f"{first.name}+{second.name}", f"{first.revision}+{second.revision}"
    return replace(second, name=name, revision=revision, open=opened, drafts_trees=False)
