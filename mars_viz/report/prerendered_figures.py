"""Prerender the figures of a run as Plotly JSON, because a report cannot call Python.

Figures are drawn for the recorded dial value, each segment of the map, and steps of the dial. Parts shared by several
figures are stored once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mars_viz import figures
from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.positions import Positions, positions
from mars_viz.components.explorer.payload import Columns
from mars_viz.dialmap import DialMap, Segment
from mars_viz.figures.heat_map import QUANTITIES, heat_map
from mars_viz.figures.style import DIAL_MARK
from mars_viz.rules import Dial, rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import shown

MOST_STEPS = 50  # number of dial values to draw in addition to the segments, evenly subsampled
CLOUD = 8  # number of marks from which a trace refers to rows of the payload


@dataclass(frozen=True, slots=True)
class Setting:
    """A dial value with figures, and the range of values that they represent."""

    dial: float | None  # the value; None for a rule without a dial
    low: float  # lower end of its segment; -inf outside the map
    high: float  # start of the next segment; inf outside the map


def settings(run: Run, gamma: int, most: int = MOST_STEPS) -> list[Setting]:
    """Return the settings to draw, ascending: the recorded value, starts of segments, and up to `most` steps."""
    dial = rule_named(run.settings.rule).dial
    if dial is None:
        return [Setting(None, -np.inf, np.inf)]
    dial_map = run.dial_map
    segments = dial_map.segments_for(gamma) if dial_map is not None and gamma in dial_map.span.gammas else ()
    values = {dial.checked(run.settings.dial), *_steps(dial, most), *(segment.low for segment in segments)}
    return [_setting(value, dial_map, segments) for value in sorted(values)]


def _steps(dial: Dial, most: int) -> list[float]:
    count = round((dial.high - dial.low) / dial.step)
    stride = max(1, -(-count // most)) if most else count + 1
    return [round(dial.low + step * dial.step, 10) for step in range(0, count + 1, stride)]


def _setting(value: float, made: DialMap | None, known: tuple[Segment, ...]) -> Setting:
    if made is not None and known and made.span.low <= value <= made.span.high:
        segment = next(segment for segment in reversed(known) if segment.low <= value)
        if segment.complete:
            last = segment is known[-1]
            return Setting(value, segment.low, float(np.nextafter(segment.high, np.inf)) if last else segment.high)
    return Setting(value, -np.inf, np.inf)


def prerendered_figures(run: Run, gamma: int, rows: Columns, most: int = MOST_STEPS) -> dict[str, Any]:
    """Return all figures as JSON, in the colours of the light theme.

    `rows` are those of the explorer's payload. Figures mark the same tokens at many settings, so tokens with two best
    logits in `rows` are stored as row indices.
    """
    shared, lines, before = _SharedParts(rows), [], None
    for setting in settings(run, gamma, most):
        before = (setting, _positions(run, setting, gamma, before))
        at = before[1]
        drawn = [shared.put(make(at, figures.LIGHT)) for make in figures.ALONG_THE_DIAL]
        ends = [None if not np.isfinite(end) else end for end in (setting.low, setting.high)]
        lines.append([setting.dial, *ends, at.words, *drawn])
    return {
        "names": [make.__name__ for make in figures.ALONG_THE_DIAL],
        "settings": lines,
        "maps": _maps(run, gamma, shared),
        "dialMark": DIAL_MARK,
        **shared.told,
    }


def told_figures(made: Iterable[go.Figure]) -> dict[str, Any]:
    """Return figures without a dial as JSON, in the colours of the light theme; `specs` are in order."""
    shared = _SharedParts({"top": 0})
    for figure in made:
        shared.put(figure)
    return shared.told


def _positions(run: Run, setting: Setting, gamma: int, before: tuple[Setting, Positions] | None) -> Positions:
    """Return the drafted positions at a setting, reusing those of the previous one in the same segment."""
    if before is not None and np.isfinite(setting.low) and before[0].low == setting.low:
        return replace(before[1], dial=setting.dial)
    return positions(*shown(run, setting.dial, gamma))


def _maps(run: Run, gamma: int, shared: _SharedParts) -> list[dict[str, Any]]:
    """Return the heat map of each quantity; the page moves marks named `DIAL_MARK`."""
    if run.dial_map is None:
        return []
    grid, dial = map_grid(run.dial_map), run.settings.dial
    heat_maps = (heat_map(grid, run, quantity, figures.LIGHT, dial=dial, gamma=gamma) for quantity in QUANTITIES)
    return [
        {"label": quantity.label, "spec": shared.put(figure)}
        for quantity, figure in zip(QUANTITIES, heat_maps, strict=True)
    ]


class _SharedParts:
    """Distinct figures and traces as Plotly JSON, and their common template."""

    def __init__(self, rows: Columns) -> None:
        self._rows = _row_by_logits(rows)
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

    @property
    def told(self) -> dict[str, Any]:
        """All parts as JSON, with a map from light to dark colours."""
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


def _row_by_logits(rows: Columns) -> dict[tuple[float, float], int]:
    """Map pairs of best logits to rows of the payload; empty if it has no candidates."""
    width = rows["top"]
    if width < 2 or "top_logit" not in rows:
        return {}
    best = rows["top_logit"].reshape(-1, width)[:, :2].tolist()
    return {(z1, z2): row for row, (z1, z2) in enumerate(best)}


def _listed(array: np.ndarray) -> list[Any]:
    """Convert an array to JSON with six significant digits; NaN becomes null."""
    if array.ndim > 1:
        return [_listed(line) for line in array]
    if array.dtype.kind != "f":
        return array.tolist()
    return [float(f"{number:.6g}") if math.isfinite(number) else None for number in array.tolist()]
