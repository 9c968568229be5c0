"""The prompts of a sweep that are mapped beside one another. Knows explorations; knows no folder and no models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mars_viz.dialmap import Exploration, Prefix, step
from mars_viz.prompts import PromptItem
from mars_viz.walk import Speculator


@dataclass(slots=True)
class ActivePrompts:
    """A prompt whose map is being made."""

    index: int
    """Its place in the set."""
    item: PromptItem
    """The prompt as it stands there."""
    prompt: Prefix
    """Its tokens, those of the turns before it in front."""
    exploration: Exploration
    """Its walk for every dial value."""
    share: float = 0.0
    """Of the dial, the part whose text is complete."""
    seconds: float = 0.0
    """Its part of the batches' wall-clock time, by what it asked."""


def advance(speculator: Speculator, hand: Sequence[ActivePrompts]) -> None:
    """One round further for each of them; what they ask goes out as one batch."""
    began, asked = time.perf_counter(), [len(one.exploration.missing) for one in hand]
    for one, progress in zip(hand, step(speculator, [one.exploration for one in hand]), strict=True):
        one.share = progress.exact
    a_prefix = (time.perf_counter() - began) / max(1, sum(asked))
    for one, count in zip(hand, asked, strict=True):
        one.seconds += count * a_prefix
