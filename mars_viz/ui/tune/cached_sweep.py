"""A sweep that is looked at: its figures, each computed when it is first asked for, and kept.

Knows sweeps and figures; knows no Streamlit. One serves all tabs, so nothing in it depends on a tab.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import numpy as np

from mars_viz.analysis.engines import EngineRow, acceptance_table
from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Frontier, Interval
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.figures.dial_curve import DialCurve
from mars_viz.samples import is_sample_sweep
from mars_viz.sweep import SweepResult, band_at, curve, frontier, measures, places, value_at
from mars_viz.sweep.by_task import TaskResults, by_task
from mars_viz.sweep.measures import ALONE, PERCENT, Measure, RelaxedBands, relaxed_bands
from mars_viz.sweep.result import chosen_dial
from mars_viz.sweep.threshold import advised

T = TypeVar("T")
BANDS = 129
"""Dial values at which the frontier's and a curve's intervals are computed, at most."""
KEY = ("accuracy", "accuracy_change", "speed_up", "speed_up_strict", "drafted_share", "tau", "rolled_back", "same")
"""Figures beside the frontier."""
_MOST_KEPT = 2_000
_NOTHING = object()


class CachedSweep:
    """A sweep's figures, with intervals of one kind."""

    def __init__(self, result: SweepResult, how: Bootstrap = DEFAULT) -> None:
        self.result = result
        self.how = how
        """How every interval is made."""
        self.plan = result.plan
        self.measures: dict[str, Measure] = measures(result)
        """Those that this sweep has."""
        self._known: dict[Hashable, object] = {}

    @property
    def several_tasks(self) -> bool:
        """True if its prompts are of more than one task."""
        return self.kept(("several tasks",), lambda: len(set(self.result.prompts["category"].tolist())) > 1)

    def by(self, how: Bootstrap) -> CachedSweep:
        """The same sweep with intervals made like this."""
        if how == self.how:
            return self
        return self.kept(("intervals", how), lambda: CachedSweep(self.result, how))

    @property
    def accuracy_known(self) -> bool:
        """True if any prompt is graded."""
        return "accuracy" in self.measures

    @property
    def shipped(self) -> bool:
        """True of a sample, which stays as it is."""
        return is_sample_sweep(self.result.folder)

    @property
    def graded(self) -> bool:
        """True if accuracy is known, and a speed-up to set against it."""
        return "accuracy" in self.measures and "speed_up_strict" in self.measures

    @property
    def pace(self) -> str:
        """The name of the speed-up to speak of; where there is none, for a controller cuts drafts and what rounds cost
        is not known, τ."""
        return next(name for name in ("speed_up", "speed_up_strict", "tau") if name in self.measures)

    def recommendation(self, points: float, confidence: float, among: int = 1) -> Recommendation | None:
        """See `advised`."""
        key = ("recommendation", points, confidence, among)
        return self.kept(key, lambda: advised(self.result, points, confidence, among, self.how))

    def dial(self, asked: float | None, points: float, confidence: float) -> float:
        """The setting asked for, or else the one that the sweep speaks for."""
        return chosen_dial(self.result, self.recommendation(points, confidence)) if asked is None else asked

    def value(self, name: str, dial: float) -> Interval:
        """A figure at a setting, with its interval."""
        return self.kept(("value", name, dial), lambda: value_at(self.result, self.measures[name], dial, self.how))

    def tasks(self, dial: float) -> tuple[TaskResults, ...]:
        """The figures of a setting task by task; none where there is one task only."""
        strict = self.plan.strict
        known = () if dial == strict else self.tasks(strict)
        return self.kept(("tasks", dial), lambda: by_task(self.result, dial, self.how, known))

    def regraded(self, dial: float) -> int:
        """Prompts that strict and this setting grade differently."""
        now, strict = (self.result.at("right", np.array([at])) for at in (dial, self.plan.strict))
        return int(np.count_nonzero(now != strict))

    def path(self, dial: float, *, paired: bool) -> Frontier:
        """The frontier, with this setting on it."""
        whole = self.kept(("path", paired), lambda: frontier(self.result, self.how, BANDS, paired=paired))
        if dial in whole.dials:
            return whole
        key = ("place", paired, dial)
        speed = "speed_up" if whole.over == ALONE else "speed_up_strict"
        right = "accuracy_change" if paired else "accuracy"
        return self.kept(key, lambda: whole.through(dial, self.value(right, dial), self._graded(speed, dial)))

    def curve(self, name: str) -> DialCurve:
        """A figure along the dial."""
        return self.kept(("curve", name), lambda: self._curve(self.measures[name]))

    def relaxed(self, dial: float) -> RelaxedBands:
        """What the relaxed tokens are."""
        return self.kept(("relaxed", dial), lambda: relaxed_bands(self.result, dial, self.how))

    def engines(self, dial: float) -> tuple[EngineRow, ...]:
        """Acceptance in every engine's words."""
        return self.kept(
            ("engines", dial),
            lambda: acceptance_table(self.result.acceptance(dial), units=self.result.units, how=self.how),
        )

    def _graded(self, name: str, dial: float) -> Interval:
        """A speed-up on the graded prompts alone, as on the frontier."""
        measure = self.measures[name]
        graded = Measure(name, measure.title, measure.columns, measure.of, graded=True)
        return value_at(self.result, graded, dial, self.how)

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
        """What `make` made when it was first asked for under this key."""
        known = self._known.get(key, _NOTHING)  # looked up once: another tab may clear it in between
        if known is not _NOTHING:
            return cast(T, known)
        if len(self._known) > _MOST_KEPT:
            self._known.clear()
        found = make()
        self._known[key] = found
        return found
