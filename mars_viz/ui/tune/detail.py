"""Draws a sweep on the Tune page: its dial, its terms, the frontier, and details in expanders, such as the grid of
sweeps that differ in one setting.

The browser shows the key figures while the dial is dragged. They are computed in advance, at the settings where texts
change. If there are too many, evenly spaced ones and the recommended setting are used, and the browser shows which one
it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.engine_counts import acceptance_records
from mars_viz.analysis.recommendation import Recommendation, about, two_digits
from mars_viz.axis import THRESHOLD
from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.documents import Section
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.figures.engines import load_curves
from mars_viz.figures.frontier import RulePath, dial_curve, frontier_figure, share_bars
from mars_viz.figures.style import DIAL_MARK
from mars_viz.options import declared
from mars_viz.prompts import PromptSet, builtin_prompts, kinds_of, per_task
from mars_viz.report.page import bibtex
from mars_viz.sweep import SweepResult, document
from mars_viz.sweep.columns import GRADES, RANK_WORDS, SHARE_WORDS
from mars_viz.sweep.evidence import dial_grid, evidence_zip
from mars_viz.sweep.measures import METHODS, cell
from mars_viz.sweep.report import (
    BANDS,
    Advised,
    CachedSweep,
    LoadTable,
    best_of,
    grid_table,
    keep_batch_costs,
    kept_batch_costs,
    load_table,
)
from mars_viz.sweep.store import open_store
from mars_viz.sweep.wall_clock import Checks, kept_checks
from mars_viz.ui import tab_jobs, theme
from mars_viz.ui.classroom import rights
from mars_viz.ui.documents import ROW, draw, sentence
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import JobState, background_task
from mars_viz.ui.session import bound
from mars_viz.ui.theme import chart
from mars_viz.ui.tune import sweep_requests
from mars_viz.ui.tune.catalogue import KEY, SweepCatalogue, TunePageState, TuneView
from mars_viz.words import counted, exact_setting, number, times

LARGEST_DIGITS = 3  # maximum number of decimals of a dial with steps smaller than 1


def turned(cached: CachedSweep, dial: float, home: float, sweep: str, *, paired: bool) -> float:
    """Draw the dial at this value with the key figures below, and return its new value.

    `home` is the recommended setting, reached by a double click. `paired` selects the frontier.
    """
    data = cached.kept(("readings", home, paired), lambda: readings(cached, home, paired=paired))
    plan, axis = cached.plan, cached.plan.axis
    own, ends = axis.dial, axis.ends if axis.reference_is_high else axis.ends[::-1]
    tip = f"{plan.strict:g} is {plan.against}, {own.default:g} the default; a double click goes to {home:g}"
    digits = 0 if own.step >= 1 else LARGEST_DIGITS
    name = f"{ends[0]} ← {own.name} {plan.symbol} → {ends[1]}"
    knob = Knob("dial", name, home, plan.low, plan.high, own.step, digits=digits, help=tip, exact=True)
    label = "Key figures at the dial and at strict"
    return lesson_figure(Kind.SETTING, [knob], data, {"dial": dial}, key=f"tune-dial-{sweep}", label=label)["dial"]


def readings(cached: CachedSweep, home: float, *, paired: bool) -> dict[str, Any]:
    """Return JSON data for the component: `rows` with a key figure each, and `places` with an interval of the dial
    each, whose figures are equal up to `until`.

    If there are too many intervals, one starts at `home`, the recommended setting. `x` and `y` are the mark's position
    on the frontier, None if the figure's axis is the dial.
    """
    names = [name for name in KEY if name in cached.measures]
    measures, curves = cached.measures, [cached.curve(name) for name in names]
    dials = curves[0].dials
    edges = cached.result.edges
    marks = _marks(cached, dials, cached.plan.strict, paired)

    def place(low: float, mark: Mapping[str, float | None], at: int | None = None) -> dict[str, Any]:
        values = [cached.value(name, low) for name in names] if at is None else [each.band.at(at) for each in curves]
        cells = [cell(measures[name], each) for name, each in zip(names, values, strict=True)]
        until = float(edges[min(int(np.searchsorted(edges, low, side="right")), len(edges) - 1)])
        return {"low": low, "until": until, "cells": cells, **mark}

    places = [place(low, mark, at) for at, (low, mark) in enumerate(zip(dials.tolist(), marks, strict=True))]
    if len(edges) > BANDS and home not in dials:
        (mark,) = _marks(cached, np.array([home]), home, paired)
        places.insert(int(np.searchsorted(dials, home)), place(home, mark))
    if cached.plan.strict == cached.plan.low < cached.plan.high:
        # the texts at strict are exact, but an estimate right next to it
        places.insert(1, place(float(np.nextafter(cached.plan.low, np.inf)), marks[0]))
    return {
        "symbol": cached.plan.symbol,
        "against": cached.plan.against,
        "chart": "frontier" if cached.graded else "pace",
        "mark": DIAL_MARK,
        "rows": [
            {"title": each.title, "kind": each.basis, "strict": cell(each, cached.value(name, cached.plan.strict))}
            for name in names
            for each in [measures[name]]
        ],
        "places": places,
    }


def _marks(cached: CachedSweep, dials: np.ndarray, through: float, paired: bool) -> list[dict[str, float | None]]:
    """Return the position of the mark on the frontier `through` a setting at each dial value: accuracy in per cent or
    points, and speed-up. Unknown ones are None."""
    if not cached.graded:
        return [{"x": None, "y": None}] * len(dials)
    path = cached.path(through, paired=paired)
    near = np.minimum(np.searchsorted(path.dials, dials), len(path.dials) - 1)
    both = (100 * path.accuracy.estimate[near]).tolist(), path.speed_up.estimate[near].tolist()
    return [
        {name: value if np.isfinite(value) else None for name, value in (("x", x), ("y", y))}
        for x, y in zip(*both, strict=True)
    ]


Variants = Callable[[], list[Advised]]
"""Opens the sweeps of a grid, this page's first, with their recommendations."""


def opened_variants(catalog: SweepCatalogue, sweep: CachedSweep, view: TuneView) -> list[Advised]:
    """Return the sweeps of this one's grid, itself first, each tested as one of several. Raises BadInput."""
    opened = (catalog.opened(name) for name in catalog.variants(view.sweep))
    others = [other.by(sweep.how) for other in opened if other is not None]
    return Advised.each([sweep, *(each for each in others if each is not sweep)], view.terms)


def draw_grid(sweep: CachedSweep, dial: float, beside: Variants) -> None:
    """Draw a figure by the grid's axis (rows) and the dial (columns), and each row's loosest safe value."""
    try:
        variants = beside()
        table = grid_table(variants, dial_grid(sweep.result, dial))
    except BadInput as error:
        theme.note(str(error))
        return
    names, titles = [name for name in document.VARIED if name in table.titles], table.titles
    name = st.segmented_control(
        "Figure", names, default=names[0], required=True, key="grid-figure", label_visibility="collapsed",
        format_func=lambda name: markdown(titles[name]),  # the widget must hold nothing else
    )  # fmt: skip
    draw(document.grid(table, [name or names[0]], dial))
    if table.axis.setting.key == THRESHOLD and (best := best_of(variants).found).dial is not None:
        sentence(best.sentence, "modelled")
    draw(document.grid_advice(table))


def draw_terms(page_state: TunePageState, sweep: CachedSweep) -> None:
    """Draw the terms in words, and the button that opens the form."""
    current = page_state.view.terms
    brackets = document.brackets(sweep, current)
    left, right = st.columns([8.6, 3.1], vertical_alignment="center", gap="medium")
    with left:
        theme.small(f"{current.safe} {brackets}" if "accuracy" in sweep.measures else brackets)
    with right.popover("Change these terms", width="stretch"):
        for name in ("points", "cut_off", "looping", "confidence", "intervals"):
            each, value = declared(TuneView)[name], getattr(page_state.view, name)
            how: dict[str, Any] = {"min_value": each.low, "max_value": each.high, "step": each.step, "format": "%.3f"}
            widget = st.segmented_control if each.choices else st.number_input
            if each.choices:
                how = {"options": each.choices, "required": True, "format_func": lambda name: METHODS[name].value}
            change = partial(lambda name, value: page_state.change(**{name: value}), name)
            bound(widget, markdown(each.label), f"tune-{name}", value, change, help=markdown(each.help), **how)
        if page_state.view.dial is not None:
            st.button("Go to the recommended setting", on_click=lambda: page_state.open(page_state.view.sweep))


PAIRED, ALONE = "against strict", "absolute"


def hero(view: TuneView, sweep: CachedSweep, dial: float, others: Mapping[str, CachedSweep]) -> None:
    """Draw the frontier, or without grades the speed over the dial. Other sweeps mark their fastest setting that loses
    at most the tolerated points."""
    if not sweep.graded:
        chart(dial_curve(sweep.curve(sweep.pace), dial, theme.figure_theme()), "pace")
        return
    sweeps, points, paths = [sweep, *others.values()], view.points, list[RulePath]()
    for each, name in zip(sweeps, _names(sweeps), strict=True):
        plan, marked = each.plan, each.plan.strict if paths else dial
        path = each.path(marked, paired=shows_pairs())
        if paths:
            marked = float(path.dials[path.best_within(plan.strict, points)])
        paths.append(RulePath(name, plan.symbol, path, plan.strict, plan.loosest, marked))
    chart(frontier_figure(paths, theme.figure_theme(), points), "frontier")
    if len(paths) < 2:
        return
    ranked: list[tuple[float, str]] = []
    for shown in paths:
        place = shown.path.best_within(shown.strict, points)
        speed, at = shown.path.speed_up.estimate[place], exact_setting(shown.symbol, float(shown.path.dials[place]))
        ranked.append((-float(speed), f"{shown.name} {times(float(speed))}× at {at}"))
    parts = [words for _, words in sorted(ranked, key=lambda row: row[0])]
    sentence(
        f"Fastest settings that lose at most {number(points)} {'point' if points == 1 else 'points'} on these prompts, "
        f"over {paths[0].path.over}: {'; '.join(parts)}. Other prompts may differ.",
        "modelled",
    )


def shows_pairs() -> bool:
    """Return True if settings are compared with strict on the same prompts. Called before the choice is drawn."""
    return st.session_state.get("paired", PAIRED) == PAIRED


def choice_of_pairs(against: str) -> None:
    """Draw the choice between paired and absolute figures; `against` is the reference for display."""
    st.segmented_control(
        "Speed and accuracy",
        [PAIRED, ALONE],
        default=PAIRED,
        required=True,
        key="paired",
        format_func=lambda name: markdown(f"against {against}" if name == PAIRED else str(name)),
        label_visibility="collapsed",
        help=markdown(f"Paired with {against} on the same prompts, intervals are narrower."),
    )


def _names(sweeps: Sequence[CachedSweep]) -> list[str]:
    if any(each.plan.over for each in sweeps):
        return [each.plan.title for each in sweeps]
    rules = [each.plan.rule for each in sweeps]
    drafts = [each.plan.settings.draft for each in sweeps]
    several = len(set(drafts)) > 1
    varied = [each for each in rules[0].fixed if len({rule.values.get(each.key) for rule in rules}) == len(rules)]
    if len(rules) > 1 and varied and len({rule.family for rule in rules}) == 1:
        names = [varied[0].at(rule.values[varied[0].key]) for rule in rules]
    else:
        names = [rule.title for rule in rules]
    return [f"{name}, {draft}" if several else name for name, draft in zip(names, drafts, strict=True)]


def folded(view: TuneView, sweep: CachedSweep, dial: float, advice: Recommendation, beside: Variants | None) -> None:
    """Draw the expanders. Closed ones compute nothing. `beside` has the sweeps of a grid with this one."""
    if sweep.kept(("several tasks",), lambda: len(set(sweep.result.prompts["category"].tolist())) > 1):
        tasks = st.expander("Results by task", expanded=True, key="tune-tasks", on_change="rerun")
        if tasks.open:
            with tasks:
                draw(document.tasks(sweep, dial))
    sections: dict[str, Callable[[], None]] = {
        "All figures along the dial": partial(every_figure, sweep, dial),
        "Relaxed tokens by rank and probability": partial(relaxed, sweep, dial),
        "Prompt by prompt": partial(by_prompt, sweep, dial),
        f"Wall-clock check: {sweep.plan.against} and this setting in turn": partial(clock, sweep, dial),
        "Load: several texts at once": partial(load, sweep, dial),
        "Acceptance as each engine defines it": partial(engines, sweep, dial),
        "Evidence pack and engine settings": partial(evidence, sweep, dial, advice, view, beside),
    }
    if beside is not None:
        sections["Grid of this rule's settings"] = partial(draw_grid, sweep, dial, beside)
    for place, (title, show) in enumerate(sections.items()):
        section = st.expander(markdown(title), key=f"tune-section-{place}", on_change="rerun")
        if section.open:
            with section:
                show()


def every_figure(sweep: CachedSweep, dial: float) -> None:
    titles = {name: measure.title for name, measure in sweep.measures.items()}  # the widget must hold nothing else
    names = list(titles)
    name = st.selectbox("Figure", names, names.index("tau"), key="tune-figure", format_func=titles.__getitem__)
    chart(dial_curve(sweep.curve(name), dial, theme.figure_theme()), "curve")
    draw([document.figures(sweep, dial)])


def relaxed(sweep: CachedSweep, dial: float) -> None:
    make = partial(share_bars, theme=theme.figure_theme())
    by_rank, by_share = sweep.relaxed(dial).values()
    left, right = st.columns(2)
    with left:
        chart(make(RANK_WORDS, *by_rank, axis="the target's rank"), "ranks")
    with right:
        chart(make(SHARE_WORDS, *by_share, axis="p(x)/p1"), "shares")
    sentence("Shares of all relaxed tokens at this setting.", "exact")


def by_prompt(sweep: CachedSweep, dial: float) -> None:
    frame, alt = prompts(sweep.result, dial), "Every prompt at strict and at this setting"
    sentence("Which prompts change, where, and by how much.", "exact")
    height = min(420, 38 + ROW * len(frame))
    st.dataframe(frame, hide_index=True, height=height, row_height=ROW, key="prompts", placeholder="", alt=alt)
    draw(document.failures(sweep.result))


def prompts(result: SweepResult, dial: float) -> pd.DataFrame:
    now, strict = (result.rows(np.array([at]))[:, 0] for at in (dial, result.plan.strict))
    lines = result.lines
    first = lines["first_divergence"][now]
    return pd.DataFrame(
        {
            "prompt": result.prompts["id"].astype(str),
            "category": result.prompts["category"].astype(str),
            "strict": [GRADES[int(grade)] for grade in lines["right"][strict]],
            "chosen": [GRADES[int(grade)] for grade in lines["right"][now]],
            "first differs": pd.array(np.where(first < 0, -1, first + 1), "Int64"),
            "edits": lines["edit_distance"][now],
            "tokens": lines["tokens"][now],
            "passes": lines["rounds"][now],
            "passes strict": lines["rounds"][strict],
            "rolled back": lines["rolled_back"][now],
            "relaxed": lines["relaxed"][now],
        }
    ).replace({"first differs": {-1: pd.NA}})


def clock(sweep: CachedSweep, dial: float) -> None:
    checks, against, name = all_checks(sweep), sweep.plan.against, f"clock-{sweep.result.folder.name}"
    theme.note(*checks.problems)
    draw(document.clock(sweep, dial, checks))
    left, right, _ = st.columns([3, 3, 5])
    count = left.number_input("Prompts", 1, 1000, 5, key="clock-prompts", help="Evenly spread over the set")
    repetitions = right.number_input("Repetitions", 1, 100, 3, key="clock-repetitions", help="Of each prompt")
    make = partial(sweep_requests.clock_job, sweep.result, dial, int(count), int(repetitions))
    why, doing = f"Times {against} and this setting in turn, on this server.", "Decoding in turn …"
    tab_jobs.background("clock-begin", why, ("Measure", "Measure again"), "", make, doing, name=name)


def all_checks(sweep: CachedSweep) -> Checks:
    """Return the checks saved with the sweep, and this tab's latest if it could not be saved, as for a sample."""
    folder = sweep.result.folder
    saved, job = kept_checks(folder, sweep.plan), st.session_state.get(f"task-clock-{folder.name}")
    if job is not None and job.progress.result is not None and (job.progress.error or sweep.shipped):
        return replace(saved, found=(*saved.found, job.progress.result))
    return saved


def load(sweep: CachedSweep, dial: float) -> None:
    folder, plan = sweep.result.folder, sweep.plan
    if plan.length_at(dial) is None:
        theme.small("Several texts at once are modelled for chains of one length.")
        return
    try:
        if (table := load_of(sweep, dial)) is not None:
            draw((blocks := document.load(table))[:1])
            figure = load_curves(table.costs.sizes, table.gamma, table.speed_ups, theme.figure_theme())
            chart(figure, "load-figure")
            draw([*blocks[1:], *document.load_settings(table)])
    except BadInput as error:
        theme.note(str(error))
    if not rights.why_no_sweeps():
        most = st.selectbox("Texts at once, at most", [8, 16, 32, 64, 128, 256], 2, key="load-most", width=200)
        why = "Rounds of 1, 2, 4, … texts at once, with every draft length, are measured on this server."
        keep = None if sweep.shipped else partial(keep_batch_costs, folder)
        models = sweep_requests.models_of(folder, plan)
        labels, doing = ("Measure batches", "Measure again"), "Measuring rounds of several texts …"
        tip = "Some seconds, or minutes for many texts: what their rounds cost here, until the interval is small"
        work = partial(tasks.measure, plan.settings, most=most)
        name = f"load-{folder.name}"
        tab_jobs.background(
            f"measure-{name}", why, labels, tip, lambda: background_task(work, models, keep), doing, name=name
        )


def load_of(sweep: CachedSweep, dial: float) -> LoadTable | None:
    """Return the load table of a setting, from rounds saved with the sweep or, for a sample, measured in this tab; None
    without either. Raises BadInput for damaged ones, and for drafts that have none."""
    folder = sweep.result.folder
    costs, job = kept_batch_costs(folder), st.session_state.get(f"task-load-{folder.name}")
    if sweep.shipped and job is not None and job.progress.state is JobState.DONE:
        costs = job.progress.result
    return None if costs is None else load_table(sweep, dial, costs)


def engines(sweep: CachedSweep, dial: float) -> None:
    rows = sweep.engines(dial)
    sentence("The same texts, counted by each engine's definition.", "exact")
    draw([document.by_definition(rows), document.by_position(rows)])
    file = f"{sweep.result.folder.name}-acceptance.jsonl", "application/jsonl"
    records = partial(acceptance_records, sweep.result.acceptance(dial))
    st.download_button("Save as AIPerf's records", records, *file, key="aiperf-export", on_click="ignore")


def evidence(
    sweep: CachedSweep, dial: float, advice: Recommendation, view: TuneView, beside: Variants | None = None
) -> None:
    checks, table = all_checks(sweep), None
    with suppress(BadInput):  # the section about the load shows it
        table = load_of(sweep, dial)

    def packed() -> bytes:
        variants = [Advised(sweep, advice)] if beside is None else beside()
        best = variants[0] if sweep.plan.cut_by is None else best_of(variants)
        return evidence_zip(
            sweep.result,
            dial=dial,
            recommendation=best.found,
            checks=checks.found,
            batches=None if table is None else table.costs,
            beside=variants[1:],
            terms=view.terms,
            by_hand=view.dial is not None,
            references=bibtex(sweep.plan.rule.name),
        )

    file = (packed, f"{sweep.result.folder.name}-evidence.zip", "application/zip")
    st.download_button("Download the evidence pack", *file, key="evidence-pack", on_click="ignore")
    unmeasured = "without a wall-clock check: none was run at this setting"
    measured = "with the wall-clock check" if checks.latest(dial) else unmeasured
    more = "" if beside is None else ", and the grid of the rule's settings"
    theme.small(
        f"A zip of Markdown, CSV and JSON for this setting, {measured}{more}: the command that makes it again, results "
        "by task, costs with their spread, and every stretch of the dial."
    )
    blocks = [*document.engine_options(sweep, dial), *document.load_settings(table)]
    draw([*blocks, Section("Synthetic acceptance", document.synthetic(sweep, dial))])


def offer_prompts(
    page_state: TunePageState, catalog: SweepCatalogue, sweep: CachedSweep, advised: Recommendation
) -> None:
    """Draw the fields that add prompts to a finished sweep of this server's: by default as many as are needed to test
    the next setting, or else as many as the sweep has. Every built-in task gets equally many."""
    name, needed, present = page_state.view.sweep, advised.more, sweep.plan.prompts
    if not sweep.result.complete or catalog.running(name) is not None or sweep.shipped:
        return
    step, left = len(kinds_of(sweep.plan.prompt_set)) or 1, sweep.kept(("further prompts",), lambda: _left(sweep))

    def rounded(more: int) -> int:
        return min(left, step * per_task(present + more, step) - present)

    if left:
        beside = [catalog.entries[each] for each in catalog.variants(name) if catalog.running(each) is None]
        suggested, least = rounded(min(left, present if needed is None else two_digits(needed))), min(step, left)
        column, right, _ = st.columns([2.2, 3, 6.5], vertical_alignment="bottom")
        key = f"add-count-{catalog.entries[name].path.name}-{present}-{suggested}"
        more = rounded(int(column.number_input("Prompts to add", least, left, max(least, suggested), step, key=key)))
        variants = f"The {counted(len(beside), 'other variant')} of the grid get them as well. " if beside else ""
        tip = (
            f"{variants}Continues this sweep: finished prompts are kept and not decoded again. The confidence is that "
            "of one test; a test repeated after adding prompts is a second one."
        )
        label = f"Add {counted(more, 'prompt')}"
        if right.button(markdown(label), key="add-prompts", help=markdown(tip), width="stretch"):
            try:
                sweep_requests.go_on(catalog.entries[name], beside, _grown(sweep, more))
            except BadInput as error:
                page_state.notices[:] = [str(error)]
            st.rerun()
    if needed is not None and needed > left:
        theme.small(
            f"About {about(needed)} more prompts would tell, and {sweep.plan.prompt_set} has {counted(left, 'prompt')} "
            "more. Tolerate a larger loss, or add prompts of a longer file or of a task with `mars-viz sweep` and "
            f"--resume --limit {present + needed}."
        )


def _left(sweep: CachedSweep) -> int:
    """Return the number of prompts that can be added; a conversation counts as one."""
    if kinds := kinds_of(sweep.plan.prompt_set):
        return max(0, len(kinds) * sweep_requests.PER_TASK_MOST - sweep.plan.prompts)
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
