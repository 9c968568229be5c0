"""A suffix index: what most often followed the longest stretch of the text that was read before is the draft.

He et al. 2023, 'REST' (arXiv 2311.08252), over a datastore; Oliaro et al. 2024, 'SuffixDecoding' (arXiv 2411.04975),
over the prompt and the text so far. No model: deterministic, q is 1 at the drafted token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.walk import Prefix

BETWEEN = -1
"""Stands between the text that was read before and the prefix; no token."""


class SuffixDrafter(TextDrafter):
    """Drafts down the tree of what followed the longest suffix of at most n tokens that has occurred, at each step the
    token that most of these places go on with, the one that did so last among equals."""

    def __init__(self, n: int, before: Sequence[int], device: torch.device):
        """`before` is text of any length that prefixes are taken to follow."""
        super().__init__(device)
        self._n = n
        self._before = np.array([*before, BETWEEN], np.int64)

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """At most `count` tokens; none where not even the last token has occurred before."""
        text = np.concatenate([self._before, np.array(prefix, np.int64)])
        ends = longest(text, min(self._n, len(prefix)))
        drafted: list[int] = []
        while len(drafted) < count and len(ends := ends[ends < len(text)]):
            token = most(text[ends])
            if token == BETWEEN:
                break
            drafted.append(token)
            ends = ends[text[ends] == token] + 1
        return drafted


def longest(text: np.ndarray, n: int) -> np.ndarray:
    """int64; where the earlier occurrences of the longest suffix of at most n tokens end, in order; none where not
    even the last token occurs before."""
    ends = np.flatnonzero(text[:-1] == text[-1]) + 1
    for length in range(2, n + 1):
        fits = ends[ends >= length]
        longer = fits[text[fits - length] == text[-length]]
        if not len(longer):
            break
        ends = longer
    return ends


def most(tokens: np.ndarray) -> int:
    """The one that occurs most often, the one that does so last among equals."""
    found, last, counts = np.unique(tokens[::-1], return_index=True, return_counts=True)
    best = np.flatnonzero(counts == counts.max())
    return int(found[best[np.argmin(last[best])]])
