"""Adds prompts to a finished sweep: by default as many as are needed to test the next setting.

The sweep continues as a normal job and decodes nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
from mars_viz.ui.tune.jobs import duration
from mars_viz.ui.tune.sweep_requests import PER_TASK_MOST
from mars_viz.words import counted, number

_KEPT = (
    "Continues this sweep: finished prompts are kept and not decoded again. The confidence is that of one test; a test "
    "repeated after adding prompts is a second one."
)


@dataclass(frozen=True, slots=True)
class Further:
    """Prompts that can be added to a sweep."""

    count: int  # number of prompts; a conversation counts as one
    step: int  # prompts are added in multiples of this number
    grown: Callable[[int], PromptSet]
    """Returns the swept prompts with this many more behind them. Raises BadInput if they cannot be read."""


def offer(page_state: TunePageState, catalog: SweepCatalogue, sweep: CachedSweep, advised: Recommendation) -> None:
    """Draw the fields if the sweep is finished, not a sample, and not running."""
    name, result = page_state.view.sweep, sweep.result
    if not result.complete or catalog.running(name) is not None or sweep.shipped:
        return
    entry = catalog.entries[name]
    beside = [catalog.entries[each] for each in catalog.variants(name) if catalog.running(each) is None]
    needed = advised.more
    further = sweep.kept(("further prompts",), lambda: _further(sweep))
    if further.count:
        _button(page_state, entry, beside, further, needed)
    if needed is not None and needed > further.count:
        theme.small(_too_few(sweep, further, needed))
    if not kinds_of(sweep.plan.prompt_set) and not sweep.plan.scores and (needed or 0) > further.count:
        with st.popover("Add prompts from a file", help=_KEPT, key=f"more-prompts-{name}-{sweep.plan.prompts}"):
            _file(page_state, entry, beside, needed or 0)


def _further(sweep: CachedSweep) -> Further:
    plan = sweep.plan
    if kinds := kinds_of(plan.prompt_set):
        most = len(kinds) * PER_TASK_MOST

        def of_each(count: int) -> PromptSet:
            more = builtin_prompts(per_task(plan.prompts + count, len(kinds)), kinds=kinds)
            return open_store(sweep.result.folder).prompts().with_more(more)

        return Further(max(0, most - plan.prompts), len(kinds), of_each)

    def of_file(count: int) -> PromptSet:
        store = open_store(sweep.result.folder)
        swept = store.prompts()
        all_prompts = replace(swept, items=(*swept.items, *store.rest()))
        return all_prompts.limited(len({item.unit for item in swept.items}) + count)

    try:
        left = open_store(sweep.result.folder).rest()
    except BadInput:  # a damaged folder, which offers nothing to add
        left = ()
    return Further(len({item.unit for item in left}), 1, of_file)


def _button(
    page_state: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], further: Further, wanted: int | None
) -> None:
    """Draw the number of prompts and the button. The default is the needed number, or as many as the sweep has."""
    plan = entry.plan
    assert plan is not None  # otherwise there were no figures
    suggested = min(further.count, plan.prompts if wanted is None else two_digits(wanted))
    left, right, _ = st.columns([2.2, 3, 6.5], vertical_alignment="bottom")
    least, key = min(further.step, further.count), f"add-count-{entry.path.name}-{plan.prompts}-{suggested}"
    first = max(least, _rounded(plan.prompts, suggested, further))
    chosen = left.number_input("Prompts to add", least, further.count, first, further.step, key=key)
    more = min(further.count, _rounded(plan.prompts, int(chosen), further))
    builtin = bool(kinds_of(plan.prompt_set))
    seconds = sweep_requests.estimate(more, builtin=builtin, rules=1 + len(beside))
    help_text = f"About {duration(seconds)} with the built-in pair. {_variants(beside)}{_KEPT}"
    if right.button(f"Add {counted(more, 'prompt')}", key="add-prompts", help=markdown(help_text), width="stretch"):
        _begin(page_state, entry, beside, lambda: further.grown(more))


def _rounded(present: int, more: int, further: Further) -> int:
    """Round `more` up so that the total is a multiple of the step."""
    return further.step * per_task(present + more, further.step) - present


def _too_few(sweep: CachedSweep, further: Further, wanted: int) -> str:
    plan = sweep.plan
    if kinds_of(plan.prompt_set):
        total = number(plan.prompts + further.count)
        return (
            f"The built-in tasks have {total} prompts, and about {about(wanted)} more would tell. Tolerate a larger "
            "loss, or sweep a set of your own."
        )
    if plan.scores:
        return (
            f"About {about(wanted)} more would tell: the same `mars-viz sweep --task` with --resume --limit "
            f"{plan.prompts + wanted} adds prompts of the task."
        )
    has = f"has {counted(further.count, 'prompt')} more than" if further.count else "has no prompt other than"
    return f"{plan.prompt_set} {has} those that were swept; about {about(wanted)} more would tell. Add a longer file."


def _file(page_state: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], wanted: int) -> None:
    plan = entry.plan
    assert plan is not None  # otherwise there was no recommendation
    upload = st.file_uploader(
        f"{markdown(plan.prompt_set)} with more prompts than the {number(plan.prompts)} that were swept",
        key=f"more-file-{entry.path.name}",
        max_upload_size=50,
        help="The prompts that were swept must be in it, unchanged.",
    )
    if upload is None:
        return
    try:
        swept = open_store(entry.path).prompts()
        graders = {item.grader for item in swept.items if item.graded}
        grader = graders.pop() if len(graders) == 1 else None
        data = (upload.name, upload.getvalue())
        offered = sweep_requests.uploaded_prompts(data, grader, True, None, plan.turns)
        needed = len({item.unit for item in swept.items if item.graded}) + wanted
        grown, everything = swept.with_more(offered, needed), swept.with_more(offered)
        grown = replace(grown, rest=everything.items[len(grown) :])
    except BadInput as error:
        theme.note(str(error))
        return
    more, graded = len(grown) - len(swept), len({item.unit for item in grown.items if item.graded})
    if graded < needed:
        theme.small(f"{upload.name} has {number(graded)} that are graded; about {about(needed)} would tell.")
    label = f"Add {counted(more, 'prompt')} of the file"
    if st.button(markdown(label), key="add-file-prompts", disabled=more < 1, help=markdown(_variants(beside))):
        _begin(page_state, entry, beside, lambda: grown)


def _begin(
    page_state: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], grown: Callable[[], PromptSet]
) -> None:
    try:
        sweep_requests.go_on(entry, beside, grown())
    except BadInput as error:
        page_state.notices[:] = [str(error)]
    st.rerun()


def _variants(beside: Sequence[SweepEntry]) -> str:
    return f"The {counted(len(beside), 'other variant')} of the grid get them as well. " if beside else ""
