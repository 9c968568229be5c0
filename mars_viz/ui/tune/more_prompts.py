"""The button that adds prompts to a finished sweep, as many as testing the next looser setting needs.

Knows Streamlit and the set that was swept; the sweep that goes on is a job as any, and asks nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from mars_viz.analysis.recommendation import Recommendation, about
from mars_viz.demo.tasks import Task
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.figures.words import counted, number
from mars_viz.prompts import PromptSet, builtin_prompts, kinds_of, per_task
from mars_viz.sweep.store import SweepEntry, open_store
from mars_viz.ui import theme
from mars_viz.ui.tune import sweep_requests
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.catalogue import SweepCatalogue
from mars_viz.ui.tune.page_state import TunePageState
from mars_viz.ui.tune.sweep_requests import PER_TASK_MOST, Upload
from mars_viz.ui.tune.words import duration

_KEPT = (
    "Continues this sweep: what is finished is kept and not decoded again. The confidence is that of one test; a test "
    "repeated after adding prompts is a second one."
)


def offer(bench: TunePageState, found: SweepCatalogue, study: CachedSweep, advised: Recommendation | None) -> None:
    """The button, where more prompts would tell more and nobody works on the sweep."""
    needed, name = None if advised is None else advised.prompts_needed, bench.view.sweep
    if needed is None or not study.result.complete or found.running(name) is not None or study.shipped:
        return
    entry = found.entries[name]
    beside = [found.entries[each] for each in found.variants(name) if found.running(each) is None]
    if kinds := kinds_of(study.plan.prompt_set):
        _builtin(bench, entry, beside, kinds, needed)
    elif study.plan.scores:
        theme.small(f"The same `mars-viz sweep --task` with --resume --limit {needed} adds prompts of the task.")
    else:
        with st.popover("Add prompts", help=_KEPT, key=f"more-prompts-{name}-{study.plan.prompts}"):
            _file(bench, entry, beside, needed)


def _builtin(
    bench: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], kinds: Sequence[Task], needed: int
) -> None:
    """More of each task."""
    assert entry.plan is not None  # or there were no recommendation
    each = per_task(needed, len(kinds))
    more = len(kinds) * each - entry.plan.prompts
    if each > PER_TASK_MOST:
        theme.small(
            f"The built-in tasks have {number(len(kinds) * PER_TASK_MOST)} prompts; add a set of your own instead."
        )
        return
    seconds = sweep_requests.estimate(more, builtin=True, rules=1 + len(beside))
    said = f"About {duration(seconds)} with the built-in pair. {_variants(beside)}{_KEPT}"
    if st.button(f"Add {counted(more, 'prompt')}", key="add-prompts", help=markdown(said), disabled=more < 1):
        _begin(bench, entry, beside, lambda: _swept(entry).with_more(builtin_prompts(each, kinds=kinds)))


def _file(bench: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], needed: int) -> None:
    """More of the same file, which the server does not keep whole."""
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
        swept = _swept(entry)
        graders = {item.grader for item in swept.items if item.graded}
        grader = graders.pop() if len(graders) == 1 else None
        offered = sweep_requests.uploaded_prompts(
            Upload(upload.name, upload.getvalue()), grader, True, None, plan.turns
        )
        grown = swept.with_more(offered, needed)
    except BadInput as error:
        theme.note(str(error))
        return
    more, graded = len(grown) - len(swept), len({item.unit for item in grown.items if item.graded})
    if graded < needed:
        theme.small(f"{upload.name} has {number(graded)} that are graded; about {about(needed)} are needed.")
    if st.button(
        f"Add {counted(more, 'prompt')}", key="add-prompts", disabled=more < 1, help=markdown(_variants(beside))
    ):
        _begin(bench, entry, beside, lambda: grown)


def _begin(
    bench: TunePageState, entry: SweepEntry, beside: Sequence[SweepEntry], grown: Callable[[], PromptSet]
) -> None:
    try:
        sweep_requests.go_on(entry, beside, grown())
    except BadInput as error:
        bench.notices[:] = [str(error)]
    st.rerun()


def _swept(entry: SweepEntry) -> PromptSet:
    return open_store(entry.path).prompts()


def _variants(beside: Sequence[SweepEntry]) -> str:
    return f"The {counted(len(beside), 'other variant')} of the grid get them as well. " if beside else ""
