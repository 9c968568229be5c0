"""Operations on one or several runs of the list: permissions, tags, bin and zip files. Draws nothing."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from mars_viz.errors import BadInput, StorageError
from mars_viz.runfiles import write_zip
from mars_viz.runlist import ListedRun, RunOrigin
from mars_viz.runstore import RunStatus
from mars_viz.ui import tab_jobs, visitors
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.live.changing import Item
from mars_viz.ui.runs.page_state import RunsPageState
from mars_viz.words import counted

MOST_BYTES = 256 << 20  # maximum size of all runs in one zip, which is created in memory
SAMPLE = "It comes with MARS Viz, and stays as it is."
OF_TAB = "It is in this tab alone, where it was opened; it goes with the tab."
GROWING = "It is being decoded; cancel it first, or wait for its end."


def item(run: ListedRun) -> Item:
    """Return the run as an item that can be renamed, deleted and restored."""
    title = "" if run.facts is None else " ".join(run.facts.title.split())
    return Item(tab_jobs.run_store(), run.name, run.heading, title, readable=run.facts is not None and not run.error)


def refusal(run: ListedRun) -> str:
    """Return why this browser may not change the run now; empty if it may."""
    if run.origin is not RunOrigin.SAVED:
        return SAMPLE if run.origin is RunOrigin.SAMPLE else OF_TAB
    return GROWING if run.standing is RunStatus.GROWING else item(run).refusal


def made_here(runs: Iterable[ListedRun]) -> list[ListedRun]:
    """Return the runs that this browser made or that are open in this tab."""
    makers, mark = tab_jobs.run_store().makers, visitors.mark()
    return [
        run
        for run in runs
        if run.origin is RunOrigin.TAB or (mark and run.origin is RunOrigin.SAVED and makers.of(run.name) == mark)
    ]


def changeable(runs: Iterable[ListedRun]) -> tuple[list[ListedRun], str]:
    """Return the runs that this browser may change, and a sentence about the others, empty if there are none."""
    refused = {run.name: reason for run in runs if (reason := refusal(run))}
    allowed = [run for run in runs if run.name not in refused]
    if not refused:
        return allowed, ""
    first = next(iter(refused.values()))
    return allowed, first if not allowed else f"{counted(len(refused), 'selected run')} cannot be changed. {first}"


def delete(state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Move the runs to the bin. Refused runs stay, with a notice."""

    def delete_run(run: ListedRun) -> None:
        tab_jobs.run_store().delete(run.name)
        state.forget(run.name)
        state.deleted.add(item(run).key)

    _each(state, runs, delete_run, "deleted")


def tag(state: RunsPageState, runs: Sequence[ListedRun], add: Sequence[str], remove: Sequence[str]) -> None:
    """Add and remove tags. Refused runs give a notice."""
    _each(state, runs, lambda run: tab_jobs.run_store().tag(run.name, add, remove), "tagged")


def restore(state: RunsPageState, items: Sequence[Item]) -> None:
    """Restore runs that were deleted in this tab."""
    state.notices.clear()
    state.refused.clear()
    for each in items:
        try:
            each.store.makers.check(each.name, visitors.mark())
            each.store.restore(each.name)
        except BadInput as error:
            state.refused[each.key] = str(error)
        else:
            state.deleted.discard(each.key)


def _each(state: RunsPageState, runs: Sequence[ListedRun], change: Callable[[ListedRun], object], done: str) -> None:
    state.notices.clear()
    state.refused.clear()
    refused: dict[str, str] = {}
    for run in runs:
        try:
            if reason := refusal(run):
                raise StorageError(reason)
            change(run)
        except BadInput as error:
            refused[run.heading] = str(error)
    if refused:
        heading, why = next(iter(refused.items()))
        others = f", nor {counted(len(refused) - 1, 'other')}" if len(refused) > 1 else ""
        state.notices.append(f"“{heading}” was not {done}{others}. {why}")


def too_large(runs: Iterable[ListedRun]) -> bool:
    """Return True if the runs are too large for one zip."""
    total = 0
    for run in runs:
        if run.path is not None:
            with suppress(OSError):
                total += sum(file.stat().st_size for file in run.path.iterdir())
    return total > MOST_BYTES


def zipped(runs: Sequence[ListedRun], catalog: RunCatalogue) -> bytes:
    """Return the zip of one run's folder, or a zip that contains one such zip per run. Raises BadInput if a run cannot
    be read."""
    if len(runs) == 1:
        return write_zip(catalog.opened(runs[0].name))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for run in runs:
            archive.writestr(f"{run.name}.zip", write_zip(catalog.opened(run.name)))
    return buffer.getvalue()
