"""Lesson 3: why rejection sampling is lossless."""

from __future__ import annotations

from html import unescape

import streamlit as st

from mars_viz.analysis.overlap import OTHERS, Place, lacks, overlap, places
from mars_viz.components.lesson import Kind, Knob
from mars_viz.figures.token_words import token_label
from mars_viz.figures.words import number
from mars_viz.ui.lessons import classroom, thumbs
from mars_viz.ui.lessons.base import Lesson, Room
from mars_viz.ui.lessons.drawing import forget
from mars_viz.ui.lessons.moving import moving

DRAWS = tuple(10 ** (step // 3) * (1, 2, 5)[step % 3] for step in range(3, 16))  # 10, 20, 50, … 100 000
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
    figure = {
        "p": laws.p.tolist(),
        "q": laws.q.tolist(),
        "shared": laws.shared.tolist(),
        "residual": laws.residual.tolist(),
        "names": [_name(room, token) for token in laws.tokens],
    }
    knob = Knob("draws", "Trials", 1000, stops=DRAWS, help="How often a token is drafted and judged")
    moving(room, Kind.LOSSLESS, (knob,), figure, "Two laws, and trials of rejection sampling on them")
    apart = 1 - laws.acceptance
    classroom.finding(
        f"A draft is kept with chance {number(laws.acceptance)}, the grey area. The two coloured areas are equally "
        f"large, {number(apart)} each: what is rejected makes room for exactly what is missing."
    )


def _name(room: Room, token: int) -> str:
    return "rest" if token == OTHERS else unescape(token_label(room.run.pieces[token].text, 10))


def _label(room: Room, place: Place) -> str:
    token = int(room.run.rounds[place.round].speculation.tokens[place.node])
    return f"round {place.round + 1}, draft {place.node + 1}: “{unescape(token_label(room.run.pieces[token].text))}”"


LESSON = Lesson(
    name="Lossless",
    title="Why rejection sampling loses nothing",
    point="What the drafter overdoes is rejected just often enough: the text follows the target's law exactly.",
    text=(
        "At one place of a text the drafter gives every token x a probability q(x), the target p(x). The drafter draws "
        "x from q, and x is kept with chance min(1, p(x)/q(x)). So x is **drafted and kept** with chance min(p, q): "
        "the grey area.",
        "What the drafter favours too much (orange) is rejected. As often, the target writes from what q gives too "
        "little: (p − q)₊, the blue area, scaled up to 1. **Grey plus blue is p**: nothing of the target's law is "
        "lost, whatever the drafter proposes.",
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
