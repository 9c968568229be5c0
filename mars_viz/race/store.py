"""The folder of races: import, save, rename, delete and restore, each atomically."""

from __future__ import annotations

import copy
from collections.abc import Collection
from contextlib import suppress
from os import PathLike
from pathlib import Path

from mars_viz.errors import BadInput, RunFileError, disk_refusals
from mars_viz.race.files import ABOUT, RaceEntry, list_races, read_zip, save_race
from mars_viz.race.records import Race
from mars_viz.runfiles import check_free
from mars_viz.runstore import Makers, Sees, checked_name, new_name
from mars_viz.runstore.bin import Bin
from mars_viz.runstore.store import UNREADABLE, changing, check_seen, checked_title, redescribe, tidy
from mars_viz.writer import to_read

GONE = "There is no race of that name here any more; choose another from the list."


class RaceStore:
    """Stores races in a folder that several servers may share."""

    def __init__(self, folder: str | PathLike[str], taken: Collection[str] = ()) -> None:
        """Open the store, and undo or remove whatever a crash left unfinished. The folder need not exist yet. `taken`
        are names of other races."""
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
        """Return the store for a visitor who may see only some races, as `RunStore.seen_by`."""
        seen = copy.copy(self)
        seen.makers = self.makers.seen_by(sees)
        return seen

    def list(self) -> list[RaceEntry]:
        """Return the visible races, the newest last."""
        return [entry for entry in list_races(self.folder) if self.makers.shows(entry.path.name)]

    def bring(self, data: bytes, name: str) -> str:
        """Save the race of a zip and return its name, which is new if `name` is taken or invalid.

        Raises BadInput unless it is a complete race, and then saves nothing.
        """
        try:
            name = checked_name(name, "race")
            check_free(self.folder / name)
            name = new_name("race") if name in self._taken else name  # that of a recorded race
        except BadInput:
            name = new_name("race")
        self._check_to_save(name)
        read_zip(data, self.folder / name)
        return name

    def save(self, race: Race, name: str, maker: str = "") -> str:
        """Save a race under this name and return it; `maker` identifies the browser. Raises BadInput on failure."""
        self._check_to_save(name)
        self.makers.note(name, maker)
        try:
            return save_race(race, self.folder / name).name
        except BadInput:
            self.makers.drop(name)
            raise

    def deleted(self) -> tuple[RaceEntry, ...]:
        """Return the visible races in the bin, the newest last."""
        entries = list_races(self._bin.folder) if self._is_ours() and self._bin.is_there() else []
        return tuple(entry for entry in entries if self.makers.shows(entry.path.name))

    def rename(self, name: str, title: str, seen: str | None = None) -> str:
        """Change a race's title and return it; its name and links stay.

        Raises BadInput for an invalid title, and if the current title is no longer `seen`; None skips that check.
        """
        title = checked_title(title)
        with changing(self.folder, name, "renamed"):
            entry = self._entry(name)
            if entry.manifest is None:
                raise RunFileError(UNREADABLE)
            check_seen(entry.title, seen)
            redescribe(entry.path / ABOUT, {"title": title})
        return title

    def delete(self, name: str) -> None:
        """Move a race to the bin, atomically. Raises BadInput if it does not exist."""
        with changing(self.folder, name, "deleted"):
            self._bin.take(self._entry(name).path)
        self._bin.expire()

    def restore(self, name: str) -> None:
        """Restore a race from the bin under its name. Raises BadInput if it is no longer there."""
        with changing(self.folder, name, "restored"):
            self._check()
            if not self.makers.shows(name):
                raise RunFileError(GONE)
            self._bin.give_back(self._bin.folder / checked_name(name, "race"))

    def _check_to_save(self, name: str) -> None:
        with disk_refusals(name, "saved", "Check that you may write there, and try again."):
            self._check()

    def _check(self) -> None:
        """Raise OSError if the folder is a link made by another user."""
        with suppress(FileNotFoundError):
            to_read(self.folder)

    def _is_ours(self) -> bool:
        with suppress(OSError):
            self._check()
            return True
        return False

    def _entry(self, name: str) -> RaceEntry:
        match = next((entry for entry in self.list() if entry.path.name == name), None)
        if match is None:
            raise RunFileError(GONE)
        return match
