"""Lesson 5: what the ratio of two logits does not say."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from mars_viz.analysis.close_calls import CloseCalls, close_calls
from mars_viz.analysis.opinions import opinion, own_dial, ruling
from mars_viz.analysis.shift import compared
from mars_viz.components.lesson import Kind, Knob
from mars_viz.figures.words import setting
from mars_viz.rules import RULES
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui.lessons import thumbs
from mars_viz.ui.lessons.base import Lesson, Room
from mars_viz.ui.lessons.moving import moving
from mars_viz.ui.lessons.needs import RUNNER_UP

REACH = 40
"""Largest constant, either way."""
COMPARED = ("mars", "mars-margin", "mars-odds")
"""The same idea by ratio, by difference, and by probability."""


def show(room: Room) -> None:
    """The constant to move, the ratios under it, and whose verdicts change."""
    own = own_dial(room.run, RULES["mars"])
    theta = THETA.default if own is None else own
    calls = close_calls(room.run)
    place = _nearest_to(theta, calls)
    figure = {
        "calls": np.stack([calls.z1, calls.z2], 1).tolist(),
        "theta": theta,
        "reach": REACH,
        "rules": changes(room.run),
        "told": {"z1": float(calls.z1[place]), "z2": float(calls.z2[place])},
    }
    knob = Knob("shift", "c, added to every logit", -8.0, low=-REACH, high=REACH)
    moving(room, Kind.SHIFT, (knob,), figure, "What a constant added to every logit changes")


def changes(run: Run) -> list[dict[str, Any]]:
    """For each compared rule, at the run's dial or its own default: its name, and how many verdicts change at each
    constant from -REACH to REACH. Worked out once for a run."""
    known = st.session_state.get("learn-changes")
    if known is None or known[0] is not run:
        found = []
        for name in COMPARED:
            rule, dial = RULES[name], own_dial(run, RULES[name])
            assert rule.dial is not None and dial is not None
            said = ruling(opinion(rule, run), dial)
            counts = [compared(said, float(c)).count for c in range(-REACH, REACH + 1)]
            found.append({"name": f"{rule.title} at {setting(rule.dial.symbol, dial)}", "changes": counts})
        known = st.session_state["learn-changes"] = (run, found)
    told: list[dict[str, Any]] = known[1]
    return told


def _nearest_to(theta: float, calls: CloseCalls) -> int:
    """The runner-up that θ decides most narrowly."""
    return int(np.nanargmin(np.abs(np.nan_to_num(calls.ratio(0.0), nan=np.inf) - theta)))


LESSON = Lesson(
    name="The ratio",
    title="What the ratio of logits does not say",
    point="Adding a constant to every logit changes no probability, yet it changes z2/z1, and with it what MARS keeps.",
    text=(
        "softmax(z + c) = softmax(z): a model's logits have no fixed zero. The ratio z2/z1 depends on where that zero "
        "is; the **margin** z1 − z2 and **p2/p1** do not.",
        "Where z1 ≤ 0 the ratio means nothing (of two negative logits it is above 1), so the rule is strict there. A "
        "threshold that was tuned for one model says little about another.",
    ),
    question="Does the paper's θ = 0.9 carry over to a model whose logits lie 10 higher?",
    answer=(
        "No: every ratio moves towards 1, so more runner-ups pass. With z1 = 20 and z2 = 17.5 the ratio is 0.875 and "
        "the runner-up is rejected; with 30 and 27.5 it is 0.917 and kept. Yet p2/p1 ≈ 0.08 both times (T = 1). "
        "Compare models by the margin or by p2/p1."
    ),
    sample="1-story-mars",
    needs=(RUNNER_UP,),
    show=show,
    thumbnail=thumbs.shifted_ratios,
)
