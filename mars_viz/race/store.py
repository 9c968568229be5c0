"""The folder of races: import, save, rename, delete and restore, each atomically."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from os import PathLike
from pathlib import Path

from mars_viz.errors import BadInput, RunFileError, disk_refusals
from mars_viz.race.files import ABOUT, RaceEntry, list_races, read_zip, save_race
from mars_viz.race.records import Race
from mars_viz.runfiles import check_free
from mars_viz.runstore import Store, checked_name, new_name
from mars_viz.writer import to_read


class RaceStore(Store):
    """Stores races."""

    noun = "race"
    about = ABOUT
    gone = "There is no race of that name here any more; choose another from the list."

    def __init__(self, folder: str | PathLike[str], taken: Collection[str] = ()) -> None:
        """Open the store as `Store`. `taken` are names of other races."""
        super().__init__(folder)
        self._taken = frozenset(taken)

    def list(self) -> list[RaceEntry]:
        """Return the visible races, the newest last."""
        return [entry for entry in list_races(self.folder) if self.makers.shows(entry.path.name)]

    def deleted(self) -> tuple[RaceEntry, ...]:
        """Return the visible races in the bin, the newest last."""
        with suppress(OSError):
            self._check()
            return tuple(entry for entry in list_races(self.bin) if self.makers.shows(entry.path.name))
        return ()

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

    def _check_to_save(self, name: str) -> None:
        with disk_refusals(name, "saved", "Check that you may write there, and try again."):
            self._check()

    def _check(self) -> None:
        """Raise OSError if the folder is a link made by another user."""
        with suppress(FileNotFoundError):
            to_read(self.folder)

    def _entry(self, name: str) -> tuple[Path, str, bool]:
        match = next((entry for entry in self.list() if entry.path.name == name), None)
        if match is None:
            raise RunFileError(self.gone)
        return match.path, match.title, match.manifest is not None
