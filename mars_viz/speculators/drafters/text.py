"""Drafters that use only the text: no cache, no training, no law; q is 1 at the drafted token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mars_viz.speculators.draft import Draft, Drafter
from mars_viz.walk import Prefix

BETWEEN = -1  # separates the existing text from the prefix; no token


class TextDrafter(Drafter):
    """Drafts deterministically from the prefix, and a text before it; q is 1 at the drafted token."""

    def __init__(self, device: torch.device, before: Sequence[int] = ()):
        self._device = device
        self._before = np.array([*before, BETWEEN], np.int32)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return at most `count` tokens after each prefix."""
        return Draft.of_chains([self.continued(prefix, count) for prefix in prefixes], self._device)

    def continued(self, prefix: Prefix, count: int) -> Sequence[int]:
        """Return at most `count` tokens after the prefix."""
        raise NotImplementedError

    def whole(self, prefix: Prefix) -> np.ndarray:
        """Return the text before, `BETWEEN` and the prefix, int32."""
        return np.concatenate([self._before, np.array(prefix, np.int32)])


def places(text: np.ndarray, token: int) -> np.ndarray:
    """Return the indices of a token in a text, in order, int64."""
    return np.flatnonzero(text == token)


def occurrences(text: np.ndarray, n: int) -> np.ndarray:
    """Return the ends of earlier occurrences of the longest known suffix, of at most n tokens, in order, int64."""
    ends = places(text, text[-1])[:-1] + 1
    for length in range(2, n + 1):
        fits = ends[ends >= length]
        longer = fits[text[fits - length] == text[-length]]
        if not len(longer):
            break
        ends = longer
    return ends


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

    def __init__(self, n: int, before: Sequence[int], device: torch.device):
        super().__init__(device, before)
        self._n = n

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """Return at most `count` tokens; empty if the last token has not occurred before."""
        text = self.whole(prefix)
        ends, drafted = occurrences(text, min(self._n, len(prefix))), list[int]()
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

    def __init__(self, n: int, device: torch.device):
        super().__init__(device)
        self._n = n

    def continued(self, prefix: Prefix, count: int) -> Prefix:
        """Return at most `count` tokens; empty if the last token has not occurred before."""
        ends = occurrences(np.array(prefix, np.int32), min(self._n, len(prefix)))
        return prefix[ends[-1] :][:count] if len(ends) else ()
