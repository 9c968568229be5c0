"""The races that a tab can replay: those that this server ran, and the recorded ones that come with the product."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from mars_viz import default_folders, samples
from mars_viz.errors import RunFileError, contained
from mars_viz.race import Race, RaceEntry, list_races, load_race
from mars_viz.race.files import ABOUT, write_zip
from mars_viz.race.store import RaceStore
from mars_viz.ui.classroom import rights
from mars_viz.ui.library import told_apart
from mars_viz.words import short_device


@dataclass(frozen=True, slots=True)
class Replay:
    """What can be replayed at one moment."""

    entries: dict[str, RaceEntry]
    """By name: the server's own, the newest first, then the recorded ones."""

    def label(self, name: str) -> str:
        """A line for a list, and no other's."""
        return told_apart({other: self._line(other) for other in self.entries})[name]

    def _line(self, name: str) -> str:
        entry = self.entries[name]
        if entry.manifest is None:
            return f"{entry.title} (cannot be read)"
        return f"{entry.title} · {entry.manifest.target} on {short_device(entry.manifest.device)}"

    def landed(self, name: str) -> str:
        """Return that name, or else the recorded example, or else any race; empty if there is none."""
        recorded = (other for other in self.entries if not self.own(other))
        return name if name in self.entries else next(recorded, next(iter(self.entries), ""))

    def opened(self, name: str) -> Race:
        """The race. Raises BadInput where it cannot be read."""
        entry = self.entries[name]
        if entry.manifest is None:
            raise RunFileError(entry.error)
        with contained(f"The race {name}"):
            return _loaded(entry.path, (entry.path / ABOUT).stat().st_mtime_ns)

    def zipped(self, name: str) -> bytes:
        """The race's folder as a zip, which this page opens again, here or elsewhere."""
        return write_zip(self.entries[name].path)

    def own(self, name: str) -> bool:
        """True of a race in this server's folder; the recorded ones stay as they are."""
        return self.entries[name].path.parent == default_folders.races()


def course() -> Replay:
    """What can be replayed now."""
    own = reversed(race_store().list())
    return Replay({entry.path.name: entry for entry in (*own, *list_races(samples.RACES))})


def race_store() -> RaceStore:
    """The server's store of races, as far as the browser whose script is running sees it."""
    return _store(default_folders.races()).seen_by(rights.sees())


@st.cache_resource(show_spinner=False)
def _store(folder: Path) -> RaceStore:
    return RaceStore(folder, [entry.path.name for entry in list_races(samples.RACES)])


@st.cache_resource(max_entries=8, show_spinner=False)
def _loaded(path: Path, changed: int) -> Race:
    """`changed` is part of the key, so a folder written anew is read anew."""
    return load_race(path)
