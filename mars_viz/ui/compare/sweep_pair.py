"""Two dial values over the prompts of a saved sweep: every figure of both, and their paired difference with intervals.

Knows sweeps and Streamlit's cache; knows no models and no page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import streamlit as st

from mars_viz import default_folders
from mars_viz.analysis.intervals import Interval
from mars_viz.errors import BadInput, contained
from mars_viz.figures.words import THIN_SPACE, counted, number, setting
from mars_viz.sweep import SweepResult, difference_at, load_sweep, measures, value_at
from mars_viz.sweep.columns import RIGHT, WRONG
from mars_viz.sweep.measures import PERCENT
from mars_viz.sweep.pairing import Pairing, Setting, at_settings, pair

COMPARED = ("tau", "accuracy", "speed_up", "acceptance", "relaxed", "rolled_back", "passes", "tokens", "same")
"""Figures of the table, those that a sweep has of them, in order."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One figure at two dial values."""

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
    """What the second dial value made of answers."""

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
        raise BadInput(f"The sweep {path.name} cannot be read ({error.strerror}). Choose another.") from error


def paired(left: Setting, right: Setting, state: str) -> Pairing:
    """The prompts that both settings have results of; `state` tells sweeps and their states apart. Prompts are read and
    matched once, whatever the dial values. Raises BadInput as `pair` does."""
    return at_settings(_paired(left, right, state), left, right)


def settings_key(both: Pairing, state: str) -> str:
    """Tells the dial values apart besides."""
    return f"{state}&{both.left.dial!r}&{both.right.dial!r}"


@st.cache_resource(max_entries=4, show_spinner=False)
def _paired(_left: Setting, _right: Setting, state: str) -> Pairing:
    return pair(_left, _right)


@st.cache_resource(max_entries=4, show_spinner=False)
def _loaded(path: Path, changed: int) -> SweepResult:
    return load_sweep(path)


@st.cache_resource(max_entries=64, show_spinner=False)
def rows(_result: SweepResult, place: str, reference: float, dial: float) -> tuple[SweepRow, ...]:
    """Every figure at both dial values; `place` tells sweeps and their states apart."""
    known = measures(_result)
    found = []
    for name in COMPARED:
        if name not in known:
            continue
        measure = known[name]
        found.append(
            SweepRow(
                measure.title,
                value_at(_result, measure, reference),
                value_at(_result, measure, dial),
                difference_at(_result, measure, dial, reference),
                measure.modelled,
                name in PERCENT,
            )
        )
    return tuple(found)


def turned(result: SweepResult, reference: float, dial: float) -> Turned:
    """Which graded prompts turn."""
    right = result.at("right", np.array([reference, dial]))  # [P, 2]
    ids = result.prompts["id"]
    worse = (right[:, 0] == RIGHT) & (right[:, 1] == WRONG)
    better = (right[:, 0] == WRONG) & (right[:, 1] == RIGHT)
    return Turned(int(result.graded.sum()), tuple(map(str, ids[worse])), tuple(map(str, ids[better])))


def name_of(result: SweepResult, dial: float) -> str:
    """'strict', or 'θ = 0.90'."""
    own = result.plan.rule.dial
    assert own is not None  # a sweep is a sweep of a dial
    return "strict" if dial == own.strict else setting(own.symbol, dial)


def words(interval: Interval, *, signed: bool = False, percent: bool = False) -> str:
    """'a (b to c)'; the number alone where nothing can be said of its range. `signed` marks what is above 0, as of a
    difference, and that of a share is in percentage points."""
    unit = f"{THIN_SPACE}{'points' if signed else '%'}" if percent else ""

    def said(value: float) -> str:
        return ("+" if signed and value > 0 else "") + number(100 * value if percent else value)

    if np.isnan([interval.low, interval.high]).any():
        return f"{said(interval.estimate)}{unit if np.isfinite(interval.estimate) else ''}"
    return f"{said(interval.estimate)}{unit} ({said(interval.low)} to {said(interval.high)})"


def finding(result: SweepResult, table: tuple[SweepRow, ...], found: Turned, reference: float, dial: float) -> str:
    """The sentence first."""
    tau, (here, there) = table[0], (name_of(result, dial), name_of(result, reference))
    if dial == reference:
        return (
            f"Both are at {here}, so nothing differs: τ {number(tau.other.estimate)} over "
            f"{counted(len(result), 'prompt')}. Choose another value for one of them."
        )
    said = (
        f"τ (tokens per target pass) over {counted(len(result), 'prompt')}: {number(tau.other.estimate)} ({here}) "
        f"against {number(tau.reference.estimate)} ({there}), difference {words(tau.change, signed=True)}."
    )
    if not found.graded:
        return said
    return (
        f"{said} Of {counted(found.graded, 'graded answer')}, {number(len(found.worse))} "
        f"{'becomes' if len(found.worse) == 1 else 'become'} wrong and {number(len(found.better))} right."
    )
