"""Lesson 5: where the ratio of two logits misleads."""

from __future__ import annotations

import numpy as np
import streamlit as st

from mars_viz.analysis.close_calls import CloseCalls, close_calls
from mars_viz.analysis.opinions import opinion, own_dial, ruling
from mars_viz.analysis.shift import compared
from mars_viz.figures.lesson_shift import REACH, changed_verdicts, ratio_curves
from mars_viz.figures.words import number, setting
from mars_viz.rules import RULES
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui.lessons import classroom, thumbs
from mars_viz.ui.lessons.base import Lesson, Room
from mars_viz.ui.lessons.drawing import draw

COMPARED = ("mars", "mars-margin", "mars-odds")
"""The same idea by ratio, by difference, and by probability."""


def lacks(run: Run) -> str:
    """There must be a runner-up to judge."""
    if not len(close_calls(run)):
        return "The drafter never proposed the target's second choice in this run, so no ratio decides. Choose another."
    return ""


def show(room: Room) -> None:
    """The constant to move, the ratios under it, and whose verdicts change."""
    c = st.slider("c, added to every logit", -REACH, REACH, -8.0, 1.0, key="shift", bind="query-params")
    theta = own_dial(room.run, RULES["mars"]) or THETA.default
    calls = close_calls(room.run)
    changed = {}
    for name in COMPARED:
        rule = RULES[name]
        dial = own_dial(room.run, rule)
        assert rule.dial is not None and dial is not None
        changed[f"{rule.title} at {setting(rule.dial.symbol, dial)}"] = compared(
            ruling(opinion(rule, room.run), dial), c
        ).count
    left, right = st.columns([1.35, 1])
    with left:
        draw(room, ratio_curves(calls, theta, c, room.theme), "ratio-curves", wide=True)
    with right:
        draw(room, changed_verdicts(changed, c, room.theme), "ratio-changed")
    place = _nearest_to(theta, calls)
    z1, z2 = calls.z1[place], calls.z2[place]
    ratio = float(calls.ratio(c)[place])
    after = f"{number(ratio)}" if np.isfinite(ratio) else "no longer a ratio (z1 is not above 0)"
    classroom.finding(
        f"One runner-up of this run: z1 = {number(z1)}, z2 = {number(z2)}, so z2/z1 = {number(z2 / z1)}. With c = "
        f"{number(c)} it is {after}. The margin z1 − z2 stays {number(z1 - z2)}, and p2/p1 stays "
        f"{number(float(calls.odds[place]))}."
    )


def _nearest_to(theta: float, calls: CloseCalls) -> int:
    """The runner-up that θ decides most narrowly."""
    return int(np.nanargmin(np.abs(np.nan_to_num(calls.ratio(0.0), nan=np.inf) - theta)))


LESSON = Lesson(
    name="The ratio",
    title="Where the ratio misleads",
    point="Adding a constant to every logit changes no probability, yet it changes z2/z1, and with it what MARS keeps.",
    text=(
        "softmax(z + c) = softmax(z): a model's logits have no fixed zero. The ratio z2/z1 depends on where that zero "
        "happens to be; the **margin** z1 − z2 and **p2/p1** do not.",
        "Where z1 is not above 0 the ratio means nothing at all (two negative logits have a ratio above 1), so the "
        "rule is strict there. A threshold that was tuned for one model therefore says little about another.",
    ),
    question="Does the paper's θ = 0.9 carry over to a model whose logits lie 10 higher?",
    answer=(
        "No: every ratio moves towards 1, so far more runner-ups pass. With z1 = 20 and z2 = 17 the ratio is 0.85, "
        "with 30 and 27 it is 0.90, and p2/p1 = e⁻³ ≈ 0.05 both times. Compare models by the margin or by p2/p1."
    ),
    lacks=lacks,
    show=show,
    thumbnail=thumbs.shifted_ratios,
)
