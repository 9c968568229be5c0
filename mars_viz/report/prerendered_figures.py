"""Prerender the figures of a run as Plotly JSON, because a report cannot call Python.

Figures are drawn for the recorded dial value, each segment of the map, and steps of the dial. Parts shared by several
figures are stored once.
"""

from __future__ import annotations

import json
import math
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mars_viz import figures
from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.metrics import Positions, positions
from mars_viz.components.explorer.payload import Columns
from mars_viz.dialmap import shown
from mars_viz.figures.heat_map import QUANTITIES, heat_map
from mars_viz.figures.style import DIAL_MARK
from mars_viz.rules import rule_named
from mars_viz.run import Run

MOST_STEPS = 50  # number of dial values to draw in addition to the segments, evenly subsampled
CLOUD = 8  # number of marks from which a trace refers to rows of the payload


Setting = tuple[float | None, float, float]
"""A dial value with figures (None for a rule without a dial), and the range of values that they represent: its segment,
from the lower end to the start of the next one, or -inf and inf outside the map."""


def settings(run: Run, gamma: int, most: int = MOST_STEPS) -> list[Setting]:
    """Return the settings to draw, ascending: the recorded value, starts of segments, and up to `most` steps."""
    dial = rule_named(run.settings.rule).dial
    if dial is None:
        return [(None, -np.inf, np.inf)]
    dial_map = run.dial_map
    segments = dial_map.segments_for(gamma) if dial_map is not None and gamma in dial_map.span.gammas else ()
    count = round((dial.high - dial.low) / dial.step)
    stride = max(1, -(-count // most)) if most else count + 1
    steps = (round(dial.low + step * dial.step, 10) for step in range(0, count + 1, stride))
    chosen: list[Setting] = []
    for value in sorted({dial.checked(run.settings.dial), *steps, *(segment.low for segment in segments)}):
        low, high = -np.inf, np.inf
        if dial_map is not None and segments and dial_map.span.low <= value <= dial_map.span.high:
            segment = next(segment for segment in reversed(segments) if segment.low <= value)
            if segment.complete:
                last = segment is segments[-1]
                low, high = segment.low, float(np.nextafter(segment.high, np.inf)) if last else segment.high
        chosen.append((value, low, high))
    return chosen


def prerendered_figures(run: Run, gamma: int, rows: Columns, most: int = MOST_STEPS) -> dict[str, Any]:
    """Return all figures as JSON, in the colours of the light theme.

    `rows` are those of the explorer's payload. Figures mark the same tokens at many settings, so tokens with two best
    logits in `rows` are stored as row indices.
    """
    shared, lines = _SharedParts(rows), []
    before: tuple[float, Positions] | None = None  # of the previous setting: start of its segment, and its positions
    for dial, low, high in settings(run, gamma, most):
        if before is not None and np.isfinite(low) and low == before[0]:
            at = replace(before[1], dial=dial)
        else:
            at = positions(*shown(run, dial, gamma))
        before = (low, at)
        drawn = [shared.put(make(at, figures.LIGHT)) for make in figures.ALONG_THE_DIAL]
        ends = [None if not np.isfinite(end) else end for end in (low, high)]
        lines.append([dial, *ends, at.words, *drawn])
    maps: list[dict[str, Any]] = []  # heat maps of each quantity, in which the page moves marks named `DIAL_MARK`
    if run.dial_map is not None:
        grid = map_grid(run.dial_map)
        for quantity in QUANTITIES:
            figure = heat_map(grid, run, quantity, figures.LIGHT, dial=run.settings.dial, gamma=gamma)
            maps.append({"label": quantity.label, "spec": shared.put(figure)})
    return {
        "names": [make.__name__ for make in figures.ALONG_THE_DIAL],
        "settings": lines,
        "maps": maps,
        "dialMark": DIAL_MARK,
        **shared.to_json(),
    }


def figure_alone(figure: go.Figure) -> dict[str, Any]:
    """Return a figure without a dial as JSON, in the colours of the light theme."""
    shared = _SharedParts({"top": 0})
    shared.put(figure)
    return shared.to_json()


class _SharedParts:
    """Distinct figures and traces as Plotly JSON, and their common template."""

    def __init__(self, rows: Columns) -> None:
        self._rows: dict[tuple[float, float], int] = {}  # row of the payload by its two best logits
        if rows["top"] >= 2 and "top_logit" in rows:
            best = rows["top_logit"].reshape(-1, rows["top"])[:, :2].tolist()
            self._rows = {(z1, z2): row for row, (z1, z2) in enumerate(best)}
        self.specs: list[dict[str, Any]] = []
        self.traces: list[dict[str, Any]] = []
        self.template: Any = {}
        self._index_by_key: dict[str, int] = {}

    def put(self, figure: go.Figure) -> int:
        """Return the index of this figure, whose `data` are indices of traces."""
        layout = figure.layout.to_plotly_json()
        self.template = layout.pop("template", self.template)
        data = [self._index(self._trace(trace.to_plotly_json()), self.traces) for trace in figure.data]
        return self._index({"data": data, "layout": layout}, self.specs)

    def to_json(self) -> dict[str, Any]:
        """Return all parts, with a map from light to dark colours."""
        colours = dict(zip(astuple(figures.LIGHT), astuple(figures.DARK), strict=True))
        return {"specs": self.specs, "traces": self.traces, "template": self.template, "colours": colours}

    def _index(self, value: dict[str, Any], kept: list[dict[str, Any]]) -> int:
        key = json.dumps(value, default=_listed)
        if key not in self._index_by_key:
            self._index_by_key[key] = len(kept)
            kept.append(json.loads(key))
        return self._index_by_key[key]

    def _trace(self, trace: dict[str, Any]) -> dict[str, Any]:
        """Convert a trace for Plotly's basic bundle; known marks become indices of rows and rounds."""
        if trace["type"] == "scattergl":
            trace["type"] = "scatter"
        more = np.asarray(trace.get("customdata", ()))
        if trace.get("mode") != "markers" or more.shape[1:] != (2,) or len(more) < CLOUD:
            return trace
        indices = [self._rows.get(pair) for pair in zip(trace["x"].tolist(), trace["y"].tolist(), strict=True)]
        if None in indices:
            return trace
        cloud = {"rows": np.array(indices), "rounds": more[:, 0]}
        others = {name: part for name, part in trace.items() if name not in ("x", "y", "customdata")}
        return others | {
            "cloud": {name: np.diff(np.asarray(part), prepend=0).astype(int) for name, part in cloud.items()}
        }


def _listed(array: np.ndarray) -> list[Any]:
    """Convert an array to JSON with six significant digits; NaN becomes null."""
    if array.ndim > 1:
        return [_listed(line) for line in array]
    if array.dtype.kind != "f":
        return array.tolist()
    return [float(f"{number:.6g}") if math.isfinite(number) else None for number in array.tolist()]
