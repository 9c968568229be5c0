"""Settings that make an engine pretend this acceptance, to measure throughput without the rule or the drafter.

Knows counts and engines' options; runs nothing. Read: vLLM's `SpeculativeConfig` (excerpts of config/speculative.py,
0.28), SGLang's environ.py and simulated acceptance, TensorRT-LLM's _torch/speculative/interface.py at 00b6d5a.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, position_rates
from mars_viz.errors import SettingError

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
