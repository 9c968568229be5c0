"""Drafters that use only the text: no cache, no training, no law; q is 1 at the drafted token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mars_viz.speculators.draft import Draft, Drafter
from mars_viz.walk import Prefix

BETWEEN = -1  # separates the existing text from the prefix; no token


class TextDrafter(Drafter):
    """Drafts deterministically from the prefix alone; q is 1 at the drafted token."""

    def __init__(self, device: torch.device):
        self.device = device

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return at most `count` tokens after each prefix."""
        return Draft.of_chains([self.continued(prefix, count) for prefix in prefixes], self.device)

    def continued(self, prefix: Prefix, count: int) -> Sequence[int]:
        """Return at most `count` tokens after the prefix."""
        raise NotImplementedError


class TextBefore:
    """Text that precedes every prefix, sorted once, so that a draft only looks at occurrences of a token."""

    def __init__(self, tokens: Sequence[int] = ()):
        self.tokens = np.array([*tokens, BETWEEN], np.int64)  # int64; `BETWEEN` is at the end
        self._order = np.argsort(self.tokens, kind="stable")
        self._sorted = self.tokens[self._order]

    def places(self, token: int) -> np.ndarray:
        """Return the indices of a token in order, int64."""
        first, end = np.searchsorted(self._sorted, [token, token + 1])
        return self._order[first:end]


class TextSoFar:
    """The preceding text and a prefix, concatenated."""

    def __init__(self, before: TextBefore, prefix: Prefix):
        self._before, self._prefix = before, np.array(prefix, np.int64)

    def __len__(self) -> int:
        return len(self._before.tokens) + len(self._prefix)

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the tokens at these indices, int64."""
        first = len(self._before.tokens)
        tokens = self._prefix[np.maximum(places - first, 0)]
        early = places < first
        tokens[early] = self._before.tokens[places[early]]
        return tokens

    def places(self, token: int) -> np.ndarray:
        """Return the indices of a token in order, int64."""
        in_prefix = np.flatnonzero(self._prefix == token) + len(self._before.tokens)
        return np.concatenate([self._before.places(token), in_prefix])

    def occurrences(self, suffix: Prefix, least: int = 1) -> np.ndarray:
        """Return the ends of earlier occurrences of the longest known end of the text's suffix, in order, int64. There
        are none if it has fewer than `least` tokens."""
        ends = self.places(suffix[-1])[:-1] + 1
        for length in range(2, len(suffix) + 1):
            fits = ends[ends >= length]
            longer = fits[self.at(fits - length) == suffix[-length]]
            if not len(longer):
                return ends if length > least else ends[:0]
            ends = longer
        return ends if len(suffix) >= least else ends[:0]


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

    def __init__(self, n: int, before: TextBefore, device: torch.device, least: int = 1):
        super().__init__(device)
        self._n, self._least, self._before = n, least, before

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """Return at most `count` tokens; empty if fewer than the least number of tokens have occurred before."""
        text = TextSoFar(self._before, prefix)
        ends = text.occurrences(prefix[-self._n :], self._least)
        drafted: list[int] = []
        while len(drafted) < count and len(ends := ends[ends < len(text)]):
            follows = text.at(ends)
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

    def __init__(self, before: TextBefore, device: torch.device):
        super().__init__(device)
        self._before = before

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """Return at most `count` tokens, up to the first unknown pair."""
        text, pair = TextSoFar(self._before, prefix), prefix[-2:]
        drafted: list[int] = []
        while len(pair) == 2 and len(drafted) < count:
            places = text.places(pair[0])
            places = places[places + 2 < len(text)]
            places = places[text.at(places + 1) == pair[1]]
            if not len(places) or (token := most(text.at(places + 2))) == BETWEEN:
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
        ends = TextSoFar(TextBefore(), prefix).occurrences(prefix[-self._n :], self._least)
        return prefix[ends[-1] - 1 :][:count] if len(ends) else ()  # one token is before the prefix
