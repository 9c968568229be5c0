"""What each round did with its drafted tokens: matched, relaxed, rolled back."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.positions import Positions
from mars_viz.figures.style import Entry, Theme, blank, say_empty
from mars_viz.figures.words import counted, number
from mars_viz.records import Outcome

MOST_BARS = 120
"""Beyond as many rounds a bar is the mean of several."""


def round_bars(positions: Positions, theme: Theme) -> go.Figure:
    """Stacked bars, a round each; where there are many rounds, the mean of as many consecutive ones as it takes."""
    matched, relaxed = (positions.per_round(positions.are(o)) for o in (Outcome.MATCHED, Outcome.RELAXED))
    drafted = positions.per_round(np.ones(len(positions), np.bool_))
    stacks = (
        (Entry("■", theme.quiet, "matched"), matched),
        (Entry("■", theme.relaxed, "relaxed"), relaxed),
        (Entry("■", theme.discarded, "rolled back"), drafted - matched - relaxed),
    )
    gathered = max(1, -(-positions.rounds // MOST_BARS))
    name = "round" if gathered == 1 else f"round, {number(gathered)} to a bar"
    title = _title(positions, drafted, matched + relaxed)
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
    """float64; the mean of every `gathered` consecutive values, of what is left for the last."""
    starts = np.arange(0, len(counts), gathered)
    return np.add.reduceat(counts, starts) / np.diff([*starts, len(counts)])


def _title(positions: Positions, drafted: np.ndarray, kept: np.ndarray) -> str:
    if not positions.rounds:
        return "No round yet"
    full = int(np.count_nonzero(kept == drafted))
    return (
        f"A round keeps {number(float(kept.mean()))} of {number(float(drafted.mean()))} drafted tokens on average;"
        f" {number(full)} of {counted(positions.rounds, 'round')} kept all"
    )
