"""A table of trigrams, learned as the text goes: what most often followed its last two tokens is drafted next.

Liu et al. 2024, 'Adaptive draft-verification' (ADED, arXiv 2407.12021), as a chain. No model: deterministic, q is 1 at
the drafted token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mars_viz.speculators.drafters.suffix import BETWEEN, most
from mars_viz.speculators.drafters.text import TextDrafter
from mars_viz.walk import Prefix


class TrigramDrafter(TextDrafter):
    """Looks up two tokens, the drafted ones too, among all pairs that were read: the table follows from the prefix, so
    that a draft hangs on nothing else."""

    def __init__(self, before: Sequence[int], device: torch.device):
        """`before` is text of any length that prefixes are taken to follow."""
        super().__init__(device)
        self._before = np.array([*before, BETWEEN], np.int64)

    def continued(self, prefix: Prefix, count: int) -> list[int]:
        """At most `count` tokens, up to the first pair that was never read."""
        text = np.concatenate([self._before, np.array(prefix, np.int64)])
        pair = prefix[-2:]
        drafted: list[int] = []
        while len(pair) == 2 and len(drafted) < count:
            follows = text[2:][(text[:-2] == pair[0]) & (text[1:-1] == pair[1])]
            if not len(follows) or (token := most(follows)) == BETWEEN:
                break
            drafted.append(token)
            pair = (pair[1], token)
        return drafted
