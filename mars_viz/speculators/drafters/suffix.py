"""A suffix index: the draft is the most frequent continuation of the longest known suffix.

He et al. 2023, 'REST' (arXiv 2311.08252), over a datastore; Oliaro et al. 2024, 'SuffixDecoding' (arXiv 2411.04975),
over the prompt and the text so far. No model: deterministic, q is 1 at the drafted token.
"""

from __future__ import annotations

import numpy as np
import torch

from mars_viz.speculators.drafters.text import BETWEEN, TextBefore, TextDrafter, TextSoFar, most
from mars_viz.walk import Prefix


class SuffixDrafter(TextDrafter):
    """Drafts down the tree of continuations of the longest known suffix of at most n tokens. Each step takes the most
    frequent continuation; if several are equal, the latest."""

    def __init__(self, n: int, before: TextBefore, device: torch.device):
        """`before` is text that precedes every prefix."""
        super().__init__(device)
        self._n, self._before = n, before

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """Return at most `count` tokens; empty if the last token has not occurred before."""
        text = TextSoFar(self._before, prefix)
        ends = longest(text, prefix[-self._n :])
        drafted: list[int] = []
        while len(drafted) < count and len(ends := ends[ends < len(text)]):
            follows = text.at(ends)
            token = most(follows)
            if token == BETWEEN:
                break
            drafted.append(token)
            ends = ends[follows == token] + 1
        return drafted


def longest(text: TextSoFar, suffix: Prefix) -> np.ndarray:
    """Return the ends of earlier occurrences of the suffix's longest known end, int64; empty if its last token is
    unknown."""
    ends = text.places(suffix[-1])[:-1] + 1
    for length in range(2, len(suffix) + 1):
        fits = ends[ends >= length]
        longer = fits[text.at(fits - length) == suffix[-length]]
        if not len(longer):
            break
        ends = longer
    return ends
