"""How many drafted tokens were accepted, step by step: all that acceptance figures are made of, logits not needed.

Knows counts; knows no engine's formulas and no files. A step is one verification of a draft, a round of a run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.errors import RunFileError, SettingError


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """The counts of one request."""

    name: str
    """For lists."""
    accepted: np.ndarray
    """int64 [R]; drafted tokens that verification accepted in each step, the text's end not yet cut off."""
    drafted: np.ndarray | None
    """int64 [R]; drafted tokens of each step; None where only their sum is known."""
    drafted_total: int
    """Their sum."""
    gamma: int
    """Tokens drafted in a step at most."""
    completion_tokens: int | None
    """Tokens of the text, its end cut off; None where it is not known."""
    ordered: bool = True
    """False where the steps' order is lost, as in a histogram."""
    prefilled: int = 0
    """Tokens of the text that no step wrote: 1 where an engine's prefill writes the first."""
    empty_drafts: bool = False
    """True if steps without a drafted token count as drafts, as vLLM counts a draft that a grammar emptied."""
    summed: bool = False
    """True for sums over several requests, as counters of a server are."""

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
        """Target passes, those without a draft included."""
        return len(self.accepted)

    @property
    def drafts(self) -> int:
        """Steps that had a draft to verify; where only sums are known, all of them."""
        each = None if self.empty_drafts else self.drafted
        return self.steps if each is None else int(np.count_nonzero(each))

    @property
    def accepted_total(self) -> int:
        """Accepted drafted tokens."""
        return int(self.accepted.sum())

    @property
    def reached_total(self) -> int | None:
        """Accepted drafted tokens that the text holds; None where its length is not known.

        Each step writes what it accepted and one token more. What of that the text lacks stood at its end: first that
        one token, then accepted ones.
        """
        if self.completion_tokens is None:
            return None
        lacking = self.accepted_total + self.steps + self.prefilled - self.completion_tokens
        return max(0, self.accepted_total - max(0, lacking - 1))


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """The sums of one request, of an engine that tells no more; None for what it does not tell."""

    name: str
    """For lists."""
    accepted_total: int | None = None
    """Accepted drafted tokens."""
    drafted_total: int | None = None
    """Drafted tokens."""
    steps: int | None = None
    """Target passes, those without a draft included."""
    gamma: int | None = None
    """Tokens drafted in a step at most."""
    completion_tokens: int | None = None
    """Tokens of the text."""
    reached_total: int | None = None
    """Accepted drafted tokens that the text holds."""
    summed: bool = False
    """True for sums over several requests, as counters of a server are."""

    def __post_init__(self) -> None:
        """Raise BadInput for sums that contradict each other."""
        accepted, drafted = self.accepted_total or 0, self.drafted_total
        told = (value for value in (self.accepted_total, drafted, self.steps, self.completion_tokens) if value)
        if min(told, default=0) < 0 or (drafted is not None and accepted > drafted):
            raise RunFileError(f"The acceptance counts of {self.name!r} contradict each other. Export them again.")

    @property
    def drafts(self) -> int | None:
        """Steps that had a draft to verify; where only sums are known, all of them."""
        return self.steps


Counts = AcceptanceCounts | RequestTotals
"""What is known of a request."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What formulas are made of, float64 [...] alike: of a request or a step each, or sums or means over them."""

    accepted: np.ndarray
    """Drafted tokens that verification accepted; NaN where they are not known, as in all that follow."""
    reached: np.ndarray
    """Those of them that the text holds."""
    drafted: np.ndarray
    """Drafted tokens."""
    steps: np.ndarray
    """Target passes."""
    drafts: np.ndarray
    """Those that had a draft to verify; where that is not known, all of them."""
    nominal: np.ndarray
    """Tokens that could have been drafted: γ a step."""
    slots: np.ndarray
    """Tokens that could have been verified: γ + 1 a step."""
    completion: np.ndarray
    """Tokens of the text."""

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """All of them, in the order above."""
        return tuple(getattr(self, name) for name in Totals.__slots__)


def totals_of(requests: Sequence[Counts]) -> Totals:
    """A request each, [P]."""
    steps = _known(request.steps for request in requests)
    gamma = _known(request.gamma for request in requests)
    return Totals(
        accepted=_known(request.accepted_total for request in requests),
        reached=_known(request.reached_total for request in requests),
        drafted=_known(request.drafted_total for request in requests),
        steps=steps,
        drafts=_known(request.drafts for request in requests),
        nominal=steps * gamma,
        slots=steps * (gamma + 1),
        completion=_known(request.completion_tokens for request in requests),
    )


def _known(counts: Iterable[int | None]) -> np.ndarray:
    return np.array([math.nan if count is None else count for count in counts], np.float64)


def totals_by_step(request: AcceptanceCounts) -> Totals:
    """A step of this request each, [R]; NaN for what is known only of all of them together."""
    accepted, ones = request.accepted.astype(np.float64), np.ones(request.steps)
    drafted = None if request.drafted is None else request.drafted.astype(np.float64)
    written = _emitted(request)
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


def _emitted(request: AcceptanceCounts) -> np.ndarray:
    """float64 [R]; tokens of the text that each step added, its end cut off where the text ends; NaN where that is not
    known, as where some come from no step."""
    verified = np.cumsum(request.accepted + 1)
    known, whole = request.completion_tokens, int(verified[-1]) if len(verified) else 0
    if known is None or request.prefilled or known > whole or (known < whole and not request.ordered):
        return np.full(request.steps, np.nan)
    return np.diff(np.minimum(verified, known), prepend=0).astype(np.float64)


@dataclass(frozen=True, slots=True)
class PositionRates:
    """Acceptance by position in the block, all requests pooled; [γ], NaN where the denominator is 0."""

    unconditional: np.ndarray
    """Position i: drafts of which the first i tokens were accepted / drafts. vLLM, llama.cpp."""
    conditional: np.ndarray
    """Position i: drafts of which the first i tokens were accepted / those of which the first i - 1 were."""
    joint: np.ndarray
    """Position i: the product of the conditional rates up to i. Equals `unconditional` over the same drafts."""


def position_rates(counted: Sequence[Counts]) -> PositionRates:
    """The rates of these requests together; of no position where of some the steps are not told."""
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
    return PositionRates(unconditional, conditional, product if reached[0] else np.full(gamma, np.nan))


def _shares(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=np.broadcast_to(whole, part.shape) > 0)


WARNING = (
    "For throughput only: the engine then accepts drafted tokens by count, whatever they are. The text is worthless, "
    "and says nothing of this rule's quality."
)


@dataclass(frozen=True, slots=True)
class SyntheticSettings:
    """What to set in each engine."""

    acceptance_length: float
    """1 + accepted / drafts, the bonus counted, rounded to four digits."""
    rates: tuple[float, ...]
    """Unconditional acceptance by position [γ], never rising, rounded to four digits."""
    vllm: str
    """JSON to merge into --speculative-config."""
    sglang: str
    """Environment variables, one a line."""
    tensorrt_llm: str
    """Environment variable, or why it has none."""
    warning: str = WARNING
    """To be shown beside them, always."""


def synthetic_settings(requests: tuple[AcceptanceCounts, ...]) -> SyntheticSettings:
    """The settings for these requests' pooled acceptance. Raises BadInput where nothing was drafted."""
    drafts = sum(request.drafts for request in requests)
    if not drafts:
        raise SettingError(
            "Nothing was drafted, so there is no acceptance to imitate. Choose a run with drafted tokens."
        )
    accepted = sum(request.accepted_total for request in requests) / drafts
    rates = tuple(np.round(position_rates(requests).unconditional, 4).tolist())
    method = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(rates)}
    return SyntheticSettings(
        acceptance_length=round(1 + accepted, 4),
        rates=rates,
        vllm=json.dumps({"num_speculative_tokens": len(rates)} | method),
        sglang=(
            f"SGLANG_SIMULATE_ACC_LEN={round(1 + accepted, 4):g}\n"
            "SGLANG_SIMULATE_ACC_METHOD=match-expected\n"
            "SGLANG_SIMULATE_ACC_TOKEN_MODE=real-draft-token"
        ),
        tensorrt_llm=_tensorrt_llm(round(accepted, 4)),
    )


def _tensorrt_llm(accepted: float) -> str:
    """It counts drafted tokens only, one less than the length; 0 switches it off."""
    if accepted == 0:
        return "# TensorRT-LLM cannot pretend that nothing is accepted: 0 switches the variable off."
    fraction = "" if accepted == int(accepted) else "  # two-model drafters take whole numbers only"
    return f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={accepted:g}{fraction}"
