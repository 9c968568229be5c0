"""Acceptance by every engine's and paper's definition: formulas with their sources, and a table of requests under each.

Formulas were read in the named sources, except EAGLE's, which is from a catalogue of definitions.
Two differences are not visible in a formula. An engine's completion count includes the token that its prefill emits; a
run's does not, because its first token comes from the first round. Engines count accepted tokens before the text is cut
at its end, as `AcceptanceCounts.accepted` does. A share of the text's tokens can count only tokens of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, Counts, Totals, position_rates, totals_by_step, totals_of
from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval, divided, interval
from mars_viz.errors import SettingError


class Pooling(Enum):
    """How requests are combined."""

    POOLED = "pooled: sums over all requests, so long ones count more"
    MEAN = "mean of requests: each counts the same"


class ByPosition(Enum):
    """Reported rates for each position in the block."""

    UNCONDITIONAL = "unconditional"  # relative to all drafts
    CONDITIONAL_AND_JOINT = "conditional and joint"  # relative to drafts accepted so far, and the products of these
    NOTHING = "not reported"


@dataclass(frozen=True, slots=True)
class Definition:
    """One engine's or paper's way to count acceptance."""

    engine: str  # common name
    pooling: Pooling
    length: Callable[[Totals], np.ndarray] | None
    """Acceptance length from sums or means of one or several requests; None if not reported."""
    length_formula: str  # in words; empty if not reported
    source: str  # file and version, or paper
    note: str  # other differences
    rate: Callable[[Totals], np.ndarray] | None = None  # acceptance rate from sums or means; None if not reported
    rate_formula: str = ""  # in words; empty if not reported
    bonus: str = "in the length only"  # whether the target's own token, correction or bonus, is counted
    by_position: ByPosition = ByPosition.NOTHING


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "vLLM",
        Pooling.POOLED,
        lambda of: 1 + divided(of.accepted, of.drafts),
        "1 + accepted / drafts",
        "vllm/v1/spec_decode/metrics.py at 016a858; the per-request acceptance metrics page of its documentation",
        "A step without a drafted token is no draft.",
        rate=lambda of: divided(of.accepted, of.drafted),
        rate_formula="accepted / drafted tokens",
        by_position=ByPosition.UNCONDITIONAL,
    ),
    Definition(
        "SGLang, scheduler",
        Pooling.POOLED,
        lambda of: divided(of.accepted + of.steps, of.steps),
        "(accepted + batch) / forwards",
        "python/sglang/srt/observability/scheduler_metrics_mixin.py at 00eef54",
        "Its draft tokens include the root of the tree, so for a chain they are γ + 1. The log shows a window of "
        "batches, not the whole run.",
        rate=lambda of: divided(of.accepted + of.steps, of.slots),
        rate_formula="(accepted + bonus) / (forwards × draft tokens)",
        bonus="in the length and the rate",
    ),
    Definition(
        "SGLang, per request",
        Pooling.MEAN,
        lambda of: divided(of.completion, of.steps),
        "completion tokens / verify count",
        "spec_accept_length and spec_accept_rate in a response's meta_info; an excerpt of the function that makes them",
        "Newer versions divide the rate by the tokens that were really drafted. Without the overlap scheduler accepted "
        "tokens past the text's end are taken out before they are counted.",
        rate=lambda of: divided(of.accepted, of.nominal),
        rate_formula="accepted / (verify count × (draft tokens - 1))",
    ),
    Definition(
        "TensorRT-LLM",
        Pooling.POOLED,
        lambda of: 1 + divided(of.accepted, of.drafts),
        "(accepted + requests) / requests, requests with a draft, in each iteration",
        "specDecodingStats of its iteration statistics; an excerpt of the PyTorch executor that makes them",
        "Pooled over iterations it is vLLM's length. It reports accepted and drafted tokens, but no rate.",
    ),
    Definition(
        "llama.cpp",
        Pooling.POOLED,
        lambda of: 1 + divided(of.accepted, of.drafts),
        "1 + accepted / steps",
        "ggml-org/llama.cpp pull request 24536; an excerpt of the server's print_timings",
        "The server's log has it for each request, its statistics for all of them.",
        rate=lambda of: divided(of.accepted, of.drafted),
        rate_formula="accepted / generated drafted tokens",
        by_position=ByPosition.UNCONDITIONAL,
    ),
    Definition(
        "specdec_bench",
        Pooling.MEAN,
        lambda of: divided(of.completion, of.steps),
        "mean over turns of tokens / streamed steps",
        "examples/specdec_bench/specdec_bench/metrics/acceptance_rate.py of NVIDIA Model-Optimizer at a2fbac7",
        "Its rates are keyed by emitted tokens, bonus included: its key k is position k - 1 here. It counts streamed "
        "pieces, so the prefill's token is a step of length 1, and the end of text is left out.",
        by_position=ByPosition.CONDITIONAL_AND_JOINT,
    ),
    Definition(
        "SpecForge",
        Pooling.MEAN,
        lambda of: divided(of.completion, of.steps),
        "mean over requests of completion tokens / verify count",
        "specforge/benchmarks/sglang.py at a6b6b02",
        "Its older benchmarks/benchmarker/utils.py pools the requests of a run, then averages runs.",
    ),
    Definition(
        "EAGLE",
        Pooling.POOLED,
        lambda of: divided(of.accepted + of.steps, of.steps),
        "tokens / forwards",
        "τ of its papers; the counters in eagle/model/ea_model.py and eagle/model/utils.py at cb7e084 were read",
        "Tokens after the end of text and past the limit are counted. Its logs hold the last forward's index from 0, "
        "one less than the forwards.",
    ),
    Definition(
        "LM Studio",
        Pooling.POOLED,
        None,
        "",
        "lmstudio.ai/docs/python/llm-prediction/speculative-decoding",
        "A share of the output, not of the draft: whole blocks keep it at 1 - 1/(γ + 1) at most, however good the "
        "drafter is. A last block that ends the text without its bonus token can lift it above that, a text of a "
        "single block to 1. Accepted tokens past the text's end are not counted.",
        rate=lambda of: divided(of.reached, of.completion),
        rate_formula="accepted drafted tokens / predicted output tokens",
        bonus="not counted",
    ),
)
"""Every definition, in the order of the table."""


Formula = Callable[[Totals], np.ndarray]
MOST_DRAWN = 20_000
"""Number of requests or rounds that are resampled; more are combined at random into that many groups."""

_REPORTED = tuple(
    (formula, one.pooling) for one in DEFINITIONS for formula in (one.length, one.rate) if formula is not None
)
"""Every reported figure's formula and pooling, in the order of the table, lengths before rates."""


@dataclass(frozen=True, slots=True)
class Within:
    """Uncertainty of a figure."""

    interval: Interval | None  # None if there is no interval
    why: str = ""  # reason for a missing interval; empty for a figure that is not reported


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One definition applied: a row of the table."""

    definition: Definition
    length: float  # all requests together. NaN if not reported or not defined.
    rate: float  # all requests together. NaN if not reported or not defined.
    lengths: tuple[float, ...]  # length of each request alone
    unconditional: np.ndarray | None  # float64 [γ]; None if not reported
    conditional: np.ndarray | None  # float64 [γ]; None if not reported
    joint: np.ndarray | None  # float64 [γ]; None if not reported
    length_within: Within  # the length's interval: over requests, or over the rounds of a single one
    rate_within: Within  # the rate's interval


def acceptance_table(
    requests: Sequence[Counts], *, units: np.ndarray | None = None, how: Bootstrap = DEFAULT
) -> tuple[EngineRow, ...]:
    """Return the requests under every definition, with intervals. Raises BadInput for no requests. `units`, whole
    numbers [P], are equal for the turns of one conversation, which are resampled together."""
    pool = tuple(requests)
    if not pool:
        raise SettingError("There is no run to describe. Choose at least one.")
    each, (unconditional, conditional, joint) = totals_of(pool), position_rates(pool)
    withins = iter(_withins(pool, each, units, how))
    rows = []
    for definition in DEFINITIONS:
        length, rate = definition.length, definition.rate
        if definition.pooling is Pooling.MEAN and any(request.summed for request in pool):
            length = rate = None  # not known from sums over requests
        alone = np.full(len(pool), np.nan) if length is None else length(each)
        both = definition.by_position is ByPosition.CONDITIONAL_AND_JOINT
        rows.append(
            EngineRow(
                definition=definition,
                length=_together(definition, length, each),
                rate=_together(definition, rate, each),
                lengths=tuple(alone.tolist()),
                unconditional=unconditional if definition.by_position is ByPosition.UNCONDITIONAL else None,
                conditional=conditional if both else None,
                joint=joint if both else None,
                length_within=Within(None) if definition.length is None else next(withins),
                rate_within=Within(None) if definition.rate is None else next(withins),
            )
        )
    return tuple(rows)


def resampled(requests: Sequence[Counts], units: np.ndarray | None = None) -> str:
    """Return the unit of the table's resampling, in words."""
    if len(requests) == 1 and not isinstance(requests[0], AcceptanceCounts):
        return "requests, of which a single one has none"
    if len(requests) == 1:
        return (
            "its rounds, taken as independent of one another: how sure this text's own number is, not how another "
            "prompt would do"
        )
    return "requests" if units is None else "questions, whose turns count together"


def _together(definition: Definition, formula: Formula | None, each: Totals) -> float:
    """Return the figure of all requests, pooled as in the definition."""
    if formula is None:
        return math.nan
    if definition.pooling is Pooling.POOLED:
        return float(formula(Totals(*(column.sum() for column in each))))
    counted = formula(each)[each.steps != 0]  # engines report nothing for requests that had no step
    return float(counted.sum() / len(counted)) if len(counted) else math.nan


def _withins(pool: tuple[Counts, ...], each: Totals, units: np.ndarray | None, how: Bootstrap) -> list[Within]:
    """Return the uncertainty of every reported figure, in the order of the table."""
    single = len(pool) == 1
    if any(request.summed for request in pool):
        return [Within(None, "counters are sums over requests")] * len(_REPORTED)
    if single and not isinstance(pool[0], AcceptanceCounts):
        return [Within(None, "of a single request it takes the counts of its rounds")] * len(_REPORTED)
    drawn = totals_by_step(pool[0]) if single and isinstance(pool[0], AcceptanceCounts) else each
    count = len(drawn.steps)
    if count < 2:
        return [Within(None, "it takes at least two rounds")] * len(_REPORTED)
    if (single or units is None) and count > MOST_DRAWN:
        units = np.random.default_rng(0).permutation(count) % MOST_DRAWN
    intervals = [
        _interval(formula, drawn, units, how, summed=single or pooling is Pooling.POOLED)
        for formula, pooling in _REPORTED
    ]
    why = f"of {'its rounds' if single else 'some requests'} it is not known, or not defined"
    return [Within(None, why) if math.isnan(each.low) else Within(each) for each in intervals]


def _interval(formula: Formula, drawn: Totals, units: np.ndarray | None, how: Bootstrap, *, summed: bool) -> Interval:
    """Return the interval of sums over the rows of `drawn`, or of a mean over the requests that had a step."""
    if not summed:
        had = drawn.steps != 0
        each = np.where(had, formula(drawn), 0.0)
        return interval(lambda values, counted: values / counted, each, had.astype(np.float64), how=how, units=units)
    return interval(lambda *sums: formula(Totals(*sums)), *drawn, how=how, units=units)
