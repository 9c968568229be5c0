"""What is done with one or several runs of the list: who may change them, tags, the bin and back, one zip.

Knows the list's runs, the store and the browser's mark; draws nothing.
"""

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

MOST_BYTES = 256 << 20
"""Of all runs in one zip, which is made in the server's memory."""
SAMPLE = "It comes with MARS Viz, and stays as it is."
OF_TAB = "It is in this tab alone, where it was opened; it goes with the tab."
GROWING = "It is being decoded; cancel it first, or wait for its end."


def item(run: ListedRun) -> Item:
    """The run, as something to rename, to delete and to bring back."""
    title = "" if run.facts is None else " ".join(run.facts.title.split())
    return Item(tab_jobs.run_store(), run.name, run.heading, title, readable=run.facts is not None and not run.error)


def refusal(run: ListedRun) -> str:
    """Why this browser may not change the run now; empty where it may."""
    if run.origin is not RunOrigin.SAVED:
        return SAMPLE if run.origin is RunOrigin.SAMPLE else OF_TAB
    return GROWING if run.standing is RunStatus.GROWING else item(run).refusal


def made_here(runs: Iterable[ListedRun]) -> list[ListedRun]:
    """Those that this browser made, and those that are open in this tab."""
    makers, mark = tab_jobs.run_store().makers, visitors.mark()
    return [
        run
        for run in runs
        if run.origin is RunOrigin.TAB or (mark and run.origin is RunOrigin.SAVED and makers.of(run.name) == mark)
    ]


def changeable(runs: Iterable[ListedRun]) -> tuple[list[ListedRun], str]:
    """Those that this browser may change, and a sentence about the others; empty without any."""
    refused = {run.name: said for run in runs if (said := refusal(run))}
    free = [run for run in runs if run.name not in refused]
    if not refused:
        return free, ""
    first = next(iter(refused.values()))
    return free, first if not free else f"{counted(len(refused), 'selected run')} cannot be changed. {first}"


def delete(state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Move them to the bin; what is refused is noted, and the others go."""

    def gone(run: ListedRun) -> None:
        tab_jobs.run_store().delete(run.name)
        state.forget(run.name)
        state.deleted.add(item(run).key)

    _each(state, runs, gone, "deleted")


def tag(state: RunsPageState, runs: Sequence[ListedRun], add: Sequence[str], remove: Sequence[str]) -> None:
    """Put tags to them and take others away; what is refused is noted."""
    _each(state, runs, lambda run: tab_jobs.run_store().tag(run.name, add, remove), "tagged")


def restore(state: RunsPageState, items: Sequence[Item]) -> None:
    """Bring back what was deleted here."""
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


def _each(state: RunsPageState, runs: Sequence[ListedRun], deed: Callable[[ListedRun], object], done: str) -> None:
    state.notices.clear()
    state.refused.clear()
    refused: dict[str, str] = {}
    for run in runs:
        try:
            if said := refusal(run):
                raise StorageError(said)
            deed(run)
        except BadInput as error:
            refused[run.heading] = str(error)
    if refused:
        heading, why = next(iter(refused.items()))
        others = f", nor {counted(len(refused) - 1, 'other')}" if len(refused) > 1 else ""
        state.notices.append(f"“{heading}” was not {done}{others}. {why}")


def too_large(runs: Iterable[ListedRun]) -> bool:
    """True where these runs make no zip that the server's memory is there for."""
    total = 0
    for run in runs:
        if run.path is not None:
            with suppress(OSError):
                total += sum(file.stat().st_size for file in run.path.iterdir())
    return total > MOST_BYTES


def zipped(runs: Sequence[ListedRun], shelf: RunCatalogue) -> bytes:
    """The zip of one run's folder, as Explore opens it; of several a zip that holds one such zip for each. Raises
    BadInput where one cannot be read."""
    if len(runs) == 1:
        return write_zip(shelf.opened(runs[0].name))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for run in runs:
            archive.writestr(f"{run.name}.zip", write_zip(shelf.opened(run.name)))
    return buffer.getvalue()
