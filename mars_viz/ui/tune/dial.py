"""The dial of the Tune page. The browser shows the key figures while it is dragged.

They are computed in advance, at the settings where texts change. If there are too many, evenly spaced ones and the
recommended setting are used, and the browser shows which one it reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mars_viz.analysis.intervals import Band
from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.figures.style import DIAL_MARK
from mars_viz.sweep.figure_words import cell, told
from mars_viz.ui.tune.cached_sweep import BANDS, KEY, CachedSweep

LARGEST_DIGITS = 3  # maximum number of decimals of a dial with steps smaller than 1


def turned(cached: CachedSweep, dial: float, home: float, sweep: str, *, paired: bool) -> float:
    """Draw the dial at this value with the key figures below, and return its new value.

    `home` is the recommended setting, reached by a double click. `paired` selects the frontier.
    """
    data = cached.kept(("readings", home, paired), lambda: readings(cached, home, paired=paired))
    plan, own = cached.plan, cached.plan.dial
    ends = ("looser", "strict") if plan.controller is None else ("shorter drafts", "full drafts")
    ends = ends if plan.span.refers_high(plan.rule) else ends[::-1]
    tip = f"{plan.strict:g} is {plan.against}, {own.default:g} the default; a double click goes to {home:g}"
    digits = 0 if own.step >= 1 else LARGEST_DIGITS
    name = f"{ends[0]} ← {own.name} {plan.symbol} → {ends[1]}"
    knob = Knob("dial", name, home, plan.low, plan.high, own.step, digits=digits, help=tip, exact=True)
    label = "Key figures at the dial and at strict"
    return lesson_figure(Kind.SETTING, [knob], data, {"dial": dial}, key=f"tune-dial-{sweep}", label=label)["dial"]


def readings(cached: CachedSweep, home: float, *, paired: bool) -> dict[str, Any]:
    """Return JSON data for the component: `rows` with a key figure each, and `places` with an interval of the dial
    each.

    If there are too many intervals, one starts at `home`, the recommended setting. `x` and `y` are the mark's position
    on the frontier, None if the figure's axis is the dial.
    """
    names = [name for name in KEY if name in cached.measures]
    curves = {name: cached.curve(name) for name in names}
    dials = curves[names[0]].dials
    thinned = len(cached.result.edges) > BANDS
    marks = _marks(cached, dials, cached.plan.strict, paired) if cached.graded else [(None, None)] * len(dials)
    rows = [
        {
            "title": cached.measures[name].title,
            "kind": "modelled" if cached.measures[name].modelled else "exact",
            "strict": cell(cached.measures[name], cached.value(name, cached.plan.strict)),
        }
        for name in names
    ]
    places = [
        _place(low, [told(name, _at(curves[name].band, place)) for name in names], mark)
        for place, (low, mark) in enumerate(zip(dials.tolist(), marks, strict=True))
    ]
    if thinned and home not in dials:
        cells = [cell(cached.measures[name], cached.value(name, home)) for name in names]
        (mark,) = _marks(cached, np.array([home]), home, paired) if cached.graded else [(None, None)]
        places.insert(int(np.searchsorted(dials, home)), _place(home, cells, mark))
    if cached.plan.strict == cached.plan.low < cached.plan.high:
        # the texts at strict are exact, but an estimate right next to it
        next_to_strict = float(np.nextafter(cached.plan.low, np.inf))
        cells = [cell(cached.measures[name], cached.value(name, next_to_strict)) for name in names]
        places.insert(1, _place(next_to_strict, cells, marks[0]))
    return {
        "symbol": cached.plan.symbol,
        "against": cached.plan.against,
        "chart": "frontier" if cached.graded else "pace",
        "mark": DIAL_MARK,
        "thinned": thinned,
        "rows": rows,
        "places": places,
    }


def _place(low: float, cells: list[str], mark: tuple[float | None, float | None]) -> dict[str, Any]:
    return {"low": low, "cells": cells, "x": mark[0], "y": mark[1]}


def _at(band: Band, place: int) -> list[float]:
    """Return estimate and both ends at one index; without a dial there is only one."""
    return [float(ends[min(place, len(ends) - 1)]) for ends in (band.estimate, band.low, band.high)]


def _marks(
    cached: CachedSweep, dials: np.ndarray, through: float, paired: bool
) -> list[tuple[float | None, float | None]]:
    """Return the position of the mark on the frontier `through` a setting at each dial value: accuracy in per cent or
    points, and speed-up."""
    path = cached.path(through, paired=paired)
    across, up = 100 * path.accuracy.estimate, path.speed_up.estimate
    near = [min(int(np.searchsorted(path.dials, low)), len(path.dials) - 1) for low in dials.tolist()]
    return [(_finite(across[place]), _finite(up[place])) for place in near]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
