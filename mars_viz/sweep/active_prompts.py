"""The prompts of a sweep that are mapped beside one another, and the answers that later turns of a conversation follow.

Knows explorations, prompts and texts; knows no folder and no models.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from mars_viz.chat import Exchange, History
from mars_viz.dialmap import Exploration, Prefix, step
from mars_viz.errors import PromptError
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


@dataclass(slots=True)
class _Conversation:
    """One of them, as far as it has come."""

    said: list[Exchange] = field(default_factory=list)
    """Its turns with their answers."""
    broken: str = ""
    """Why no further turn can follow; empty where one can."""


class Conversations:
    """The answers of every conversation that is not at its end yet; those that are must be forgotten.

    An answer is the target's own text, so that a turn's history is the same for strict and for every dial value.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Conversation] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def before(self, item: PromptItem) -> History | None:
        """What stands before this turn; None while one of them waits for its answer. Raises BadInput where one has none
        and never will."""
        talk = self._known.get(item.unit, _Conversation())
        if talk.broken:
            raise PromptError(talk.broken)
        return History(item.system, tuple(talk.said)) if len(talk.said) == item.turn - 1 else None

    def answered(self, item: PromptItem, text: str) -> None:
        """The target's own text after this turn."""
        if item.question:
            self._known.setdefault(item.unit, _Conversation()).said.append(Exchange(item.prompt, text))

    def failed(self, item: PromptItem) -> None:
        """There is no text after this turn, nor after any later one."""
        if item.question and not self._known.setdefault(item.unit, _Conversation()).broken:
            self._known[item.unit].broken = unanswered(item)

    def forget(self, item: PromptItem) -> None:
        """It was the last turn."""
        self._known.pop(item.unit, None)


def unanswered(item: PromptItem) -> str:
    """Why the turns after this one have no results."""
    return f"It follows {item.id}, which has no results; mend that turn, or take first turns alone."
