"""An engine's drafts round by round from a log: whole rounds, or drafts only, which are joined with responses.

Both are JSON, one object per line. Whole rounds: a header with `prompt_ids` (and `engine`, `version`, `target`,
`drafter`, `logits_scale`), then its rounds with `drafted`, `n_accepted`, `emitted` and, if known, `rows`. Drafts only:
`prefix_sha256`, of the tokens before the draft as little-endian int32, and `drafted`; the responses contain the
accepted counts. Null is unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from mars_viz.analysis.engine_text import values_in
from mars_viz.analysis.served_rounds import ServedRounds
from mars_viz.bounds import LONGEST_DRAFT, TOKENS, VOCABULARY, WIDEST
from mars_viz.errors import RunFileError

Drafts = Mapping[str, tuple[int, ...]]  # the logged draft after each prefix, by `prefix_key`


@dataclass(frozen=True, slots=True)
class LoggedRow:
    """The target's law at one place, as far as it is logged."""

    ids: tuple[int, ...]  # its best tokens
    logits: tuple[float, ...]  # raw logits
    drafted: float | None  # logit of the drafted token that the row judges; None if unknown or if it judges none

    @property
    def listed(self) -> dict[int, float]:
        """Logits by token."""
        return dict(zip(self.ids, self.logits, strict=True))

    def logit(self, token: int) -> float | None:
        """Return the logit of the drafted token that the row judges; None if it is neither logged nor listed."""
        return self.listed.get(token) if self.drafted is None else self.drafted


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
        """The emitted tokens."""
        return tuple(token for each in self.rounds for token in each.emitted)

    @property
    def prefixes(self) -> list[tuple[int, ...]]:
        """The tokens before each round."""
        return list(accumulate((each.emitted for each in self.rounds[:-1]), initial=self.prompt_ids))

    @property
    def vocabulary(self) -> int:
        """One more than the largest token id."""
        rounds = (token for each in self.rounds for token in (*each.drafted, *each.emitted))
        rows = (token for each in self.rounds for row in each.rows for token in row.ids)
        return 1 + max((*self.prompt_ids, *rounds, *rows))

    @property
    def has_rows(self) -> bool:
        """True if every round has its rows, so that no target is needed."""
        return all(len(each.rows) == len(each.drafted) + 1 for each in self.rounds)


def prefix_key(token_ids: Sequence[int]) -> str:
    """Return the log's key of the tokens before a draft: SHA-256 of their ids as little-endian int32."""
    return hashlib.sha256(np.asarray(token_ids, "<i4").tobytes()).hexdigest()


def is_log(text: str) -> bool:
    """Return True if a text begins like a log of whole rounds, not like responses."""
    head = text[:200_000].lstrip().partition("\n")[0]
    return '"prompt_ids"' in head and '"choices"' not in head


def parse_log(text: str) -> tuple[LoggedText, ...]:
    """Return the texts in a log of whole rounds. Raises RunFileError with a remedy for another layout or
    contradictions."""
    texts: list[tuple[dict[str, Any], list[LoggedRound]]] = []
    for number, value in enumerate(values_in(text), 1):
        line = _object(value, number)
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
    for number, value in enumerate(values_in(text), 1):
        line = _object(value, number)
        key = line.get("prefix_sha256")
        if not isinstance(key, str) or len(key) != 64:
            raise RunFileError(f"Line {number} of the log of drafts has no prefix_sha256. Log it with every draft.")
        drafts[key] = _tokens(line, "drafted", number)
    return drafts


def joined(served: ServedRounds, drafts: Drafts) -> LoggedText:
    """Join a response with the drafts of its rounds. Raises RunFileError if a draft is missing or different."""
    if not served.prompt_ids or not served.token_ids:
        raise RunFileError(f"{served.name} has no token ids, by which drafts are found. Ask with return_token_ids.")
    rounds, at, ids = [], served.counts.prefilled, served.token_ids
    assert served.counts.drafted is not None
    rounds += [LoggedRound((), 0, (token,)) for token in ids[:at]]
    for number, (accepted, count) in enumerate(
        zip(served.counts.accepted.tolist(), served.counts.drafted.tolist(), strict=True), 1
    ):
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
    parents = line.get("parents")
    if parents not in (None, list(range(-1, len(drafted) - 1))):
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
            values = tuple(map(float, values))
            logged.append(LoggedRow(tuple(ids), values, None if judged is None else float(judged)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFileError(f"Line {number} of the log has a row without topk_ids and topk_values. Log both.") from error
    return LoggedRound(drafted, accepted, emitted, tuple(logged))


def _object(value: Any, number: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RunFileError(f"Line {number} of the log is no object. Log a JSON object a line.")
    return value


def _tokens(line: Mapping[str, Any], key: str, number: int, most: int = LONGEST_DRAFT + 1) -> tuple[int, ...]:
    tokens = line.get(key)
    if isinstance(tokens, list) and len(tokens) <= most and all(type(t) is int and 0 <= t < VOCABULARY for t in tokens):
        return tuple(tokens)
    raise RunFileError(f"Line {number} of the log has no {key} that are a list of token ids. Log them with every line.")
