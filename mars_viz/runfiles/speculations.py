"""Speculations to and from tables, with the consistency checks that other modules rely on.

A table contains the rows of all owners (rounds or map answers), one owner after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mars_viz.errors import BadInput, RunFileError
from mars_viz.records import COLUMNS, Emission
from mars_viz.runfiles.columns import EVIDENCE_TABLES, NODE_FIELDS, ROW_FIELDS, TABLES
from mars_viz.runfiles.parquet import Table
from mars_viz.trace import Speculations

_OTHERS = frozenset().union(*(TABLES[name] for name in EVIDENCE_TABLES)) - COLUMNS.keys()
"""Columns of evidence tables that are not evidence."""


@dataclass(frozen=True, slots=True)
class SpeculationTables:
    """The tables that store speculations."""

    nodes: str  # table of drafted tokens
    rows: str  # table of target distributions
    owners: str  # table with a row per speculation
    owner: str  # kind of owner, such as 'round': the column of `nodes` and `rows` with the owner's index


def to_tables(speculations: Speculations, place: SpeculationTables) -> dict[str, Table]:
    """Return the columns of the three tables. Raises BadInput if an array has a wrong length."""
    lengths, index = speculations.lengths, np.arange(len(speculations), dtype=np.int32)
    names = [name for name in COLUMNS if name in speculations.columns]
    extras = [name for name in speculations.columns if name not in COLUMNS]
    columns = {name: speculations.columns[name] for name in (*names, *extras)}
    nodes = {name: column for name, column in columns.items() if len(column) == speculations.total}
    rows = {name: column for name, column in columns.items() if name not in nodes}
    if not len(speculations):  # all columns have length 0
        nodes, rows = ({name: columns[name] for name in fields} for fields in (NODE_FIELDS, ROW_FIELDS))
    return {
        place.nodes: {place.owner: np.repeat(index, lengths)} | nodes,
        place.rows: {place.owner: np.repeat(index, lengths + 1)} | rows,
        place.owners: {
            "start": speculations.starts,
            "temperature": speculations.temperatures,
            "sampled": speculations.sampled,
        },
    }


def from_tables(tables: Mapping[str, Table], place: SpeculationTables) -> Speculations:
    """Return the speculations in order. Raises BadInput if tables are inconsistent or lack columns for rules."""
    nodes, rows, owners = (tables[name] for name in (place.nodes, place.rows, place.owners))
    count = len(owners["start"])
    lengths = _lengths(tables, place.nodes, place, count)
    if (_lengths(tables, place.rows, place, count) != lengths + 1).any():
        raise contradiction(
            place.rows, f"does not hold one row more than there are drafted tokens in every {place.owner}"
        )
    _check_nodes(nodes, np.cumsum(lengths) - lengths, place, rows["top_ids"].shape[1])
    _check_rows(rows, place)
    evidence = {name: column for table in (nodes, rows) for name, column in table.items() if name not in _OTHERS}
    hottest = float(owners["temperature"].max(initial=0))
    lacking = next((name for name in COLUMNS if COLUMNS[name].required(hottest) and name not in evidence), None)
    if lacking is not None:
        table = place.nodes if lacking in NODE_FIELDS else place.rows
        raise contradiction(table, f"lacks the column {lacking}, by which rules decide above temperature 0")
    return Speculations(lengths, owners["start"], owners["temperature"], owners["sampled"], evidence)


def contradiction(table: str, what: str) -> BadInput:
    """Return the error for an inconsistent table."""
    return RunFileError(f"{table}.parquet {what}. Take a fresh copy, or record the run again.")


def _lengths(tables: Mapping[str, Table], table: str, place: SpeculationTables, count: int) -> np.ndarray:
    """Return int64 [owners]; number of rows of this table per owner."""
    owners = tables[table][place.owner]
    if (np.diff(owners) < 0).any() or (owners >= count).any():
        raise contradiction(table, f"names {place.owner}s that do not exist or stand out of order")
    return np.bincount(owners, minlength=count)


def _check_nodes(nodes: Table, firsts: np.ndarray, place: SpeculationTables, width: int) -> None:
    """Check that parents precede their children, one level above. `width` is the number of listed target tokens."""
    parents, depths = nodes["parents"], nodes["depths"]
    first = firsts[nodes[place.owner]]
    if (parents >= np.arange(len(parents)) - first).any():
        raise contradiction(place.nodes, "has a token whose parent is not among the tokens before it")
    above = np.where(parents < 0, 0, depths[first + np.maximum(parents, 0)]) if len(parents) else depths
    if (depths != above + 1).any():
        raise contradiction(place.nodes, "has a token that is not one level below its parent")
    _check_trees(nodes, first, place)
    listed = [nodes[name].shape if name in nodes else None for name in ("draft_ids", "draft_logits")]
    if listed[0] != listed[1]:
        raise contradiction(place.nodes, "has candidates of the drafter without a logit each")
    if "best_q" in nodes and nodes["best_q"].shape[1] != width:
        raise contradiction(place.nodes, "has not one probability of the drafter for each of the target's best tokens")


def _check_trees(nodes: Table, first: np.ndarray, place: SpeculationTables) -> None:
    """Check the numbering of siblings, and that nodes within any budget form a tree. `first` [N] is the index of the
    first token of each node's draft."""
    parents, siblings, owners = nodes["parents"], nodes["siblings"], nodes[place.owner]
    order = np.lexsort((parents, owners))  # stable, so siblings stay in their order
    begins = np.append(True, (np.diff(parents[order]) != 0) | (np.diff(owners[order]) != 0))[: len(order)]
    run = np.arange(len(order)) - np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    if (siblings[order] != run).any():
        raise contradiction(place.nodes, "does not count the tokens after one another's place in their order")
    if "budgets" not in nodes:
        if siblings.any():
            raise contradiction(place.nodes, "holds trees, but not which smaller trees they hold")
        return
    budgets = nodes["budgets"]
    by_budget = np.lexsort((budgets, owners))
    ranks = np.arange(len(budgets)) - first[by_budget] + 1
    above = np.where(parents < 0, 0, budgets[first + np.maximum(parents, 0)]) if len(parents) else budgets
    within = budgets[order][1:] > budgets[order][:-1]
    if (budgets[by_budget] != ranks).any() or (budgets <= above).any() or not (within | begins[1:]).all():
        raise contradiction(place.nodes, "has tokens that no tree of fewer nodes would leave out in such an order")


def _check_rows(rows: Table, place: SpeculationTables) -> None:
    """Check that at least two best tokens are sorted by finite logits, and the number of emission candidates."""
    logits = rows["top_logits"]
    if rows["top_ids"].shape != logits.shape or logits.shape[1] < 2:
        raise contradiction(place.rows, "lacks the ids and logits of the target's two best tokens")
    if not (logits[:, 1:] <= logits[:, :-1]).all() or not np.isfinite(logits[:, 0]).all():
        raise contradiction(place.rows, "has best tokens that are not sorted by a finite logit")
    if any(
        rows[name].shape[1] != len(Emission) for name in COLUMNS.keys() & rows.keys() if name.startswith("emission")
    ):
        raise contradiction(place.rows, f"does not hold {len(Emission)} candidates for what each row emits")
