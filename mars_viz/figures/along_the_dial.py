"""Figures of Explore that follow its dial: histogram of ratios, the two best logits, bars per round, and savings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.map_grid import MapGrid, modelled_speed_up, round_times, speed_up_interval
from mars_viz.analysis.metrics import Course, Positions
from mars_viz.costs import Costs
from mars_viz.escapes import figure as escaped
from mars_viz.figures.style import (
    DIAL_MARK,
    NOTE,
    Entry,
    Theme,
    add_dial_line,
    add_text,
    blank,
    line,
    mark,
    points,
    say_empty,
    whole_ticks,
)
from mars_viz.records import Outcome
from mars_viz.rules import Scale
from mars_viz.run import Run
from mars_viz.words import counted, number, ranged, setting

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
    figure = blank(_ratio_title(positions, rejected), theme, name, "drafted tokens", key=[entry for entry, _ in stacks])
    if not np.any((kept | rejected) & shown):
        return say_empty(figure, "No drafted token to show yet.", theme)
    dial = positions.dial if positions.scale is Scale.RATIO else None
    ratios = positions.ratio[(kept | rejected) & shown]
    low = min(float(np.quantile(ratios, 0.005)), 0.95, 1.0 if dial is None else dial - 0.02)
    edges = np.linspace(max(0.0, np.floor(low * 20) / 20), 1.0, BINS + 1)
    for entry, chosen in stacks:
        counts, _ = np.histogram(positions.ratio[chosen & shown], edges)
        hover = "z2/z1 near %{x:.3f}: %{y} tokens"
        _add_bars(figure, entry, (edges[:-1] + edges[1:]) / 2, counts, np.diff(edges), hover)
    tallest = float(np.sum([bar.y for bar in figure.data], axis=0).max())
    figure.update_yaxes(range=[0, 1.18 * tallest])  # space for the dial's label
    whole_ticks(figure, tallest)
    figure.update_xaxes(range=[edges[0], edges[-1]])
    if positions.rule.dial is not None and dial is not None:
        add_dial_line(figure, positions.rule.dial.symbol, dial, theme)
    return figure


def _add_bars(
    figure: go.Figure, entry: Entry, x: np.ndarray, y: np.ndarray, width: np.ndarray | float, hover: str
) -> None:
    looks = {"marker_color": entry.colour, "marker_line_width": 0, "name": entry.words}
    figure.add_bar(x=x, y=y, width=width, hovertemplate=f"{hover}<extra>{entry.words}</extra>", **looks)


def _ratio_title(positions: Positions, rejected: np.ndarray) -> str:
    count = int(np.count_nonzero(rejected))
    dial, at = positions.rule.dial, positions.dial if positions.scale is Scale.RATIO else None
    if not len(positions):
        return "No drafted token yet"
    if not count:
        return "Strict rejects no draft here: there is nothing to relax"
    if dial is not None and at is not None:
        close = rejected & (positions.ratio > at)
        among, runners = int(np.count_nonzero(close)), int(np.count_nonzero(close & positions.runner_up))
        above = f"{number(among)} of {counted(count, 'strict rejection')} above {setting(dial.symbol, at)}"
        return f"{above}; in {number(runners)} the draft is the runner-up"
    among = int(np.count_nonzero(rejected & (positions.ratio > 0.9)))
    return f"In {number(among)} of {counted(count, 'rejection')} z2/z1 is above 0.90"


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
    starts = np.arange(0, positions.rounds, gathered)
    for entry, counts in stacks:
        bars = np.add.reduceat(counts, starts) / np.diff([*starts, len(counts)])  # the last group may be smaller
        x = 1 + gathered * np.arange(len(bars)) + (gathered - 1) / 2
        _add_bars(figure, entry, x, bars, 0.85 * gathered, "round %{x}: %{y:.3~g}")
    if positions.rounds <= 10:
        figure.update_xaxes(dtick=1)
    return figure


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


def savings(positions: Positions, theme: Theme) -> go.Figure:
    """Return the running sum of (rolled back at the strict end - rolled back at the dial).

    If strict's own text is known, each side is counted along its own tokens, and is exact if the dial's text is known
    too. Otherwise both sides are judged on the same recorded prefixes: the figure then shows the tokens spared inside
    the blocks, not the cost of a strict text.
    """
    if (courses := positions.courses) is None:
        lost, strict_lost = (
            positions.per_round(is_one(Outcome.REJECTED) | is_one(Outcome.DISCARDED))
            for is_one in (positions.are, positions.strictly)
        )
        places, total = np.arange(1, positions.rounds + 1), np.cumsum(strict_lost - lost)
        shape, across, basis = "vh", "round", "block-local"
    else:
        ours, strict = courses
        places = np.union1d(ours[0], strict[0])
        total = _lost_by(strict, places) - _lost_by(ours, places)
        shape, across, basis = "hv", "token", positions.basis.value
    figure = blank(_savings_title(positions, total), theme, across, f"tokens spared ({basis})")
    if not positions.rounds:
        return say_empty(figure, "No round to show yet.", theme)
    count = len(places)
    drawn = np.unique([*range(0, count, max(1, -(-count // MOST_POINTS))), count - 1])
    x, y = np.append(0, places[drawn]), np.append(0, total[drawn])
    hover = f"after {across} %{{x}}: %{{y}} spared"
    figure.add_trace(line(x, y, theme.relaxed, "spared", hover, shape=shape, fill="tozeroy"))
    anchors = {"xanchor": "right", "yanchor": "top" if y[-1] < 0 else "bottom"}
    add_text(figure, number(int(y[-1])), theme.relaxed, x=x[-1], y=y[-1], **anchors)
    low, high = float(y.min()), float(y.max())
    margin = ROOM * max(high - low, 5)  # for the number
    figure.update_yaxes(range=[low - margin if low else 0, high + margin if high or not low else 0])
    whole_ticks(figure, float(np.abs(y).max()))
    return figure


def _lost_by(course: Course, places: np.ndarray) -> np.ndarray:
    """Return the tokens rolled back in rounds that ended by each place of the text, int64 [N]; none after its end."""
    written, rolled_back = course
    return np.concatenate([[0], rolled_back])[np.searchsorted(written, places, side="right")]


def _savings_title(positions: Positions, total: np.ndarray) -> str:
    dial = positions.rule.dial
    if not positions.rounds:
        return "No round yet"
    if dial is None or positions.dial is None:
        return f"{positions.rule.title} has no dial: nothing is relaxed, nothing spared"
    at, spared, lengths = setting(dial.symbol, positions.dial), int(total[-1]), ""
    if spared == 0:
        return f"At {at} no drafted token is spared against strict"
    if positions.courses is not None:  # compared with strict's own text, of perhaps another length
        ours, theirs = (int(written[-1]) for written, _ in positions.courses)
        lengths = "" if ours == theirs else f", in {counted(ours, 'token')}, not {number(theirs)}"
    drafts = counted(abs(spared), "fewer draft" if spared > 0 else "more draft")
    return f"At {at} {drafts} rolled back than by strict{lengths}"


def two_logits(positions: Positions, theme: Theme) -> go.Figure:
    """Return z1 against z2 by outcome, with the rule's boundary if it is a line in this plane.

    The boundary is z2 = θ z1 for a dial on the ratio, and z2 = z1 - m for a dial on the difference.
    """
    groups = (
        (Entry("●", theme.discarded, "rolled back"), Outcome.DISCARDED, "circle-open", 4),
        (Entry("●", theme.quiet, "matched"), Outcome.MATCHED, "circle", 5),
        (Entry("×", theme.rejected, "rejected"), Outcome.REJECTED, "x", 7),
        (Entry("◆", theme.relaxed, "relaxed"), Outcome.RELAXED, "diamond", 8),
    )
    entries = [entry for entry, *_ in reversed(groups)]
    figure = blank(_logits_title(positions), theme, "z1, best logit", "z2, second best", key=entries)
    shown = np.isfinite(positions.z1) & np.isfinite(positions.z2)
    if not shown.any():
        return say_empty(figure, "No drafted token to show yet.", theme)
    extra = np.stack([positions.round_index + 1, positions.ratio], axis=1)
    hover = "z1 %{x:.2f}, z2 %{y:.2f}, ratio %{customdata[1]:.3f}, round %{customdata[0]}"
    for entry, outcome, symbol, size in groups:
        at = positions.are(outcome) & shown
        figure.add_trace(points(positions.z1[at], positions.z2[at], entry, symbol, size, extra[at], hover))
    if positions.scale is not None and positions.dial is not None:
        _add_boundary(figure, positions.z1[shown], positions.z2[shown], positions.scale, positions.dial, theme)
    return figure


def _add_boundary(figure: go.Figure, z1: np.ndarray, z2: np.ndarray, scale: Scale, dial: float, theme: Theme) -> None:
    """Add the boundary without moving the axes; its label is where z2 > z1, so that it covers no point."""
    slope, offset, least, words = 1.0, dial, -math.inf, f"z2 = z1 − {dial:g}"
    if scale is Scale.RATIO:
        slope, offset, least, words = dial, 0.0, 0.0, f"z2 = {dial:g} z1"
    ends = np.array([max(least, float(z1.min())), float(z1.max())])
    if ends[0] > ends[1]:
        return
    heights = slope * ends - offset
    low, high = float(z2.min()), float(z2.max())
    pad = 0.06 * (high - low) or 1.0
    figure.update_yaxes(range=[low - pad, high + pad])
    figure.add_trace(line(ends, heights, theme.dial, "boundary", f"The rule's boundary: {words}", shape="linear"))
    beyond = " (below)" if heights[1] < low - pad else ""
    place = {"x": 0.02, "xref": "paper", "xanchor": "left", "y": 0.99, "yref": "paper", "yanchor": "top"}
    add_text(figure, f"{words}{beyond}", theme.dial, **place)


def _logits_title(positions: Positions) -> str:
    rule = positions.rule
    if not len(positions):
        return "No drafted token yet"
    if rule.dial is None or positions.dial is None:
        return f"{rule.title} draws no line between the two logits"
    if not positions.movable.any():
        return f"{rule.dial.symbol} moves no verdict in this run, so there is no line to draw"
    saveable = int(np.count_nonzero(positions.movable))
    relaxed = int(np.count_nonzero(positions.are(Outcome.RELAXED)))
    at = setting(rule.dial.symbol, positions.dial)
    if not relaxed:
        return f"At {at} no draft is kept beyond what strict keeps"
    return f"At {at} relaxing keeps {counted(relaxed, 'more draft')}, of {number(saveable)} it could"


@dataclass(frozen=True, slots=True)
class Quantity:
    label: str  # on the control that chooses it
    name: str  # in words, as in 'Most tokens per round (τ)'
    read: Callable[[MapGrid, Run, Costs | None], np.ndarray]  # float64 [G, S]; the value of every cell
    least_is_best: bool
    basis: str


CELL = 0.94  # height of a cell; rows of γ are 1 apart

QUANTITIES = (
    Quantity("τ", "tokens per round (τ)", lambda grid, *_: grid.tau, least_is_best=False, basis="exact"),
    Quantity("target passes", "target passes", lambda grid, *_: grid.rounds, least_is_best=True, basis="exact"),
    Quantity("speed-up", "speed-up over strict", modelled_speed_up, least_is_best=False, basis="modelled"),
)


def heat_map(
    grid: MapGrid,
    run: Run,
    quantity: Quantity,
    theme: Theme,
    *,
    dial: float | None = None,
    gamma: int | None = None,
    costs: Costs | None = None,
) -> go.Figure:
    """Return the heat map, with a line and a ring at the page's current setting.

    Modelled quantities use `costs` if they belong to the run's pair, otherwise the run's own timings, and are labelled.
    """
    values = quantity.read(grid, run, costs)  # [G, S]
    best = grid.best(values, least=quantity.least_is_best)
    words = "" if best is None else number(values[best])
    if best is not None and quantity.basis != "exact":
        interval = speed_up_interval(grid, run, grid.gammas[best[0]], float(values[best]), costs)
        words = words if interval is None else ranged((interval.estimate, interval.low, interval.high))
    axis = "nodes of a draft tree" if grid.of_trees else "draft length γ"
    title = "No setting is known to the end of its text yet"
    if best is not None:
        low, high = grid.edges[best[1]], grid.edges[best[1] + 1]
        at = f"{grid.length} = {grid.gammas[best[0]]} and {setting(grid.symbol, float(low))} to {high:.3f}"
        most = "Fewest" if quantity.least_is_best else "Most"
        title = f"{most} {quantity.name} at {at}: {words} ({quantity.basis})"
    figure = blank(title, theme, grid.symbol, axis)
    if best is None:
        return say_empty(figure, "The map holds no finished text yet.", theme)
    if quantity.basis == "modelled":
        words = escaped(f"modelled {round_times(grid, run, costs)[1]}")
        add_text(figure, words, None, **NOTE | {"yshift": 24})
    figure.add_trace(_cells(grid, quantity, values))
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(range=[float(grid.edges[0]), float(grid.edges[-1])], showgrid=False)
    figure.update_yaxes(tickvals=list(grid.gammas), range=[grid.gammas[0] - 0.5, grid.gammas[-1] + 0.5], showgrid=False)
    row, column = best
    middle, hover = (grid.edges[column] + grid.edges[column + 1]) / 2, f"best: {number(values[best])} {quantity.name}"
    star = {"symbol": "star", "size": 15, "color": "#FFFFFF", "line": {"color": "#111827", "width": 1.5}}
    figure.add_trace(mark(middle, grid.gammas[row], "best", hover, **star))
    if dial is not None:
        add_dial_line(figure, grid.symbol, dial, theme, above=True)
        if gamma is not None and gamma in grid.gammas:
            ring = {"symbol": "circle-open", "size": 13, "color": theme.dial, "line": {"width": 3}}
            figure.add_trace(mark(dial, gamma, DIAL_MARK, "the present setting", **ring))
    return figure


def _cells(grid: MapGrid, quantity: Quantity, values: np.ndarray) -> go.Bar:
    rows, firsts, ends = [], [], []
    for row, shares in enumerate(values):
        changes = np.flatnonzero(
            np.r_[True, (shares[1:] != shares[:-1]) & ~(np.isnan(shares[1:]) & np.isnan(shares[:-1]))]
        )
        finite = [i for i, first in enumerate(changes) if np.isfinite(shares[first])]
        rows += [row] * len(finite)
        firsts += [int(changes[i]) for i in finite]
        ends += [int(changes[i + 1]) if i + 1 < len(changes) else len(shares) for i in finite]
    low, high = grid.edges[firsts], grid.edges[ends]
    gammas, shown = np.array(grid.gammas)[rows], values[rows, firsts]
    bar_title = {"text": quantity.name, "side": "right", "font": {"size": 12}}
    return go.Bar(
        x=(low + high) / 2,
        width=high - low,
        base=gammas - CELL / 2,
        y=np.full(len(rows), CELL),
        customdata=np.stack([gammas, low, high, shown], axis=1),
        marker={
            "color": shown,
            "colorscale": "Cividis",
            "reversescale": quantity.least_is_best,
            "colorbar": {"title": bar_title, "thickness": 10, "outlinewidth": 0},
            "line": {"width": 0},
        },
        hovertemplate=f"{grid.length} = %{{customdata[0]}}, {grid.symbol} from %{{customdata[1]:.4~f}}"
        " to %{customdata[2]:.4~f}: %{customdata[3]:.3~f}<extra></extra>",
        textposition="none",
        name="settings",
    )
