"""The bin for deleted runs: a subfolder, so that runs move in and out atomically.

Callers of `take` and `give_back` must hold the folder's lock.
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

DAYS = 30  # days until deleted folders are removed
BYTES = 1 << 30  # total size beyond which the oldest are removed; the last deleted one always stays


class Bin:
    """Deleted folders of a home folder."""

    def __init__(self, home: Path) -> None:
        """`home` is the folder of the runs. Nothing is created before the first deletion."""
        self._home = home
        self.folder = home / ".bin"

    def take(self, path: Path) -> None:
        """Move a folder in, replacing an earlier one of that name. Raises OSError on disk errors."""
        make_folder(self.folder)
        os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)  # start of its time in the bin
        target = self.folder / path.name
        if target.exists():
            remove(put_away(target, self._home))
        path.rename(target)

    def give_back(self, path: Path) -> None:
        """Move a folder back. Raises BadInput if it is gone or its name is taken, and OSError on disk errors."""
        if not (self.is_there() and os.path.lexists(path)):
            raise StorageError("It is not in the bin any more: it was brought back meanwhile, or its time is over.")
        check_free(self._home / path.name)
        path.rename(self._home / path.name)

    def is_there(self) -> bool:
        """False if nothing was deleted yet, or if the folder is a link made by another user."""
        with suppress(OSError):
            return to_read(self.folder).is_dir()
        return False

    def expire(self) -> None:
        """Remove folders whose time is over."""
        if self._overdue():
            with suppress(OSError, BadInput), alone_in(self._home):
                for path in self._overdue():
                    remove(put_away(path, self._home))

    def _overdue(self) -> list[Path]:
        try:
            newest_first = sorted(to_read(self.folder).iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True)
        except OSError:
            return []
        overdue, total = [], 0
        for place, path in enumerate(newest_first):
            total += 0 if path.is_symlink() else sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            if time.time() - path.lstat().st_mtime > DAYS * 86_400 or (place and total > BYTES):
                overdue.append(path)
        return overdue


def put_away(path: Path, home: Path) -> Path:
    """Hide a folder from all lists atomically, and return its new path for removal."""
    hidden = beside(home / path.name.lstrip("."))
    hidden = hidden.with_name(f"{hidden.name}.gone")
    path.rename(hidden)
    return hidden
