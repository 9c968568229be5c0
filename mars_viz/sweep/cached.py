"""A sweep's figures at any setting, each computed once.

Several browser tabs may share the figures, so they must not depend on a tab.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import numpy as np

from mars_viz.analysis.engines import EngineRow, acceptance_table
from mars_viz.analysis.intervals import DEFAULT, Band, Bootstrap, Frontier, Interval
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.figures.dial_curve import DialCurve
from mars_viz.samples import is_sample_sweep
from mars_viz.sweep.grid import advised
from mars_viz.sweep.measures import (
    ALONE,
    PERCENT,
    Measure,
    band_at,
    curve,
    frontier,
    measures,
    places,
    relaxed_at,
    value_at,
)
from mars_viz.sweep.report import TaskResults, by_task
from mars_viz.sweep.result import SweepResult, chosen_dial

T = TypeVar("T")
BANDS = 129  # maximum number of dial values at which intervals of the frontier and of curves are computed
PACES = ("speed_up", "speed_up_strict", "tau")  # measures of speed, the preferred first
_MOST_KEPT = 2_000
_NOTHING = object()


class CachedSweep:
    """A sweep's figures, with one kind of interval."""

    def __init__(self, result: SweepResult, how: Bootstrap = DEFAULT) -> None:
        self.result = result
        self.how = how  # method and confidence of all intervals
        self.plan = result.plan
        self.measures: dict[str, Measure] = measures(result)  # measures that this sweep has
        self._cache: dict[Hashable, object] = {}

    def by(self, how: Bootstrap) -> CachedSweep:
        """Return the same sweep with other intervals."""
        if how == self.how:
            return self
        return self.kept(("intervals", how), lambda: CachedSweep(self.result, how))

    @property
    def shipped(self) -> bool:
        """True for an included sample, which is read-only."""
        return is_sample_sweep(self.result.folder)

    @property
    def graded(self) -> bool:
        """True if both accuracy and a speed-up are known."""
        return "accuracy" in self.measures and "speed_up_strict" in self.measures

    @property
    def pace(self) -> str:
        """Name of the preferred measure of speed: a speed-up, or τ if the costs of cut rounds are unknown."""
        return next(name for name in PACES if name in self.measures)

    def recommendation(self, points: float, confidence: float, among: int = 1) -> Recommendation | None:
        """Return `advised`, cached."""
        key = ("recommendation", points, confidence, among)
        return self.kept(key, lambda: advised(self.result, points, confidence, among, self.how))

    def dial(self, requested: float | None, points: float, confidence: float) -> float:
        """Return the requested setting, or the recommended one if `requested` is None."""
        return chosen_dial(self.result, self.recommendation(points, confidence)) if requested is None else requested

    def value(self, name: str, dial: float) -> Interval:
        """Return a figure at a setting, with its interval."""
        return self.kept(("value", name, dial), lambda: value_at(self.result, self.measures[name], dial, self.how))

    def tasks(self, dial: float) -> tuple[TaskResults, ...]:
        """Return the figures at a setting by task; empty if there is only one task."""
        strict = self.plan.strict
        at_strict = () if dial == strict else self.tasks(strict)
        return self.kept(("tasks", dial), lambda: by_task(self.result, dial, self.how, at_strict))

    def path(self, dial: float, *, paired: bool) -> Frontier:
        """Return the frontier, including this setting."""
        path = self.kept(("path", paired), lambda: frontier(self.result, self.how, BANDS, paired=paired))
        if dial in path.dials:
            return path
        key = ("place", paired, dial)
        speed = "speed_up" if path.over == ALONE else "speed_up_strict"
        right = "accuracy_change" if paired else "accuracy"
        measure = self.measures[speed]  # of the graded prompts only, as on the frontier
        graded = Measure(speed, measure.title, measure.columns, measure.of, graded=True)
        return self.kept(
            key, lambda: path.through(dial, self.value(right, dial), value_at(self.result, graded, dial, self.how))
        )

    def curve(self, name: str) -> DialCurve:
        """Return a figure over the dial."""
        return self.kept(("curve", name), lambda: self._curve(self.measures[name]))

    def relaxed(self, dial: float) -> dict[str, tuple[np.ndarray, Band]]:
        """Return `relaxed_at`, cached."""
        return self.kept(("relaxed", dial), lambda: relaxed_at(self.result, dial, self.how))

    def engines(self, dial: float) -> tuple[EngineRow, ...]:
        """Return the acceptance as each engine defines it."""
        return self.kept(
            ("engines", dial),
            lambda: acceptance_table(self.result.acceptance(dial), units=self.result.units, how=self.how),
        )

    def _curve(self, measure: Measure) -> DialCurve:
        dials = places(self.result, BANDS)
        return DialCurve(
            title=measure.title,
            symbol=self.plan.symbol,
            steps=curve(self.result, measure),
            dials=dials,
            band=band_at(self.result, measure, np.asarray(dials), self.how),
            strict=self.plan.strict,
            percent=measure.name in PERCENT,
            modelled=measure.modelled,
            against=self.plan.against,
        )

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached result of `make` under this key."""
        cached = self._cache.get(key, _NOTHING)  # a single lookup, because another tab may clear the cache
        if cached is not _NOTHING:
            return cast(T, cached)
        if len(self._cache) > _MOST_KEPT:
            self._cache.clear()
        result = make()
        self._cache[key] = result
        return result
