"""Record which browser made each saved run, and decide whether it may rename and delete it.

A browser is identified by a mark in a separate folder, so that marks are never part of downloads.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mars_viz.errors import BadInput, StorageError
from mars_viz.permissions import DELETE, MayDelete, who_may_delete
from mars_viz.writer import make_folder, to_read, write_file

Sees = Callable[[str, str], bool]
"""Takes a name and the maker's mark (empty if unknown); returns whether the visitor may see it."""

_STALE = 30 * 86_400.0  # seconds to keep the note of a missing run, which may still be decoding


class Makers:
    """Makers of the entries of a folder."""

    def __init__(self, home: Path) -> None:
        """Nothing is created before the first note."""
        self._folder = home / ".makers"
        self._sees: Sees | None = None

    def seen_by(self, sees: Sees | None) -> Makers:
        """Return a copy for a visitor with limited access; None gives full access."""
        seen = copy.copy(self)
        seen._sees = sees
        return seen

    def shows(self, name: str) -> bool:
        """True if the visitor may see this entry."""
        return self._sees is None or self._sees(name, self.of(name))

    def note(self, name: str, mark: str) -> None:
        """Record the maker of an entry. Without a mark, or on disk errors, the maker stays unknown."""
        if mark:
            with suppress(OSError):
                self._folder.parent.mkdir(parents=True, exist_ok=True)
                make_folder(self._folder)
                write_file(self._folder / name, mark.encode())

    def drop(self, name: str) -> None:
        """Delete the note of an entry that was not saved."""
        with suppress(OSError):
            (to_read(self._folder) / name).unlink()

    def of(self, name: str) -> str:
        """Return the maker's mark; empty if unknown."""
        with suppress(OSError, ValueError):
            if Path(name).name == name:
                return to_read(self._folder, name).read_text("utf-8")
        return ""

    def refusal(self, name: str, mark: str) -> str:
        """Return why this browser may not rename or delete the entry; empty if it may."""
        try:
            who = who_may_delete()
        except BadInput as error:
            return str(error)
        maker = self.of(name)
        if who is MayDelete.EVERYBODY or (who is MayDelete.MAKER and maker and maker == mark):
            return ""
        if who is MayDelete.NOBODY:
            return f"This server lets nobody rename or delete what is saved here ({DELETE}=nobody)."
        if maker and not mark:
            return "This browser sends no cookie, so nobody knows what it made. Allow cookies here, and load it again."
        if maker:
            return "Only the browser that made it may rename or delete it."
        return f"It is not known which browser made it, so only a server with {DELETE}=everybody changes it."

    def check(self, name: str, mark: str) -> None:
        """Raise BadInput if this browser may not rename or delete the entry."""
        if refused := self.refusal(name, mark):
            raise StorageError(refused)

    def forget(self, is_there: Callable[[str], bool]) -> None:
        """Delete old notes of names for which `is_there` is False."""
        with suppress(OSError):
            for path in to_read(self._folder).iterdir():
                if time.time() - path.lstat().st_mtime > _STALE and not is_there(path.name):
                    path.unlink()
