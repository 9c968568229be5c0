"""What there is in a folder of runs: whole ones, those under way, and those that were cut short.

Knows runs' files and journals; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mars_viz.errors import BadInput, contained
from mars_viz.run import Run
from mars_viz.runfiles import list_runs, load_run
from mars_viz.runfiles.manifest import Manifest
from mars_viz.runstore.journal import SUFFIX, about, is_held, recovered


class RunStatus(Enum):
    """What there is of a kept run."""

    WHOLE = "whole"
    """All of it."""
    GROWING = "growing"
    """It is being decoded."""
    INTERRUPTED = "interrupted"
    """The decode ended with its process; the rounds so far are there."""
    BROKEN = "broken"
    """It cannot be read."""
    DELETED = "deleted"
    """It is in the bin, whatever there is of it."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run in the folder."""

    name: str
    """Of its folder; unique."""
    path: Path
    """What `read` takes."""
    standing: RunStatus
    """What there is of it."""
    title: str
    """A line for lists."""
    tokens: int = 0
    """Emitted ones."""
    manifest: Manifest | None = None
    """What the run is; None where that cannot be read."""
    error: str = ""
    """What is wrong with it, and the remedy; empty where nothing is."""


def read(path: Path) -> Run:
    """The run of a kept entry, an interrupted one included. Raises BadInput where it cannot be read."""
    return recovered(path) if path.name.endswith(SUFFIX) else load_run(path)


def started(folder: Path) -> list[KeptRun]:
    """What of a folder's runs is under way or was cut short."""
    return [_started(path) for path in sorted(folder.glob(f".*{SUFFIX}"))]


def listed(folder: Path) -> list[KeptRun]:
    """All of it, the newest first. Raises BadInput where the folder cannot be listed."""
    whole = [
        KeptRun(entry.path.name, entry.path, RunStatus.WHOLE, entry.title, entry.manifest.tokens, entry.manifest)
        if entry.manifest is not None
        else KeptRun(entry.path.name, entry.path, RunStatus.BROKEN, entry.path.name, error=entry.error or "")
        for entry in list_runs(folder)
    ]
    names = {kept.name for kept in whole}
    return by_age([*whole, *(kept for kept in started(folder) if kept.name not in names)])


def by_age(runs: Iterable[KeptRun]) -> list[KeptRun]:
    """The newest first."""
    return sorted(runs, key=_age)[::-1]


def _started(path: Path) -> KeptRun:
    name = path.name[1 : -len(SUFFIX)]
    standing = RunStatus.GROWING if is_held(path) else RunStatus.INTERRUPTED
    try:
        with contained(f"The run {name}", "Delete it."):
            manifest, tokens = about(path)
    except BadInput as error:
        return KeptRun(name, path, standing, name, error=str(error))
    return KeptRun(name, path, standing, manifest.heading, tokens, manifest)


def _age(kept: KeptRun) -> tuple[str, str]:
    return (kept.manifest.provenance.created if kept.manifest else "", kept.name)
