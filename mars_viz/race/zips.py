"""Races as zip files, for download and upload. What a zip may hold is checked as a run's is.

Knows the files of a race; how a stranger's zip is opened is `runfiles.zips`' to know.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

from mars_viz.errors import BadInput, RunFileError
from mars_viz.race.files import ABOUT
from mars_viz.race.records import Lane
from mars_viz.runfiles.codec import MAP_NAMES, NAMES
from mars_viz.runfiles.folders import check_free, write_folder
from mars_viz.runfiles.zips import Layout, unpacked, vet
from mars_viz.writer import to_read

_LANES = (Lane.STRICT.value, Lane.RELAXED.value)
RACE = Layout("race", frozenset((ABOUT, *(f"{lane}/{name}" for lane in _LANES for name in (*NAMES, *MAP_NAMES)))), 64)
"""What the zip of a race may hold."""
VETTING = (sys.executable, "-m", __package__)
"""The process that reads an upload first."""


def write_zip(path: Path) -> bytes:
    """The race in a folder as a zip. Raises BadInput where it cannot be read."""
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(RACE.names):
                if (path / name).is_file():
                    archive.write(to_read(path, name), f"{path.name}/{name}")
    except OSError as error:
        raise RunFileError(f"{path} cannot be read ({error.strerror}). Check that it can be.") from error
    return buffer.getvalue()


def read_zip(data: bytes, into: Path) -> None:
    """Unpack the zip of a race into the new folder `into`, after another process has read it.

    Raises BadInput, and leaves nothing behind, for anything but a whole race.
    """
    check_free(into)
    try:
        files = unpacked(data, RACE)
        vet(data, VETTING, RACE.noun)
    except BadInput as error:
        raise RunFileError(f"The zip cannot be opened: {error}") from error
    write_folder(files, into)
