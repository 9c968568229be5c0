"""A number and a button that add prompts to a finished sweep: as many as would tell, unless somebody says otherwise.

Knows Streamlit and the set that was swept; the sweep that goes on is a job as any, and asks nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from mars_viz.analysis.recommendation import Recommendation, about, two_digits
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.prompts import PromptSet, builtin_prompts, kinds_of, per_task
from mars_viz.sweep.store import SweepEntry, open_store
from mars_viz.ui import theme
from mars_viz.ui.tune import sweep_requests
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.catalogue import SweepCatalogue
from mars_viz.ui.tune.page_state import TunePageState
from mars_viz.ui.tune.sweep_requests import PER_TASK_MOST, Upload
from mars_viz.ui.tune.words import duration
from mars_viz.words import counted, number

_KEPT = (
    "Continues this sweep: what is finished is kept and not decoded again. The confidence is that of one test; a test "
    "repeated after adding prompts is a second one."
)


@dataclass(frozen=True, slots=True)
class Further:
    """What the swept set has besides what was swept."""

    count: int
    """Prompts, conversations counted once."""
    step: int
    """They are added in multiples of so many."""
    grown: Callable[[int], PromptSet]
    """From how many to the swept prompts with so many more behind them. Raises BadInput where they cannot be read."""


def offer(bench: TunePageState, found: SweepCatalogue, study: CachedSweep, advised: Recommendation | None) -> None:
    """Both, where the sweep is finished, is no sample and nobody works on it."""
    name, result = bench.view.sweep, study.result
    if not result.complete or found.running(name) is not None or study.shipped:
        return
    entry = found.entries[name]
    beside = [found.entries[each] for each in found.variants(name) if found.running(each) is None]
    wanted = None if advised is None else advised.more
    further = study.kept(("further prompts",), lambda: _further(study))
    if further.count:
        _button(bench, entry, beside, further, wanted)
    if wanted is not None and wanted > further.count:
        theme.small(_too_few(study, further, wanted))
    if not kinds_of(study.plan.prompt_set) and not study.plan.scores and (wanted or 0) > further.count:
        with st.popover("Add prompts from a file", help=_KEPT, key=f"more-prompts-{name}-{study.plan.prompts}"):
            _file(bench, entry, beside, wanted or 0)


def _further(study: CachedSweep) -> Further:
    """Of the built-in tasks up to what they have; of a file what a limit left out of it."""
    plan = study.plan
    if kinds := kinds_of(plan.prompt_set):
        most = len(kinds) * PER_TASK_MOST

        def of_each(count: int) -> PromptSet:
            more = builtin_prompts(per_task(plan.prompts + count, len(kinds)), kinds=kinds)
            return open_store(study.result.folder).prompts().with_more(more)

        return Further(max(0, most - plan.prompts), len(kinds), of_each)

    def of_file(count: int) -> PromptSet:
        store = open_store(study.result.folder)
        swept = store.prompts()
        whole = replace(swept, items=(*swept.items, *store.rest()))
        return whole.limited(len({item.unit for item in swept.items}) + count)

    try:
        left = open_store(study.result.folder).rest()
    except BadInput:  # damaged: then there are none to add
        left = ()
    return Further(len({item.unit for item in left}), 1, of_file)


def _button(
    bench: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], further: Further, wanted: int | None
) -> None:
    """The number, as many as would tell or else as there are, and the button."""
    plan = entry.plan
    assert plan is not None  # or there were no figures
    suggested = min(further.count, plan.prompts if wanted is None else two_digits(wanted))
    left, right, _ = st.columns([2.2, 3, 6.5], vertical_alignment="bottom")
    asked = left.number_input(
        "Prompts to add",
        min(further.step, further.count),
        further.count,
        max(min(further.step, further.count), _rounded(plan.prompts, suggested, further)),
        further.step,
        key=f"add-count-{entry.path.name}-{plan.prompts}-{suggested}",
    )
    more = min(further.count, _rounded(plan.prompts, int(asked), further))
    builtin = bool(kinds_of(plan.prompt_set))
    seconds = sweep_requests.estimate(more, builtin=builtin, rules=1 + len(beside))
    said = f"About {duration(seconds)} with the built-in pair. {_variants(beside)}{_KEPT}"
    if right.button(f"Add {counted(more, 'prompt')}", key="add-prompts", help=markdown(said), width="stretch"):
        _begin(bench, entry, beside, lambda: further.grown(more))


def _rounded(there: int, more: int, further: Further) -> int:
    """So many more, or a few besides, that all together are a multiple of the step."""
    return further.step * per_task(there + more, further.step) - there


def _too_few(study: CachedSweep, further: Further, wanted: int) -> str:
    """Where the set lacks what would tell: how many it has, and what to do."""
    plan = study.plan
    if kinds_of(plan.prompt_set):
        whole = number(plan.prompts + further.count)
        return (
            f"The built-in tasks have {whole} prompts, and about {about(wanted)} more would tell. Tolerate a larger "
            "loss, or sweep a set of your own."
        )
    if plan.scores:
        return (
            f"About {about(wanted)} more would tell: the same `mars-viz sweep --task` with --resume --limit "
            f"{plan.prompts + wanted} adds prompts of the task."
        )
    has = f"has {counted(further.count, 'prompt')} besides" if further.count else "has no prompt besides"
    return f"{plan.prompt_set} {has} those that were swept; about {about(wanted)} more would tell. Add a longer file."


def _file(bench: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], wanted: int) -> None:
    """More from a file that holds what was swept."""
    plan = entry.plan
    assert plan is not None  # or there were no recommendation
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
        offered = sweep_requests.uploaded_prompts(
            Upload(upload.name, upload.getvalue()), grader, True, None, plan.turns
        )
        needed = len({item.unit for item in swept.items if item.graded}) + wanted
        grown, whole = swept.with_more(offered, needed), swept.with_more(offered)
        grown = replace(grown, rest=whole.items[len(grown) :])
    except BadInput as error:
        theme.note(str(error))
        return
    more, graded = len(grown) - len(swept), len({item.unit for item in grown.items if item.graded})
    if graded < needed:
        theme.small(f"{upload.name} has {number(graded)} that are graded; about {about(needed)} would tell.")
    label = f"Add {counted(more, 'prompt')} of the file"
    if st.button(markdown(label), key="add-file-prompts", disabled=more < 1, help=markdown(_variants(beside))):
        _begin(bench, entry, beside, lambda: grown)


def _begin(
    bench: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], grown: Callable[[], PromptSet]
) -> None:
    try:
        sweep_requests.go_on(entry, beside, grown())
    except BadInput as error:
        bench.notices[:] = [str(error)]
    st.rerun()


def _variants(beside: Sequence[SweepEntry]) -> str:
    return f"The {counted(len(beside), 'other variant')} of the grid get them as well. " if beside else ""
