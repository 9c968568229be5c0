"""Locks that end with the process that holds them, on files and folders. Where a system has none, nothing is locked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mars_viz.errors import StorageError
from mars_viz.writer import open_lock

PATIENCE = 10.0
"""Seconds to wait for somebody else's step; each takes milliseconds."""
_PAUSE = 0.01


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed: False while somebody else holds it, True where nobody counts locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # a system or a disk that knows no locks
        return True
    return True


def hold(file: IO[bytes]) -> None:
    """Hold an open file for as long as it is open."""
    _taken(file.fileno())


def is_held(path: Path) -> bool:
    """True while somebody holds that file."""
    with suppress(OSError), open_lock(path, make=False) as file:
        return not try_lock(file.fileno(), shared=True)
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
            raise StorageError(
                f"Another program has been changing {folder} for {PATIENCE:g} seconds. Try again, or end that program."
            )
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # and with it the lock


def _taken(descriptor: int) -> bool:
    """False where somebody else holds it for too long. One who only asks whether it is held does so for an instant."""
    end = time.monotonic() + PATIENCE
    while not try_lock(descriptor):
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
    return True
