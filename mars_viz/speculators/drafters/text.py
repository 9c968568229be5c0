"""Shared parts of drafters that use only the text: no cache, no training, no law."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from mars_viz.speculators.draft import Draft
from mars_viz.walk import Prefix

BETWEEN = -1
"""Separates the existing text from the prefix; no token."""


class TextDrafter(ABC):
    """Drafts deterministically from the prefix alone; q is 1 at the drafted token."""

    def __init__(self, device: torch.device):
        """`device` is the device of drafted tokens."""
        self._device = device

    def prefill(self, prompts: Sequence[Prefix]) -> None:  # noqa: B027 (no drafter need do anything here)
        """Do nothing: no text is read ahead."""

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return at most `count` tokens after each prefix."""
        return Draft.of_chains([self.continued(prefix, count) for prefix in prefixes], self._device)

    @abstractmethod
    def continued(self, prefix: Prefix, count: int) -> Sequence[int]:
        """Return at most `count` tokens after the prefix."""

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """Do nothing: the next prefixes show the accepted tokens."""


class TextBefore:
    """Text that precedes every prefix, sorted once, so that a draft only looks at occurrences of a token."""

    def __init__(self, tokens: Sequence[int] = ()):
        self.tokens = np.array([*tokens, BETWEEN], np.int64)
        """int64; `BETWEEN` is at the end."""
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


def most(tokens: np.ndarray) -> int:
    """Return the most frequent token; if several are equal, the one that occurs last."""
    distinct, last, counts = np.unique(tokens[::-1], return_index=True, return_counts=True)
    best = np.flatnonzero(counts == counts.max())
    return int(distinct[best[np.argmin(last[best])]])
