"""Definitions of acceptance by engines and papers: every formula, with its source.

Formulas were read in the named sources (Evidence.READ) or taken from the catalogue of definitions (Evidence.CATALOGUE).
Two differences are not visible in a formula. An engine's completion count includes the token that its prefill emits; a
run's does not, because its first token comes from the first round. Engines count accepted tokens before the text is cut
at its end, as `AcceptanceCounts.accepted` does. A share of the text's tokens can count only tokens of the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.counts import Totals
from mars_viz.analysis.intervals import divided


class Bonus(Enum):
    """Whether the target's own token, correction or bonus, is counted."""

    LENGTH = "in the length only"
    LENGTH_AND_RATE = "in the length and the rate"
    NOT = "not counted"  # drafted tokens only


class Pooling(Enum):
    """How requests are combined."""

    POOLED = "pooled: sums over all requests, so long ones count more"
    MEAN = "mean of requests: each counts the same"


class ByPosition(Enum):
    """Reported rates for each position in the block."""

    UNCONDITIONAL = "unconditional"  # relative to all drafts
    CONDITIONAL_AND_JOINT = "conditional and joint"  # relative to drafts accepted so far, and the products of these
    NOTHING = "not reported"


class Evidence(Enum):
    """Origin of a formula."""

    READ = "read in the source"
    CATALOGUE = "taken from the catalogue"


@dataclass(frozen=True, slots=True)
class Definition:
    """One engine's or paper's way to count acceptance."""

    engine: str  # common name
    bonus: Bonus
    pooling: Pooling
    by_position: ByPosition
    length: Callable[[Totals], np.ndarray] | None
    """Acceptance length from sums or means of one or several requests; None if not reported."""
    length_formula: str  # in words; empty if not reported
    rate: Callable[[Totals], np.ndarray] | None  # acceptance rate from sums or means; None if not reported
    rate_formula: str  # in words; empty if not reported
    source: str  # file and version, or paper
    evidence: Evidence
    note: str = ""  # other differences


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "vLLM",
        Bonus.LENGTH,
        Pooling.POOLED,
        ByPosition.UNCONDITIONAL,
        lambda of: 1 + divided(of.accepted, of.drafts),
        "1 + accepted / drafts",
        lambda of: divided(of.accepted, of.drafted),
        "accepted / drafted tokens",
        "vllm/v1/spec_decode/metrics.py at 016a858; the per-request acceptance metrics page of its documentation",
        Evidence.READ,
        "A step without a drafted token is no draft.",
    ),
    Definition(
        "SGLang, scheduler",
        Bonus.LENGTH_AND_RATE,
        Pooling.POOLED,
        ByPosition.NOTHING,
        lambda of: divided(of.accepted + of.steps, of.steps),
        "(accepted + batch) / forwards",
        lambda of: divided(of.accepted + of.steps, of.slots),
        "(accepted + bonus) / (forwards × draft tokens)",
        "python/sglang/srt/observability/scheduler_metrics_mixin.py at 00eef54",
        Evidence.READ,
        "Its draft tokens include the root of the tree, so for a chain they are γ + 1. The log shows a window of "
        "batches, not the whole run.",
    ),
    Definition(
        "SGLang, per request",
        Bonus.LENGTH,
        Pooling.MEAN,
        ByPosition.NOTHING,
        lambda of: divided(of.completion, of.steps),
        "completion tokens / verify count",
        lambda of: divided(of.accepted, of.nominal),
        "accepted / (verify count × (draft tokens - 1))",
        "spec_accept_length and spec_accept_rate in a response's meta_info; an excerpt of the function that makes them",
        Evidence.READ,
        "Newer versions divide the rate by the tokens that were really drafted. Without the overlap scheduler accepted "
        "tokens past the text's end are taken out before they are counted.",
    ),
    Definition(
        "TensorRT-LLM",
        Bonus.LENGTH,
        Pooling.POOLED,
        ByPosition.NOTHING,
        lambda of: 1 + divided(of.accepted, of.drafts),
        "(accepted + requests) / requests, requests with a draft, in each iteration",
        None,
        "",
        "specDecodingStats of its iteration statistics; an excerpt of the PyTorch executor that makes them",
        Evidence.READ,
        "Pooled over iterations it is vLLM's length. It reports accepted and drafted tokens, but no rate.",
    ),
    Definition(
        "llama.cpp",
        Bonus.LENGTH,
        Pooling.POOLED,
        ByPosition.UNCONDITIONAL,
        lambda of: 1 + divided(of.accepted, of.drafts),
        "1 + accepted / steps",
        lambda of: divided(of.accepted, of.drafted),
        "accepted / generated drafted tokens",
        "ggml-org/llama.cpp pull request 24536; an excerpt of the server's print_timings",
        Evidence.READ,
        "The server's log has it for each request, its statistics for all of them.",
    ),
    Definition(
        "specdec_bench",
        Bonus.LENGTH,
        Pooling.MEAN,
        ByPosition.CONDITIONAL_AND_JOINT,
        lambda of: divided(of.completion, of.steps),
        "mean over turns of tokens / streamed steps",
        None,
        "",
        "examples/specdec_bench/specdec_bench/metrics/acceptance_rate.py of NVIDIA Model-Optimizer at a2fbac7",
        Evidence.READ,
        "Its rates are keyed by emitted tokens, bonus included: its key k is position k - 1 here. It counts streamed "
        "pieces, so the prefill's token is a step of length 1, and the end of text is left out.",
    ),
    Definition(
        "SpecForge",
        Bonus.LENGTH,
        Pooling.MEAN,
        ByPosition.NOTHING,
        lambda of: divided(of.completion, of.steps),
        "mean over requests of completion tokens / verify count",
        None,
        "",
        "specforge/benchmarks/sglang.py at a6b6b02",
        Evidence.READ,
        "Its older benchmarks/benchmarker/utils.py pools the requests of a run, then averages runs.",
    ),
    Definition(
        "EAGLE",
        Bonus.LENGTH,
        Pooling.POOLED,
        ByPosition.NOTHING,
        lambda of: divided(of.accepted + of.steps, of.steps),
        "tokens / forwards",
        None,
        "",
        "τ of its papers; the counters in eagle/model/ea_model.py and eagle/model/utils.py at cb7e084 were read",
        Evidence.CATALOGUE,
        "Tokens after the end of text and past the limit are counted. Its logs hold the last forward's index from 0, "
        "one less than the forwards.",
    ),
    Definition(
        "LM Studio",
        Bonus.NOT,
        Pooling.POOLED,
        ByPosition.NOTHING,
        None,
        "",
        lambda of: divided(of.reached, of.completion),
        "accepted drafted tokens / predicted output tokens",
        "lmstudio.ai/docs/python/llm-prediction/speculative-decoding",
        Evidence.READ,
        "A share of the output, not of the draft: whole blocks keep it at 1 - 1/(γ + 1) at most, however good the "
        "drafter is. A last block that ends the text without its bonus token can lift it above that, a text of a "
        "single block to 1. Accepted tokens past the text's end are not counted.",
    ),
)
"""Every definition, in the order of the table."""
