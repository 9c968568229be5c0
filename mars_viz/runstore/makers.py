"""Which browser made what is kept, and whether it may rename and delete it.

Knows a browser by a mark alone, which lies beside the runs and never in one, so it leaves the server with none.
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
"""Whether somebody sees what has this name and was made by the browser of this mark, empty where nobody knows it."""

_STALE = 30 * 86_400.0  # seconds for which the note of a run that is not there is kept: it may still be decoded


class Makers:
    """Who made what lies in a folder."""

    def __init__(self, home: Path) -> None:
        """Nothing is made before the first note is."""
        self._folder = home / ".makers"
        self._sees: Sees | None = None

    def seen_by(self, sees: Sees | None) -> Makers:
        """The same for somebody who sees only some of what lies there; None for somebody who sees all."""
        seen = copy.copy(self)
        seen._sees = sees
        return seen

    def shows(self, name: str) -> bool:
        """True if whoever looks sees what has this name."""
        return self._sees is None or self._sees(name, self.of(name))

    def note(self, name: str, mark: str) -> None:
        """From now on, what has this name was made by the browser of this mark. A disk that refuses, or a browser
        without a mark, leaves it to nobody."""
        if mark:
            with suppress(OSError):
                self._folder.parent.mkdir(parents=True, exist_ok=True)
                make_folder(self._folder)
                write_file(self._folder / name, mark.encode())

    def drop(self, name: str) -> None:
        """Forget who made what has this name: it came to nothing."""
        with suppress(OSError):
            (to_read(self._folder) / name).unlink()

    def of(self, name: str) -> str:
        """The mark of who made it; empty where that is not known."""
        with suppress(OSError, ValueError):
            if Path(name).name == name:
                return to_read(self._folder, name).read_text("utf-8")
        return ""

    def refusal(self, name: str, mark: str) -> str:
        """Why the browser of this mark may not rename and delete what has this name; empty where it may."""
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
        """Raise BadInput where the browser of this mark may not rename and delete what has this name."""
        if refused := self.refusal(name, mark):
            raise StorageError(refused)

    def forget(self, is_there: Callable[[str], bool]) -> None:
        """Drop old notes of names for which this is False."""
        with suppress(OSError):
            for path in to_read(self._folder).iterdir():
                if time.time() - path.lstat().st_mtime > _STALE and not is_there(path.name):
                    path.unlink()
