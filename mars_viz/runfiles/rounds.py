"""Rounds to and from columns, and the checks that let everyone else rely on them.

Knows how the run's tables hang together; knows no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mars_viz.records import Decision, Round, Speculation, Timing, Verdicts
from mars_viz.rules import settle
from mars_viz.runfiles.columns import NODE_VERDICTS, ROW_VERDICTS, TIMING_FIELDS
from mars_viz.runfiles.parquet import Table, objects
from mars_viz.runfiles.speculations import Lines, Place, contradiction, gathered, joined, lines_of
from mars_viz.runfiles.speculations import from_tables as speculations_of
from mars_viz.runfiles.speculations import to_tables as tables_of

ROUNDS = Place("nodes", "rows", "rounds", "round")
"""Where a run's own speculations are stored."""


def to_tables(rounds: Sequence[Round]) -> dict[str, Table]:
    """The columns of the tables `nodes`, `rows` and `rounds`. Raises BadInput where an array's length is wrong."""
    speculations, verdicts = [r.speculation for r in rounds], [r.verdicts for r in rounds]
    lengths = np.array([len(speculation) for speculation in speculations], np.int64)
    kept = [np.isin(np.arange(n), round_.decision.kept) for n, round_ in zip(lengths, rounds, strict=True)]
    tables = tables_of(speculations, ROUNDS)
    tables["nodes"] |= joined(verdicts, NODE_VERDICTS, lengths, ROUNDS)
    tables["nodes"] |= {"kept": np.concatenate([np.zeros(0, bool), *kept])}
    tables["rows"] |= joined(verdicts, ROW_VERDICTS, lengths + 1, ROUNDS)
    tables["rounds"] |= {
        "row": np.array([round_.decision.row for round_ in rounds], np.int32),
        "emitted": np.array([round_.decision.emitted for round_ in rounds], np.int32),
        "token_ids": objects(round_.token_ids for round_ in rounds),
        **gathered((round_.timing for round_ in rounds), TIMING_FIELDS),
    }
    return tables


def from_tables(tables: Mapping[str, Table], dial: float | None, prompt_length: int) -> tuple[Round, ...]:
    """The rounds. Raises BadInput where the tables contradict each other, or no walk at `dial` could have made them."""
    rounds = tables["rounds"]
    lines = lines_of(tables, ROUNDS)
    _check_emissions(tables["rows"])
    lengths = np.array([len(token_ids) for token_ids in rounds["token_ids"]], np.int64)
    starts = prompt_length + np.cumsum(lengths) - lengths
    if (rounds["start"] != starts).any():
        raise contradiction("rounds", "has a round that does not start where the one before ended")
    speculations = speculations_of(tables, ROUNDS, lines)
    made = tuple(_rounds(tables, speculations, lines))
    for round_ in made:
        _check_round(round_, dial, is_last=round_ is made[-1])
    return made


def _rounds(tables: Mapping[str, Table], speculations: Sequence[Speculation], lines: Lines) -> Iterator[Round]:
    nodes, rows, rounds = tables["nodes"], tables["rows"], tables["rounds"]
    names = (*NODE_VERDICTS, *ROW_VERDICTS)
    of_nodes, of_rows = [nodes[name] for name in NODE_VERDICTS], [rows[name] for name in ROW_VERDICTS]
    kept = nodes["kept"].tolist()
    stops = zip(rounds["row"].tolist(), rounds["emitted"].tolist(), rounds["token_ids"].tolist(), strict=True)
    timings = zip(*(rounds[name].tolist() for name in TIMING_FIELDS), strict=True)
    for r, (speculation, (row, emitted, token_ids), seconds) in enumerate(
        zip(speculations, stops, timings, strict=True)
    ):
        its_nodes, its_rows = lines.of(r)
        values = [column[its_nodes] for column in of_nodes] + [column[its_rows] for column in of_rows]
        yield Round(
            speculation,
            Verdicts(**dict(zip(names, values, strict=True))),
            Decision(tuple(node for node, keeps in enumerate(kept[its_nodes]) if keeps), row, emitted),
            tuple(token_ids),
            Timing(**dict(zip(TIMING_FIELDS, seconds, strict=True))),
        )


def _check_emissions(rows: Table) -> None:
    """What a row emits is among its candidates."""
    for name in ("emit_below", "emit_above"):
        if not (rows["emissions"] == rows[name][:, None]).any(axis=1).all():
            raise contradiction("rows", "emits a token that is not among the row's candidates")


def _check_round(round_: Round, dial: float | None, is_last: bool) -> None:
    """The decision is what the verdicts come to, and the text is what the decision comes to."""
    decision = round_.decision
    if decision != settle(round_.speculation, round_.verdicts, dial):
        raise contradiction("rounds", "has a decision that its verdicts do not lead to")
    tokens = round_.speculation.tokens.tolist()
    block = (*(tokens[node] for node in decision.kept), decision.emitted)
    length = len(round_.token_ids)
    if round_.token_ids != block[:length] or length == 0 or (length < len(block) and not is_last):
        raise contradiction("rounds", "has a round whose text is not what it decided")
