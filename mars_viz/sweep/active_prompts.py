"""Prompts of a sweep that are mapped together, and the answers that later turns of a conversation need."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from mars_viz.chat import Exchange, History
from mars_viz.dialmap import Exploration, step
from mars_viz.errors import PromptError
from mars_viz.prompts import PromptItem
from mars_viz.walk import Prefix, Speculator


@dataclass(slots=True)
class ActivePrompts:
    """A prompt whose map is in progress."""

    index: int
    """Index in the set."""
    item: PromptItem
    prompt: Prefix
    """Its tokens, including the turns before it."""
    exploration: Exploration
    """Its walk for every dial value."""
    share: float = 0.0
    """Part of the dial with a complete text."""
    seconds: float = 0.0
    """Its part of the batches' wall-clock time, by requested prefixes."""


def advance(speculator: Speculator, hand: Sequence[ActivePrompts]) -> None:
    """Extend each prompt's walk by one round, with one batch for all."""
    began, requested = time.perf_counter(), [len(active.exploration.missing) for active in hand]
    for active, progress in zip(hand, step(speculator, [active.exploration for active in hand]), strict=True):
        active.share = progress.exact
    a_prefix = (time.perf_counter() - began) / max(1, sum(requested))
    for active, count in zip(hand, requested, strict=True):
        active.seconds += count * a_prefix


@dataclass(slots=True)
class _Conversation:
    """A conversation in progress."""

    said: list[Exchange] = field(default_factory=list)
    """Its turns with their answers."""
    broken: str = ""
    """Reason why no further turn can follow; empty if one can."""


class Conversations:
    """The answers of every unfinished conversation; finished ones must be forgotten. An answer is the target's own
    text, so that a turn's history is the same for strict and for every dial value."""

    def __init__(self) -> None:
        self._known: dict[str, _Conversation] = {}

    def __len__(self) -> int:
        return len(self._known)

    def before(self, item: PromptItem) -> History | None:
        """Return the history before this turn; None while an earlier turn is unanswered. Raises BadInput if it never
        will be."""
        talk = self._known.get(item.unit, _Conversation())
        if talk.broken:
            raise PromptError(talk.broken)
        return History(item.system, tuple(talk.said)) if len(talk.said) == item.turn - 1 else None

    def answered(self, item: PromptItem, text: str) -> None:
        """Record the target's own text after this turn."""
        if item.question:
            self._known.setdefault(item.unit, _Conversation()).said.append(Exchange(item.prompt, text))

    def failed(self, item: PromptItem) -> None:
        """Record that this turn, and so every later one, has no text."""
        if item.question and not self._known.setdefault(item.unit, _Conversation()).broken:
            self._known[item.unit].broken = unanswered(item)

    def forget(self, item: PromptItem) -> None:
        """Forget the conversation after its last turn."""
        self._known.pop(item.unit, None)


def unanswered(item: PromptItem) -> str:
    """Return the reason why the turns after this one have no results."""
    return f"It follows {item.id}, which has no results; mend that turn, or take first turns alone."
