"""What a pass costs on a device, and what a decode would take from that: modelled, never measured, seconds.

Knows seconds and counts; knows no models. `speculators.costs` measures them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from mars_viz import bounds
from mars_viz.errors import BadInput, RunFileError
from mars_viz.shapes import CHAIN, draft_words, shape_named

LEAST = 26
"""Repeats from which each half of them bounds the lower quartile: the least of 13 lies below it with 97.6 %."""
FEWEST = 6
"""Repeats whose range holds their median with 95 %; fewer say nothing of how sure a cost is."""
WANTED = 0.05
"""Half of each cost's interval, as a share of the cost, at which measuring ends."""
MOST = 0.10
"""The same at which nothing is modelled from them."""
BUSY = 0.25
"""Cores that other processes use, from which that is said beside what is modelled."""
SLACK = 1.25
"""How many times as long a shorter pass may take: kernels for other counts of rows are others, by some percent."""
_QUARTILE, _TAIL = 0.25, 0.025


@dataclass(frozen=True, slots=True)
class Cost:
    """What something takes, with its 95 % interval, seconds."""

    seconds: float
    """The lower quartile of the repeats: whatever else runs only ever adds time, so three of four may be disturbed. The
    median in files of before."""
    low: float
    """Of the interval; of the repeats where they are too few for one, as in files of before."""
    high: float
    """Likewise."""

    @classmethod
    def of(cls, times: Sequence[float]) -> Cost:
        """Of at least two repeats, in the order in which they were taken.

        The interval reaches over those of both halves, so that a machine that changes meanwhile widens it; each is made
        of order statistics, which holds whatever the times' distribution.
        """
        taken = np.asarray(times, np.float64)
        seconds = float(np.quantile(taken, _QUARTILE))
        ends = [_interval(np.sort(half)) for half in np.array_split(taken, 2)]
        return cls(seconds, min(seconds, *(low for low, _ in ends)), max(seconds, *(high for _, high in ends)))

    @property
    def unsure(self) -> float:
        """Half of the interval as a share of the cost."""
        return (self.high - self.low) / 2 / self.seconds


@dataclass(frozen=True, slots=True)
class Factor:
    """A number that costs make, with its interval."""

    estimate: float
    """The number."""
    low: float
    """Of the interval."""
    high: float
    """Likewise."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What decoding costs with one pair on one device: a single text, its prompt already read."""

    device: str
    """In words: the processor's or GPU's name."""
    dtype: str
    """Weights and arithmetic, such as float32."""
    target: str
    """Model id or folder name."""
    drafter: str
    """Model id or folder name."""
    cache_length: int
    """Positions that both caches held."""
    repeats: int
    """Measurements of each kind, taken in turn."""
    target_pass: tuple[Cost, ...]
    """[γ + 1]; a pass of the target over 1, 2, … γ + 1 positions, as measured."""
    drafter_step: Cost
    """One drafted token; of trees, a tree of one level."""
    rest: tuple[Cost, ...]
    """[γ]; what a round that drafts 1, 2, … γ tokens takes besides: evidence, judging, commit. Measured at 1 and at γ,
    in a line between; below 0 where a device overlaps what was measured apart."""
    others: float | None = None
    """Cores that other processes used meanwhile; None where nobody says."""
    passes_per_token: float = 1.0
    """Passes of the drafter that a drafted token took; more or fewer than 1 of one that drafts by text."""
    tree: str = CHAIN
    """The shape of drafts, as in `Settings`: γ is the number of a tree's nodes, and passes over 2, 3, … positions are
    over the prefix's last token and trees of 1, 2, … nodes."""
    drafting: tuple[Cost, ...] = ()
    """Drafting trees of 1, 2, … levels, up to those of the shape; empty for chains."""

    @property
    def gamma(self) -> int:
        """The longest block that was measured."""
        return len(self.rest)

    @property
    def passes(self) -> tuple[Cost, ...]:
        """[γ + 1]; the target's passes, none cheaper than a shorter one."""
        ends = (monotone([getattr(each, name) for each in self.target_pass]) for name in Cost.__slots__)
        return tuple(Cost(*map(float, each)) for each in zip(*ends, strict=True))

    @property
    def unsure(self) -> float:
        """Of the least sure cost, half of the interval as a share of it."""
        rounds = (round_cost(self, 1), round_cost(self, self.gamma))
        return max(each.unsure for each in (*self.target_pass, self.drafter_step, *self.drafting, *rounds))

    def cover(self, gamma: int, tree: str) -> bool:
        """True if they say what a round of such drafts costs: of that shape, and no longer than measured."""
        return self.tree == tree and gamma <= self.gamma


def monotone(values: Sequence[float]) -> np.ndarray:
    """The closest that never falls: isotonic regression, by pooling neighbours that fall until none do."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools])


def objection(costs: Costs | None) -> str:
    """Why nothing may be modelled from these costs, in a sentence; empty where nothing speaks against it."""
    if costs is None:
        return "What a pass costs is not known."
    if costs.repeats < FEWEST:
        return f"What a pass costs was measured {costs.repeats} times only, too few to tell how sure it is."
    for (short, one), (long, other) in combinations(enumerate(costs.target_pass, 1), 2):
        if other.high * SLACK < one.low:
            return (
                f"The costs contradict themselves: a pass over {long} positions took at most {_ms(other.high)}, one "
                f"over {short} at least {_ms(one.low)}."
            )
    alone = costs.target_pass[0].seconds
    for gamma in range(1, costs.gamma + 1):
        if (whole := _parts(costs, gamma)[0]) * SLACK < alone:
            return (
                f"The costs contradict themselves: a round of {draft_words(gamma, costs.tree)} takes {_ms(whole)}, and "
                f"the target's pass over one position alone {_ms(alone)}."
            )
    return ""


def disturbance(costs: Costs) -> str:
    """What else went on while they were measured, in a sentence; empty where that was next to nothing."""
    if costs.others is None or costs.others < BUSY:
        return ""
    cores = f"{costs.others:.1f} core{'' if round(costs.others, 1) == 1 else 's'}"
    return f"Other processes used {cores} while costs were measured; on a quiet machine they may differ."


def too_busy(unsure: float, seconds: float) -> str:
    """What is said where the costs are not known well enough after so long."""
    return (
        f"The machine is too busy to measure what a pass costs: after {seconds:.0f} s it is known to "
        f"±{100 * unsure:.0f} % only. Measure again when less else is running."
    )


def too_fast(speed_up: float, tau: float, again: str) -> str:
    """What is said where so many times the target's pace were measured: a round holds a pass of the target."""
    return (
        f"The machine was disturbed: {speed_up:.2f} times as fast as the target alone cannot be with τ = {tau:.2f} "
        f"tokens per pass of the target; {again}."
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _parts(costs: Costs, gamma: int, steps: float | None = None) -> tuple[float, float, float]:
    """What a round's parts sum to, and how far that reaches below and above: independent errors, in quadrature. A chain
    takes so many drafter passes, γ unless said; the rest of a round without a draft is taken as that of one token."""
    drafting = (gamma if steps is None else steps, costs.drafter_step)
    if costs.drafting:
        drafting = (1, costs.drafting[min(gamma, len(costs.drafting)) - 1])
    parts = (drafting, (1, costs.passes[gamma]), (1, costs.rest[max(gamma, 1) - 1]))
    below = math.hypot(*(count * (each.seconds - each.low) for count, each in parts))
    above = math.hypot(*(count * (each.high - each.seconds) for count, each in parts))
    return sum(count * each.seconds for count, each in parts), below, above


def round_cost(costs: Costs, gamma: int) -> Cost:
    """One draft-verify cycle: γ drafter steps, a target pass over γ + 1 positions, and the rest; no less than that
    pass. A tree of fewer nodes has as many levels, if it has that many nodes, and a smaller pass of the target.

    Raises BadInput for a block longer than any that was measured.
    """
    if not 1 <= gamma <= costs.gamma:
        asked = draft_words(gamma, costs.tree)
        raise RunFileError(f"{asked} was not measured; the costs go from 1 to {costs.gamma}. Measure them again.")
    least, (whole, below, above) = costs.passes[gamma], _parts(costs, gamma)
    seconds, low = max(whole, least.seconds), max(whole - below, least.low)
    return Cost(seconds, min(low, seconds), max(whole + above, seconds))


def round_seconds(costs: Costs, gamma: int) -> float:
    """The same without its interval."""
    return round_cost(costs, gamma).seconds


def drafts_seconds(costs: Costs, drafted: Sequence[int], steps: Sequence[float]) -> float:
    """What rounds of chains that draft so many tokens, in so many drafter passes, would take, the prompt's own pass
    excluded: `round_cost` of drafts that differ in length, down to none. Raises BadInput for a draft longer than any
    that was measured."""
    if max(drafted, default=0) > costs.gamma:
        round_cost(costs, max(drafted))  # says so
    kinds = Counter(zip(drafted, steps, strict=True))  # rounds of one kind cost the same
    passes = costs.passes
    return sum(
        count * max(passes[tokens].seconds, _parts(costs, tokens, taken)[0]) for (tokens, taken), count in kinds.items()
    )


def length_costs(costs: Costs, steps: Sequence[int]) -> np.ndarray:
    """float64 [γ + 1]; what a round of a chain costs that drafts 0, 1, … γ tokens in so many drafter passes, seconds:
    `drafts_seconds` of each by itself. Raises BadInput as it does."""
    return np.array([drafts_seconds(costs, [count], [taken]) for count, taken in enumerate(steps)])


def at_ends(costs: Costs) -> Iterator[tuple[Costs, Costs]]:
    """The costs with one of them at the low and at the high end of its interval and the others as they are, each in
    turn; what a round takes besides as one."""
    kinds: list[tuple[str, slice]] = [("target_pass", slice(i, i + 1)) for i in range(len(costs.target_pass))]
    kinds += [("rest", slice(None)), ("drafting", slice(None))]
    for end_of, part in kinds:
        known: tuple[Cost, ...] = getattr(costs, end_of)
        if known[part]:
            low, high = (
                tuple(
                    replace(each, seconds=getattr(each, end)) if at in range(len(known))[part] else each
                    for at, each in enumerate(known)
                )
                for end in ("low", "high")
            )
            yield replace(costs, **{end_of: low}), replace(costs, **{end_of: high})  # type: ignore[arg-type]
    step = costs.drafter_step
    low_step, high_step = replace(step, seconds=step.low), replace(step, seconds=step.high)
    yield replace(costs, drafter_step=low_step), replace(costs, drafter_step=high_step)


def ratio(one: Cost, other: Cost) -> Factor:
    """The one cost over the other, measured apart: relative errors in quadrature."""
    estimate = one.seconds / other.seconds
    below = math.hypot(math.log(one.seconds / one.low), math.log(other.high / other.seconds))
    above = math.hypot(math.log(one.high / one.seconds), math.log(other.seconds / other.low))
    return Factor(estimate, estimate * math.exp(-below), estimate * math.exp(above))


def per_token(costs: Costs, gamma: int) -> Factor:
    """The target's pass over one position over a round: a speed-up over the target alone is τ times this, so at most
    τ. Raises BadInput as `round_cost` does."""
    found = ratio(costs.passes[0], round_cost(costs, gamma))
    return Factor(found.estimate, found.low, min(found.high, 1.0))


def modelled_seconds(costs: Costs, rounds: np.ndarray | float, gamma: int) -> np.ndarray:
    """What so many rounds would take, the prompt's own pass excluded. Raises BadInput as `round_cost` does."""
    return np.asarray(np.asarray(rounds, np.float64) * round_seconds(costs, gamma))


def autoregressive_seconds(costs: Costs, tokens: np.ndarray | float) -> np.ndarray:
    """What the target alone would take: one pass over one position a token."""
    return np.asarray(np.asarray(tokens, np.float64) * costs.passes[0].seconds)


def modelled_speed_up(costs: Costs, tokens: np.ndarray | float, rounds: np.ndarray | float, gamma: int) -> np.ndarray:
    """Tokens a second over those of the target alone. Raises BadInput as `round_cost` does."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(autoregressive_seconds(costs, tokens) / modelled_seconds(costs, rounds, gamma))


def costs_from(found: Any) -> Costs:
    """Costs from what JSON made of `dataclasses.asdict`. Raises BadInput for anything else."""
    try:
        made = Costs(
            **{name: _kept(str, found[name]) for name in ("device", "dtype", "target", "drafter")},
            **{name: _kept(int, found[name]) for name in ("cache_length", "repeats")},
            target_pass=tuple(_cost(each) for each in found["target_pass"]),
            drafter_step=_cost(found["drafter_step"]),
            rest=tuple(_cost(each) for each in found["rest"]),
            others=_number(found.get("others")),
            passes_per_token=_kept(float, found.get("passes_per_token", 1.0)),
            tree=shape_named(found.get("tree", CHAIN)).shape.name,
            drafting=tuple(_cost(each) for each in found.get("drafting", ())),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, BadInput) as error:
        raise RunFileError("The measured costs cannot be read. Measure them again.") from error
    bounds.check(made, "The measurement")
    taken = (made.drafter_step, *made.drafting, *made.target_pass)  # but a round's rest may be below 0
    fits = made.rest and len(made.target_pass) == len(made.rest) + 1
    fits = fits and len(made.drafting) == shape_named(made.tree).shape.within(made.gamma).depth
    if not fits or not all(0 < each.low <= each.seconds <= each.high for each in taken):
        raise RunFileError("The measured costs contradict each other. Measure them again.")
    return made


def _kept(kind: type, value: Any) -> Any:
    """The value, of that very kind: nothing is cut or made to fit."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _cost(found: Any) -> Cost:
    """Also of a file of before, which has a median and a range."""
    made = Cost(float(found.get("seconds", found.get("median"))), float(found["low"]), float(found["high"]))
    if not np.isfinite([made.seconds, made.low, made.high]).all():
        raise ValueError("no number of seconds")
    return made


def _number(found: Any) -> float | None:
    if found is not None and not (math.isfinite(made := float(found)) and made >= 0):
        raise ValueError("no number of cores")
    return None if found is None else made


def _interval(ordered: np.ndarray) -> tuple[float, float]:
    """Of the lower quartile; the least and the longest where they are too few to bound it."""
    below, above = _ranks(len(ordered))
    return float(ordered[below]), float(ordered[above])


@lru_cache(maxsize=1024)
def _ranks(count: int) -> tuple[int, int]:
    """Between which of `count` ordered values, from 0, the lower quartile lies with 95 %: how many lie below it is
    binomial."""
    logs = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    chances = np.exp([each + k * math.log(0.25) + (count - k) * math.log(0.75) for k, each in enumerate(logs)])
    at_most = np.cumsum(chances)  # [count + 1]; that so many or fewer lie below
    below = int(np.searchsorted(at_most, _TAIL, side="right")) - 1
    above = int(np.searchsorted(at_most, 1 - _TAIL))
    return max(0, below), min(above, count - 1)
