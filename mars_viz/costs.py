"""Costs of passes on a device, and modelled (never measured) times of decodes, in seconds.

`speculators.costs` measures the costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from mars_viz.bounds import parsed
from mars_viz.errors import BadInput, RunFileError
from mars_viz.shapes import CHAIN, draft_words, shape_named

LEAST = 26  # repeats from which each half bounds the lower quartile: the least of 13 is below it with 97.6 %
FEWEST = 6  # repeats whose range contains their median with 95 %; fewer are rejected
WANTED = 0.05  # half-width of each cost's interval, relative to the cost, at which measuring stops
MOST = 0.10  # relative half-width above which nothing is modelled
BUSY = 0.25  # cores used by other processes from which a warning is shown
SLACK = 1.25
"""Tolerated ratio of a shorter pass to a longer one, because kernels differ between row counts by some percent."""
_QUARTILE, _TAIL = 0.25, 0.025


@dataclass(frozen=True, slots=True)
class Cost:
    """A duration with its 95 % interval, in seconds."""

    seconds: float  # the lower quartile of the repeats, since disturbances only add time; the median in older files
    low: float  # lower end of the interval; the minimum if repeats are too few, as in older files
    high: float  # upper end of the interval, or the maximum

    @classmethod
    def of(cls, times: Sequence[float]) -> Cost:
        """Return the cost from at least two repeats, in the order of measurement.

        The interval covers those of both halves, so that changes during the measurement widen it. Each half's interval
        uses order statistics, which is valid for any distribution.
        """
        repeats = np.asarray(times, np.float64)
        seconds = float(np.quantile(repeats, _QUARTILE))
        ends = [float(np.sort(half)[rank]) for half in np.array_split(repeats, 2) for rank in _ranks(len(half))]
        return cls(seconds, min(seconds, *ends), max(seconds, *ends))

    @property
    def unsure(self) -> float:
        return (self.high - self.low) / 2 / self.seconds


@dataclass(frozen=True, slots=True)
class Factor:
    """A ratio of costs with its interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement of one pair on one device."""

    device: str  # name of the processor or GPU
    dtype: str  # of weights and arithmetic, such as float32
    target: str  # model id or folder name
    drafter: str  # model id or folder name
    cache_length: int  # positions of each text in both caches
    repeats: int  # measurements of each kind, interleaved
    others: float | None = field(default=None, kw_only=True)  # cores used by other processes; None if unknown


@dataclass(frozen=True, slots=True)
class Costs(Measured):
    """Costs of decoding a single text, after prefill."""

    target_pass: tuple[Cost, ...]  # [γ + 1]; target passes over 1, 2, … γ + 1 positions, as measured
    drafter_step: Cost  # one drafted token; for trees, a tree of one level; all tokens if they are drafted at once
    rest: tuple[Cost, ...]
    """[γ]; remaining time of a round that drafts 1, 2, … γ tokens: evidence, judging, commit. Measured at 1 and γ, and
    interpolated linearly; negative if the device overlaps work that was measured separately."""
    passes_per_token: float = 1.0  # drafter passes per drafted token; differs from 1 for drafters that draft text
    tree: str = CHAIN
    """Shape of drafts, as in `Settings`. For trees γ is the number of nodes, and passes over 2, 3, … positions are over
    the last token of the prefix and trees of 1, 2, … nodes."""
    drafting: tuple[Cost, ...] = ()
    """Drafting of trees of 1, 2, … levels up to the shape's depth. One cost for drafters that draft all tokens at once;
    empty for chains of others."""

    @property
    def gamma(self) -> int:
        return len(self.rest)

    @property
    def passes(self) -> tuple[Cost, ...]:
        """[γ + 1]; target passes, made nondecreasing."""
        ends = (monotone([getattr(each, name) for each in self.target_pass]) for name in Cost.__slots__)
        return tuple(Cost(*map(float, each)) for each in zip(*ends, strict=True))

    @property
    def unsure(self) -> float:
        rounds = (round_cost(self, 1), round_cost(self, self.gamma))
        return max(each.unsure for each in (*self.target_pass, self.drafter_step, *self.drafting, *rounds))

    def cover(self, gamma: int, tree: str) -> bool:
        return self.tree == tree and gamma <= self.gamma


@dataclass(frozen=True, slots=True)
class BatchCosts(Measured):
    """Costs of rounds of several texts at once, after prefill."""

    sizes: tuple[int, ...]  # numbers of texts, ascending
    rounds: tuple[tuple[Cost, ...], ...]
    """[sizes, γ + 1]; rounds that draft 0, 1, … γ tokens for each text; with 0, a pass of the target alone."""
    left_out: str = ""  # why larger numbers of texts were not measured; empty if all were

    @property
    def unsure(self) -> float:
        return max(each.unsure for row in self.rounds for each in row)


def monotone(values: Sequence[float]) -> np.ndarray:
    """Return the closest nondecreasing sequence (isotonic regression by pooling adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools])


def objection(costs: Costs | None) -> str:
    """Return why nothing may be modelled from these costs; empty if there is no reason."""
    if costs is None:
        return "The cost of a pass is not known."
    if costs.repeats < FEWEST:
        return f"The cost of a pass was measured {costs.repeats} times only, too few to tell how sure it is."
    for (short, shorter), (long, longer) in combinations(enumerate(costs.target_pass, 1), 2):
        if longer.high * SLACK < shorter.low:
            return (
                f"The costs contradict themselves: a pass over {long} positions took at most {_ms(longer.high)}, one "
                f"over {short} at least {_ms(shorter.low)}."
            )
    alone = costs.target_pass[0].seconds
    for gamma in range(1, costs.gamma + 1):
        if (total := _parts(costs, gamma)[0]) * SLACK < alone:
            return (
                f"The costs contradict themselves: a round of {draft_words(gamma, costs.tree)} takes {_ms(total)}, and "
                f"the target's pass over one position alone {_ms(alone)}."
            )
    return ""


def disturbance(costs: Measured) -> str:
    """Return a warning about other processes during the measurement; empty if they were negligible."""
    if costs.others is None or costs.others < BUSY:
        return ""
    cores = f"{costs.others:.1f} core{'' if round(costs.others, 1) == 1 else 's'}"
    return f"Other processes used {cores} while costs were measured; on a quiet machine they may differ."


def too_busy(unsure: float, seconds: float) -> str:
    """Return the message for costs that are still too uncertain after `seconds`."""
    return (
        f"The machine is too busy to measure what a pass costs: after {seconds:.0f} s it is known to "
        f"±{100 * unsure:.0f} % only. Measure again when less else is running."
    )


def too_fast(speed_up: float, tau: float, again: str) -> str:
    """Return the message for a measured speed-up above τ, which is impossible since each round has a target pass."""
    return (
        f"The machine was disturbed: {speed_up:.2f} times as fast as the target alone cannot be with τ = {tau:.2f} "
        f"tokens per pass of the target; {again}."
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _parts(costs: Costs, gamma: int, steps: float | None = None) -> tuple[float, float, float]:
    """Return the sum of a round's parts, and its errors below and above in quadrature, assuming independence. A chain
    takes `steps` drafter passes, γ by default. The rest of a round without a draft is that of one token."""
    drafting = (gamma if steps is None else steps, costs.drafter_step)
    if costs.drafting:
        drafting = (1, costs.drafting[min(gamma, len(costs.drafting)) - 1])
    parts = (drafting, (1, costs.passes[gamma]), (1, costs.rest[max(gamma, 1) - 1]))
    below = math.hypot(*(count * (each.seconds - each.low) for count, each in parts))
    above = math.hypot(*(count * (each.high - each.seconds) for count, each in parts))
    return sum(count * each.seconds for count, each in parts), below, above


def round_cost(costs: Costs, gamma: int) -> Cost:
    """Return the cost of one draft-verify cycle: γ drafter steps, a target pass over γ + 1 positions, and the rest.

    At least the cost of that pass. A tree with fewer nodes has the same depth if it has enough nodes, and a smaller
    target pass. Raises BadInput for a block longer than any that was measured.
    """
    if not 1 <= gamma <= costs.gamma:
        draft = draft_words(gamma, costs.tree)
        raise RunFileError(f"{draft} was not measured; the costs go from 1 to {costs.gamma}. Measure them again.")
    least, (total, below, above) = costs.passes[gamma], _parts(costs, gamma)
    seconds, low = max(total, least.seconds), max(total - below, least.low)
    return Cost(seconds, min(low, seconds), max(total + above, seconds))


def drafts_seconds(costs: Costs, drafted: Sequence[int], steps: Sequence[float]) -> float:
    """Return the modelled time of rounds of chains with these draft lengths and drafter passes, without prefill.

    As `round_cost`, for drafts that differ in length and may be empty. Raises BadInput for a draft longer than any
    measured.
    """
    if max(drafted, default=0) > costs.gamma:
        round_cost(costs, max(drafted))  # raises
    kinds = Counter(zip(drafted, steps, strict=True))  # rounds of one kind have equal costs
    passes = costs.passes
    return sum(
        count * max(passes[tokens].seconds, _parts(costs, tokens, step_count)[0])
        for (tokens, step_count), count in kinds.items()
    )


def at_ends(costs: Costs) -> Iterator[tuple[Costs, Costs]]:
    """Yield the costs with each in turn at the low and at the high end of its interval; `rest` counts as one."""

    def at_end(cost: Cost, end: str) -> Cost:
        return replace(cost, seconds=getattr(cost, end))

    for name in ("target_pass", "rest", "drafting"):
        values: tuple[Cost, ...] = getattr(costs, name)
        parts = [slice(i, i + 1) for i in range(len(values))] if name == "target_pass" else [slice(0, len(values))]
        for part in parts if values else ():
            low, high = (
                values[: part.start] + tuple(at_end(each, end) for each in values[part]) + values[part.stop :]
                for end in ("low", "high")
            )
            yield replace(costs, **{name: low}), replace(costs, **{name: high})  # type: ignore[arg-type]
    step = costs.drafter_step
    yield replace(costs, drafter_step=at_end(step, "low")), replace(costs, drafter_step=at_end(step, "high"))


def ratio(one: Cost, other: Cost) -> Factor:
    """Return the quotient of independently measured costs, with relative errors in quadrature."""
    estimate = one.seconds / other.seconds
    below = math.hypot(math.log(one.seconds / one.low), math.log(other.high / other.seconds))
    above = math.hypot(math.log(one.high / one.seconds), math.log(other.seconds / other.low))
    return Factor(estimate, estimate * math.exp(-below), estimate * math.exp(above))


def per_token(costs: Costs, gamma: int) -> Factor:
    """Return the target's single-token pass over a round (speed-up = τ times this). Raises BadInput as `round_cost`."""
    factor = ratio(costs.passes[0], round_cost(costs, gamma))
    return Factor(factor.estimate, factor.low, min(factor.high, 1.0))


def position_cost(costs: Costs) -> Factor:
    """Return how much of a pass over one position the verification of one more takes, on average up to the longest
    measured draft: (c(γ + 1) - c(1)) / (γ c(1))."""
    whole = ratio(costs.passes[-1], costs.passes[0])
    return Factor(*((each - 1) / costs.gamma for each in (whole.estimate, whole.low, whole.high)))


def break_even(costs: Costs, gamma: int) -> float:
    """Return d / T for drafts of γ tokens: the share of τ that a drafted token must add to every round to pay.

    A round takes T seconds and writes τ tokens. One token less saves d seconds, a drafter step and the verification of
    one position, which takes (c(γ + 1) - c(1)) / γ on average. It loses J tokens per round if J of all rounds accept a
    token at that position, because rounds that stop earlier lose nothing. The pace is τ / T before and
    (τ - J) / (T - d) after, which is lower if and only if J > τ d / T. Raises BadInput as `round_cost`.
    """
    position = (costs.passes[-1].seconds - costs.passes[0].seconds) / costs.gamma
    return (position + costs.drafter_step.seconds) / round_cost(costs, gamma).seconds


def slower(costs: Costs, gamma: int, tau: float) -> str:
    """Return why speculation is slower than the target alone, in passes; empty if it is not."""
    one = costs.passes[0].seconds
    whole = round_cost(costs, gamma).seconds / one
    if whole <= tau:
        return ""
    verification = costs.passes[gamma].seconds / one
    return (
        f"Speculation is slower than the target alone: a round costs {whole:.2f} passes, {verification:.2f} of them "
        f"for verification, and writes {tau:.2f} tokens, for which the target alone takes {tau:.2f} passes."
    )


def costs_from(found: Any) -> Costs:
    """Return costs from the JSON of `dataclasses.asdict`. Raises BadInput for anything else."""
    try:
        costs = parsed(Costs, found, "The measurement")
        tree = shape_named(costs.tree)
        costs = replace(costs, tree=tree.name)
    except BadInput as error:
        raise RunFileError(f"The measured costs cannot be read ({error}). Measure them again.") from error
    positive = (costs.drafter_step, *costs.drafting, *costs.target_pass)  # `rest` may be negative
    fits = costs.rest and len(costs.target_pass) == len(costs.rest) + 1
    fits = fits and len(costs.drafting) in {1, tree.within(costs.gamma).depth}
    if not fits or not all(0 < each.low <= each.seconds <= each.high for each in positive):
        raise RunFileError("The measured costs contradict each other. Measure them again.")
    return costs


@lru_cache(maxsize=1024)
def _ranks(count: int) -> tuple[int, int]:
    """Return the indices of `count` ordered values that enclose the lower quartile with 95 % (binomial), or those of
    the ends if the values are too few."""
    logs = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    chances = np.exp([each + k * math.log(0.25) + (count - k) * math.log(0.75) for k, each in enumerate(logs)])
    at_most = np.cumsum(chances)  # [count + 1]; chance of at most so many below
    below = int(np.searchsorted(at_most, _TAIL, side="right")) - 1
    above = int(np.searchsorted(at_most, 1 - _TAIL))
    return max(0, below), min(above, count - 1)
