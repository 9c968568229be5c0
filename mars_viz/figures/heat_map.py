"""What every setting of γ and the dial comes to, as a map of cells with the best one marked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.map_grid import MapGrid, modelled_speed_up
from mars_viz.figures.style import Theme, add_dial_line, blank, say_empty
from mars_viz.figures.words import number, setting
from mars_viz.run import Run


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something to compare settings by."""

    label: str
    """On the control that chooses it."""
    name: str
    """In words, as in 'Most tokens per round (τ)'."""
    read: Callable[[MapGrid, Run], np.ndarray]
    """float64 [G, S]; its value in every cell."""
    least_is_best: bool
    """True where less is better."""
    basis: str
    """'exact' or 'modelled'."""


QUANTITIES = (
    Quantity("τ", "tokens per round (τ)", lambda grid, run: grid.tau, least_is_best=False, basis="exact"),
    Quantity("target passes", "target passes", lambda grid, run: grid.rounds, least_is_best=True, basis="exact"),
    Quantity("speed-up", "speed-up over strict", modelled_speed_up, least_is_best=False, basis="modelled"),
)


def heat_map(
    grid: MapGrid, run: Run, quantity: Quantity, theme: Theme, *, dial: float | None = None, gamma: int | None = None
) -> go.Figure:
    """γ upwards, the dial to the right, the quantity as colour; the page's own setting as a line and a ring."""
    values = quantity.read(grid, run)  # [G, S]
    best = grid.best(values, least=quantity.least_is_best)
    figure = blank(_title(grid, quantity, values, best), theme, f"{grid.symbol}", "γ, tokens per block")
    if best is None:
        return say_empty(figure, "The map holds no finished text yet.", theme)
    rows = [gamma - 0.5 for gamma in grid.gammas] + [grid.gammas[-1] + 0.5]
    figure.add_heatmap(
        x=grid.edges,
        y=rows,
        z=values,
        customdata=np.broadcast_to(np.array(grid.gammas)[:, None], values.shape),
        colorscale="Cividis",
        reversescale=quantity.least_is_best,
        colorbar={"title": {"text": quantity.name, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        hovertemplate=f"{grid.symbol} about %{{x:.3f}}, γ = %{{customdata}}: %{{z:.3~f}}<extra></extra>",
        hoverongaps=False,
        xgap=0,
        ygap=2,
    )
    figure.update_xaxes(range=[float(grid.edges[0]), float(grid.edges[-1])], showgrid=False)
    figure.update_yaxes(tickvals=list(grid.gammas), showgrid=False)
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
        add_dial_line(figure, grid.symbol, dial, theme)
        if gamma in grid.gammas:
            figure.add_scatter(
                x=[dial],
                y=[gamma],
                mode="markers",
                marker={"symbol": "circle-open", "size": 13, "color": theme.dial, "line": {"width": 3}},
                hovertemplate="where the dials stand<extra></extra>",
                name="here",
            )
    return figure


def _title(grid: MapGrid, quantity: Quantity, values: np.ndarray, best: tuple[int, int] | None) -> str:
    if best is None:
        return "No setting is known to the end of its text yet"
    low, high = grid.edges[best[1]], grid.edges[best[1] + 1]
    at = f"γ = {grid.gammas[best[0]]} and {setting(grid.symbol, float(low))} to {high:.3f}"
    words = "Fewest" if quantity.least_is_best else "Most"
    return f"{words} {quantity.name} at {at}: {number(values[best])} ({quantity.basis})"
