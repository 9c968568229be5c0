"""Conversations under way: the answers that later turns follow. Knows prompts and texts; no models and no files."""

from __future__ import annotations

from dataclasses import dataclass, field

from mars_viz.chat import Exchange, History
from mars_viz.errors import PromptError
from mars_viz.prompts import PromptItem


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
        """The turns before this one; None while one of them waits for its answer. Raises BadInput where one has none
        and never will."""
        talk = self._known.get(item.unit, _Conversation())
        if talk.broken:
            raise PromptError(talk.broken)
        return tuple(talk.said) if len(talk.said) == item.turn - 1 else None

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
