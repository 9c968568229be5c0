"""Locks that end with the process that holds them, on files and folders. Where a system has none, nothing is locked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mars_viz.errors import BadInput

PATIENCE = 10.0
"""Seconds to wait for somebody else's step; each takes milliseconds."""
_PAUSE = 0.01


def hold(file: IO[bytes]) -> None:
    """Hold an open file for as long as it is open."""
    _taken(file.fileno())


def is_held(path: Path) -> bool:
    """True while somebody holds that file."""
    try:
        import fcntl

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While a few steps in the folder belong together: no other server, and no other thread, takes one in between.

    Raises BadInput where another does not come to an end. Without a folder there is nobody to wait for.
    """
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        if descriptor is not None and not _taken(descriptor):
            raise BadInput(
                f"Another program has been changing {folder} for {PATIENCE:g} seconds. Try again, or end that program."
            )
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # and with it the lock


def _taken(descriptor: int) -> bool:
    """False where somebody else holds it for too long. One who only asks whether it is held does so for an instant."""
    with suppress(ImportError):
        import fcntl

        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > end:
                    return False
                time.sleep(_PAUSE)
            except OSError:  # a disk that knows no locks
                return True
    return True
