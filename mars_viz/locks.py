"""File and folder locks, so that only one process at a time works in a folder.

The operating system holds the locks (flock) and releases them when the process ends, so files left by a killed process
do not block others. On systems without such locks, nothing is locked.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from mars_viz.errors import StorageError, disk_refusals
from mars_viz.escapes import visible
from mars_viz.writer import open_lock

PATIENCE = 10.0  # seconds to wait for another process; its steps take milliseconds
_LOOK = 0.3  # seconds to retry, because checking whether a folder is locked locks it briefly
_PAUSE = 0.01
_NAME = ".lock"
_UNKNOWN = "another process"


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False if another process holds it, True without lock support."""
    with suppress(ImportError, OSError):  # no lock support
        import fcntl

        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def hold(file: IO[bytes]) -> None:
    """Lock a file while it is open."""
    _waited_for(file.fileno())


def is_held(path: Path) -> bool:
    """True while a process holds that file."""
    with suppress(OSError), open_lock(path, make=False) as file:
        return not try_lock(file.fileno(), shared=True)
    return False


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder for a few steps, against other servers and threads. Raises BadInput if the lock is not released
    in time. A missing folder needs no lock."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        if descriptor is not None and not _waited_for(descriptor):
            raise StorageError(f"Another program has been changing {folder} for {PATIENCE:g} seconds. Try again.")
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # releases the lock


def _waited_for(descriptor: int) -> bool:
    """Lock the file; return False after a timeout. Checks by other processes hold it only briefly."""
    end = time.monotonic() + PATIENCE
    while not try_lock(descriptor):
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
    return True


def holder(folder: Path) -> str | None:
    """Return the process that sweeps into the folder, as 'process 4711 on host, since 27 Nov 10:32 UTC', or None."""
    with suppress(OSError), open_lock(folder / _NAME, make=False) as file:
        return None if try_lock(file.fileno(), shared=True) else _described(file)
    return None


def check_nobody(folder: Path) -> None:
    """Raise BadInput while a process sweeps into the folder."""
    if (words := holder(folder)) is not None:
        raise StorageError(_refusal(folder, words))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the existing folder. Raises BadInput while any process holds it, and on disk errors."""
    with disk_refusals(folder):
        file = _taken(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / _NAME).unlink(missing_ok=True)  # still locked, so it is this process's file
        file.close()


def _taken(folder: Path) -> IO[bytes]:
    end = time.monotonic() + _LOOK
    while True:
        file = open_lock(folder / _NAME)
        if locked := try_lock(file.fileno()):
            with suppress(FileNotFoundError):  # the previous holder may have removed the file in the meantime
                if os.path.samestat(os.fstat(file.fileno()), (folder / _NAME).stat()):
                    break
        words = "" if locked else _described(file)
        file.close()
        if words and time.monotonic() > end:
            raise StorageError(_refusal(folder, words))
        time.sleep(_PAUSE)
    with suppress(OSError):  # if the disk is full, the lock holds without a description
        file.truncate(0)
        since = f"since {datetime.now(UTC):%d %b %H:%M} UTC"
        file.write(f"process {os.getpid()} on {socket.gethostname()}, {since}".encode())
    return file


def _described(file: IO[bytes]) -> str:
    with suppress(OSError):
        file.seek(0)
        return visible(file.read(200).decode(errors="replace")) or _UNKNOWN
    return _UNKNOWN


def _refusal(folder: Path, words: str) -> str:
    return f"{folder} is in use by {words}. Wait until it is done, or stop it; finished prompts are kept."
