"""Where the target hesitates: the ratio of its two best logits, and where strict rejections fall on it."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.positions import Positions
from mars_viz.figures.style import Entry, Theme, add_dial_line, blank, say_empty, whole_ticks
from mars_viz.figures.words import counted, number, setting
from mars_viz.records import Outcome
from mars_viz.rules import Scale

BINS = 40


def ratio_histogram(positions: Positions, theme: Theme) -> go.Figure:
    """Positions that the strict end judges, by z2/z1: kept, rejected runner-ups (what a dial may save), other rejected.

    What strict rolls back unjudged is left out. Binned here, so a million positions cost no more than a hundred.
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
    figure.update_yaxes(range=[0, 1.18 * tallest])  # room for the dial's name
    whole_ticks(figure, tallest)
    figure.update_xaxes(range=[edges[0], edges[-1]])
    if positions.rule.dial is not None and dial is not None:
        add_dial_line(figure, positions.rule.dial.symbol, dial, theme)
    return figure


def _ratio_at(positions: Positions) -> float | None:
    """The dial's value where it is one of z2/z1; a value of anything else has no place on this axis."""
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
