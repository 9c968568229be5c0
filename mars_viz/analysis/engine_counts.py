"""Acceptance counts as engines tell them of a request: vLLM, SGLang, llama.cpp's server and TensorRT-LLM.

What an engine does not tell stays unknown. Read: SGLang 0.5.23 and earlier names of its fields, llama.cpp's
`timings`, TensorRT-LLM's `request_perf_metrics`. Knows counts and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, Counts, RequestTotals
from mars_viz.analysis.vllm_metrics import MAX_STEPS, values_in, vllm_counts
from mars_viz.errors import RunFileError

DEEPEST = 8
"""Objects and lists within one another in which an engine's counts are looked for."""
_WIDEST = 64  # values of an object or a list that are looked into
_LARGEST = 2**53


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What an engine tells of one request."""

    engine: str
    """Its name."""
    counts: Counts
    """Of its rounds, or their sums alone."""


def parse_counts(text: str) -> tuple[EngineRequest, ...]:
    """The requests in a text: one JSON value, a list of them, or one a line, each a response or the object with its
    counts. Raises RunFileError, with the remedy, for anything else and for counts that do not add up."""
    return counts_in(values_in(text))


def counts_in(values: Sequence[Any]) -> tuple[EngineRequest, ...]:
    """The same of what such a text holds."""
    found = tuple(_request(value, f"request {number}") for number, value in enumerate(values, 1))
    if sum(each.counts.steps or 0 for each in found) > MAX_STEPS:
        raise RunFileError(f"There are more than {MAX_STEPS:,} steps in it. Split it into smaller files.")
    return found


def _request(value: Any, name: str) -> EngineRequest:
    for engine in _ENGINES:
        holds = _holding(value, engine.keys)
        if holds is not None:
            return EngineRequest(engine.name, engine.read(value, holds, name))
    raise RunFileError(
        f"In {name} there are no counts of speculative decoding. vLLM tells them with "
        "--per-request-spec-decode-metrics detailed, SGLang in meta_info, llama.cpp's server in timings, TensorRT-LLM "
        "with return_perf_metrics."
    )


def _vllm(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    return vllm_counts(value if isinstance(value, dict) and "metrics" in value else holds, name)


def _sglang(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Older releases have other names. Its completion counts the token that its prefill writes."""
    steps = _count(holds, name, "spec_verify_ct")
    accepted = _count(holds, name, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
    drafted = _count(holds, name, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
    completion = _completion(value, holds, name)
    histogram = _histogram(holds, name, "spec_correct_drafts_histogram", "spec_accept_histogram")
    if histogram is not None:
        _check(sum(histogram) == steps, name, "the histogram does not add up to spec_verify_ct")
        told = sum(length * often for length, often in enumerate(histogram))
        _check(accepted in (None, told), name, "the histogram holds another number of accepted tokens")
        accepted = told
    whole = steps and drafted is not None and drafted % steps == 0  # else drafts were of several lengths
    gamma = drafted // steps if whole and drafted and steps else None
    if histogram is None or gamma is None or drafted is None:
        return RequestTotals(name, accepted, drafted, steps, gamma, completion)
    depths = np.repeat(np.arange(len(histogram)), histogram)
    _check(int(depths.max(initial=0)) <= gamma, name, "a round accepted more than it drafted")
    each = np.full(len(depths), gamma)
    return AcceptanceCounts(name, depths, each, drafted, gamma, completion, ordered=False, prefilled=1)


def _llama_cpp(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Sums alone: how many rounds there were it does not tell."""
    drafted, accepted = _count(holds, name, "draft_n"), _count(holds, name, "draft_n_accepted")
    return RequestTotals(name, accepted, drafted, completion_tokens=_count(holds, name, "predicted_n"))


def _tensorrt_llm(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Sums, and the mean of tokens a pass, of which the passes follow where the tokens are known."""
    accepted = _count(holds, name, "total_accepted_draft_tokens")
    drafted, completion = _count(holds, name, "total_draft_tokens"), _completion(value, holds, name)
    mean = (_holding(value, ("avg_decoded_tokens_per_iter",)) or {}).get("avg_decoded_tokens_per_iter")
    mean = mean if isinstance(mean, int | float) and mean > 0 else None
    _check(
        drafted != 0 or mean is None or mean <= 1,
        name,
        f"it says that nothing was drafted, and {mean} tokens a pass; releases before 2026-07 write zeros there",
    )
    steps = None if completion is None or mean is None else round(completion / mean)
    if steps and mean and completion and abs(completion / steps - mean) > 1e-3 * mean:
        steps = None
    return RequestTotals(name, accepted, drafted, steps or None, completion_tokens=completion)


@dataclass(frozen=True, slots=True)
class _Engine:
    """How one engine's counts are found and read."""

    name: str
    keys: Sequence[str]
    """Any of them is in the object with its counts."""
    read: Callable[[Any, Mapping[str, Any], str], Counts]


_ENGINES = (
    _Engine("vLLM", ("num_spec_steps",), _vllm),
    _Engine("SGLang", ("spec_verify_ct",), _sglang),
    _Engine("llama.cpp", ("draft_n", "draft_n_accepted"), _llama_cpp),
    _Engine("TensorRT-LLM", ("total_draft_tokens", "total_accepted_draft_tokens"), _tensorrt_llm),
)


def _holding(value: Any, keys: Sequence[str], deep: int = DEEPEST) -> Mapping[str, Any] | None:
    """The first object in it that has one of the keys."""
    if not isinstance(value, dict | list) or deep == 0:
        return None
    if isinstance(value, dict) and any(key in value for key in keys):
        return value
    inner = list(value.values() if isinstance(value, dict) else value)[:_WIDEST]
    return next((found for each in inner if (found := _holding(each, keys, deep - 1)) is not None), None)


def _completion(value: Any, holds: Mapping[str, Any], name: str) -> int | None:
    within = holds if "completion_tokens" in holds else _holding(value, ("completion_tokens",)) or {}
    return _count(within, name, "completion_tokens")


def _count(holds: Mapping[str, Any], name: str, *keys: str) -> int | None:
    """Under the first of these names that it has; None where it has none. Raises RunFileError for what is no count."""
    found = next((holds[key] for key in keys if holds.get(key) is not None), None)
    _check(found is None or (type(found) is int and 0 <= found < _LARGEST), name, f"{keys[0]} is no count")
    return found


def _histogram(holds: Mapping[str, Any], name: str, *keys: str) -> list[int] | None:
    found = next((holds[key] for key in keys if holds.get(key)), None)
    counts = isinstance(found, list) and all(type(each) is int and 0 <= each < _LARGEST for each in found)
    _check(found is None or counts, name, f"{keys[0]} is no list of counts")
    _check(sum(found or ()) <= MAX_STEPS, name, f"it has more than {MAX_STEPS:,} steps")
    return found


def _check(condition: Any, name: str, otherwise: str) -> None:
    if not condition:
        raise RunFileError(f"The counts of {name} cannot be used: {otherwise}. Export them again.")
