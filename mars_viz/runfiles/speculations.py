"""Speculations to and from columns, and the checks that let everyone else rely on them.

Knows how the lines of two tables make a speculation; knows neither verdicts nor whose speculations they are. A table
lists its owners one after another: owner i has the lines offsets[i] to offsets[i + 1].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mars_viz.errors import BadInput, RunFileError
from mars_viz.records import Emission, Speculation
from mars_viz.runfiles.columns import NODE_FIELDS, ROW_FIELDS, SCALAR_FIELDS, Column, Shape
from mars_viz.runfiles.lazy_records import CUT, filled_in, unfilled
from mars_viz.runfiles.parquet import Table

_EMPTY_WIDTH = len(Emission)
"""Of the wide columns where there are no speculations."""


@dataclass(frozen=True, slots=True)
class SpeculationTables:
    """Where speculations are stored."""

    nodes: str
    """The table of their drafted tokens."""
    rows: str
    """The table of the target's laws."""
    owners: str
    """The table with a line for each of them."""
    owner: str
    """What each belongs to, 'round': the column of `nodes` and `rows` that says to which."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Which lines of the two tables are whose."""

    nodes: np.ndarray
    """int64 [owners + 1]; where each one's drafted tokens begin, and where the last one's end."""
    rows: np.ndarray
    """int64 [owners + 1]; likewise for the target's laws."""


def to_tables(speculations: Sequence[Speculation], place: SpeculationTables) -> dict[str, Table]:
    """Their columns in the three tables. Raises BadInput where an array's length is wrong."""
    lengths = np.array([len(speculation) for speculation in speculations], np.int64)
    index = np.arange(len(speculations), dtype=np.int32)
    return {
        place.nodes: {place.owner: np.repeat(index, lengths)} | joined(speculations, NODE_FIELDS, lengths, place),
        place.rows: {place.owner: np.repeat(index, lengths + 1)} | joined(speculations, ROW_FIELDS, lengths + 1, place),
        place.owners: gathered(speculations, SCALAR_FIELDS),
    }


def gathered(records: Iterable[Any], described: Mapping[str, Column]) -> Table:
    """Single values of the records, a line each."""
    listed = list(records)
    return {
        name: np.array([getattr(record, name) for record in listed], column.dtype) for name, column in described.items()
    }


def joined(
    records: Sequence[Any], described: Mapping[str, Column], lengths: np.ndarray, place: SpeculationTables
) -> Table:
    """Arrays of the records one after another. Raises BadInput where one is not as long as `lengths` says."""
    return {name: _joined(records, name, column, lengths, place) for name, column in described.items()}


def _joined(
    records: Sequence[Any], name: str, column: Column, lengths: np.ndarray, place: SpeculationTables
) -> np.ndarray:
    arrays: list[np.ndarray] = [getattr(record, name) for record in records]
    wrong = [i for i, array in enumerate(arrays) if len(array) != lengths[i]]
    if wrong:
        has, needs = len(arrays[wrong[0]]), lengths[wrong[0]]
        raise RunFileError(f"{place.owner.capitalize()} {wrong[0]} has {has} values of {name}; {needs} belong there.")
    if not arrays:
        return np.zeros((0, _EMPTY_WIDTH) if column.shape is Shape.WIDE else 0, column.dtype)
    if len({array.shape[1:] for array in arrays}) > 1:
        raise RunFileError(f"The {place.owner}s have differently wide lists of {name}; a run has one width.")
    return np.concatenate(arrays)


def lines_of(tables: Mapping[str, Table], place: SpeculationTables) -> Lines:
    """Who owns which lines. Raises BadInput where the tables contradict each other or make no speculations."""
    count = len(tables[place.owners]["start"])
    lines = Lines(_offsets(tables, place.nodes, place, count), _offsets(tables, place.rows, place, count))
    if (np.diff(lines.rows) != np.diff(lines.nodes) + 1).any():
        raise contradiction(
            place.rows, f"does not hold one row more than there are drafted tokens in every {place.owner}"
        )
    _check_nodes(tables[place.nodes], lines.nodes, place, tables[place.rows]["top_ids"].shape[1])
    _check_rows(tables[place.rows], place)
    return lines


_FIELDS = frozenset(SCALAR_FIELDS) | NODE_FIELDS.keys() | ROW_FIELDS.keys()


class _StoredSpeculation(Speculation):
    """A speculation in its tables."""

    __slots__ = (CUT,)
    __getattr__ = filled_in(_FIELDS)


def from_tables(tables: Mapping[str, Table], place: SpeculationTables, lines: Lines) -> list[Speculation]:
    """The speculations of all owners, in order."""
    nodes, rows, owners = (tables[name] for name in (place.nodes, place.rows, place.owners))
    single = {name: owners[name].tolist() for name in SCALAR_FIELDS}
    of_nodes, of_rows = lines.nodes.tolist(), lines.rows.tolist()
    nodes = _unknown(nodes, rows) | nodes

    def cut(i: int, name: str) -> Any:
        if name in single:
            return single[name][i]
        table, begins = (nodes, of_nodes) if name in NODE_FIELDS else (rows, of_rows)
        return table[name][begins[i] : begins[i + 1]]

    return [unfilled(_StoredSpeculation, partial(cut, i)) for i in range(len(owners["start"]))]


def together(tables: Mapping[str, Table], place: SpeculationTables) -> Speculation:
    """Those of all owners as one, whose arrays are the columns as they stand: parents count within their owner.

    Its single values, such as where it starts, are the first owner's; there has to be one.
    """
    nodes, rows, owners = (tables[name] for name in (place.nodes, place.rows, place.owners))
    nodes = _unknown(nodes, rows) | nodes

    def whole(name: str) -> Any:
        return owners[name].tolist()[0] if name in SCALAR_FIELDS else (nodes if name in NODE_FIELDS else rows)[name]

    return unfilled(_StoredSpeculation, whole)


def _unknown(nodes: Table, rows: Table) -> Table:
    """The optional columns of NODE_FIELDS where they say nothing; their lists are as long as the target's."""
    shape = len(nodes["tokens"]), rows["top_ids"].shape[1]
    missing = (name for name, column in NODE_FIELDS.items() if column.optional)
    return {name: np.broadcast_to(NODE_FIELDS[name].dtype.type(np.nan), shape) for name in missing}


def contradiction(table: str, what: str) -> BadInput:
    """The error for a table that does not fit."""
    return RunFileError(f"{table}.parquet {what}. Take a fresh copy, or record the run again.")


def _offsets(tables: Mapping[str, Table], table: str, place: SpeculationTables, count: int) -> np.ndarray:
    owners = tables[table][place.owner]
    if (np.diff(owners) < 0).any() or (owners >= count).any():
        raise contradiction(table, f"names {place.owner}s that do not exist or stand out of order")
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int64)


def _check_nodes(nodes: Table, offsets: np.ndarray, place: SpeculationTables, width: int) -> None:
    """Parents come before their children and are one level above them; `width` tokens of the target's are listed."""
    parents, depths = nodes["parents"], nodes["depths"]
    first = offsets[nodes[place.owner]]
    if (parents >= np.arange(len(parents)) - first).any():
        raise contradiction(place.nodes, "has a token whose parent is not among the tokens before it")
    above = np.where(parents < 0, 0, depths[first + np.maximum(parents, 0)]) if len(parents) else depths
    if (depths != above + 1).any():
        raise contradiction(place.nodes, "has a token that is not one level below its parent")
    if nodes["draft_ids"].shape != nodes["draft_logits"].shape:
        raise contradiction(place.nodes, "has candidates of the drafter without a logit each")
    if "best_q" in nodes and nodes["best_q"].shape[1] != width:
        raise contradiction(place.nodes, "has not one probability of the drafter for each of the target's best tokens")


def _check_rows(rows: Table, place: SpeculationTables) -> None:
    """The best tokens are sorted, at least two and led by a finite logit; a row has its candidates for emission."""
    logits = rows["top_logits"]
    if rows["top_ids"].shape != logits.shape or logits.shape[1] < 2:
        raise contradiction(place.rows, "lacks the ids and logits of the target's two best tokens")
    if not (logits[:, 1:] <= logits[:, :-1]).all() or not np.isfinite(logits[:, 0]).all():
        raise contradiction(place.rows, "has best tokens that are not sorted by a finite logit")
    if any(rows[name].shape[1] != len(Emission) for name in ROW_FIELDS if name.startswith("emission")):
        raise contradiction(place.rows, f"does not hold {len(Emission)} candidates for what each row emits")
