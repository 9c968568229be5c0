"""The one writer of files and folders: each gets its name in one step, once it is whole; and what may be read there.
Knows paths and bytes alone.

Until then it lies beside its place under a random name, which is made anew and through no link, so nobody can guess it
and put a link there. What a kill leaves under such a name goes when the same file is written again.

Folders of runs, races and sweeps may be writable for several users of a machine. Whoever names such a folder is
trusted; of what lies in it, no link is followed, to read or to write, that neither this user nor root made.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

STALE = 3600.0
"""Seconds after which nobody is still writing what lies under a random name."""
_LONGEST = 180
"""Bytes of a name that its random name repeats: with the rest it stays below the 255 that disks take."""
_RANDOM = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}", re.DOTALL)
_ALWAYS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ALWAYS
_KEPT_OPEN = os.O_CREAT | os.O_APPEND | os.O_RDWR


def write_file(path: Path, data: bytes, *, synced: bool = False, looks: bool = True) -> None:
    """Write a file, in the place of one that is there; `synced` waits until the disk has it. Without `looks` what a
    kill left of it stays: who writes many files into a folder looks through all of it once. Raises OSError, and leaves
    what was there as it was."""
    with replacing(path, synced=synced, looks=looks) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, *, synced: bool = False, looks: bool = True) -> Iterator[BinaryIO]:
    """The same for whoever writes in several steps: the file to write to."""
    if looks:
        remove_leftovers(path.parent, path.name)
    unfinished = beside(path)
    try:
        with new_file(unfinished) as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder of files, by their names in it, `folder/file` included. Raises OSError, and leaves nothing."""
    unfinished = beside(path)
    try:
        unfinished.mkdir(parents=True)
        remove_leftovers(path.parent, path.name)
        for name, data in files.items():
            (unfinished / name).parent.mkdir(exist_ok=True)
            with new_file(unfinished / name) as file:
                file.write(data)
        unfinished.rename(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A folder to write files into, which takes the place of one that is there once the block has ended. Whatever ends
    the block early leaves what was there as it was. Raises OSError."""
    unfinished, before = beside(path), beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        unfinished.mkdir()
        yield unfinished
        if path.is_dir():
            path.rename(before)
        try:
            unfinished.rename(path)
        except OSError:
            if before.is_dir():
                before.rename(path)
            raise
        shutil.rmtree(before, ignore_errors=True)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def new_file(path: Path) -> BinaryIO:
    """A file that was not there before. Raises OSError."""
    return cast(BinaryIO, os.fdopen(os.open(path, _NEW, 0o666), "wb"))


def open_lock(path: Path, *, make: bool = True) -> BinaryIO:
    """A file to be locked, which says who holds it: to be read and written at its end, unbuffered; without `make` to be
    read alone, where it is there. Raises OSError, also where a link or no plain file has its name."""
    flags = (_KEPT_OPEN if make else os.O_RDONLY) | _ALWAYS | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{path.name} in it is a link; remove that", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path.name} in it is no plain file; remove that", str(path))
    return cast(BinaryIO, os.fdopen(descriptor, "a+b" if make else "rb", buffering=0))


def make_folder(path: Path) -> None:
    """Make a folder of the product's own in one that others may write to, where it is not there. Raises OSError, also
    where it is a link that somebody else made."""
    path.mkdir(exist_ok=True)
    if not is_ours(path):
        raise _linked(path)


def to_read(folder: Path, name: str = "") -> Path:
    """The file or folder of that name in a folder, `folder/file` included, or the folder itself, for whoever reads it.
    Raises OSError where one of them is a link that somebody else made, or no plain file, which might never end."""
    path = folder
    for part in ("", *Path(name).parts):
        path /= part
        if not is_ours(path):
            raise _linked(path)
    if not (path.is_dir() or path.is_file()):
        raise OSError(errno.EINVAL, f"{path.name} is no plain file; remove it", str(path))
    return path


def _linked(path: Path) -> OSError:
    return OSError(errno.ELOOP, f"{path.name} is a link that another user made; remove it", str(path))


def is_ours(path: Path) -> bool:
    """False of a link that neither this user nor root made: it may lead anywhere."""
    there = path.lstat()
    return not stat.S_ISLNK(there.st_mode) or not hasattr(os, "geteuid") or there.st_uid in (os.geteuid(), 0)


def beside(path: Path) -> Path:
    """A random name in the same folder, for what will be called that."""
    return path.parent / f".{_clipped(path.name)}.{uuid4().hex}"


def _clipped(name: str) -> str:
    return os.fsencode(name)[:_LONGEST].decode(errors="ignore")


def remove_leftovers(folder: Path, name: str = "", age: float = STALE) -> None:
    """Remove what was being written there when a kill came, at least `age` seconds ago: of what is called `name`, or of
    everything. What cannot be removed stays."""
    with suppress(OSError), os.scandir(folder) as there:
        for entry in there:
            found = _RANDOM.fullmatch(entry.name)
            if found is None or (name and found["name"] != _clipped(name)):
                continue
            with suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime >= age:
                    remove(Path(entry.path))


def remove(path: Path) -> None:
    """Remove a file, a folder with all that is in it, or a link but not what it leads to. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
