"""Text for a terminal or a log: control characters, which could steer it, are shown and not sent.

Text of models, prompts and files is others'. Knows streams and log records; which characters act unseen is `escapes`'.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from mars_viz.escapes import unseen


def printable(text: str, but: str = "\n\t") -> str:
    """The text with escapes in place of what nobody sees, `but` for these: joiners too, for terminals differ in how
    wide they draw what is joined. Spelled as shells and Python do (\\x1b, \\u202e), to be typed; pages name points.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(sign) if unseen(sign) and sign not in but else sign for sign in text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


class Shown:
    """A text stream on which control characters are shown, `but` for these: line feeds and tabs."""

    def __init__(self, stream: TextIO, but: str = "\n\t"):
        self.stream, self._but = stream, but

    def write(self, text: str) -> int:
        """Write it, shown; return how much of it was written: all."""
        self.stream.write(printable(text, self._but))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's."""
        return getattr(self.stream, name)


@contextmanager
def shown_streams() -> Iterator[None]:
    """Standard output and standard error are `Shown` meanwhile, whoever writes to them."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks θ still gets the rest
    sys.stdout, sys.stderr = (Shown(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def raw(stream: Any) -> Any:
    """The stream itself, for a progress bar, which returns to the line's start and writes none but our own words."""
    return stream.stream if isinstance(stream, Shown) else stream


def say(*lines: str, error: bool = False) -> None:
    """Print lines on standard output, or on standard error. A line's end within one is another's text, and is shown."""
    for line in lines:
        print(printable(line, but=""), file=sys.stderr if error else sys.stdout)


class _Record(logging.LogRecord):
    """One whose message and traceback show control characters."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = printable("".join(traceback.format_exception(*self.exc_info)).rstrip("\n"))

    def getMessage(self) -> str:
        """Its template with its arguments."""
        return printable(super().getMessage())


def shown_logs() -> None:
    """From now on, whatever this process logs shows control characters."""
    logging.setLogRecordFactory(_Record)
