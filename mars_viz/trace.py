"""A run as columns: what was drafted, judged, decided and written in all of its rounds, each array end to end.

A round is a view of them. Whatever is asked of many rounds at once, such as what a rule decides in each, is asked of
the columns: a run of a hundred thousand tokens has thirty thousand rounds, and walked one at a time they take seconds.
Knows records and how `rules.settle` walks; knows no rules' arithmetic, no figures and no files. R is the number of
rounds, P that of their drafted positions (nodes), Q = P + R that of their rows.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import chain
from typing import overload

import numpy as np

from mars_viz.errors import EvidenceError
from mars_viz.evidence import Cut, Per
from mars_viz.records import COLUMNS, Decision, Emission, Outcome, Policy, Round, Speculation, Timing, Verdicts

OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)
"""Outcome by its code in arrays."""
_EMPTY_WIDTH = len(Emission)
"""Of lists where there are no lines."""


class Speculations(Sequence[Speculation]):
    """Speculations end to end, as columns: those of a run's rounds, or a dial map's answers."""

    def __init__(
        self,
        lengths: np.ndarray,
        starts: np.ndarray,
        temperatures: np.ndarray,
        sampled: np.ndarray,
        columns: Mapping[str, np.ndarray],
    ):
        self.lengths = lengths
        """int64 [R]; drafted positions of each."""
        self.starts = starts
        """int64 [R]; absolute position of each one's first drafted token."""
        self.temperatures = temperatures
        """float64 [R]; see `Speculation.temperature`."""
        self.sampled = sampled
        """bool [R]; see `Speculation.sampled`."""
        self.columns = columns
        """By name, [P, …] or [Q, …]: what is known of all of them; parents count within their round."""

    @classmethod
    def of(cls, parts: Sequence[Speculation]) -> Speculations:
        """These; of their columns those that all of them have."""
        lengths = np.array([len(part) for part in parts], np.int64)
        return cls(
            lengths,
            np.array([part.start for part in parts], np.int64),
            np.array([part.temperature for part in parts], np.float64),
            np.array([part.sampled for part in parts], np.bool_),
            _EndToEnd([part.columns for part in parts], lengths),
        )

    def __len__(self) -> int:
        """R."""
        return len(self.lengths)

    def __iter__(self) -> Iterator[Speculation]:
        return map(self._view, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Speculation: ...

    @overload
    def __getitem__(self, index: slice) -> Speculations: ...

    def __getitem__(self, index: int | slice) -> Speculation | Speculations:
        """One as a view, or some that follow one another."""
        if isinstance(index, slice):
            some = dict(Cut(self.columns, *self.places(index), self.total))
            lengths, starts, temperatures = self.lengths[index], self.starts[index], self.temperatures[index]
            return Speculations(lengths, starts, temperatures, self.sampled[index], some)
        return self._view(range(len(self))[index])

    def _view(self, index: int) -> Speculation:
        """One of them; a map has thousands, so what can be looked up is looked up."""
        first, end = self._begins[index], self._begins[index + 1]
        columns = Cut(self.columns, slice(first, end), slice(first + index, end + index + 1), self.total)
        return Speculation(*self._singles[index], columns)

    def places(self, some: slice) -> tuple[slice, slice]:
        """Which nodes and which rows are those of consecutive rounds."""
        first, end, step = some.indices(len(self))
        assert step == 1, "rounds that follow one another"
        begins, end = self._begins, max(first, end)
        return slice(begins[first], begins[end]), slice(begins[first] + first, begins[end] + end)

    @property
    def total(self) -> int:
        """P."""
        return self._begins[-1]

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
        """int64 [P]; the index among all rows of the one whose law judges each position."""
        return np.repeat(self.firsts + np.arange(len(self)), self.lengths) + self.columns["parents"] + 1

    @cached_property
    def whole(self) -> Speculation:
        """All as one, so that a rule's array arithmetic is paid for once; each position is judged by its own row.

        Its single values, such as where it starts, are the first one's.
        """
        parents = self.columns["parents"]
        parents = np.where(parents < 0, -1, parents + np.repeat(self.firsts, self.lengths)).astype(np.int32)
        start, temperature, sampled = self._singles[0] if len(self) else (0, 0.0, False)
        columns = ChainMap({"parents": parents}, self.columns)  # type: ignore[arg-type]  # which nobody changes
        return Speculation(start, temperature, sampled, columns, self.judging_rows)

    @property
    def alike(self) -> bool:
        """True if a rule may judge all as one: they were drafted in the same way."""
        return len(set(self.temperatures.tolist())) == 1 == len(set(self.sampled.tolist()))

    @cached_property
    def _singles(self) -> list[tuple[int, float, bool]]:
        """Where each one starts, its temperature, and whether it was sampled."""
        return list(zip(self.starts.tolist(), self.temperatures.tolist(), self.sampled.tolist(), strict=True))

    @cached_property
    def _begins(self) -> list[int]:
        """Where each one's positions begin, and where the last one's end."""
        return [0, *np.cumsum(self.lengths).tolist()]


@dataclass(frozen=True, slots=True)
class Settled:
    """What a rule at one dial value decides in each round, before the text's end cuts anything off."""

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
class SettledText:
    """What rounds add to a text at one setting of a rule, each after its recorded prefix."""

    settled: Settled
    """The decisions, before the text's end cuts anything off."""
    lengths: np.ndarray
    """int64 [R]; tokens of each round that belong to the text."""


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What each round adds to the text, before the text's end cuts anything off."""

    tokens: np.ndarray
    """int64; the kept tokens of a round in order, then the emitted one; then those of the next round."""
    lengths: np.ndarray
    """int64 [R]; how many of them are each round's."""


class Trace(Sequence[Round]):
    """Consecutive rounds: a sequence of them, and their columns, each of which is made when it is first asked for."""

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        """Of these rounds."""
        self._rounds: list[Round | None] = list(rounds)
        self._stored = False  # the rounds are views of columns

    @classmethod
    def of_columns(
        cls,
        speculations: Speculations,
        verdicts: Verdicts,
        recorded: Settled,
        text: np.ndarray,
        text_lengths: np.ndarray,
        timings: np.ndarray,
    ) -> Trace:
        """Of its columns, which are explained below."""
        made = cls()
        made._rounds, made._stored = [None] * len(speculations), True
        names = ("speculations", "verdicts", "recorded", "text", "text_lengths", "timings")
        vars(made).update(zip(names, (speculations, verdicts, recorded, text, text_lengths, timings), strict=True))
        return made

    @cached_property
    def speculations(self) -> Speculations:
        """What was drafted."""
        return Speculations.of([round_.speculation for round_ in self])

    @cached_property
    def verdicts(self) -> Verdicts:
        """What a rule says of it at every dial value, end to end."""
        return Verdicts.end_to_end([round_.verdicts for round_ in self])

    @cached_property
    def recorded(self) -> Settled:
        """What was decided."""
        decisions = [round_.decision for round_ in self]
        nodes = np.fromiter(chain.from_iterable(decision.kept for decision in decisions), np.int64)
        kept = np.zeros(int(self.lengths.sum()), bool)
        kept[np.repeat(self.speculations.firsts, [len(decision.kept) for decision in decisions]) + nodes] = True
        rows = np.array([decision.row for decision in decisions], np.int64)
        return Settled(kept, rows, np.array([decision.emitted for decision in decisions], np.int32))

    @cached_property
    def text(self) -> np.ndarray:
        """int64; the tokens of the text, in order."""
        return np.fromiter(chain.from_iterable(round_.token_ids for round_ in self), np.int64)

    @cached_property
    def text_lengths(self) -> np.ndarray:
        """int64 [R]; how many of them each round added."""
        return np.array([len(round_.token_ids) for round_ in self], np.int64)

    @cached_property
    def timings(self) -> np.ndarray:
        """float64 [R, 4]; the seconds of each round, as `Timing` lists them."""
        return np.array([astuple(round_.timing) for round_ in self], np.float64).reshape(-1, len(Timing.__slots__))

    def __len__(self) -> int:
        """R."""
        return len(self._rounds)

    def __iter__(self) -> Iterator[Round]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Round: ...

    @overload
    def __getitem__(self, index: slice) -> Trace: ...

    def __getitem__(self, index: int | slice) -> Round | Trace:
        """A round, the same object every time, or some of them as a trace of their own."""
        if not isinstance(index, slice):
            found = self._rounds[index]
            if found is None:
                found = self._rounds[index] = self._view(range(len(self))[index])
            return found
        if not self._stored or index.step not in (None, 1):
            return Trace([self[each] for each in range(len(self))[index]])
        nodes, rows = self.speculations.places(index)
        first, end, _ = index.indices(len(self))
        tokens = slice(int(self.text_lengths[:first].sum()), int(self.text_lengths[: max(first, end)].sum()))
        recorded = self.recorded
        made = Trace.of_columns(
            self.speculations[index],
            self.verdicts.cut(nodes, rows),
            Settled(recorded.kept[nodes], recorded.rows[index], recorded.emitted[index]),
            self.text[tokens],
            self.text_lengths[index],
            self.timings[index],
        )
        made._rounds = self._rounds[index]
        return made

    def __add__(self, other: Iterable[Round]) -> Trace:
        return Trace(chain(self, other))

    def __radd__(self, other: Iterable[Round]) -> Trace:
        return Trace(chain(other, self))

    def __eq__(self, other: object) -> bool:
        """True for the very same rounds, however they are held."""
        if not isinstance(other, Trace | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(a is b or a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[Trace], tuple[tuple[Round, ...]]]:
        return Trace, (tuple(self),)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [R]; drafted positions of each round."""
        return self.speculations.lengths

    @property
    def tokens(self) -> np.ndarray:
        """int32 [P]; the drafted tokens."""
        return self.speculations.columns["tokens"]

    @property
    def parents(self) -> np.ndarray:
        """int32 [P]; the node before, counted within its round; -1 for the prefix."""
        return self.speculations.columns["parents"]

    @property
    def best(self) -> np.ndarray:
        """float32 [Q, 2]; the target's two largest raw logits."""
        return self.speculations.columns["top_logits"][:, :2]

    @property
    def second(self) -> np.ndarray:
        """int32 [Q]; the target's second best token."""
        return self.speculations.columns["top_ids"][:, 1]

    @property
    def firsts(self) -> np.ndarray:
        """int64 [R]; the index of each round's first position."""
        return self.speculations.firsts

    @property
    def round_index(self) -> np.ndarray:
        """int64 [P]; the round of each position, from 0."""
        return self.speculations.round_index

    @property
    def judging_rows(self) -> np.ndarray:
        """int64 [P]; the index among all rows of the one whose law judges each position."""
        return self.speculations.judging_rows

    def judged_as(self, verdicts: Verdicts) -> Trace:
        """The same with another rule's verdicts; what was decided is what was recorded."""
        return Trace.of_columns(self.speculations, verdicts, self.recorded, self.text, self.text_lengths, self.timings)

    @property
    def recorded_text(self) -> SettledText:
        """What was decided, and what of it belongs to the text."""
        return SettledText(self.recorded, self.text_lengths)

    def settled_as(self, text: SettledText) -> Trace:
        """The same rounds, settled in another way."""
        decided, text_lengths = self.decided(text.settled), text.lengths
        ends = np.cumsum(decided.lengths)
        places = np.arange(len(decided.tokens)) - np.repeat(ends - decided.lengths, decided.lengths)
        tokens = decided.tokens[places < np.repeat(text_lengths, decided.lengths)]
        return Trace.of_columns(self.speculations, self.verdicts, text.settled, tokens, text_lengths, self.timings)

    def settled(self, dial: float | None) -> Settled:
        """What `rules.settle` comes to in every round; None for a rule without a dial.

        It takes the nodes of a block in order; this takes the first nodes of all blocks, then the second ones, …
        """
        at = math.nan if dial is None else dial  # NaN compares false, and a rule without a dial has no breakpoints
        verdicts = self.verdicts
        chosen = verdicts.policy is not Policy.DRAFT_ORDER  # else nothing is asked of the trees
        keeps = verdicts.goes_on(self.speculations.whole, at) if chosen else verdicts.keeps(at)
        firsts, lengths, parents = self.firsts, self.lengths, self.parents
        kept, rows = np.zeros(len(keeps), bool), np.zeros(len(self), np.int64)
        for place in range(int(lengths.max(initial=0))):
            blocks = np.flatnonzero(lengths > place)
            nodes = firsts[blocks] + place
            goes_on = keeps[nodes] & (parents[nodes] + 1 == rows[blocks])
            kept[nodes[goes_on]] = True
            rows[blocks[goes_on]] = place + 1
        stops = firsts + np.arange(len(self)) + rows
        below = at < self.verdicts.row_breakpoints[stops]
        emitted = np.where(below, self.verdicts.emit_below[stops], self.verdicts.emit_above[stops])
        return Settled(kept, rows, emitted.astype(np.int32, copy=False))

    def decided(self, settled: Settled) -> Decided:
        """These decisions as texts."""
        kept = settled.kept
        counts = np.bincount(self.round_index[kept], minlength=len(self))
        lengths = counts + 1
        ends = np.cumsum(lengths)
        tokens = np.empty(int(lengths.sum()), np.int64)
        tokens[np.repeat(ends - lengths, counts) + self.places(kept)[kept] - 1] = self.tokens[kept]
        tokens[ends - 1] = settled.emitted
        return Decided(tokens, lengths)

    def places(self, chosen: np.ndarray) -> np.ndarray:
        """int64 [P]; how many of the chosen (bool [P]) positions of its block stand up to each, itself included."""
        counts = np.cumsum(chosen)
        before = np.concatenate([[0], counts])[self.firsts]
        return counts - np.repeat(before, self.lengths)

    def in_text(self, text: SettledText) -> np.ndarray:
        """bool [P]; the positions that are kept and not cut off by the text's end."""
        kept = text.settled.kept
        found: np.ndarray = kept & (self.places(kept) <= text.lengths[self.round_index])
        return found

    def emits(self, text: SettledText) -> np.ndarray:
        """bool [R]; the text goes on to the round's correction or bonus."""
        kept = np.bincount(self.round_index[text.settled.kept], minlength=len(self))
        found: np.ndarray = text.lengths > kept
        return found

    def outcomes(self, text: SettledText) -> np.ndarray:
        """int8 [P]; what `Round.outcomes` says in every round, so settled, as an index of `OUTCOMES`."""
        codes, of_round = {outcome: OUTCOMES.index(outcome) for outcome in OUTCOMES}, self.round_index
        found = np.full(len(of_round), codes[Outcome.DISCARDED], np.int8)
        kept = self.in_text(text)
        found[kept] = np.where(self.verdicts.keep_strict, codes[Outcome.MATCHED], codes[Outcome.RELAXED])[kept]
        judged_last = self.emits(text)[of_round] & (self.parents + 1 == text.settled.rows[of_round])
        found[judged_last & (self.places(judged_last) == 1)] = codes[Outcome.REJECTED]
        return found

    def seconds(self, part: str) -> np.ndarray:
        """float64 [R]; this part of each round's `Timing`."""
        return self.timings[:, Timing.__slots__.index(part)]

    @cached_property
    def _text_ends(self) -> list[int]:
        return [0, *np.cumsum(self.text_lengths).tolist()]

    def _view(self, index: int) -> Round:
        nodes, rows = self.speculations.places(slice(index, index + 1))
        kept = tuple(np.flatnonzero(self.recorded.kept[nodes]).tolist())
        text = self.text[self._text_ends[index] : self._text_ends[index + 1]].tolist()
        return Round(
            self.speculations[index],
            self.verdicts.cut(nodes, rows),
            Decision(kept, int(self.recorded.rows[index]), int(self.recorded.emitted[index])),
            tuple(text),
            Timing(*self.timings[index].tolist()),
        )


class _EndToEnd(Mapping[str, np.ndarray]):
    """Columns of several speculations, each laid end to end when it is first asked for."""

    def __init__(self, parts: Sequence[Mapping[str, np.ndarray]], lengths: np.ndarray) -> None:
        """`lengths` (int64 [R]) are their numbers of nodes."""
        self._parts, self._lengths = parts, lengths
        self._made: dict[str, np.ndarray] = {}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        if not self._parts:
            return tuple(COLUMNS)
        common = set(self._parts[0])
        for part in self._parts:
            common.intersection_update(part)
        return tuple(name for name in self._parts[0] if name in common)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._joined(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _joined(self, name: str) -> np.ndarray:
        """Raises BadInput where one is not as long as it should be, or another's lists are wider."""
        column = COLUMNS.get(name)
        if not self._parts:
            assert column is not None
            return np.zeros(0 if column.width == 1 else (0, _EMPTY_WIDTH), column.dtype)
        arrays = [part[name] for part in self._parts]
        has = np.array([len(array) for array in arrays])
        of_nodes = (has[0] == self._lengths[0]) if column is None else column.per is Per.NODE
        needs = self._lengths if of_nodes else self._lengths + 1
        if (has != needs).any():
            wrong = int(np.flatnonzero(has != needs)[0])
            raise EvidenceError(f"Round {wrong} has {has[wrong]} values of {name}; {needs[wrong]} belong there.")
        if len({array.shape[1:] for array in arrays}) > 1:
            raise EvidenceError(f"The rounds have differently wide lists of {name}; a run has one width.")
        return np.concatenate(arrays)
