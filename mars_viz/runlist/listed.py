"""The runs that can be listed: samples, kept ones, those under way and those that were cut short.

Knows the folders and what their manifests say; opens no table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mars_viz.run import Run
from mars_viz.runfiles import RunEntry, list_runs
from mars_viz.runlist.facts import RunFacts
from mars_viz.runstore import KeptRun, RunStatus, started, whole


class RunOrigin(Enum):
    """Where a run comes from."""

    SAMPLE = "sample"
    """It comes with the product, and stays as it is."""
    SAVED = "saved"
    """It was decoded here, or put into the folder."""
    TAB = "tab"
    """It is in one browser tab's memory alone."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in the list."""

    name: str
    """Its id, which links say; no other's."""
    origin: RunOrigin
    """Where it comes from."""
    standing: RunStatus
    """What there is of it."""
    facts: RunFacts | None
    """What made it; None where it cannot be read."""
    path: Path | None = None
    """Its folder, or its journal; None of a run in a tab's memory."""
    error: str = ""
    """What is wrong with it, and the remedy; empty where nothing is."""

    @property
    def heading(self) -> str:
        """A line: the title, the start of the prompt, or the id."""
        return self.name if self.facts is None else self.facts.heading

    @property
    def tags(self) -> tuple[str, ...]:
        """In order."""
        return () if self.facts is None else self.facts.tags

    @property
    def line(self) -> str:
        """What made it, or what is wrong."""
        said = self.error if self.facts is None or self.error else self.facts.line
        return said if self.standing in (RunStatus.WHOLE, RunStatus.BROKEN) else f"{said} · {self.standing.value}"

    @property
    def opens(self) -> bool:
        """True where it can be opened."""
        return not self.error and self.standing in (RunStatus.WHOLE, RunStatus.INTERRUPTED)


def of_kept(kept: KeptRun, origin: RunOrigin = RunOrigin.SAVED) -> ListedRun:
    """The line of a kept run."""
    about = kept.manifest
    cut = kept.standing in (RunStatus.GROWING, RunStatus.INTERRUPTED)
    facts = None if about is None else RunFacts.of(about, kept.tokens if cut else None)
    return ListedRun(kept.name, origin, kept.standing, facts, kept.path, kept.error)


def of_tab(name: str, run: Run) -> ListedRun:
    """The line of a run in a tab's memory."""
    return ListedRun(name, RunOrigin.TAB, RunStatus.WHOLE, RunFacts.of(run))


def listed_runs(folder: Path, shipped: Path | None = None) -> list[ListedRun]:
    """The samples in the folder `shipped`, then all of a store's runs in the order of their names. An id that both have
    is a sample's. Raises BadInput where a folder cannot be listed."""
    there = list_runs(folder)
    given = [] if shipped is None else list_runs(shipped)
    return merged(given, there, started(folder))


def merged(given: Iterable[RunEntry], there: Iterable[RunEntry], begun: Iterable[KeptRun]) -> list[ListedRun]:
    """One list of samples, whole runs, and runs under way or cut short; of one id the first."""
    found: dict[str, ListedRun] = {}
    for entry in given:
        found.setdefault(entry.path.name, of_kept(whole(entry), RunOrigin.SAMPLE))
    for entry in there:
        found.setdefault(entry.path.name, of_kept(whole(entry)))
    for kept in begun:
        found.setdefault(kept.name, of_kept(kept))
    return list(found.values())
