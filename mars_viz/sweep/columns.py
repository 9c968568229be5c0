"""The table of a sweep: a line for each prompt and stretch of the dial. Knows names and types, nothing else.

A prompt that failed has a single line with the reason in `error` and zeros. A sweep of later turns has `OF_TURNS`
besides, so that it can go on in the middle of a conversation, and so that intervals know what belongs together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

RANKS: tuple[tuple[int, int | None], ...] = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 8), (9, 16), (17, None))
"""Bins of the target's rank of a relaxed token, first and last."""
SHARES: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
"""Where the bins of p(x) / p(v1) of a relaxed token begin; the last one ends at 1."""
RANK_WORDS = tuple(
    str(first) if first == last else f"{first}-{last}" if last else f"{first} and above" for first, last in RANKS
)
"""The bins of ranks, for people."""
SHARE_WORDS = tuple(f"{low:g} to {high:g}" for low, high in zip(SHARES, (*SHARES[1:], 1.0), strict=True))
"""The bins of p(x) / p(v1), for people."""
_RANK_ENDS = np.array([last for _, last in RANKS if last is not None])

UNGRADED, WRONG, RIGHT = -1, 0, 1
"""Values of `right`."""


@dataclass(frozen=True, slots=True)
class SweepColumn:
    """One column."""

    type: pa.DataType
    """What it holds."""
    meaning: str
    """In words."""
    wide: int = 0
    """How many numbers a line holds; 0 where it is a single one, -1 for γ + 1."""


_int, _float, _text, _truth = pa.int32(), pa.float64(), pa.string(), pa.bool_()

PER_PROMPT: dict[str, SweepColumn] = {
    "prompt": SweepColumn(_int, "place in the set, from 0; lines are in this order"),
    "id": SweepColumn(_text, "the prompt's name in its set"),
    "category": SweepColumn(_text, "for grouping"),
    "error": SweepColumn(_text, "why it has no results; empty where it has"),
    "prompt_tokens": SweepColumn(_int, "length of the prompt"),
    "positions": SweepColumn(_int, "drafted positions that the map rests on, each counted once"),
    "passes": SweepColumn(_int, "batched target passes of the map"),
    "seconds": SweepColumn(_float, "wall-clock time of the map"),
    "off_is_strict": SweepColumn(_truth, "the text at the strict end is, token for token, the lossless rule's"),
    "target_right": SweepColumn(pa.int8(), "1 if the target's own text is right, 0 if wrong, -1 if not graded"),
}
"""The same on all lines of a prompt."""

PER_SEGMENT: dict[str, SweepColumn] = {
    "low": SweepColumn(_float, "smallest dial value of the stretch"),
    "high": SweepColumn(_float, "where the next begins; the largest dial value for the last"),
    "tokens": SweepColumn(_int, "tokens of the text"),
    "rounds": SweepColumn(_int, "draft-verify cycles: target passes, the prompt's own excluded"),
    "drafted": SweepColumn(_int, "drafted tokens"),
    "rolled_back": SweepColumn(_int, "drafted tokens that did not reach the text"),
    "relaxed": SweepColumn(_int, "tokens of the text that only the relaxed rule keeps"),
    "right": SweepColumn(pa.int8(), "1 if the text is right, 0 if wrong, -1 if not graded"),
    "first_divergence": SweepColumn(_int, "first token that differs from the strict text's; -1 if none does"),
    "edit_distance": SweepColumn(_int, "insertions, deletions and changes of tokens that make it the strict text"),
    "relaxed_by_rank": SweepColumn(
        _int, "relaxed tokens by the target's rank: 1, 2, 3, 4, 5-8, 9-16, above", len(RANKS)
    ),
    "relaxed_by_share": SweepColumn(
        _int, f"relaxed tokens by p(x) / p(v1), bins from {', '.join(map(str, SHARES))}", len(SHARES)
    ),
    "accepted": SweepColumn(_int, "rounds that accepted 0, 1, … γ drafted tokens, the text's end not yet cut off", -1),
}
"""Each stretch's own."""

OF_TURNS: dict[str, SweepColumn] = {
    "question": SweepColumn(_text, "the conversation whose turn it is, or the prompt's own name"),
    "answer": SweepColumn(_text, "the target's own text, which later turns follow"),
}
"""The same on all lines of a prompt, where later turns are decoded."""

COLUMNS = PER_PROMPT | PER_SEGMENT
"""Of every sweep."""


def width(column: SweepColumn, gamma: int) -> int:
    """Numbers on a line."""
    return gamma + 1 if column.wide < 0 else column.wide


def schema(gamma: int, *, turns: bool = False) -> pa.Schema:
    """Of a file, at this block length; `turns` where later turns are decoded."""
    fields = []
    for name, column in (COLUMNS | OF_TURNS if turns else COLUMNS).items():
        size = width(column, gamma)
        kind = pa.list_(pa.field("element", column.type, nullable=False), size) if size else column.type
        fields.append(pa.field(name, kind, nullable=False))
    return pa.schema(fields)


def rank_bins(ranks: np.ndarray) -> np.ndarray:
    """int64 [len(RANKS)]; how many of these ranks fall in each bin."""
    return np.bincount(np.searchsorted(_RANK_ENDS, ranks), minlength=len(RANKS))


def share_bins(shares: np.ndarray) -> np.ndarray:
    """int64 [len(SHARES)]; how many of these shares, 0 to 1, fall in each bin."""
    return np.bincount(np.clip(np.searchsorted(SHARES, shares, side="right") - 1, 0, None), minlength=len(SHARES))
