"""A text that an engine wrote speculatively and greedily, round by round: its reader, and a limit on possible savings.

Rejected drafted tokens are not reported, but the target's logits at the rejections are. T is the number of the text's
tokens, R the number of its rounds. Read are vLLM's responses with log-probabilities, whose rows are the target's, for
emitted tokens only. They need a server started with `--logprobs-mode raw_logits --per-request-spec-decode-metrics
detailed` and greedy requests with `logprobs`, `return_token_ids` and `return_tokens_as_token_ids`: `/v1/completions`,
or `/v1/chat/completions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, Counts
from mars_viz.analysis.engine_counts import EngineRequest, counts_in
from mars_viz.analysis.engine_text import values_in
from mars_viz.errors import RunFileError


@dataclass(frozen=True, eq=False)
class ServedRounds:
    """The rounds of one request."""

    name: str  # label for lists
    model: str  # the engine's name of the target; empty if unknown
    prompt_ids: tuple[int, ...]  # may be empty if unknown
    token_ids: tuple[int, ...]  # the text; empty if only its words are known
    texts: tuple[str, ...]  # [T]; the texts of its tokens
    counts: AcceptanceCounts  # counts of its rounds, in order, with the drafted tokens of each
    best: np.ndarray  # float64 [T, 2]; the target's two largest logits at each token, NaN if unknown
    raw: bool  # False for log-probabilities, which give a margin and no ratio

    def __post_init__(self) -> None:
        """Raise RunFileError if the rounds do not add up to the text, or lack their drafts."""
        accepted, length = self.counts.accepted, len(self.texts)
        if self.counts.drafted is None or not self.counts.ordered:
            raise RunFileError(
                f"{self.name} does not tell its rounds one by one. Start vLLM with --per-request-spec-decode-metrics "
                "detailed."
            )
        total, last = self.counts.prefilled + int((accepted + 1).sum()), int(accepted[-1] + 1) if len(accepted) else 0
        if not total - last < length <= total and (len(accepted) or length > self.counts.prefilled):
            raise RunFileError(
                f"The rounds of {self.name} come to {total} tokens and its text has {length}: some were written "
                "without a draft, so where rounds begin is not known."
            )

    @cached_property
    def round_index(self) -> np.ndarray:
        """int64 [T]; the round that wrote each token, from 1; 0 for tokens of the engine's prefill."""
        written = np.repeat(np.arange(1, self.counts.steps + 1), self.counts.accepted + 1)
        return np.concatenate([np.zeros(self.counts.prefilled, np.int64), written])[: len(self.texts)]

    @cached_property
    def drafted(self) -> np.ndarray:
        """bool [T]; drafted and accepted tokens; the others are the target's own."""
        ends = self.counts.prefilled + np.cumsum(self.counts.accepted + 1) - 1
        drafted = np.ones(len(self.texts), bool)
        drafted[: self.counts.prefilled] = False
        drafted[ends[ends < len(drafted)]] = False
        return drafted

    @cached_property
    def corrected(self) -> np.ndarray:
        """bool [T]; tokens written in place of a rejected one."""
        assert self.counts.drafted is not None
        short = np.concatenate([[False], self.counts.accepted < self.counts.drafted])
        return ~self.drafted & short[self.round_index]

    @cached_property
    def margin(self) -> np.ndarray:
        """float64 [T]; z1 - z2."""
        return self.best[:, 0] - self.best[:, 1]

    @cached_property
    def ratio(self) -> np.ndarray:
        """float64 [T]; z2 / z1; NaN if unknown or z1 <= 0."""
        first, second = self.best.T
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.raw & (first > 0), second / first, np.nan)

    @property
    def tau(self) -> float:
        """Tokens of the text that rounds wrote, per round; NaN without a round."""
        steps = self.counts.steps
        return (len(self.texts) - min(self.counts.prefilled, len(self.texts))) / steps if steps else float("nan")


@dataclass(frozen=True, slots=True)
class RejectionBound:
    """The maximum number of rejections in some texts that a threshold could have forgiven. The drafted token is
    unknown. MARS forgives only the runner-up, and only if the two best logits are close."""

    rejections: int  # rejected drafted tokens, the first of each round
    unknown: int  # rejections whose two best logits are unknown; any threshold might forgive them
    values: np.ndarray
    """float64, rising; z2/z1 at the other rejections, or z1 - z2 for log-probabilities. Values that no threshold
    forgives are left out."""
    by_ratio: bool  # True for ratios, compared with θ; False for margins, compared with m of `mars-margin`

    def at(self, dial: float) -> int:
        """Return the maximum number at this θ or m."""
        known = np.count_nonzero(self.values > dial if self.by_ratio else self.values < dial)
        return self.unknown + int(known)

    def share(self, dial: float) -> float:
        """Return the maximum as a share of the rejections; NaN without rejections."""
        return self.at(dial) / self.rejections if self.rejections else float("nan")


def rejection_bound(texts: Sequence[ServedRounds]) -> RejectionBound:
    """Return the limit for these texts together, whose logits are of one kind. Raises RunFileError for two kinds."""
    if len({each.raw for each in texts}) > 1:
        raise RunFileError("Some responses hold raw logits and some log-probabilities. Read them one after the other.")
    by_ratio = all(each.raw for each in texts)
    values_known, unknown, rejections = [], 0, 0
    for each in texts:
        rejected = each.corrected
        values = (each.ratio if by_ratio else each.margin)[rejected]
        lacking = np.isnan(each.best[rejected]).any(1)
        values_known.append(values[~lacking & ~np.isnan(values)])
        unknown, rejections = unknown + int(lacking.sum()), rejections + int(rejected.sum())
    return RejectionBound(rejections, unknown, np.sort(np.concatenate([*values_known, np.empty(0)])), by_ratio)


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
    texts = []
    for each, token in zip(logged, ids or [None] * len(logged), strict=True):
        if token is not None and words is not None:
            texts.append(words(token))
        else:
            texts.append(f"[{each.id if token is None else token}]" if each.text is None else each.text)
    width = max(len(each.row) for each in logged)
    best = np.array([_two_best(each, width, name) for each in logged])
    prompt = _ids(choice.get("prompt_token_ids")) or _ids(value.get("prompt_token_ids"))
    model = value.get("model") if isinstance(value.get("model"), str) else ""
    return ServedRounds(name, model, prompt, ids, tuple(texts), counts, best, _are_raw(logged))


@dataclass(frozen=True, slots=True)
class _ToldToken:
    """A token in a response."""

    text: str | None  # its text; None if its number is given instead
    id: int | None  # its number; None if its text is given instead
    value: float  # its logit or log-probability
    row: tuple[float, ...]  # values of the best tokens there


def _told(logprobs: Mapping[str, Any]) -> list[_ToldToken]:
    """Return the tokens of either route's response. Raises KeyError, TypeError or ValueError for another layout."""
    if "content" in logprobs:
        listed = [
            (each["token"], each["logprob"], [row["logprob"] for row in each["top_logprobs"]], each.get("bytes"))
            for each in logprobs["content"]
        ]
    else:
        columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
        listed = [(token, value, list(row.values()), None) for token, value, row in zip(*columns, strict=True)]
    tokens = []
    for token, value, row, data in listed:
        number = _TOKEN.fullmatch(token)
        text = bytes(data).decode("utf-8", "backslashreplace") if data else (None if number else token)
        tokens.append(_ToldToken(text, int(number[1]) if number else None, float(value), tuple(map(float, row))))
    return tokens


def _two_best(told: _ToldToken, width: int, name: str) -> tuple[float, float]:
    """Return the two best values; NaN if fewer are listed than elsewhere, because tokens with equal text are merged."""
    if len(told.row) < max(width, 2):
        return np.nan, np.nan
    first, second = sorted(told.row, reverse=True)[:2]
    if not np.isfinite([first, second]).all():
        raise RunFileError(f"{name} holds a logit that is no number. See whether the server is well.")
    if told.value < first:
        raise RunFileError(
            f"{name} wrote another token than the target's best one, so it was not decoded greedily from raw logits. "
            "Ask at temperature 0, without penalties."
        )
    return first, np.nan if second <= _FAR else second


def _are_raw(told: Sequence[_ToldToken]) -> bool:
    """Return False for log-probabilities: none is above 0, and no token's sum exceeds 1."""
    rows = [np.array(each.row) for each in told if each.row]
    largest = max((np.exp(np.minimum(row, 1.0)).sum() for row in rows), default=0.0)
    return any(row.max() > 0 for row in rows) or largest > 1.001 or largest < 0.01


def _ids(found: Any) -> tuple[int, ...]:
    valid = isinstance(found, list) and all(type(token) is int and token >= 0 for token in found)
    return tuple(found) if valid else ()
