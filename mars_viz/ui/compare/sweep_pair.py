"""Two settings over the prompts of one or two saved sweeps: figures and paired differences with intervals, in words and
tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz import default_folders
from mars_viz.analysis.intervals import Interval
from mars_viz.controllers import CONTROLLERS
from mars_viz.errors import RunFileError, contained
from mars_viz.escapes import visible
from mars_viz.sweep import SweepResult, load_sweep, pairing
from mars_viz.sweep.columns import RIGHT, UNGRADED, WRONG
from mars_viz.sweep.measures import DRAFTED
from mars_viz.sweep.pairing import Divergence, Paired, Pairing, SweepSetting, at_settings, pair
from mars_viz.ui.compare.compare_words import SIDES, Names
from mars_viz.words import THIN_SPACE, counted, number, ranged, setting

COMPARED = (
    "tau",
    "accuracy",
    "speed_up",
    "drafted",
    "acceptance",
    "relaxed",
    "rolled_back",
    "passes",
    "tokens",
    "same",
)
"""Figures of the table in order, as far as a sweep has them."""
PROMPT_LENGTH = 80  # maximum number of characters of a prompt in the table


@dataclass(frozen=True, slots=True)
class Turned:
    """Changes of answers at the second setting."""

    graded: int
    worse: tuple[str, ...]  # ids of prompts that only the first has right
    better: tuple[str, ...]  # ids of prompts that only the second has right


def id_of(path: Path) -> str:
    """Return a sweep's id in links."""
    return path.relative_to(default_folders.sweeps()).as_posix()


def opened(path: Path) -> SweepResult:
    """Return the sweep in a folder, read again if it has grown. Raises BadInput if it cannot be read."""
    with contained(f"The sweep {path.name}"):
        return _loaded(path, _changed(path))


def place(path: Path, result: SweepResult) -> str:
    """Return a key of the sweep and its version. Raises BadInput if the sweep is gone."""
    return f"{path}@{result.plan.provenance.created}@{result.finished}@{_changed(path)}"


def _changed(path: Path) -> int:
    """Return the time of the last write in a sweep's folder, in nanoseconds."""
    try:
        return max(part.stat().st_mtime_ns for part in [path, *path.rglob("*")])
    except OSError as error:
        raise RunFileError(f"The sweep {path.name} cannot be read ({error.strerror}). Choose another.") from error


def paired(left: SweepSetting, right: SweepSetting, state: str) -> Pairing:
    """Return the prompts with results at both settings. `state` identifies the sweeps and their versions; prompts are
    read and matched once for all dial values. Raises BadInput as `pair` does."""
    return at_settings(_paired(left, right, state), left, right)


def settings_key(both: Pairing, state: str) -> str:
    """Return a key of the sweeps and the dial values."""
    return f"{state}&{both.left.dial!r}&{both.right.dial!r}"


@st.cache_resource(max_entries=4, show_spinner=False)
def _paired(_left: SweepSetting, _right: SweepSetting, state: str) -> Pairing:
    return pair(_left, _right)


@st.cache_resource(max_entries=4, show_spinner=False)
def _loaded(path: Path, changed: int) -> SweepResult:
    return load_sweep(path)


@st.cache_resource(max_entries=64, show_spinner=False)
def rows(_both: Pairing, settings: str) -> tuple[Paired, ...]:
    """Return every figure of both; `settings` is their `settings_key`."""
    return tuple(pairing.compared(_both, COMPARED))


def names(both: Pairing) -> Names:
    """Return the shortest distinct names: for one sweep by dial; otherwise by rule or controller and dial, draft,
    drafter or target, and folder."""
    settings = (both.left, both.right)
    plans = [each.result.plan for each in settings]
    if both.one_sweep:  # 'strict', for drafts of full length 'fixed γ', otherwise 'θ = 0.90'
        dials = [(each.dial, plan) for each, plan in zip(settings, plans, strict=True)]
        return Names(*(plan.against if at == plan.strict else setting(plan.symbol, at) for at, plan in dials))
    makers = [(plan.provenance.target, plan.provenance.drafter) for plan in plans]
    same_rule = all(plan.over for plan in plans) and plans[0].judged == plans[1].judged
    labels = [_by_rule(each, alone=same_rule) for each in settings]
    drafts = [plan.settings.draft for plan in plans]
    if drafts[0] != drafts[1]:
        labels = [f"{name} with {draft}" for name, draft in zip(labels, drafts, strict=True)]
    if makers[0] != makers[1]:
        which = 1 if makers[0][0] == makers[1][0] else 0
        labels = [
            f"{name} with {visible(models[which] or 'an unnamed model')}"
            for name, models in zip(labels, makers, strict=True)
        ]
    if labels[0] == labels[1]:
        labels = [f"{name}, {visible(each.result.folder.name)}" for name, each in zip(labels, settings, strict=True)]
    return Names(*labels)


def _by_rule(one: SweepSetting, *, alone: bool) -> str:
    """Return 'MARS at θ = 0.90', or for a controller 'SVIP at λ = 0.30, MARS at θ = 0.9'. With `alone`, the rule is
    left out."""
    plan = one.result.plan
    at = f"{plan.axis.title} at {setting(plan.symbol, one.dial)}"
    if not plan.over:
        return at
    cut = plan.against if one.dial == plan.strict else at
    return cut if alone else f"{cut}, {plan.judged}"


def stands(both: Pairing) -> str:
    """Return sentences about the controllers and the rules that verify their drafts; empty without a controller."""
    sentences: dict[str, None] = {}
    for side in (both.left, both.right):
        plan = side.result.plan
        if plan.over:
            sentences[f"{plan.axis.title} stops where {CONTROLLERS[plan.over].formula}."] = None
        elif plan.settings.control is not None:
            sentences[f"{plan.rule.title} judges {plan.settings.draft}."] = None
    for side in (both.left, both.right):
        plan = side.result.plan
        if plan.over:
            sentences[f"{plan.judged} judges, of drafts of γ = {plan.settings.gamma} at most."] = None
    return " ".join(sentences)


def turned(both: Pairing) -> Turned:
    """Return the changes of graded answers."""
    worse, better = pairing.turned(both)
    ids = np.array(both.ids, object)
    return Turned(int(both.graded.sum()), tuple(map(str, ids[worse])), tuple(map(str, ids[better])))


def words(interval: Interval, *, signed: bool = False, percent: bool = False) -> str:
    """Format an interval as 'a (b to c)', or only the estimate if the range is unknown. `signed` adds a plus sign to
    positive values and shows shares in percentage points, as for differences."""
    unit = f"{THIN_SPACE}{'points' if signed else '%'}" if percent and np.isfinite(interval.estimate) else ""
    return ranged(interval.scaled(100 if percent else 1), unit, signed=signed)


def finding(both: Pairing, table: tuple[Paired, ...], answers: Turned, called: Names) -> str:
    """Return the main result."""
    tau, over = table[0], counted(len(both.ids), "prompt" if both.one_sweep else "shared prompt")
    if both.one_setting:
        return (
            f"Both are at {called.right}, so nothing differs: τ {number(tau.right.estimate)} over {over}. "
            "Choose another value for one of them."
        )
    sentence = (
        f"τ (tokens per target pass) over {over}: {number(tau.right.estimate)} ({called.right}) against "
        f"{number(tau.left.estimate)} ({called.left}), difference {words(tau.change, signed=True)}."
    )
    if (drafted := next((row for row in table if row.measure.name == DRAFTED.name), None)) is not None:
        ends = (number(side.estimate) for side in (drafted.right, drafted.left))
        sentence += (
            f" Drafted tokens per prompt: {' against '.join(ends)}, difference {words(drafted.change, signed=True)}."
        )
    if not answers.graded:
        return sentence
    sentence += f" Of {counted(answers.graded, 'graded answer')}, {number(len(answers.worse))} "
    if both.one_sweep:
        return (
            f"{sentence}{'becomes' if len(answers.worse) == 1 else 'become'} wrong and "
            f"{number(len(answers.better))} right."
        )
    return (
        f"{sentence}{'is' if len(answers.worse) == 1 else 'are'} wrong only with {called.right}, and "
        f"{number(len(answers.better))} only with {called.left}."
    )


def costs(both: Pairing) -> str:
    """Return a sentence about which sweep's costs the modelled speed-ups use; empty if both have the same."""
    own_costs, used_costs = (both.left.result.costs, both.right.result.costs), both.costs
    if None in own_costs or own_costs[0] == own_costs[1]:
        return ""
    if used_costs[0] == used_costs[1]:
        whose = "reference" if used_costs[0] is own_costs[0] else "other sweep"
        return f"Both speed-ups over the target alone are modelled with the costs of passes that the {whose} measured."
    return (
        "The speed-ups over the target alone are modelled with the costs of passes that each sweep measured for "
        "itself, of other models or on another device."
    )


def parting(both: Pairing, differences: Divergence | None) -> str:
    """Return a sentence about the first differences of the texts."""
    references = {each.result.plan.against for each in (both.left, both.right)}
    if differences is None:
        reference_text = (
            "strict text" if references == {"strict"} else f"sweep's text at {' or '.join(sorted(references))}"
        )
        return (
            "Where the texts diverge is known of one prompt at a time: a sweep's figures say where each text diverges "
            f"from its own {reference_text}, and these two differ in that."
        )
    same = int((differences.first < 0).sum())
    unsure = int((~differences.exact).sum())
    sentence = f"{counted(same, 'text')} of {len(both.ids)} {'is' if same == 1 else 'are'} identical token for token."
    if unsure:
        sentence += (
            f" {counted(unsure, 'text')} {'diverges' if unsure == 1 else 'diverge'} from "
            f"{' or '.join(sorted(references))} at the same token in "
            "both sweeps; they differ from there or later, or not at all."
        )
    return sentence


def prompts(both: Pairing, differences: Divergence | None) -> pd.DataFrame:
    """Return a table with a row per shared prompt; `differences` has the first differences of their texts."""
    named = {SIDES.left: 0, SIDES.right: 1}
    frame = pd.DataFrame({"prompt": both.ids, "text": [text[:PROMPT_LENGTH] for text in both.texts]})
    grades, tokens, passes = (both.at(column) for column in ("right", "tokens", "rounds"))
    if both.graded.any():
        for name, side in named.items():
            frame[f"answer, {name}"] = [_GRADES.get(int(value), "") for value in grades[side]]
    for name, side in named.items():
        frame[f"tokens, {name}"] = tokens[side]
        frame[f"τ, {name}"] = np.divide(
            tokens[side], passes[side], out=np.full(len(frame), np.nan), where=passes[side] > 0
        )
    if any(each.result.plan.cut_by is not None for each in (both.left, both.right)):
        for name, side in named.items():
            frame[f"drafted, {name}"] = both.at("drafted")[side]
    if differences is not None:
        frame["first differs at token"] = [
            "never" if first < 0 else f"{first + 1}" if exact else f"{first + 1} or later"
            for first, exact in zip(differences.first.tolist(), differences.exact.tolist(), strict=True)
        ]
    return frame


def figures(table: tuple[Paired, ...], called: Names) -> pd.DataFrame:
    """Return the table of figures for a file, with both ends of each interval."""
    lines: list[dict[str, float | str]] = []
    for row in table:
        line: dict[str, float | str] = {"figure": row.measure.title}
        line["stands on"] = "modelled" if row.measure.modelled else "exact"
        sides = {called.left: row.left, called.right: row.right, "difference": row.change}
        for name, interval in sides.items():
            line |= {name: interval.estimate, f"{name}, from": interval.low, f"{name}, to": interval.high}
        lines.append(line)
    return pd.DataFrame(lines)


_GRADES = {UNGRADED: "", WRONG: "wrong", RIGHT: "right"}
