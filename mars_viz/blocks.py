"""All blocks of a text end to end, as flat arrays, and the rule's decisions in all of them at once.

Knows records and how `rules.settle` walks; knows no rules' arithmetic, no figures and no files. A run of a hundred
thousand tokens has thirty thousand blocks: walked one at a time, they take seconds. R is the number of rounds, P that
of their drafted positions, Q = P + R that of their rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.records import Round, Speculation, Verdicts


@dataclass(frozen=True, slots=True)
class Settled:
    """What a rule at one dial value decides in each block, before the text's end cuts anything off."""

    kept: np.ndarray
    """bool [P]; the kept positions."""
    rows: np.ndarray
    """int64 [R]; the row at which the walk stopped, counted within its round."""
    emitted: np.ndarray
    """int32 [R]; the token emitted there."""

    def same_as(self, other: Settled) -> bool:
        """True if no decision differs."""
        pairs = ((self.kept, other.kept), (self.rows, other.rows), (self.emitted, other.emitted))
        return all(np.array_equal(ours, theirs) for ours, theirs in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What each block adds to the text, before the text's end cuts anything off."""

    tokens: np.ndarray
    """int64; the kept tokens of a round in order, then the emitted one; then those of the next round."""
    lengths: np.ndarray
    """int64 [R]; how many of them are each round's."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of consecutive rounds, what was drafted in them and what a rule says of it at every dial value."""

    lengths: np.ndarray
    """int64 [R]; drafted positions of each round."""
    tokens: np.ndarray
    """int32 [P]; the drafted tokens."""
    parents: np.ndarray
    """int32 [P]; the node before, counted within its round; -1 for the prefix."""
    best: np.ndarray
    """float32 [Q, 2]; the target's two largest raw logits."""
    second: np.ndarray
    """int32 [Q]; the target's second best token."""
    verdicts: Verdicts
    """Of all rounds, end to end."""
    recorded: Settled
    """What was decided."""
    speculation: Speculation | None = None
    """All speculations as one, where they are stored end to end; its parents count within their round."""

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Blocks:
        """Those of these rounds."""
        speculations, verdicts = [r.speculation for r in rounds], [r.verdicts for r in rounds]

        def column(read: Callable[[Speculation], np.ndarray], kind: type[np.generic]) -> np.ndarray:
            return _end_to_end(map(read, speculations), kind)

        logits = [np.empty((0, 2), np.float32), *(speculation.top_logits[:, :2] for speculation in speculations)]
        lengths = np.array([len(speculation) for speculation in speculations], np.int64)
        return cls(
            lengths=lengths,
            tokens=column(lambda s: s.tokens, np.int32),
            parents=column(lambda s: s.parents, np.int32),
            best=np.concatenate(logits),
            second=column(lambda s: s.top_ids[:, 1], np.int32),
            verdicts=Verdicts.end_to_end(verdicts),
            recorded=Settled(
                _mask([round_.decision.kept for round_ in rounds], lengths),
                np.array([round_.decision.row for round_ in rounds], np.int64),
                np.array([round_.decision.emitted for round_ in rounds], np.int32),
            ),
        )

    def __len__(self) -> int:
        """Number of rounds."""
        return len(self.lengths)

    @property
    def firsts(self) -> np.ndarray:
        """int64 [R]; the index of each round's first position."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def round_index(self) -> np.ndarray:
        """int64 [P]; the round of each position, from 0."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def judging_rows(self) -> np.ndarray:
        """int64 [P]; the index among all rows of the one whose law judges each position."""
        return np.repeat(self.firsts + np.arange(len(self)), self.lengths) + self.parents + 1

    def settled(self, dial: float | None) -> Settled:
        """What `rules.settle` comes to in every block; None for a rule without a dial.

        It takes the nodes of a block in order; this takes the first nodes of all blocks, then the second ones, …
        """
        at = math.nan if dial is None else dial  # NaN compares false, and a rule without a dial has no breakpoints
        keeps, firsts = self.verdicts.keeps(at), self.firsts
        kept, rows = np.zeros(len(self.tokens), bool), np.zeros(len(self), np.int64)
        for place in range(int(self.lengths.max(initial=0))):
            blocks = np.flatnonzero(self.lengths > place)
            nodes = firsts[blocks] + place
            goes_on = keeps[nodes] & (self.parents[nodes] + 1 == rows[blocks])
            kept[nodes[goes_on]] = True
            rows[blocks[goes_on]] = place + 1
        stops = firsts + np.arange(len(self)) + rows
        below = at < self.verdicts.row_breakpoints[stops]
        emitted = np.where(below, self.verdicts.emit_below[stops], self.verdicts.emit_above[stops])
        return Settled(kept, rows, emitted.astype(np.int32, copy=False))

    def decided(self) -> Decided:
        """The recorded decisions as texts."""
        kept = self.recorded.kept
        counts = np.bincount(self.round_index[kept], minlength=len(self))
        lengths = counts + 1
        ends = np.cumsum(lengths)
        tokens = np.empty(int(lengths.sum()), np.int64)
        tokens[np.repeat(ends - lengths, counts) + self.places(kept)[kept] - 1] = self.tokens[kept]
        tokens[ends - 1] = self.recorded.emitted
        return Decided(tokens, lengths)

    def as_one(self, rounds: Sequence[Round]) -> Sequence[Round]:
        """These rounds, of which the blocks are, as a single one, where they are stored end to end.

        Its arrays are those of the rounds one after the other, for who reads nothing else of it.
        """
        if self.speculation is None:
            return rounds
        return (replace(rounds[0], speculation=self.speculation, verdicts=self.verdicts),)

    def places(self, chosen: np.ndarray) -> np.ndarray:
        """int64 [P]; how many of the chosen (bool [P]) positions of its block stand up to each, itself included."""
        counts = np.cumsum(chosen)
        before = np.concatenate([[0], counts])[self.firsts]
        return counts - np.repeat(before, self.lengths)


def _end_to_end(parts: Iterable[np.ndarray], kind: type[np.generic]) -> np.ndarray:
    return np.concatenate([np.empty(0, kind), *parts]).astype(kind, copy=False)


def _mask(kept: Sequence[tuple[int, ...]], lengths: np.ndarray) -> np.ndarray:
    """bool [P]; True at the nodes of each round's tuple."""
    nodes = np.array([node for tuple_ in kept for node in tuple_], np.int64)
    firsts = np.repeat(np.cumsum(lengths) - lengths, [len(tuple_) for tuple_ in kept])
    mask = np.zeros(int(lengths.sum()), bool)
    mask[firsts + nodes] = True
    return mask
