"""Acceptance counts as reported by vLLM, SGLang, llama.cpp's server, mlx-vlm, TensorRT-LLM and LM Studio: in responses,
or as counters under /metrics.

A figure that an engine does not report stays unknown. Read: SGLang 0.5.23 and earlier names of its fields, `timings` of
llama.cpp and mlx-vlm, TensorRT-LLM's `request_perf_metrics`, LM Studio's `stats`. Counters are sums over all requests
since the server started. For several scrapes in one text the difference between the last and the first is counted.

A file has JSON values, one a line or indented, or captured streams. Only "\\n" ends a line: a JSON string may hold
U+2028, U+2029 and U+0085 as they are. The chunks of a stream (`data:` lines, or chunks saved as JSON lines) are merged
into one response for each request.

vLLM's per-request metrics are also written here. Their fields are those of `metrics.speculative_decoding` in a
response, as in the documentation of `--per-request-spec-decode-metrics` (vLLM calls them experimental). So are AIPerf's
acceptance records, one per line, as `spec_decode_acceptance` of its profile_export.jsonl.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from mars_viz.analysis.engines import CONTRADICTORY, AcceptanceCounts, Counts, RequestTotals
from mars_viz.errors import RunFileError

MAX_LISTS = 1_000_000  # lists and objects in a file; each takes twenty times the bytes that write it
WANTED = (
    "vLLM reports them with --per-request-spec-decode-metrics detailed if n = 1, SGLang in meta_info or, with "
    "return_spec_tokens_details, in sglext, llama.cpp's server and mlx-vlm in timings, TensorRT-LLM with "
    "return_perf_metrics, LM Studio in stats of /api/v0, and AIPerf with --export-level records; the text of /metrics "
    "of vLLM, SGLang (--enable-metrics), llama.cpp (--metrics) and TensorRT-LLM is read as well. Save one of these."
)
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_DONE = object()


def values_in(text: str) -> list[Any]:
    """Return the JSON values of a text, those of a single list one by one, and the responses of its streams. Raises
    RunFileError for any other text and for none."""
    if text.count("[") + text.count("{") > MAX_LISTS:
        raise RunFileError(f"There are more than {MAX_LISTS:,} lists and objects in it. Split it into smaller files.")
    decoder, items, place = json.JSONDecoder(), list[tuple[Any, bool]](), 0
    streamed = re.search(r"^[ \t]*data:", text, re.MULTILINE) is not None
    while (place := _after_space(text, place)) < len(text):
        event = streamed and text.startswith("data:", place)
        place = _after_space(text, place + len("data:")) if event else place
        try:
            if not text.startswith(("{", "[", "null"), place) or (streamed and text.startswith("[DONE]", place)):
                raise ValueError
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            if not streamed:
                if text[place] in "{[" or any(isinstance(value, dict) for value, _ in items):
                    line, remedy = text.count("\n", 0, place) + 1, "Remove it, or save the file again."
                    raise RunFileError(f"Line {line} is no JSON; it may be cut off. {remedy}") from error
                raise RunFileError(f"The text has no counts of speculative decoding. {WANTED}") from error
            if event and text.startswith("[DONE]", place):
                items.append((_DONE, True))
            end = text.find("\n", place)  # an event's name, a comment, a header of HTTP, a chunk that was cut off
            place = len(text) if end < 0 else end
        else:
            items.append((value, event))
    values = _merged(items)
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if not values:
        raise RunFileError("There are no metrics in it. Give the responses of an engine, or its metrics.")
    return values


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    assert match is not None  # it may be empty
    return match.end()


def _merged(found: list[tuple[Any, bool]]) -> list[Any]:
    """Merge the chunks of each stream: the last value of each field stays. A chunk without an id belongs to the stream
    of the chunk before it."""
    values, streams, key = list[Any](), dict[Any, dict[str, Any]](), None
    for value, event in found:
        if value is _DONE:
            streams.pop(key, None)
            key = None
        elif not isinstance(value, dict) or not (event or str(value.get("object", "")).endswith(".chunk")):
            values.append(value)
        else:
            info = value.get("meta_info")
            name = value.get("id") or (info.get("id") if isinstance(info, dict) else None)
            key = key if name is None else (str(name), str(value.get("index")))
            if key not in streams:
                values.append(streams.setdefault(key, {}))
            streams[key] |= {each: part for each, part in value.items() if part not in (None, [])}
            if value.get("stop") is True:  # llama.cpp's own route ends without [DONE]
                streams.pop(key, None)
                key = None
    return values


MAX_STEPS = 5_000_000  # maximum number of steps of all requests of a file; a small histogram can claim any number
MAX_DRAFT = 4096  # maximum number of tokens of a draft
DEEPEST = 8  # objects and lists within one another in which an engine's counts are looked for
_LARGEST = 2**53
_ONE = {"choices", "timings", "meta_info", "request_perf_metrics"}  # keys of a single response
_RESPONSE = _ONE | {"outputs", "usage", "metrics", "stats", "error"}


EngineRequest = tuple[str, Counts]
"""Name of an engine, and the counts that it reports of one request, or of all requests together."""
Response = tuple[Any, Mapping[str, Any] | None]
"""The largest object of a file about one request only, and the object in it with the counts, if it has one."""


def counts_in(values: Sequence[Any]) -> tuple[list[tuple[EngineRequest, Any]], int]:
    """Return the requests with counts, each with its response, and the number of requests without any. Raises
    RunFileError if none has any, and for counts that do not add up."""
    responses = [each for value in values for each in _responses(value, DEEPEST) or [(value, None)]]
    requests, steps = list[tuple[EngineRequest, Any]](), 0
    for number, (response, holds) in enumerate(responses, 1):
        engine = None if holds is None else _engine_of(holds)
        if holds is None or engine is None:
            continue
        label = response.get("id") if isinstance(response, dict) else None
        if isinstance(holds.get("engine"), str) and isinstance(metadata := response.get("metadata"), dict):
            label = metadata.get("x_request_id")  # of AIPerf
        name = label if label and isinstance(label, str) else f"request {number}"
        try:
            counts = engine[2](response, holds, name)
        except ValueError as error:
            raise RunFileError(CONTRADICTORY.format(name)) from error
        requests.append(((engine[0], counts), response))
        steps += counts.steps or 0
        _check_size(steps)
    if not requests:
        raise RunFileError(f"The file has no counts of speculative decoding. {WANTED}")
    return requests, len(responses) - len(requests)


def _responses(value: Any, deep: int) -> list[Response]:
    """Return the requests in a value; none if nothing in it has counts."""
    if not deep or not isinstance(value, dict | list):
        return []
    if isinstance(value, list):
        inner = [(each, _responses(each, deep - 1)) for each in value]
        for each, requests in inner if any(requests for _, requests in inner) else []:
            if not requests and (each is None or (isinstance(each, dict) and _RESPONSE & each.keys())):
                requests.append((each, None))
        return [request for _, requests in inner for request in requests]
    if _engine_of(value) is not None:
        return [(value, value)]
    parts = [
        _responses(each, deep - 1) for key, each in value.items() if key != "logprobs" and isinstance(each, dict | list)
    ]
    # parts of one response repeat its counts, as llama.cpp's __verbose does; parts of another object are requests
    requests = max(parts, key=len, default=[]) if _ONE & value.keys() else [each for part in parts for each in part]
    if len(requests) == 1 and "choices" not in requests[0][0]:
        return [(value, requests[0][1])]
    return requests


def _engine_of(value: Mapping[str, Any]) -> tuple[str, Sequence[str], Reader] | None:
    if isinstance(engine := value.get("engine"), str) and value.get("num_spec_steps") is not None:
        return _RECORDED.get(engine, engine[:60]), (), _recorded
    return next((each for each in _ENGINES if any(value.get(key) is not None for key in each[1])), None)


def _sglang(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Older releases use other names. Its completion count includes the token that its prefill writes."""
    steps = _count(holds, "spec_verify_ct")
    accepted = _count(holds, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
    drafted = _count(holds, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
    completion = _completion(value, holds)
    histogram = _list(holds, "spec_correct_drafts_histogram", "spec_accept_histogram") or None
    if histogram is not None:
        _check_size(sum(histogram))
        total = sum(length * often for length, often in enumerate(histogram))
        _check(sum(histogram) == steps and accepted in (None, total))
        accepted = total
    gamma = None if not steps or not drafted or drafted % steps else drafted // steps  # else drafts vary in length
    if histogram is None or gamma is None or drafted is None:
        return RequestTotals(name, accepted, drafted, steps, gamma, completion)
    depths = np.repeat(np.arange(len(histogram)), histogram)
    each = np.full(len(depths), gamma)
    return AcceptanceCounts(name, depths, each, drafted, gamma, completion, ordered=False, prefilled=1)


def _llama_cpp(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return sums. mlx-vlm reports rounds, too, each of which drafts the same number of tokens; llama.cpp does not."""
    drafted, accepted = _count(holds, "draft_n"), _count(holds, "draft_n_accepted")
    rounds = _count(holds, "draft_rounds")
    gamma = drafted // rounds if rounds and drafted and drafted % rounds == 0 else None
    return RequestTotals(name, accepted, drafted, rounds, gamma, _count(holds, "predicted_n"))


def _lm_studio(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return sums, under the names of its HTTP routes or of its SDK. Accepted tokens are those in the text."""
    accepted = _count(holds, "accepted_draft_tokens_count", "acceptedDraftTokensCount")
    drafted = _count(holds, "total_draft_tokens_count", "totalDraftTokensCount")
    completion = _count(holds, "predicted_tokens_count", "predictedTokensCount")
    completion = _completion(value, holds) if completion is None else completion
    return RequestTotals(name, accepted, drafted, completion_tokens=completion, reached_total=accepted)


def _tensorrt_llm(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return sums and the number of passes: its count of steps or, if the completion is known, from the mean tokens per
    pass."""
    accepted, steps = _count(holds, "total_accepted_draft_tokens"), _count(holds, "num_spec_steps")
    drafted, completion = _count(holds, "total_draft_tokens"), _completion(value, holds)
    mean = _holding(value, "avg_decoded_tokens_per_iter").get("avg_decoded_tokens_per_iter")
    mean = mean if isinstance(mean, int | float) and mean > 0 else None
    if drafted == 0 and mean is not None and mean > 1:
        raise RunFileError(f"The counts of {name} are zeros, as TensorRT-LLM wrote before 2026-07. Update it.")
    if steps is None and completion and mean:
        passes = round(completion / mean)
        steps = passes if passes and abs(completion / passes - mean) <= 1e-3 * mean else None
    return RequestTotals(name, accepted, drafted, steps, _count(holds, "num_spec_tokens"), completion)


def _recorded(value: Any, holds: Mapping[str, Any], name: str) -> Counts:
    """Return the counts of AIPerf's `SpecDecodeAcceptanceRecord`, whose histogram is sparse. Sums are returned if
    neither the longest draft nor the drafts' lengths are known."""
    histogram = _by_number(holds, "acceptance_histogram")
    longest, drafted = _count(holds, "num_spec_tokens"), _list(holds, "per_step_drafted")
    total, steps, completion = (_count(holds, key) for key in ("num_draft_tokens", "num_spec_steps", _COMPLETION))
    gamma = longest
    if gamma is None:  # the smallest that fits
        gamma = max([0, *histogram, *(drafted or []), -(-(total or 0) // max(steps or 0, 1))])
    dense = [histogram.get(depth, 0) for depth in range(min(gamma, MAX_DRAFT) + 1)]
    metrics = {**holds, "acceptance_histogram": dense, "num_spec_tokens": gamma}
    counts = _vllm_counts(metrics, name, completion)
    if longest is None and drafted is None:
        return RequestTotals(name, counts.accepted_total, counts.drafted_total, counts.steps, None, completion)
    return replace(counts, prefilled=int(holds["engine"] != OWN))


OWN = "mars_viz"  # the engine of records written here, whose texts have no token of a prefill
_RECORDED = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM", OWN: "MARS Viz"}
Reader = Callable[[Any, Mapping[str, Any], str], Counts]
_ENGINES: tuple[tuple[str, Sequence[str], Reader], ...] = (
    ("TensorRT-LLM", ("total_draft_tokens", "total_accepted_draft_tokens"), _tensorrt_llm),
    ("vLLM", ("num_spec_steps",), lambda value, holds, name: _vllm_counts(holds, name, _completion(value, holds))),
    ("SGLang", ("spec_verify_ct",), _sglang),
    ("mlx-vlm", ("draft_rounds",), _llama_cpp),
    ("llama.cpp", ("draft_n", "draft_n_accepted"), _llama_cpp),
    ("LM Studio", ("total_draft_tokens_count", "totalDraftTokensCount"), _lm_studio),
)
"""Names and readers of engines, with keys of which at least one is in the object with the counts."""


def _holding(value: Any, key: str, deep: int = DEEPEST) -> Mapping[str, Any]:
    """Return the first object in a value that has this key; an empty one if there is none."""
    if not isinstance(value, dict | list) or deep == 0:
        return {}
    if isinstance(value, dict) and value.get(key) is not None:
        return value
    inner = value.values() if isinstance(value, dict) else value
    return next((found for each in inner if (found := _holding(each, key, deep - 1))), {})


def _completion(value: Any, holds: Mapping[str, Any]) -> int | None:
    return _count(holds if _COMPLETION in holds else _holding(value, _COMPLETION), _COMPLETION)


_COMPLETION = "completion_tokens"
_BY_LENGTH = "acceptance_histogram_by_draft_length"  # of vLLM after 0.33


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError("contradictory counts")


def _check_size(steps: int, draft: int = 0) -> None:
    if steps > MAX_STEPS or draft > MAX_DRAFT:
        words = f"{MAX_STEPS:,} steps in it, or {MAX_DRAFT:,} tokens in a draft"
        raise RunFileError(f"There are more than {words}. Split it into smaller files.")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _count(holds: Mapping[str, Any], *keys: str) -> int | None:
    """Return the value under the first of these names, or None. Raises ValueError if it is no count."""
    count = next((holds[key] for key in keys if holds.get(key) is not None), None)
    _check(count is None or _is_count(count))
    return count


def _list(holds: Mapping[str, Any], *keys: str) -> list[int] | None:
    """Return the list under the first of these names, or None. Raises ValueError if it is no list of counts."""
    values = next((holds[key] for key in keys if holds.get(key)), holds.get(keys[0]))
    _check(values is None or (isinstance(values, list) and all(map(_is_count, values))))
    return values


def _by_number(holds: Mapping[str, Any], key: str) -> dict[int, Any]:
    """Return the object under this name, whose keys are numbers, with counts or lists of counts."""
    found = holds.get(key)
    if not isinstance(found, Mapping):
        raise ValueError(f"{key} is no object")
    for number, each in found.items():
        _check(len(number) < 5 and (_is_count(each) or _list(found, number) is not None))
    return {int(number): each for number, each in found.items()}


def vllm_metrics(counts: AcceptanceCounts) -> dict[str, Any]:
    """Return one request's metrics, ready for JSON.

    Steps without a draft are not speculative and are left out, as in vLLM. Without any step the length is 1 and the
    rate 0. The per-step lists are left out if the steps' order or the drafts' lengths are unknown.
    """
    drafted = counts.drafted
    has_draft = np.ones(counts.steps, bool) if drafted is None or counts.empty_drafts else drafted > 0
    accepted, steps = counts.accepted[has_draft], counts.drafts
    metrics: dict[str, Any] = {
        "mean_acceptance_length": 1 + counts.accepted_total / steps if steps else 1.0,
        "draft_acceptance_rate": counts.accepted_total / counts.drafted_total if counts.drafted_total else 0.0,
        "acceptance_histogram": np.bincount(accepted, minlength=counts.gamma + 1).tolist(),
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": counts.accepted_total,
        "num_draft_tokens": counts.drafted_total,
        "num_spec_tokens": counts.gamma,
    }
    if counts.ordered:
        metrics["per_step_accepted"] = accepted.tolist()
        if drafted is not None:
            metrics["per_step_drafted"] = drafted[has_draft].tolist()
    return metrics


def acceptance_records(requests: Sequence[AcceptanceCounts]) -> str:
    """Return a line per request: its name, and its counts as AIPerf's `SpecDecodeAcceptanceRecord`.

    Unknown fields are left out, and steps without a draft, as in `vllm_metrics`.
    """
    lines = []
    for counts in requests:
        metrics = vllm_metrics(counts)
        histogram = {str(depth): often for depth, often in enumerate(metrics["acceptance_histogram"]) if often}
        record = {"engine": OWN} | metrics | {"acceptance_histogram": histogram}
        record |= {} if counts.completion_tokens is None else {_COMPLETION: counts.completion_tokens}
        line = {"metadata": {"x_request_id": counts.name}, "spec_decode_acceptance": record}
        lines.append(json.dumps(line, allow_nan=False) + "\n")
    return "".join(lines)


def _vllm_counts(metrics: Mapping[str, Any], name: str, completion: int | None) -> AcceptanceCounts:
    """Return the counts of a `speculative_decoding` object for a text of `completion` tokens."""
    keys = ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens", "num_spec_tokens")
    sums = [count for key in keys if (count := _count(metrics, key)) is not None]
    _check(len(sums) == len(keys))
    steps, accepted_total, drafted_total, gamma = sums
    _check_size(steps, gamma)
    histogram, per_step = _list(metrics, "acceptance_histogram") or [], _list(metrics, "per_step_accepted")
    _check(len(histogram) == gamma + 1 and sum(histogram) == steps)
    drafted = None
    if per_step is not None:
        accepted, drafted = np.array(per_step, np.int64), _list(metrics, "per_step_drafted")
    elif metrics.get(_BY_LENGTH) is not None:
        histograms = _by_number(metrics, _BY_LENGTH)
        _check(all(isinstance(each, list) and len(each) == length + 1 for length, each in histograms.items()))
        by_length = [np.repeat(np.arange(len(each)), each) for each in histograms.values()]
        accepted = np.concatenate([np.empty(0, np.int64), *by_length])
        drafted = [length for length, each in histograms.items() for _ in range(sum(each))]
    else:
        accepted = np.repeat(np.arange(gamma + 1), histogram)
    if drafted is None and drafted_total == steps * gamma:
        drafted = [gamma] * steps
    _check(np.bincount(accepted, minlength=gamma + 1).tolist() == histogram and accepted.sum() == accepted_total)
    array, ordered = None if drafted is None else np.array(drafted, np.int64), per_step is not None
    return AcceptanceCounts(
        name, accepted, array, drafted_total, gamma, completion, ordered, prefilled=1, empty_drafts=True
    )


_PREFIXES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "trtllm": "TensorRT-LLM"}
_COUNTERS = {
    "spec_decode_num_drafts": "steps",
    "spec_decode_num_draft_tokens": "drafted",
    "spec_decode_num_accepted_tokens": "accepted",
    "spec_decode_num_accepted_tokens_per_pos": "accepted at",
    "spec_verify_calls": "steps",  # SGLang
    "generation_tokens": "completion",
    "spec_decode_drafted_tokens": "drafted at",  # TensorRT-LLM
    "spec_decode_accepted_tokens": "accepted at",
}
_SAMPLE = re.compile(
    r"^(?:ray_)?(vllm|sglang|llamacpp|trtllm)[:_](\w+)"
    r'(?:\{((?:[^"{}\n]|"(?:[^"\\\n]|\\.)*+")*+)\})?[ \t]+(\S+)',
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Series = tuple[str, str, tuple[tuple[str, str], ...]]  # engine, name without `_total`, and labels


def counters_in(text: str) -> tuple[list[EngineRequest], int]:
    """Return the sums of each server's model with its engine, and the number of scrapes; 0 if the text has no counters
    of speculative decoding. Raises RunFileError for counters that cannot be used."""
    scrapes = _scrapes(text)
    sums = defaultdict[tuple[str, str], defaultdict[tuple[str, int], int]](lambda: defaultdict(int))
    for (engine, name, labels), value in _counted(scrapes).items():
        by_label = dict(labels)
        position = by_label.get("position", by_label.get("token_position", "0"))
        what = (_COUNTERS[name], int(position) if position.isdecimal() and len(position) < 5 else 0)
        sums[engine, by_label.get("model_name", by_label.get("model", "the server"))][what] += value
    read = ((engine, _counts(engine, model, each)) for (engine, model), each in sums.items())
    counts = [(engine, each) for engine, each in read if each is not None]
    if counts and not any(each.steps or each.drafted_total for _, each in counts):
        when = "since the server started" if len(scrapes) == 1 else "between the scrapes"
        raise RunFileError(f"Nothing was drafted {when}. Send requests first, and see that the server drafts.")
    return counts, len(scrapes) if counts else 0


def _scrapes(text: str) -> list[dict[Series, float]]:
    """Return the samples of each scrape: one that comes again begins the next."""
    scrapes = list[dict[Series, float]]()
    for prefix, name, labels, value in _SAMPLE.findall(text):
        base = name.removesuffix("_total")
        if base not in _COUNTERS:
            continue
        series = _PREFIXES[prefix], base, tuple(sorted(_LABEL.findall(labels)))
        try:
            number = float(value)
        except ValueError as error:
            raise RunFileError(f"The value {value[:40]!r} of {name} is no number. Save the metrics again.") from error
        if not scrapes or series in scrapes[-1]:
            scrapes.append({})
        scrapes[-1][series] = number
    return scrapes


def _counted(scrapes: Sequence[Mapping[Series, float]]) -> dict[Series, int]:
    """Return the count of each series: its value, or its increase after the first scrape."""
    counts = dict[Series, int]()
    for series in dict.fromkeys(series for scrape in scrapes for series in scrape):
        values = [scrape[series] for scrape in scrapes if series in scrape]
        if any(later < before for before, later in pairwise(values)):
            raise RunFileError(
                "The scrapes are of several servers, or of one that was started again in between. Give the scrapes of "
                "one server since its last start."
            )
        count = values[-1] - (values[0] if len(scrapes) > 1 and series in scrapes[0] else 0)
        if not (math.isfinite(count) and count == int(count) and 0 <= count < _LARGEST):
            raise RunFileError(f"The counter {series[1]} has {count:g}, which is no count. Save the metrics again.")
        counts[series] = int(count)
    return counts


def _counts(engine: str, name: str, sums: Mapping[tuple[str, int], int]) -> Counts | None:
    """Return the counts in one model's counters; None if they contain nothing about speculation."""

    def by_position(key: str) -> list[int]:
        values = [sums[each] for each in sorted(sums) if each[0] == key]
        return values if all((key, place) in sums for place in range(len(values))) else []

    positions, drafted_at = by_position("accepted at"), by_position("drafted at")
    drafted = sums.get(("drafted", 0), sum(drafted_at) if drafted_at else None)
    accepted = sums.get(("accepted", 0), sum(positions) if positions and drafted_at else None)
    steps = sums.get(("steps", 0), drafted_at[0] if drafted_at else None)
    if drafted is None and accepted is None and steps is None:
        return None
    if steps and drafted is not None and sum(positions) == accepted and positions:
        uniform = drafted == steps * len(positions)
        falling = [steps, *positions, 0]
        histogram = [more - fewer for more, fewer in pairwise(falling)]
        if min(histogram) >= 0 and steps <= MAX_STEPS and (uniform or engine == "vLLM"):  # vLLM has all its positions
            depths = np.repeat(np.arange(len(histogram)), histogram)
            each = np.full(steps, len(positions)) if uniform else None
            return AcceptanceCounts(
                name, depths, each, drafted, len(positions), None, ordered=False, prefilled=1, summed=True
            )
    completion = sums.get(("completion", 0)) if engine == "SGLang" else None
    return RequestTotals(name, accepted, drafted, steps, completion_tokens=completion, summed=True)
