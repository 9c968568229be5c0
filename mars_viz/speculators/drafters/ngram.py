"""Prompt lookup: what followed the last time that the text read like this is the draft.

Saxena 2023, 'Prompt lookup decoding'; vLLM's method `ngram`. No model: deterministic, q is 1 at the drafted token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mars_viz.speculators.draft import Draft, padded
from mars_viz.walk import Prefix


class NgramDrafter:
    """Drafts what followed the latest earlier place of the longest suffix, of at most n tokens, that has occurred."""

    def __init__(self, n: int, device: torch.device):
        self._n, self._device = n, device

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Nothing is read ahead."""

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """At most `count` tokens after each prefix; none where not even its last token has occurred before."""
        found = [prefix[end : end + count] for prefix in prefixes for end in [latest(prefix, self._n)]]
        return padded(found, self._device)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Nothing to learn from."""


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
