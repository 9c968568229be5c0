"""Lesson 6: how to choose θ, and what too loose looks like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.demo.tasks import FREE_WORDING, final_answer
from mars_viz.dialmap import DialMap, Segment
from mars_viz.figures import Theme
from mars_viz.figures.lessons import accuracy_curve
from mars_viz.prompts import recognised
from mars_viz.records import first_difference
from mars_viz.rules.mars import Mars
from mars_viz.run import Run
from mars_viz.samples import GradedExercises, recorded_grades
from mars_viz.ui import theme
from mars_viz.ui.jobs.tasks import PER_TASK, grade
from mars_viz.ui.lessons import thumbs
from mars_viz.ui.lessons.base import Lesson, LessonContext, asked, draw, whose
from mars_viz.ui.lessons.needs import TEXTS, THETA_DIAL, mapped_gamma
from mars_viz.ui.lessons.page_state import write_address
from mars_viz.ui.lessons.pictures import BUILT_IN_PAIR, LessonAside, LessonPicture


def show(room: LessonContext) -> None:
    """The dial to move, what it buys, and what it writes."""
    made, view, shown = room.run.dial_map, room.desk.view, picture(room.run, ())
    assert made is not None  # the lesson needs it
    asked = {} if view.dial is None else {"dial": _inside(made, view.dial)}
    key = f"lesson-choosing-{room.run_id}"
    at = lesson_figure(shown.kind, shown.knobs, shown.figure, asked, key=key, label=shown.label, large=room.large)[
        "dial"
    ]
    if at != _standing(room, made):
        room.desk.change(dial=at, frame=None)
    write_address(room.desk)


def picture(run: Run, beside: Iterable[Run]) -> LessonPicture:
    """Every text of the map, and what it yields."""
    made = run.dial_map
    assert made is not None and made.rule.dial is not None  # the lesson needs it
    dial = made.rule.dial
    exercise, strict = recognised(run.prompt), made.segment(_strict(made), mapped_gamma(run))
    answer = exercise.answer if exercise else None
    figure = {
        "symbol": dial.symbol,
        "strictTau": strict.tau if strict.complete else None,
        "graded": answer is not None,
        "prompt": run.prompt,
        "segments": [written(run, each, strict, answer) for each in made.segments_for(mapped_gamma(run))],
    }
    label = f"{dial.name.capitalize()} {dial.symbol}; {dial.strict:g} is strict"
    own = _inside(made, dial.checked(run.settings.dial))
    knob = Knob("dial", label, own, made.span.low, made.span.high, dial.step, digits=3, exact=True)
    return LessonPicture(Kind.CHOOSING, (knob,), figure, "What every setting of the dial writes")


def accuracy(room: LessonContext) -> None:
    """What the dial costs in right answers: as it comes with the product, or found out on request."""
    made = room.run.dial_map
    assert made is not None and made.rule.dial is not None
    if made.rule.name != Mars.name:  # another rule's verdicts at the same θ are others
        theme.small(f"The exercises are graded with {Mars.title} only, which says nothing of {made.rule.title}.")
        return
    place = st.container()
    words = f"Grade {len(FREE_WORDING) * PER_TASK} exercises here"
    here = asked(room, "graded", words, "Decoding held-out exercises …", grade)
    graded, at = here if isinstance(here, GradedExercises) else recorded_grades(), _standing(room, made)
    if graded is not None and graded.right.low <= at <= graded.right.high:
        figure = accuracy_curve(graded.right, graded.exercises, made.rule.dial.symbol, at, room.theme)
        with place:
            draw(room, figure, "theta-accuracy")
            theme.small(_stands_on(whose(room, "graded")))


def _stands_on(graded: str) -> str:
    return f"{graded}, {Mars.title}, greedy, on held-out exercises in free wording."


def recorded_accuracy(run: Run, colours: Theme) -> LessonAside | None:
    """What the run's own setting costs in right answers, as it comes with the product."""
    made, graded = run.dial_map, recorded_grades()
    assert made is not None and made.rule.dial is not None  # the lesson needs it
    at = _inside(made, made.rule.dial.checked(run.settings.dial))
    if graded is None or made.rule.name != Mars.name or not graded.right.low <= at <= graded.right.high:
        return None
    figure = accuracy_curve(graded.right, graded.exercises, made.rule.dial.symbol, at, colours)
    return LessonAside(figure, _stands_on(BUILT_IN_PAIR))


def _standing(room: LessonContext, made: DialMap) -> float:
    """Where the dial stands, inside the map."""
    dial, own = made.rule.dial, room.desk.view.dial
    assert dial is not None
    return _inside(made, dial.checked(room.run.settings.dial if own is None else own))


def _inside(made: DialMap, value: float) -> float:
    return min(max(value, made.span.low), made.span.high)


def written(run: Run, segment: Segment, strict: Segment, answer: str | None) -> dict[str, Any]:
    """A segment's text, cut where it first differs from the strict one, and whether its answer is right; `right` is
    None where that is not known. From a strict text that was cut short only a text that differs before the cut
    is known to differ."""
    tokens = segment.token_ids
    first = first_difference(tokens, strict.token_ids)
    same = len(tokens) if first is None else first
    unknown = not strict.complete and same == len(strict.token_ids)
    right = None if answer is None or not segment.complete else final_answer(run.decode(tokens)) == answer
    verdict = "" if right is None else " The answer is right." if right else f" The answer is wrong; right: {answer}"
    parts = f"Differs from the strict text from token {same + 1} on (marked)."
    if unknown:
        same, parts = len(tokens), "The strict text was cut short."
    elif tokens == strict.token_ids:
        parts = "Identical to the strict text."
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


def _thumbnail(run: Run) -> str:
    assert run.dial_map is not None  # the lesson needs it
    return thumbs.tau_and_damage(run, mapped_gamma(run))


def _strict(made: DialMap) -> float:
    """The strictest value of the map."""
    return made.span.high if made.rule.strict_is_high else made.span.low


LESSON = Lesson(
    name="Choosing θ",
    title="How to choose θ",
    point="A lower θ mostly yields more tokens per pass, and at some point wrong answers. Grade a task to see where.",
    text=(
        "The run has a dial map: every text that θ can make of its prompt (**exact**). Move θ; the marked part differs "
        "from strict verification's text.",
        "Neither the speed-up nor the share of kept drafts shows damage, and one prompt proves little. Grade a task: "
        "prompts like your own, each answered at every θ.",
    ),
    question="No error in 60 exercises at θ = 0.9: is it safe?",
    answer=(
        "Not proven. Where none of 60 went wrong, the share that does may still be 6 % (95 % interval): one in "
        "seventeen. And it was measured on *these* exercises: the sample “A word problem that θ = 0.9 gets wrong and "
        "strict gets right” is another of their kind. Grade more prompts, of your own kind, and compare with strict on "
        "the same ones (Tune, or `mars-viz sweep`)."
    ),
    sample="6-counting-damaged",
    needs=(THETA_DIAL, TEXTS),
    show=show,
    thumbnail=_thumbnail,
    beside=accuracy,
    picture=picture,
    aside=recorded_accuracy,
)
