"""Write a report to disk, and convert tables to CSV and Parquet."""

from __future__ import annotations

import io
import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from mars_viz.errors import StorageError, disk_refusals
from mars_viz.report.page import MARK
from mars_viz.strict_formats import csv_of
from mars_viz.writer import write_file

if TYPE_CHECKING:
    import pandas as pd


def check_place(path: str | PathLike[str], *, force: bool = False) -> Path:
    """Return the path for a report, which may replace an earlier report, and other files only with `force`.

    Raises BadInput if it cannot be written there.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise StorageError(f"{path} is a folder. Name a file in it, such as {path / 'report.html'}.")
        if not path.parent.is_dir():
            raise StorageError(f"The folder {path.parent} does not exist. Make it first, or choose another place.")
        is_report = False
        if path.is_file() and not force:
            with path.open("rb") as file:
                is_report = MARK.encode() in file.read(400)  # near the start
        if (path.exists() or path.is_symlink()) and not force and not is_report:
            raise StorageError(f"{path} exists and is not a report. Choose another name, or replace it with --force.")
    except OSError as error:
        raise StorageError(f"{path} cannot be looked at ({error.strerror}). Choose another place.") from error
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"Nothing can be written to {path.parent}. Choose another place.")
    return path


def write_report(html: str, path: str | PathLike[str], *, force: bool = False) -> Path:
    """Write the report atomically. Raises BadInput as `check_place` does, and on disk errors."""
    path = check_place(path, force=force)
    with disk_refusals(path, remedy="Choose another place, or make room."):
        write_file(path, html.encode())
    return path


def csv_table(frame: pd.DataFrame) -> bytes:
    """Return UTF-8 CSV with a header; see `strict_formats` for text that could be a formula."""
    columns = (frame.iloc[:, place] for place in range(frame.shape[1]))
    cells = ([None if missing else cell for cell, missing in zip(c.to_numpy(), c.isna(), strict=True)] for c in columns)
    return csv_of(frame.columns, zip(*cells, strict=True)).encode("utf-8")


def parquet_table(frame: pd.DataFrame) -> bytes:
    """Return Parquet with the columns' types; mixed columns become text."""
    import pandas as pd  # slow import, rarely needed

    plain = frame.copy()
    for place, name in enumerate(plain.columns):
        column = plain.iloc[:, place]
        if column.dtype == object and column.map(type).nunique() > 1:
            plain[name] = [None if pd.isna(value) else str(value) for value in column]
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    return buffer.getvalue()
