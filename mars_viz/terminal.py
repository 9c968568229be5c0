"""Print untrusted text to terminals and logs, with control characters escaped."""

import logging
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from mars_viz.escapes import unseen


def printable(text: str, but: str = "\n\t") -> str:
    """Return the text with invisible characters escaped, except those in `but`.

    Joiners are escaped too, because terminals differ in the width of joined characters. Escapes are those of shells and
    Python (\\x1b, \\u202e); pages use code points.
    """
    if text.isprintable():
        return text
    hidden = {sign: sign.encode("unicode_escape").decode() for sign in set(text) - set(but) if unseen(sign)}
    return "".join(hidden.get(sign, sign) for sign in text)


class Shown:
    """A text stream that escapes control characters, except those in `but`."""

    def __init__(self, stream: TextIO, but: str = "\n\t"):
        self.stream, self._but = stream, but

    def write(self, text: str) -> int:
        self.stream.write(printable(text, self._but))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def shown_streams() -> Iterator[None]:
    """Replace standard output and error by `Shown` streams in this context."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # terminals without θ still print the rest
    sys.stdout, sys.stderr = (Shown(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def raw(stream: Any) -> Any:
    """Return the unwrapped stream, for progress bars, which need carriage returns and print only trusted text."""
    return stream.stream if isinstance(stream, Shown) else stream


def say(*lines: str, error: bool = False) -> None:
    """Print lines on standard output or standard error; line breaks within a line are escaped."""
    for line in lines:
        print(printable(line, but=""), file=sys.stderr if error else sys.stdout)


class _Record(logging.LogRecord):
    """A log record whose message and traceback are escaped."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = printable("".join(traceback.format_exception(*self.exc_info)).rstrip("\n"))

    def getMessage(self) -> str:
        return printable(super().getMessage())


def shown_logs() -> None:
    """Escape control characters in all further log output of this process."""
    logging.setLogRecordFactory(_Record)
