"""Numbers of accepted drafted tokens per step, from which acceptance figures are computed.

A step is one verification of a draft, a round of a run. Logits are not needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mars_viz.errors import RunFileError, SettingError


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
        accepted = self.accepted
        most = np.full(len(accepted), self.gamma) if self.drafted is None else self.drafted
        if (
            len(most) != len(accepted)
            or not np.all((accepted >= 0) & (accepted <= most) & (most <= self.gamma))
            or not int(accepted.sum()) <= self.drafted_total <= int(most.sum())
            or (self.drafted is not None and int(most.sum()) != self.drafted_total)
            or (self.completion_tokens or 0) < 0
        ):
            raise RunFileError(f"The acceptance counts of {self.name!r} contradict each other. Export them again.")

    @property
    def steps(self) -> int:
        """Number of target passes, including those without a draft."""
        return len(self.accepted)

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
            raise RunFileError(f"The acceptance counts of {self.name!r} contradict each other. Export them again.")

    @property
    def drafts(self) -> int | None:
        """Number of steps with a draft to verify; all steps, because only sums are known."""
        return self.steps


Counts = AcceptanceCounts | RequestTotals  # counts of a request, as detailed as its engine reports them


class Totals(NamedTuple):
    """Arguments of formulas, float64 [...] each: one entry per request or step, or sums or means over them."""

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


def totals_by_step(request: AcceptanceCounts) -> Totals:
    """Return the totals with one entry per step of this request, [R]; NaN for values known only in sum."""
    accepted, ones = request.accepted.astype(np.float64), np.ones(request.steps)
    drafted = None if request.drafted is None else request.drafted.astype(np.float64)
    verified, completion = np.cumsum(request.accepted + 1), request.completion_tokens
    total = int(verified[-1]) if len(verified) else 0
    if completion is None or request.prefilled or completion > total or (completion < total and not request.ordered):
        written = np.full(request.steps, np.nan)
    else:
        written = np.diff(np.minimum(verified, completion), prepend=0).astype(np.float64)
    return Totals(
        accepted=accepted,
        reached=np.minimum(accepted, written),
        drafted=np.full(request.steps, np.nan) if drafted is None else drafted,
        steps=ones,
        drafts=ones if drafted is None or request.empty_drafts else (drafted > 0).astype(np.float64),
        nominal=ones * request.gamma,
        slots=ones * (request.gamma + 1),
        completion=written,
    )


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
    unconditional, conditional = _shares(reached[1:], reached[:1]), _shares(reached[1:], reached[:-1])
    dead = np.cumsum(reached[1:] == 0) > 0  # past the first 0 the conditional rates are not defined, the product is 0
    product = np.cumprod(np.where(dead, 0.0, conditional))
    return unconditional, conditional, product if reached[0] else np.full(gamma, np.nan)


def _shares(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=np.broadcast_to(whole, part.shape) > 0)


WARNING = (
    "For throughput only: the engine then accepts drafted tokens by count, whatever they are. The text is worthless, "
    "and says nothing of this rule's quality."
)


@dataclass(frozen=True, slots=True)
class SyntheticSettings:
    """Settings for each engine."""

    acceptance_length: float  # 1 + accepted / drafts, bonus included, rounded to four digits
    rates: tuple[float, ...]  # unconditional acceptance by position [γ], never rising, rounded to four digits
    vllm: str  # JSON to merge into --speculative-config
    sglang: str  # environment variables, one per line
    tensorrt_llm: str  # environment variable, or the reason why there is none
    warning: str = WARNING  # always shown with the settings


def synthetic_settings(requests: tuple[AcceptanceCounts, ...]) -> SyntheticSettings:
    """Return the settings for these requests' pooled acceptance. Raises BadInput if nothing was drafted."""
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
    return SyntheticSettings(
        acceptance_length=length,
        rates=rates,
        vllm=json.dumps({"num_speculative_tokens": len(rates)} | method),
        sglang=(
            f"SGLANG_SIMULATE_ACC_LEN={length:g}\n"
            "SGLANG_SIMULATE_ACC_METHOD=match-expected\n"
            "SGLANG_SIMULATE_ACC_TOKEN_MODE=real-draft-token"
        ),
        tensorrt_llm=tensorrt_llm,
    )
