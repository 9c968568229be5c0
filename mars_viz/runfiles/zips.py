"""Runs as zip files, for download and upload. An upload comes from a stranger and is treated so.

Knows what a zip may contain before and while it is unpacked; whether the contents are a run is `contents`' to say.
"""

from __future__ import annotations

import io
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from mars_viz.errors import BadInput
from mars_viz.run import Run
from mars_viz.runfiles.contents import MAP_NAMES, NAMES, decode, encode
from mars_viz.runfiles.folders import check_free, write_folder

MAX_ZIP = 50 << 20
"""Bytes of an upload."""
MAX_UNPACKED = 400 << 20
"""Bytes that come out of it, counted while unpacking."""
MAX_RATIO = 50
"""Bytes out for each byte in; tables are compressed already, so a run comes out barely larger."""
MAX_ENTRIES = 32
"""Entries, folders and what a Mac adds included."""

TIMEOUT = 60
"""Seconds for reading an upload."""
VETTING = (sys.executable, "-m", __package__)
"""The process that reads it first."""

_ENTRY = b"PK\x01\x02"
_CHUNK = 1 << 16
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, struct.error)
"""What zipfile raises on damaged bytes, depending on where the damage lies."""


def write_zip(run: Run) -> bytes:
    """The run's folder, named `run`, as a zip: the same bytes for the same run."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in encode(run).items():
            info = zipfile.ZipInfo(f"run/{name}")
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def read_zip(data: bytes | BinaryIO, into: Path) -> Run:
    """Unpack the zip of a run's folder into the new or empty folder `into`, and return the run.

    Raises BadInput, and leaves nothing behind, for anything but a run: the known files, in one folder or none, within
    limits that are counted and not believed.
    """
    is_empty = into.is_dir() and not any(into.iterdir())
    if not is_empty:
        check_free(into)
    if not isinstance(data, bytes):
        data = data.read(MAX_ZIP + 1)
    try:
        files = unpacked(data)
        _vet(data)
        run = decode(files)
    except BadInput as error:
        raise BadInput(f"The zip cannot be opened: {error}") from error
    if is_empty:
        into.rmdir()
    write_folder(files, into)
    return run


def _vet(data: bytes) -> None:
    """Have another process read the zip first; see `__main__`."""
    try:
        done = subprocess.run(VETTING, input=data, capture_output=True, timeout=TIMEOUT, cwd=Path(__file__).parents[2])
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"it takes more than {TIMEOUT} seconds to read. Choose the zip of a single run.") from error
    if done.returncode == BadInput.exit_code:
        raise BadInput(done.stderr.decode(errors="replace"))
    if done.returncode:
        raise BadInput("its tables are damaged in a way that no run is. Download it again.")


def unpacked(data: bytes) -> dict[str, bytes]:
    """The run's files in the zip, by name. Raises BadInput for a zip that holds anything else, or far too much."""
    if len(data) > MAX_ZIP:
        raise BadInput(f"it is larger than {MAX_ZIP >> 20} MB. Put the run's folder beside the others instead.")
    if data.count(_ENTRY) > MAX_ENTRIES:
        raise BadInput("it holds too many entries. Choose the zip of a single run.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive.infolist())
            return _contents(archive, members, min(MAX_UNPACKED, MAX_RATIO * len(data)))
    except _UNREADABLE as error:
        raise BadInput("it is damaged or no zip. Download it again.") from error


def _members(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The run's files by their plain names."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        if not info.filename:
            raise BadInput("it holds an entry without a name. Zip the run's folder again.")
        path = PurePosixPath(info.filename)
        if path.parts[:1] == ("__MACOSX",) or path.name == ".DS_Store":
            continue  # what a Mac adds; never unpacked
        _check_entry(info, path)
        if info.is_dir():
            continue
        if path.name not in (*NAMES, *MAP_NAMES) or path.name in found:
            raise BadInput(f"it holds {info.filename!r}, which is no part of a run. Choose the zip of a single run.")
        found[path.name] = info
    if len({PurePosixPath(info.filename).parent for info in found.values()}) > 1:
        raise BadInput("it holds more than one folder. Choose the zip of a single run.")
    return found


def _check_entry(info: zipfile.ZipInfo, path: PurePosixPath) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    expected = stat.S_IFDIR if info.is_dir() else stat.S_IFREG
    depth = 1 if info.is_dir() else 2
    if path.is_absolute() or ".." in path.parts or "\\" in info.orig_filename or ":" in info.filename:
        raise BadInput(f"it holds the path {info.filename!r}, which leads elsewhere. Zip the run's folder again.")
    if kind not in (0, expected):
        raise BadInput(f"it holds {info.filename!r}, which is a link or no plain file. Zip the run's folder again.")
    if len(path.parts) > depth:
        raise BadInput(f"it holds {info.filename!r}, deeper than a run's files lie. Zip the run's folder alone.")
    if info.flag_bits & 0x1:
        raise BadInput("it is encrypted. Choose a zip without a password.")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadInput("it is compressed in an unusual way. Zip the run's folder with the usual settings.")


def _contents(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], limit: int) -> dict[str, bytes]:
    """What comes out, read in small pieces so that a bomb is noticed while it is small."""
    files: dict[str, bytes] = {}
    total = 0
    for name, info in members.items():
        parts = []
        with archive.open(info) as source:
            while part := source.read(_CHUNK):
                total += len(part)
                if total > limit:
                    raise BadInput("it unpacks to far more than a run. Choose the zip of a single run.")
                parts.append(part)
        files[name] = b"".join(parts)
    return files
