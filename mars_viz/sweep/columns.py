"""The table of a sweep, with a line per prompt and stretch of the dial, computed from dial maps.

Lines contain sums over each trajectory, and a comparison of its text with strict's. A prompt that failed has a single
line with the reason in `error` and zeros. A sweep of later turns also has `OF_TURNS`, to continue within a conversation
and to group prompts for intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import Any

import numpy as np
import pyarrow as pa

from mars_viz.errors import EvidenceError
from mars_viz.exploration import DialMap
from mars_viz.prompts import PromptItem, Turns, grader_named
from mars_viz.records import Round, first_difference
from mars_viz.rules.base import best_p, drafted_p
from mars_viz.sweep.plan import Plan

LONGEST = 90  # tokens of a phrase
SHORTEST = 3  # tokens of a phrase; shorter ones, such as a table's border or digits, must come more often
TIMES, TOKENS = 3, 15  # repeats of a phrase, and tokens of all repeats together
MANY = 50  # repeats above which a shorter phrase counts, too


def loops(token_ids: Sequence[int]) -> bool:
    """Return True if a phrase of 3 to 90 tokens is repeated at least three times in a row, over at least 15 tokens, or
    a shorter one more than 50 times.

    Three adjacent repeats over 15 tokens are the criterion of the study of relaxed verification by
    chiatzenw-cur/lossy-spec-decode-repetition (REPETITION_FINDINGS.md), in which a judge confirmed 98 to 99 % of 698
    such places as degenerate; repeats that are not adjacent, as in lists and refrains, were wrong in 75 %. The limits
    for short and long phrases are those of Holtzman et al. 2020 (The Curious Case of Neural Text Degeneration), in
    metrics/repetition.py of ari-holtzman/degen. The last repeat may be incomplete, since a limit can cut it off.
    """
    text = np.asarray(token_ids)
    for period in range(1, min(LONGEST, len(text) // TIMES) + 1):
        same = np.concatenate([[False], text[period:] == text[:-period], [False]])
        changes = np.flatnonzero(same[1:] != same[:-1])
        for begin, end in changes.reshape(-1, 2).tolist():  # from `begin` to `end + period` the text has this period
            span = end - begin + period
            if period < SHORTEST:
                if span > MANY * period:
                    return True
            elif span >= max(TIMES * period, TOKENS) and not _short(text[begin : begin + span]):
                return True
    return False


def _short(part: np.ndarray) -> bool:
    """Return True if this part of a text repeats a phrase of fewer than `SHORTEST` tokens."""
    return any(np.array_equal(part[period:], part[:-period]) for period in range(1, SHORTEST))


RANKS: tuple[tuple[int, int | None], ...] = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 8), (9, 16), (17, None))
"""Bins of the target's rank of a relaxed token, first and last."""
SHARES: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Lower ends of the bins of p(x) / p(v1) of a relaxed token; the last one ends at 1."""
RANK_WORDS = tuple(
    str(first) if first == last else f"{first}-{last}" if last else f"{first} and above" for first, last in RANKS
)
"""Labels of the bins of ranks."""
SHARE_WORDS = tuple(f"{low:g} to {high:g}" for low, high in zip(SHARES, (*SHARES[1:], 1.0), strict=True))
"""Labels of the bins of p(x) / p(v1)."""
_RANK_ENDS = np.array([last for _, last in RANKS if last is not None])

UNGRADED, WRONG, RIGHT = -1, 0, 1  # values of `right`
GRADES = {UNGRADED: "–", WRONG: "wrong", RIGHT: "right"}


_int, _byte, _float, _text = pa.int32(), pa.int8(), pa.float64(), pa.string()


def _several(kind: pa.DataType, size: int) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False), size)


PER_PROMPT: dict[str, pa.DataType] = {
    "prompt": _int,  # place in the set, from 0; lines are in this order
    "id": _text,  # the prompt's name in its set
    "category": _text,  # for grouping
    "error": _text,  # the reason for missing results; empty if there are results
    "prompt_tokens": _int,  # length of the prompt
    "positions": _int,  # drafted positions that the map rests on, each counted once
    "passes": _int,  # batched target passes of the map
    "seconds": _float,  # wall-clock time of the map
    "off_is_strict": pa.bool_(),  # the text at the strict end is lossless, and the target's own where they are compared
    "target_right": _byte,  # 1 if the target's own text is right, 0 if wrong, -1 if not graded
}
"""Equal on all lines of a prompt."""
OF_TURNS: dict[str, pa.DataType] = {
    "question": _text,  # the conversation whose turn it is, or the prompt's own name
    "answer": _text,  # the target's own text, which later turns follow
}
"""Equal on all lines of a prompt, in sweeps of later turns."""


def per_segment(plan: Plan) -> dict[str, pa.DataType]:
    """Return the columns that are specific to each stretch."""
    by_length = _several(_int, plan.settings.gamma + 1)
    columns = {
        "low": _float,  # smallest dial value of the stretch
        "high": _float,  # where the next begins; the largest dial value for the last
        "tokens": _int,  # tokens of the text
        "rounds": _int,  # draft-verify cycles: target passes, the prompt's own excluded
        "drafted": _int,  # drafted tokens
        "rolled_back": _int,  # drafted tokens that did not reach the text
        "relaxed": _int,  # tokens of the text that only the relaxed rule keeps
        "right": _byte,  # 1 if the text is right, 0 if wrong, -1 if not graded
        "first_divergence": _int,  # first token that differs from the strict text's; -1 if none does
        "edit_distance": _int,  # insertions, deletions and changes of tokens that make it the strict text
        "cut_off": _byte,  # 1 if the length limit cut the text off, else 0
        "looping": _byte,  # 1 if the text repeats a phrase in a loop (`analysis.repetition`), else 0
        "relaxed_by_rank": _several(_int, len(RANKS)),  # relaxed tokens by the target's rank
        "relaxed_by_share": _several(_int, len(SHARES)),  # relaxed tokens by p(x) / p(v1)
        "accepted": by_length,  # rounds that accepted 0, 1, … γ drafted tokens, the text's end not yet cut off
    }
    if plan.cut_by is not None:
        columns["lengths"] = by_length  # rounds that drafted 0, 1, … γ tokens
    if plan.scores:  # what the text is given besides right or wrong, in the plan's order; NaN where nothing is
        columns["scores"] = _several(_float, len(plan.scores))
    return columns


def schema(plan: Plan) -> pa.Schema:
    """Return the schema of the plan's results."""
    kinds = PER_PROMPT | per_segment(plan) | (OF_TURNS if plan.turns is Turns.ALL else {})
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


def rank_bins(ranks: np.ndarray) -> np.ndarray:
    """Return the number of ranks in each bin, int64 [len(RANKS)]."""
    return np.bincount(np.searchsorted(_RANK_ENDS, ranks), minlength=len(RANKS))


def share_bins(shares: np.ndarray) -> np.ndarray:
    """Return the number of shares (0 to 1) in each bin, int64 [len(SHARES)]."""
    return np.bincount(np.clip(np.searchsorted(SHARES, shares, side="right") - 1, 0, None), minlength=len(SHARES))


Lines = dict[str, list[Any]]  # columns by name
_SUMS = ("tokens", "rounds", "drafted", "rolled_back", "relaxed")
_BINS = ("relaxed_by_rank", "relaxed_by_share", "accepted", "lengths")


@dataclass(frozen=True, slots=True)
class ReferenceTexts:
    """Texts that a map is compared with."""

    strict: tuple[int, ...]  # the lossless rule's tokens; for a controller's threshold, those of drafts of full length
    target: tuple[int, ...]  # the target's own tokens
    read: Callable[[tuple[int, ...]], str]  # returns the text of tokens
    ended: Callable[[tuple[int, ...]], bool]  # returns False if only the length limit ended it
    own: bool = True  # False if a plain pass of the target gives another text than `target`


def lines_of(made: DialMap, index: int, item: PromptItem, texts: ReferenceTexts, scores: Sequence[str] = ()) -> Lines:
    """Return a prompt's lines, one per stretch of the dial, with these scores of its texts. Raises BadInput for an
    incomplete map, and if a text cannot be graded."""
    if not made.complete:
        raise EvidenceError("Its map was cut short. Allow more passes, or a narrower range.")
    gamma, segments = max(made.span.gammas), made.segments
    off = made.segment(made.reference).token_ids

    @cache
    def grade(token_ids: tuple[int, ...]) -> int:
        if not item.graded or item.answer is None:
            return UNGRADED
        return int(grader_named(item.grader).grade(item.answer, texts.read(token_ids)))

    def other_scores(token_ids: tuple[int, ...]) -> list[float]:
        values: Mapping[str, float] = {}
        if scores and item.answer is not None and (given := grader_named(item.grader).scores) is not None:
            values = given(item.answer, texts.read(token_ids))
        return [values.get(name, nan) for name in scores]

    rounds = {id(round_): round_ for segment in segments for round_ in segment.rounds}  # segments share most of theirs
    counts = {place: _counts(round_, gamma) for place, round_ in rounds.items()}
    totals = np.stack([np.sum([counts[id(each)] for each in segment.rounds], axis=0) for segment in segments])
    bounds = np.cumsum([len(_SUMS), len(RANKS), len(SHARES), gamma + 1])
    sums, *parts = np.split(totals, bounds, axis=1)  # [S, columns] each
    texts_along = [segment.token_ids for segment in segments]
    distances = {token_ids: edit_distance(token_ids, off) for token_ids in set(texts_along)}
    looping = {token_ids: int(loops(token_ids)) for token_ids in distances}
    divergences = [first_difference(token_ids, off) for token_ids in texts_along]
    lines: Lines = dict(zip(_SUMS, sums.T.tolist(), strict=True))
    lines |= {name: list(part) for name, part in zip(_BINS, parts, strict=True)}
    lines |= {
        "low": [segment.low for segment in segments],
        "high": [segment.high for segment in segments],
        "right": [grade(token_ids) for token_ids in texts_along],
        "scores": [other_scores(token_ids) for token_ids in texts_along],
        "first_divergence": [-1 if place is None else place for place in divergences],
        "edit_distance": [distances[token_ids] for token_ids in texts_along],
        "cut_off": [int(not texts.ended(token_ids)) for token_ids in texts_along],
        "looping": [looping[token_ids] for token_ids in texts_along],
    }
    common: dict[str, Any] = {
        "prompt": index,
        "id": item.id,
        "category": item.category,
        "error": "",
        "prompt_tokens": len(made.frame.prompt_ids),
        "positions": sum(len(answer.speculation) for answer in made.answers.values()),
        "passes": made.passes,
        "seconds": made.seconds,
        "off_is_strict": off == texts.strict and texts.own,
        "target_right": grade(texts.target),
        "question": item.unit,
        "answer": texts.read(texts.target),
    }
    return lines | {name: [value] * len(segments) for name, value in common.items()}


def failed_lines(plan: Plan, index: int, item: PromptItem, why: str) -> Lines:
    """Return the line of a prompt without results."""
    lines: Lines = {}
    for name, kind in per_segment(plan).items():
        several = pa.types.is_fixed_size_list(kind)
        lines[name] = [np.zeros(kind.list_size, kind.value_type.to_pandas_dtype())] if several else [0]
    common: dict[str, Any] = {"prompt": index, "id": item.id, "category": item.category, "error": why}
    common |= {"prompt_tokens": 0, "positions": 0, "passes": 0, "seconds": 0.0}
    common |= {"off_is_strict": False, "target_right": UNGRADED, "question": item.unit, "answer": ""}
    span: Lines = {"low": [plan.low], "high": [plan.high], "right": [UNGRADED], "first_divergence": [-1]}
    return lines | span | {name: [value] for name, value in common.items()}


def _counts(round_: Round, gamma: int) -> np.ndarray:
    """Return a round's part of the columns `_SUMS` and `_BINS`, int64 [columns]."""
    speculation, kept = round_.speculation, np.array(round_.decision.kept[: round_.kept], np.int64)
    relaxed = kept[~round_.verdicts.keep_strict[kept]]
    shares = np.zeros(0)
    if len(relaxed):
        shares = drafted_p(speculation)[relaxed] / best_p(speculation)[relaxed]
    accepted, lengths = np.zeros((2, gamma + 1), np.int64)
    accepted[len(round_.decision.kept)] = lengths[len(speculation)] = 1
    sums = [len(round_.token_ids), 1, len(speculation), round_.rolled_back, len(relaxed)]
    return np.concatenate([sums, rank_bins(speculation.ranks[relaxed]), share_bins(shares), accepted, lengths])


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of insertions, deletions and changes between two sequences (Levenshtein 1966). Computed by
    rows: d[j] = min(e[j], d[j - 1] + 1), with e from the previous row, is a running minimum of e[j] - j, plus j."""
    a, b = np.asarray(one), np.asarray(other)
    places = np.arange(len(b) + 1)
    row = places
    for count, token in enumerate(a, 1):
        fresh = np.minimum(row[1:] + 1, row[:-1] + (b != token))
        row = np.minimum.accumulate(np.concatenate([[count], fresh]) - places) + places
    return int(row[-1])
