"""The runs of a list: samples, saved runs, and growing or interrupted ones."""

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
    """The origin of a run."""

    SAMPLE = "sample"  # a sample; read-only
    SAVED = "saved"  # decoded here, or copied to the folder
    TAB = "tab"  # only in the memory of a browser tab


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of a list."""

    name: str  # its unique id, as in links
    origin: RunOrigin
    standing: RunStatus
    facts: RunFacts | None  # None if it is unreadable
    path: Path | None = None  # its folder or journal; None for a run in a tab's memory
    error: str = ""  # problem and remedy; empty if there is none

    @property
    def heading(self) -> str:
        """The title, the start of the prompt, or the id; one line."""
        return self.name if self.facts is None else self.facts.heading

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags in order."""
        return () if self.facts is None else self.facts.tags

    @property
    def line(self) -> str:
        """The summary, or the error."""
        text = self.error if self.facts is None or self.error else self.facts.line
        return text if self.standing in (RunStatus.WHOLE, RunStatus.BROKEN) else f"{text} · {self.standing.value}"

    @property
    def opens(self) -> bool:
        """True if it can be opened."""
        return not self.error and self.standing in (RunStatus.WHOLE, RunStatus.INTERRUPTED)


def of_kept(kept: KeptRun, origin: RunOrigin = RunOrigin.SAVED) -> ListedRun:
    """Convert a saved run."""
    about = kept.manifest
    cut = kept.standing in (RunStatus.GROWING, RunStatus.INTERRUPTED)
    facts = None if about is None else RunFacts.of(about, kept.tokens if cut else None)
    return ListedRun(kept.name, origin, kept.standing, facts, kept.path, kept.error)


def of_tab(name: str, run: Run) -> ListedRun:
    """Convert a run in a tab's memory."""
    return ListedRun(name, RunOrigin.TAB, RunStatus.WHOLE, RunFacts.of(run))


def listed_runs(folder: Path, shipped: Path | None = None) -> list[ListedRun]:
    """Return the samples in `shipped`, then the saved runs by name; samples win if an id occurs twice.

    Raises BadInput if a folder cannot be listed.
    """
    saved = list_runs(folder)
    return merged([] if shipped is None else list_runs(shipped), saved, started(folder))


def merged(given: Iterable[RunEntry], there: Iterable[RunEntry], begun: Iterable[KeptRun]) -> list[ListedRun]:
    """Merge samples, complete runs, and growing or interrupted runs; the first of each id is kept."""
    runs = [of_kept(whole(entry), RunOrigin.SAMPLE) for entry in given]
    runs += [of_kept(kept) for kept in (*map(whole, there), *begun)]
    by_id: dict[str, ListedRun] = {}
    for run in runs:
        by_id.setdefault(run.name, run)
    return list(by_id.values())
