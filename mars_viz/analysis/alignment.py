"""Two texts side by side: what they share, where they first part, and which rounds start at the same place.

Knows runs' tokens and pieces; knows no rules, no figures and no browser. Texts of one vocabulary are compared token by
token, others character by character, so any two can be. A place counts from the end of the prompt: after equal prompts
it stands for one absolute position.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.common_runs import shared_stretches
from mars_viz.records import first_difference
from mars_viz.run import Piece, Run

SHORTEST = 3
"""Tokens or words that two texts must share in a row, once they have parted, for it to count as common."""
LONGEST = 5000
"""Tokens or words after the parting beyond which nothing common is looked for; it would take too long."""


class Unit(Enum):
    """What two texts are compared by."""

    TOKENS = "token"
    """Token ids: both texts are of one vocabulary."""
    CHARACTERS = "character"
    """Characters: their tokens mean different things. Control tokens have none."""


@dataclass(frozen=True, slots=True)
class Written:
    """A text as it was written: its tokens, in rounds."""

    tokens: tuple[int, ...]
    """[T]; ids, prompt excluded."""
    pieces: tuple[Piece, ...]
    """[T]; what each reads."""
    starts: tuple[int, ...]
    """[R]; index of the first token of each round, ascending."""

    @property
    def text(self) -> str:
        """Its characters, control tokens left out; a byte that is no whole character is one by itself."""
        return _read(self.pieces)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of both texts, in units: the same in both, or different. Different ones may be empty in one of them."""

    same: bool
    """True where both say the same; `left` and `right` are then of one length."""
    left: range
    """Units of the left text."""
    right: range
    """Units of the right text."""


@dataclass(frozen=True, slots=True)
class Side:
    """What an alignment says of one of the texts."""

    common: np.ndarray
    """bool [T]; tokens that lie wholly in what both texts share."""
    parts: int | None
    """Index of the first token that the other text does not share; None where the text is a beginning of the other."""


@dataclass(frozen=True, slots=True)
class RoundPair:
    """Rounds that start at the same place, or one that starts where no round of the other text does."""

    left: int | None
    """Index of the left text's round; None where it has none there."""
    right: int | None
    """Likewise."""
    place: int
    """Units written before."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """How two texts lie side by side."""

    unit: Unit
    """What places and stretches count."""
    prefix: int
    """Units that both begin with."""
    stretches: tuple[Stretch, ...]
    """In order; one after the other they are the whole of both texts. None for two empty ones."""
    left: Side
    """The left text's tokens."""
    right: Side
    """The right text's."""
    rounds: tuple[RoundPair, ...]
    """Every round of both, once, by place."""

    @property
    def identical(self) -> bool:
        """True if both say the same throughout."""
        return all(stretch.same for stretch in self.stretches)

    @property
    def common(self) -> int:
        """Units that both share, the prefix and what they come back to."""
        return sum(len(stretch.left) for stretch in self.stretches if stretch.same)


def written(run: Run) -> Written:
    """The text of a run."""
    lengths = [len(round_.token_ids) for round_ in run.rounds]
    starts = tuple(int(end) - length for end, length in zip(np.cumsum(lengths), lengths, strict=True))
    return Written(run.token_ids, tuple(run.pieces[token] for token in run.token_ids), starts)


def align_runs(left: Run, right: Run) -> Alignment:
    """The texts of two runs side by side: by tokens where all ids that both know read the same, else by characters."""
    unit = Unit.TOKENS if same_vocabulary(left.pieces, right.pieces) else Unit.CHARACTERS
    return align(written(left), written(right), unit)


def same_vocabulary(left: Mapping[int, Piece], right: Mapping[int, Piece]) -> bool:
    """True if the vocabularies share ids and agree on each; what neither run mentions cannot be known."""
    shared = left.keys() & right.keys()
    return bool(shared) and all(left[token] == right[token] for token in shared)


def align(left: Written, right: Written, unit: Unit) -> Alignment:
    """Two texts side by side. Never fails: two texts that share nothing are one different stretch."""
    places = _places(left, unit), _places(right, unit)
    contents: tuple[Sequence[Hashable], Sequence[Hashable]] = (
        (left.tokens, right.tokens) if unit is Unit.TOKENS else (left.text, right.text)
    )
    first = first_difference(*contents)
    prefix = len(contents[0]) if first is None else first
    stretches = tuple(_stretches(*contents, prefix, unit))
    return Alignment(
        unit,
        prefix,
        stretches,
        _side(places[0], prefix, [s.left for s in stretches if s.same]),
        _side(places[1], prefix, [s.right for s in stretches if s.same]),
        tuple(_round_pairs(places[0][list(left.starts)], places[1][list(right.starts)])),
    )


def _read(pieces: Sequence[Piece]) -> str:
    return b"".join(piece.data for piece in pieces if not piece.special).decode("utf-8", "surrogateescape")


def _places(text: Written, unit: Unit) -> np.ndarray:
    """int64 [T + 1]; units before each token, and in all."""
    if unit is Unit.TOKENS:
        return np.arange(len(text.tokens) + 1)
    sizes = [len(character.encode("utf-8", "surrogateescape")) for character in text.text]
    begins = np.cumsum([0, *sizes])[:-1]  # bytes before each character
    lengths = [0 if piece.special else len(piece.data) for piece in text.pieces]
    return np.searchsorted(begins, np.cumsum([0, *lengths]), side="left")  # a token inside a character begins after it


def _stretches(left: Sequence[Hashable], right: Sequence[Hashable], prefix: int, unit: Unit) -> Iterator[Stretch]:
    """The common prefix, then by turns what differs and what both come back to."""
    if prefix:
        yield Stretch(True, range(prefix), range(prefix))
    here, there = prefix, prefix
    for start, other, length in (*_met_again(left[prefix:], right[prefix:], unit), (-1, -1, 0)):
        a, b = (len(left), len(right)) if start < 0 else (prefix + start, prefix + other)
        if a > here or b > there:
            yield Stretch(False, range(here, a), range(there, b))
        if length:
            yield Stretch(True, range(a, a + length), range(b, b + length))
        here, there = a + length, b + length


def _met_again(left: Sequence[Hashable], right: Sequence[Hashable], unit: Unit) -> Iterator[tuple[int, int, int]]:
    """Start in either and length, in units, of what two different texts share in order; characters in whole words."""
    ours, theirs = (left, right) if unit is Unit.TOKENS else (_words(left), _words(right))
    if max(len(ours), len(theirs)) > LONGEST:
        return
    at, other = (_before(ours), _before(theirs)) if unit is Unit.CHARACTERS else (None, None)
    for found in shared_stretches(ours, theirs, SHORTEST):
        a, b, count = found.left, found.right, found.size
        if at is None or other is None:
            yield a, b, count
        else:
            yield int(at[a]), int(other[b]), int(at[a + count] - at[a])


def _words(text: Sequence[Hashable]) -> list[str]:
    return re.findall(r"\s*\S+|\s+", str(text))


def _before(words: Sequence[Hashable]) -> np.ndarray:
    """int64 [W + 1]; characters before each word, and in all."""
    return np.cumsum([0, *(len(str(word)) for word in words)])


def _side(places: np.ndarray, prefix: int, shared: Sequence[range]) -> Side:
    inside = np.zeros(places[-1] + 1, np.int64)  # [U + 1]; shared units before each
    for stretch in shared:
        inside[stretch.start + 1 : stretch.stop + 1] = 1
    before = np.cumsum(inside)
    common = before[places[1:]] - before[places[:-1]] == np.diff(places)
    if not len(common):
        return Side(common, None)
    empty = np.diff(places) == 0  # a control token among characters goes with what stands before it
    common &= ~empty | (inside[places[:-1]] == 1) | (places[:-1] == 0)
    parting = np.flatnonzero(places[1:] > prefix)
    return Side(common, int(parting[0]) if len(parting) else None)


def _round_pairs(left: np.ndarray, right: np.ndarray) -> Iterator[RoundPair]:
    """Merge two ascending lists of places; equal ones are a pair."""
    i = j = 0
    while i < len(left) or j < len(right):
        a = int(left[i]) if i < len(left) else None
        b = int(right[j]) if j < len(right) else None
        if a is not None and a == b:
            yield RoundPair(i, j, a)
            i, j = i + 1, j + 1
        elif b is None or (a is not None and a < b):
            assert a is not None
            yield RoundPair(i, None, a)
            i += 1
        else:
            yield RoundPair(None, j, b)
            j += 1
