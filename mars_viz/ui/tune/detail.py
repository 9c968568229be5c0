"""What the Tune page shows of a sweep: the frontier, and everything that is folded until it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from mars_viz.analysis.counts import synthetic_settings
from mars_viz.analysis.engine_file import read_file
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.analysis.vllm_metrics import vllm_metrics
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.figures.dial_curve import dial_curve, share_bars
from mars_viz.figures.frontier import RulePath, frontier_figure
from mars_viz.report.citations import bibtex
from mars_viz.sweep import relaxed_at
from mars_viz.sweep.columns import RANK_WORDS, SHARE_WORDS
from mars_viz.sweep.engine_settings import engine_settings
from mars_viz.sweep.evidence import judged_at
from mars_viz.sweep.evidence_pack import evidence_zip
from mars_viz.sweep.timing import CUT, Checks, kept_checks
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.imported import draw_counts
from mars_viz.ui.theme import chart
from mars_viz.ui.tune import grid, sweep_requests, tables, words
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.grid import Variant, Variants
from mars_viz.ui.tune.jobs import ClockJob
from mars_viz.ui.tune.page_state import TuneView
from mars_viz.ui.under_way import progress_bar

POLL = 0.3
"""Seconds between looks at a check under way."""
PAIRED, ALONE = "against strict", "absolute"
COUNTS_ONLY = (
    "These metrics hold counts only. Margins, ratios and other thresholds need the logits: sweep the prompts here, or "
    "record them on Explore."
)
MOST_UPLOADED = 16
"""Megabytes of metrics, some thousand requests' with every step: reading them takes several times that."""


def hero(view: TuneView, study: CachedSweep, dial: float, others: Mapping[str, CachedSweep]) -> None:
    """The frontier; without grades, the speed-up along the dial."""
    if not study.graded:
        chart(dial_curve(study.curve(study.pace), dial, theme.figure_theme()), "pace")
        return
    paths = frontier(study, dial, others, view.points)
    chart(frontier_figure(paths, theme.figure_theme(), view.points), "frontier")
    if len(paths) > 1:
        tables.line(words.trade(paths, view.points), "modelled")


def shows_pairs() -> bool:
    """Whether settings are compared with strict on the same prompts; asked before the choice itself is drawn."""
    return st.session_state.get("paired", PAIRED) == PAIRED


def choice_of_pairs(against: str) -> None:
    """How speed and accuracy are shown; `against` is what settings are compared with, for people."""
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


def frontier(study: CachedSweep, dial: float, others: Mapping[str, CachedSweep], points: float) -> list[RulePath]:
    """A path a sweep, the chosen one's first; the others with their fastest setting that loses at most `points`."""
    paired = shows_pairs()
    names = _names([study, *others.values()])
    paths = [_path(study, dial, paired, names[0])]
    for other, name in zip(others.values(), names[1:], strict=True):
        whole = _path(other, other.plan.strict, paired, name)
        best = float(whole.path.dials[whole.path.best_within(whole.strict, points)])
        paths.append(replace(whole, marked=best))
    return paths


def _names(studies: Sequence[CachedSweep]) -> list[str]:
    """Of sweeps beside one another, for people: what tells them apart, in a grid the setting alone."""
    if any(each.plan.controller is not None for each in studies):
        return [each.plan.title for each in studies]
    rules = [each.plan.rule for each in studies]
    drafts = [each.plan.settings.draft for each in studies]
    several = len(set(drafts)) > 1
    varied = [each for each in rules[0].fixed if len({rule.values.get(each.key) for rule in rules}) == len(rules)]
    if len(rules) > 1 and varied and len({rule.family for rule in rules}) == 1:
        names = [varied[0].at(rule.values[varied[0].key]) for rule in rules]
    else:
        names = [rule.title for rule in rules]
    return [f"{name}, {draft}" if several else name for name, draft in zip(names, drafts, strict=True)]


def _path(study: CachedSweep, marked: float, paired: bool, name: str) -> RulePath:
    plan = study.plan
    path = study.path(marked, paired=paired)
    return RulePath(name, plan.symbol, path, plan.strict, plan.loosest, marked)


def folded(
    view: TuneView, study: CachedSweep, dial: float, found: Recommendation | None, beside: Variants | None
) -> None:
    """Everything else; what is closed computes nothing. `beside` are the sweeps that make a grid with this one,
    where there are any."""
    if study.several_tasks:
        tasks = st.expander("Results by task", expanded=True, key="tune-tasks", on_change="rerun")
        if tasks.open:
            with tasks:
                by_task(study, dial)
    sections: dict[str, Callable[[], None]] = {
        "All figures along the dial": partial(every_figure, study, dial),
        "Relaxed tokens by rank and probability": partial(relaxed, study, dial),
        "Prompt by prompt": partial(by_prompt, study, dial),
        f"Wall-clock check: {study.plan.against} and this setting in turn": partial(clock, study, dial),
        "Acceptance as each engine defines it": partial(engines, study, dial),
        "Evidence pack and engine settings": partial(evidence, study, dial, found, view, beside),
    }
    if beside is not None:
        sections["Grid of this rule's settings"] = partial(grid.grid, study, dial, beside)
    for place, (title, show) in enumerate(sections.items()):
        section = st.expander(markdown(title), key=f"tune-section-{place}", on_change="rerun")
        if section.open:
            with section:
                show()


def by_task(study: CachedSweep, dial: float) -> None:
    """A row a task, and one for all together."""
    tables.line(f"Each task at {study.plan.against} and at this setting.", "exact")
    tables.table(tables.tasks(study, dial), "tasks", "Results by task and together")


def every_figure(study: CachedSweep, dial: float) -> None:
    """A curve of choice, and the table of all."""
    titles = {name: measure.title for name, measure in study.measures.items()}  # all that the widget is to hold
    names = list(titles)
    name = st.selectbox("Figure", names, names.index("tau"), key="tune-figure", format_func=titles.__getitem__)
    chart(dial_curve(study.curve(name), dial, theme.figure_theme()), "curve")
    tables.table(tables.figures(study, dial), "all-figures", "All figures at strict, this setting and the loosest")


def relaxed(study: CachedSweep, dial: float) -> None:
    """Relaxed tokens by the target's rank and by p(x)/p1."""
    counts, bands, colours = relaxed_at(study.result, dial), study.relaxed(dial), theme.figure_theme()
    left, right = st.columns(2)
    make = partial(share_bars, theme=colours, noun="relaxed token")
    with left:
        chart(make(RANK_WORDS, counts.by_rank, bands.by_rank, axis="the target's rank"), "ranks")
    with right:
        chart(make(SHARE_WORDS, counts.by_share, bands.by_share, axis="p(x)/p1"), "shares")
    tables.line("Shares of all relaxed tokens at this setting.", "exact")


def by_prompt(study: CachedSweep, dial: float) -> None:
    """A row a prompt."""
    frame = tables.prompts(study.result, dial)
    tables.line("Which prompts change, where, and by how much.", "exact")
    tables.table(frame, "prompts", "Every prompt at strict and at this setting", height=min(420, 38 + 32 * len(frame)))
    for failure in study.result.failures[:10]:
        theme.small(f"{failure.id} has no results: {failure.reason}")


def clock(study: CachedSweep, dial: float) -> None:
    """The wall-clock check of this setting."""
    plan = study.plan
    job = _check(study, dial)
    if job is not None and not job.progress.state.finished:
        timing(job)
        return
    checks = all_checks(study, dial)
    if job is not None and (job.progress.error or job.progress.check is None):
        theme.note(job.progress.error or "You stopped the check; it has no result.")
    for problem in checks.problems:
        theme.note(problem)
    if (check := checks.latest(dial)) is not None:
        first, second = words.timed(check)
        tables.line(first, "measured")
        theme.small(second, check.device)
    if plan.cut_by is not None:
        theme.small(CUT)
    if len(checks.found) > (check is not None):
        alt = "Every wall-clock check of this sweep"
        tables.table(tables.checks(checks.found[::-1], plan.symbol, plan.against), "checks", alt)
    left, middle, right = st.columns([3, 3, 5], vertical_alignment="bottom")
    count = left.number_input("Prompts", 1, 1000, 5, key="clock-prompts", help="Evenly spread over the set")
    repetitions = middle.number_input("Repetitions", 1, 100, 3, key="clock-repetitions", help="Of each prompt")
    if right.button(markdown(f"Measure {plan.against} and this setting"), key="clock-begin"):
        try:
            sweep_requests.check_clock(study.result, dial, int(count), int(repetitions))
        except BadInput as error:
            theme.note(str(error))
        else:
            st.rerun()


def _check(study: CachedSweep, dial: float) -> ClockJob | None:
    """The wall-clock check of this setting that this server made or makes, if any."""
    job = tab_jobs.shared_worker().find((study.result.folder, dial))
    return job if isinstance(job, ClockJob) else None


def all_checks(study: CachedSweep, dial: float) -> Checks:
    """Those beside the sweep, and one that could not be written there, as beside a sample."""
    kept, job = kept_checks(study.result.folder, study.plan), _check(study, dial)
    if job is not None and job.progress.check is not None and (job.progress.error or study.shipped):
        kept = replace(kept, found=(*kept.found, job.progress.check))
    return replace(kept, found=tuple(replace(check, how=study.how) for check in kept.found))


@faults.fragment(run_every=POLL)
def timing(job: ClockJob) -> None:
    """A check under way: how far it is, and a way to stop it."""
    now = job.progress
    if now.state.finished:
        st.rerun()
    share = now.done / now.decodes if now.decodes else 0.0
    progress_bar(job, share, words.timing(now, tab_jobs.shared_worker().ahead(job), job.stopping), key="clock-stop")


def engines(study: CachedSweep, dial: float) -> None:
    """The table of definitions, and vLLM's metrics to take away."""
    rows = study.engines(dial)
    tables.line("The same texts, counted by each engine's definition.", "exact")
    tables.table(tables.engines(rows), "engines", "Acceptance length and rate under every engine's definition")
    tables.table(tables.by_position(rows), "positions", "Acceptance by position in the block")
    st.download_button(
        "Save as vLLM's per-request metrics",
        lambda: exported(study, dial),
        f"{study.result.folder.name}-vllm-metrics.json",
        "application/json",
        key="vllm-export",
        on_click="ignore",
    )


def exported(study: CachedSweep, dial: float) -> str:
    """Every prompt's counts as a response of vLLM holds them."""
    found = [
        {
            "id": each.name,
            "usage": {"completion_tokens": each.completion_tokens},
            "metrics": {"speculative_decoding": vllm_metrics(each)},
        }
        for each in study.result.acceptance(dial)
    ]
    return json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1)


def evidence(
    study: CachedSweep, dial: float, found: Recommendation | None, view: TuneView, beside: Variants | None = None
) -> None:
    """The pack to download, and what to set in engines."""
    checks = all_checks(study, dial)

    def packed() -> bytes:
        variants = [Variant(study, found)] if beside is None else beside.opened()
        own, *others = (each.advised for each in variants)
        best = grid.pair([own, *others]) if others and study.plan.cut_by is not None else None
        said = best or own.found
        return evidence_zip(
            study.result,
            dial=dial,
            recommendation=said,
            checks=checks.found,
            beside=others,
            terms=view.terms,
            by_hand=view.dial is not None,
            references=bibtex(study.plan.rule.name),
        )

    st.download_button(
        "Download the evidence pack",
        packed,
        f"{study.result.folder.name}-evidence.zip",
        "application/zip",
        key="evidence-pack",
        on_click="ignore",
    )
    measured = (
        "with the wall-clock check"
        if checks.latest(dial)
        else "without a wall-clock check: none was run at this setting"
    )
    more = "" if beside is None else ", and the grid of the rule's settings"
    theme.small(
        f"A zip of Markdown, CSV and JSON for this setting, {measured}{more}: the command that makes it again, results "
        "by task, costs with their spread, and every stretch of the dial."
    )
    for each in engine_settings(study.plan.settings, judged_at(study.plan, dial)):
        tables.line(f"{each.engine}. {each.note}")
        if each.text:
            st.code(each.text, language=None, wrap_lines=True)
    made = synthetic_settings(study.result.paths(dial))
    theme.note(f"Synthetic acceptance. {made.warning}")
    for engine, text in (("vLLM", made.vllm), ("SGLang", made.sglang), ("TensorRT-LLM", made.tensorrt_llm)):
        tables.line(engine)
        st.code(text, language=None, wrap_lines=True)


def imported() -> None:
    """Draw the acceptance counts in an engine's file."""
    section = st.expander("Read an engine's counts", key="tune-import", on_change="rerun")
    if not section.open:
        return
    with section:
        upload = st.file_uploader(
            "JSON or JSONL of responses, captured streams, or the text of /metrics",
            key="vllm-import",
            max_upload_size=MOST_UPLOADED,
        )
        if upload is None:
            return
        try:
            found = read_file(upload.getvalue().decode("utf-8-sig"))
        except UnicodeDecodeError:
            theme.note("The file is not UTF-8 text. Save it as UTF-8.")
        except BadInput as error:
            theme.note(str(error))
        else:
            theme.note(COUNTS_ONLY if found.requests else "This is a log of whole rounds. Open it on Explore.")
            if found.requests:
                tables.line(found.summary, "measured")
                draw_counts(found)
