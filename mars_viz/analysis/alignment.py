"""Comparison of two texts: common parts, first difference, rounds that start at the same place, and numbers.

Texts of one vocabulary are compared token by token, others character by character. A place counts from the end of the
prompt, so with equal prompts it is one absolute position. Every number is exact: taken at the run's own setting, on its
own text. Speeds are measured, and only if a run was really decoded at that setting.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum

import numpy as np

from mars_viz.analysis.metrics import speed, summary
from mars_viz.records import first_difference
from mars_viz.run import Piece, Run

SHORTEST = 3  # minimum length, in tokens or words, of a common stretch after the first difference
LONGEST = 2000
"""Maximum number of tokens or words after the first difference for a search of common stretches. In texts that loop it
takes up to the cube of their number."""


class Unit(Enum):
    """Unit of comparison of two texts."""

    TOKENS = "token"  # token ids; both texts use one vocabulary
    CHARACTERS = "character"  # characters; the texts use different vocabularies. Control tokens have none.


@dataclass(frozen=True, slots=True)
class Written:
    """A text as tokens in rounds."""

    tokens: tuple[int, ...]  # [T]; ids, without the prompt
    pieces: tuple[Piece, ...]  # [T]
    starts: tuple[int, ...]  # [R]; index of each round's first token, ascending

    @property
    def text(self) -> str:
        """Characters without control tokens; a byte that is no complete character counts as one."""
        return b"".join(piece.data for piece in self.pieces if not piece.special).decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Side:
    """The alignment seen from one text."""

    common: np.ndarray  # bool [T]; tokens completely inside a common stretch
    parts: int | None  # index of the first token that differs; None if the text is a prefix of the other
    partners: list[int | None]  # [R]; the other text's round that starts at the same place


@dataclass(frozen=True, slots=True)
class Alignment:
    """The alignment of two texts."""

    unit: Unit
    prefix: int  # length of the common prefix in units
    identical: bool  # True if the texts are equal
    shared: tuple[tuple[int, int, int], ...]  # common stretches in order: start in each text, and length, in units
    left: Side
    right: Side


def written(run: Run) -> Written:
    """Return the text of a run."""
    lengths = [len(round_.token_ids) for round_ in run.rounds]
    starts = tuple(int(end) - length for end, length in zip(np.cumsum(lengths), lengths, strict=True))
    return Written(run.token_ids, tuple(run.pieces[token] for token in run.token_ids), starts)


def align_runs(left: Run, right: Run) -> Alignment:
    """Align the texts of two runs: by tokens if all shared ids have the same pieces, otherwise by characters."""
    unit = Unit.TOKENS if same_vocabulary(left.pieces, right.pieces) else Unit.CHARACTERS
    return align(written(left), written(right), unit)


def same_vocabulary(left: Mapping[int, Piece], right: Mapping[int, Piece]) -> bool:
    """Return True if the vocabularies share ids and agree on each. Ids that neither run mentions are unknown."""
    shared = left.keys() & right.keys()
    return bool(shared) and all(left[token] == right[token] for token in shared)


def align(left: Written, right: Written, unit: Unit) -> Alignment:
    """Align two texts."""
    places = _places(left, unit), _places(right, unit)
    contents: tuple[Sequence[Hashable], Sequence[Hashable]] = (
        (left.tokens, right.tokens) if unit is Unit.TOKENS else (left.text, right.text)
    )
    first = first_difference(*contents)
    prefix = len(contents[0]) if first is None else first
    again = _met_again(contents[0][prefix:], contents[1][prefix:], unit)
    shared = [*[(0, 0, prefix)] * (prefix > 0), *((prefix + a, prefix + b, size) for a, b, size in again)]
    starts = places[0][list(left.starts)].tolist(), places[1][list(right.starts)].tolist()
    index = [{start: round_ for round_, start in enumerate(each)} for each in starts]
    ours = _side(places[0], prefix, [(a, a + size) for a, _, size in shared], list(map(index[1].get, starts[0])))
    theirs = _side(places[1], prefix, [(b, b + size) for _, b, size in shared], list(map(index[0].get, starts[1])))
    return Alignment(unit, prefix, first is None, tuple(shared), ours, theirs)


def _places(text: Written, unit: Unit) -> np.ndarray:
    """Return the number of units before each token, then the total, int64 [T + 1]."""
    if unit is Unit.TOKENS:
        return np.arange(len(text.tokens) + 1)
    sizes = [len(character.encode("utf-8", "surrogateescape")) for character in text.text]
    begins = np.cumsum([0, *sizes])[:-1]  # bytes before each character
    lengths = [0 if piece.special else len(piece.data) for piece in text.pieces]
    return np.searchsorted(begins, np.cumsum([0, *lengths]), side="left")  # a token inside a character begins after it


def _met_again(left: Sequence[Hashable], right: Sequence[Hashable], unit: Unit) -> Iterator[tuple[int, int, int]]:
    """Yield start in each text and length, in units, of later common stretches; characters in complete words."""
    ours, theirs = left, right
    if unit is Unit.CHARACTERS:
        ours, theirs = (re.findall(r"\s*\S+|\s+", str(text)) for text in (left, right))
    if max(len(ours), len(theirs)) > LONGEST:
        return
    sizes = [[len(str(word)) if unit is Unit.CHARACTERS else 1 for word in words] for words in (ours, theirs)]
    at, other = (np.cumsum([0, *each]) for each in sizes)  # units before each word or token, then the total
    for a, b, count in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        if count >= SHORTEST:
            yield int(at[a]), int(other[b]), int(at[a + count] - at[a])


def _side(places: np.ndarray, prefix: int, shared: Sequence[tuple[int, int]], partners: list[int | None]) -> Side:
    inside = np.zeros(places[-1] + 1, np.int64)  # [U + 1]; shared units before each
    for start, stop in shared:
        inside[start + 1 : stop + 1] = 1
    before = np.cumsum(inside)
    common = before[places[1:]] - before[places[:-1]] == np.diff(places)
    if not len(common):
        return Side(common, None, partners)
    empty = np.diff(places) == 0  # a control token among characters belongs to the token before it
    common &= ~empty | (inside[places[:-1]] == 1) | (places[:-1] == 0)
    parting = np.flatnonzero(places[1:] > prefix)
    return Side(common, int(parting[0]) if len(parting) else None, partners)


@dataclass(frozen=True, slots=True)
class Difference:
    """One number of two runs."""

    name: str
    meaning: str  # explanation in one line
    is_share: bool  # shown in per cent, and its difference in percentage points
    stands: str  # "exact" from the setting's own text, "measured" by the wall clock of the recorded decoding
    left: float  # the reference's value; NaN if unknown
    right: float  # the other's value; NaN if unknown

    @property
    def change(self) -> float:
        return self.right - self.left


_NUMBERS = (
    ("exact", "τ", "tau", "Acceptance length: tokens / rounds"),
    ("exact", "tokens", "tokens", "Emitted tokens, corrections and bonuses included"),
    ("exact", "rounds", "rounds", "Draft-verify cycles: one target pass each, the one over the prompt excluded"),
    ("exact", "acceptance", "acceptance_rate", "Drafted tokens that reached the text"),
    ("exact", "relaxed", "relaxed", "Kept tokens that the rule's own strict end rejects"),
    ("exact", "rolled back", "rolled_back", "Drafted tokens that did not reach the text"),
    ("exact", "passes saved", "passes_saved_autoregressive", "Target passes spared against one pass a token"),
    ("measured", "tokens / s", "tokens_per_second", "Tokens / seconds of the decoding, prefill excluded"),
    ("measured", "ms / round", "milliseconds_per_round", "Milliseconds of a round"),
    ("measured", "drafting", "draft_share", "Drafting's part of the rounds' time"),
)
"""Basis, name, field of `Summary` or of `Speed`, and meaning."""
_SHARES = ("acceptance", "drafting")


def differences(left: Run, right: Run, *, timed: bool) -> tuple[Difference, ...]:
    """Return the differences of two runs; with speeds if `timed`, because both were really decoded."""
    sides = {"exact": (summary(left), summary(right))} | ({"measured": (speed(left), speed(right))} if timed else {})
    return tuple(
        Difference(name, meaning, name in _SHARES, basis, *(float(getattr(side, field)) for side in sides[basis]))
        for basis, name, field, meaning in _NUMBERS
        if basis in sides
    )
