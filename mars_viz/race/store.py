"""The folder of races: how one comes in from a zip, gets another name and goes, each in one step as runs do."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from os import PathLike
from pathlib import Path

from mars_viz.errors import BadInput
from mars_viz.race.files import RaceEntry, list_races
from mars_viz.race.zips import read_zip
from mars_viz.runfiles import check_free
from mars_viz.runstore import checked_name, new_name
from mars_viz.runstore.locks import alone_in
from mars_viz.runstore.store import put_away, refusals, tidy


class RaceStore:
    """Keeps races in one folder, which several servers may share."""

    def __init__(self, folder: str | PathLike[str], taken: Collection[str] = ()) -> None:
        """The folder need not exist yet; `taken` are names that other races bear. What a crash left unfinished is
        undone or removed."""
        self.folder = Path(folder)
        self._taken = frozenset(taken)
        tidy(self.folder)

    def list(self) -> list[RaceEntry]:
        """What is kept, the newest last."""
        return list_races(self.folder)

    def bring(self, data: bytes, name: str) -> str:
        """Keep the race in a zip, under that name where it is free and one, and return the name. Raises BadInput for
        anything but a race, and keeps nothing then."""
        try:
            name = self._free(name).name
        except BadInput:
            name = new_name("race")
        read_zip(data, self.folder / name)
        return name

    def rename(self, name: str, new: str) -> str:
        """Give a race another name, which it returns. Raises BadInput where that is taken or no name."""
        with alone_in(self.folder), refusals(name, "renamed"):
            path = self._path(name)
            if checked_name(new, "race") != name:
                path = path.rename(self._free(new))
        return path.name

    def delete(self, name: str) -> None:
        """Remove a race, at once for everyone who lists. Raises BadInput where there is none."""
        with alone_in(self.folder), refusals(name, "deleted"):
            gone = put_away(self._path(name), name)
        shutil.rmtree(gone, ignore_errors=True)

    def _path(self, name: str) -> Path:
        found = next((entry.path for entry in self.list() if entry.path.name == name), None)
        if found is None:
            raise BadInput("There is no race of that name here any more; choose another from the list.")
        return found

    def _free(self, name: str) -> Path:
        name = checked_name(name, "race")
        if name in self._taken:
            raise BadInput(f"{name} is the name of a recorded race. Choose another name.")
        check_free(self.folder / name)
        return self.folder / name
