"""A dial map as a table over (γ, dial): what every setting comes to. Exact where the map is complete.

Knows dial maps, and what a round takes; knows no figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.steps import Steps, stacked
from mars_viz.costs import Cost, Costs, Factor, objection, ratio, round_cost
from mars_viz.dialmap import DialMap, Segment
from mars_viz.records import Timing
from mars_viz.run import Run
from mars_viz.shapes import CHAIN, length_name


@dataclass(frozen=True, slots=True)
class MapGrid:
    """Cells of one setting each: G block lengths by S stretches of the dial on which none of them changes."""

    symbol: str
    """The dial's."""
    length: str
    """What the numbers of drafted tokens are called, as `shapes.length_name` says."""
    strict_is_high: bool
    """True where the rule gets stricter as the dial rises."""
    edges: np.ndarray
    """float64 [S + 1]; ascending dial values."""
    gammas: tuple[int, ...]
    """Block lengths, ascending."""
    tokens: np.ndarray
    """float64 [G, S]; tokens of the text; NaN where the map was cut short."""
    rounds: np.ndarray
    """float64 [G, S]; target passes; NaN likewise."""

    @property
    def of_trees(self) -> bool:
        """True where drafts are trees, and the numbers those of their nodes."""
        return self.length != length_name(CHAIN)

    @property
    def tau(self) -> np.ndarray:
        """float64 [G, S]; tokens per round."""
        return np.asarray(self.tokens / self.rounds)

    def best(self, values: np.ndarray, *, least: bool = False) -> tuple[int, int] | None:
        """Row and column of the largest (or least) value; the strictest, then the shortest block, among equals."""
        if np.isnan(values).all():
            return None
        best = np.nanmin(values) if least else np.nanmax(values)
        rows, columns = np.nonzero(np.isclose(values, best, rtol=1e-9))
        strictness = columns if self.strict_is_high else -columns
        choice = np.lexsort((rows, -strictness))[0]
        return int(rows[choice]), int(columns[choice])


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """What a draft-verify cycle takes at each block length of a grid, and where that is from."""

    rounds: tuple[Cost, ...] | None
    """[G]; None where nothing was timed."""
    source: str
    """In words, to stand after 'modelled'."""


def round_times(grid: MapGrid, run: Run, costs: Costs | None = None) -> RoundTimes:
    """From passes of the run's own pair that were measured here, for every block length, where they can be believed;
    else from the run's timings.

    By these a round of γ tokens takes γ times the drafting time of a token, and once what a round takes for
    verification at the run's own γ, judging and commit, each the lower quartile, and the mean one for evidence, of
    which much is computed for several rounds at once. Timings of a tree say nothing of trees of other sizes, and where
    a controller cuts drafts no round costs what another does.
    """
    if run.settings.control is not None:
        return RoundTimes(None, "nothing: a controller makes drafts, and so rounds, of different lengths")
    covered = costs is not None and _same_pair(costs, run) and costs.cover(grid.gammas[-1], run.settings.tree)
    if costs is not None and covered and not objection(costs):
        return RoundTimes(
            tuple(round_cost(costs, gamma) for gamma in grid.gammas),
            f"from passes measured here, on {costs.device or 'an unknown device'}",
        )
    rounds = [round_ for round_ in run.rounds if round_.timing.draft > 0 and len(round_.speculation)]
    if not rounds:
        return RoundTimes(None, "this run was not timed")
    if run.settings.drafts_trees and grid.gammas != (run.settings.gamma,):
        return RoundTimes(None, "by costs alone: this run's timings do not tell what trees of other sizes take")
    step = Cost.of([round_.timing.draft / (1 if grid.of_trees else len(round_.speculation)) for round_ in rounds])
    beside = Cost.of([_beside_drafting(round_.timing) for round_ in rounds])
    evidence = float(np.mean([round_.timing.evidence for round_ in rounds]))
    device = run.provenance.device or "an unknown device"
    taken = "drafting and verifying" if grid.of_trees else "verifying"
    source = f"from this run's timings, on {device}; {taken} taken as at {grid.length} = {run.settings.gamma}"
    steps = [1 if grid.of_trees else gamma for gamma in grid.gammas]
    return RoundTimes(tuple(_round_of(each, step, beside, evidence) for each in steps), source)


def _round_of(steps: int, step: Cost, beside: Cost, evidence: float) -> Cost:
    """Drafting steps and what comes beside them; their errors in quadrature."""
    seconds = steps * step.seconds + beside.seconds + evidence
    below = math.hypot(steps * (step.seconds - step.low), beside.seconds - beside.low)
    above = math.hypot(steps * (step.high - step.seconds), beside.high - beside.seconds)
    return Cost(seconds, seconds - below, seconds + above)


def _same_pair(costs: Costs, run: Run) -> bool:
    made = run.provenance
    return (costs.target, costs.drafter, costs.dtype) == (made.target, made.drafter, made.dtype)


def _beside_drafting(timing: Timing) -> float:
    """And besides evidence."""
    return max(timing.total - timing.draft - timing.evidence, timing.verify)


def modelled_speed_up(grid: MapGrid, run: Run, costs: Costs | None = None) -> np.ndarray:
    """float64 [G, S]; tokens per second over those of the strict end at the run's own γ, modelled by `round_times`.

    NaN where nothing was timed, and where the map does not hold the strict end at that γ.
    """
    if run.settings.gamma not in grid.gammas:
        return np.full_like(grid.tokens, np.nan)
    found = round_times(grid, run, costs).rounds
    if found is None:
        return np.full_like(grid.tokens, np.nan)
    seconds = grid.rounds * np.array([each.seconds for each in found])[:, None]
    speed = grid.tokens / seconds
    strict = speed[grid.gammas.index(run.settings.gamma), -1 if grid.strict_is_high else 0]
    return np.asarray(speed / strict)


def speed_up_interval(grid: MapGrid, run: Run, gamma: int, value: float, costs: Costs | None = None) -> Factor | None:
    """The interval of such a speed-up at this block length, which the costs make: of one prompt, the counts are exact.

    None at the run's own γ, where rounds of equal cost are compared, and where nothing was timed.
    """
    found = round_times(grid, run, costs).rounds
    if found is None or gamma == run.settings.gamma:
        return None
    own, other = (found[grid.gammas.index(each)] for each in (run.settings.gamma, gamma))
    by = ratio(own, other)
    return Factor(value, value * by.low / by.estimate, value * by.high / by.estimate)


def map_grid(made: DialMap) -> MapGrid:
    """What the map says of every block length and dial value."""
    dial = made.rule.dial
    assert dial is not None  # a map is a map of a dial
    tokens = stacked([along_dial(made.segments_for(gamma), lambda s: len(s.token_ids)) for gamma in made.span.gammas])
    rounds = stacked([along_dial(made.segments_for(gamma), lambda s: len(s.rounds)) for gamma in made.span.gammas])
    length = length_name(made.frame.settings.tree)
    return MapGrid(
        dial.symbol, length, dial.strict_is_high, tokens.edges, made.span.gammas, tokens.values, rounds.values
    )


def along_dial(segments: Sequence[Segment], read: Callable[[Segment], float]) -> Steps:
    """A number of each segment as a step function of the dial; NaN where the map was cut short."""
    values = [float(read(segment)) if segment.complete else math.nan for segment in segments]
    end = math.nextafter(segments[-1].high, math.inf)  # the last segment may be the strict end alone
    return Steps(np.array([*(segment.low for segment in segments), end]), np.array(values))
