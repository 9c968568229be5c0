"""Reader and writer of vLLM's per-request acceptance metrics: counts only, so they contain no margins.

The fields are those of `metrics.speculative_decoding` in a response, as in the documentation of vLLM's option
`--per-request-spec-decode-metrics` (vLLM calls them experimental).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.errors import RunFileError

MAX_STEPS = 5_000_000  # maximum number of steps of all requests of a file; a small histogram can claim any number


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


def vllm_counts(metrics: Mapping[str, Any], name: str, completion: int | None) -> AcceptanceCounts:
    """Return the counts of a `speculative_decoding` object for a text of `completion` tokens. Raises RunFileError."""
    try:
        if completion is not None:
            _count({"completion_tokens": completion}, "completion_tokens")
        return _counts(metrics, name, completion)
    except _Contradiction as error:
        remedy = "Export it again with --per-request-spec-decode-metrics detailed."
        raise RunFileError(f"The metrics of {name} cannot be used: {error}. {remedy}") from error


class _Contradiction(Exception):
    """An inconsistency in one request's metrics."""


def _counts(metrics: Mapping[str, Any], name: str, completion: int | None) -> AcceptanceCounts:
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
    accepted = np.repeat(np.arange(gamma + 1), histogram or []) if per_step is None else np.array(per_step, np.int64)
    same = ordered and (len(accepted) != steps or accepted.max(initial=0) > gamma)
    _holds(not same, "per_step_accepted has not num_spec_steps entries of at most num_spec_tokens")
    _holds(np.bincount(accepted, minlength=gamma + 1).tolist() == histogram, "per_step_accepted is no such histogram")
    _holds(int(accepted.sum()) == accepted_total, "num_accepted_draft_tokens is not what the steps accepted")
    drafted_by_step = drafted if ordered else None
    if not ordered and metrics.get("acceptance_histogram_by_draft_length") is not None:
        accepted, drafted_by_step = _by_draft_length(metrics["acceptance_histogram_by_draft_length"], steps)
        _holds(
            np.bincount(accepted, minlength=gamma + 1).tolist() == histogram,
            "acceptance_histogram_by_draft_length does not add up to acceptance_histogram",
        )
    if drafted_by_step is None and drafted_total == steps * gamma:
        drafted_by_step = [gamma] * steps
    if drafted_by_step is not None:
        fits = len(drafted_by_step) == steps and max(drafted_by_step, default=0) <= gamma
        _holds(fits, "per_step_drafted does not fit the steps")
        _holds(sum(drafted_by_step) == drafted_total, "per_step_drafted does not add up to num_draft_tokens")
        _holds(bool(np.all(accepted <= np.array(drafted_by_step))), "a step accepted more than it drafted")
    _holds(accepted_total <= drafted_total <= steps * gamma, "num_draft_tokens does not fit the steps")
    _close(metrics, "mean_acceptance_length", 1 + accepted_total / steps if steps else None)
    _close(metrics, "draft_acceptance_rate", accepted_total / drafted_total if drafted_total else None)
    array = None if drafted_by_step is None else np.array(drafted_by_step, np.int64)
    return AcceptanceCounts(
        name, accepted, array, drafted_total, gamma, completion, ordered, prefilled=1, empty_drafts=True
    )


def _by_draft_length(found: Any, steps: int) -> tuple[np.ndarray, list[int]]:
    """Return accepted and drafted tokens of each step from a histogram for each draft length."""
    problem = "acceptance_histogram_by_draft_length does not hold length + 1 counts for each length"
    _holds(isinstance(found, Mapping), problem)
    lengths = [key for key in found if key.isdecimal() and len(key) < 5]
    histograms = [_list(found, key) or [] for key in lengths]
    complete = all(len(each) == int(key) + 1 for key, each in zip(lengths, histograms, strict=True))
    _holds(complete and len(lengths) == len(found), problem)
    _holds(sum(map(sum, histograms)) == steps, "acceptance_histogram_by_draft_length does not add up to num_spec_steps")
    accepted = [np.repeat(np.arange(len(each)), each) for each in histograms]
    drafted = [int(key) for key, each in zip(lengths, histograms, strict=True) for _ in range(sum(each))]
    return np.concatenate([np.empty(0, np.int64), *accepted]), drafted


def _holds(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Contradiction(otherwise)


def _count(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key)
    if type(value) is not int or not 0 <= value < 2**53:
        raise _Contradiction(f"{key} is no count")
    return value


def _list(found: Mapping[str, Any], key: str) -> list[int] | None:
    value = found.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 2**53 for item in value):
        raise _Contradiction(f"{key} is no list of counts")
    return value


def _close(found: Mapping[str, Any], key: str, expected: float | None) -> None:
    """Check a figure against the counts, if both exist."""
    value = found.get(key)
    if value is None or expected is None:
        return
    _holds(
        type(value) in (int, float) and math.isclose(value, expected, rel_tol=1e-4, abs_tol=1e-4),
        f"{key} contradicts the counts",
    )
