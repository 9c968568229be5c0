"""Lesson 5: limits of the ratio of two logits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mars_viz.analysis.lesson_sums import RunnerUps, close_calls
from mars_viz.analysis.rulings import changed, moved, opinion, own_dial, ruling
from mars_viz.components.lesson import Kind, Knob
from mars_viz.rules import RULES
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui.lessons.base import RUNNER_UP, Lesson, LessonPicture, texts

REACH = 40  # range of the constant, in both directions
COMPARED = ("mars", "mars-margin", "mars-odds")  # the same idea by ratio, by difference and by probability
DRAWN = 12  # maximum number of curves, the closest runner-ups first
STEEP = np.array([0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2])  # points of a curve, relative to its start


def _picture(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    calls, run_theta = close_calls(run), own_dial(run, RULES["mars"])
    theta = THETA.default if run_theta is None else run_theta
    figure = curves(calls, theta) | verdicts(run, calls) | {"theta": theta, "reach": REACH}
    knob = Knob("shift", "c, added to every logit", -8.0, low=-REACH, high=REACH)
    return LessonPicture(Kind.SHIFT, (knob,), figure, "What a constant added to every logit changes")


def verdicts(run: Run, calls: RunnerUps) -> dict[str, Any]:
    """Return the rules' verdicts at each constant from -REACH to REACH: `above` is the number of runner-ups that MARS
    keeps. `rules` has the name of each compared rule, at the run's dial or its own default, and the numbers of
    changed verdicts."""
    rulings = [ruling(opinion(RULES[name], run), own_dial(run, RULES[name])) for name in COMPARED]
    above, changes = [], []
    for c in map(float, range(-REACH, REACH + 1)):
        after = moved(run.trace.speculations, c)
        reversed_by = [changed(each_ruling, after) for each_ruling in rulings]
        keeps = rulings[0].keeps ^ reversed_by[0]  # after the shift
        above.append(int(np.count_nonzero(keeps[calls.positions])))
        changes.append([int(np.count_nonzero(each)) for each in reversed_by])
    rules = [
        {"name": each.rule.at(each.dial), "changes": list(counts)}
        for each, counts in zip(rulings, zip(*changes, strict=True), strict=True)
    ]
    return {"runnerUps": len(calls), "above": above, "rules": rules}


def curves(calls: RunnerUps, theta: float) -> dict[str, Any]:
    """Return the ratios of the closest runner-ups over the constant, and in particular the one closest to θ."""
    near = int(np.nanargmin(np.abs(np.nan_to_num(calls.ratio(0.0), nan=np.inf) - theta)))
    logits = {"z1": float(calls.z1[near]), "z2": float(calls.z2[near])}
    return {"curves": [_curve(calls, i) for i in range(len(calls))[:DRAWN]], "told": logits | _curve(calls, near)}


def _curve(calls: RunnerUps, i: int) -> dict[str, Any]:
    """Return one runner-up's `ratios` at each constant from -REACH to REACH, its `steep` part at finer steps, and its
    `odds` p2/p1."""
    start = float(np.ceil(1000 * max(-calls.z2[i], -REACH)) / 1000)
    x = (start + STEEP).round(3)
    steep = calls.ratio(x)[:, i].tolist()
    return {
        "ratios": [_rounded(ratio) for ratio in calls.ratio(np.arange(-REACH, REACH + 1.0))[:, i].tolist()],
        "steep": [(at, _rounded(ratio)) for at, ratio in zip(x.tolist(), steep, strict=True)],
        "odds": float(calls.odds[i]),
    }


def _rounded(ratio: float) -> float | None:
    """Round for JSON to four significant digits; None if the ratio is undefined."""
    return float(f"{ratio:.4g}") if np.isfinite(ratio) else None


LESSON = Lesson(**texts("ratio"), needs=(RUNNER_UP,), picture=_picture)
