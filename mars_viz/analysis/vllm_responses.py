"""Reader of vLLM's responses with speculation and log-probabilities, as rounds.

Needs a server started with `--logprobs-mode raw_logits --per-request-spec-decode-metrics detailed` and greedy requests
with `logprobs`, `return_token_ids` and `return_tokens_as_token_ids`: `/v1/completions`, or `/v1/chat/completions`. Its
rows are the target's, for emitted tokens only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, Counts
from mars_viz.analysis.engine_counts import EngineRequest, counts_in
from mars_viz.analysis.engine_text import values_in
from mars_viz.analysis.served_rounds import ServedRounds
from mars_viz.errors import RunFileError

ASKED = "logprobs: 20, return_token_ids: true, return_tokens_as_token_ids: true, temperature: 0"
"""Request fields needed for a readable response."""
_TOKEN = re.compile(r"token_id:(\d{1,8})")
_FAR = -9999.0  # what vLLM writes for minus infinity


def parse_responses(text: str, words: Callable[[int], str] | None = None) -> tuple[ServedRounds, ...]:
    """Return the responses in a text. `words` reads a token id; without it a token without words is shown as its
    number.

    Raises RunFileError with a remedy for a response without rounds or logits, and for one that is not greedy.
    """
    return rounds_in(counts_in(values_in(text), text)[0], words)


def rounds_in(
    requests: Sequence[tuple[EngineRequest, Any]], words: Callable[[int], str] | None = None
) -> tuple[ServedRounds, ...]:
    """Return the rounds of requests with their responses."""
    return tuple(_served_rounds(request.counts, value, words) for request, value in requests)


def _served_rounds(counts: Counts, value: Any, words: Callable[[int], str] | None) -> ServedRounds:
    name = counts.name
    if not isinstance(counts, AcceptanceCounts):
        raise RunFileError(f"{name} is no response of vLLM with its rounds. Ask vLLM with {ASKED}.")
    try:
        (choice,) = value["choices"]
        logged = _told(choice["logprobs"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFileError(f"{name} holds no log-probabilities of its tokens. Ask vLLM with {ASKED}.") from error
    ids = _ids(choice.get("token_ids")) or tuple(each.id for each in logged if each.id is not None)
    if ids and len(ids) != len(logged):
        raise RunFileError(f"{name} has {len(ids)} token ids and logits of {len(logged)} tokens. Ask for it again.")
    if not logged:
        raise RunFileError(f"{name} holds no token. Ask for it again, with more of them.")
    texts = tuple(_words(each, token, words) for each, token in zip(logged, ids or [None] * len(logged), strict=True))
    width = max(len(each.row) for each in logged)
    best = np.array([_two_best(each, width, name) for each in logged])
    prompt = _ids(choice.get("prompt_token_ids")) or _ids(value.get("prompt_token_ids"))
    model = value.get("model")
    return ServedRounds(
        counts.name, model if isinstance(model, str) else "", prompt, ids, texts, counts, best, _are_raw(logged)
    )


@dataclass(frozen=True, slots=True)
class _ToldToken:
    """A token in a response."""

    text: str | None
    """Its text; None if its number is given instead."""
    id: int | None
    """Its number; None if its text is given instead."""
    value: float
    """Its logit or log-probability."""
    row: tuple[float, ...]
    """Values of the best tokens there."""


def _told(logprobs: Mapping[str, Any]) -> list[_ToldToken]:
    """Return the tokens of either route's response. Raises KeyError, TypeError or ValueError for another layout."""
    if "content" in logprobs:
        return [
            _told_token(
                each["token"], each["logprob"], [row["logprob"] for row in each["top_logprobs"]], each.get("bytes")
            )
            for each in logprobs["content"]
        ]
    columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
    return [_told_token(token, value, list(row.values())) for token, value, row in zip(*columns, strict=True)]


def _told_token(token: str, value: Any, row: Sequence[Any], data: Any = None) -> _ToldToken:
    number = _TOKEN.fullmatch(token)
    text = bytes(data).decode("utf-8", "backslashreplace") if data else (None if number else token)
    return _ToldToken(text, int(number[1]) if number else None, float(value), tuple(map(float, row)))


def _two_best(told: _ToldToken, width: int, name: str) -> tuple[float, float]:
    """Return the two best values; NaN if fewer are listed than elsewhere, because tokens with equal text are merged."""
    if len(told.row) < max(width, 2):
        return np.nan, np.nan
    first, second = sorted(told.row, reverse=True)[:2]
    if not np.isfinite([first, second]).all():
        raise RunFileError(f"{name} holds a logit that is no number. See whether the server is well.")
    if told.value < first:
        raise RunFileError(
            f"{name} wrote another token than the target's best one, so it was not decoded greedily, or what was "
            "decoded by is not the raw logits. Ask at temperature 0, without penalties."
        )
    return first, np.nan if second <= _FAR else second


def _are_raw(told: Sequence[_ToldToken]) -> bool:
    """Return False for log-probabilities: none is above 0, and no token's sum exceeds 1."""
    rows = [np.array(each.row) for each in told if each.row]
    sums = [np.exp(np.minimum(row, 1.0)).sum() for row in rows]
    return any(row.max() > 0 for row in rows) or max(sums, default=0.0) > 1.001 or max(sums, default=0.0) < 0.01


def _ids(found: Any) -> tuple[int, ...]:
    valid = isinstance(found, list) and all(type(token) is int and token >= 0 for token in found)
    return tuple(found) if valid else ()


def _words(told: _ToldToken, token: int | None, words: Callable[[int], str] | None) -> str:
    if token is not None and words is not None:
        return words(token)
    return f"[{told.id if token is None else token}]" if told.text is None else told.text
