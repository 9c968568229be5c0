"""A sweep's figures at its settings, by task, along the dial, and with several texts at once; and those of a grid.

A task is a prompt's category. Between the ends of a stretch of the dial every printed figure is equal at all settings,
not only at sampled ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from mars_viz.analysis.engines import EngineRow, acceptance_table
from mars_viz.analysis.intervals import DEFAULT, Band, Bootstrap, Frontier, Interval, Steps
from mars_viz.analysis.recommendation import Finding, Recommendation
from mars_viz.bounds import parsed, strict_json
from mars_viz.costs import BatchCosts, Costs, objection, ratio
from mars_viz.errors import RunFileError, SettingError, disk_refusals
from mars_viz.figures.frontier import DialCurve
from mars_viz.samples import is_sample_sweep
from mars_viz.sweep.grid import GridAxis, advised, chosen_dial, varied_axis
from mars_viz.sweep.measures import (
    ALONE,
    PERCENT,
    Measure,
    Terms,
    alone,
    band_at,
    costed,
    curve,
    frontier,
    measures,
    places,
    positions_at,
    relaxed_at,
    scaled,
    tau_of_lengths,
    told,
    value_at,
)
from mars_viz.sweep.result import SweepResult
from mars_viz.words import exact_setting
from mars_viz.writer import csv_of, json_of, picked, to_read, write_file

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
BANDS = 129  # maximum number of dial values at which intervals of the frontier and of curves are computed
PACES = ("answer", "answer_strict", "tau")  # measures of speed, the preferred first
_MOST_KEPT = 2_000
_NOTHING = object()
TOLD = (
    *("accuracy", "accuracy_change", "answer", "answer_strict", "speed_up", "speed_up_strict"),
    *("tau", "length", "cut_off", "looping", "drafted_share", "same"),
)
"""Figures of a table along the dial; settings with equal printed values share a row."""
COUNTS = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "same")
"""Sums over all prompts in `stretches_csv`."""


@dataclass(frozen=True, slots=True)
class DialStretch:
    """Settings with equal printed figures."""

    low: float
    high: float  # start of the next stretch; for the last one its largest value
    dial: float  # a setting in it, at which its figures were taken
    last: bool  # True if it includes its high end

    @property
    def shown(self) -> tuple[float, float]:
        """Both ends with the fewest decimals (at least three) that keep them inside."""
        for decimals in range(3, 17):
            scale = 10.0**decimals
            low = math.ceil(self.low * scale) / scale
            high = (math.floor(self.high * scale) if self.last else math.ceil(self.high * scale) - 1) / scale
            if self.low <= low <= high <= self.high and (self.last or high < self.high):
                return low, high
        return self.dial, self.dial


def stretches(
    result: SweepResult, dials: Sequence[float] | np.ndarray, names: Sequence[str]
) -> tuple[DialStretch, ...]:
    """Return the stretches that contain any of these dial values, ascending. Each of the named figures prints equally
    over a stretch. A stretch's `dial` is the last given value in it, so give important values last."""
    by_name, edges = measures(result), result.edges
    lows = edges[:-1]
    words = np.stack([_words(result, by_name[name]) for name in names if name in by_name])  # [names, S]
    begins = np.append(True, (words[:, 1:] != words[:, :-1]).any(axis=0))
    starts = lows[begins]
    dial_of: dict[int, float] = {}
    for dial in np.asarray(dials, np.float64).tolist():
        dial_of[int(np.searchsorted(starts, dial, side="right")) - 1] = dial
    ends = np.append(starts[1:], result.plan.high)
    return tuple(
        DialStretch(float(starts[place]), float(ends[place]), dial_of[place], place == len(starts) - 1)
        for place in sorted(dial_of)
    )


def _words(result: SweepResult, measure: Measure) -> np.ndarray:
    """Return the printed figure on each stretch, [S]."""
    values = curve(result, measure).on(result.edges)
    distinct, places = np.unique(values, return_inverse=True)
    return np.array([alone(measure.name, float(value)) for value in distinct])[places]


def stretches_csv(result: SweepResult) -> str:
    """Return a line per stretch of unchanged texts: sums over all prompts and the number of right ones. A stretch is
    `dial_from` <= dial < `dial_to`; the last one includes its end."""
    edges = result.edges
    sums = {name: _on(result.summed(name), edges) for name in COUNTS}
    if result.graded.any():
        sums["right"] = _on(result.summed("right", result.graded), edges)
    ends = np.append(edges[1:-1], result.plan.high)
    lines = zip(edges[:-1].tolist(), ends.tolist(), *(values.tolist() for values in sums.values()), strict=True)
    return csv_of(["dial_from", "dial_to", *sums], [list(line) for line in lines])


def _on(steps: Steps, edges: np.ndarray) -> np.ndarray:
    return np.asarray(steps.on(edges).round().astype(np.int64))


TOGETHER = "together"  # the row of all tasks
FIGURES = ("accuracy_change", "accuracy", "tau", "answer_strict", "answer", "looping")  # of each task, in order


@dataclass(frozen=True, slots=True)
class TaskResults:
    """The figures of one task, or of all together."""

    task: str  # its name; TOGETHER for all
    prompts: int  # number of prompts with results
    graded: int  # number of these that are graded
    strict: Mapping[str, Interval]
    """By figure, at the strict end; figures that need grades are absent if no prompt is graded."""
    chosen: Mapping[str, Interval]  # by figure, at the chosen setting


def cached(method: F) -> F:
    """Make a method of `CachedSweep` keep its results by its arguments."""

    @wraps(method)
    def kept(sweep: CachedSweep, *given: Any, **named: Any) -> Any:
        return sweep.kept((method.__name__, *given, *named.items()), lambda: method(sweep, *given, **named))

    return cast(F, kept)


class CachedSweep:
    """A sweep's figures with one kind of interval, each computed once. Browser tabs share them, so they must not depend
    on a tab."""

    def __init__(self, result: SweepResult, how: Bootstrap = DEFAULT) -> None:
        self.result = result
        self.how = how  # method and confidence of all intervals
        self.plan = result.plan
        self.measures: dict[str, Measure] = measures(result)  # measures that this sweep has
        self._cache: dict[Hashable, object] = {}

    def by(self, how: Bootstrap) -> CachedSweep:
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
        return "accuracy" in self.measures and "answer_strict" in self.measures

    @property
    def pace(self) -> str:
        """Name of the preferred measure of speed: a speed-up, or τ if the costs of cut rounds are unknown."""
        return next(name for name in PACES if name in self.measures)

    @cached
    def recommendation(self, terms: Terms, among: int = 1) -> Recommendation:
        return advised(self.result, terms, among)

    def dial(self, requested: float | None, terms: Terms) -> float:
        """Return the requested setting, or the recommended one if `requested` is None."""
        return chosen_dial(self.result, self.recommendation(terms)) if requested is None else requested

    @cached
    def value(self, name: str, dial: float) -> Interval:
        return value_at(self.result, self.measures[name], dial, self.how)

    @cached
    def tasks(self, dial: float) -> tuple[TaskResults, ...]:
        """Return a row per task in the sweep's order and one for all together; empty for a single task."""
        categories, graded, rows = self.result.prompts["category"].astype(str), self.result.graded, []
        groups = {task: categories == task for task in dict.fromkeys(categories.tolist())}
        if len(groups) < 2:
            return ()
        for task, members in [*groups.items(), (TOGETHER, np.ones(len(self.result), bool))]:
            strict, chosen = (
                self.kept(("task", task, at), partial(self._task, members, at)) for at in (self.plan.strict, dial)
            )
            rows.append(TaskResults(task, int(members.sum()), int((members & graded).sum()), strict, chosen))
        return tuple(rows)

    def _task(self, members: np.ndarray, dial: float) -> dict[str, Interval]:
        intervals = {}
        for name in (each for each in FIGURES if each in self.measures):
            rows = np.flatnonzero(members & self.result.graded if self.measures[name].graded else members)
            if len(rows):
                units = self.result.units_of(rows)
                intervals[name] = value_at(self.result, self.measures[name], dial, self.how, rows, units)
        return intervals

    @cached
    def path(self, dial: float, *, paired: bool) -> Frontier:
        """Return the frontier, including this setting."""
        path = self.kept(("path", paired), lambda: frontier(self.result, self.how, BANDS, paired=paired))
        if dial in path.dials:
            return path
        graded = self.measures["answer" if path.over == ALONE else "answer_strict"].of_graded
        right = self.value("accuracy_change" if paired else "accuracy", dial)
        return path.through(dial, right, value_at(self.result, graded, dial, self.how))

    @cached
    def curve(self, name: str) -> DialCurve:
        measure, dials = self.measures[name], places(self.result, BANDS)
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

    @cached
    def relaxed(self, dial: float) -> dict[str, tuple[np.ndarray, Band]]:
        return relaxed_at(self.result, dial, self.how)

    @cached
    def positions(self, dial: float) -> dict[str, list[Interval]]:
        return positions_at(self.result, dial, self.how)

    @cached
    def engines(self, dial: float) -> tuple[EngineRow, ...]:
        """Return the acceptance as each engine defines it."""
        return acceptance_table(self.result.acceptance(dial), units=self.result.units, how=self.how)

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


@dataclass(frozen=True, slots=True)
class Advised:
    """A sweep and its recommendation."""

    sweep: CachedSweep
    found: Recommendation

    @classmethod
    def each(cls, sweeps: Sequence[CachedSweep], terms: Terms) -> list[Advised]:
        """Return every sweep with its recommendation, tested as one of several."""
        return [cls(each, each.recommendation(terms, len(sweeps))) for each in sweeps]


@dataclass(frozen=True, slots=True)
class GridTable:
    """Variants of a rule, V of them, at D dial values."""

    axis: GridAxis
    variants: tuple[Advised, ...]  # one sweep each, by rising setting
    dials: np.ndarray  # float64 [D]; ascending, swept by all variants

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(self.axis.value_of(each.sweep.plan.settings) for each in self.variants)

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the figures that all variants have, by name."""
        first, *others = (each.sweep.measures for each in self.variants)
        return {name: measure.title for name, measure in first.items() if all(name in each for each in others)}

    @property
    def symbol(self) -> str:
        return self.variants[0].sweep.plan.symbol

    def facts(self) -> dict[str, Any]:
        """Return everything as plain data: a row per variant with a row per dial value."""
        rows = []
        for value, variant in zip(self.values, self.variants, strict=True):
            sweep = variant.sweep
            bands = {name: band_at(sweep.result, sweep.measures[name], self.dials, sweep.how) for name in self.titles}
            row = {"value": value, "rule": sweep.plan.rule.name, "prompts": len(sweep.result)}
            row |= {"positions": sweep.result.positions, "recommendation": asdict(variant.found)}
            rows.append(
                row | {"dials": [{"dial": dial} | cells_at(bands, n) for n, dial in enumerate(self.dials.tolist())]}
            )
        setting = picked(self.axis.setting, "key", "symbol", "name", "default", "meaning")
        return {"setting": setting, "dial": self.symbol, "titles": self.titles, "rows": rows}


def grid_table(variants: Sequence[Advised], dials: Sequence[float] | np.ndarray) -> GridTable:
    """Return the table at common dial values. Raises BadInput if the sweeps form no grid or are unfinished."""
    plans = [each.sweep.plan for each in variants]
    axis = varied_axis(plans)
    if any(not each.sweep.result.complete for each in variants):
        raise SettingError("A sweep of the grid is not finished, so its prompts are others; go on with it (--resume).")
    low, high = max(plan.low for plan in plans), min(plan.high for plan in plans)
    values = np.unique(np.asarray(dials, np.float64))
    ordered = sorted(variants, key=lambda each: axis.value_of(each.sweep.plan.settings))
    return GridTable(axis, tuple(ordered), values[(values >= low) & (values <= high)])


def cells_at(bands: Mapping[str, Band], place: int) -> dict[str, dict[str, float]]:
    """Return every figure at one dial value: its estimate and the ends of its interval."""
    return {name: picked(band.at(place), "estimate", "low", "high") for name, band in bands.items()}


def best_of(variants: Sequence[Advised]) -> Advised:
    """Return the variant with the fastest recommended setting, else that of the rule's defaults, or the first. For a
    grid of thresholds its recommendation names the pair of threshold and dial."""
    safe = [each for each in variants if each.found.finding is Finding.RECOMMENDED]
    if not safe:
        defaults = [each for each in variants if each.sweep.plan.rule.name == each.sweep.plan.rule.family]
        return (defaults or list(variants))[0]
    best = max(safe, key=_speed)
    return best if len(variants) < 2 else _with_pair(best)


def _speed(each: Advised) -> float:
    assert each.found.dial is not None  # it is recommended
    name = "answer_strict" if each.sweep.plan.cut_by is None else "answer"  # whose strict is cut, too
    return each.sweep.value(name, each.found.dial).estimate if name in each.sweep.measures else math.nan


def _with_pair(best: Advised) -> Advised:
    plan, dial = best.sweep.plan, best.found.dial
    control = plan.settings.control
    if control is None or dial is None or "modelled" not in best.sweep.result.lines:
        return best
    where = control.controller.advice(control.threshold)
    if control.threshold == control.controller.full(plan.settings.gamma):
        where = f"Draft all γ = {plan.settings.gamma} tokens"
    sentence = f"{where} and take {exact_setting(plan.symbol, dial)}. {best.found.sentence}"
    return replace(best, found=replace(best.found, sentence=sentence))


def losing(rows: Sequence[TaskResults], terms: Terms, against: str) -> str:
    """Return a sentence about tasks whose complete interval exceeds the tolerated loss; empty if there are none."""
    losses = []
    for row in rows[:-1]:
        change = row.chosen.get("accuracy_change")
        if change is not None and 100 * change.high < -terms.points:
            losses.append(f"{row.task} {told('accuracy_change', change.scaled(1))}")
    if not losses:
        return ""
    what = "one task loses" if len(losses) == 1 else f"{len(losses)} tasks lose"
    return f"By itself {what} more than is tolerated against {against}: {', '.join(losses)}."


def settings_of(result: SweepResult, dial: float) -> dict[str, float]:
    """Return a table's settings by label: strict, the chosen one, and the loosest swept one."""
    return {"strict": result.plan.strict, "chosen": dial, "loosest": result.plan.loosest}


def drawn(result: SweepResult) -> str:
    """Return the unit of resampling in words."""
    return "prompts" if result.units is None else "questions"


def missing(costs: Costs | None, folder: Path) -> str:
    """Return why a sweep has no modelled speed-up over the target alone, with a remedy; empty if it has one."""
    why = objection(costs)
    return why and (
        f"No speed-up over the target alone. {why} Measure again on a quiet machine: the same command with --resume "
        f"({folder})."
    )


_LOAD = "load.json"  # rounds of several texts at once, in the sweep's folder


def keep_batch_costs(folder: Path, costs: BatchCosts) -> None:
    """Store the costs with a sweep, in place of earlier ones. Raises BadInput if the disk refuses."""
    with disk_refusals(folder):
        write_file(folder / _LOAD, json_of(costs).encode() + b"\n", synced=True)


def kept_batch_costs(folder: Path) -> BatchCosts | None:
    """Return the costs stored with a sweep; None if there are none. Raises BadInput for a damaged file."""
    if not (folder / _LOAD).exists():
        return None
    with disk_refusals(folder / _LOAD, "read", "Remove it, and measure again.", RunFileError):
        costs = parsed(BatchCosts, strict_json(to_read(folder, _LOAD).read_bytes(), _LOAD), _LOAD)
    sizes, lengths = costs.sizes, {len(row) for row in costs.rounds}
    sound = all(0 < each.low <= each.seconds <= each.high for row in costs.rounds for each in row)
    sound = sound and len(lengths) == 1 and min(lengths) > 1
    if not (sound and len(sizes) == len(costs.rounds) and list(sizes) == sorted({*sizes})):
        raise RunFileError(f"{folder / _LOAD} contradicts itself. Remove it, and measure again.")
    return costs


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Modelled tokens per second of a setting relative to the target alone, with equally many texts at once."""

    costs: BatchCosts
    gamma: int  # the setting's number of drafted tokens
    counted: bool  # True if the tokens per round of all lengths were counted, False if those of shorter drafts follow
    speed_ups: tuple[tuple[Interval, ...], ...]  # [sizes, lengths]; drafts of 0, 1, … tokens; NaN for ones not swept
    best: tuple[int, ...]  # [sizes]; the fastest number of drafted tokens, 0 if none pays
    schedule: list[list[int]]
    """The fastest numbers as [first size, last size, tokens]: the form of vLLM's num_speculative_tokens_per_batch_size
    (docs/features/speculative_decoding/dynamic_speculative_decoding.md at 015a47e), which keeps the last entry for
    larger sizes. A measured size is taken for all up to the next one."""


def load_table(sweep: CachedSweep, dial: float, costs: BatchCosts) -> LoadTable:
    """Return the table of a setting. Raises BadInput if its drafts are no chains of one length, or not measured."""
    plan, gamma = sweep.plan, sweep.plan.length_at(dial)
    if gamma is None:
        raise SettingError("Several texts at once are modelled for chains of one length. Sweep such drafts.")
    names = plan.provenance.target, plan.provenance.drafter
    if (costs.target, costs.drafter) != names or len(costs.rounds[0]) <= plan.settings.gamma:
        raise SettingError("The batches were measured for other models or shorter drafts. Measure them again.")
    lengths = range(int(plan.low), int(plan.high) + 1) if plan.over else range(1, gamma + 1)
    taus, rows = tau_of_lengths(sweep.result, dial, lengths, sweep.how), []
    none = Interval(1.0, 1.0, 1.0, taus.confidence, taus.method)
    for target_pass, *others in costs.rounds:
        row = [none, *[replace(none, estimate=math.nan, low=math.nan, high=math.nan)] * (lengths[0] - 1)]
        for place, length in enumerate(lengths):
            factor = ratio(target_pass, others[length - 1])
            found = scaled(taus.at(place), factor.estimate)
            row.append(costed(found, (found.estimate, factor)).only)
        rows.append(tuple(row))
    best = tuple(int(np.nanargmax([each.estimate for each in row])) for row in rows)
    return LoadTable(costs, gamma, bool(plan.over), tuple(rows), best, _schedule(costs.sizes, best))


def _schedule(sizes: tuple[int, ...], best: tuple[int, ...]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for first, following, length in zip((1, *sizes[1:]), (*sizes[1:], sizes[-1] + 1), best, strict=True):
        if ranges and ranges[-1][2] == length:
            ranges[-1][1] = following - 1
        else:
            ranges.append([first, following - 1, length])
    return ranges
