"""Prompt lookup: what followed the last time that the text read like this is the draft.

Saxena 2023, 'Prompt lookup decoding'; vLLM's method `ngram`. No model: deterministic, q is 1 at the drafted token.
"""

from __future__ import annotations

import torch

from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.walk import Prefix


class NgramDrafter(TextDrafter):
    """Drafts what followed the latest earlier place of the longest suffix, of at most n tokens, that has occurred."""

    def __init__(self, n: int, device: torch.device):
        super().__init__(device)
        self._n = n

    def continued(self, prefix: Prefix, count: int) -> Prefix:
        """At most `count` tokens; none where not even the last token has occurred before."""
        end = latest(prefix, self._n)
        return prefix[end : end + count]


def latest(prefix: Prefix, n: int) -> int:
    """Where the latest earlier occurrence of the longest suffix of at most n tokens ends; the prefix' length where not
    even its last token occurs before."""
    found, best, last = len(prefix), 0, prefix[-1]
    for end in range(len(prefix) - 1, 0, -1):
        if prefix[end - 1] != last:
            continue
        length = 1
        while length < min(n, end) and prefix[end - 1 - length] == prefix[-1 - length]:
            length += 1
        if length > best:
            found, best = end, length
            if best == n:
                break
    return found
