"""Files of a sweep's folder, written whole or not at all. Knows paths and bytes; knows no sweeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mars_viz.errors import BadInput


def write_whole(path: Path, data: bytes) -> None:
    """Under another name first, so that a file of this name is always whole, whatever is killed."""
    unfinished = path.parent / f".{path.name}.part"
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def refusals(folder: Path, kept: str = "") -> Iterator[None]:
    """Let the disk's refusals say which sweep they are about, and what becomes of it."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be written ({error.strerror or error}). Make room or choose another place{kept}."
        ) from error
