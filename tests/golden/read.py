"""What the goldens read of the product: the only module here that knows its insides.

Each function returns columns (`store.Columns`) with names that need not change when the product's records do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz import DialMap, Run, cli, load_run
from mars_viz.analysis.engine_file import read_file
from mars_viz.backend_choice import BUILT_IN
from mars_viz.components.explorer.payload import run_payload
from mars_viz.imports import import_run
from mars_viz.recording import Walking
from mars_viz.rules import RULES
from mars_viz.samples import RUNS
from mars_viz.speculators.backend import Backend
from mars_viz.sweep import curve, load_sweep, measures
from mars_viz.sweep.grid import chosen_dial, recommended
from mars_viz.sweep.measures import Terms
from mars_viz.ui import links, models_form
from mars_viz.ui import rules_page as rule_page
from mars_viz.ui.compare import page_state
from mars_viz.ui.lessons import base as learn
from mars_viz.ui.live import LiveView
from mars_viz.ui.runs import RunsView
from mars_viz.ui.tune.catalogue import TuneView
from tests.golden.store import Columns, flat
from tests.sweep_cases import evidence_of

NODES = (
    "draws",
    "budgets",
    "p_left",
    "q_left",
    "own_q",
    "traversal_stop",
    "greedy_stop",
    "recursive_keep",
    "k_seq_keep",
)
ROWS = ("support", "drafter_passes")
EMITTED = ("traversal_emission", "greedy_emission", "recursive_emission", "k_seq_emission")
LISTS = {"top_ids": 4, "top_logits": 2, "draft_ids": 2, "draft_logits": 1, "best_q": 2}  # entries of each that count
VERDICTS = (
    "breakpoints",
    "keep_below",
    "keep_above",
    "keep_strict",
    "row_breakpoints",
    "emit_below",
    "emit_above",
    "gaps",
)
VOLATILE = {"seconds", "prefill_seconds", "speed", "provenance", "costs", "wall_clock", "id", "device"}
WORDS = {
    "rule",
    "text",
    "outcome",
    "controller",
    "tree",
    "policy",
    "engine",
    "finding",
    "symbol",
    "task",
    "how",
    "stop",
}


def run_columns(run: Run) -> Columns:
    """Return a run's settings, text, rounds, positions and verdicts."""
    about = {
        "settings": dataclasses.asdict(run.settings),
        "prompt": run.prompt_ids,
        "tokens": run.token_ids,
        "text": run.text,
        "tau": run.tau,
    }
    rounds = [
        {
            "emitted": len(each.token_ids),
            "kept": each.kept,
            "rolled_back": each.rolled_back,
            "ends": "" if each.emission is None else each.emission.name,
        }
        for each in run.rounds
    ]
    frame = run.to_frame().drop(columns="text")
    frame = {f"positions.{name}": _plain(frame[name]) for name in frame}
    trace, known = run.trace, run.trace.speculations.columns
    found = {f"evidence.{name}": np.asarray(known[name]).ravel() for name in (*NODES, *ROWS, *EMITTED) if name in known}
    found |= {f"evidence.{name}": known[name][:, :count].ravel() for name, count in LISTS.items() if name in known}
    verdicts = {f"verdicts.{name}": getattr(trace.verdicts, name) for name in VERDICTS}
    joined = flat(about | {"ended": run.ended, "rounds": rounds}) | frame | found | verdicts
    return {name: column for key, value in joined.items() for name, column in flat(value, key).items()}


def map_columns(made: DialMap) -> Columns:
    """Return all segments of a map, of all its block lengths, which of them hold the edges and the floats below, and
    whether a walk there writes the same."""
    edges = []
    for gamma in made.span.gammas:
        segments = made.segments_for(gamma)
        for number, each in enumerate(segments):
            pairs = [(each.low, each)]
            pairs += [(math.nextafter(each.low, -math.inf), segments[number - 1])] if number else []
            held = [segments.index(made.segment(at, gamma)) for at, _ in pairs]
            same = [made.at(at, gamma).token_ids == segment.token_ids for at, segment in pairs]
            edges.append({"held": held, "same": same})
    segments = [
        {"gamma": gamma, "low": each.low, "high": each.high, "complete": each.complete, "tau": each.tau}
        | {"drafted": each.drafted, "relaxed": each.relaxed, "tokens": list(each.token_ids)}
        | {"rounds": [len(round_.token_ids) for round_ in each.rounds]}
        for gamma in made.span.gammas
        for each in made.segments_for(gamma)
    ]
    return flat(
        {
            "low": made.span.low,
            "high": made.span.high,
            "answers": len(made.answers),
            "segments": segments,
            "edges": edges,
        }
    )


def rule_columns(run: Run) -> Columns:
    """Return the verdicts of every rule that can judge the run."""
    found: Columns = {}
    for name, rule in RULES.items():
        if rule.lacks_for(run.trace.speculations) is None:
            verdicts = rule.judge_all(run.trace.speculations)
            found |= {f"{name}.{each}": getattr(verdicts, each) for each in VERDICTS}
        found |= flat(rule.lacks_for(run.trace.speculations) is None, f"{name}.judges")
    some = {name: each for name, each in found.items() if each.dtype.kind != "f" or not np.isnan(each).all()}
    return {name: flat(column, name)[name] for name, column in some.items()}


def walk_columns(backend: Backend, run: Run) -> Columns:
    """Return the text that every rule writes after the run's prompt, at its default setting."""
    usable = [
        rule
        for rule in RULES.values()
        if not rule.refuses_trees(run.settings.temperature) or not run.settings.drafts_trees
    ]
    walking = Walking(backend, run, [(rule, rule.checked_dial(None)) for rule in usable])
    for _ in walking:
        pass
    return flat(
        {
            rule.name: {
                "tokens": list(walker.text.prefix[len(run.prompt_ids) :]),
                "rounds": [len(round_.token_ids) for round_ in walker.text.rounds],
                "finished": walker.text.finished,
            }
            for rule, walker in zip(usable, walking.walkers, strict=True)
        }
    )


def sweep_columns(folder: Path) -> Columns:
    """Return what is read off a sweep: counts, curves, recommendation, evidence for the setting that it advises."""
    result = load_sweep(folder)
    found = recommended(result, Terms())
    dial = chosen_dial(result, found)
    edges = result.edges[1:-1][:: max(1, len(result.edges) // 20)]
    grid = np.concatenate([np.linspace(result.plan.low, result.plan.high, 41), edges, np.nextafter(edges, -np.inf)])
    curves = {name: [curve(result, each).at(at) for at in grid] for name, each in measures(result).items()}
    lines = {name: column for name, column in result.lines.items() if name in ("tokens", "rounds", "right", "low")}
    evidence = evidence_of(result, dial, recommendation=found)
    return without_words(
        flat({"prompts": len(result), "dial": dial, "curves": curves})
        | {f"lines.{name}": flat(column, name)[name] for name, column in lines.items()}
        | flat(_jsonable(evidence), "evidence")
    )


def payload_columns(run: Run, **how: Any) -> Columns:
    """Return what the explorer's element receives."""
    return without_words(flat(_jsonable(run_payload(run, **how))))


def imported_columns(log: str, backend: Backend | None = None) -> Columns:
    """Return the run that an engine's log comes to."""
    (text,) = read_file(log).texts
    run, ties = import_run(text, backend)
    return run_columns(run) | flat({"ties": ties})


def command_columns(*arguments: str) -> Columns:
    """Return the fields that a command prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = cli.main(arguments)
    return flat({"code": code}) | without_words(flat(json.loads(out.getvalue()), "json"))


def opened_link(page: str, link: Mapping[str, str]) -> dict[str, Any]:
    """Return what a link opens on a page: the fields that are not at their defaults, the number of complaints, what is
    left of it on a sample run where that differs, and the link that the page then writes."""
    if page == "models":
        complaints: list[str] = []
        choice = models_form.models_in_link(link, BUILT_IN, complaints)
        return {"opens": _changed(choice, BUILT_IN), "complaints": len(complaints)}
    opened = _opened(page, link)
    view, blank = opened.view, _opened(page, {}).view
    run = {"run": links.from_parameters(links.View, link).view.run} if page in ("rules", "learn", "compare") else {}
    found = {"opens": run | _changed(view, blank), "complaints": len(opened.complaints)}
    fit = {"explore": links.fitted, "rules": rule_page.fitted, "learn": learn.fitted}.get(page)
    if fit is not None:
        fitted = fit(view, _sample())
        if fitted.view != view or fitted.complaints:
            found["on_sample"] = {"opens": _changed(fitted.view, blank), "complaints": len(fitted.complaints)}
    to_link = page_state.to_parameters(run["run"], view) if page == "compare" else links.to_parameters(view, **run)
    if to_link != {name: said for name, said in link.items() if said}:
        found["link"] = to_link
    return found


def _opened(page: str, link: Mapping[str, str]) -> links.Opened[Any]:
    if page == "rules":
        return rule_page.RulesPageState().opened(link)
    kinds = {"explore": links.View, "compare": page_state.CompareView, "tune": TuneView, "live": LiveView}
    return links.from_parameters((kinds | {"runs": RunsView, "learn": learn.LessonView})[page], link)


@cache
def _sample() -> Run:
    return load_run(RUNS / "1-story-mars")


def _changed(value: Any, default: Any) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)]
    pairs = {name: (getattr(value, name), getattr(default, name)) for name in names}
    return {
        name: _changed(ours, theirs)
        if dataclasses.is_dataclass(ours) and type(ours) is type(theirs)
        else _jsonable(ours)
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    }


def without_words(columns: Columns) -> Columns:
    """Return the columns but for wording, paths, times and what depends on the machine."""
    return {
        name: column
        for name, column in columns.items()
        if not VOLATILE & set(name.replace("[]", "").replace("#", "").split("."))
        and (column.dtype.kind != "U" or name.rpartition(".")[2].replace("[]", "") in WORDS)
    }


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, str | bytes | np.ndarray):
        return value
    return [_jsonable(item) for item in value] if isinstance(value, Iterable) else value


def _plain(series: Any) -> np.ndarray:
    """Return a data frame's column; NA as -1."""
    return series.fillna(-1).to_numpy() if str(series.dtype) == "Int64" else series.to_numpy()
