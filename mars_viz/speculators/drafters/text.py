"""What the drafters share that know the text alone: they have no cache, nothing to learn, and no law."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from mars_viz.speculators.draft import Draft
from mars_viz.walk import Prefix

BETWEEN = -1
"""Stands between the text that was read before and the prefix; no token."""


class TextDrafter(ABC):
    """Drafts deterministically, q is 1 at the drafted token: what it drafts follows from the prefix alone."""

    def __init__(self, device: torch.device):
        """`device` is where drafted tokens are to lie."""
        self._device = device

    def prefill(self, prompts: Sequence[Prefix]) -> None:  # noqa: B027 (no drafter need do anything here)
        """Nothing is read ahead."""

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """At most `count` tokens after each prefix."""
        return Draft.of_chains([self.continued(prefix, count) for prefix in prefixes], self._device)

    @abstractmethod
    def continued(self, prefix: Prefix, count: int) -> Sequence[int]:
        """At most `count` tokens after the prefix: what each of them is for."""

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """The next prefixes say what was kept."""


class TextBefore:
    """Text that was read before every prefix, sorted once: a draft looks at the places of a token alone."""

    def __init__(self, tokens: Sequence[int] = ()):
        """Of these tokens."""
        self.tokens = np.array([*tokens, BETWEEN], np.int64)
        """int64; `BETWEEN` stands at the end."""
        self._order = np.argsort(self.tokens, kind="stable")
        self._sorted = self.tokens[self._order]

    def places(self, token: int) -> np.ndarray:
        """int64; where the token stands, in order."""
        first, end = np.searchsorted(self._sorted, [token, token + 1])
        return self._order[first:end]


class TextSoFar:
    """The text before and a prefix, one after the other."""

    def __init__(self, before: TextBefore, prefix: Prefix):
        self._before, self._prefix = before, np.array(prefix, np.int64)

    def __len__(self) -> int:
        """Tokens of both, and the one between."""
        return len(self._before.tokens) + len(self._prefix)

    def at(self, places: np.ndarray) -> np.ndarray:
        """int64; the tokens at these places."""
        first = len(self._before.tokens)
        found = self._prefix[np.maximum(places - first, 0)]
        early = places < first
        found[early] = self._before.tokens[places[early]]
        return found

    def places(self, token: int) -> np.ndarray:
        """int64; where the token stands, in order."""
        here = np.flatnonzero(self._prefix == token) + len(self._before.tokens)
        return np.concatenate([self._before.places(token), here])


def most(tokens: np.ndarray) -> int:
    """The one that occurs most often, the one that does so last among equals."""
    found, last, counts = np.unique(tokens[::-1], return_index=True, return_counts=True)
    best = np.flatnonzero(counts == counts.max())
    return int(found[best[np.argmin(last[best])]])
