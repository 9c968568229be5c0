"""Lesson 3: why rejection sampling is lossless."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from mars_viz.analysis.lesson_sums import OTHERS, Overlap, Place, overlap, places, total_variation, trials
from mars_viz.components.lesson import Kind, Knob
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.ui import theme
from mars_viz.ui.lessons import base
from mars_viz.ui.lessons.base import Lesson, LessonPageState, LessonPicture, texts
from mars_viz.ui.session import bound
from mars_viz.words import number, shown_token

DRAWS = tuple(10 ** (step // 3) * (1, 2, 5)[step % 3] for step in range(3, 16))  # 10, 20, 50, … 100 000
SHOWN = tuple(sorted({*DRAWS, *np.geomspace(DRAWS[0], DRAWS[-1], 180).round().astype(int).tolist()}))
MOST = 40  # maximum number of positions to choose from


def show(page_state: LessonPageState, run: Run) -> None:
    """Draw the choice of a position, its distributions and the simulation."""
    positions = places(run)[:MOST]
    labels = [_label(run, place) for place in positions]
    asked = page_state.view.place
    shown = asked if asked in labels else _label(run, _telling(run))
    chosen = bound(
        st.selectbox, "Drafted token", "place", shown, lambda label: page_state.change(place=label), options=labels
    )
    laws = overlap(run, positions[labels.index(chosen)])
    base.moving(page_state, _pictured(run, laws))
    theme.lead(_finding(laws))


def _telling(run: Run) -> Place:
    return max(places(run)[:MOST], key=lambda place: overlap(run, place).telling)


def _pictured(run: Run, laws: Overlap) -> LessonPicture:
    names = ["rest" if token == OTHERS else shown_token(run.pieces[token].text, 10) for token in laws.tokens]
    knob = Knob("draws", "Trials", 1000, stops=DRAWS, help="How often a token is drafted and judged")
    label = "Both distributions, and trials of rejection sampling on them"
    return LessonPicture(Kind.LOSSLESS, (knob,), told(laws, names), label)


def _finding(laws: Overlap) -> str:
    apart = 1 - laws.acceptance
    return (
        f"A draft is kept with probability {number(laws.acceptance)} (grey), rejected with {number(apart)} (orange); "
        "what is written instead (blue) has the same area."
    )


def told(laws: Overlap, names: list[str]) -> dict[str, Any]:
    """Return the figure's data: both distributions, the acceptance rate `kept`, the counts `written` after each number
    of `draws`, and their total variation distance `apart` from the target's distribution."""
    counts = trials(laws, SHOWN)
    apart = total_variation(counts / np.array(SHOWN)[:, None], laws.p)
    return {
        "p": laws.p.tolist(),
        "q": laws.q.tolist(),
        "shared": laws.shared.tolist(),
        "residual": laws.residual.tolist(),
        "names": names,
        "kept": laws.acceptance,
        "draws": SHOWN,
        "written": counts.tolist(),
        "apart": [float(f"{each:.4g}") for each in apart],
    }


def _label(run: Run, place: Place) -> str:
    index, node = place
    token = int(run.rounds[index].speculation.tokens[node])
    return f"round {index + 1}, draft {node + 1}: “{shown_token(run.pieces[token].text)}”"


def caution(run: Run) -> str:
    """Return a warning if the run's text is not a sample of the target's distribution."""
    if base.is_lossless(run):
        return ""
    return (
        f"This run is lossy: {rule_named(run.settings.rule).at(run.settings.dial)} wrote it, and its text does "
        "not follow the target's distribution. Shown below is rejection sampling at its positions."
    )


LESSON = Lesson(
    **texts("lossless"),
    needs=(base.SAMPLED, base.UNCUT, base.BOTH_KNOWN),
    caution=caution,
    show=show,
    picture=lambda run, other_runs: _pictured(run, overlap(run, _telling(run))),
    told=lambda run: f"At {_label(run, _telling(run))}. {_finding(overlap(run, _telling(run)))}",
)
