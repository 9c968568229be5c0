"""Tune's dial, and what it says in the browser while it is held: the key figures for every stretch of it, in words.

All of it is computed before the hand moves, at the settings where texts change; of very many, at evenly chosen ones and
at the one that the sweep speaks for, and then the browser says which one it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from mars_viz.analysis.intervals import Band
from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.figures.style import DIAL_MARK
from mars_viz.sweep.figure_words import cell, told
from mars_viz.ui.tune.cached_sweep import BANDS, KEY, CachedSweep

LARGEST_DIGITS = 3
"""Decimals of a dial that moves in steps smaller than 1."""


def turned(study: CachedSweep, dial: float, home: float, sweep: str, *, paired: bool) -> float:
    """Show the dial at this value, with the key figures under it, and return where it rests.

    `home` is where a double click leads: the setting that the sweep speaks for. `paired` says which frontier is shown.
    """
    told = study.kept(("readings", home, paired), lambda: readings(study, home, paired=paired))
    label = "Key figures at the dial and at strict"
    stands = lesson_figure(
        Kind.SETTING, [_knob(study, home)], told, {"dial": dial}, key=f"tune-dial-{sweep}", label=label
    )
    return stands["dial"]


def _knob(study: CachedSweep, home: float) -> Knob:
    plan = study.plan
    dial = plan.dial
    ends = ("looser", "strict") if plan.controller is None else ("shorter drafts", "full drafts")
    ends = ends if plan.span.refers_high(plan.rule) else ends[::-1]
    return Knob(
        "dial",
        f"{ends[0]} ← {dial.name} {plan.symbol} → {ends[1]}",
        home,
        plan.low,
        plan.high,
        dial.step,
        digits=0 if dial.step >= 1 else LARGEST_DIGITS,
        help=f"{plan.strict:g} is {plan.against}, {dial.default:g} the default; a double click goes to {home:g}",
        exact=True,
    )


def readings(study: CachedSweep, home: float, *, paired: bool) -> dict[str, Any]:
    """Plain JSON for the component's figure of a setting: `rows`, a key figure each, and `places`, a stretch each.

    Where there are too many of those, one is from `home` on, the setting that the sweep speaks for.

    `x` and `y` are where the setting's mark stands on the frontier, None where the figure has the dial itself across.
    """
    names = [name for name in KEY if name in study.measures]
    curves = {name: study.curve(name) for name in names}
    dials = curves[names[0]].dials
    thinned = len(study.result.edges) > BANDS
    marks = _marks(study, dials, study.plan.strict, paired) if study.graded else [(None, None)] * len(dials)
    rows = [
        {
            "title": study.measures[name].title,
            "kind": "modelled" if study.measures[name].modelled else "exact",
            "strict": cell(study.measures[name], study.value(name, study.plan.strict)),
        }
        for name in names
    ]
    places = [
        _place(low, [told(name, _at(curves[name].band, place)) for name in names], mark)
        for place, (low, mark) in enumerate(zip(dials.tolist(), marks, strict=True))
    ]
    if thinned and home not in dials:
        cells = [cell(study.measures[name], study.value(name, home)) for name in names]
        (mark,) = _marks(study, np.array([home]), home, paired) if study.graded else [(None, None)]
        places.insert(int(np.searchsorted(dials, home)), _place(home, cells, mark))
    if study.plan.strict == study.plan.low < study.plan.high:
        # beside strict its own texts are an estimate again, which at strict they are not
        beside = float(np.nextafter(study.plan.low, np.inf))
        cells = [cell(study.measures[name], study.value(name, beside)) for name in names]
        places.insert(1, _place(beside, cells, marks[0]))
    return {
        "symbol": study.plan.symbol,
        "against": study.plan.against,
        "chart": "frontier" if study.graded else "pace",
        "mark": DIAL_MARK,
        "thinned": thinned,
        "rows": rows,
        "places": places,
    }


def _place(low: float, cells: list[str], mark: tuple[float | None, float | None]) -> dict[str, Any]:
    return {"low": low, "cells": cells, "x": mark[0], "y": mark[1]}


def _at(band: Band, place: int) -> list[float]:
    """Estimate, low and high end at one place; those of the only one there is where no dial moves them."""
    return [float(ends[min(place, len(ends) - 1)]) for ends in (band.estimate, band.low, band.high)]


def _marks(
    study: CachedSweep, dials: np.ndarray, through: float, paired: bool
) -> list[tuple[float | None, float | None]]:
    """Where the mark on the frontier `through` a setting stands at each dial value: accuracy in per cent or points, and
    the speed-up."""
    path = study.path(through, paired=paired)
    across, up = 100 * path.accuracy.estimate, path.speed_up.estimate
    near = [min(int(np.searchsorted(path.dials, low)), len(path.dials) - 1) for low in dials.tolist()]
    return [(_known(across[place]), _known(up[place])) for place in near]


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
