"""A report on disk: what it may replace. Knows files."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from mars_viz.errors import StorageError, disk_refusals
from mars_viz.report.page import MARK
from mars_viz.writer import write_file

_HEAD = 400  # bytes within which a report names what made it


def check_place(path: str | PathLike[str], *, force: bool = False) -> Path:
    """The place for a report. Raises BadInput where one cannot be put, or where a file is that is no report.

    A report replaces an earlier one; any other file only with `force`.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise StorageError(f"{path} is a folder. Name a file in it, such as {path / 'report.html'}.")
        if not path.parent.is_dir():
            raise StorageError(f"The folder {path.parent} does not exist. Make it first, or choose another place.")
        if (path.exists() or path.is_symlink()) and not force and not _is_report(path):
            raise StorageError(f"{path} exists and is not a report. Choose another name, or replace it with --force.")
    except OSError as error:
        raise StorageError(f"{path} cannot be looked at ({error.strerror}). Choose another place.") from error
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"Nothing can be written to {path.parent}. Choose another place.")
    return path


def write_report(html: str, path: str | PathLike[str], *, force: bool = False) -> Path:
    """Write the report; at any moment there is the old file or the new one. Raises BadInput as `check_place` does, and
    where the disk refuses."""
    path = check_place(path, force=force)
    with disk_refusals(path, remedy="Choose another place, or make room."):
        write_file(path, html.encode())
    return path


def _is_report(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(_HEAD)
