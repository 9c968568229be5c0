"""Acceptance by every engine's and paper's definition: formulas with their sources, and a table of requests under each.

The definitions are in engines.toml. Formulas were read in the named sources, except EAGLE's, which is from a catalogue.
Two differences are not visible in a formula. An engine's completion count includes the token that its prefill emits; a
run's does not, because its first token comes from the first round. Engines count accepted tokens before the text is cut
at its end, as `AcceptanceCounts.accepted` does. A share of the text's tokens can count only tokens of the text.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval, divided, interval
from mars_viz.errors import RunFileError, SettingError
from mars_viz.records import Round

CONTRADICTORY = "The acceptance counts of {!r} contradict each other. Export them again."


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """The counts of one request."""

    name: str  # label for lists
    accepted: np.ndarray  # int64 [R]; drafted tokens accepted in each step, before the text's end is cut off
    drafted: np.ndarray | None  # int64 [R]; drafted tokens of each step; None if only their sum is known
    drafted_total: int
    gamma: int  # maximum number of tokens drafted in a step
    completion_tokens: int | None  # number of tokens of the text after its end is cut off; None if unknown
    ordered: bool = True  # False if the order of steps is lost, as in a histogram
    prefilled: int = 0  # number of tokens of the text that no step wrote: 1 if an engine's prefill writes the first
    empty_drafts: bool = False
    """True if steps without a drafted token count as drafts, as vLLM counts a draft that a grammar emptied."""
    summed: bool = False  # True for sums over several requests, such as a server's counters

    def __post_init__(self) -> None:
        """Raise BadInput for counts that contradict each other."""
        accepted, total = self.accepted, self.drafted_total
        most = np.full(len(accepted), self.gamma) if self.drafted is None else self.drafted
        fits = len(most) == len(accepted) and bool(np.all((accepted >= 0) & (accepted <= most) & (most <= self.gamma)))
        sums_fit = int(accepted.sum()) <= total <= int(most.sum()) and (self.drafted is None or total == most.sum())
        if not fits or not sums_fit or (self.completion_tokens or 0) < 0:
            raise RunFileError(CONTRADICTORY.format(self.name))

    @classmethod
    def of_rounds(
        cls, name: str, rounds: Sequence[Round], gamma: int, completion: int, *, prefilled: int = 0
    ) -> AcceptanceCounts:
        """Count these rounds, which draft `gamma` tokens, or trees of more."""
        accepted = np.array([len(each.decision.kept) for each in rounds], np.int64)
        drafted = np.array([len(each.speculation) for each in rounds], np.int64)
        gamma = max([gamma, *drafted.tolist()])
        return cls(name, accepted, drafted, int(drafted.sum()), gamma, completion, prefilled=prefilled)

    @property
    def steps(self) -> int:
        """Number of target passes, including those without a draft."""
        return len(self.accepted)

    @property
    def in_rounds(self) -> list[int] | None:
        """The accepted tokens of each step; None if only their histogram is known."""
        return self.accepted.tolist() if self.ordered or not self.steps else None

    @property
    def drafts(self) -> int:
        """Number of steps with a draft to verify; all steps if only sums are known."""
        each = None if self.empty_drafts else self.drafted
        return self.steps if each is None else int(np.count_nonzero(each))

    @property
    def accepted_total(self) -> int:
        """Number of accepted drafted tokens."""
        return int(self.accepted.sum())

    @property
    def reached_total(self) -> int | None:
        """Number of accepted drafted tokens in the text; None if its length is unknown. Each step writes its accepted
        tokens and one more. Tokens cut off at the text's end are first that extra token, then accepted ones."""
        if self.completion_tokens is None:
            return None
        lacking = self.accepted_total + self.steps + self.prefilled - self.completion_tokens
        return max(0, self.accepted_total - max(0, lacking - 1))


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """The sums of one request of an engine that reports no steps; None if unknown."""

    name: str  # label for lists
    accepted_total: int | None = None  # number of accepted drafted tokens
    drafted_total: int | None = None  # number of drafted tokens
    steps: int | None = None  # number of target passes, including those without a draft
    gamma: int | None = None  # maximum number of tokens drafted in a step
    completion_tokens: int | None = None  # number of tokens of the text
    reached_total: int | None = None  # number of accepted drafted tokens in the text
    summed: bool = False  # True for sums over several requests, such as a server's counters

    def __post_init__(self) -> None:
        """Raise BadInput for sums that contradict each other."""
        accepted, drafted = self.accepted_total or 0, self.drafted_total
        values = (value for value in (self.accepted_total, drafted, self.steps, self.completion_tokens) if value)
        if min(values, default=0) < 0 or (drafted is not None and accepted > drafted):
            raise RunFileError(CONTRADICTORY.format(self.name))

    @property
    def drafts(self) -> int | None:
        """Number of steps with a draft to verify; all steps, because only sums are known."""
        return self.steps


Counts = AcceptanceCounts | RequestTotals  # counts of a request, as detailed as its engine reports them


class Totals(NamedTuple):
    """Arguments of formulas, float64 [...] each: one entry per request, or sums or means over them."""

    accepted: np.ndarray  # drafted tokens that verification accepted; NaN if unknown, as in all fields
    reached: np.ndarray  # accepted tokens in the text
    drafted: np.ndarray  # drafted tokens
    steps: np.ndarray  # target passes
    drafts: np.ndarray  # target passes with a draft to verify; all passes if unknown
    nominal: np.ndarray  # tokens that could have been drafted: γ per step
    slots: np.ndarray  # tokens that could have been verified: γ + 1 per step
    completion: np.ndarray  # tokens of the text


def totals_of(requests: Sequence[Counts]) -> Totals:
    """Return the totals with one entry per request, [P]."""
    names = ("accepted_total", "reached_total", "drafted_total", "steps", "drafts", "gamma", "completion_tokens")
    accepted, reached, drafted, steps, drafts, gamma, completion = (
        np.array([getattr(request, name) for request in requests], np.float64)
        for name in names  # None becomes NaN
    )
    return Totals(accepted, reached, drafted, steps, drafts, steps * gamma, steps * (gamma + 1), completion)


def position_rates(counted: Sequence[Counts]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the acceptance by position in the block, [γ] each: unconditional, conditional and joint.

    All requests are pooled. Unconditional: the share of drafts whose first i tokens were accepted, as in vLLM and
    llama.cpp. Conditional: the share of those whose first i - 1 tokens were. Joint: the product of the conditional
    rates, which equals the unconditional one over the same drafts. NaN if the denominator is 0; empty if some request
    lacks its steps.
    """
    requests = [each for each in counted if isinstance(each, AcceptanceCounts)]
    requests = requests if len(requests) == len(counted) else []
    gamma = max((request.gamma for request in requests), default=0)
    reached = np.zeros(gamma + 1, np.int64)  # [γ + 1]; drafts with at least i accepted tokens
    for request in requests:
        exact = np.bincount(request.accepted, minlength=gamma + 1)
        reached += np.cumsum(exact[::-1])[::-1]
    reached[0] = sum(request.drafts for request in requests)
    unconditional, conditional = divided(reached[1:], reached[:1]), divided(reached[1:], reached[:-1])
    dead = np.cumsum(reached[1:] == 0) > 0  # past the first 0 the conditional rates are not defined, the product is 0
    product = np.cumprod(np.where(dead, 0.0, conditional))
    return unconditional, conditional, product if reached[0] else np.full(gamma, np.nan)


def synthetic_settings(requests: tuple[AcceptanceCounts, ...]) -> dict[str, Any]:
    """Return the settings with which each engine imitates these requests' pooled acceptance.

    The length is 1 + accepted / drafts, and the rates are unconditional, by position; both are rounded to four digits.
    Raises BadInput if nothing was drafted.
    """
    drafts = sum(request.drafts for request in requests)
    if not drafts:
        raise SettingError(
            "Nothing was drafted, so there is no acceptance to imitate. Choose a run with drafted tokens."
        )
    mean = sum(request.accepted_total for request in requests) / drafts
    length, accepted = round(1 + mean, 4), round(mean, 4)
    rates = tuple(np.round(position_rates(requests)[0], 4).tolist())
    method = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(rates)}
    tensorrt_llm = "# TensorRT-LLM cannot pretend that nothing is accepted: 0 switches the variable off."
    if accepted:  # it counts drafted tokens only, one less than the length
        fraction = "" if accepted == int(accepted) else "  # two-model drafters take whole numbers only"
        tensorrt_llm = f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={accepted:g}{fraction}"
    return {
        "acceptance_length": length,
        "rates": rates,
        "vllm": json.dumps({"num_speculative_tokens": len(rates)} | method),  # to merge into --speculative-config
        "sglang": (  # environment variables
            f"SGLANG_SIMULATE_ACC_LEN={length:g}\n"
            "SGLANG_SIMULATE_ACC_METHOD=match-expected\n"
            "SGLANG_SIMULATE_ACC_TOKEN_MODE=real-draft-token"
        ),
        "tensorrt_llm": tensorrt_llm,  # an environment variable, or the reason why there is none
        "warning": (
            "For throughput only: the engine then accepts drafted tokens by count, whatever they are. The text is "
            "worthless, and says nothing of this rule's quality."
        ),
    }


Formula = Callable[[Totals], np.ndarray]


class Pooling(Enum):
    """How requests are combined."""

    POOLED = "pooled: sums over all requests, so long ones count more"
    MEAN = "mean of requests: each counts the same"


@dataclass(frozen=True, slots=True)
class Definition:
    """One engine's or paper's way to count acceptance."""

    engine: str  # common name
    pooling: Pooling
    source: str  # file and version, or paper
    note: str  # other differences
    length: Formula | None = None  # acceptance length from sums or means; None if not reported
    length_formula: str = ""  # in words; empty if not reported
    rate: Formula | None = None  # acceptance rate from sums or means; None if not reported
    rate_formula: str = ""  # in words; empty if not reported
    bonus: str = "in the length only"  # whether the target's own token, correction or bonus, is counted
    by_position: Sequence[str] = ()  # names of the reported rates of each position, as in `EngineRow`


FORMULAS: Mapping[str, Formula] = {
    "1 + accepted per draft": lambda of: 1 + divided(of.accepted, of.drafts),
    "tokens per step": lambda of: divided(of.accepted + of.steps, of.steps),
    "completion per step": lambda of: divided(of.completion, of.steps),
    "accepted per drafted": lambda of: divided(of.accepted, of.drafted),
    "tokens per slot": lambda of: divided(of.accepted + of.steps, of.slots),
    "accepted per nominal": lambda of: divided(of.accepted, of.nominal),
    "reached per completion": lambda of: divided(of.reached, of.completion),
}
"""Formulas by their names in engines.toml."""


def _definitions() -> Iterator[Definition]:
    for entry in tomllib.loads((files(__package__) / "engines.toml").read_text("utf-8"))["definition"]:
        figures = {name: FORMULAS[entry[name]] for name in ("length", "rate") if name in entry}
        yield Definition(**entry | figures | {"pooling": Pooling[entry["pooling"]]})


DEFINITIONS = tuple(_definitions())  # in the order of the table
_POSITIONS = ("unconditional", "conditional", "joint")


class Within(NamedTuple):
    """Uncertainty of a figure."""

    interval: Interval | None  # None if there is no interval
    why: str = ""  # reason for a missing interval; empty for a figure that is not reported


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One definition applied: a row of the table."""

    definition: Definition
    length: float  # all requests together. NaN if not reported or not defined.
    rate: float  # all requests together. NaN if not reported or not defined.
    unconditional: np.ndarray | None  # float64 [γ]; share of all drafts; these three are None if not reported
    conditional: np.ndarray | None  # float64 [γ]; share of drafts accepted so far
    joint: np.ndarray | None  # float64 [γ]; products of the conditional ones
    length_within: Within  # the length's interval over requests
    rate_within: Within  # the rate's interval


def acceptance_table(
    requests: Sequence[Counts], *, units: np.ndarray | None = None, how: Bootstrap = DEFAULT
) -> tuple[EngineRow, ...]:
    """Return the requests under every definition, with intervals. Raises BadInput for no requests. `units`, whole
    numbers [P], are equal for the turns of one conversation, which are resampled together."""
    pool = tuple(requests)
    if not pool:
        raise SettingError("There is no run to describe. Choose at least one.")
    each, by_position = totals_of(pool), dict(zip(_POSITIONS, position_rates(pool), strict=True))
    summed, had = any(request.summed for request in pool), each.steps != 0
    why = "counters are sums over requests" if summed else "a single request has none" if len(pool) == 1 else ""

    def figure(formula: Formula | None, pooling: Pooling) -> tuple[float, Within]:
        """Return one figure of all requests, and its uncertainty."""
        if formula is None:
            return math.nan, Within(None)
        statistic: Callable[..., np.ndarray]
        if pooling is Pooling.POOLED:
            statistic, columns = lambda *sums: formula(Totals(*sums)), list(each)
        else:  # a mean over the requests that had a step: engines report nothing for the others
            statistic, columns = divided, [np.where(had, formula(each), 0.0), had.astype(np.float64)]
        value = math.nan if summed and pooling is Pooling.MEAN else float(statistic(*(each.sum() for each in columns)))
        if why:
            return value, Within(None, why)
        found = interval(statistic, *columns, how=how, units=units)
        unknown = math.isnan(found.low)
        return value, Within(None, "of some requests it is not known, or not defined") if unknown else Within(found)

    rows = []
    for of in DEFINITIONS:
        (length, length_within), (rate, rate_within) = figure(of.length, of.pooling), figure(of.rate, of.pooling)
        positions = {name: rates if name in of.by_position else None for name, rates in by_position.items()}
        rows.append(EngineRow(of, length, rate, length_within=length_within, rate_within=rate_within, **positions))
    return tuple(rows)
