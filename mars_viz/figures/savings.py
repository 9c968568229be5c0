"""How much drafted work relaxing has spared along the text, against the rule's strict end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.positions import Course, Courses, Positions
from mars_viz.figures.style import Theme, blank, say_empty, whole_ticks
from mars_viz.figures.words import counted, number, setting
from mars_viz.records import Outcome

MOST_POINTS = 2_000
"""Beyond as many rounds only every so manieth is drawn, and the last."""

ROOM = 0.12
"""Of the axis's length, above the highest point and below the lowest one if that is below 0."""


@dataclass(frozen=True, slots=True)
class _StepLine:
    """What is drawn: a step function from (0, 0) on."""

    x: np.ndarray
    """int64 [N]; ascending."""
    total: np.ndarray
    """int64 [N]; tokens spared so far."""
    shape: str
    """Plotly's: where the step stands between two points."""
    across: str
    """What x counts."""
    up: str
    """What the total counts."""


def savings(positions: Positions, theme: Theme) -> go.Figure:
    """Running sum of (rolled back at the strict end - rolled back at the dial).

    Where strict's own text is known each side is counted along its own tokens, and exact where the dial's is known too.
    Elsewhere both sides are judged on the same recorded prefixes, so this says what relaxing spared inside the blocks,
    not what a strict text would have taken.
    """
    line = _by_round(positions) if positions.courses is None else _by_token(positions.courses, positions.basis)
    figure = blank(_title(positions, line.total), theme, line.across, line.up)
    if not positions.rounds:
        return say_empty(figure, "No round to show yet.", theme)
    count = len(line.x)
    drawn = np.unique([*range(0, count, max(1, -(-count // MOST_POINTS))), count - 1])
    x, y = np.append(0, line.x[drawn]), np.append(0, line.total[drawn])
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"shape": line.shape, "color": theme.relaxed, "width": 2},
        fill="tozeroy",
        hovertemplate=f"after {line.across} %{{x}}: %{{y}} spared<extra></extra>",
        name="spared",
    )
    figure.add_annotation(
        x=x[-1],
        y=y[-1],
        text=number(int(y[-1])),
        showarrow=False,
        xanchor="right",
        yanchor="top" if y[-1] < 0 else "bottom",
        font={"color": theme.relaxed, "size": 13},
    )
    low, high = float(y.min()), float(y.max())
    room = ROOM * max(high - low, 5)  # for the number, on its side of the line
    figure.update_yaxes(range=[low - room if low else 0, high + room if high or not low else 0])
    whole_ticks(figure, float(np.abs(y).max()))
    return figure


def _by_round(positions: Positions) -> _StepLine:
    now, strict = (
        positions.per_round(is_one(Outcome.REJECTED) | is_one(Outcome.DISCARDED))
        for is_one in (positions.are, positions.strictly)
    )
    rounds = np.arange(1, positions.rounds + 1)
    return _StepLine(rounds, np.cumsum(strict - now), "vh", "round", "tokens spared (block-local)")


def _by_token(courses: Courses, basis: Basis) -> _StepLine:
    """Both texts side by side, token by token; the shorter one loses nothing more once it has ended. `basis`: ours'."""
    places = np.union1d(courses.ours.written, courses.strict.written)

    def lost(course: Course) -> np.ndarray:
        rounds = np.searchsorted(course.written, places, side="right")  # finished by then
        return np.concatenate([[0], course.rolled_back])[rounds]

    return _StepLine(places, lost(courses.strict) - lost(courses.ours), "hv", "token", f"tokens spared ({basis.value})")


def _title(positions: Positions, total: np.ndarray) -> str:
    dial = positions.rule.dial
    if not positions.rounds:
        return "No round yet"
    if dial is None or positions.dial is None:
        return f"{positions.rule.title} has no dial: nothing is relaxed, nothing spared"
    at, spared = setting(dial.symbol, positions.dial), int(total[-1])
    if spared == 0:
        return f"At {at} no drafted token is spared against strict"
    if positions.courses is not None:
        return f"At {at} {_beside_own(spared, positions.courses)}"
    if spared < 0:
        return f"At {at} the rule rolls back {counted(-spared, 'drafted token')} that strict would keep"
    return f"At {at} relaxing spares {counted(spared, 'drafted token')} that strict rolls back"


def _beside_own(spared: int, courses: Courses) -> str:
    """What was spared against strict's own text, and how long that is where it is of another length."""
    ours, theirs = (int(course.written[-1]) for course in (courses.ours, courses.strict))
    drafts = f"{number(abs(spared))} {'more' if spared < 0 else 'fewer'} draft{'' if abs(spared) == 1 else 's'}"
    lengths = "" if ours == theirs else f", in {counted(ours, 'token')}, not {number(theirs)}"
    return f"{drafts} rolled back than by strict{lengths}"
