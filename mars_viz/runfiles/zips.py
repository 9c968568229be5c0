"""Read and write runs as zip files, with checks for untrusted uploads.

Other kinds of uploads use the same checks. `codec` decides whether the contents are a run.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from mars_viz.bounds import shortened
from mars_viz.errors import BadInput, RunFileError
from mars_viz.run import Run
from mars_viz.runfiles.codec import MAP_NAMES, NAMES, decode, encode
from mars_viz.runfiles.folders import check_free, write_folder

MAX_ZIP = 50 << 20  # bytes of an upload
MAX_UNPACKED = 64 << 20
"""Unpacked bytes, counted while unpacking. Tables are compressed already, so a run hardly grows."""
MAX_RATIO = 50  # unpacked bytes per byte of the zip; small runs, which are mostly manifest, reach about 5
MAX_ENTRIES = 32  # entries, including folders and macOS metadata
MAX_COMMENT = 1024  # bytes of a zip's comment
TIMEOUT = 30  # seconds for reading an upload
VETTING = (sys.executable, "-m", __package__)  # command of the sandbox process, before the layout's place
SPARING = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Its environment: allocators reserve no extra address space, so that it can be limited."""


@dataclass(frozen=True, slots=True)
class ZipLayout:
    """The files that a zip may contain, in one folder or none."""

    noun: str  # name of the contents in messages
    place: str  # module and name of this layout, for the sandbox process
    names: frozenset[str]  # paths of the files, with slashes
    entries: int  # maximum number of entries, including folders and macOS metadata
    decode: Callable[[Mapping[str, bytes]], object]  # takes the files by path; raises BadInput


RUN = ZipLayout("run", f"{__name__}:RUN", frozenset((*NAMES, *MAP_NAMES)), MAX_ENTRIES, decode)

_ENTRY, _END = b"PK\x01\x02", b"PK\x05\x06"  # signatures of a directory entry and of the end record
_HEADER = struct.Struct("<4s5H3L2H")
"""Local file header: includes flags, compression, and lengths of name and extra field."""
_CLOSING = struct.Struct("<4s4H2LH")
"""End record: includes the number of entries and the length of the comment at the end of the file."""
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, struct.error)
"""Errors that zipfile raises on damaged bytes, depending on the location of the damage."""


def packed(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a zip of these files by path. The bytes are reproducible."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def write_zip(run: Run) -> bytes:
    """Return the run's folder, named `run`, as a zip. The bytes are reproducible."""
    return packed((f"run/{name}", data) for name, data in encode(run).items())


def read_zip(data: bytes | BinaryIO, into: Path) -> Run:
    """Unpack the zip of a run's folder into the new or empty folder `into`, and return the run.

    Raises BadInput as `uploaded`, and leaves nothing behind then.
    """
    is_empty = into.is_dir() and not any(into.iterdir())
    if not is_empty:
        check_free(into)
    files = uploaded(data if isinstance(data, bytes) else data.read(MAX_ZIP + 1))
    run = decode(files)
    if is_empty:
        into.rmdir()
    write_folder(files, into)
    return run


def uploaded(data: bytes, layout: ZipLayout = RUN) -> dict[str, bytes]:
    """Return the files in a zip by name, after a sandbox process has decoded them.

    Raises BadInput unless the zip contains exactly the known files, in one folder or none, within limits that are
    enforced while unpacking.
    """
    try:
        files = unpacked(data, layout)
        vet(data, layout)
    except BadInput as error:
        raise RunFileError(f"The zip cannot be opened: {error}") from error
    return files


def vet(data: bytes, layout: ZipLayout = RUN) -> None:
    """Read the zip in a sandbox process; see `__main__`. Raises BadInput if that fails."""
    try:
        done = subprocess.run(
            [*VETTING, layout.place],
            input=data,
            capture_output=True,
            timeout=TIMEOUT,
            cwd=Path(__file__).parents[2],
            env=os.environ | SPARING,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFileError(
            f"it takes more than {TIMEOUT} seconds to read. Choose the zip of a single {layout.noun}."
        ) from error
    if done.returncode == BadInput.exit_code:
        raise RunFileError(done.stderr.decode(errors="replace"))
    if done.returncode:
        raise RunFileError(f"its tables are damaged in a way that no {layout.noun} is. Download it again.")


def unpacked(data: bytes, layout: ZipLayout = RUN) -> dict[str, bytes]:
    """Return the files in the zip by name. Raises BadInput for a zip with other files, or one that is too large."""
    noun = layout.noun
    if len(data) > MAX_ZIP:
        raise RunFileError(f"it is larger than {MAX_ZIP >> 20} MB. Put the {noun}'s folder next to the others instead.")
    if data.count(_ENTRY) > layout.entries:
        raise RunFileError(f"it holds too many entries. Choose the zip of a single {noun}.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            members = _members(infos, layout)
            _check_directory(data, archive, infos)
            return _contents(archive, members, min(MAX_UNPACKED, MAX_RATIO * len(data)), noun)
    except _UNREADABLE as error:
        raise RunFileError("it is damaged or no zip. Download it again.") from error


def _members(infos: list[zipfile.ZipInfo], layout: ZipLayout) -> dict[str, zipfile.ZipInfo]:
    """Return the entries by their names in the layout, before reading any."""
    members: dict[str, zipfile.ZipInfo] = {}
    folders: set[str] = set()
    noun, depth = layout.noun, max(len(PurePosixPath(name).parts) for name in layout.names)
    for info in infos:
        path = PurePosixPath(info.filename)
        if path.parts[:1] == ("__MACOSX",) or path.name == ".DS_Store":
            continue  # macOS metadata, never unpacked
        if info.flag_bits & 0x1:
            raise RunFileError("it is encrypted. Choose a zip without a password.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RunFileError("it is compressed in an unusual way. Zip the folder with the usual settings.")
        odd = any(sign in info.orig_filename for sign in "\\:\0") or path.is_absolute() or ".." in path.parts
        is_folder = info.filename.endswith("/")
        is_plain = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFDIR if is_folder else stat.S_IFREG)
        ends = ("/".join(path.parts[-parts:]) for parts in range(depth, 0, -1))
        name = next((end for end in ends if end in layout.names and not is_folder), "")
        is_part = len(path.parts) <= depth if is_folder else name and len(path.parts) <= depth + 1
        if odd or not is_plain or not is_part or name in members:
            raise RunFileError(
                f"it holds {shortened(info.filename)}, which is no part of a {noun}. Choose the zip of a single {noun}."
            )
        if name:
            members[name] = info
            folders.add(str(path).removesuffix(name))
    if len(folders) > 1:
        raise RunFileError(f"it holds more than one folder. Choose the zip of a single {noun}.")
    return members


def _check_directory(data: bytes, archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo]) -> None:
    """Check that every unzip program sees the same files. Raises BadZipFile. There must be only one directory with the
    right count, entries must match it, and must follow each other without overlap from the first byte on."""
    at = data.rfind(_END)
    _, _, _, _, count, _, _, comment = _CLOSING.unpack_from(data, at)
    if at + _CLOSING.size + comment != len(data) or comment > MAX_COMMENT or count != len(infos):
        raise zipfile.BadZipFile("another directory")
    end = 0
    for info in sorted(infos, key=lambda each: each.header_offset):
        header = _HEADER.unpack_from(data, info.header_offset)
        _, _, flags, way, *_, name, extra = header
        if info.header_offset < end or (not end and info.header_offset):
            raise zipfile.BadZipFile("overlapping entries")
        if way != info.compress_type or (flags ^ info.flag_bits) & 1:
            raise zipfile.BadZipFile("another entry")
        end = info.header_offset + _HEADER.size + name + extra + info.compress_size
    if end > archive.start_dir:
        raise zipfile.BadZipFile("overlapping entries")


def _contents(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], limit: int, noun: str) -> dict[str, bytes]:
    """Read the contents, and at most one byte more than the limit of a zip bomb."""
    files: dict[str, bytes] = {}
    total = 0
    for name, info in members.items():
        with archive.open(info) as source:
            files[name] = source.read(limit - total + 1)
        total += len(files[name])
        if total > limit:
            raise RunFileError(f"it unpacks to far more than a {noun}. Choose the zip of a single {noun}.")
    return files
