"""Rounds to and from columns, and the checks that let everyone else rely on them.

Knows how the run's tables hang together; knows no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from mars_viz.blocks import Blocks, Settled
from mars_viz.records import Decision, Round, Speculation, Timing, Verdicts
from mars_viz.runfiles.columns import GAPS, NODE_VERDICTS, ROW_VERDICTS, TIMING_FIELDS
from mars_viz.runfiles.lazy_records import CUT, filled_in, unfilled
from mars_viz.runfiles.parquet import Table, objects
from mars_viz.runfiles.speculations import Lines, SpeculationTables, contradiction, gathered, joined, lines_of, together
from mars_viz.runfiles.speculations import from_tables as speculations_of
from mars_viz.runfiles.speculations import to_tables as tables_of

ROUNDS = SpeculationTables("nodes", "rows", "rounds", "round")
"""Where a run's own speculations are stored."""


def to_tables(rounds: Sequence[Round]) -> dict[str, Table]:
    """The columns of the tables `nodes`, `rows` and `rounds`. Raises BadInput where an array's length is wrong."""
    speculations, verdicts = [r.speculation for r in rounds], [r.verdicts for r in rounds]
    lengths = np.array([len(speculation) for speculation in speculations], np.int64)
    kept = [np.isin(np.arange(n), round_.decision.kept) for n, round_ in zip(lengths, rounds, strict=True)]
    tables = tables_of(speculations, ROUNDS)
    tables["nodes"] |= joined(verdicts, NODE_VERDICTS, lengths, ROUNDS)
    if any(found.gap_from is not None for found in verdicts):
        tables["nodes"]["gap_from"] = joined(verdicts, {"gaps": GAPS["gap_from"]}, lengths, ROUNDS)["gaps"]
    tables["nodes"] |= {"kept": np.concatenate([np.zeros(0, bool), *kept])}
    tables["rows"] |= joined(verdicts, ROW_VERDICTS, lengths + 1, ROUNDS)
    tables["rounds"] |= {
        "row": np.array([round_.decision.row for round_ in rounds], np.int32),
        "emitted": np.array([round_.decision.emitted for round_ in rounds], np.int32),
        "token_ids": objects(round_.token_ids for round_ in rounds),
        **gathered((round_.timing for round_ in rounds), TIMING_FIELDS),
    }
    return tables


def from_tables(
    tables: Mapping[str, Table], dial: float | None, prompt_length: int
) -> tuple[tuple[Round, ...], Blocks]:
    """The rounds, and the same end to end.

    Raises BadInput where the tables contradict each other, or no walk at `dial` could have made them.
    """
    rounds = tables["rounds"]
    lines = lines_of(tables, ROUNDS)
    _check_emissions(tables["rows"])
    lengths = np.array([len(token_ids) for token_ids in rounds["token_ids"]], np.int64)
    starts = prompt_length + np.cumsum(lengths) - lengths
    if (rounds["start"] != starts).any():
        raise contradiction("rounds", "has a round that does not start where the one before ended")
    blocks = _blocks(tables, lines)
    if not blocks.settled(dial).same_as(blocks.recorded):
        raise contradiction("rounds", "has a decision that its verdicts do not lead to")
    _check_text(rounds["token_ids"], lengths, blocks)
    return _rounds(tables, speculations_of(tables, ROUNDS, lines), lines), blocks


def _blocks(tables: Mapping[str, Table], lines: Lines) -> Blocks:
    nodes, rows, rounds = tables["nodes"], tables["rows"], tables["rounds"]
    return Blocks(
        lengths=np.diff(lines.nodes),
        tokens=nodes["tokens"],
        parents=nodes["parents"],
        best=rows["top_logits"][:, :2],
        second=rows["top_ids"][:, 1],
        verdicts=Verdicts(
            **{name: nodes[name] for name in NODE_VERDICTS},
            **{name: rows[name] for name in ROW_VERDICTS},
            gap_from=nodes.get("gap_from"),
        ),
        recorded=Settled(nodes["kept"], rounds["row"].astype(np.int64), rounds["emitted"]),
        speculation=together(tables, ROUNDS) if len(rounds["row"]) else None,
    )


class _StoredRound(Round):
    """A round in its tables."""

    __slots__ = (CUT,)
    __getattr__ = filled_in([field.name for field in fields(Round)])


def _rounds(tables: Mapping[str, Table], speculations: Sequence[Speculation], lines: Lines) -> tuple[Round, ...]:
    nodes, rows, rounds = tables["nodes"], tables["rows"], tables["rounds"]
    gaps, text = nodes.get("gap_from"), rounds["token_ids"]
    of_nodes, of_rows = lines.nodes.tolist(), lines.rows.tolist()

    def cut(r: int, name: str) -> Any:
        its_nodes, its_rows = slice(*of_nodes[r : r + 2]), slice(*of_rows[r : r + 2])
        if name == "speculation":
            return speculations[r]
        if name == "token_ids":
            return tuple(text[r])
        if name == "verdicts":
            values = {name: nodes[name][its_nodes] for name in NODE_VERDICTS}
            values |= {name: rows[name][its_rows] for name in ROW_VERDICTS}
            return Verdicts(**values, gap_from=None if gaps is None else _any(gaps[its_nodes]))
        if name == "decision":
            kept = tuple(np.flatnonzero(nodes["kept"][its_nodes]).tolist())
            return Decision(kept, int(rounds["row"][r]), int(rounds["emitted"][r]))
        return Timing(**{name: float(rounds[name][r]) for name in TIMING_FIELDS})

    return tuple(unfilled(_StoredRound, partial(cut, r)) for r in range(len(text)))


def _any(gaps: np.ndarray) -> np.ndarray | None:
    """None where no node has a gap."""
    return None if np.isnan(gaps).all() else gaps


def _check_emissions(rows: Table) -> None:
    """What a row emits is among its candidates."""
    for name in ("emit_below", "emit_above"):
        if not (rows["emissions"] == rows[name][:, None]).any(axis=1).all():
            raise contradiction("rows", "emits a token that is not among the row's candidates")


def _check_text(token_ids: np.ndarray, lengths: np.ndarray, blocks: Blocks) -> None:
    """The text is what the decisions come to: of every block all of it, of the last one at least a token."""
    if not len(blocks):
        return
    written = np.fromiter(chain.from_iterable(token_ids), np.int64)
    decided = blocks.decided()
    short = decided.lengths - lengths
    fits = (short[:-1] == 0).all() and short[-1] >= 0 and lengths[-1] > 0
    if not fits or not np.array_equal(written, decided.tokens[: len(written)]):
        raise contradiction("rounds", "has a round whose text is not what it decided")
