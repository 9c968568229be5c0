"""A dial map to and from tables: only the answers at every prefix are stored.

Segments are computed on first access, not when a run is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import TypeAlias

import numpy as np

from mars_viz.dialmap import DialMap
from mars_viz.records import Timing
from mars_viz.replay import answers_of, shortened
from mars_viz.run import Run
from mars_viz.runfiles.columns import TIMING_FIELDS
from mars_viz.runfiles.manifest import MapFacts
from mars_viz.runfiles.parquet import MAX_VALUES, Table, objects
from mars_viz.runfiles.speculations import SpeculationTables, contradiction
from mars_viz.runfiles.speculations import from_tables as speculations_of
from mars_viz.runfiles.speculations import to_tables as tables_of
from mars_viz.trace import Speculations
from mars_viz.walk import Answer

Answers: TypeAlias = dict[tuple[int, ...], Answer]

ANSWERS = SpeculationTables("map_nodes", "map_rows", "map_answers", "answer")  # tables of a map's speculations


def to_tables(dial_map: DialMap) -> dict[str, Table]:
    """Return the columns of the map's tables, sorted by prefix. Raises BadInput if an array has a wrong length."""
    prefixes = sorted(dial_map.answers)
    answers = [dial_map.answers[prefix] for prefix in prefixes]
    prompt = len(dial_map.frame.prompt_ids)
    tables = tables_of(Speculations.of([answer.speculation for answer in answers]), ANSWERS)
    timings = np.array([astuple(answer.timing) for answer in answers], np.float64).reshape(-1, len(TIMING_FIELDS))
    tables["map_answers"]["prefix"] = objects(prefix[prompt:] for prefix in prefixes)
    tables["map_answers"] |= zip(TIMING_FIELDS, timings.T, strict=True)
    return tables


def from_tables(tables: Mapping[str, Table], run: Run, facts: MapFacts) -> DialMap:
    """Return the map of this run. Raises BadInput if the tables contradict each other, the manifest or the run."""
    answers = _answers(tables, run.prompt_ids)
    if len(answers) != facts.answers:
        raise contradiction("map_answers", "does not hold as many prefixes as manifest.json says")
    if answers and run.prompt_ids not in answers:
        raise contradiction("map_answers", "does not begin at the prompt")
    for prefix, answer in answers_of(run).items():
        if prefix in answers and not _agree(answer, answers[prefix]):
            raise contradiction("map_nodes", "drafts other tokens than the run did at the same place")
    return DialMap(run.without_rounds, facts.span, answers, facts.passes, facts.seconds)


def _answers(tables: Mapping[str, Table], prompt: tuple[int, ...]) -> Answers:
    table = tables["map_answers"]
    speculations = speculations_of(tables, ANSWERS)
    if len(prompt) * len(table["prefix"]) > MAX_VALUES:
        raise contradiction("map_answers", "holds far more prefixes than a map of so long a prompt")
    prefixes = [prompt + tuple(prefix) for prefix in table["prefix"]]
    if (table["start"] != np.array([len(prefix) for prefix in prefixes], np.int64)).any():
        raise contradiction("map_answers", "has an answer that does not start where its prefix ends")
    if len(set(prefixes)) < len(prefixes):
        raise contradiction("map_answers", "holds a prefix twice")
    timings = zip(*(table[name].tolist() for name in TIMING_FIELDS), strict=True)
    return {
        prefix: Answer(speculation, Timing(*timing))
        for prefix, speculation, timing in zip(prefixes, speculations, timings, strict=True)
    }


def _agree(one: Answer, other: Answer) -> bool:
    """True if the shorter draft is a part of the longer one."""
    length = min(len(one.speculation), len(other.speculation))
    ours, theirs = shortened(one.speculation, length), shortened(other.speculation, length)
    return np.array_equal(ours.tokens, theirs.tokens) and np.array_equal(ours.parents, theirs.parents)
