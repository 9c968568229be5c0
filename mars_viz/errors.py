"""The exception hierarchy. Every message has the problem and a remedy.

Files are untrusted, and checks may miss something: `contained` turns any error into a BadInput about one item, so that
other items are not affected.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


class MarsVizError(Exception):
    """Base class of deliberate errors; messages are for users."""

    exit_code = 1


class BadInput(MarsVizError):
    """The request cannot be fulfilled: a wrong argument, a missing file, an unreadable run."""

    exit_code = 2


class SettingError(BadInput):
    """Invalid value of a rule, a dial, an option or another argument."""


class PromptError(BadInput):
    """Invalid prompt or set of prompts."""


class ModelError(BadInput):
    """A target or drafter cannot be loaded, does not fit the other, or returns invalid logits."""


class EvidenceError(BadInput):
    """A run or map lacks a requested column, prefix or setting."""


class RunFileError(BadInput):
    """A saved run, map, race, sweep or measurement is missing, damaged, newer, or inconsistent."""


class StorageError(BadInput):
    """Writing, renaming or deleting failed: the name is taken, the disk is full, or another process is at work."""


class Disturbed(BadInput):
    """A measured time is impossible or varies too much, because other processes were running."""


class DeviceLost(MarsVizError):
    """The models' device no longer responds."""


class TooLarge(BadInput):
    """The request needs more memory than available."""

    def __init__(self, message: str, need: int, free: int | None) -> None:
        """`need` and `free` are in bytes; `free` is None if unknown."""
        super().__init__(message)
        self.need, self.free = need, free


@contextmanager
def contained(what: str, remedy: str = "Choose another one.") -> Iterator[None]:
    """Convert any exception in the block to a BadInput about `what`; the product's own errors pass through. Unexpected
    exceptions are bugs, even if a file causes them; the log contains the traceback."""
    try:
        yield
    except MarsVizError:
        raise
    except Exception as error:  # including MemoryError and RecursionError
        _log.exception("%s: %s was contained", what, type(error).__name__)
        words = f"{what} cannot be shown ({type(error).__name__}; the server's log says where). {remedy}"
        raise BadInput(words) from error


@contextmanager
def disk_refusals(
    place: object,
    deed: str = "written",
    remedy: str = "Make room or choose another place.",
    kind: type[BadInput] = StorageError,
) -> Iterator[None]:
    """Convert OSErrors in the block to a BadInput with the place, the failed action, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or (os.strerror(error.errno) if error.errno else error)
        raise kind(f"{place} cannot be {deed} ({reason}). {remedy}") from error
