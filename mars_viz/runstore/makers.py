"""Which browser made what is kept, and who may rename and delete it: a server's setting.

Knows a browser by a mark alone, which lies beside the runs and never in one, so it leaves the server with none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path

from mars_viz.errors import BadInput
from mars_viz.writer import make_folder, write_file

VARIABLE = "MARS_VIZ_DELETE"
"""Says who may rename and delete what is kept."""
_STALE = 30 * 86_400.0  # seconds for which the note of a run that is not there is kept: it may still be decoded


class Allowed(Enum):
    """Who may rename and delete what is kept."""

    MAKER = "maker"
    """The browser that made it."""
    EVERYBODY = "everybody"
    """Whoever can open the page."""
    NOBODY = "nobody"
    """No visitor."""


def allowed() -> Allowed:
    """What the environment says, or else the maker alone. Raises BadInput where it says something else."""
    named = os.environ.get(VARIABLE) or Allowed.MAKER.value
    try:
        return Allowed(named)
    except ValueError:
        known = ", ".join(each.value for each in Allowed)
        raise BadInput(
            f"{VARIABLE} is “{named}”, which is none of {known}; until it is, nobody may rename or delete what is "
            "saved here. Set it, and start the server again."
        ) from None


class Makers:
    """Who made what lies in a folder."""

    def __init__(self, home: Path) -> None:
        """Nothing is made before the first note is."""
        self._folder = home / ".makers"

    def note(self, name: str, mark: str) -> None:
        """From now on, what has this name was made by the browser of this mark. A disk that refuses, or a browser
        without a mark, leaves it to nobody."""
        if mark:
            with suppress(OSError):
                self._folder.parent.mkdir(parents=True, exist_ok=True)
                make_folder(self._folder)
                write_file(self._folder / name, mark.encode())

    def of(self, name: str) -> str:
        """The mark of who made it; empty where that is not known."""
        with suppress(OSError, ValueError):
            if Path(name).name == name:
                return (self._folder / name).read_text("utf-8")
        return ""

    def refusal(self, name: str, mark: str) -> str:
        """Why the browser of this mark may not rename and delete what has this name; empty where it may."""
        try:
            who = allowed()
        except BadInput as error:
            return str(error)
        maker = self.of(name)
        if who is Allowed.EVERYBODY or (who is Allowed.MAKER and maker and maker == mark):
            return ""
        if who is Allowed.NOBODY:
            return f"This server lets nobody rename or delete what is saved here ({VARIABLE}=nobody)."
        if maker and not mark:
            return "This browser sends no cookie, so nobody knows what it made. Allow cookies here, and load it again."
        if maker:
            return "Only the browser that made it may rename or delete it."
        return f"It is not known which browser made it, so only a server with {VARIABLE}=everybody changes it."

    def check(self, name: str, mark: str) -> None:
        """Raise BadInput where the browser of this mark may not rename and delete what has this name."""
        if refused := self.refusal(name, mark):
            raise BadInput(refused)

    def forget(self, is_there: Callable[[str], bool]) -> None:
        """Drop old notes of names for which this is False."""
        with suppress(OSError):
            for path in self._folder.iterdir():
                if time.time() - path.stat().st_mtime > _STALE and not is_there(path.name):
                    path.unlink()
