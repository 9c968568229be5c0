"""Where an element of the browser stands, between what the page asks for and what the reader's hand has done since.

Knows what was asked, sent and reported; knows no Streamlit, and of a position no more than that a record has parts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Generic, TypeVar

P = TypeVar("P")


@dataclass(slots=True)
class PositionSync(Generic[P]):
    """The positions of one element."""

    asked: P
    """What the page last asked for."""
    sent: P
    """What the browser was last told."""
    stands: P
    """Where the browser stands, as far as it has reported."""
    turn: int = 0
    """Counts the times that the browser was told; a report from an earlier turn is out of date."""

    @classmethod
    def begin(cls, position: P) -> PositionSync[P]:
        """Of an element that is sent something new."""
        return cls(position, position, position)

    def settle(self, asked: P, reported: P | None) -> None:
        """Take in what the page asks for and what the browser reported, None where it has not since it was told."""
        if self._is_new(asked, reported):
            self._tell(asked)
        elif reported is not None:
            self.stands = reported
        elif self.stands != self.sent:
            self._tell(self.stands)  # the element was away: it starts again from what it is sent
        self.asked = asked

    def renewed(self, asked: P, reported: P | None) -> PositionSync[P]:
        """Of the element when it is sent other contents: as `settle`, but where the hand came to rest with the very
        rerun that brings them, it stands there, for the contents alone may have changed what the page asks for."""
        if reported is not None and reported != self.stands:
            self.stands = reported
        else:
            self.settle(asked, reported)
        return PositionSync(asked, self.stands, self.stands, self.turn + 1)

    def _is_new(self, asked: P, reported: P | None) -> bool:
        """True if any part of it is neither as it was asked for before nor as it stands: a page may be one report
        behind, and may feed back some parts alone."""
        known = [_parts(each) for each in (self.asked, self.stands, reported) if each is not None]
        return not all(any(part in other for other in known) for part in _parts(asked))

    def _tell(self, position: P) -> None:
        self.sent = self.stands = position
        self.turn += 1


def _parts(position: object) -> list[tuple[str, object]]:
    """A record's, by name; anything else is one part."""
    if is_dataclass(position):
        return [(each.name, getattr(position, each.name)) for each in fields(position)]
    return [("", position)]
