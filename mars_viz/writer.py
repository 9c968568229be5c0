"""Write files and folders atomically, and read them safely.

Until it is complete, a file has a random new name in the same folder, created without following links, so that it
cannot be predicted and replaced by a link. Stores of runs, races and sweeps remove the leftovers of killed processes.

Folders of runs, races and sweeps may be writable by several users of a machine. The folder itself is trusted. Links
inside it are followed, for reading or writing, only if this user or root made them.

JSON is written without NaN or infinity, and CSV is safe from formula injection: spreadsheets run a cell that starts
with =, +, −, @, a tab or a line break, even if quoted, and hide a leading apostrophe. Such cells that are not numbers
get an apostrophe in front, as OWASP advises, and so do cells with apostrophes before such a character: the text after
the first apostrophe is then always the original.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from numbers import Number
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

from mars_viz.errors import disk_refusals

STALE = 3600.0  # seconds after which a file with a random name is abandoned
REPLACED = ".old"  # ending of the random name of a folder that another one replaces
_LONGEST = 180  # bytes of a name that its random name repeats; the total stays below the 255 of file systems
_RANDOM = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}", re.DOTALL)
_ALWAYS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ALWAYS
_KEPT_OPEN = os.O_CREAT | os.O_APPEND | os.O_RDWR


def write_file(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Write a file, replacing an existing one; `synced` waits for the disk. Raises OSError, and then the existing file
    stays unchanged."""
    with replacing(path, synced=synced) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, *, synced: bool = False) -> Iterator[BinaryIO]:
    """Yield the file to write to, for writing in several steps; as `write_file`."""
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


def write_folder(path: Path, files: Iterable[tuple[str, bytes]], *, replace: bool = False) -> None:
    """Write a folder of files by name, including `folder/file`; it is visible once it is complete. With `replace` it
    replaces an existing one, which stays unchanged on errors. Raises BadInput, and leaves nothing behind."""
    unfinished = beside(path)
    before = unfinished.with_name(f"{unfinished.name}{REPLACED}")
    try:
        with disk_refusals(path, remedy="Choose another place, or make room."):
            unfinished.mkdir(parents=True)
            for name, data in files:
                (unfinished / name).parent.mkdir(exist_ok=True)
                with new_file(unfinished / name) as file:
                    file.write(data)
            if replace and path.is_dir():
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
    """Create a file that must not exist. Raises OSError."""
    return cast(BinaryIO, os.fdopen(os.open(path, _NEW, 0o666), "wb"))


def open_lock(path: Path, *, make: bool = True) -> BinaryIO:
    """Open a lock file, which describes its holder, for reading and appending, unbuffered. Without `make`, open an
    existing file for reading. Raises OSError, also for a link or a special file."""
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
    """Create a folder of the product, if it does not exist, inside one that others may write to. Raises OSError, also
    if it is a link made by another user."""
    path.mkdir(exist_ok=True)
    _check_ours(path)


def to_read(folder: Path, name: str = "") -> Path:
    """Return the path in a folder, including `folder/file`, or the folder itself, for reading. Raises OSError if a
    component is a link made by another user, or if it is a special file, which might block forever."""
    path = folder
    for part in ("", *Path(name).parts):
        path /= part
        _check_ours(path)
    if not (path.is_dir() or path.is_file()):
        raise OSError(errno.EINVAL, f"{path.name} is no plain file; remove it", str(path))
    return path


def _check_ours(path: Path) -> None:
    if not is_ours(path):
        raise OSError(errno.ELOOP, f"{path.name} is a link that another user made; remove it", str(path))


def is_ours(path: Path) -> bool:
    """False for a link that neither this user nor root made."""
    status = path.lstat()
    return not stat.S_ISLNK(status.st_mode) or not hasattr(os, "geteuid") or status.st_uid in (os.geteuid(), 0)


def beside(path: Path) -> Path:
    """Return a random name in the same folder, for use until the path is complete."""
    name = os.fsencode(path.name)[:_LONGEST].decode(errors="ignore")
    return path.parent / f".{name}.{uuid4().hex}"


def remove_leftovers(folder: Path) -> None:
    """Remove unfinished files and folders, ignoring errors. No other process may be writing into the folder."""
    with suppress(OSError):
        for path in list(folder.iterdir()):
            if _RANDOM.fullmatch(path.name):
                with suppress(OSError):
                    remove(path)


def remove(path: Path) -> None:
    """Remove a file, a folder with its contents, or a link itself. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """Convert to JSON types: null for NaN and infinity, an Enum's value, fields of dataclasses, strings for keys."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def picked(record: object, *names: str) -> dict[str, Any]:
    """Return these attributes by name, for JSON."""
    return {name: getattr(record, name) for name in names}


def json_of(value: object, *, indent: int = 2, escaped: bool = True) -> str:
    """Return the value as JSON text; `escaped` limits it to ASCII, for terminals."""
    return json.dumps(plain(value), ensure_ascii=escaped, allow_nan=False, indent=indent)


_FORMULA = re.compile("'*[-=+@\t\r\n\N{MINUS SIGN}\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                      "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}]")  # fmt: skip
_NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_QUOTED = re.compile('[",\r\n]')


def csv_of(heads: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a header line and a line per row, comma-separated and ended by line feeds; None and NaN are empty."""
    lines = [",".join(map(_cell, row)) or '""' for row in [heads, *rows]]  # an empty line would not be a row
    return "".join(f"{line}\n" for line in lines)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, Number):
        return str(value)
    text = str(value)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
