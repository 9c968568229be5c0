"""Lesson 6: how to choose θ, and what too loose looks like."""

from __future__ import annotations

from typing import Any

import streamlit as st

from mars_viz.analysis.alignment import common_prefix
from mars_viz.analysis.map_grid import along_dial
from mars_viz.analysis.steps import Steps
from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.demo.tasks import final_answer
from mars_viz.dialmap import DialMap, Segment
from mars_viz.figures.lesson_dial import accuracy_curve
from mars_viz.measurements import Graded, recorded_grades
from mars_viz.prompts import recognised
from mars_viz.rules.mars import Mars
from mars_viz.run import Run
from mars_viz.ui import theme
from mars_viz.ui.jobs.exercises import PER_TASK, grade
from mars_viz.ui.lessons import thumbs
from mars_viz.ui.lessons.asking import asked
from mars_viz.ui.lessons.base import Lesson, Room
from mars_viz.ui.lessons.drawing import draw
from mars_viz.ui.lessons.lesson_desk import write_address


def lacks(run: Run) -> str:
    """A map with more than one text is needed."""
    made = run.dial_map
    if made is None:
        return (
            "This run carries no dial map, so what other settings would have written is not known. Choose another run."
        )
    if len(made.segments_for(_gamma(made, run))) < 2:
        return "Every setting of the dial writes the same text here: there is nothing to choose. Choose another run."
    return ""


def lacks_an_answer(run: Run) -> str:
    """Better still is an exercise that some settings get wrong."""
    right = None if run.dial_map is None else _right(run, run.dial_map)
    return "" if right is not None and (right.values == 0).any() and (right.values == 1).any() else "no wrong answer"


def show(room: Room) -> None:
    """The dial to move, what it buys, and what it writes."""
    run, made = room.run, room.run.dial_map
    assert made is not None and made.rule.dial is not None  # `lacks` saw to it
    dial, view = made.rule.dial, room.desk.view
    exercise, strict = recognised(run.prompt), made.segment(_strict(made), _gamma(made, run))
    answer = exercise.answer if exercise else None
    figure = {
        "symbol": dial.symbol,
        "strictTau": strict.tau if strict.complete else None,
        "graded": answer is not None,
        "prompt": run.prompt,
        "segments": [written(run, each, strict, answer) for each in made.segments_for(_gamma(made, run))],
    }
    label = f"{dial.name.capitalize()} {dial.symbol}; {dial.strict:g} is strict"
    own = _inside(made, dial.checked(run.settings.dial))
    knob = Knob("dial", label, own, made.span.low, made.span.high, dial.step, digits=3, exact=True)
    asked = {} if view.dial is None else {"dial": _inside(made, view.dial)}
    key = f"lesson-choosing-{room.run_id}"
    at = lesson_figure(
        Kind.CHOOSING, (knob,), figure, asked, key=key, label="What every setting of the dial writes", large=room.large
    )["dial"]
    if at != _standing(room, made):
        room.desk.change(dial=at, frame=None)
    write_address(room.session, room.desk)


def accuracy(room: Room) -> None:
    """What the dial costs in right answers: as it comes with the product, or found out on request."""
    made = room.run.dial_map
    assert made is not None and made.rule.dial is not None
    if made.rule.name != Mars.name:  # another rule's verdicts at the same θ are others
        theme.small(f"Exercises are graded with {Mars.title} alone, which says nothing of {made.rule.title}.")
        return
    place = st.container()
    words = f"Grade {3 * PER_TASK} exercises here"
    here = asked(room, "graded", words, "The built-in pair works through exercises that it never saw …", grade)
    graded, at = here if isinstance(here, Graded) else recorded_grades(), _standing(room, made)
    if graded is not None and graded.right.low <= at <= graded.right.high:
        figure = accuracy_curve(graded.right, graded.exercises, made.rule.dial.symbol, at, room.theme)
        with place:
            draw(room, figure, "theta-accuracy")
            theme.small(f"The built-in pair with {Mars.title}, greedy, on exercises that it never saw.")


def _standing(room: Room, made: DialMap) -> float:
    """Where the dial stands, inside the map."""
    dial, own = made.rule.dial, room.desk.view.dial
    assert dial is not None
    return _inside(made, dial.checked(room.run.settings.dial if own is None else own))


def _inside(made: DialMap, value: float) -> float:
    return min(max(value, made.span.low), made.span.high)


def written(run: Run, segment: Segment, strict: Segment, answer: str | None) -> dict[str, Any]:
    """A segment's text, parted where it leaves the strict one, and whether its answer is right; `right` is None where
    that is not known. A strict text that was cut short is left only by a text that differs before the cut."""
    tokens = segment.token_ids
    same = common_prefix(tokens, strict.token_ids)
    unknown = not strict.complete and same == len(strict.token_ids)
    right = None if answer is None or not segment.complete else final_answer(run.decode(tokens)) == answer
    verdict = "" if right is None else " The answer is right." if right else f" The answer is wrong. Right: {answer}"
    parts = f"It leaves the strict text at token {same + 1}, marked."
    if unknown:
        same, parts = len(tokens), "The strict text was cut short."
    elif tokens == strict.token_ids:
        parts = "It is the strict text."
    return {
        "low": segment.low,
        "high": segment.high,
        "tau": segment.tau if segment.complete else None,
        "rounds": len(segment.rounds),
        "right": right,
        "same": run.decode(tokens[:same]),
        "other": run.decode(tokens[same:]),
        "words": f"{parts}{verdict}" if segment.complete else "The map was cut short here.",
    }


def _right(run: Run, made: DialMap) -> Steps | None:
    """1 where the text's answer is right, along the dial; None for a prompt that is no built-in exercise."""
    exercise = recognised(run.prompt)
    if exercise is None:
        return None
    segments = made.segments_for(_gamma(made, run))
    return along_dial(segments, lambda segment: final_answer(run.decode(segment.token_ids)) == exercise.answer)


def _gamma(made: DialMap, run: Run) -> int:
    return run.settings.gamma if run.settings.gamma in made.span.gammas else max(made.span.gammas)


def _thumbnail(run: Run) -> str:
    assert run.dial_map is not None  # `lacks` saw to it
    return thumbs.tau_and_damage(run, _gamma(run.dial_map, run))


def _strict(made: DialMap) -> float:
    """The strictest value of the map."""
    return made.span.high if made.rule.strict_is_high else made.span.low


LESSON = Lesson(
    name="Choosing θ",
    title="How to choose θ",
    point="Looser is mostly faster, and somewhere wrong. Find the loosest that your graded task does not notice.",
    text=(
        "The run carries a map of every text that θ can make of its prompt (**exact**). Move θ and read: the marked "
        "part is what strict verification would not have written.",
        "Neither speed nor the share of kept drafts tells of damage, and one prompt proves little. Grade a task: "
        "prompts like your own, all of them answered at every θ.",
    ),
    question="In 60 graded exercises θ = 0.9 does no harm. Is it safe?",
    answer=(
        "Not proven. Where none of 60 went wrong, the share that does may still be 6 % (95 % interval): one in "
        "seventeen. And it was measured on *these* exercises: the sample “An answer that θ = 0.9 gets wrong” is "
        "another of their kind. Grade more prompts, of your own kind, and compare with strict on the same ones "
        "(`mars-viz sweep`)."
    ),
    lacks=lacks,
    show=show,
    thumbnail=_thumbnail,
    beside=accuracy,
    prefers=lacks_an_answer,
)
