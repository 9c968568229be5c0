"""Locks on files and folders, and who works in a folder: one process at a time. Knows files and processes.

The system itself holds a lock (flock), so it ends with the process, however that ends: a file that a kill leaves behind
holds nobody off. Where the system has no such locks, nobody is held off either.
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

PATIENCE = 10.0
"""Seconds to wait for somebody else's step; each takes milliseconds."""
_LOOK = 0.3
"""Seconds: somebody who only looks whether a folder is held holds it for a moment."""
_PAUSE = 0.01
_NAME = ".lock"


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
    _waited_for(file.fileno())


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
        if descriptor is not None and not _waited_for(descriptor):
            raise StorageError(
                f"Another program has been changing {folder} for {PATIENCE:g} seconds. Try again, or end that program."
            )
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # and with it the lock


def _waited_for(descriptor: int) -> bool:
    """False where somebody else holds it for too long. One who only asks whether it is held does so for an instant."""
    end = time.monotonic() + PATIENCE
    while not try_lock(descriptor):
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
    return True


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a folder."""

    process: int = 0
    """Its number on its machine; 0 where it is not known."""
    machine: str = ""
    """The machine's name."""
    since: str = ""
    """When it began, ISO 8601 in UTC."""

    @property
    def words(self) -> str:
        """'process 4711 on this machine has been sweeping into it since 10:32 UTC'."""
        if not self.process:
            return "another process is sweeping into it"
        where = "this machine" if self.machine == socket.gethostname() else self.machine
        who = "this very process" if self._is_ours else f"process {self.process} on {where}"
        since = ""
        with suppress(ValueError):
            since = f" since {datetime.fromisoformat(self.since):%d %b %H:%M} UTC"
        return f"{who} has been sweeping into it{since}"

    @property
    def _is_ours(self) -> bool:
        return self.process == os.getpid() and self.machine == socket.gethostname()


def holder(folder: Path) -> LockHolder | None:
    """Who sweeps into the folder now; None where nobody does."""
    try:
        with open_lock(folder / _NAME, make=False) as file:
            return None if try_lock(file.fileno(), shared=True) else _read(file)
    except OSError:
        return None


def check_nobody(folder: Path) -> None:
    """Raise BadInput while somebody sweeps into the folder."""
    if (found := holder(folder)) is not None:
        raise StorageError(_refusal(folder, found))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder, which is there. Raises BadInput while somebody else does, in this process or another, and where
    the disk refuses."""
    with disk_refusals(folder):
        file = _taken(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / _NAME).unlink(missing_ok=True)  # still held, so nobody else's
        file.close()


def _taken(folder: Path) -> IO[bytes]:
    end = time.monotonic() + _LOOK
    while True:
        file = open_lock(folder / _NAME)
        locked = try_lock(file.fileno())
        if locked and _is_there(file, folder):
            break
        found = None if locked else _read(file)
        file.close()
        if found is not None and time.monotonic() > end:
            raise StorageError(_refusal(folder, found))
        time.sleep(_PAUSE)
    with suppress(OSError):  # a full disk: held all the same, only nobody can read by whom
        file.truncate(0)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(json.dumps(asdict(LockHolder(os.getpid(), socket.gethostname(), now))).encode())
    return file


def _is_there(file: IO[bytes], folder: Path) -> bool:
    """False if whoever held it before has removed it in between."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), (folder / _NAME).stat())
    return False


def _read(file: IO[bytes]) -> LockHolder:
    try:
        file.seek(0)
        found = json.loads(file.read(4096))
        return LockHolder(int(found["process"]), str(found["machine"])[:100], str(found["since"])[:40])
    except (OSError, ValueError, KeyError, TypeError):
        return LockHolder()


def _refusal(folder: Path, found: LockHolder) -> str:
    return f"{folder} is in use: {found.words}. Wait until it is done, or stop it; what it has finished is kept."
