"""What a pass costs on a device, and what a decode would take from that: modelled, never measured, seconds.

Knows seconds and counts; knows no models. `speculators.costs` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.errors import BadInput


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing, seconds."""

    median: float
    """The middle one."""
    low: float
    """The shortest."""
    high: float
    """The longest."""

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Of at least one measurement."""
        return cls(float(np.median(values)), float(min(values)), float(max(values)))


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
    target_pass: tuple[Spread, ...]
    """[γ + 1]; a pass of the target over 1, 2, … γ + 1 positions."""
    drafter_step: Spread
    """One drafted token."""
    rest: tuple[Spread, ...]
    """[γ]; what a round that drafts 1, 2, … γ tokens takes besides: evidence, judging, commit. Measured at 1 and at γ,
    in a line between; below 0 where a device overlaps what was measured apart."""

    @property
    def gamma(self) -> int:
        """The longest block that was measured."""
        return len(self.rest)


def round_seconds(costs: Costs, gamma: int) -> float:
    """One draft-verify cycle: γ drafter steps, a target pass over γ + 1 positions, and the rest.

    Raises BadInput for a block longer than any that was measured.
    """
    if not 1 <= gamma <= costs.gamma:
        raise BadInput(f"γ = {gamma} was not measured; the costs go from 1 to {costs.gamma}. Measure them again.")
    return gamma * costs.drafter_step.median + costs.target_pass[gamma].median + costs.rest[gamma - 1].median


def modelled_seconds(costs: Costs, rounds: np.ndarray | float, gamma: int) -> np.ndarray:
    """What so many rounds would take, the prompt's own pass excluded. Raises BadInput as `round_seconds` does."""
    return np.asarray(np.asarray(rounds, np.float64) * round_seconds(costs, gamma))


def autoregressive_seconds(costs: Costs, tokens: np.ndarray | float) -> np.ndarray:
    """What the target alone would take: one pass over one position a token."""
    return np.asarray(np.asarray(tokens, np.float64) * costs.target_pass[0].median)


def modelled_speed_up(costs: Costs, tokens: np.ndarray | float, rounds: np.ndarray | float, gamma: int) -> np.ndarray:
    """Tokens a second over those of the target alone. Raises BadInput as `round_seconds` does."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(autoregressive_seconds(costs, tokens) / modelled_seconds(costs, rounds, gamma))


def costs_from(found: Any) -> Costs:
    """Costs from what JSON made of `dataclasses.asdict`. Raises BadInput for anything else."""
    try:
        made = Costs(
            **{name: _kept(str, found[name]) for name in ("device", "dtype", "target", "drafter")},
            **{name: _kept(int, found[name]) for name in ("cache_length", "repeats")},
            target_pass=tuple(_spread(each) for each in found["target_pass"]),
            drafter_step=_spread(found["drafter_step"]),
            rest=tuple(_spread(each) for each in found["rest"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadInput("The measured costs cannot be read. Measure them again.") from error
    taken = (made.drafter_step, *made.target_pass)  # but a round's rest may be below 0
    fits = made.rest and len(made.target_pass) == len(made.rest) + 1
    if not fits or not all(0 < each.low <= each.median <= each.high for each in taken):
        raise BadInput("The measured costs contradict each other. Measure them again.")
    return made


def _kept(kind: type, value: Any) -> Any:
    """The value, of that very kind: nothing is cut or made to fit."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _spread(found: Any) -> Spread:
    made = Spread(float(found["median"]), float(found["low"]), float(found["high"]))
    if not np.isfinite([made.median, made.low, made.high]).all():
        raise ValueError("no number of seconds")
    return made
