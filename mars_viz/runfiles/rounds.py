"""Rounds to and from columns, and the checks that let everyone else rely on them.

Knows how the tables hang together; knows no files. A table lists the rounds one after another: round r has the lines
offsets[r] to offsets[r + 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mars_viz.errors import BadInput
from mars_viz.records import Decision, Emission, Round, Speculation, Timing, Verdicts
from mars_viz.rules import settle
from mars_viz.runfiles.columns import NODE_FIELDS, ROW_FIELDS, SCALAR_FIELDS, TIMING_FIELDS, Column, Shape
from mars_viz.runfiles.parquet import Table, objects

_EMPTY_WIDTH = len(Emission)
"""Of the wide columns of a run without rounds."""


def to_tables(rounds: Sequence[Round]) -> dict[str, Table]:
    """The columns of the tables `nodes`, `rows` and `rounds`. Raises BadInput where an array's length is wrong."""
    lengths = np.array([len(round_.speculation) for round_ in rounds], np.int64)
    index = np.arange(len(rounds), dtype=np.int32)
    kept = [np.isin(np.arange(n), round_.decision.kept) for n, round_ in zip(lengths, rounds, strict=True)]
    nodes = {"round": np.repeat(index, lengths), "kept": np.concatenate([np.zeros(0, bool), *kept])}
    rows = {"round": np.repeat(index, lengths + 1)}
    return {
        "nodes": nodes | {name: _joined(rounds, name, column, lengths) for name, column in NODE_FIELDS.items()},
        "rows": rows | {name: _joined(rounds, name, column, lengths + 1) for name, column in ROW_FIELDS.items()},
        "rounds": {
            **_gathered((round_.speculation for round_ in rounds), SCALAR_FIELDS),
            "row": np.array([round_.decision.row for round_ in rounds], np.int32),
            "emitted": np.array([round_.decision.emitted for round_ in rounds], np.int32),
            "token_ids": objects(round_.token_ids for round_ in rounds),
            **_gathered((round_.timing for round_ in rounds), TIMING_FIELDS),
        },
    }


def _gathered(records: Any, described: dict[str, Column]) -> Table:
    listed = list(records)
    return {
        name: np.array([getattr(record, name) for record in listed], column.dtype) for name, column in described.items()
    }


def _joined(rounds: Sequence[Round], name: str, column: Column, lengths: np.ndarray) -> np.ndarray:
    owner = "verdicts" if name in Verdicts.__slots__ else "speculation"
    arrays: list[np.ndarray] = [getattr(getattr(round_, owner), name) for round_ in rounds]
    wrong = [i for i, array in enumerate(arrays) if len(array) != lengths[i]]
    if wrong:
        raise BadInput(
            f"Round {wrong[0]} has {len(arrays[wrong[0]])} values of {name}; {lengths[wrong[0]]} belong there."
        )
    if not arrays:
        return np.zeros((0, _EMPTY_WIDTH) if column.shape is Shape.WIDE else 0, column.dtype)
    if len({array.shape[1:] for array in arrays}) > 1:
        raise BadInput(f"The rounds have differently wide lists of {name}; a run has one width.")
    return np.concatenate(arrays)


def from_tables(tables: dict[str, Table], dial: float | None, prompt_length: int) -> tuple[Round, ...]:
    """The rounds. Raises BadInput where the tables contradict each other, or no walk at `dial` could have made them."""
    nodes, rows, rounds = tables["nodes"], tables["rows"], tables["rounds"]
    count = len(rounds["start"])
    node_offsets = _offsets("nodes", nodes["round"], count)
    row_offsets = _offsets("rows", rows["round"], count)
    if (np.diff(row_offsets) != np.diff(node_offsets) + 1).any():
        raise _contradiction("rows.parquet", "does not hold one row more than there are drafted tokens in every round")
    _check_nodes(nodes, node_offsets)
    _check_rows(rows)
    lengths = np.array([len(token_ids) for token_ids in rounds["token_ids"]], np.int64)
    starts = prompt_length + np.cumsum(lengths) - lengths
    if (rounds["start"] != starts).any():
        raise _contradiction("rounds.parquet", "has a round that does not start where the one before ended")
    made = []
    for r in range(count):
        node_lines, row_lines = slice(*node_offsets[r : r + 2]), slice(*row_offsets[r : r + 2])
        round_ = _round(rounds, r, nodes, node_lines, rows, row_lines)
        _check_round(round_, dial, is_last=r == count - 1)
        made.append(round_)
    return tuple(made)


def _round(rounds: Table, r: int, nodes: Table, node_lines: slice, rows: Table, row_lines: slice) -> Round:
    values: dict[str, Any] = {name: rounds[name][r].item() for name in SCALAR_FIELDS}
    values |= {name: nodes[name][node_lines] for name in NODE_FIELDS}
    values |= {name: rows[name][row_lines] for name in ROW_FIELDS}
    verdicts = Verdicts(**{name: values.pop(name) for name in Verdicts.__slots__})
    kept = tuple(np.flatnonzero(nodes["kept"][node_lines]).tolist())
    return Round(
        Speculation(**values),
        verdicts,
        Decision(kept, int(rounds["row"][r]), int(rounds["emitted"][r])),
        tuple(rounds["token_ids"][r]),
        Timing(**{name: rounds[name][r].item() for name in TIMING_FIELDS}),
    )


def _offsets(table: str, owners: np.ndarray, count: int) -> np.ndarray:
    if (np.diff(owners) < 0).any() or (owners >= count).any():
        raise _contradiction(f"{table}.parquet", "names rounds that do not exist or stand out of order")
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int64)


def _check_nodes(nodes: Table, offsets: np.ndarray) -> None:
    """Parents come before their children and are one level above them."""
    parents, depths = nodes["parents"], nodes["depths"]
    first = offsets[nodes["round"]]
    if (parents >= np.arange(len(parents)) - first).any():
        raise _contradiction("nodes.parquet", "has a token whose parent is not among the tokens before it")
    above = np.where(parents < 0, 0, depths[first + np.maximum(parents, 0)]) if len(parents) else depths
    if (depths != above + 1).any():
        raise _contradiction("nodes.parquet", "has a token that is not one level below its parent")
    if nodes["draft_ids"].shape != nodes["draft_logits"].shape:
        raise _contradiction("nodes.parquet", "has candidates of the drafter without a logit each")


def _check_rows(rows: Table) -> None:
    """The best tokens are sorted, at least two and led by a finite logit; what a row emits is among its candidates."""
    logits, candidates = rows["top_logits"], rows["emissions"]
    if rows["top_ids"].shape != logits.shape or logits.shape[1] < 2:
        raise _contradiction("rows.parquet", "lacks the ids and logits of the target's two best tokens")
    if not (logits[:, 1:] <= logits[:, :-1]).all() or not np.isfinite(logits[:, 0]).all():
        raise _contradiction("rows.parquet", "has best tokens that are not sorted by a finite logit")
    if any(rows[name].shape[1] != len(Emission) for name in ROW_FIELDS if name.startswith("emission")):
        raise _contradiction("rows.parquet", f"does not hold {len(Emission)} candidates for what each row emits")
    for name in ("emit_below", "emit_above"):
        if not (candidates == rows[name][:, None]).any(axis=1).all():
            raise _contradiction("rows.parquet", "emits a token that is not among the row's candidates")


def _check_round(round_: Round, dial: float | None, is_last: bool) -> None:
    """The decision is what the verdicts come to, and the text is what the decision comes to."""
    decision = round_.decision
    if decision != settle(round_.speculation, round_.verdicts, dial):
        raise _contradiction("rounds.parquet", "has a decision that its verdicts do not lead to")
    block = (*(int(round_.speculation.tokens[node]) for node in decision.kept), decision.emitted)
    length = len(round_.token_ids)
    if round_.token_ids != block[:length] or length == 0 or (length < len(block) and not is_last):
        raise _contradiction("rounds.parquet", "has a round whose text is not what it decided")


def _contradiction(file: str, what: str) -> BadInput:
    return BadInput(f"{file} {what}. Take a fresh copy, or record the run again.")
