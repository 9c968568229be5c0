"""Figures: pure functions from records to Plotly figures."""

from __future__ import annotations

import plotly.graph_objects as go

from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.metrics import positions
from mars_viz.errors import EvidenceError, SettingError
from mars_viz.exploration import checked_gamma, shown
from mars_viz.figures.along_the_dial import QUANTITIES, heat_map, ratio_histogram, round_bars, savings, two_logits
from mars_viz.figures.style import DARK, LIGHT, Theme, spoken_title
from mars_viz.rules import rule_named
from mars_viz.run import Run

ALONG_THE_DIAL = (ratio_histogram, two_logits, round_bars, savings)
"""Figures of Explore that follow its dial, in order; functions of (positions, theme)."""

__all__ = ["ALONG_THE_DIAL", "DARK", "LIGHT", "Theme", "plotted", "plotted_map", "spoken_title"]

FIGURES = {"ratios": ratio_histogram, "margins": two_logits, "rounds": round_bars, "savings": savings}
"""Figures of a run by name."""


def plotted(run: Run, what: str, dial: float | None, gamma: int | None, dark: bool) -> go.Figure:
    """Return one of `FIGURES` at this setting; None is the run's own value. Raises BadInput for a dial value out of
    range, and for a block length that neither the run nor its map contains."""
    at = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    return FIGURES[what](positions(*shown(run, at, checked_gamma(run, gamma))), DARK if dark else LIGHT)


def plotted_map(run: Run, quantity: str, dark: bool) -> go.Figure:
    """Return the heat map of a quantity over all settings. Raises BadInput without a map or for an unknown quantity."""
    quantities = {each.label: each for each in QUANTITIES}
    if quantity not in quantities:
        raise SettingError(f"There is no map by {quantity!r}; choose one of {', '.join(quantities)}.")
    if run.dial_map is None:
        raise EvidenceError("This run carries no dial map; make one with mars_viz.dial_map or `mars-viz map`.")
    grid, settings = map_grid(run.dial_map), run.settings
    return heat_map(grid, run, quantities[quantity], DARK if dark else LIGHT, dial=settings.dial, gamma=settings.gamma)
