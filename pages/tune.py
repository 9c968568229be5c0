"""Tune page: which settings are safe, and their speed-up. Only layout."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import streamlit as st

from mars_viz import locks
from mars_viz.costs import disturbance, objection
from mars_viz.errors import BadInput
from mars_viz.figures.engines import acceptance_by_position
from mars_viz.sweep import document
from mars_viz.sweep.plan import set_notes
from mars_viz.sweep.report import CachedSweep
from mars_viz.sweep.store import keep_costs
from mars_viz.ui import faults, navigation, share, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.documents import draw, frame, lead, sentence
from mars_viz.ui.jobs.models import Job
from mars_viz.ui.links import to_parameters
from mars_viz.ui.session import bound, current_session
from mars_viz.ui.tab_jobs import measure_costs, watch
from mars_viz.ui.tune import catalogue, detail, form, sweep_requests
from mars_viz.ui.tune.catalogue import SweepCatalogue, Sweeping, TunePageState, TuneView, going
from mars_viz.ui.tune.detail import turned
from mars_viz.words import counted

POLL = 0.5  # seconds between polls of a running sweep; Streamlit would draw a docstring here on the page


@faults.drawn
def page() -> None:
    """Draw the page."""
    began = time.monotonic()
    page_state = TunePageState.of_tab()
    page_state.arrive(current_session(), st.query_params.to_dict())
    catalog = catalogue.shelf(page_state.folder)
    page_state.view, lost = catalog.landed(page_state.view)
    page_state.notices.extend(filter(None, [lost]))
    job = catalog.jobs.get(page_state.view.sweep)
    # read first, so that prompts that finish meanwhile are drawn later
    finished = 0 if job is None else job.progress.finished
    sweep, problem = opened(page_state, catalog)
    if sweep is not None:
        finished = sweep.result.finished
    page_state.drawn = catalogue.ShownResults(page_state.view.sweep, finished, began, time.monotonic())
    head(page_state, catalog)
    ending = "" if job is None else job.progress.error
    theme.note(catalog.error, *page_state.notices, ending, problem)
    if not catalog.labels and not rights.why_no_sweeps():
        first_visit(page_state)
    if (running := catalog.running(page_state.view.sweep)) is not None:
        under_way(page_state, running)
    elif page_state.view.sweep in catalog.entries:
        unfinished(page_state, catalog)
    navigation.write_link(to_parameters(page_state.view))
    if sweep is not None:
        if sweep.shipped:
            theme.small(
                "A sample, recorded on another machine; nothing is added to it. New sweep begins one of your own."
            )
        look(page_state, catalog, sweep)
    page_state.drawn = replace(page_state.drawn, ended=time.monotonic())


def opened(page_state: TunePageState, catalog: SweepCatalogue) -> tuple[CachedSweep | None, str]:
    """Return the viewed sweep, and the error if it cannot be read."""
    try:
        with st.spinner("Reading the sweep"):
            sweep = catalog.opened(page_state.view.sweep)
    except BadInput as error:
        return None, str(error)
    if sweep is not None and not len(sweep.result):
        return None, f"No prompt of this sweep has results. The first one: {sweep.result.failures[0].reason}"
    if sweep is not None:
        page_state.fit(sweep.plan)
    return sweep, ""


def head(page_state: TunePageState, catalog: SweepCatalogue) -> None:
    """Draw the title, the picker of sweeps, and the form for a new one."""
    labels = catalog.labels
    left, middle, right = st.columns([4.8, 4.8, 2.1], vertical_alignment="center")
    with left:
        theme.title("Tune", "Which setting is safe, and what does it buy?")
    bound(
        middle.selectbox, "Sweep", "sweep", page_state.view.sweep if labels else None, page_state.open,
        options=list(labels), format_func=lambda name: labels.get(name, name), disabled=not labels,
        placeholder="No sweep yet", label_visibility="collapsed",
    )  # fmt: skip
    with right.popover("New sweep", width="stretch", key=f"new-sweep-{page_state.begun}"):  # a new key closes it
        new_sweep(page_state)


def new_sweep(page_state: TunePageState) -> None:
    """Draw the form, and its errors."""
    if why := rights.why_no_sweeps():
        theme.note(why)
        return
    make_request, folder = form.form(page_state.folder)
    if not st.button("Sweep", key="sweep-begin", width="stretch", help="Runs on the server, also when this tab closes"):
        return
    try:
        sweep_request, (into, page_state.folder) = make_request(), sweep_requests.checked_folder(folder)
        page_state.open(sweep_requests.begin(sweep_request, page_state.folder, into)[0])
        page_state.begun += 1
    except BadInput as error:
        theme.note(str(error))
        return
    page_state.notices.extend(set_notes(sweep_request.prompts, listed=10))
    st.rerun()


def first_visit(page_state: TunePageState) -> None:
    """Draw a button that starts a first sweep."""
    sweep_request = sweep_requests.SweepRequest()
    sentence(
        "A sweep decodes a prompt set and finds the exact text at every value of a rule's dial, without a grid. It "
        "shows how far the rule can be relaxed before accuracy drops, and the speed-up. There is no sweep here yet."
    )
    if st.button(f"Sweep {len(sweep_request.prompts)} built-in exercises with MARS", key="sweep-first", type="primary"):
        page_state.open(sweep_requests.begin(sweep_request, page_state.folder)[0])
        st.rerun()
    theme.small(
        f"About a minute on two processor cores. It goes on when this tab is closed, can be stopped, "
        f"and keeps its results {f'in {page_state.folder}' if visitors.may_name_paths() else 'on the server'}."
    )


@partial(faults.fragment, run_every=POLL)
def under_way(page_state: TunePageState, job: Job[Sweeping]) -> None:
    """Draw the progress of a sweep, with a stop button. The page is redrawn as prompts finish."""
    now = job.progress
    if now.state.finished or page_state.drawn.outdated(page_state.view.sweep, now.finished, time.monotonic()):
        st.rerun()
    watch(job, lambda: (now.part, going(now)), keeps="Keeps finished prompts")
    if len(now.labels) > 1:
        theme.small(f"{len(now.labels)} sweeps run together; a prompt counts once all of them have finished it.")


def unfinished(page_state: TunePageState, catalog: SweepCatalogue) -> None:
    """Draw an unfinished sweep that is not running."""
    entry = catalog.entries[page_state.view.sweep]
    if entry.plan is None or entry.complete:
        return
    beside = catalog.left_beside(page_state.view.sweep)
    left, right = st.columns([6, 1], vertical_alignment="center")
    with left:
        done = f"This sweep is not finished: {entry.finished} of {entry.plan.prompts} prompts are done."
        holder = locks.holder(entry.path)
        theme.note(done if holder is None else f"{done} It is under way elsewhere: {holder}.")
        if beside and holder is None:
            others = counted(len(beside), "unfinished variant")
            theme.small(f"Continue also resumes {others} of this rule.")
    if holder is not None:
        right.button("Look again", key="sweep-again", width="stretch", help="Prompts finished until now")
        return
    if right.button("Continue", key="sweep-continue", width="stretch", help="Finished prompts are not decoded again"):
        try:
            sweep_requests.go_on(entry, beside)
        except BadInput as error:
            page_state.notices[:] = [str(error)]
        st.rerun()


@faults.fragment
def look(page_state: TunePageState, catalog: SweepCatalogue, sweep: CachedSweep) -> None:
    """Draw the sweep at the chosen setting."""
    sweep = sweep.by(page_state.view.terms.how)
    above = st.container()  # above the dial, but drawn after it because it has the dial's result
    view = page_state.view
    home = sweep.dial(None, view.terms)
    before = home if view.dial is None else view.dial
    dial = turned(sweep, before, home, view.sweep, paired=detail.shows_pairs())
    if dial != before:
        page_state.look(dial=dial)
    view = page_state.view
    advised = sweep.recommendation(view.terms)
    with above:
        lead(document.lead(sweep, dial), document.advice(sweep, advised, dial, view.terms))
        detail.draw_terms(page_state, sweep)
        detail.offer_prompts(page_state, catalog, sweep, advised)
    navigation.write_link(to_parameters(view))
    left, right = st.columns([8.6, 3.1], vertical_alignment="center", gap="medium")
    if sweep.graded:
        with left:
            detail.choice_of_pairs(sweep.plan.against)
    with right.popover("Overlay other sweeps", width="stretch"):
        lay_over(page_state, catalog.beside(view.sweep) if sweep.graded else {})
    others = beside(catalog, sweep, view)
    detail.hero(view, sweep, dial, others)
    theme.small(document.coverage(sweep), sweep.plan.provenance.device)
    theme.chart(acceptance_by_position(sweep.positions(dial), theme.figure_theme()), "positions")
    costs(sweep, dial)
    variants = partial(detail.opened_variants, catalog, sweep, view) if catalog.variants(view.sweep) else None
    detail.folded(view, sweep, dial, advised, variants)
    folder, rows = sweep.result.folder.name, partial(sweep.engines, dial)
    shared_tables = [
        share.Table("All figures", f"{folder}-figures", lambda: frame(document.figures(sweep, dial))),
        share.Table("Prompt by prompt", f"{folder}-prompts", lambda: detail.prompts(sweep.result, dial)),
        share.Table("Acceptance by engine", f"{folder}-engines", lambda: frame(document.by_definition(rows()))),
        share.Table("Acceptance by position", f"{folder}-positions", lambda: frame(document.by_position(rows()))),
    ]
    share.tables(shared_tables, [each.plan.rule.name for each in (sweep, *others.values())], "tune")


def costs(sweep: CachedSweep, dial: float) -> None:
    """Draw up to which position drafting pays, and an objection to the costs, or a disturbance, with a button that
    measures them again."""
    result = sweep.result
    draw(document.positions(sweep, dial)[:-1])
    why = objection(result.costs) or ("" if result.costs is None else disturbance(result.costs))
    if why and not sweep.shipped:
        if objection(result.costs):
            why = f"No {'modelled speed-up' if sweep.plan.cut_by else 'speed-up over the target alone'}: {why}"
        models, settings = sweep_requests.models_of(result.folder, sweep.plan), sweep.plan.settings
        keep = partial(keep_costs, result.folder)
        measure_costs(why, lambda: settings, models, keep, name=f"costs-{result.folder}")


def beside(catalog: SweepCatalogue, sweep: CachedSweep, view: TuneView) -> dict[str, CachedSweep]:
    """Return the sweeps to overlay: those of the link that are graded and have the same prompts."""
    others: dict[str, CachedSweep] = {}
    able = catalog.beside(view.sweep) if sweep.graded else {}
    for name in view.others:
        if name not in able:
            theme.note(f"{name} is not overlaid: it is unfinished, cannot be read, or has other prompts or models.")
            continue
        try:
            if (other := catalog.opened(name)) is not None and other.graded:
                others[name] = other.by(sweep.how)
            elif other is not None:
                theme.note(f"{name} is not overlaid: it has no speed-up, since what its passes cost is not known.")
        except BadInput as error:
            theme.note(str(error))
    return others


def lay_over(page_state: TunePageState, beside: Mapping[str, str]) -> None:
    """Draw the choice of sweeps to overlay, given the possible ones by name and label."""
    bound(
        st.multiselect, "Overlay", "tune-others", [name for name in page_state.view.others if name in beside],
        lambda names: page_state.change(others=tuple(names)), options=list(beside),
        format_func=lambda name: beside.get(name, name), max_selections=catalogue.MOST_COMPARED, disabled=not beside,
        placeholder="Other rules' sweeps" if beside else "No other finished sweep of these prompts and models",
    )  # fmt: skip


page()
