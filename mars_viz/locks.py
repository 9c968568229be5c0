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
from typing import BinaryIO

from mars_viz.errors import StorageError, disk_refusals
from mars_viz.escapes import visible
from mars_viz.writer import open_lock

PATIENCE = 10.0  # seconds to wait for another process; its steps take milliseconds
_LOOK = 0.3  # seconds to retry, because checking whether a folder is locked locks it briefly
_NAME = ".lock"


def try_lock(descriptor: int, seconds: float = 0.0, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed. Returns False if another process holds it for these seconds, True without
    lock support."""
    with suppress(ImportError, OSError):  # no lock support
        import fcntl

        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(0.01)
    return True


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder for a few steps, against other servers and threads. Raises BadInput if the lock is not released
    in time. A missing folder needs no lock."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        if descriptor is not None and not try_lock(descriptor, PATIENCE):
            raise StorageError(f"Another program has been changing {folder} for {PATIENCE:g} seconds. Try again.")
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # releases the lock


def holder(folder: Path, name: str = _NAME) -> str | None:
    """Return the process that holds the folder's lock file, as 'process 4711 on host, since 27 Nov 10:32 UTC', or
    None."""
    with suppress(OSError), open_lock(folder / name, make=False) as file:
        return None if try_lock(file.fileno(), shared=True) else _described(file)
    return None


def check_nobody(folder: Path) -> None:
    """Raise BadInput while a process sweeps into the folder."""
    if (words := holder(folder)) is not None:
        raise StorageError(_refusal(folder, words))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the existing folder. Raises BadInput while any process holds it, and on disk errors. The lock file stays."""
    with disk_refusals(folder):
        file = open_lock(folder / _NAME)
    with file:
        if not try_lock(file.fileno(), _LOOK):
            raise StorageError(_refusal(folder, _described(file)))
        with suppress(OSError):  # if the disk is full, the lock holds without a description
            file.truncate(0)
            since = f"since {datetime.now(UTC):%d %b %H:%M} UTC"
            file.write(f"process {os.getpid()} on {socket.gethostname()}, {since}".encode())
        yield


def _described(file: BinaryIO) -> str:
    with suppress(OSError):
        file.seek(0)
        return visible(file.read(200).decode(errors="replace")) or "another process"
    return "another process"


def _refusal(folder: Path, words: str) -> str:
    return f"{folder} is in use by {words}. Wait until it is done, or stop it; finished prompts are kept."
