"""A run as columns: drafts, verdicts, decisions and text of all rounds, each array concatenated over rounds.

A round is a view of the columns. Questions about many rounds, such as a rule's decision in each, are answered on the
columns: a run of 100,000 tokens has 30,000 rounds, and a Python loop over them takes seconds. Imports records only;
`rules.settle` defines the walk. R is the number of rounds, P the number of drafted positions (nodes), and Q = P + R the
number of rows.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import overload

import numpy as np

from mars_viz.errors import EvidenceError
from mars_viz.records import (
    COLUMNS,
    Decision,
    Emission,
    Outcome,
    Per,
    Round,
    Speculation,
    Timing,
    Verdicts,
    cut_columns,
)

OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)  # outcome by its code in arrays


@dataclass(eq=False, repr=False)
class Speculations:
    """Concatenated speculations as columns: the rounds of a run, or a dial map's answers."""

    lengths: np.ndarray  # int64 [R]; drafted positions of each speculation
    starts: np.ndarray  # int64 [R]; absolute position of each first drafted token
    temperatures: np.ndarray  # float64 [R]; see `Speculation.temperature`
    sampled: np.ndarray  # bool [R]; see `Speculation.sampled`
    columns: Mapping[str, np.ndarray]  # by name, [P, ...] or [Q, ...]; parents are counted within their round

    @classmethod
    def of(cls, parts: Sequence[Speculation]) -> Speculations:
        """Concatenate speculations, with the columns that all of them have. Raises BadInput if a column has a wrong
        length, or lists of different widths."""
        lengths, joined = np.array([len(part) for part in parts], np.int64), dict[str, np.ndarray]()
        common = set(parts[0].columns).intersection(*(part.columns for part in parts)) if parts else COLUMNS.keys()
        for name, column in COLUMNS.items():
            if name not in common:
                continue
            arrays = [part.columns[name] for part in parts]
            wanted = lengths if column.per is Per.NODE else lengths + 1
            has = np.array([len(array) for array in arrays], np.int64)
            if (has != wanted).any():
                wrong = int(np.flatnonzero(has != wanted)[0])
                raise EvidenceError(f"Round {wrong} has {has[wrong]} values of {name}; {wanted[wrong]} belong there.")
            if len({array.shape[1:] for array in arrays}) > 1:
                raise EvidenceError(f"The rounds have differently wide lists of {name}; a run has one width.")
            nothing = np.zeros(0 if column.width == 1 else (0, len(Emission)), column.dtype)
            joined[name] = np.concatenate(arrays) if parts else nothing
        starts = np.array([part.start for part in parts], np.int64)
        temperatures = np.array([part.temperature for part in parts], np.float64)
        return cls(lengths, starts, temperatures, np.array([part.sampled for part in parts], np.bool_), joined)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Speculation]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Speculation:
        """Return one as a view. A map has thousands, so values are looked up in lists."""
        return Speculation(*self._singles[index], cut_columns(self.columns, *self.places(index)))

    def places(self, index: int) -> tuple[slice, slice]:
        """Return the slices of nodes and rows of one speculation; `index` is not negative."""
        first, end = self._begins[index], self._begins[index + 1]
        return slice(first, end), slice(first + index, end + index + 1)

    @cached_property
    def firsts(self) -> np.ndarray:
        """int64 [R]; the index of each round's first position."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def round_index(self) -> np.ndarray:
        """int64 [P]; the round of each position, from 0."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def judging_rows(self) -> np.ndarray:
        """int64 [P]; the index among all rows of the row that judges each position."""
        return np.repeat(self.firsts + np.arange(len(self)), self.lengths) + self.columns["parents"] + 1

    @cached_property
    def whole(self) -> Speculation:
        """All as one speculation, so that a rule's array arithmetic runs once; each position keeps its judging row.
        Single values, such as `start`, are those of the first."""
        parents = self.columns["parents"]
        parents = np.where(parents < 0, -1, parents + np.repeat(self.firsts, self.lengths)).astype(np.int32)
        start, temperature, sampled = self._singles[0] if len(self) else (0, 0.0, False)
        columns = ChainMap({"parents": parents}, self.columns)  # type: ignore[arg-type]  # never changed
        return Speculation(start, temperature, sampled, columns, self.judging_rows)

    @property
    def alike(self) -> bool:
        """True if a rule may judge all as one, because temperature and sampling agree."""
        return len(set(self.temperatures.tolist())) == 1 == len(set(self.sampled.tolist()))

    @cached_property
    def _singles(self) -> list[tuple[int, float, bool]]:
        return list(zip(self.starts.tolist(), self.temperatures.tolist(), self.sampled.tolist(), strict=True))

    @cached_property
    def _begins(self) -> list[int]:
        return [0, *np.cumsum(self.lengths).tolist()]


@dataclass(frozen=True, slots=True)
class Settled:
    """A rule's decisions in each round at one dial value, and the part of them that the end of the text leaves."""

    kept: np.ndarray  # bool [P]; the accepted positions
    rows: np.ndarray  # int64 [R]; the row at which the walk stopped, counted within its round
    emitted: np.ndarray  # int32 [R]; the token emitted at that row
    lengths: np.ndarray  # int64 [R]; number of tokens that each round adds to the text

    def same_as(self, other: Settled) -> bool:
        """True if every decision is equal, wherever the text ends."""
        names = ("kept", "rows", "emitted")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)


class Trace(Sequence[Round]):
    """Consecutive rounds, as a sequence and as columns; each column is computed on first access."""

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        self._rounds: list[Round | None] = list(rounds)

    @classmethod
    def of_columns(
        cls, speculations: Speculations, verdicts: Verdicts, recorded: Settled, text: np.ndarray, timings: np.ndarray
    ) -> Trace:
        """Build a trace from columns; the properties below describe them."""
        trace = cls()
        trace._rounds = [None] * len(speculations)
        trace.speculations, trace.verdicts, trace.recorded = speculations, verdicts, recorded
        trace.text, trace.timings = text, timings
        return trace

    @cached_property
    def speculations(self) -> Speculations:
        return Speculations.of([round_.speculation for round_ in self])

    @cached_property
    def verdicts(self) -> Verdicts:
        return Verdicts.end_to_end([round_.verdicts for round_ in self])

    @cached_property
    def recorded(self) -> Settled:
        decisions = [round_.decision for round_ in self]
        nodes = np.fromiter(chain.from_iterable(decision.kept for decision in decisions), np.int64)
        kept = np.zeros(int(self.lengths.sum()), bool)
        kept[np.repeat(self.speculations.firsts, [len(decision.kept) for decision in decisions]) + nodes] = True
        rows = np.array([decision.row for decision in decisions], np.int64)
        lengths = np.array([len(round_.token_ids) for round_ in self], np.int64)
        return Settled(kept, rows, np.array([decision.emitted for decision in decisions], np.int32), lengths)

    @cached_property
    def text(self) -> np.ndarray:
        """int64; the tokens of the text, in order."""
        return np.fromiter(chain.from_iterable(round_.token_ids for round_ in self), np.int64)

    @cached_property
    def timings(self) -> np.ndarray:
        """float64 [R, 4]; seconds of each round in the order of `Timing`'s fields."""
        return np.array([astuple(round_.timing) for round_ in self], np.float64).reshape(-1, len(Timing.__slots__))

    def __len__(self) -> int:
        return len(self._rounds)

    @overload
    def __getitem__(self, index: int) -> Round: ...

    @overload
    def __getitem__(self, index: slice) -> Trace: ...

    def __getitem__(self, index: int | slice) -> Round | Trace:
        """Return a round (the same object every time), or a slice as a trace."""
        if isinstance(index, slice):
            return Trace(self[each] for each in range(len(self))[index])
        round_ = self._rounds[index]
        if round_ is None:
            index = range(len(self))[index]
            nodes, rows = self.speculations.places(index)
            kept = tuple(np.flatnonzero(self.recorded.kept[nodes]).tolist())
            round_ = self._rounds[index] = Round(
                self.speculations[index],
                self.verdicts.cut(nodes, rows),
                Decision(kept, int(self.recorded.rows[index]), int(self.recorded.emitted[index])),
                tuple(self.text[self._text_ends[index] : self._text_ends[index + 1]].tolist()),
                Timing(*self.timings[index].tolist()),
            )
        return round_

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(a is b or a == b for a, b in zip(self, other, strict=True))

    def __reduce__(self) -> tuple[type[Trace], tuple[tuple[Round, ...]]]:
        return Trace, (tuple(self),)

    lengths = property(attrgetter("speculations.lengths"))
    firsts = property(attrgetter("speculations.firsts"))
    round_index = property(attrgetter("speculations.round_index"))
    judging_rows = property(attrgetter("speculations.judging_rows"))
    tokens = property(attrgetter("speculations.whole.tokens"))  # int32 [P]; the drafted tokens

    @property
    def parents(self) -> np.ndarray:
        """int32 [P]; the preceding node, counted within its round; -1 for the prefix."""
        return self.speculations.columns["parents"]

    def judged_as(self, verdicts: Verdicts) -> Trace:
        return Trace.of_columns(self.speculations, verdicts, self.recorded, self.text, self.timings)

    def settled_as(self, text: Settled) -> Trace:
        """Return the same rounds with other decisions."""
        tokens, lengths = self.decided(text)
        places = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        tokens = tokens[places < np.repeat(text.lengths, lengths)]
        return Trace.of_columns(self.speculations, self.verdicts, text, tokens, self.timings)

    def settled(self, dial: float | None) -> Settled:
        """Return the result of `rules.settle` in every round, whole; `dial` is None for a rule without a dial."""
        roots = self.firsts + np.arange(len(self))
        at = math.nan if dial is None else dial
        nodes, stops, emitted = self.verdicts.walked(self.speculations.whole, at, roots.tolist())
        kept = np.zeros(len(self.parents), bool)
        kept[nodes] = True
        lengths = np.bincount(self.round_index[kept], minlength=len(self)) + 1
        return Settled(kept, np.array(stops, np.int64) - roots, emitted, lengths)

    def decided(self, settled: Settled) -> tuple[np.ndarray, np.ndarray]:
        """Return what these decisions add before the end of the text cuts anything off: for each round the accepted
        tokens in order and the emitted one, int64, and the number of tokens of each round, int64 [R]."""
        kept = settled.kept
        counts = np.bincount(self.round_index[kept], minlength=len(self))
        lengths, ends = counts + 1, np.cumsum(counts + 1)
        tokens = np.empty(int(lengths.sum()), np.int64)
        tokens[np.repeat(ends - lengths, counts) + self.places(kept)[kept] - 1] = self.tokens[kept]
        tokens[ends - 1] = settled.emitted
        return tokens, lengths

    def places(self, chosen: np.ndarray) -> np.ndarray:
        """Return each block's number of `chosen` positions, bool [P], up to and including each position, int64 [P]."""
        counts = np.cumsum(chosen)
        before = np.concatenate([[0], counts])[self.firsts]
        return counts - np.repeat(before, self.lengths)

    def in_text(self, text: Settled) -> np.ndarray:
        """Return the accepted positions that the end of the text does not cut off, bool [P]."""
        return text.kept & (self.places(text.kept) <= text.lengths[self.round_index])

    def emits(self, text: Settled) -> np.ndarray:
        """Return True for each round whose correction or bonus belongs to the text, bool [R]."""
        return text.lengths > np.bincount(self.round_index[text.kept], minlength=len(self))

    def outcomes(self, text: Settled) -> np.ndarray:
        """Return `Round.outcomes` of every round with these decisions, as indices of `OUTCOMES`, int8 [P]."""
        codes, of_round = {outcome: OUTCOMES.index(outcome) for outcome in OUTCOMES}, self.round_index
        outcomes, kept = np.full(len(of_round), codes[Outcome.DISCARDED], np.int8), self.in_text(text)
        outcomes[kept] = np.where(self.verdicts.keep_strict, codes[Outcome.MATCHED], codes[Outcome.RELAXED])[kept]
        judged_last = self.emits(text)[of_round] & (self.parents + 1 == text.rows[of_round])
        outcomes[judged_last & (self.places(judged_last) == 1)] = codes[Outcome.REJECTED]
        return outcomes

    @cached_property
    def _text_ends(self) -> list[int]:
        return [0, *np.cumsum(self.recorded.lengths).tolist()]
