"""Races that a tab can replay: those of this server, and the recorded samples."""

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
    """Races that can be replayed."""

    entries: dict[str, RaceEntry]  # by name: the server's races, newest first, then the samples

    def label(self, name: str) -> str:
        """Return a unique line for a list."""
        return told_apart({other: self._line(other) for other in self.entries})[name]

    def _line(self, name: str) -> str:
        entry = self.entries[name]
        if entry.manifest is None:
            return f"{entry.title} (cannot be read)"
        return f"{entry.title} · {entry.manifest.target} on {short_device(entry.manifest.device)}"

    def landed(self, name: str) -> str:
        """Return `name` if it exists, otherwise a sample, otherwise any race; empty if there is none."""
        recorded = (other for other in self.entries if not self.own(other))
        return name if name in self.entries else next(recorded, next(iter(self.entries), ""))

    def opened(self, name: str) -> Race:
        """Return the race. Raises BadInput if it cannot be read."""
        entry = self.entries[name]
        if entry.manifest is None:
            raise RunFileError(entry.error)
        with contained(f"The race {name}"):
            return _loaded(entry.path, (entry.path / ABOUT).stat().st_mtime_ns)

    def zipped(self, name: str) -> bytes:
        """Return the race's folder as a zip, which this page can open."""
        return write_zip(self.entries[name].path)

    def own(self, name: str) -> bool:
        """Return True if the race is in this server's folder and not a sample."""
        return self.entries[name].path.parent == default_folders.races()


def course() -> Replay:
    """Return the races that can be replayed now."""
    server_races = reversed(race_store().list())
    return Replay({entry.path.name: entry for entry in (*server_races, *list_races(samples.RACES))})


def race_store() -> RaceStore:
    """Return the server's store of races, restricted to those that this browser may see."""
    return _store(default_folders.races()).seen_by(rights.sees())


@st.cache_resource(show_spinner=False)
def _store(folder: Path) -> RaceStore:
    return RaceStore(folder, [entry.path.name for entry in list_races(samples.RACES)])


@st.cache_resource(max_entries=8, show_spinner=False)
def _loaded(path: Path, changed: int) -> Race:
    """`changed` is part of the cache key, so that a changed folder is read again."""
    return load_race(path)
