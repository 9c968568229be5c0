"""Two settings over the prompts of a saved sweep, or of two: every figure of both, and their paired difference with
intervals, in words and tables.

Knows sweeps in pairs and Streamlit's cache; knows no models and no page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz import default_folders
from mars_viz.analysis.intervals import Interval
from mars_viz.errors import RunFileError, contained
from mars_viz.escapes import visible
from mars_viz.sweep import SweepResult, load_sweep, pairing
from mars_viz.sweep.columns import RIGHT, UNGRADED, WRONG
from mars_viz.sweep.measures import DRAFTED, PERCENT
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
"""Figures of the table, those that a sweep has of them, in order."""
PROMPT_LENGTH = 80
"""Characters of a prompt in the table."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One figure at two settings."""

    name: str
    """Its measure's."""
    title: str
    """For people."""
    reference: Interval
    """At the first."""
    other: Interval
    """At the second."""
    change: Interval
    """Second less first, paired over prompts."""
    modelled: bool
    """True if it stands on measured costs in place of the clock."""
    percent: bool = False
    """True if it is a share, which is told in per cent, and its change in percentage points."""


@dataclass(frozen=True, slots=True)
class Turned:
    """What the second setting made of answers."""

    graded: int
    """Prompts that are right or wrong."""
    worse: tuple[str, ...]
    """Ids of those that the first has right and the second wrong."""
    better: tuple[str, ...]
    """The other way round."""


def id_of(path: Path) -> str:
    """What a link calls the sweep that lies there."""
    return path.relative_to(default_folders.sweeps()).as_posix()


def opened(path: Path) -> SweepResult:
    """The sweep in a folder, read again where it has grown. Raises BadInput where it cannot be read."""
    with contained(f"The sweep {path.name}"):
        return _loaded(path, _changed(path))


def place(path: Path, result: SweepResult) -> str:
    """Tells sweeps and their states apart. Raises BadInput where the sweep is gone."""
    return f"{path}@{result.plan.provenance.created}@{result.finished}@{_changed(path)}"


def _changed(path: Path) -> int:
    """When anything in a sweep's folder was last written, in nanoseconds."""
    try:
        return max(part.stat().st_mtime_ns for part in [path, *path.rglob("*")])
    except OSError as error:
        raise RunFileError(f"The sweep {path.name} cannot be read ({error.strerror}). Choose another.") from error


def paired(left: SweepSetting, right: SweepSetting, state: str) -> Pairing:
    """The prompts that both settings have results of; `state` tells sweeps and their states apart. Prompts are read and
    matched once, whatever the dial values. Raises BadInput as `pair` does."""
    return at_settings(_paired(left, right, state), left, right)


def settings_key(both: Pairing, state: str) -> str:
    """Tells the dial values apart besides."""
    return f"{state}&{both.left.dial!r}&{both.right.dial!r}"


@st.cache_resource(max_entries=4, show_spinner=False)
def _paired(_left: SweepSetting, _right: SweepSetting, state: str) -> Pairing:
    return pair(_left, _right)


@st.cache_resource(max_entries=4, show_spinner=False)
def _loaded(path: Path, changed: int) -> SweepResult:
    return load_sweep(path)


@st.cache_resource(max_entries=64, show_spinner=False)
def rows(_both: Pairing, settings: str) -> tuple[SweepRow, ...]:
    """Every figure of both; `settings` is their `settings_key`."""
    return tuple(map(_row, pairing.compared(_both, COMPARED)))


def _row(found: Paired) -> SweepRow:
    measure = found.measure
    return SweepRow(
        measure.name, measure.title, found.left, found.right, found.change, measure.modelled, measure.name in PERCENT
    )


def names(both: Pairing) -> Names:
    """As short as tells them apart: of one sweep by the dial; else by rule or controller and dial, by what is drafted,
    by drafter or target, then by folder."""
    settings = (both.left, both.right)
    if both.one_sweep:
        return Names(*map(_by_dial, settings))
    makers = [(s.result.plan.provenance.target, s.result.plan.provenance.drafter) for s in settings]
    said = [_by_rule(each, alone=_one_judge(both)) for each in settings]
    drafts = [each.result.plan.settings.draft for each in settings]
    if drafts[0] != drafts[1]:
        said = [f"{name} with {draft}" for name, draft in zip(said, drafts, strict=True)]
    if makers[0] != makers[1]:
        which = 1 if makers[0][0] == makers[1][0] else 0
        said = [
            f"{name} with {visible(made[which] or 'an unnamed model')}" for name, made in zip(said, makers, strict=True)
        ]
    if said[0] == said[1]:
        said = [f"{name}, {visible(each.result.folder.name)}" for name, each in zip(said, settings, strict=True)]
    return Names(*said)


def _by_rule(one: SweepSetting, *, alone: bool) -> str:
    """'MARS at θ = 0.90'; of a controller 'SVIP at λ = 0.30, MARS at θ = 0.9', `alone` without what judges."""
    plan = one.result.plan
    if plan.controller is None:
        return f"{plan.rule.title} at {setting(plan.symbol, one.dial)}"
    cut = plan.against if one.dial == plan.strict else f"{plan.controller.title} at {setting(plan.symbol, one.dial)}"
    return cut if alone else f"{cut}, {plan.judged}"


def _by_dial(one: SweepSetting) -> str:
    """'strict', or of drafts of full length 'fixed γ'; else 'θ = 0.90'."""
    plan = one.result.plan
    return plan.against if one.dial == plan.strict else setting(plan.symbol, one.dial)


def _one_judge(both: Pairing) -> bool:
    """True where thresholds of controllers are compared, of drafts that one rule judges where its dial stands."""
    plans = [each.result.plan for each in (both.left, both.right)]
    return all(plan.controller is not None for plan in plans) and plans[0].judged == plans[1].judged


def stands(both: Pairing) -> str:
    """What else decides these settings, where a draft-length controller cuts drafts, in a sentence or two: when it
    stops, and what judges; empty where none cuts."""
    said: dict[str, None] = {}
    for side in (both.left, both.right):
        plan = side.result.plan
        if plan.controller is not None:
            said[f"{plan.controller.title} stops where {plan.controller.formula}."] = None
        elif plan.settings.control is not None:
            said[f"{plan.rule.title} judges {plan.settings.draft}."] = None
    for side in (both.left, both.right):
        plan = side.result.plan
        if plan.controller is not None:
            said[f"{plan.judged} judges, of drafts of γ = {plan.settings.gamma} at most."] = None
    return " ".join(said)


def turned(both: Pairing) -> Turned:
    """Which graded prompts turn."""
    worse, better = pairing.turned(both)
    ids = np.array(both.ids, object)
    return Turned(int(both.graded.sum()), tuple(map(str, ids[worse])), tuple(map(str, ids[better])))


def words(interval: Interval, *, signed: bool = False, percent: bool = False) -> str:
    """'a (b to c)'; the number alone where nothing can be said of its range. `signed` marks what is above 0, as of a
    difference, and that of a share is in percentage points."""
    unit = f"{THIN_SPACE}{'points' if signed else '%'}" if percent and np.isfinite(interval.estimate) else ""
    return ranged(interval.scaled(100 if percent else 1), unit, signed=signed)


def finding(both: Pairing, table: tuple[SweepRow, ...], found: Turned, called: Names) -> str:
    """The sentence first."""
    tau, over = table[0], counted(len(both.ids), "prompt" if both.one_sweep else "shared prompt")
    if both.one_setting:
        return (
            f"Both are at {called.right}, so nothing differs: τ {number(tau.other.estimate)} over {over}. "
            "Choose another value for one of them."
        )
    said = (
        f"τ (tokens per target pass) over {over}: {number(tau.other.estimate)} ({called.right}) against "
        f"{number(tau.reference.estimate)} ({called.left}), difference {words(tau.change, signed=True)}."
    )
    if (drafted := next((row for row in table if row.name == DRAFTED.name), None)) is not None:
        ends = (number(side.estimate) for side in (drafted.other, drafted.reference))
        said += (
            f" Drafted tokens per prompt: {' against '.join(ends)}, difference {words(drafted.change, signed=True)}."
        )
    if not found.graded:
        return said
    said += f" Of {counted(found.graded, 'graded answer')}, {number(len(found.worse))} "
    if both.one_sweep:
        return f"{said}{'becomes' if len(found.worse) == 1 else 'become'} wrong and {number(len(found.better))} right."
    return (
        f"{said}{'is' if len(found.worse) == 1 else 'are'} wrong only with {called.right}, and "
        f"{number(len(found.better))} only with {called.left}."
    )


def costs(both: Pairing) -> str:
    """Whose measured costs the speed-up over the target alone stands on, in a sentence; empty where that is plain."""
    own, used = (both.left.result.costs, both.right.result.costs), both.costs
    if None in own or own[0] == own[1]:
        return ""
    if used[0] == used[1]:
        whose = "reference" if used[0] is own[0] else "other sweep"
        return f"Both speed-ups over the target alone are modelled with the costs of passes that the {whose} measured."
    return (
        "The speed-ups over the target alone are modelled with the costs of passes that each sweep measured for "
        "itself, of other models or on another device."
    )


def parting(both: Pairing, found: Divergence | None) -> str:
    """What is known of where the texts part, in a sentence."""
    of = {each.result.plan.against for each in (both.left, both.right)}
    if found is None:
        own = "strict text" if of == {"strict"} else f"sweep's text at {' or '.join(sorted(of))}"
        return (
            "Where the texts diverge is known of one prompt at a time: a sweep's figures say where each text diverges "
            f"from its own {own}, and these two differ in that."
        )
    same = int((found.first < 0).sum())
    unsure = int((~found.exact).sum())
    said = f"{counted(same, 'text')} of {len(both.ids)} {'is' if same == 1 else 'are'} identical token for token."
    if unsure:
        said += (
            f" {counted(unsure, 'text')} {'diverges' if unsure == 1 else 'diverge'} from {' or '.join(sorted(of))} at "
            "the same token in "
        )
        said += "both sweeps; they differ from there or later, or not at all."
    return said


def prompts(both: Pairing, found: Divergence | None) -> pd.DataFrame:
    """A row a shared prompt; `found` says where their texts part."""
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
    if found is not None:
        frame["first differs at token"] = [
            "never" if first < 0 else f"{first + 1}" if exact else f"{first + 1} or later"
            for first, exact in zip(found.first.tolist(), found.exact.tolist(), strict=True)
        ]
    return frame


def figures(table: tuple[SweepRow, ...], called: Names) -> pd.DataFrame:
    """The table of figures for a file: each number with both ends of its interval."""
    sides = {called.left: "reference", called.right: "other", "difference": "change"}
    return pd.DataFrame([_told(row, sides) for row in table])


def _told(row: SweepRow, sides: dict[str, str]) -> dict[str, float | str]:
    told: dict[str, float | str] = {"figure": row.title, "stands on": "modelled" if row.modelled else "exact"}
    for name, attribute in sides.items():
        found: Interval = getattr(row, attribute)
        told |= {name: found.estimate, f"{name}, from": found.low, f"{name}, to": found.high}
    return told


_GRADES = {UNGRADED: "", WRONG: "wrong", RIGHT: "right"}
