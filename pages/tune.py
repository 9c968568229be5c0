"""Tune: which setting is safe, and what does it buy? Layout and wiring; the work is done elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import streamlit as st

from mars_viz import locks
from mars_viz.costs import disturbance, objection
from mars_viz.errors import BadInput
from mars_viz.sweep.plan import set_notes
from mars_viz.sweep.store import keep_costs
from mars_viz.ui import faults, navigation, share, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.links import to_parameters
from mars_viz.ui.session import current_session
from mars_viz.ui.tab_jobs import shared_worker
from mars_viz.ui.tune import detail, form, more_prompts, sweep_requests, tables, terms, words
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.catalogue import SweepCatalogue, shelf
from mars_viz.ui.tune.dial import turned
from mars_viz.ui.tune.grid import Variants
from mars_viz.ui.tune.jobs import SweepJob
from mars_viz.ui.tune.page_state import (
    MOST_COMPARED,
    ShownResults,
    TunePageState,
    TuneView,
    current_tuning,
)
from mars_viz.ui.under_way import measure_again, progress_bar
from mars_viz.words import counted

POLL = 0.5  # seconds between looks at a sweep under way; a docstring here would be shown on the page


@faults.drawn
def page() -> None:
    """The whole page: a run of guards, then the sweep."""
    navigation.through_app()
    began = time.monotonic()
    bench = current_tuning()
    bench.arrive(current_session(), st.query_params.to_dict())
    found = shelf(bench.folder)
    bench.view, lost = found.landed(bench.view)
    bench.notices.extend(filter(None, [lost]))
    job = found.jobs.get(bench.view.sweep)
    finished = 0 if job is None else job.progress.finished  # before it is read: what finishes meanwhile is drawn later
    study, problem = opened(bench, found)
    if study is not None:
        finished = study.result.finished
    bench.drawn = ShownResults(bench.view.sweep, finished, began, time.monotonic())
    head(bench, found)
    ending = "" if job is None else job.progress.error
    for sentence in filter(None, [found.error, *bench.notices, ending, problem]):
        theme.note(sentence)
    if not found.labels and not rights.why_no_sweeps():
        first_visit(bench)
    if (running := found.running(bench.view.sweep)) is not None:
        under_way(bench, running)
    elif bench.view.sweep in found.entries:
        unfinished(bench, found)
    navigation.write_link(to_parameters(bench.view))
    if study is not None:
        if study.shipped:
            theme.small(
                "A sample, recorded on another machine; nothing is added to it. New sweep begins one of your own."
            )
        look(bench, found, study)
    detail.imported()
    bench.drawn = replace(bench.drawn, ended=time.monotonic())


def opened(bench: TunePageState, found: SweepCatalogue) -> tuple[CachedSweep | None, str]:
    """The sweep in view and, where it cannot be read, why."""
    try:
        with st.spinner("Reading the sweep"):
            study = found.opened(bench.view.sweep)
    except BadInput as error:
        return None, str(error)
    if study is not None and not len(study.result):
        return None, f"No prompt of this sweep has results. The first one: {study.result.failures[0].reason}"
    if study is not None:
        bench.fit(study.plan)
        study = study.by(bench.view.terms.how)
    return study, ""


def head(bench: TunePageState, found: SweepCatalogue) -> None:
    """The title, the picker of sweeps, and the form for a new one."""
    labels = found.labels
    st.session_state["sweep"] = bench.view.sweep if labels else None
    left, middle, right = st.columns([4.8, 4.8, 2.1], vertical_alignment="center")
    with left:
        theme.title("Tune", "Which setting is safe, and what does it buy?")
        tables.style()
    middle.selectbox(
        "Sweep",
        list(labels),
        key="sweep",
        format_func=lambda name: labels.get(name, name),
        disabled=not labels,
        on_change=lambda: bench.open(st.session_state["sweep"]),
        placeholder="No sweep yet",
        label_visibility="collapsed",
    )
    with right.popover("New sweep", width="stretch", key=f"new-sweep-{bench.begun}"):  # a new one is closed
        new_sweep(bench)


def new_sweep(bench: TunePageState) -> None:
    """The form, and what is wrong with it."""
    if why := rights.why_no_sweeps():
        theme.note(why)
        return
    wish, folder = form.form(bench.folder)
    if not st.button("Sweep", key="sweep-begin", width="stretch", help="Runs on the server, also when this tab closes"):
        return
    try:
        asked, (into, bench.folder) = wish(), sweep_requests.checked_folder(folder())
        bench.open(sweep_requests.begin(asked, bench.folder, into)[0])
        bench.begun += 1
    except BadInput as error:
        theme.note(str(error))
        return
    bench.notices.extend(set_notes(asked.prompts, listed=10))
    st.rerun()


def first_visit(bench: TunePageState) -> None:
    """One button; everything else can wait."""
    wish = sweep_requests.first_wish()
    seconds = sweep_requests.estimate(len(wish.prompts), builtin=True, rules=1)
    tables.line(
        "A sweep decodes a prompt set and finds the exact text at every value of a rule's dial, without a grid. It "
        "shows how far the rule can be relaxed before accuracy drops, and the speed-up. There is no sweep here yet."
    )
    if st.button(f"Sweep {len(wish.prompts)} built-in exercises with MARS", key="sweep-first", type="primary"):
        bench.open(sweep_requests.begin(wish, bench.folder)[0])
        st.rerun()
    theme.small(
        f"About {words.duration(seconds)} on two processor cores. It goes on when this tab is closed, can be stopped, "
        f"and keeps its results {f'in {bench.folder}' if visitors.may_name_paths() else 'on the server'}."
    )


@faults.fragment(run_every=POLL)
def under_way(bench: TunePageState, job: SweepJob) -> None:
    """A sweep under way: how far it is, and a way to stop it. The results below it are drawn anew as prompts finish."""
    now = job.progress
    if now.state.finished or bench.drawn.outdated(bench.view.sweep, now.finished, time.monotonic()):
        st.rerun()
    sentence = words.going(now, shared_worker().ahead(job), job.stopping)
    progress_bar(job, now.part, sentence, "Stop", keeps="Keeps finished prompts")
    if len(job.labels) > 1:
        theme.small(f"{len(job.labels)} sweeps run together; a prompt counts once all of them have finished it.")
    for sentence in now.too_long[:5]:
        theme.small(sentence)


def unfinished(bench: TunePageState, found: SweepCatalogue) -> None:
    """A sweep that nobody works on and that is not at its end."""
    entry = found.entries[bench.view.sweep]
    if entry.plan is None or entry.complete:
        return
    beside = found.left_beside(bench.view.sweep)
    left, right = st.columns([6, 1], vertical_alignment="center")
    with left:
        done = f"This sweep is not finished: {entry.finished} of {entry.plan.prompts} prompts are done."
        holder = locks.holder(entry.path)
        theme.note(done if holder is None else f"{done} It is under way elsewhere: {holder.words}.")
        if beside and holder is None:
            others = counted(len(beside), "unfinished variant")
            theme.small(f"Continue also resumes {others} of this rule.")
    if holder is not None:
        right.button("Look again", key="sweep-again", width="stretch", help="What has been finished meanwhile")
        return
    if right.button("Continue", key="sweep-continue", width="stretch", help="Finished prompts are not decoded again"):
        try:
            sweep_requests.go_on(entry, beside)
        except BadInput as error:
            bench.notices[:] = [str(error)]
        st.rerun()


@faults.fragment
def look(bench: TunePageState, found: SweepCatalogue, study: CachedSweep) -> None:
    """The sweep itself: what follows the chosen setting."""
    study = study.by(bench.view.terms.how)
    sentence = st.container()  # it stands first, and says what the dial below it has come to
    turn(bench, study)
    view = bench.view
    dial, advised = (
        study.dial(view.dial, view.points, view.confidence),
        study.recommendation(view.points, view.confidence),
    )
    with sentence:
        tables.lead(words.lead(study, dial), words.advice(study, advised, dial, view.terms))
        terms.terms(bench, study)
        more_prompts.offer(bench, found, study, advised)
    navigation.write_link(to_parameters(view))
    left, right = st.columns([8.6, 3.1], vertical_alignment="center", gap="medium")
    if study.graded:
        with left:
            detail.choice_of_pairs(study.plan.against)
    with right.popover("Overlay other sweeps", width="stretch"):
        lay_over(bench, found.beside(view.sweep) if study.graded else {})
    others = beside(found, study, view)
    detail.hero(view, study, dial, others)
    theme.small(words.coverage(study), study.plan.provenance.device)
    costs(study)
    detail.folded(view, study, dial, advised, variants(found, study, view))
    shown = [
        share.Table(
            "All figures at strict, this setting and the loosest", "figures", lambda: tables.figures(study, dial)
        ),
        share.Table("Prompt by prompt", "prompts", lambda: tables.prompts(study.result, dial)),
        share.Table("Acceptance as each engine defines it", "engines", lambda: tables.engines(study.engines(dial))),
        share.Table("Acceptance by position", "positions", lambda: tables.by_position(study.engines(dial))),
    ]
    rules = [each.plan.rule.name for each in (study, *others.values())]
    share.tables([replace(table, name=f"{study.result.folder.name}-{table.name}") for table in shown], rules, "tune")


def costs(study: CachedSweep) -> None:
    """Why there is no speed-up over the target alone, or what disturbed it, and a way to measure its costs again."""
    result = study.result
    why = objection(result.costs) or ("" if result.costs is None else disturbance(result.costs))
    if why and not study.shipped:
        measure_again(
            f"tune-{result.folder.name}",
            f"No {'modelled speed-up' if study.plan.cut_by else 'speed-up over the target alone'}: {why}"
            if objection(result.costs)
            else why,
            study.plan.settings,
            sweep_requests.models_of(result.folder, study.plan),
            partial(keep_costs, result.folder),
        )


def turn(bench: TunePageState, study: CachedSweep) -> None:
    """The dial, which follows the hand; where it rests becomes the view's."""
    view = bench.view
    home = study.dial(None, view.points, view.confidence)
    dial = home if view.dial is None else view.dial
    rests = turned(study, dial, home, view.sweep, paired=detail.shows_pairs())
    if rests != dial:
        bench.turn(rests)


def beside(found: SweepCatalogue, study: CachedSweep, view: TuneView) -> dict[str, CachedSweep]:
    """The sweeps to lay over it, of those that a link names the ones that can be: graded, of the same prompts."""
    others: dict[str, CachedSweep] = {}
    able = found.beside(view.sweep) if study.graded else {}
    for name in view.others:
        if name not in able:
            theme.note(f"{name} is not overlaid: it is unfinished, cannot be read, or has other prompts or models.")
            continue
        try:
            if (other := found.opened(name)) is not None and other.graded:
                others[name] = other.by(study.how)
            elif other is not None:
                theme.note(f"{name} is not overlaid: it has no speed-up, since what its passes cost is not known.")
        except BadInput as error:
            theme.note(str(error))
    return others


def variants(found: SweepCatalogue, study: CachedSweep, view: TuneView) -> Variants | None:
    """The sweeps that make a grid with this one; None where there are none."""
    names = tuple(found.variants(view.sweep))
    return Variants(found, study, names, view.points, view.confidence) if names else None


def lay_over(bench: TunePageState, beside: Mapping[str, str]) -> None:
    """Which of the sweeps that can be compared are, by name and label."""
    st.session_state["tune-others"] = [name for name in bench.view.others if name in beside]

    def compare() -> None:
        bench.view = replace(bench.view, others=tuple(st.session_state["tune-others"]))

    st.multiselect(
        "Overlay",
        list(beside),
        key="tune-others",
        format_func=lambda name: beside.get(name, name),
        max_selections=MOST_COMPARED,
        on_change=compare,
        disabled=not beside,
        placeholder="Other rules' sweeps" if beside else "No other finished sweep of these prompts and models",
    )


page()
