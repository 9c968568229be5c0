"""The figures of a run at a setting, for notebooks: what `Run.plot_…` returns. Knows runs and figures."""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go

from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.positions import Positions, positions
from mars_viz.errors import BadInput
from mars_viz.figures.heat_map import QUANTITIES, heat_map
from mars_viz.figures.style import DARK, LIGHT, Theme
from mars_viz.mapped import checked_gamma, shown
from mars_viz.rules import rule_named
from mars_viz.run import Run


def plotted(
    run: Run, make: Callable[[Positions, Theme], go.Figure], dial: float | None, gamma: int | None, dark: bool
) -> go.Figure:
    """A figure at this setting; None takes the run's own. Raises BadInput for a dial value that the rule lacks and for
    a block length that neither the run nor its map holds.
    """
    at = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    return make(positions(*shown(run, at, checked_gamma(run, gamma))), DARK if dark else LIGHT)


def plotted_map(run: Run, quantity: str, dark: bool) -> go.Figure:
    """The map of all settings by a quantity. Raises BadInput without a map, and for a quantity that there is not."""
    known = {one.label: one for one in QUANTITIES}
    if quantity not in known:
        raise BadInput(f"There is no map by {quantity!r}; choose one of {', '.join(known)}.")
    if run.dial_map is None:
        raise BadInput("This run carries no dial map; make one with mars_viz.dial_map or `mars-viz map`.")
    grid, own = map_grid(run.dial_map), run.settings
    return heat_map(grid, run, known[quantity], DARK if dark else LIGHT, dial=own.dial, gamma=own.gamma)
