"""File and folder locks, so that only one process at a time works in a folder.

The operating system holds the locks (flock) and releases them when the process ends, so files left by a killed process
do not block others. On systems without such locks, nothing is locked.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from mars_viz.errors import StorageError, disk_refusals
from mars_viz.writer import open_lock

PATIENCE = 10.0  # seconds to wait for another process; its steps take milliseconds
_LOOK = 0.3  # seconds to retry, because checking whether a folder is locked locks it briefly
_PAUSE = 0.01
_NAME = ".lock"


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
    """Lock the folder for a few steps, against other servers and threads.

    Raises BadInput if the lock is not released in time. A missing folder needs no lock.
    """
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        if descriptor is not None and not _waited_for(descriptor):
            raise StorageError(
                f"Another program has been changing {folder} for {PATIENCE:g} seconds. Try again, or end that program."
            )
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


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds a folder."""

    process: int = 0  # process id on its machine; 0 if unknown
    machine: str = ""
    since: str = ""  # start time, ISO 8601 in UTC

    @property
    def words(self) -> str:
        """A phrase such as 'process 4711 on this machine has been sweeping into it since 10:32 UTC'."""
        if not self.process:
            return "another process is sweeping into it"
        is_here = self.machine == socket.gethostname()
        who = f"process {self.process} on {'this machine' if is_here else self.machine}"
        since = ""
        with suppress(ValueError):
            since = f" since {datetime.fromisoformat(self.since):%d %b %H:%M} UTC"
        is_ours = is_here and self.process == os.getpid()
        return f"{'this very process' if is_ours else who} has been sweeping into it{since}"


def holder(folder: Path) -> LockHolder | None:
    """Return the process that sweeps into the folder; None if there is none."""
    with suppress(OSError), open_lock(folder / _NAME, make=False) as file:
        return None if try_lock(file.fileno(), shared=True) else _read(file)
    return None


def check_nobody(folder: Path) -> None:
    """Raise BadInput while a process sweeps into the folder."""
    if (lock_holder := holder(folder)) is not None:
        raise StorageError(_refusal(folder, lock_holder))


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
        other = None if locked else _read(file)
        file.close()
        if other is not None and time.monotonic() > end:
            raise StorageError(_refusal(folder, other))
        time.sleep(_PAUSE)
    with suppress(OSError):  # if the disk is full, the lock holds without a description
        file.truncate(0)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(json.dumps(asdict(LockHolder(os.getpid(), socket.gethostname(), now))).encode())
    return file


def _read(file: IO[bytes]) -> LockHolder:
    try:
        file.seek(0)
        fields = json.loads(file.read(4096))
        return LockHolder(int(fields["process"]), str(fields["machine"])[:100], str(fields["since"])[:40])
    except (OSError, ValueError, KeyError, TypeError):
        return LockHolder()


def _refusal(folder: Path, found: LockHolder) -> str:
    return f"{folder} is in use: {found.words}. Wait until it is done, or stop it; what it has finished is kept."
