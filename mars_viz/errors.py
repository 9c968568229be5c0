"""The error tree. Every message says what happened and what to do about it; it knows nothing else of the package.

Files come from strangers, and no check foresees everything: `contained` keeps whatever goes wrong with one of them in
its place, so that nothing else falls with it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


class MarsVizError(Exception):
    """Anything the product raises on purpose; its message is written for the person who reads it."""

    exit_code = 1


class BadInput(MarsVizError):
    """What was asked for cannot be done as asked: a wrong argument, a missing file, an unreadable run."""

    exit_code = 2


class SettingError(BadInput):
    """A rule, a dial, an option or another argument has a value that it cannot have."""


class PromptError(BadInput):
    """A prompt, or a set of prompts, cannot be read or does not fit."""


class ModelError(BadInput):
    """A target or a drafter cannot be loaded, does not fit the other, or gives what are no logits."""


class EvidenceError(BadInput):
    """A run or a map does not hold what is asked of it: a column, a prefix, a setting."""


class RunFileError(BadInput):
    """A saved run, map, race, sweep or measurement is missing, damaged, newer, or contradicts itself."""


class StorageError(BadInput):
    """Nothing can be written, renamed or deleted there: a name that is taken, a full disk, somebody else at work."""


class Disturbed(BadInput):
    """What a clock measured varies too much to say anything, or cannot be: other work ran beside it."""


class DeviceLost(MarsVizError):
    """The device that the models are on does not answer any more."""


class TooLarge(BadInput):
    """What was asked for needs more memory than there is."""

    def __init__(self, message: str, need: int, free: int | None) -> None:
        """`need` and `free` in bytes; None where nobody says what is free."""
        super().__init__(message)
        self.need, self.free = need, free


@contextmanager
def contained(what: str, remedy: str = "Choose another one.") -> Iterator[None]:
    """Let whatever goes wrong in the block be a BadInput about `what`; the product's own errors pass as they are.

    What was not foreseen is a fault of the product, also where the file is to blame: the log has its traceback.
    """
    try:
        yield
    except MarsVizError:
        raise
    except Exception as error:  # MemoryError and RecursionError too
        _log.exception("%s: %s was contained", what, type(error).__name__)
        words = f"{what} cannot be shown ({type(error).__name__}; the server's log says where). {remedy}"
        raise BadInput(words) from error


@contextmanager
def disk_refusals(
    place: object, deed: str = "written", remedy: str = "Make room or choose another place."
) -> Iterator[None]:
    """Make a sentence of what the disk refuses in the block: that the place cannot be `deed`, why, and the remedy."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or (os.strerror(error.errno) if error.errno else error)
        raise StorageError(f"{place} cannot be {deed} ({reason}). {remedy}") from error
