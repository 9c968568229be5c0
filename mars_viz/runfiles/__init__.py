"""Runs on disk: a folder with manifest.json and Parquet tables, or a zip of it.

Four tables contain the run, and three more its dial map if it has one; see `codec` and `manifest`. No file is ever
unpickled or executed. A run is written to a temporary folder that is renamed when it is complete, so an interruption
leaves no partial run. Only this module touches a run's files on disk.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

from mars_viz.bounds import shortened
from mars_viz.errors import BadInput, RunFileError, StorageError, disk_refusals
from mars_viz.run import Run
from mars_viz.runfiles import manifest
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, damaged_file, decode, encode, files_of, missing_file
from mars_viz.runfiles.manifest import Manifest
from mars_viz.writer import beside, to_read, write_folder

_SMALL = 1 << 14  # bytes of a manifest that is kept in memory; one with a very long prompt is larger
_remembered = lru_cache(maxsize=4096)(manifest.from_json)  # every page lists every run on each redraw


def save_run(run: Run, path: str | PathLike[str]) -> Path:
    """Write the run to a new folder and return its path. Raises BadInput, also if the path exists."""
    path = Path(path)
    check_free(path)
    write_folder(path, encode(run).items())
    return path


def load_run(path: str | PathLike[str]) -> Run:
    """Read the run in a folder. Raises BadInput, naming the file and the remedy, for anything but a complete run.

    The result is consistent: lengths agree, parents come first, every decision follows from its verdicts, and every
    token has its text. Segments of its dial map are computed on first access.
    """
    path = Path(path)
    with naming(path):
        about = _file(path, MANIFEST).read_bytes()
        names = files_of(manifest.from_json(about))
        return decode({MANIFEST: about} | {name: _file(path, name).read_bytes() for name in names})


def check_free(path: str | PathLike[str]) -> None:
    """Raise BadInput if a folder cannot be created at this path, because it exists or its parent cannot be written."""
    path = Path(path)
    with disk_refusals(path, remedy="Choose another place."):
        if path.exists() or path.is_symlink():
            raise StorageError(f"{path} exists already. Choose another name, or remove it first.")
        existing = next(parent for parent in path.absolute().parents if parent.exists() or parent.is_symlink())
        probe = beside(existing / path.name)
        probe.mkdir()  # permission bits do not cover every kind of folder
        probe.rmdir()


def listed_facts(path: Path) -> Manifest:
    """Return the manifest of a run's folder. Raises BadInput unless the other files have the sizes that it names: a
    damaged table of the right size shows when the run is loaded."""
    with naming(path):
        data = _file(path, MANIFEST).read_bytes()
        about = _remembered(data) if len(data) <= _SMALL else manifest.from_json(data)
        for name in files_of(about):
            if _file(path, name).stat().st_size != about.files[name].bytes:
                raise damaged_file(name)
    return about


def _file(path: Path, name: str) -> Path:
    """Return the path of a run's file, for reading. Raises BadInput, also if `path` is no folder of a run."""
    if not path.is_dir():
        what = "it is a file; unpack a run's zip first" if path.exists() else "the folder does not exist"
        raise RunFileError(f"{what}. Choose a folder written by MARS Viz.")
    if not (path / name).is_file():
        raise missing_file(name)
    return to_read(path, name)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to every error raised in the block, as BadInput."""
    with disk_refusals(path, "opened", "Check that it can be read.", RunFileError):
        try:
            yield
        except BadInput as error:
            raise RunFileError(f"{path} cannot be opened: {error}") from error


MAX_ZIP = 50 << 20  # bytes of an upload
MAX_UNPACKED = 64 << 20
"""Unpacked bytes, counted while unpacking. Tables are compressed already, so a run hardly grows."""
MAX_RATIO = 50  # unpacked bytes per byte of the zip; small runs, which are mostly manifest, reach about 5
MAX_ENTRIES = 32  # entries, including folders and macOS metadata
TIMEOUT = 30  # seconds for reading an upload
VETTING = (sys.executable, "-m", __package__)  # command of the sandbox process
SPARING = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Its environment: allocators reserve no extra address space, so that it can be limited."""


_ENTRY = b"PK\x01\x02"  # signature of a directory entry
_FOLDER = re.compile(r"(?!\.\.?/)[^/\\:]+/|")  # the folder of the files in a zip, or none
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


def read_zip(data: bytes, into: Path) -> Run:
    """Unpack the zip of a run's folder into the new folder `into`, and return the run, which a sandbox process decodes
    first.

    Raises BadInput, and leaves nothing behind, unless the zip contains exactly the known files, in one folder or none,
    within limits that are enforced while unpacking.
    """
    check_free(into)
    try:
        files = unpacked(data)
        vet(data)
    except BadInput as error:
        raise RunFileError(f"The zip cannot be opened: {error}") from error
    run = decode(files)
    write_folder(into, files.items())
    return run


def vet(data: bytes) -> None:
    """Read the zip in a sandbox process; see `__main__`. Raises BadInput if that fails."""
    try:
        how: dict[str, Any] = {"cwd": Path(__file__).parents[2], "env": os.environ | SPARING, "timeout": TIMEOUT}
        done = subprocess.run(VETTING, input=data, capture_output=True, **how)
    except subprocess.TimeoutExpired as error:
        raise RunFileError(f"it takes more than {TIMEOUT} seconds to read. Choose one run's zip.") from error
    if done.returncode == BadInput.exit_code:
        raise RunFileError(done.stderr.decode(errors="replace"))
    if done.returncode:
        raise RunFileError("its tables are damaged in a way that no run is. Download it again.")


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the files in the zip by name. Raises BadInput for a zip with other files, or one that is too large."""
    if len(data) > MAX_ZIP:
        raise RunFileError(f"it is larger than {MAX_ZIP >> 20} MB. Put the run's folder next to the others instead.")
    if data.count(_ENTRY) > MAX_ENTRIES:
        raise RunFileError("it holds too many entries. Choose the zip of a single run.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive.infolist())
            files, limit = dict[str, bytes](), min(MAX_UNPACKED, MAX_RATIO * len(data))
            for name, info in members.items():
                with archive.open(info) as source:
                    files[name] = source.read(limit + 1)  # at most one byte more of a zip bomb
                limit -= len(files[name])
                if limit < 0:
                    raise RunFileError("it unpacks to far more than a run. Choose the zip of a single run.")
            return files
    except _UNREADABLE as error:
        raise RunFileError("it is damaged or no zip. Download it again.") from error


def _members(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """Return the entries by their names. Names in the zip are only compared, never used as paths."""
    members: dict[str, zipfile.ZipInfo] = {}
    folders: set[str] = set()
    for info in infos:
        if info.filename.endswith("/") or info.filename.startswith("__MACOSX/") or info.filename.endswith(".DS_Store"):
            continue
        if info.flag_bits & 0x1:
            raise RunFileError("it is encrypted. Choose a zip without a password.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack without a limit
            raise RunFileError("it is compressed in an unusual way. Zip the folder with the usual settings.")
        name = next((name for name in (*NAMES, *MAP_NAMES) if f"/{info.filename}".endswith(f"/{name}")), "")
        folder = info.filename.removesuffix(name)
        if not name or name in members or not _FOLDER.fullmatch(folder):
            raise RunFileError(f"it holds {shortened(info.filename)}, no part of a run. Choose one run's zip.")
        members[name] = info
        folders.add(folder)
    if len(folders) > 1:
        raise RunFileError("it holds more than one folder. Choose the zip of a single run.")
    return members
