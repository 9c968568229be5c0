"""A trace to and from its tables, with the consistency checks that other modules rely on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np

from mars_viz.records import EMITTED, Policy, Verdicts
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.runfiles.columns import NODE_VERDICTS, ROW_VERDICTS, TIMING_FIELDS
from mars_viz.runfiles.parquet import Table, objects
from mars_viz.runfiles.speculations import SpeculationTables, contradiction
from mars_viz.runfiles.speculations import from_tables as speculations_of
from mars_viz.runfiles.speculations import to_tables as tables_of
from mars_viz.trace import Settled, Trace

ROUNDS = SpeculationTables("nodes", "rows", "rounds", "round")  # tables of a run's own speculations


def to_tables(trace: Trace) -> dict[str, Table]:
    """Return the columns of `nodes`, `rows` and `rounds`. Raises BadInput if an array has a wrong length."""
    tables, verdicts, recorded = tables_of(trace.speculations, ROUNDS), trace.verdicts, trace.recorded
    tables["nodes"] |= {name: getattr(verdicts, name) for name in NODE_VERDICTS}
    if verdicts.gap_from is not None:
        tables["nodes"]["gap_from"] = verdicts.gap_from
    tables["nodes"]["kept"] = recorded.kept
    tables["rows"] |= {name: getattr(verdicts, name) for name in ROW_VERDICTS}
    ends = np.cumsum(trace.text_lengths)[:-1]
    tables["rounds"] |= {
        "row": recorded.rows.astype(np.int32),
        "emitted": recorded.emitted,
        "token_ids": objects(each.tolist() for each in np.split(trace.text, ends)[: len(trace)]),
        **dict(zip(TIMING_FIELDS, trace.timings.T, strict=True)),
    }
    return tables


def from_tables(tables: Mapping[str, Table], settings: Settings, prompt_length: int) -> Trace:
    """Return the rounds. Raises BadInput if tables contradict each other or the rule's decisions at the dial value."""
    nodes, rows, rounds = (tables[name] for name in ("nodes", "rows", "rounds"))
    speculations = speculations_of(tables, ROUNDS)
    _check_emissions(rows)
    lengths = np.array([len(token_ids) for token_ids in rounds["token_ids"]], np.int64)
    starts = prompt_length + np.cumsum(lengths) - lengths
    if (speculations.starts != starts).any():
        raise contradiction("rounds", "has a round that does not start where the one before ended")
    trace = Trace.of_columns(
        speculations,
        Verdicts(
            **{name: nodes[name] for name in NODE_VERDICTS},
            **{name: rows[name] for name in ROW_VERDICTS},
            gap_from=nodes.get("gap_from"),
            policy=rule_named(settings.rule).policy if nodes["siblings"].any() else Policy.DRAFT_ORDER,
        ),
        Settled(nodes["kept"], rounds["row"].astype(np.int64), rounds["emitted"]),
        np.fromiter(chain.from_iterable(rounds["token_ids"]), np.int64),
        lengths,
        np.stack([rounds[name] for name in TIMING_FIELDS], axis=1),
    )
    if not trace.settled(settings.dial).same_as(trace.recorded):
        raise contradiction("rounds", "has a decision that its verdicts do not lead to")
    _check_text(trace)
    return trace


def _check_emissions(rows: Table) -> None:
    """Check that emitted tokens are among their row's candidates."""
    others = [rows[name][:, None] for name in EMITTED if name in rows]
    candidates = np.concatenate([rows["emissions"], *others], axis=1)
    for name in ("emit_below", "emit_above"):
        if not (candidates == rows[name][:, None]).any(axis=1).all():
            raise contradiction("rows", "emits a token that is not among the row's candidates")


def _check_text(trace: Trace) -> None:
    """Check that the text equals the decisions: whole blocks, except that the last may be cut to at least one token."""
    if not len(trace):
        return
    decided, lengths = trace.decided(trace.recorded), trace.text_lengths
    short = decided.lengths - lengths
    fits = (short[:-1] == 0).all() and short[-1] >= 0 and lengths[-1] > 0
    if not fits or not np.array_equal(trace.text, decided.tokens[: len(trace.text)]):
        raise contradiction("rounds", "has a round whose text is not what it decided")
