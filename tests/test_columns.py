"""Evidence is a set of columns: what a file lacks is told, what it holds besides is kept, and rules judge by what is
there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from mars_viz import load_run
from mars_viz.analysis.judgements import opinion
from mars_viz.analysis.metrics import summary
from mars_viz.components.explorer.packing import identified
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.evidence import Decides
from mars_viz.records import COLUMNS
from mars_viz.rules import RULES
from mars_viz.run_with_map import mapped
from mars_viz.runfiles import codec
from mars_viz.runfiles.columns import MOST_EXTRAS
from mars_viz.trace import Speculations, Trace
from tests.factories import toy_map, toy_run
from tests.test_runfiles import difference, edited, rewritten, signed


@pytest.fixture(scope="module")
def run():
    made = toy_run(rule="mars-sampling", temperature=0.8, max_new_tokens=30)
    return mapped(made, toy_map(replace(made.settings, dial=None), 0.5)[0])


def with_extras(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of the run with evidence that no version knows: a number and a list a token, a number a row."""

    def of_nodes(columns: dict[str, np.ndarray]) -> None:
        count = len(columns["tokens"])
        columns["attention_entropy"] = np.linspace(0, 1, count)
        columns["heads"] = np.arange(3 * count, dtype=np.int16).reshape(count, 3)

    def of_rows(columns: dict[str, np.ndarray]) -> None:
        columns["hidden_norm"] = np.arange(len(columns["top_ids"]), dtype=np.float32)

    return edited(edited(edited(files, "nodes", of_nodes), "rows", of_rows), "map_rows", of_rows)


def test_without_a_column_that_all_rules_decide_by_a_file_is_refused(run):
    files = codec.encode(run)
    for name, column in COLUMNS.items():
        if column.decides is not Decides.NEVER:
            table = "nodes" if column.per.value == "node" else "rows"
            less = rewritten(files[f"{table}.parquet"], lambda columns, name=name: columns.drop_columns([name]))
            with pytest.raises(BadInput, match=f"{table}.parquet lacks the column {name}"):
                codec.decode(signed(files, **{table: less}))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_run_of_deciding_columns_alone_opens_and_says_what_rules_lack(tmp_path, temperature):
    whole = toy_run(temperature=temperature, max_new_tokens=30)
    kept, rounds = {name for name, column in COLUMNS.items() if column.required(temperature)}, []
    for round_ in whole.rounds:
        held = {name: column for name, column in round_.speculation.columns.items() if name in kept}
        rounds.append(round_.with_speculation(replace(round_.speculation, columns=held)))
    light = load_run(replace(whole, rounds=rounds).save(tmp_path / "run"))
    assert light.token_ids == whole.token_ids and summary(light) == summary(whole)
    assert light.trace.speculations.columns.keys() < whole.trace.speculations.columns.keys()
    first = light.rounds[0].speculation
    assert np.isnan(first.js).all() and first.draft_ids.shape == (len(first), 0) and not first.ranks.any()
    assert light.to_frame().js.isna().all() and run_payload(light)["nodes"]["top"] == 0
    for name, rule in RULES.items():
        lacks = set(rule.needed(first)) - first.columns.keys()
        assert bool(opinion(rule, light).lacks) >= bool(lacks), name
        if not lacks and not rule.lacks(first):
            ours, theirs = (opinion(rule, each).verdicts.keep_strict for each in (light, whole))
            np.testing.assert_array_equal(ours, theirs)


def test_rounds_of_a_trace_are_views_of_its_columns(run):
    trace = codec.decode(codec.encode(run)).trace
    assert trace[0] is trace[0] and trace[-1] is trace[len(trace) - 1]
    assert np.shares_memory(trace[1].speculation.z, trace.speculations.columns["z"])
    part = trace[1:4]
    assert isinstance(part, Trace) and len(part) == 3 and not difference(part[1], trace[2])
    assert part.text.tolist() == [token for round_ in list(trace)[1:4] for token in round_.token_ids]
    assert len(trace[3:1]) == 0 and [r.token_ids for r in trace[::-1]] == [r.token_ids for r in reversed(list(trace))]
    assert len((*trace[:2], *trace[2:])) == len(trace) and not difference(Trace(trace[:2] + trace[2:])[2], trace[2])
    one, other = (round_.speculation for round_ in run.rounds[:2])
    less = replace(other, columns={name: column for name, column in other.columns.items() if name != "js"})
    both = Speculations.of([one, less])  # which has the columns that both have
    assert both.columns.keys() == one.columns.keys() - {"js"} and RULES["fuzzy"].lacks_for(both)


def test_unknown_columns_are_kept_and_no_rule_reads_them(run, tmp_path):
    files = with_extras(codec.encode(run))
    read = codec.decode(files)
    again = codec.encode(read)
    assert [name for name in files if again[name] != files[name]] == ["manifest.json"], "not a byte of a table is lost"
    frame, plain = read.to_frame(), run.to_frame()
    added = ["attention_entropy", "hidden_norm", "heads_0", "heads_1", "heads_2"]
    assert list(frame.columns) == [*plain.columns, *added] and frame[list(plain.columns)].equals(plain)
    nodes, sizes = frame[frame.node.notna()], [len(round_.speculation) for round_ in run.rounds]
    assert nodes.heads_2.tolist() == list(range(2, 3 * sum(sizes), 3)) and frame.heads_0[frame.node.isna()].isna().all()
    assert frame.hidden_norm.tolist()[: sizes[0]] == list(range(sizes[0])), "the row that judges each"
    assert read.rounds[1].speculation.columns["hidden_norm"].tolist() == list(range(sizes[0] + 1, sum(sizes[:2]) + 2))
    assert "hidden_norm" in next(iter(read.dial_map.answers.values())).speculation.columns
    assert summary(read) == summary(run) and "hidden_norm" in read.rounds[1:3].speculations.columns
    sent, usual = run_payload(alone := replace(read, dial_map=None)), run_payload(replace(run, dial_map=None))
    for each, names in (("nodes", ["attention_entropy", "heads_0", "heads_1", "heads_2"]), ("rows", ["hidden_norm"])):
        assert [extra["name"] for extra in sent[each].pop("extras")] == names and not usual[each].pop("extras")
    assert identified(sent | {"id": ""})["id"] == identified(usual | {"id": ""})["id"], "and nothing else differs"
    assert load_run(alone.save(tmp_path / "run")).rounds[0].speculation.columns["heads"].dtype == np.int16


def test_too_many_or_misplaced_unknown_columns_are_refused(run):
    for table, count, said in (
        ("nodes", MOST_EXTRAS + 1, f"more than {MOST_EXTRAS} unknown"),
        *((table, 1, "column 'more0'") for table in ("rounds", "pieces", "map_answers")),
    ):

        def more(columns, count=count):
            rows = len(next(iter(columns.values())))
            columns |= {f"more{i}": np.zeros(rows) for i in range(count)}

        with pytest.raises(BadInput, match=said):
            codec.decode(edited(codec.encode(run), table, more))
