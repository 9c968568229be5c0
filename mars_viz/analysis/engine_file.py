"""Reader of the files in which engines report their speculative decoding: counts, served texts, and logs of drafts.

vLLM's responses with log-probabilities hold the target's logits for emitted tokens only, which limits possible savings.
They need a server started with `--logprobs-mode raw_logits --per-request-spec-decode-metrics detailed` and greedy
requests with `logprobs`, `return_token_ids` and `return_tokens_as_token_ids`. T is the number of the text's tokens, R
the number of its rounds.

Logs are JSON, one object per line. Whole rounds: a header with `prompt_ids` (and `engine`, `version`, `target`,
`drafter`, `logits_scale`), then its rounds with `drafted`, `n_accepted`, `emitted` and, if known, `rows`. Drafts only,
to join with responses: `prefix_sha256`, of the tokens before the draft as little-endian int32, and `drafted`. Null is
unknown.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from mars_viz.analysis.engine_counts import EngineRequest, counters_in, counts_in, values_in
from mars_viz.analysis.engines import AcceptanceCounts, Counts
from mars_viz.bounds import LONGEST_DRAFT, TOKENS, VOCABULARY, WIDEST
from mars_viz.errors import RunFileError, SettingError
from mars_viz.words import counted


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

    def __post_init__(self) -> None:
        """Raise RunFileError if the rounds do not add up to the text, or lack their drafts."""
        accepted, length = self.counts.accepted, len(self.texts)
        if self.counts.drafted is None or not self.counts.ordered:
            raise RunFileError(
                f"{self.name} does not list its rounds one by one. Start vLLM with --per-request-spec-decode-metrics "
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
            return np.where(first > 0, second / first, np.nan)

    @property
    def tau(self) -> float:
        """Tokens of the text that rounds wrote, per round; NaN without a round."""
        steps = self.counts.steps
        return (len(self.texts) - min(self.counts.prefilled, len(self.texts))) / steps if steps else float("nan")


DIALS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)  # values of θ for tables of bounds


@dataclass(frozen=True, slots=True)
class RejectionBound:
    """The maximum number of rejections in some texts that θ could have forgiven. The drafted token is unknown. MARS
    forgives only the runner-up, and only if the two best logits are close."""

    rejections: int  # rejected drafted tokens, the first of each round
    unknown: int  # rejections whose two best logits are unknown; any θ might forgive them
    ratios: np.ndarray  # float64, rising; z2/z1 at the other rejections, without those that no θ forgives

    @classmethod
    def of(cls, texts: Sequence[ServedRounds]) -> RejectionBound:
        ratios = np.concatenate([np.empty(0), *(each.ratio[each.corrected] for each in texts)])
        best = np.concatenate([np.empty((0, 2)), *(each.best[each.corrected] for each in texts)])
        return cls(len(ratios), int(np.isnan(best).any(1).sum()), np.sort(ratios[~np.isnan(ratios)]))

    def at(self, dial: float) -> int:
        return self.unknown + int(np.count_nonzero(self.ratios > dial))

    @property
    def sentence(self) -> str:
        lacking = f" At {counted(self.unknown, 'rejection')} the engine reports no logits; they count as forgiven."
        return (
            "The engine does not report rejected tokens, so this is a bound: MARS forgives only the target's "
            f"runner-up, and only if z2/z1 is above θ.{lacking if self.unknown else ''}"
        )


ASKED = "logprobs: 20, return_token_ids: true, return_tokens_as_token_ids: true, temperature: 0"
"""Request fields needed for a readable response."""
_TOKEN = re.compile(r"token_id:(\d{1,8})")
_FAR = -9999.0  # what vLLM writes for minus infinity


def _served_rounds(counts: Counts, value: Any, words: Callable[[int], str] | None) -> ServedRounds:
    """Return the rounds of a request with its response. Raises RunFileError with a remedy for a response without rounds
    or logits, and for one that is not greedy."""
    name = counts.name
    if not isinstance(counts, AcceptanceCounts):
        raise RunFileError(f"{name} is no response of vLLM with its rounds. Ask vLLM with {ASKED}.")
    try:
        (choice,) = value["choices"]
        logged = _told(choice["logprobs"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFileError(f"{name} holds no log-probabilities of its tokens. Ask vLLM with {ASKED}.") from error
    spellings, numbers, values, rows = zip(*logged, strict=True) if logged else ((), (), (), ())
    ids = _ids(choice.get("token_ids")) or tuple(number for number in numbers if number is not None)
    if ids and len(ids) != len(logged):
        raise RunFileError(f"{name} has {len(ids)} token ids and logits of {len(logged)} tokens. Ask for it again.")
    if not logged:
        raise RunFileError(f"{name} holds no token. Ask for it again, with more of them.")
    texts = []
    for text, number, token in zip(spellings, numbers, ids or [None] * len(logged), strict=True):
        if token is not None and words is not None:
            texts.append(words(token))
        else:
            texts.append(f"[{number if token is None else token}]" if text is None else text)
    width = max(2, *map(len, rows))
    best = np.array([_two_best(value, row, width, name) for value, row in zip(values, rows, strict=True)])
    arrays = [np.array(row) for row in rows if row]
    largest = max((np.exp(np.minimum(row, 1.0)).sum() for row in arrays), default=0.0)
    # log-probabilities are never above 0, and no token's sum exceeds 1
    if not any(row.max() > 0 for row in arrays) and 0.01 <= largest <= 1.001:
        raise RunFileError(
            f"{name} holds log-probabilities, and rules need raw logits. Start vLLM with --logprobs-mode raw_logits."
        )
    prompt = _ids(choice.get("prompt_token_ids")) or _ids(value.get("prompt_token_ids"))
    model = value.get("model") if isinstance(value.get("model"), str) else ""
    return ServedRounds(name, model, prompt, ids, tuple(texts), counts, best)


_Told = tuple[str | None, int | None, float, tuple[float, ...]]
"""A token's text or else its number, its logit or log-probability, and those of the best tokens there."""


def _told(logprobs: Mapping[str, Any]) -> list[_Told]:
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
        tokens.append((text, int(number[1]) if number else None, float(value), tuple(map(float, row))))
    return tokens


def _two_best(value: float, row: tuple[float, ...], width: int, name: str) -> tuple[float, float]:
    """Return the two best values; NaN if fewer are listed than elsewhere, because tokens with equal text are merged."""
    if len(row) < width:
        return np.nan, np.nan
    first, second = sorted(row, reverse=True)[:2]
    if not np.isfinite([first, second]).all():
        raise RunFileError(f"{name} holds a logit that is no number. See whether the server is well.")
    if value < first:
        raise RunFileError(
            f"{name} wrote another token than the target's best one, so it was not decoded greedily from raw logits. "
            "Ask at temperature 0, without penalties."
        )
    return first, np.nan if second <= _FAR else second


def _ids(found: Any) -> tuple[int, ...]:
    valid = isinstance(found, list) and all(type(token) is int and token >= 0 for token in found)
    return tuple(found) if valid else ()


Drafts = Mapping[str, tuple[int, ...]]  # the logged draft after each prefix, by `prefix_key`


class LoggedRow(NamedTuple):
    """The target's law at one place, as far as it is logged."""

    listed: dict[int, float]  # raw logits of its best tokens
    judged: float | None  # logit of the drafted token that the row judges; None if unknown or if it judges none


@dataclass(frozen=True, slots=True)
class LoggedRound:
    """One round of an engine."""

    drafted: tuple[int, ...]  # a chain; empty if the engine wrote a token without a draft, as its prefill does
    accepted: int  # number of accepted drafted tokens
    emitted: tuple[int, ...]  # the accepted tokens and one more; fewer at the text's end
    rows: tuple[LoggedRow, ...] = ()  # one more than the drafted tokens; empty if not logged


@dataclass(frozen=True, slots=True)
class LoggedText:
    """One request."""

    name: str  # label for lists
    prompt_ids: tuple[int, ...]
    rounds: tuple[LoggedRound, ...]  # at least one
    engine: str = ""  # name and version
    target: str = ""  # the engine's name of the target
    drafter: str = ""  # the engine's name of the drafter
    texts: Mapping[int, str] = field(default_factory=dict)  # texts of tokens, if logged

    def __post_init__(self) -> None:
        """Raise RunFileError for contradictory rounds."""
        if not self.prompt_ids or not self.rounds:
            raise RunFileError(f"{self.name} has no {'rounds' if self.prompt_ids else 'prompt_ids'}. Log them, too.")
        for number, each in enumerate(self.rounds, 1):
            kept, last = each.drafted[: each.accepted], number == len(self.rounds)
            complete = len(each.emitted) == each.accepted + 1 or (last and 0 < len(each.emitted) <= each.accepted)
            same = each.emitted[: len(kept)] == kept[: len(each.emitted)]
            if each.accepted > len(each.drafted) or not complete or not same:
                raise RunFileError(
                    f"Round {number} of {self.name} does not add up: {len(each.drafted)} tokens drafted, "
                    f"{each.accepted} accepted, {len(each.emitted)} written. Log it again."
                )

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token for each in self.rounds for token in each.emitted)

    @property
    def prefixes(self) -> list[tuple[int, ...]]:
        return list(accumulate((each.emitted for each in self.rounds[:-1]), initial=self.prompt_ids))

    @property
    def vocabulary(self) -> int:
        """One more than the largest token id."""
        rounds = (token for each in self.rounds for token in (*each.drafted, *each.emitted))
        rows = (token for each in self.rounds for row in each.rows for token in row.listed)
        return 1 + max((*self.prompt_ids, *rounds, *rows))

    @property
    def has_rows(self) -> bool:
        """True if every round has its rows, so that no target is needed."""
        return all(len(each.rows) == len(each.drafted) + 1 for each in self.rounds)


def prefix_key(token_ids: Sequence[int]) -> str:
    """Return the log's key of the tokens before a draft: SHA-256 of their ids as little-endian int32."""
    return hashlib.sha256(np.asarray(token_ids, "<i4").tobytes()).hexdigest()


def parse_log(text: str) -> tuple[LoggedText, ...]:
    """Return the texts in a log of whole rounds. Raises RunFileError with a remedy for another layout or
    contradictions."""
    texts: list[tuple[dict[str, Any], list[LoggedRound]]] = []
    for number, line in _objects(text):
        if "prompt_ids" in line:
            texts.append((line, []))
            continue
        if not texts:
            raise RunFileError(f"Line {number} of the log is a round before any header. Begin with prompt_ids.")
        prompt, rounds = texts[-1][0]["prompt_ids"], texts[-1][1]
        written = (len(prompt) if isinstance(prompt, list) else 0) + sum(len(each.emitted) for each in rounds)
        if (logged := line.get("prefix_len")) is not None and logged != written:
            raise RunFileError(
                f"Line {number} of the log begins after {logged} tokens, and {written} were written before it."
            )
        rounds.append(_round(line, number))
    return tuple(_text(header, rounds, number) for number, (header, rounds) in enumerate(texts, 1))


def parse_drafts(text: str) -> Drafts:
    """Return the drafts in a log of drafts only. Raises RunFileError for another layout."""
    drafts: dict[str, tuple[int, ...]] = {}
    for number, line in _objects(text):
        key = line.get("prefix_sha256")
        if not isinstance(key, str) or len(key) != 64:
            raise RunFileError(f"Line {number} of the log of drafts has no prefix_sha256. Log it with every draft.")
        drafts[key] = _tokens(line, "drafted", number)
    return drafts


def joined(served: ServedRounds, drafts: Drafts) -> LoggedText:
    """Join a response with the drafts of its rounds. Raises RunFileError if a draft is missing or different."""
    if not served.prompt_ids or not served.token_ids:
        raise RunFileError(f"{served.name} has no token ids, by which drafts are found. Ask with return_token_ids.")
    at, ids, counts = served.counts.prefilled, served.token_ids, served.counts
    assert counts.drafted is not None
    rounds = [LoggedRound((), 0, (token,)) for token in ids[:at]]
    steps = zip(counts.accepted.tolist(), counts.drafted.tolist(), strict=True)
    for number, (accepted, count) in enumerate(steps, 1):
        drafted = drafts.get(prefix_key(served.prompt_ids + ids[:at]), ())[:count]
        if len(drafted) != count:
            raise RunFileError(
                f"The log of drafts lacks round {number} of {served.name}. Give the log of the server that wrote it."
            )
        rounds.append(LoggedRound(drafted, accepted, ids[at : at + accepted + 1]))
        at += accepted + 1
    texts = dict(zip(ids, served.texts, strict=True))
    return LoggedText(served.name, served.prompt_ids, tuple(rounds), "vLLM", served.model, texts=texts)


def _text(header: Mapping[str, Any], rounds: Sequence[LoggedRound], number: int) -> LoggedText:
    named = {key: str(header.get(key) or "")[:200] for key in ("engine", "version", "target", "drafter", "title")}
    engine = " ".join(filter(None, (named["engine"], named["version"])))
    prompt, name = _tokens(header, "prompt_ids", 0, TOKENS), named["title"] or f"text {number}"
    text = LoggedText(name, prompt, tuple(rounds), engine, named["target"], named["drafter"])
    scale = header.get("logits_scale", "raw_logits")
    if scale != "raw_logits" and any(each.rows for each in rounds):
        raise RunFileError(f"The logits of {name} are {scale!r}, and rules need raw_logits. Log those, or no rows.")
    if header.get("temperature") not in (None, 0, 0.0):
        raise RunFileError(f"{name} was sampled, and the log does not hold a rule's coins. Log temperature 0.")
    return text


def _round(line: Mapping[str, Any], number: int) -> LoggedRound:
    drafted, emitted = _tokens(line, "drafted", number), _tokens(line, "emitted", number)
    if line.get("parents") not in (None, list(range(-1, len(drafted) - 1))):
        raise RunFileError(f"Line {number} of the log is a tree, and only chains are read. Log a chain.")
    accepted = line.get("n_accepted")
    if type(accepted) is not int or accepted < 0:
        raise RunFileError(f"Line {number} of the log has no n_accepted. Log it with every round.")
    logged = []
    try:
        for row in line.get("rows") or ():
            ids, values, judged = row["topk_ids"], row["topk_values"], row.get("z_x")
            if not 2 <= len(ids) == len(values) <= WIDEST or not all(type(each) is int and each >= 0 for each in ids):
                raise ValueError("no such list")
            listed = dict(zip(ids, map(float, values), strict=True))
            logged.append(LoggedRow(listed, None if judged is None else float(judged)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFileError(f"Line {number} of the log has a row without topk_ids and topk_values. Log both.") from error
    return LoggedRound(drafted, accepted, emitted, tuple(logged))


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines of a log, counted from 1."""
    for number, value in enumerate(values_in(text), 1):
        if not isinstance(value, dict):
            raise RunFileError(f"Line {number} of the log is no object. Log a JSON object a line.")
        yield number, value


def _tokens(line: Mapping[str, Any], key: str, number: int, most: int = LONGEST_DRAFT + 1) -> tuple[int, ...]:
    tokens = line.get(key)
    if isinstance(tokens, list) and len(tokens) <= most and all(type(t) is int and 0 <= t < VOCABULARY for t in tokens):
        return tuple(tokens)
    raise RunFileError(f"Line {number} of the log has no {key} that are a list of token ids. Log them with every line.")


@dataclass(frozen=True, slots=True)
class EngineFile:
    """Contents of an engine's file."""

    requests: tuple[EngineRequest, ...] = ()  # the counts of each request, or the counters of each server's model
    without: int = 0  # requests in the file that have no counts; they are left out
    scrapes: int = 0  # scrapes of a server's counters; 0 for a file of requests
    served: tuple[ServedRounds, ...] = ()  # rounds of each request, if reported
    unread: str = ""  # reason why there are no rounds; empty if there are
    texts: tuple[LoggedText, ...] = ()  # whole runs, if drafts are logged

    @property
    def summary(self) -> str:
        engines = ", ".join(dict.fromkeys(engine for engine, _ in self.requests))
        if not self.scrapes:
            without = f"; {counted(self.without, 'request')} without counts left out" if self.without else ""
            return f"{engines}: {counted(len(self.requests), 'request')}{without}. 95 % intervals over requests."
        when = "since the server started"
        if self.scrapes > 1:
            when = f"between the first and the last of {self.scrapes} scrapes"
        words = (
            f"{engines}: counters, which are sums over all requests {when}. They give no intervals and no means over "
            "requests."
        )
        counts = [each for engine, each in self.requests if engine == "SGLang"]
        tokens, steps = sum(each.completion_tokens or 0 for each in counts), sum(each.steps or 0 for each in counts)
        if not tokens or not steps:
            return words
        return (  # SGLang counts neither drafted nor accepted tokens
            f"{words} SGLang counts {counted(tokens, 'token')} in {counted(steps, 'verification')}, "
            f"{tokens / steps:.3f} each, the first token of each request included."
        )


def decoded(data: bytes, what: str = "The file") -> str:
    """Return the text of a file. Raises RunFileError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RunFileError(f"{what} is not UTF-8 text. Save it as UTF-8.") from error


def read_file(text: str, drafts: str | None = None, words: Callable[[int], str] | None = None) -> EngineFile:
    """Read a file of responses or counters, or a log of whole rounds. `drafts` is the log of the drafts of vLLM's
    responses, and `words` returns a token's text. Raises BadInput."""
    found = _read(text, words)
    if drafts is None:
        return found
    if not found.served:
        why = f"Drafts are joined with the rounds of vLLM's responses, and the file has none. {found.unread}".rstrip()
        raise SettingError(f"{why} Leave --drafts out.")
    logged = parse_drafts(drafts)
    return replace(found, texts=tuple(joined(each, logged) for each in found.served))


def _read(text: str, words: Callable[[int], str] | None) -> EngineFile:
    head = text[:200_000].lstrip().partition("\n")[0]
    if '"prompt_ids"' in head and '"choices"' not in head:
        return EngineFile(texts=parse_log(text))
    sums, scrapes = counters_in(text)
    if scrapes:
        return EngineFile(tuple(sums), scrapes=scrapes, unread="Counters of a server are sums over all requests.")
    requests, without = counts_in(values_in(text))
    found = EngineFile(tuple(request for request, _ in requests), without)
    if engine := next((engine for engine, _ in found.requests if engine != "vLLM"), ""):
        return replace(found, unread=f"{engine} reports counts, and no rounds with raw logits.")
    try:
        return replace(found, served=tuple(_served_rounds(counts, value, words) for (_, counts), value in requests))
    except RunFileError as error:
        return replace(found, unread=str(error))
