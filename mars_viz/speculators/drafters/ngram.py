"""Prompt lookup: the draft is the continuation of the last similar place in the text.

Saxena 2023, 'Prompt lookup decoding'; vLLM's method `ngram`. No model: deterministic, q is 1 at the drafted token.
"""

from __future__ import annotations

import torch

from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.walk import Prefix


class NgramDrafter(TextDrafter):
    """Drafts the continuation of the latest earlier occurrence of the longest known suffix, of at most n tokens."""

    def __init__(self, n: int, device: torch.device):
        super().__init__(device)
        self._n = n

    def continued(self, prefix: Prefix, count: int) -> Prefix:
        """Return at most `count` tokens; empty if the last token has not occurred before."""
        end = latest(prefix, self._n)
        return prefix[end : end + count]


def latest(prefix: Prefix, n: int) -> int:
    """Return the end of the latest earlier occurrence of the longest suffix of at most n tokens. Returns the prefix's
    length if its last token has not occurred before."""
    end_best, best, last = len(prefix), 0, prefix[-1]
    for end in range(len(prefix) - 1, 0, -1):
        if prefix[end - 1] != last:
            continue
        length = 1
        while length < min(n, end) and prefix[end - 1 - length] == prefix[-1 - length]:
            length += 1
        if length > best:
            end_best, best = end, length
            if best == n:
                break
    return end_best
