"""Heat map of a quantity over γ and the dial, with the best cell marked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.map_grid import MapGrid, modelled_speed_up, round_times, speed_up_interval
from mars_viz.costs import Costs
from mars_viz.figures.style import DIAL_MARK, Theme, add_dial_line, add_note, blank, say_empty
from mars_viz.run import Run
from mars_viz.words import number, ranged, setting


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity to compare settings by."""

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
        add_note(figure, f"modelled {round_times(grid, run, costs)[1]}", up=24)
    figure.add_trace(_cells(grid, quantity, values))
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(range=[float(grid.edges[0]), float(grid.edges[-1])], showgrid=False)
    figure.update_yaxes(tickvals=list(grid.gammas), range=[grid.gammas[0] - 0.5, grid.gammas[-1] + 0.5], showgrid=False)
    row, column = best
    figure.add_scatter(
        x=[(grid.edges[column] + grid.edges[column + 1]) / 2],
        y=[grid.gammas[row]],
        mode="markers",
        marker={"symbol": "star", "size": 15, "color": "#FFFFFF", "line": {"color": "#111827", "width": 1.5}},
        hovertemplate=f"best: {number(values[best])} {quantity.name}<extra></extra>",
        name="best",
    )
    if dial is not None:
        add_dial_line(figure, grid.symbol, dial, theme, above=True)
        if gamma in grid.gammas:
            figure.add_scatter(
                x=[dial],
                y=[gamma],
                mode="markers",
                marker={"symbol": "circle-open", "size": 13, "color": theme.dial, "line": {"width": 3}},
                hovertemplate="the present setting<extra></extra>",
                name=DIAL_MARK,
            )
    return figure


def _cells(grid: MapGrid, quantity: Quantity, values: np.ndarray) -> go.Bar:
    rows, firsts, ends = [], [], []
    for row, line in enumerate(values):
        changes = np.flatnonzero(np.r_[True, (line[1:] != line[:-1]) & ~(np.isnan(line[1:]) & np.isnan(line[:-1]))])
        finite = [i for i, first in enumerate(changes) if np.isfinite(line[first])]
        rows += [row] * len(finite)
        firsts += [int(changes[i]) for i in finite]
        ends += [int(changes[i + 1]) if i + 1 < len(changes) else len(line) for i in finite]
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
