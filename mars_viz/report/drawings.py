"""The figures of a run at every setting that a report can show, made by `figures` and packed once each.

Knows figures and dial maps; knows no HTML. A report cannot ask Python for a figure, so it gets them beforehand: for
the recorded dial value, for each segment of the map, and for the steps of the dial. Whatever two of them share is
sent once.
"""

from __future__ import annotations

import base64
import json
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mars_viz import figures
from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.positions import Positions, positions
from mars_viz.dialmap import DialMap, Segment
from mars_viz.figures.heat_map import QUANTITIES, heat_map
from mars_viz.figures.style import DIAL_MARK
from mars_viz.mapped import shown
from mars_viz.report.clouds import Sky
from mars_viz.rules import Dial, rule_named
from mars_viz.run import Run

MOST_STEPS = 100
"""Steps of the dial that are drawn, besides the segments; every so manieth where there are more."""


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


def drawings(run: Run, gamma: int, sky: Sky, most: int = MOST_STEPS) -> dict[str, Any]:
    """Everything that the page needs to draw: `parcel`-able once `clouds.by_row` has told its clouds, colours as in the
    light theme."""
    chosen, shelf = settings(run, gamma, most), _Shelf(sky)
    lines, before = [], None
    for setting in chosen:
        before = (setting, _positions(run, setting, gamma, before))
        at = before[1]
        drawn = [shelf.put(make(at, figures.LIGHT)) for make in figures.ALONG_THE_DIAL]
        ends = [None if not np.isfinite(end) else end for end in (setting.low, setting.high)]
        lines.append([setting.dial, *ends, at.words, *drawn])
    return {
        "names": [make.__name__ for make in figures.ALONG_THE_DIAL],
        "settings": lines,
        "maps": _maps(run, gamma, shelf),
        "specs": shelf.specs,
        "template": shelf.template,
        "dialMark": DIAL_MARK,
        "colours": dict(zip(astuple(figures.LIGHT), astuple(figures.DARK), strict=True)),
    }


def _positions(run: Run, setting: Setting, gamma: int, before: tuple[Setting, Positions] | None) -> Positions:
    """The drafted positions at a setting; those of the setting before where both stand in one segment."""
    if before is not None and np.isfinite(setting.low) and before[0].low == setting.low:
        return replace(before[1], dial=setting.dial)
    return positions(*shown(run, setting.dial, gamma))


def _maps(run: Run, gamma: int, shelf: _Shelf) -> list[dict[str, Any]]:
    """The map of all settings by each quantity; its marks named `DIAL_MARK` are moved by the page."""
    if run.dial_map is None:
        return []
    grid, dial = map_grid(run.dial_map), run.settings.dial
    made = (heat_map(grid, run, quantity, figures.LIGHT, dial=dial, gamma=gamma) for quantity in QUANTITIES)
    return [
        {"label": quantity.label, "spec": shelf.put(figure)} for quantity, figure in zip(QUANTITIES, made, strict=True)
    ]


class _Shelf:
    """Figures as Plotly's JSON, each once; the template, which is the same for all, apart."""

    def __init__(self, sky: Sky) -> None:
        self._sky = sky
        self.specs: list[Any] = []
        self.template: Any = {}
        self._known: dict[str, int] = {}

    def put(self, figure: go.Figure) -> int:
        """The index of this figure."""
        spec = figure.to_plotly_json()
        key = json.dumps(spec, sort_keys=True, default=_listed)
        if key not in self._known:
            self._known[key] = len(self.specs)
            self.template = spec["layout"].pop("template", self.template)
            traces = [self._trace(trace) for trace in spec["data"]]
            self.specs.append({"data": traces, "layout": _compact(spec["layout"])})
        return self._known[key]

    def _trace(self, trace: dict[str, Any]) -> dict[str, Any]:
        """A trace that the small bundle of Plotly draws."""
        if trace["type"] == "scattergl":
            trace["type"] = "scatter"
        told = {name: _array(item) for name, item in trace.items()}
        cloud = self._sky.cloud(told) if trace["type"] == "scatter" and trace.get("mode") == "markers" else None
        if cloud is None:
            return {name: _compact(item) for name, item in trace.items()}
        return {name: _compact(item) for name, item in trace.items() if name not in cloud.columns} | {"cloud": cloud}


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else list(value)


def _compact(value: Any) -> Any:
    """Arrays in the least type that draws the same."""
    value = _array(value)
    if isinstance(value, dict):
        return {name: _compact(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_compact(item) for item in value]
    if isinstance(value, np.ndarray):
        return _smaller(value) if value.dtype.kind in "fiub" else value.tolist()
    return value


def _array(value: Any) -> Any:
    """An array that Plotly has written as base64; anything else as it is."""
    if not isinstance(value, dict) or "bdata" not in value:
        return value
    data = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
    return data.reshape([int(length) for length in str(value.get("shape", data.size)).split(",")])


def _smaller(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        whole = np.isfinite(array).all() and (array == np.rint(array)).all() and np.abs(array).max(initial=0) < 2**15
        return array.astype(np.int16 if whole else np.float32)
    return array.astype(np.int16 if np.abs(array).max(initial=0) < 2**15 else np.int32)
