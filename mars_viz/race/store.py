"""The folder of races: how one comes in from a zip, gets another title, goes and comes back, each in one step as runs
do.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from contextlib import suppress
from os import PathLike
from pathlib import Path

from mars_viz.errors import BadInput, RunFileError, StorageError, disk_refusals
from mars_viz.race.files import ABOUT, RaceEntry, list_races, read_zip, save_race
from mars_viz.race.records import Race
from mars_viz.runfiles import check_free
from mars_viz.runstore import Makers, Sees, checked_name, new_name
from mars_viz.runstore.bin import Bin
from mars_viz.runstore.store import UNREADABLE, changing, check_seen, checked_title, redescribe, tidy
from mars_viz.writer import to_read

GONE = "There is no race of that name here any more; choose another from the list."


class RaceStore:
    """Keeps races in one folder, which several servers may share."""

    def __init__(self, folder: str | PathLike[str], taken: Collection[str] = ()) -> None:
        """The folder need not exist yet; `taken` are names that other races bear. What a crash left unfinished is
        undone or removed."""
        self.folder = Path(folder)
        self.makers = Makers(self.folder)
        self._taken = frozenset(taken)
        self._bin = Bin(self.folder)
        if not self._is_ours():
            return
        tidy(self.folder)
        self._bin.expire()
        self.makers.forget(lambda name: any((home / name).exists() for home in (self.folder, self._bin.folder)))

    def seen_by(self, sees: Sees | None) -> RaceStore:
        """The same store for somebody who sees only some of it, as `RunStore.seen_by`."""
        seen = copy.copy(self)
        seen.makers = self.makers.seen_by(sees)
        return seen

    def list(self) -> list[RaceEntry]:
        """What is kept, the newest last."""
        return [entry for entry in list_races(self.folder) if self.makers.shows(entry.path.name)]

    def bring(self, data: bytes, name: str) -> str:
        """Keep the race in a zip, under that name where it is free and one, and return the name. Raises BadInput for
        anything but a race, and keeps nothing then."""
        try:
            name = self._free(name).name
        except BadInput:
            name = new_name("race")
        with disk_refusals(name, "saved", "Check that you may write there, and try again."):
            self._check()
        read_zip(data, self.folder / name)
        return name

    def save(self, race: Race, name: str, maker: str = "") -> str:
        """Keep a race under that name, which it returns, made by the browser of that mark. Raises BadInput where that
        cannot be."""
        with disk_refusals(name, "saved", "Check that you may write there, and try again."):
            self._check()
        self.makers.note(name, maker)
        try:
            return save_race(race, self.folder / name).name
        except BadInput:
            self.makers.drop(name)
            raise

    def deleted(self) -> tuple[RaceEntry, ...]:
        """What is in the bin, the newest last."""
        there = list_races(self._bin.folder) if self._is_ours() and self._bin.is_there() else []
        return tuple(entry for entry in there if self.makers.shows(entry.path.name))

    def rename(self, name: str, title: str, seen: str | None = None) -> str:
        """Give a race another title, which it returns; its name, and so its links, stay. Raises BadInput for what is no
        title, and where the race's is not the one that was `seen` any more; None takes any."""
        title = checked_title(title)
        with changing(self.folder, name, "renamed"):
            entry = self._entry(name)
            if entry.manifest is None:
                raise RunFileError(UNREADABLE)
            check_seen(entry.title, seen)
            redescribe(entry.path / ABOUT, {"title": title})
        return title

    def delete(self, name: str) -> None:
        """Move a race to the bin, at once for everyone who lists. Raises BadInput where there is none."""
        with changing(self.folder, name, "deleted"):
            self._bin.take(self._entry(name).path)
        self._bin.expire()

    def restore(self, name: str) -> None:
        """Bring a race back from the bin under its name. Raises BadInput where it is not there any more."""
        with changing(self.folder, name, "restored"):
            self._check()
            if not self.makers.shows(name):
                raise RunFileError(GONE)
            self._bin.give_back(self._bin.folder / checked_name(name, "race"))

    def _check(self) -> None:
        """Raise OSError where the folder, which lies among runs, is a link that another user made."""
        with suppress(FileNotFoundError):
            to_read(self.folder)

    def _is_ours(self) -> bool:
        with suppress(OSError):
            self._check()
            return True
        return False

    def _entry(self, name: str) -> RaceEntry:
        found = next((entry for entry in self.list() if entry.path.name == name), None)
        if found is None:
            raise RunFileError(GONE)
        return found

    def _free(self, name: str) -> Path:
        name = checked_name(name, "race")
        if name in self._taken:
            raise StorageError(f"{name} is the name of a recorded race. Choose another name.")
        check_free(self.folder / name)
        return self.folder / name
