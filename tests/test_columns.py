"""Evidence is a set of columns: what a file lacks is told, what it holds besides is kept, and rules judge by what is
there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from mars_viz import load_run
from mars_viz.analysis.judgements import opinion
from mars_viz.analysis.metrics import summary
from mars_viz.components.explorer.packing import identified
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.evidence import Decides
from mars_viz.records import COLUMNS, Speculation
from mars_viz.report import report_html
from mars_viz.rules import RULES
from mars_viz.run import Run
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


def only_deciding(run: Run) -> Run:
    """The run as a decode leaves it that computed what every rule decides by and nothing else."""

    def light(one: Speculation) -> Speculation:
        held = {name: one.columns[name] for name in COLUMNS if COLUMNS[name].required(one.temperature)}
        return replace(one, columns=held)

    return replace(run, rounds=[round_.with_speculation(light(round_.speculation)) for round_ in run.rounds])


def test_the_inspector_shows_what_no_version_knows(run, tab, tmp_path):
    read = replace(codec.decode(with_extras(codec.encode(run))), dial_map=None)  # its answers lack some of them
    (path := tmp_path / "run.html").write_text(report_html(read, most_steps=0), encoding="utf-8")
    tab.goto(path.as_uri())
    tab.locator(".stream .t").first.click()
    expect(tab.locator(".inspector .extras")).to_have_text(
        "Also in its file: attention_entropy 0 · heads_0 0 · heads_1 1.00 · heads_2 2.00 · hidden_norm 0"
    )


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
    light = load_run(only_deciding(whole).save(tmp_path / "run"))
    assert light.token_ids == whole.token_ids and summary(light) == summary(whole)
    assert light.trace.speculations.columns.keys() < whole.trace.speculations.columns.keys()
    first = light.rounds[0].speculation
    assert np.isnan(first.js).all() and first.draft_ids.shape == (len(first), 0) and not first.ranks.any()
    assert light.to_frame().js.isna().all() and run_payload(light)["nodes"]["top"] == 0
    for name, rule in RULES.items():
        lacks = set(rule.needed(first)) - first.columns.keys()
        assert bool(opinion(rule, light).lacks) >= bool(lacks), name
        if not lacks and not rule.lacks(first):
            np.testing.assert_array_equal(
                opinion(rule, light).verdicts.keep_strict, opinion(rule, whole).verdicts.keep_strict
            )


def test_rounds_of_a_trace_are_views_of_its_columns(run):
    trace = codec.decode(codec.encode(run)).trace
    assert trace[0] is trace[0] and trace[-1] is trace[len(trace) - 1] and trace == list(run.rounds)[:0] + list(trace)
    assert np.shares_memory(trace[1].speculation.z, trace.speculations.columns["z"])
    part = trace[1:4]
    assert isinstance(part, Trace) and len(part) == 3 and part[0] is not trace[0]
    assert not difference(part[1], trace[2])
    assert part.text.tolist() == [token for round_ in list(trace)[1:4] for token in round_.token_ids]
    assert len(trace[3:1]) == 0 and [r.token_ids for r in trace[::-1]] == [r.token_ids for r in reversed(list(trace))]
    assert len((*trace[:2], *trace[2:])) == len(trace) and not difference(Trace(trace[:2] + trace[2:])[2], trace[2])


def test_of_several_drafts_the_columns_are_those_that_all_have(run):
    one, other = (round_.speculation for round_ in run.rounds[:2])
    less = replace(other, columns={name: column for name, column in other.columns.items() if name != "js"})
    both = Speculations.of([one, less])
    assert "js" not in both.columns and both.columns.keys() == one.columns.keys() - {"js"}
    assert RULES["fuzzy"].lacks_for(both) and not RULES["fuzzy"].lacks_for(Speculations.of([one, other]))


def test_nobody_changes_a_record(run):
    first = run.rounds[0].speculation
    with pytest.raises(AttributeError):
        first.columns = {}
    more = first.with_columns({"z": first.z + 1})
    assert not np.array_equal(more.z, first.z)


def test_unknown_columns_are_kept_and_no_rule_reads_them(run, tmp_path):
    files = with_extras(codec.encode(run))
    read = codec.decode(files)
    again = codec.encode(read)
    assert [name for name in files if again[name] != files[name]] == ["manifest.json"], "not a byte of a table is lost"
    frame, plain = read.to_frame(), run.to_frame()
    added = ["attention_entropy", "hidden_norm", "heads_0", "heads_1", "heads_2"]
    assert list(frame.columns)[len(plain.columns) :] == added
    assert frame[list(plain.columns)].equals(plain)
    told = frame[frame.node.notna()]
    sizes = [len(round_.speculation) for round_ in run.rounds]
    assert told.attention_entropy.tolist() == np.linspace(0, 1, sum(sizes)).tolist()
    assert told.heads_2.tolist() == list(range(2, 3 * sum(sizes), 3)) and frame.heads_0[frame.node.isna()].isna().all()
    assert frame.hidden_norm.tolist()[: sizes[0]] == list(range(sizes[0])), "the row that judges each"
    assert read.rounds[1].speculation.columns["hidden_norm"].tolist() == list(range(sizes[0] + 1, sum(sizes[:2]) + 2))
    answer = next(iter(read.dial_map.answers.values()))
    assert "hidden_norm" in answer.speculation.columns
    assert summary(read) == summary(run)
    told, plain = run_payload(alone := replace(read, dial_map=None)), run_payload(replace(run, dial_map=None))
    names = {each: [extra["name"] for extra in told[each]["extras"]] for each in ("nodes", "rows")}
    assert names == {"nodes": ["attention_entropy", "heads_0", "heads_1", "heads_2"], "rows": ["hidden_norm"]}
    assert len(told["rows"]["extras"][0]["values"]) == len(told["rows"]["ratio"])
    for each in ("nodes", "rows"):
        told[each]["extras"] = []
    assert identified(told | {"id": ""})["id"] == identified(plain | {"id": ""})["id"], "and nothing else differs"
    assert load_run(alone.save(tmp_path / "run")).rounds[0].speculation.columns["heads"].dtype == np.int16
    assert "hidden_norm" in read.rounds[1:3].speculations.columns


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
