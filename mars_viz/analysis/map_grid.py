"""A dial map as a table over (γ, dial) of each setting's results. Exact if the map is complete."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.intervals import Steps, combined
from mars_viz.costs import Cost, Costs, Factor, objection, ratio, round_cost
from mars_viz.exploration import DialMap, Segment
from mars_viz.run import Run
from mars_viz.shapes import CHAIN, length_name


@dataclass(frozen=True, slots=True)
class MapGrid:
    """One cell per setting: G block lengths by S dial segments on which no length's result changes."""

    symbol: str  # the dial's symbol
    length: str  # name of the numbers of drafted tokens, from `shapes.length_name`
    strict_is_high: bool  # True if a higher dial makes the rule stricter
    edges: np.ndarray  # float64 [S + 1]; ascending dial values
    gammas: tuple[int, ...]  # block lengths, ascending
    tokens: np.ndarray  # float64 [G, S]; tokens of the text; NaN if mapping stopped early
    rounds: np.ndarray  # float64 [G, S]; target passes; NaN if mapping stopped early

    @property
    def of_trees(self) -> bool:
        """True if drafts are trees, and the numbers those of their nodes."""
        return self.length != length_name(CHAIN)

    @property
    def tau(self) -> np.ndarray:
        """float64 [G, S]; tokens per round."""
        return np.asarray(self.tokens / self.rounds)

    def best(self, values: np.ndarray, *, least: bool = False) -> tuple[int, int] | None:
        """Return row and column of the largest (or least) value; of equal ones the strictest, then shortest block."""
        if np.isnan(values).all():
            return None
        best = np.nanmin(values) if least else np.nanmax(values)
        rows, columns = np.nonzero(np.isclose(values, best, rtol=1e-9))
        strictness = columns if self.strict_is_high else -columns
        choice = np.lexsort((rows, -strictness))[0]
        return int(rows[choice]), int(columns[choice])


def round_times(grid: MapGrid, run: Run, costs: Costs | None = None) -> tuple[tuple[Cost, ...] | None, str]:
    """Return the time of a round at each block length of the grid, None if nothing was timed, and its source, in words
    that follow 'modelled': measured passes of the run's pair, if reliable, otherwise the run's timings.

    From timings, a round of γ tokens takes γ times the drafting time of a token, plus the time for verification at the
    run's own γ, judging and commit. Each is the lower quartile. The evidence time is a mean, because much of it is
    computed for several rounds at once. A tree's timings are not valid for other sizes, and with a controller rounds
    differ in cost.
    """
    if run.settings.control is not None:
        return None, "nothing: a controller makes drafts, and so rounds, of different lengths"
    pair = (run.provenance.target, run.provenance.drafter, run.provenance.dtype)
    same_pair = costs is not None and (costs.target, costs.drafter, costs.dtype) == pair
    if costs and same_pair and costs.cover(grid.gammas[-1], run.settings.tree) and not objection(costs):
        source = f"from passes measured here, on {costs.device or 'an unknown device'}"
        return tuple(round_cost(costs, gamma) for gamma in grid.gammas), source
    rounds = [round_ for round_ in run.rounds if round_.timing.draft > 0 and len(round_.speculation)]
    if not rounds:
        return None, "this run was not timed"
    if run.settings.drafts_trees and grid.gammas != (run.settings.gamma,):
        return None, "by costs alone: this run's timings do not cover trees of other sizes"
    step = Cost.of([round_.timing.draft / (1 if grid.of_trees else len(round_.speculation)) for round_ in rounds])
    timings = [round_.timing for round_ in rounds]
    overhead = Cost.of([max(each.total - each.draft - each.evidence, each.verify) for each in timings])
    evidence = float(np.mean([each.evidence for each in timings]))
    device = run.provenance.device or "an unknown device"
    assumed = "drafting and verifying" if grid.of_trees else "verifying"
    source = f"from this run's timings, on {device}; {assumed} taken as at {grid.length} = {run.settings.gamma}"
    times = []
    for steps in (1 if grid.of_trees else gamma for gamma in grid.gammas):
        seconds = steps * step.seconds + overhead.seconds + evidence
        below = math.hypot(steps * (step.seconds - step.low), overhead.seconds - overhead.low)  # errors in quadrature
        above = math.hypot(steps * (step.high - step.seconds), overhead.high - overhead.seconds)
        times.append(Cost(seconds, seconds - below, seconds + above))
    return tuple(times), source


def modelled_speed_up(grid: MapGrid, run: Run, costs: Costs | None = None) -> np.ndarray:
    """Return tokens per second relative to the strict end at the run's own γ, modelled by `round_times`, float64 [G,
    S]. NaN if nothing was timed, or if the map lacks the strict end at that γ."""
    costs_of, _ = round_times(grid, run, costs)
    if run.settings.gamma not in grid.gammas or costs_of is None:
        return np.full_like(grid.tokens, np.nan)
    seconds = grid.rounds * np.array([each.seconds for each in costs_of])[:, None]
    speed = grid.tokens / seconds
    strict = speed[grid.gammas.index(run.settings.gamma), -1 if grid.strict_is_high else 0]
    return np.asarray(speed / strict)


def speed_up_interval(grid: MapGrid, run: Run, gamma: int, value: float, costs: Costs | None = None) -> Factor | None:
    """Return the interval of such a speed-up at this block length. It comes from the costs, because the counts of one
    prompt are exact. None at the run's own γ, which compares rounds of equal cost, and if nothing was timed."""
    rounds, _ = round_times(grid, run, costs)
    if rounds is None or gamma == run.settings.gamma:
        return None
    reference, other = (rounds[grid.gammas.index(each)] for each in (run.settings.gamma, gamma))
    by = ratio(reference, other)
    return Factor(value, value * by.low / by.estimate, value * by.high / by.estimate)


def map_grid(made: DialMap) -> MapGrid:
    """Return the map's results at every block length and dial value."""
    dial = made.rule.dial
    assert dial is not None  # a map is a map of a dial
    counts: tuple[Callable[[Segment], int], ...] = (lambda s: len(s.token_ids), lambda s: len(s.rounds))
    tokens, rounds = (
        combined(
            lambda *rows: np.stack(rows), *(along_dial(made.segments_for(gamma), read) for gamma in made.span.gammas)
        )
        for read in counts
    )
    length = length_name(made.frame.settings.tree)
    return MapGrid(
        dial.symbol, length, dial.strict_is_high, tokens.edges, made.span.gammas, tokens.values, rounds.values
    )


def along_dial(segments: Sequence[Segment], read: Callable[[Segment], float]) -> Steps:
    """Return a number of each segment as a step function of the dial; NaN if mapping stopped early."""
    values = [float(read(segment)) if segment.complete else math.nan for segment in segments]
    end = math.nextafter(segments[-1].high, math.inf)  # the last segment may be the strict end alone
    return Steps(np.array([*(segment.low for segment in segments), end]), np.array(values))
