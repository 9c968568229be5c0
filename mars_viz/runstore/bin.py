"""Deleted runs, for a while: a folder beside the others, so that each goes there, and comes back, in one step.

Knows folders and the disk; knows nothing of what is in them. Whoever takes or gives back holds the folder's lock.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from mars_viz.errors import BadInput, StorageError
from mars_viz.locks import alone_in
from mars_viz.runfiles import check_free
from mars_viz.writer import beside, make_folder, remove, to_read

DAYS = 30
"""That a deleted folder is kept."""
BYTES = 1 << 30
"""Of all deleted ones together; beyond that those that were deleted longest ago go. The last one stays in any case."""


class Bin:
    """The deleted folders beside some others."""

    def __init__(self, home: Path) -> None:
        """`home` is where they were deleted from; nothing is made before the first one is."""
        self._home = home
        self.folder = home / ".bin"

    def take(self, path: Path) -> None:
        """Move a folder in, in the place of one that was deleted under the same name before. Raises OSError where the
        disk refuses."""
        make_folder(self.folder)
        os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)  # from now on it counts
        there = self.folder / path.name
        if there.exists():
            remove(put_away(there, self._home))
        path.rename(there)

    def give_back(self, path: Path) -> None:
        """Move a folder back to where it was. Raises BadInput where it is not here any more, or another is there
        by now; OSError where the disk refuses."""
        if not (self.is_there() and os.path.lexists(path)):
            raise StorageError("It is not in the bin any more: it was brought back meanwhile, or its time is over.")
        check_free(self._home / path.name)
        path.rename(self._home / path.name)

    def is_there(self) -> bool:
        """False where nothing was deleted yet, and of a link that another user made."""
        with suppress(OSError):
            return to_read(self.folder).is_dir()
        return False

    def expire(self) -> None:
        """Remove for good what was here for long enough."""
        if self._overdue():
            with suppress(OSError, BadInput), alone_in(self._home):
                for path in self._overdue():
                    remove(put_away(path, self._home))

    def _overdue(self) -> list[Path]:
        try:
            there = sorted(to_read(self.folder).iterdir(), key=_when, reverse=True)
        except OSError:
            return []
        found, total = [], 0
        for place, path in enumerate(there):
            total += 0 if path.is_symlink() else sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            if time.time() - _when(path) > DAYS * 86_400 or (place and total > BYTES):
                found.append(path)
        return found


def put_away(path: Path, home: Path) -> Path:
    """Take a folder out of every list in one step; where it lies now, to be removed."""
    gone = beside(home / path.name.lstrip("."))
    gone = gone.with_name(f"{gone.name}.gone")
    path.rename(gone)
    return gone


def _when(path: Path) -> float:
    return path.lstat().st_mtime
