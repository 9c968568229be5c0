"""Acceptance counts of a request as reported by vLLM, SGLang, llama.cpp's server, mlx-vlm, TensorRT-LLM and
LM Studio.

A figure that an engine does not report stays unknown. Read: SGLang 0.5.23 and earlier names of its fields, `timings` of
llama.cpp and mlx-vlm, TensorRT-LLM's `request_perf_metrics`, LM Studio's `stats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, Counts, RequestTotals
from mars_viz.analysis.engine_text import no_counts, values_in
from mars_viz.analysis.vllm_metrics import MAX_STEPS, vllm_counts
from mars_viz.errors import RunFileError

DEEPEST = 8
"""Objects and lists within one another in which an engine's counts are looked for."""
_LARGEST = 2**53
_ONE = {"choices", "timings", "meta_info", "request_perf_metrics"}  # keys of a single response
_RESPONSE = _ONE | {"outputs", "usage", "metrics", "stats", "error"}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The counts that an engine reports of one request, or of all requests together."""

    engine: str
    """Its name."""
    counts: Counts
    """Counts of rounds, or their sums only."""


@dataclass(frozen=True, slots=True)
class Response:
    """One request in a file."""

    value: Any
    """The largest object about this request only."""
    counts: Mapping[str, Any] | None
    """The object in it with the counts; None if it has none."""


def parse_counts(text: str) -> tuple[EngineRequest, ...]:
    """Return the requests in a text that have counts. Raises RunFileError if none has, and for counts that do not add
    up."""
    return tuple(request for request, _ in counts_in(values_in(text), text)[0])


def counts_in(values: Sequence[Any], text: str) -> tuple[list[tuple[EngineRequest, Any]], int]:
    """Return the requests with counts, each with its response, and the number of requests without any. `values` are
    those of `text`. Raises RunFileError as `parse_counts` does."""
    responses = [each for value in values for each in _responses(value, DEEPEST) or [Response(value, None)]]
    requests, steps = list[tuple[EngineRequest, Any]](), 0
    for number, each in enumerate(responses, 1):
        if each.counts is None:
            continue
        requests.append((_request(each.value, each.counts, f"request {number}"), each.value))
        steps += requests[-1][0].counts.steps or 0
        if steps > MAX_STEPS:
            raise RunFileError(f"There are more than {MAX_STEPS:,} steps in it. Split it into smaller files.")
    if not requests:
        what = "request 1" if len(responses) == 1 else f"all {len(responses)} requests"
        raise no_counts(what, text, responses=any(each.value and _without(each.value) for each in responses))
    return requests, len(responses) - len(requests)


def _responses(value: Any, deep: int) -> list[Response]:
    """Return the requests in a value; none if nothing in it has counts."""
    if not deep or not isinstance(value, dict | list):
        return []
    if isinstance(value, list):
        inner = [(each, _responses(each, deep - 1)) for each in value]
        if not any(requests for _, requests in inner):
            return []
        return [request for each, requests in inner for request in requests or _without(each)]
    if _engine_of(value) is not None:
        return [Response(value, value)]
    parts = [
        _responses(each, deep - 1) for key, each in value.items() if key != "logprobs" and isinstance(each, dict | list)
    ]
    # parts of one response repeat its counts, as llama.cpp's __verbose does; parts of another object are requests
    requests = max(parts, key=len, default=[]) if _ONE & value.keys() else [each for part in parts for each in part]
    if len(requests) == 1 and "choices" not in requests[0].value:
        return [Response(value, requests[0].counts)]
    return requests


def _without(value: Any) -> list[Response]:
    looks = value is None or (isinstance(value, dict) and bool(_RESPONSE & value.keys()))
    return [Response(value, None)] if looks else []


def _request(value: Any, counts: Mapping[str, Any], name: str) -> EngineRequest:
    engine = _engine_of(counts)
    assert engine is not None
    label = value.get("id") if isinstance(value, dict) else None
    return EngineRequest(engine.name, engine.read(value, counts, label if label and isinstance(label, str) else name))


def _engine_of(value: Mapping[str, Any]) -> _Engine | None:
    return next((each for each in _ENGINES if any(value.get(key) is not None for key in each.keys)), None)


def _vllm(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    return vllm_counts(holds, name, _completion(value, holds, name))


def _sglang(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Older releases use other names. Its completion count includes the token that its prefill writes."""
    steps = _count(holds, name, "spec_verify_ct")
    accepted = _count(holds, name, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
    drafted = _count(holds, name, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
    completion = _completion(value, holds, name)
    histogram = _histogram(holds, name, "spec_correct_drafts_histogram", "spec_accept_histogram")
    if histogram is not None:
        _check(sum(histogram) == steps, name, "the histogram does not add up to spec_verify_ct")
        total = sum(length * often for length, often in enumerate(histogram))
        _check(accepted in (None, total), name, "the histogram holds another number of accepted tokens")
        accepted = total
    exact = steps and drafted is not None and drafted % steps == 0  # else drafts were of several lengths
    gamma = drafted // steps if exact and drafted and steps else None
    if histogram is None or gamma is None or drafted is None:
        return RequestTotals(name, accepted, drafted, steps, gamma, completion)
    depths = np.repeat(np.arange(len(histogram)), histogram)
    _check(int(depths.max(initial=0)) <= gamma, name, "a round accepted more than it drafted")
    each = np.full(len(depths), gamma)
    return AcceptanceCounts(name, depths, each, drafted, gamma, completion, ordered=False, prefilled=1)


def _llama_cpp(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return sums only; llama.cpp does not report the number of rounds."""
    drafted, accepted = _count(holds, name, "draft_n"), _count(holds, name, "draft_n_accepted")
    return RequestTotals(name, accepted, drafted, completion_tokens=_count(holds, name, "predicted_n"))


def _mlx_vlm(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return sums and rounds. Every round drafts the same number of tokens, one less than its block size."""
    drafted, accepted = _count(holds, name, "draft_n"), _count(holds, name, "draft_n_accepted")
    rounds = _count(holds, name, "draft_rounds")
    gamma = drafted // rounds if rounds and drafted and drafted % rounds == 0 else None
    return RequestTotals(name, accepted, drafted, rounds, gamma, _count(holds, name, "predicted_n"))


def _lm_studio(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return sums, under the names of its HTTP routes or of its SDK. Accepted tokens are those in the text."""
    accepted = _count(holds, name, "accepted_draft_tokens_count", "acceptedDraftTokensCount")
    drafted = _count(holds, name, "total_draft_tokens_count", "totalDraftTokensCount")
    completion = _count(holds, name, "predicted_tokens_count", "predictedTokensCount")
    completion = _completion(value, holds, name) if completion is None else completion
    return RequestTotals(name, accepted, drafted, completion_tokens=completion, reached_total=accepted)


def _tensorrt_llm(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return sums and, if the completion is known, the number of passes from the mean tokens per pass."""
    accepted = _count(holds, name, "total_accepted_draft_tokens")
    drafted, completion = _count(holds, name, "total_draft_tokens"), _completion(value, holds, name)
    mean = _holding(value, "avg_decoded_tokens_per_iter").get("avg_decoded_tokens_per_iter")
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
    """Name, keys and reader of one engine's counts."""

    name: str
    keys: Sequence[str]
    """At least one of them is in the object with its counts."""
    read: Callable[[Any, Mapping[str, Any], str], Counts]


_ENGINES = (
    _Engine("vLLM", ("num_spec_steps",), _vllm),
    _Engine("SGLang", ("spec_verify_ct",), _sglang),
    _Engine("mlx-vlm", ("draft_rounds",), _mlx_vlm),
    _Engine("llama.cpp", ("draft_n", "draft_n_accepted"), _llama_cpp),
    _Engine("TensorRT-LLM", ("total_draft_tokens", "total_accepted_draft_tokens"), _tensorrt_llm),
    _Engine("LM Studio", ("total_draft_tokens_count", "totalDraftTokensCount"), _lm_studio),
)


def _holding(value: Any, key: str, deep: int = DEEPEST) -> Mapping[str, Any]:
    """Return the first object in a value that has this key; an empty one if there is none."""
    if not isinstance(value, dict | list) or deep == 0:
        return {}
    if isinstance(value, dict) and value.get(key) is not None:
        return value
    inner = value.values() if isinstance(value, dict) else value
    return next((found for each in inner if (found := _holding(each, key, deep - 1))), {})


def _completion(value: Any, holds: Mapping[str, Any], name: str) -> int | None:
    within = holds if "completion_tokens" in holds else _holding(value, "completion_tokens")
    return _count(within, name, "completion_tokens")


def _count(holds: Mapping[str, Any], name: str, *keys: str) -> int | None:
    """Return the value under the first of these names, or None. Raises RunFileError for an invalid count."""
    count = next((holds[key] for key in keys if holds.get(key) is not None), None)
    _check(count is None or (type(count) is int and 0 <= count < _LARGEST), name, f"{keys[0]} is no count")
    return count


def _histogram(holds: Mapping[str, Any], name: str, *keys: str) -> list[int] | None:
    values = next((holds[key] for key in keys if holds.get(key)), None)
    counts = isinstance(values, list) and all(type(each) is int and 0 <= each < _LARGEST for each in values)
    _check(values is None or counts, name, f"{keys[0]} is no list of counts")
    _check(sum(values or ()) <= MAX_STEPS, name, f"it has more than {MAX_STEPS:,} steps")
    return values


def _check(condition: Any, name: str, otherwise: str) -> None:
    if not condition:
        raise RunFileError(f"The counts of {name} cannot be used: {otherwise}. Export them again.")
