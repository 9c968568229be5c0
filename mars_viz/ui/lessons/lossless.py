"""Lesson 3: why rejection sampling is lossless."""

from __future__ import annotations

import time
from html import unescape

import streamlit as st

from mars_viz.analysis.overlap import Overlap, Place, lacks, overlap, places, simulate
from mars_viz.figures.lesson_laws import law_areas, simulated
from mars_viz.figures.token_words import token_label
from mars_viz.figures.words import number
from mars_viz.ui.lessons import classroom, thumbs
from mars_viz.ui.lessons.base import Lesson, Room
from mars_viz.ui.lessons.drawing import draw, forget

DRAWS = tuple(10 ** (step // 3) * (1, 2, 5)[step % 3] for step in range(3, 16))  # 10, 20, 50, … 100 000
FAST = 0.6
"""Seconds between two steps of the running simulation."""
MOST = 40
"""Positions to choose from."""


def show(room: Room) -> None:
    """The position to move, both laws there, and the simulation."""
    found = places(room.run)[:MOST]
    best = max(range(len(found)), key=lambda i: overlap(room.run, found[i]).telling)
    labels = [_label(room, place) for place in found]
    forget("place", labels)
    chosen = st.selectbox("Drafted token", labels, best, key="place", bind="query-params")
    place = found[labels.index(chosen)]
    laws = overlap(room.run, place)
    simulation(room, laws)
    apart = 1 - laws.acceptance
    classroom.finding(
        f"A draft is kept with chance {number(laws.acceptance)}, the grey area. The two coloured areas are equally "
        f"large, {number(apart)} each: what is rejected makes room for exactly what is missing."
    )


@st.fragment
def simulation(room: Room, laws: Overlap) -> None:
    """The laws, and trials of rejection sampling on them: more and more while it runs."""
    st.session_state.setdefault("learn-running", False)
    slider, button = st.columns([3, 1.4], vertical_alignment="bottom")
    draws = int(slider.select_slider("Trials", DRAWS, 1000, key="draws", bind="query-params"))
    start = {"learn-running": True}
    button.button("Run from 10 on", on_click=lambda: st.session_state.update(start), key="simulate", width="stretch")
    left, right = st.columns(2)
    with left:
        draw(room, law_areas(laws, room.run.pieces, room.theme), "laws")
    picture = right.empty()
    steps = [step for step in DRAWS if step < draws] if st.session_state.pop("learn-running") else []
    for step in [*steps, draws]:
        with picture.container():
            draw(room, simulated(laws, simulate(laws, step), room.run.pieces, room.theme), f"simulated-{step}")
        if step != draws:
            time.sleep(FAST)


def _label(room: Room, place: Place) -> str:
    token = int(room.run.rounds[place.round].speculation.tokens[place.node])
    return f"round {place.round + 1}, draft {place.node + 1}: {unescape(token_label(room.run.pieces[token].text))}"


LESSON = Lesson(
    name="Lossless",
    title="Why rejection sampling loses nothing",
    point="Keep a draft with chance min(1, p/q), else write from what p has and q lacks: the text follows p exactly.",
    text=(
        "The drafter draws a token x from its law q. It is kept with chance min(1, p(x)/q(x)), so a token is "
        "**drafted and kept** with chance min(p, q): the grey area.",
        "After a rejection the target writes from (p − q)₊, the blue area, scaled up to 1. A rejection happens with "
        "the chance of the orange area, which is as large as the blue one. Grey plus blue is p: whatever the drafter "
        "proposes, nothing of the target's law is lost.",
    ),
    question="A drafter that is always wrong: does it change the text?",
    answer=(
        "No, only the speed. If q and p share nothing, the grey area is empty, every draft is rejected, and every "
        "token is written from (p − q)₊ = p. The drafter decides how *often* drafts are kept: the shared area, "
        "1 − TV(p, q)."
    ),
    lacks=lacks,
    show=show,
    thumbnail=thumbs.two_laws,
)
