"""vLLM's per-request acceptance metrics, written and read: counts only, so margins cannot be shown from them.

The fields are those of `metrics.speculative_decoding` in a response, as the documentation of vLLM's option
`--per-request-spec-decode-metrics` describes them (read; vLLM calls them experimental). Knows counts and JSON.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.errors import RunFileError

MAX_STEPS = 5_000_000
"""Of all requests of a file: a histogram of a few bytes can claim any number of them."""
MAX_LISTS = 1_000_000
"""And objects; each takes twenty times the bytes that write it."""
_REMEDY = "Export it again with --per-request-spec-decode-metrics detailed."


def vllm_metrics(counts: AcceptanceCounts) -> dict[str, Any]:
    """One request's metrics, ready for JSON.

    Steps without a draft are no speculative steps and are left out, as in vLLM. Without any step the length is 1 and
    the rate 0. The per-step lists are left out where the steps' order or the drafts' lengths are not known.
    """
    drafted = counts.drafted
    has_draft = np.ones(counts.steps, bool) if drafted is None else drafted > 0
    accepted, steps = counts.accepted[has_draft], counts.drafts
    found: dict[str, Any] = {
        "mean_acceptance_length": 1 + counts.accepted_total / steps if steps else 1.0,
        "draft_acceptance_rate": counts.accepted_total / counts.drafted_total if counts.drafted_total else 0.0,
        "acceptance_histogram": np.bincount(accepted, minlength=counts.gamma + 1).tolist(),
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": counts.accepted_total,
        "num_draft_tokens": counts.drafted_total,
        "num_spec_tokens": counts.gamma,
    }
    if counts.ordered:
        found["per_step_accepted"] = accepted.tolist()
        if drafted is not None:
            found["per_step_drafted"] = drafted[has_draft].tolist()
    return found


def parse_vllm_metrics(text: str) -> tuple[AcceptanceCounts, ...]:
    """The requests in a text: one JSON value, a list of them, or one a line. Each is a metrics object, or a whole
    response that holds one. Raises BadInput for anything else.
    """
    found, steps = [], 0
    for number, value in enumerate(values_in(text), 1):
        found.append(vllm_counts(value, f"request {number}"))
        steps += len(found[-1].accepted)
        if steps > MAX_STEPS:
            raise RunFileError(f"There are more than {MAX_STEPS:,} steps in it. Split it into smaller files.")
    return tuple(found)


def values_in(text: str) -> list[Any]:
    """What a text of responses holds: one JSON value, a list of them, or one a line. Raises RunFileError for anything
    else, and for nothing."""
    if text.count("[") + text.count("{") > MAX_LISTS:
        raise RunFileError(f"There are more than {MAX_LISTS:,} lists and objects in it. Split it into smaller files.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        found = [_line(line, number) for number, line in lines]
    values = found if isinstance(found, list) else [found]
    if not values:
        raise RunFileError(f"There are no metrics in it. {_REMEDY}")
    return values


def _line(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"Line {number} is no JSON. {_REMEDY}") from error


def vllm_counts(value: object, name: str) -> AcceptanceCounts:
    """Of a metrics object, or a response that holds one. Raises RunFileError for anything else."""
    try:
        response = value if isinstance(value, dict) else {}
        usage, metrics = response.get("usage"), response.get("metrics", response)
        metrics = metrics.get("speculative_decoding", metrics) if isinstance(metrics, dict) else None
        if not isinstance(metrics, dict) or "num_spec_steps" not in metrics:
            raise _Contradiction("there is no speculative_decoding object with num_spec_steps in it")
        completion = _optional_count(usage, "completion_tokens") if isinstance(usage, dict) else None
        label = response.get("id")
        return _counts(metrics, label if isinstance(label, str) and label else name, completion)
    except _Contradiction as error:
        raise RunFileError(f"The metrics of {name} cannot be used: {error}. {_REMEDY}") from error


class _Contradiction(Exception):
    """What is wrong with one request's metrics."""


def _counts(metrics: dict[str, Any], name: str, completion: int | None) -> AcceptanceCounts:
    steps, accepted_total, drafted_total, gamma = (
        _count(metrics, key)
        for key in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens", "num_spec_tokens")
    )
    _holds(steps <= MAX_STEPS, f"num_spec_steps is above {MAX_STEPS}")
    _holds(gamma <= 4096, "num_spec_tokens is above 4096")
    histogram = _list(metrics, "acceptance_histogram")
    _holds(histogram is not None and len(histogram) == gamma + 1, "acceptance_histogram has not num_spec_tokens + 1")
    _holds(sum(histogram or ()) == steps, "acceptance_histogram does not add up to num_spec_steps")
    per_step, drafted = _list(metrics, "per_step_accepted"), _list(metrics, "per_step_drafted")
    ordered = per_step is not None
    accepted = np.repeat(np.arange(gamma + 1), histogram or []) if per_step is None else _array(per_step)
    same = ordered and (len(accepted) != steps or accepted.max(initial=0) > gamma)
    _holds(not same, "per_step_accepted has not num_spec_steps entries of at most num_spec_tokens")
    _holds(np.bincount(accepted, minlength=gamma + 1).tolist() == histogram, "per_step_accepted is no such histogram")
    _holds(int(accepted.sum()) == accepted_total, "num_accepted_draft_tokens is not what the steps accepted")
    known = drafted if ordered else None
    if known is None and drafted_total == steps * gamma:
        known = [gamma] * steps
    if known is not None:
        _holds(len(known) == steps and max(known, default=0) <= gamma, "per_step_drafted does not fit the steps")
        _holds(sum(known) == drafted_total, "per_step_drafted does not add up to num_draft_tokens")
        _holds(bool(np.all(accepted <= _array(known))), "a step accepted more than it drafted")
    _holds(accepted_total <= drafted_total <= steps * gamma, "num_draft_tokens does not fit the steps")
    _close(metrics, "mean_acceptance_length", 1 + accepted_total / steps if steps else None)
    _close(metrics, "draft_acceptance_rate", accepted_total / drafted_total if drafted_total else None)
    array = None if known is None else _array(known)
    return AcceptanceCounts(name, accepted, array, drafted_total, gamma, completion, ordered, prefilled=1)


def _array(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _holds(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Contradiction(otherwise)


def _count(found: dict[str, Any], key: str) -> int:
    value = found.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise _Contradiction(f"{key} is no count")
    return value


def _optional_count(found: dict[str, Any], key: str) -> int | None:
    return None if found.get(key) is None else _count(found, key)


def _list(found: dict[str, Any], key: str) -> list[int] | None:
    value = found.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 2**53 for item in value):
        raise _Contradiction(f"{key} is no list of counts")
    return value


def _close(found: dict[str, Any], key: str, expected: float | None) -> None:
    """The figure may be missing; where it is there and defined, it follows from the counts."""
    value = found.get(key)
    if value is None or expected is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    _holds(number and math.isclose(value, expected, rel_tol=1e-4, abs_tol=1e-4), f"{key} contradicts the counts")
