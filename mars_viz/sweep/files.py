"""Files of a sweep's folder, which the disk has once they are written. Knows paths and bytes; knows no sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mars_viz import writer
from mars_viz.errors import StorageError


def write_whole(path: Path, data: bytes) -> None:
    """A file of this name is always whole, whatever is killed. Raises OSError."""
    writer.write_file(path, data, synced=True)


@contextmanager
def refusals(folder: Path, kept: str = "") -> Iterator[None]:
    """Let the disk's refusals say which sweep they are about, and what becomes of it."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written ({error.strerror or error}). Make room or choose another place{kept}."
        ) from error
