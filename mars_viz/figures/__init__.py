"""Figures: pure functions from records to Plotly figures."""

from __future__ import annotations

import plotly.graph_objects as go

from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.metrics import positions
from mars_viz.errors import EvidenceError, SettingError
from mars_viz.exploration import shown
from mars_viz.figures.along_the_dial import QUANTITIES, heat_map, ratio_histogram, round_bars, savings, two_logits
from mars_viz.figures.style import DARK, LIGHT, Theme, spoken_title
from mars_viz.run import Run

__all__ = ["ALONG_THE_DIAL", "DARK", "LIGHT", "Theme", "plotted", "plotted_map", "spoken_title"]

FIGURES = {"ratios": ratio_histogram, "margins": two_logits, "rounds": round_bars, "savings": savings}
"""Figures of a run that follow the dial, by name; functions of (positions, theme)."""
ALONG_THE_DIAL = tuple(FIGURES.values())


def plotted(run: Run, what: str, dial: float | None, gamma: int | None, dark: bool) -> go.Figure:
    """Return one of `FIGURES` at this setting, as in `exploration.shown`."""
    return FIGURES[what](positions(*shown(run, dial, gamma)), DARK if dark else LIGHT)


def plotted_map(run: Run, quantity: str, dark: bool) -> go.Figure:
    """Return the heat map of a quantity over all settings. Raises BadInput without a map or for an unknown quantity."""
    quantities = {each.label: each for each in QUANTITIES}
    if quantity not in quantities:
        raise SettingError(f"There is no map by {quantity!r}; choose one of {', '.join(quantities)}.")
    if run.dial_map is None:
        raise EvidenceError("This run carries no dial map; make one with mars_viz.dial_map or `mars-viz map`.")
    grid, settings = map_grid(run.dial_map), run.settings
    return heat_map(grid, run, quantities[quantity], DARK if dark else LIGHT, dial=settings.dial, gamma=settings.gamma)
