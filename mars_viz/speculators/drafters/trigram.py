"""A table of trigrams built while the text grows: the draft is the most frequent continuation of the last two tokens.

Liu et al. 2024, 'Adaptive draft-verification' (ADED, arXiv 2407.12021), as a chain. No model: deterministic, q is 1 at
the drafted token.
"""

from __future__ import annotations

import torch

from mars_viz.speculators.drafters.text import BETWEEN, TextBefore, TextDrafter, TextSoFar, most
from mars_viz.walk import Prefix


class TrigramDrafter(TextDrafter):
    """Looks up two tokens, including drafted ones, among all pairs read. The table depends on the prefix only."""

    def __init__(self, before: TextBefore, device: torch.device):
        """`before` is text that precedes every prefix."""
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
