"""Adds prompts to a finished sweep: by default as many as are needed to test the next setting.

The sweep continues as a normal job and decodes nothing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import streamlit as st

from mars_viz.analysis.recommendation import Recommendation, about, two_digits
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.prompts import PromptSet, builtin_prompts, kinds_of, per_task
from mars_viz.sweep.report import CachedSweep
from mars_viz.sweep.store import SweepEntry, open_store
from mars_viz.ui import theme
from mars_viz.ui.tune import sweep_requests
from mars_viz.ui.tune.catalogue import SweepCatalogue, TunePageState
from mars_viz.ui.tune.sweep_requests import PER_TASK_MOST
from mars_viz.words import counted

_KEPT = (
    "Continues this sweep: finished prompts are kept and not decoded again. The confidence is that of one test; a test "
    "repeated after adding prompts is a second one."
)


def offer(page_state: TunePageState, catalog: SweepCatalogue, sweep: CachedSweep, advised: Recommendation) -> None:
    """Draw the fields if the sweep is finished, not a sample, and not running."""
    name, needed = page_state.view.sweep, advised.more
    if not sweep.result.complete or catalog.running(name) is not None or sweep.shipped:
        return
    beside = [catalog.entries[each] for each in catalog.variants(name) if catalog.running(each) is None]
    left = sweep.kept(("further prompts",), lambda: _left(sweep))
    if left:
        _button(page_state, catalog.entries[name], beside, sweep, left, needed)
    if needed is not None and needed > left:
        theme.small(
            f"About {about(needed)} more prompts would tell, and {sweep.plan.prompt_set} has {counted(left, 'prompt')} "
            "more. Tolerate a larger loss, or add prompts of a longer file or of a task with `mars-viz sweep` and "
            f"--resume --limit {sweep.plan.prompts + needed}."
        )


def _left(sweep: CachedSweep) -> int:
    """Return the number of prompts that can be added; a conversation counts as one."""
    if kinds := kinds_of(sweep.plan.prompt_set):
        return max(0, len(kinds) * PER_TASK_MOST - sweep.plan.prompts)
    with suppress(BadInput):  # a damaged folder offers nothing to add
        return len({item.unit for item in open_store(sweep.result.folder).rest()})
    return 0


def _grown(sweep: CachedSweep, more: int) -> PromptSet:
    """Return the swept prompts and this many behind them. Raises BadInput if they cannot be read."""
    store = open_store(sweep.result.folder)
    swept = store.prompts()
    if kinds := kinds_of(sweep.plan.prompt_set):
        return swept.with_more(builtin_prompts(per_task(sweep.plan.prompts + more, len(kinds)), kinds=kinds))
    units = len({item.unit for item in swept.items})
    return replace(swept, items=(*swept.items, *store.rest())).limited(units + more)


def _button(
    page_state: TunePageState,
    entry: SweepEntry,
    beside: Sequence[SweepEntry],
    sweep: CachedSweep,
    left: int,
    needed: int | None,
) -> None:
    """Draw the number of prompts and the button. The default is the needed number, or as many as the sweep has. Every
    built-in task gets equally many."""
    present, step = sweep.plan.prompts, len(kinds_of(sweep.plan.prompt_set)) or 1

    def rounded(more: int) -> int:
        return min(left, step * per_task(present + more, step) - present)

    suggested = rounded(min(left, present if needed is None else two_digits(needed)))
    column, right, _ = st.columns([2.2, 3, 6.5], vertical_alignment="bottom")
    key = f"add-count-{entry.path.name}-{present}-{suggested}"
    least = min(step, left)
    more = rounded(int(column.number_input("Prompts to add", least, left, max(least, suggested), step, key=key)))
    variants = f"The {counted(len(beside), 'other variant')} of the grid get them as well. " if beside else ""
    kept, label = f"{variants}{_KEPT}", f"Add {counted(more, 'prompt')}"
    if right.button(markdown(label), key="add-prompts", help=markdown(kept), width="stretch"):
        try:
            sweep_requests.go_on(entry, beside, _grown(sweep, more))
        except BadInput as error:
            page_state.notices[:] = [str(error)]
        st.rerun()
