"""What two processes of one program say to one another: pickles, one after the other, over a pair of pipes.

A growing run is told again and again, and each of its records goes over the wire once: later it is named by its number.
Only for processes that trust one another, as a parent and its child do: who can write to the wire can run anything.
"""

from __future__ import annotations

import pickle
import threading
from dataclasses import fields
from io import BytesIO
from typing import IO, Any

from mars_viz.records import Round, Speculation
from mars_viz.run import Piece, Run

NAMED = (Round, Speculation, Piece)
"""What is sent once: frozen records that others hold, many times over."""


class PickleChannel:
    """One end. Any thread may put; one takes."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        """Binary, buffered streams."""
        self._incoming, self._outgoing = incoming, outgoing
        self._lock = threading.Lock()
        self._sent: dict[int, _Sent] = {}
        self._received: dict[int, Any] = {}

    def put(self, message: object) -> None:
        """Send. Raises OSError where nobody listens any more, and what pickling raises, having sent nothing."""
        with self._lock:
            before = len(self._sent)
            written = BytesIO()
            try:
                _Writer(written, self._sent).dump(message)
            except BaseException:
                for key in list(self._sent)[before:]:
                    del self._sent[key]
                raise
            self._outgoing.write(written.getbuffer())
            self._outgoing.flush()

    def take(self) -> Any:
        """Wait for the next message. Raises EOFError where none will come."""
        try:
            return _Reader(self._incoming, self._received).load()
        except pickle.UnpicklingError as error:  # cut off in the middle
            raise EOFError("The other end has closed the wire.") from error

    def forget(self) -> None:
        """Begin anew with the numbers; both ends do so at the same message."""
        with self._lock:
            self._sent.clear()
        self._received.clear()


class _Sent:
    """A record that went over the wire, which must live for as long as it can be named, and its number."""

    __slots__ = ("number", "record")

    def __init__(self, number: int, record: object) -> None:
        self.number, self.record = number, record


class _Writer(pickle.Pickler):
    def __init__(self, stream: IO[bytes], sent: dict[int, _Sent]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._sent = sent

    def persistent_id(self, thing: object) -> object:
        if not isinstance(thing, NAMED):
            return None
        known = self._sent.get(id(thing))
        if known is not None:
            return known.number
        number = len(self._sent)
        self._sent[id(thing)] = _Sent(number, thing)
        kind = next(kind for kind in NAMED if isinstance(thing, kind))  # as read from a file, they are of a kind below
        return number, kind, _values(kind, thing)

    def reducer_override(self, thing: object) -> Any:
        if type(thing) is Run:  # without what it has worked out meanwhile
            return Run, _values(Run, thing)
        return NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, stream: IO[bytes], received: dict[int, Any]) -> None:
        super().__init__(stream)
        self._received = received

    def persistent_load(self, name: Any) -> Any:
        if isinstance(name, int):
            return self._received[name]
        number, kind, values = name
        self._received[number] = made = kind(*values)
        return made


def _values(kind: type, thing: object) -> tuple[Any, ...]:
    return tuple(getattr(thing, field.name) for field in fields(kind))
