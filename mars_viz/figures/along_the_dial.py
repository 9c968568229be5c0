"""Figures of Explore that follow its dial: histogram of ratios, bars per round, and savings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.positions import Course, Courses, Positions
from mars_viz.figures.style import Entry, Theme, add_dial_line, blank, say_empty, whole_ticks
from mars_viz.records import Outcome
from mars_viz.rules import Scale
from mars_viz.words import counted, number, setting

BINS = 40


def ratio_histogram(positions: Positions, theme: Theme) -> go.Figure:
    """Return positions that the strict end judges, by z2/z1: accepted, rejected runner-ups, other rejected.

    A dial can save only runner-ups. Positions that strict discards without a verdict are excluded. Bins are computed
    here, so that figure size does not grow with the run.
    """
    runner_up, rejected = positions.runner_up, positions.strictly(Outcome.REJECTED)
    kept = positions.strictly(Outcome.MATCHED) | positions.strictly(Outcome.RELAXED)
    stacks = (
        (Entry("■", theme.quiet, "strict keeps"), kept),
        (Entry("■", theme.relaxed, "rejects: runner-up"), rejected & runner_up),
        (Entry("■", theme.rejected, "other"), rejected & ~runner_up),
    )
    shown = np.isfinite(positions.ratio) & (positions.ratio >= 0) & (positions.ratio <= 1)
    hidden = int(np.count_nonzero((kept | rejected) & ~shown))
    name = "z2/z1, 1 is a tie" + (f" ({number(hidden)} outside 0 to 1)" if hidden else "")
    figure = blank(_title(positions, rejected), theme, name, "drafted tokens", key=[entry for entry, _ in stacks])
    if not np.any((kept | rejected) & shown):
        return say_empty(figure, "No drafted token to show yet.", theme)
    dial = _ratio_at(positions)
    edges = _edges(positions.ratio[(kept | rejected) & shown], dial)
    for entry, chosen in stacks:
        counts, _ = np.histogram(positions.ratio[chosen & shown], edges)
        figure.add_bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=counts,
            width=np.diff(edges),
            marker_color=entry.colour,
            marker_line_width=0,
            name=entry.words,
            hovertemplate="z2/z1 near %{x:.3f}: %{y} tokens<extra>" + entry.words + "</extra>",
        )
    figure.update_layout(barmode="stack")
    tallest = float(np.sum([bar.y for bar in figure.data], axis=0).max())
    figure.update_yaxes(range=[0, 1.18 * tallest])  # space for the dial's label
    whole_ticks(figure, tallest)
    figure.update_xaxes(range=[edges[0], edges[-1]])
    if positions.rule.dial is not None and dial is not None:
        add_dial_line(figure, positions.rule.dial.symbol, dial, theme)
    return figure


def _ratio_at(positions: Positions) -> float | None:
    """Return the dial's value if it is on the scale of z2/z1."""
    return positions.dial if positions.scale is Scale.RATIO else None


def _edges(ratios: np.ndarray, dial: float | None) -> np.ndarray:
    low = min(float(np.quantile(ratios, 0.005)), 0.95, 1.0 if dial is None else dial - 0.02)
    return np.linspace(max(0.0, np.floor(low * 20) / 20), 1.0, BINS + 1)


def _title(positions: Positions, rejected: np.ndarray) -> str:
    count = int(np.count_nonzero(rejected))
    dial, at = positions.rule.dial, _ratio_at(positions)
    if not len(positions):
        return "No drafted token yet"
    if not count:
        return "Strict rejects no draft here: there is nothing to relax"
    if dial is not None and at is not None:
        close = rejected & (positions.ratio > at)
        among, runners = int(np.count_nonzero(close)), int(np.count_nonzero(close & positions.runner_up))
        return (
            f"{number(among)} of {counted(count, 'strict rejection')} {'lies' if among == 1 else 'lie'} above"
            f" {setting(dial.symbol, at)}; in {number(runners)} the draft is the runner-up"
        )
    among = int(np.count_nonzero(rejected & (positions.ratio > 0.9)))
    where = "sits" if among == 1 else "sit"
    return f"{number(among)} of {counted(count, 'rejection')} {where} where z2/z1 is above 0.90"


MOST_BARS = 120  # rounds beyond which a bar is the mean of several


def round_bars(positions: Positions, theme: Theme) -> go.Figure:
    """Return stacked bars per round, or per mean of consecutive rounds if there are many."""
    matched, relaxed = (positions.per_round(positions.are(o)) for o in (Outcome.MATCHED, Outcome.RELAXED))
    drafted = positions.per_round(np.ones(len(positions), np.bool_))
    stacks = (
        (Entry("■", theme.quiet, "matched"), matched),
        (Entry("■", theme.relaxed, "relaxed"), relaxed),
        (Entry("■", theme.discarded, "rolled back"), drafted - matched - relaxed),
    )
    gathered = max(1, -(-positions.rounds // MOST_BARS))
    name = "round" if gathered == 1 else f"round, {number(gathered)} to a bar"
    title = _rounds_title(positions, drafted, matched + relaxed)
    figure = blank(title, theme, name, "drafted tokens", key=[entry for entry, _ in stacks])
    if not positions.rounds:
        return say_empty(figure, "No round to show yet.", theme)
    for entry, counts in stacks:
        bars = _means(counts, gathered)
        figure.add_bar(
            x=1 + gathered * np.arange(len(bars)) + (gathered - 1) / 2,
            y=bars,
            width=0.85 * gathered,
            marker_color=entry.colour,
            marker_line_width=0,
            name=entry.words,
            hovertemplate="round %{x}: %{y:.3~g}<extra>" + entry.words + "</extra>",
        )
    figure.update_layout(barmode="stack")
    if positions.rounds <= 10:
        figure.update_xaxes(dtick=1)
    return figure


def _means(counts: np.ndarray, gathered: int) -> np.ndarray:
    """float64; the mean of every `gathered` consecutive values; the last group may be smaller."""
    starts = np.arange(0, len(counts), gathered)
    return np.add.reduceat(counts, starts) / np.diff([*starts, len(counts)])


def _rounds_title(positions: Positions, drafted: np.ndarray, kept: np.ndarray) -> str:
    if not positions.rounds:
        return "No round yet"
    ours = f"A round keeps {number(float(kept.mean()))} of {number(float(drafted.mean()))} drafted tokens on average"
    if positions.trees:
        return f"{ours}, along one path of its tree"
    full = int(np.count_nonzero(kept == drafted))
    return f"{ours}; {number(full)} of {counted(positions.rounds, 'round')} kept all"


MOST_POINTS = 2_000  # rounds beyond which a line is subsampled; the last point is always drawn

ROOM = 0.12  # margin above the highest and below the lowest negative point, as a share of the axis


@dataclass(frozen=True, slots=True)
class _StepLine:
    """A step function that starts at (0, 0)."""

    x: np.ndarray  # int64 [N]; ascending
    total: np.ndarray  # int64 [N]; tokens spared so far
    shape: str  # Plotly's line shape: position of the step between two points
    across: str
    up: str


def savings(positions: Positions, theme: Theme) -> go.Figure:
    """Return the running sum of (rolled back at the strict end - rolled back at the dial).

    If strict's own text is known, each side is counted along its own tokens, and is exact if the dial's text is known
    too. Otherwise both sides are judged on the same recorded prefixes: the figure then shows the tokens spared inside
    the blocks, not the cost of a strict text.
    """
    line = _by_round(positions) if positions.courses is None else _by_token(positions.courses, positions.basis)
    figure = blank(_savings_title(positions, line.total), theme, line.across, line.up)
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
    margin = ROOM * max(high - low, 5)  # for the number
    figure.update_yaxes(range=[low - margin if low else 0, high + margin if high or not low else 0])
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
    """Compare both texts token by token; the shorter one adds no losses after its end. `basis` is that of our text."""
    places = np.union1d(courses.ours.written, courses.strict.written)

    def lost(course: Course) -> np.ndarray:
        rounds = np.searchsorted(course.written, places, side="right")  # rounds that ended by each position
        return np.concatenate([[0], course.rolled_back])[rounds]

    return _StepLine(places, lost(courses.strict) - lost(courses.ours), "hv", "token", f"tokens spared ({basis.value})")


def _savings_title(positions: Positions, total: np.ndarray) -> str:
    dial = positions.rule.dial
    if not positions.rounds:
        return "No round yet"
    if dial is None or positions.dial is None:
        return f"{positions.rule.title} has no dial: nothing is relaxed, nothing spared"
    at, spared = setting(dial.symbol, positions.dial), int(total[-1])
    if spared == 0:
        return f"At {at} no drafted token is spared against strict"
    if positions.courses is not None:
        return f"At {at} {_vs_own_text(spared, positions.courses)}"
    if spared < 0:
        return f"At {at} the rule rolls back {counted(-spared, 'drafted token')} that strict would keep"
    return f"At {at} relaxing spares {counted(spared, 'drafted token')} that strict rolls back"


def _vs_own_text(spared: int, courses: Courses) -> str:
    """Return the savings compared with strict's own text, and both lengths if they differ."""
    ours, theirs = (int(course.written[-1]) for course in (courses.ours, courses.strict))
    drafts = f"{number(abs(spared))} {'more' if spared < 0 else 'fewer'} draft{'' if abs(spared) == 1 else 's'}"
    lengths = "" if ours == theirs else f", in {counted(ours, 'token')}, not {number(theirs)}"
    return f"{drafts} rolled back than by strict{lengths}"
