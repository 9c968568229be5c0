"""The figures of a run at every setting that a report can show, made by `figures` as the JSON that Plotly draws.

Knows figures and dial maps; knows no HTML. A report cannot ask Python for a figure, so it gets them beforehand: for
the recorded dial value, for each segment of the map, and for the steps of the dial. Whatever two of them share is
sent once.
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
from mars_viz.components.explorer.columns import Columns
from mars_viz.dialmap import DialMap, Segment
from mars_viz.figures.heat_map import QUANTITIES, heat_map
from mars_viz.figures.style import DIAL_MARK
from mars_viz.rules import Dial, rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import shown

MOST_STEPS = 50
"""Steps of the dial that are drawn, besides the segments; every so manieth where there are more."""
CLOUD = 8
"""Marks from which on they are told as rows of the payload."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A dial value that figures are drawn at, and for which values they may stand."""

    dial: float | None
    """The value; None for a rule without a dial."""
    low: float
    """Smallest value of its segment; -inf outside the map."""
    high: float
    """Where the next segment begins; inf outside the map."""


def settings(run: Run, gamma: int, most: int = MOST_STEPS) -> list[Setting]:
    """What is drawn: the recorded value, every segment's least, and the dial's steps, at most `most`; ascending."""
    dial = rule_named(run.settings.rule).dial
    if dial is None:
        return [Setting(None, -np.inf, np.inf)]
    made = run.dial_map
    known = made.segments_for(gamma) if made is not None and gamma in made.span.gammas else ()
    values = {dial.checked(run.settings.dial), *_steps(dial, most), *(segment.low for segment in known)}
    return [_setting(value, made, known) for value in sorted(values)]


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
    """Everything that the page needs to draw, as JSON; colours as in the light theme.

    `rows` are those of the explorer's payload: figures along the dial mark the same tokens at many settings, and of
    tokens whose two best logits the page has, only the rows are sent.
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
    """Figures in the light theme's colours that follow no dial, as JSON: `specs` in their order."""
    shared = _SharedParts({"top": 0})
    for figure in made:
        shared.put(figure)
    return shared.told


def _positions(run: Run, setting: Setting, gamma: int, before: tuple[Setting, Positions] | None) -> Positions:
    """The drafted positions at a setting; those of the setting before where both stand in one segment."""
    if before is not None and np.isfinite(setting.low) and before[0].low == setting.low:
        return replace(before[1], dial=setting.dial)
    return positions(*shown(run, setting.dial, gamma))


def _maps(run: Run, gamma: int, shared: _SharedParts) -> list[dict[str, Any]]:
    """The map of all settings by each quantity; its marks named `DIAL_MARK` are moved by the page."""
    if run.dial_map is None:
        return []
    grid, dial = map_grid(run.dial_map), run.settings.dial
    made = (heat_map(grid, run, quantity, figures.LIGHT, dial=dial, gamma=gamma) for quantity in QUANTITIES)
    return [
        {"label": quantity.label, "spec": shared.put(figure)} for quantity, figure in zip(QUANTITIES, made, strict=True)
    ]


class _SharedParts:
    """Figures as Plotly's JSON, and their traces, each once; the template, which is the same for all, apart."""

    def __init__(self, rows: Columns) -> None:
        self._rows = _row_by_logits(rows)
        self.specs: list[dict[str, Any]] = []
        self.traces: list[dict[str, Any]] = []
        self.template: Any = {}
        self._known: dict[str, int] = {}

    def put(self, figure: go.Figure) -> int:
        """The index of this figure, whose `data` are indices of its traces."""
        layout = figure.layout.to_plotly_json()
        self.template = layout.pop("template", self.template)
        data = [self._index(self._trace(trace.to_plotly_json()), self.traces) for trace in figure.data]
        return self._index({"data": data, "layout": layout}, self.specs)

    @property
    def told(self) -> dict[str, Any]:
        """All of them as JSON, with the dark theme's colour for each of the light one's."""
        colours = dict(zip(astuple(figures.LIGHT), astuple(figures.DARK), strict=True))
        return {"specs": self.specs, "traces": self.traces, "template": self.template, "colours": colours}

    def _index(self, value: dict[str, Any], kept: list[dict[str, Any]]) -> int:
        key = json.dumps(value, default=_listed)
        if key not in self._known:
            self._known[key] = len(kept)
            kept.append(json.loads(key))
        return self._known[key]

    def _trace(self, trace: dict[str, Any]) -> dict[str, Any]:
        """A trace that the small bundle of Plotly draws; marks whose logits the page has by their rows and rounds."""
        if trace["type"] == "scattergl":
            trace["type"] = "scatter"
        more = np.asarray(trace.get("customdata", ()))
        if trace.get("mode") != "markers" or more.shape[1:] != (2,) or len(more) < CLOUD:
            return trace
        found = [self._rows.get(pair) for pair in zip(trace["x"].tolist(), trace["y"].tolist(), strict=True)]
        if None in found:
            return trace
        cloud = {"rows": np.array(found), "rounds": more[:, 0]}
        rest = {name: part for name, part in trace.items() if name not in ("x", "y", "customdata")}
        return rest | {
            "cloud": {name: np.diff(np.asarray(part), prepend=0).astype(int) for name, part in cloud.items()}
        }


def _row_by_logits(rows: Columns) -> dict[tuple[float, float], int]:
    """A row of the payload for every pair of best logits; none where it was made without candidates."""
    width = rows["top"]
    if width < 2 or "top_logit" not in rows:
        return {}
    best = rows["top_logit"].reshape(-1, width)[:, :2].tolist()
    return {(z1, z2): row for row, (z1, z2) in enumerate(best)}


def _listed(array: np.ndarray) -> list[Any]:
    """An array as JSON, with more digits than can be seen; NaN, of which nothing is drawn, as null."""
    if array.ndim > 1:
        return [_listed(line) for line in array]
    if array.dtype.kind != "f":
        return array.tolist()
    return [float(f"{number:.6g}") if math.isfinite(number) else None for number in array.tolist()]
