"""Lesson 2: strict verification, and the cost of a rollback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mars_viz.analysis.lesson_sums import gain, strict_runs
from mars_viz.analysis.metrics import Summary, summary
from mars_viz.components.lesson import Kind, Knob
from mars_viz.run import Run
from mars_viz.ui.lessons import base
from mars_viz.ui.lessons.base import Lesson, LessonPicture, texts
from mars_viz.words import counted, number


def picture(run: Run, other_runs: Iterable[Run]) -> LessonPicture | None:
    """Return the figure with the cost of every mapped block length; None if the strict text is unknown."""
    summaries = {gamma: summary(strict) for gamma, strict in strict_runs(run).items()}
    if (chosen := strict_text(run, {})) is None:
        return None
    prices = [
        {"gamma": gamma, "kept": strict.kept, "lost": strict.rolled_back, "passes": strict.rounds}
        | {"title": heading(gamma, strict), "words": _words(gamma, strict, run)}
        for gamma, strict in summaries.items()
    ]
    knob = Knob("drafted", "γ, draft length", chosen.settings.gamma, stops=tuple(summaries))
    return LessonPicture(Kind.ROLLBACK, (knob,), {"prices": prices}, "What strict verification keeps and rolls back")


def heading(gamma: int, strict: Summary) -> str:
    """Return the result at one block length."""
    # nine decimals, so that 7 % is not written 7.00 %
    share = number(round(100 * strict.rolled_back / strict.drafted, 9)) if strict.drafted else "0"
    return (
        f"γ = {gamma}: {number(strict.rounds)} target {'pass' if strict.rounds == 1 else 'passes'} for "
        f"{counted(strict.tokens, 'token')}, {share} % of drafted tokens rolled back (exact)"
    )


def _words(gamma: int, strict: Summary, run: Run) -> str:
    gains, time = gain(run), ""
    if gains.timed:
        spent = number(1000 * strict.rolled_back * gains.draft_step)
        time = f": {spent} ms of drafting (modelled: measured step × count)"
    return (
        f"{counted(strict.rolled_back, 'drafted token')} rolled back{time}. A target pass yields "
        f"{number(strict.tau)} tokens on average, of {number(gamma + 1)} at most."
    )


def strict_text(run: Run, knobs: Mapping[str, float]) -> Run | None:
    """Return the strict run at the knob's block length, otherwise at the run's own, otherwise at the longest one; None
    if no strict text is known."""
    runs = strict_runs(run)
    longest = next(reversed(runs.values()), None)
    return runs.get(int(knobs.get("drafted", 0)), runs.get(run.settings.gamma, longest))


LESSON = Lesson(
    **texts("rollback"),
    needs=(base.CHAINS, base.GREEDY, base.ROUNDS, base.STRICT_KNOWN),
    picture=picture,
    played=strict_text,
)
