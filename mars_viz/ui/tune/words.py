"""Sentences of the Tune page, as plain text that the caller escapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mars_viz.figures.frontier import RulePath
from mars_viz.ui.tune.jobs import Sweeping
from mars_viz.words import counted, exact_setting, number, times


def trade(paths: Sequence[RulePath], points: float) -> str:
    """Return the fastest rule for the tolerated loss of accuracy."""
    ranked: list[tuple[float, str]] = []
    for each in paths:
        place = each.path.best_within(each.strict, points)
        speed, at = float(each.path.speed_up.estimate[place]), exact_setting(each.symbol, float(each.path.dials[place]))
        ranked.append((-speed, f"{each.name} {times(speed)}× at {at}"))
    parts = [words for _, words in sorted(ranked, key=lambda row: row[0])]
    allowed = f"{number(points)} {'point' if points == 1 else 'points'}"
    return (
        f"Fastest settings that lose at most {allowed} on these prompts, over {paths[0].path.over}: "
        f"{'; '.join(parts)}. Other prompts may differ."
    )


def going(now: Sweeping) -> str:
    """Return a sentence about a running sweep."""
    if not now.prompts:
        return "Loading the models and measuring what their passes cost on this device …"
    words = f"{number(now.finished)} of {counted(now.prompts, 'prompt')} done"
    if now.failed:
        words += f", {number(now.failed)} of them without results"
    if now.workers:
        words += f", by {counted(len(now.workers), 'worker')}: {' + '.join(map(number, now.workers))}"
    return words + ("" if math.isnan(now.left) else f"; about {duration(now.left)} to go")


def duration(seconds: float) -> str:
    """Return a duration like '40 seconds', '6 minutes' or '2.5 hours'."""
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    if seconds < 5400:
        return counted(round(seconds / 60), "minute")
    return f"{number(round(seconds / 3600, 1))} hours"
