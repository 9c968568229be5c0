"""Lesson 6: how to choose θ, and the effects of a loose θ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mars_viz.components.lesson import Kind, Knob
from mars_viz.demo.tasks import FREE_WORDING, final_answer
from mars_viz.exploration import DialMap, Segment
from mars_viz.figures import Theme
from mars_viz.figures.engines import accuracy_curve
from mars_viz.prompts import recognised
from mars_viz.records import first_difference
from mars_viz.rules.mars import Mars
from mars_viz.run import Run
from mars_viz.samples import recorded_grades
from mars_viz.ui.jobs.tasks import PER_TASK, grade
from mars_viz.ui.lessons import base
from mars_viz.ui.lessons.base import Lesson, LessonAside, LessonPicture, texts


def picture(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    """Return the figure with every text of the map."""
    dial_map = run.dial_map
    assert dial_map is not None and dial_map.rule.dial is not None  # required by the lesson
    dial = dial_map.rule.dial
    strict_end = dial_map.span.high if dial_map.rule.strict_is_high else dial_map.span.low
    exercise, strict = recognised(run.prompt), dial_map.segment(strict_end, base.mapped_gamma(run))
    answer = exercise.answer if exercise else None
    figure = {
        "symbol": dial.symbol,
        "strictTau": strict.tau if strict.complete else None,
        "graded": answer is not None,
        "prompt": run.prompt,
        "segments": [written(run, each, strict, answer) for each in base.mapped_texts(run)],
    }
    label = f"{dial.name.capitalize()} {dial.symbol}; {dial.strict:g} is strict"
    initial = _inside(dial_map, dial.checked(run.settings.dial))
    knob = Knob("dial", label, initial, dial_map.span.low, dial_map.span.high, dial.step, digits=3, exact=True)
    return LessonPicture(Kind.CHOOSING, (knob,), figure, "What every setting of the dial writes")


def _accuracy(
    run: Run, colours: Theme, dial: float | None = None, measured: Any = None, models: str = base.BUILT_IN_PAIR
) -> LessonAside | str | None:
    dial_map, graded = run.dial_map, measured or recorded_grades()
    assert dial_map is not None and dial_map.rule.dial is not None  # required by the lesson
    at = _inside(dial_map, dial_map.rule.dial.checked(run.settings.dial if dial is None else dial))
    if dial_map.rule.name != Mars.name:
        return f"Exercises are graded with {Mars.title} alone."
    if graded is None or not graded.right.low <= at <= graded.right.high:
        return None
    figure = accuracy_curve(graded.right, graded.exercises, dial_map.rule.dial.symbol, at, colours)
    return LessonAside(figure, f"{models}, {Mars.title}, greedy, on held-out exercises in free wording.")


def _inside(dial_map: DialMap, value: float) -> float:
    return min(max(value, dial_map.span.low), dial_map.span.high)


def written(run: Run, segment: Segment, strict: Segment, answer: str | None) -> dict[str, Any]:
    """Return the data of a segment: its text, cut at the first difference from the strict text, and in `right` whether
    its answer is correct, or None if unknown. If the strict text was cut short, a text without an earlier difference
    counts as unknown."""
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


LESSON = Lesson(
    **texts("theta"),
    needs=(base.THETA_DIAL, base.TEXTS),
    picture=picture,
    aside=_accuracy,
    measured=(f"Grade {len(FREE_WORDING) * PER_TASK} exercises here", "Decoding held-out exercises …", grade),
)
