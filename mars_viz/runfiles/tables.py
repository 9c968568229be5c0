"""A run's trace and dial map to and from tables, with the consistency checks that other modules rely on.

A table contains the rows of all owners (rounds or map answers), one owner after another. The tables of a dial map
contain the answer at each prefix; its segments are computed on first access, not when a run is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from itertools import chain

import numpy as np

from mars_viz.dialmap import DialMap
from mars_viz.errors import RunFileError
from mars_viz.records import COLUMNS, EMITTED, Emission, Policy, Timing, Verdicts
from mars_viz.replay import answers_of, shortened
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runfiles.manifest import MapFacts
from mars_viz.runfiles.parquet import (
    EVIDENCE_TABLES,
    MAX_VALUES,
    NODE_FIELDS,
    NODE_VERDICTS,
    ROW_FIELDS,
    ROW_VERDICTS,
    TABLES,
    TIMING_FIELDS,
    Table,
    objects,
)
from mars_viz.trace import Settled, Speculations, Trace
from mars_viz.walk import Answer

_OTHERS = frozenset().union(*(TABLES[name] for name in EVIDENCE_TABLES)) - COLUMNS.keys()
"""Columns of evidence tables that are not evidence."""


@dataclass(frozen=True, slots=True)
class SpeculationTables:
    """The tables that store speculations."""

    nodes: str  # table of drafted tokens
    rows: str  # table of target distributions
    owners: str  # table with a row per speculation
    owner: str  # kind of owner, such as 'round': the column of `nodes` and `rows` with the owner's index


ROUNDS = SpeculationTables("nodes", "rows", "rounds", "round")  # tables of a run's own speculations
ANSWERS = SpeculationTables("map_nodes", "map_rows", "map_answers", "answer")  # tables of a map's speculations


def _speculation_tables(speculations: Speculations, place: SpeculationTables) -> dict[str, Table]:
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


def _speculations(tables: Mapping[str, Table], place: SpeculationTables) -> Speculations:
    """Return the speculations in order. Raises BadInput if tables are inconsistent or lack columns for rules."""
    nodes, rows, owners = (tables[name] for name in (place.nodes, place.rows, place.owners))
    count = len(owners["start"])
    lengths = _lengths(tables, place.nodes, place, count)
    one_more = (_lengths(tables, place.rows, place, count) == lengths + 1).all()
    require(place.rows, one_more, f"does not hold one row more than there are drafted tokens in every {place.owner}")
    _check_nodes(nodes, np.cumsum(lengths) - lengths, place, rows["top_ids"].shape[1])
    logits = rows["top_logits"]
    two = rows["top_ids"].shape == logits.shape and logits.shape[1] >= 2
    require(place.rows, two, "lacks the ids and logits of the target's two best tokens")
    falling = (logits[:, 1:] <= logits[:, :-1]).all() and np.isfinite(logits[:, 0]).all()
    require(place.rows, falling, "has best tokens that are not sorted by a finite logit")
    widths = {rows[name].shape[1] for name in COLUMNS.keys() & rows.keys() if name.startswith("emission")}
    require(place.rows, widths <= {len(Emission)}, f"does not hold {len(Emission)} candidates for what each row emits")
    evidence = {name: column for table in (nodes, rows) for name, column in table.items() if name not in _OTHERS}
    hottest = float(owners["temperature"].max(initial=0))
    lacking = next((name for name in COLUMNS if COLUMNS[name].required(hottest) and name not in evidence), None)
    table = place.nodes if lacking in NODE_FIELDS else place.rows
    require(table, lacking is None, f"lacks the column {lacking}, by which rules decide above temperature 0")
    return Speculations(lengths, owners["start"], owners["temperature"], owners["sampled"], evidence)


def require(table: str, holds: object, otherwise: str) -> None:
    """Raise BadInput with the words for an inconsistent table if `holds` is false."""
    if not holds:
        raise RunFileError(f"{table}.parquet {otherwise}. Take a fresh copy, or record the run again.")


def _lengths(tables: Mapping[str, Table], table: str, place: SpeculationTables, count: int) -> np.ndarray:
    """Return int64 [owners]; number of rows of this table per owner."""
    owners = tables[table][place.owner]
    ordered = (np.diff(owners) >= 0).all() and (owners < count).all()
    require(table, ordered, f"names {place.owner}s that do not exist or stand out of order")
    return np.bincount(owners, minlength=count)


def _check_nodes(nodes: Table, firsts: np.ndarray, place: SpeculationTables, width: int) -> None:
    """Check that parents precede their children, one level above. `width` is the number of listed target tokens."""
    parents, depths = nodes["parents"], nodes["depths"]
    first = firsts[nodes[place.owner]]
    before = (parents < np.arange(len(parents)) - first).all()
    require(place.nodes, before, "has a token whose parent is not among the tokens before it")
    above = np.where(parents < 0, 0, depths[first + np.maximum(parents, 0)]) if len(parents) else depths
    require(place.nodes, (depths == above + 1).all(), "has a token that is not one level below its parent")
    _check_trees(nodes, first, place)
    listed = [nodes[name].shape if name in nodes else None for name in ("draft_ids", "draft_logits")]
    require(place.nodes, listed[0] == listed[1], "has candidates of the drafter without a logit each")
    wide = "best_q" not in nodes or nodes["best_q"].shape[1] == width
    require(place.nodes, wide, "has not one probability of the drafter for each of the target's best tokens")


def _check_trees(nodes: Table, first: np.ndarray, place: SpeculationTables) -> None:
    """Check the numbering of siblings, and that nodes within any budget form a tree. `first` [N] is the index of the
    first token of each node's draft."""
    parents, siblings, owners = nodes["parents"], nodes["siblings"], nodes[place.owner]
    order = np.lexsort((parents, owners))  # stable, so siblings stay in their order
    begins = np.append(True, (np.diff(parents[order]) != 0) | (np.diff(owners[order]) != 0))[: len(order)]
    run = np.arange(len(order)) - np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    in_order = (siblings[order] == run).all()
    require(place.nodes, in_order, "does not count the tokens after one another's place in their order")
    if "budgets" not in nodes:
        require(place.nodes, not siblings.any(), "holds trees, but not which smaller trees they hold")
        return
    budgets = nodes["budgets"]
    by_budget = np.lexsort((budgets, owners))
    ranks = np.arange(len(budgets)) - first[by_budget] + 1
    above = np.where(parents < 0, 0, budgets[first + np.maximum(parents, 0)]) if len(parents) else budgets
    within = budgets[order][1:] > budgets[order][:-1]
    nested = (budgets[by_budget] == ranks).all() and (budgets > above).all() and (within | begins[1:]).all()
    require(place.nodes, nested, "has tokens that no tree of fewer nodes would leave out in such an order")


def trace_tables(trace: Trace) -> dict[str, Table]:
    """Return the columns of `nodes`, `rows` and `rounds`. Raises BadInput if an array has a wrong length."""
    tables, verdicts, recorded = _speculation_tables(trace.speculations, ROUNDS), trace.verdicts, trace.recorded
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


def trace_of(tables: Mapping[str, Table], settings: Settings, prompt_length: int) -> Trace:
    """Return the rounds. Raises BadInput if tables contradict each other or the rule's decisions at the dial value."""
    nodes, rows, rounds = (tables[name] for name in ("nodes", "rows", "rounds"))
    speculations = _speculations(tables, ROUNDS)
    candidates = np.concatenate([rows["emissions"], *(rows[name][:, None] for name in EMITTED if name in rows)], axis=1)
    for name in ("emit_below", "emit_above"):
        among = (candidates == rows[name][:, None]).any(axis=1).all()
        require("rows", among, "emits a token that is not among the row's candidates")
    lengths = np.array([len(token_ids) for token_ids in rounds["token_ids"]], np.int64)
    starts = prompt_length + np.cumsum(lengths) - lengths
    follow = (speculations.starts == starts).all()
    require("rounds", follow, "has a round that does not start where the one before ended")
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
    decided_so = trace.settled(settings.dial).same_as(trace.recorded)
    require("rounds", decided_so, "has a decision that its verdicts do not lead to")
    if len(trace):  # blocks are whole, except that the last may be cut to at least one token
        decided = trace.decided(trace.recorded)
        short = decided.lengths - lengths
        fits = (short[:-1] == 0).all() and short[-1] >= 0 and lengths[-1] > 0
        same = fits and np.array_equal(trace.text, decided.tokens[: len(trace.text)])
        require("rounds", same, "has a round whose text is not the one that it decided")
    return trace


def map_tables(dial_map: DialMap) -> dict[str, Table]:
    """Return the columns of the map's tables, sorted by prefix. Raises BadInput if an array has a wrong length."""
    prefixes = sorted(dial_map.answers)
    answers = [dial_map.answers[prefix] for prefix in prefixes]
    prompt = len(dial_map.frame.prompt_ids)
    tables = _speculation_tables(Speculations.of([answer.speculation for answer in answers]), ANSWERS)
    timings = np.array([astuple(answer.timing) for answer in answers], np.float64).reshape(-1, len(TIMING_FIELDS))
    tables["map_answers"]["prefix"] = objects(prefix[prompt:] for prefix in prefixes)
    tables["map_answers"] |= zip(TIMING_FIELDS, timings.T, strict=True)
    return tables


def map_of(tables: Mapping[str, Table], run: Run, facts: MapFacts) -> DialMap:
    """Return the map of this run. Raises BadInput if the tables contradict each other, the manifest or the run."""
    table, prompt = tables["map_answers"], run.prompt_ids
    speculations = _speculations(tables, ANSWERS)
    few = len(prompt) * len(table["prefix"]) <= MAX_VALUES
    require("map_answers", few, "holds far more prefixes than a map of so long a prompt")
    prefixes = [prompt + tuple(prefix) for prefix in table["prefix"]]
    follow = (table["start"] == np.array([len(prefix) for prefix in prefixes], np.int64)).all()
    require("map_answers", follow, "has an answer that does not start where its prefix ends")
    require("map_answers", len(set(prefixes)) == len(prefixes), "holds a prefix twice")
    timings = zip(*(table[name].tolist() for name in TIMING_FIELDS), strict=True)
    answers = {
        prefix: Answer(speculation, Timing(*timing))
        for prefix, speculation, timing in zip(prefixes, speculations, timings, strict=True)
    }
    require("map_answers", len(answers) == facts.answers, "does not hold as many prefixes as manifest.json says")
    require("map_answers", not answers or prompt in answers, "does not begin at the prompt")
    for prefix, answer in answers_of(run).items():
        if prefix not in answers:
            continue
        length = min(len(answer.speculation), len(answers[prefix].speculation))  # the shorter is part of the longer
        ours, theirs = (shortened(each.speculation, length) for each in (answer, answers[prefix]))
        same = np.array_equal(ours.tokens, theirs.tokens) and np.array_equal(ours.parents, theirs.parents)
        require("map_nodes", same, "drafts other tokens than the run did at the same place")
    return DialMap(run.without_rounds, facts.span, answers, facts.passes, facts.seconds)
