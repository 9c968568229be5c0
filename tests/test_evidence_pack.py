"""The evidence pack as its reader has it: the command makes the same again, every row holds where it says, and what is
said twice agrees."""

import argparse
import csv
import io
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from sweep_cases import SETTINGS, TREES, sweep_over, timing, toy_prompts, toy_sweep

from mars_viz import samples
from mars_viz.analysis.intervals import Bootstrap, Interval, Method
from mars_viz.commands import decoding
from mars_viz.commands import sweep as command
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptSet, load_prompts, to_jsonl
from mars_viz.recording import mapping_of
from mars_viz.sweep import load_sweep, measures, value_at
from mars_viz.sweep.by_task import TOGETHER, TaskResults, by_task, losing
from mars_viz.sweep.evidence import SettingOrigin, evidence_of, origin_of
from mars_viz.sweep.evidence_pack import evidence_files
from mars_viz.sweep.figure_words import alone
from mars_viz.sweep.plan import set_hash
from mars_viz.sweep.report import summary_lines
from mars_viz.sweep.reproduce import reproduction
from mars_viz.sweep.result import recommended
from mars_viz.sweep.stretches import TOLD, stretches
from mars_viz.sweep.terms import FEWEST, Terms
from mars_viz.sweep.threshold import advised

SAMPLES = sorted(path.name for path in samples.SWEEPS.iterdir() if (path / "sweep.json").is_file())


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return toy_sweep(tmp_path_factory.mktemp("pack") / "sweep", 12).finish()


def options_of(line):
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    words = shlex.split(line)
    assert words[:2] == ["mars-viz", "sweep"]
    return parser.parse_args(words[2:])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_command_of_a_pack_asks_for_the_same_sweep(name):
    result = load_sweep(samples.SWEEPS / name)
    plan = result.plan
    options = options_of(reproduction(result, Terms()).command)
    asked = decoding.settings_of(options)
    settings, span = mapping_of(asked, options.over, options.low, options.high, (asked.gamma,))
    assert replace(settings, dial=plan.settings.dial) == plan.settings
    assert span == plan.span and bool(options.chat) == plan.chat
    drafter = None if plan.provenance.drafter.startswith("built-in/") else "eagle3"
    assert (options.target, options.drafter) == (None, drafter)
    prompts = command._prompts(options, None, None)
    assert set_hash(prompts) == plan.prompt_set_sha256 and len(prompts) == plan.prompts


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        replace(TREES, temperature=0.8, seed=3, top_p=0.9, top_k=20),
        replace(SETTINGS, rule="lenience", gamma=4, max_new_tokens=12, stop=("the end", "it's")),
    ],
)
def test_the_command_has_every_setting(tmp_path, settings):
    sweep_over(tmp_path / "sweep", toy_prompts(2), settings)
    plan = load_sweep(tmp_path / "sweep").plan
    asked = decoding.settings_of(options_of(reproduction(load_sweep(tmp_path / "sweep"), Terms()).command))
    assert replace(asked, dial=plan.settings.dial) == plan.settings


def test_the_command_repeats_what_was_chosen(result, tmp_path):
    terms = Terms(2.5, Bootstrap(0.9, Method.PERCENTILE))
    plain = options_of(reproduction(result, Terms()).command)
    assert (plain.dial, plain.loss, plain.confidence) == (None, 1, 0.95)
    assert (plain.intervals, plain.wall_clock) == ("bca", False)
    said = options_of(reproduction(result, terms, dial=0.7, timing=timing()).command)
    assert (said.dial, said.loss, said.confidence, said.intervals) == (0.7, 2.5, 0.9, "percentile")
    assert (said.wall_clock, said.timed, said.repetitions) == (True, 3, 2)
    assert options_of(reproduction(result, terms, grid="k=1,2").command).grid == "k=1,2"
    path = tmp_path / "my set's prompts.jsonl"
    path.write_bytes(to_jsonl(toy_prompts(9)))
    some = load_prompts(path, limit=4)
    sweep_over(tmp_path / "sweep2", some)
    made = reproduction(load_sweep(tmp_path / "sweep2"), Terms())
    options = options_of(made.command)
    assert (options.set, options.limit, options.grader) == (path.name, 4, "contains")
    assert "SHA-256" in made.needs[0] and path.name in made.needs[0]
    assert load_prompts(path, grader=options.grader, limit=options.limit).items == some.items


def test_every_row_of_the_dial_holds_from_end_to_end_and_no_further(result):
    found = stretches(result, np.linspace(0, 1, 21), TOLD)
    known = measures(result)
    names = [name for name in TOLD if name in known]

    def read(dial):
        return [alone(name, value_at(result, known[name], dial).estimate) for name in names]

    for row in found:
        inside = np.append(np.random.default_rng(0).uniform(row.low, row.high, 5), [row.low, *row.shown])
        assert all(
            read(float(dial)) == read(row.dial) for dial in inside if row.low <= dial and (row.last or dial < row.high)
        )
        assert row.low <= row.shown[0] <= row.shown[1] <= row.high
        if row.low > 0:
            assert read(float(np.nextafter(row.low, 0))) != read(row.dial)
        if not row.last:
            assert read(row.high) != read(row.dial)
    assert [row.low for row in found] == sorted({row.low for row in found}), "no row twice"


def test_rows_of_the_dial_are_stretches(tmp_path, result):
    result = toy_sweep(tmp_path / "sweep", 2).finish()
    rows = evidence_of(result, 0.9)["grid"]
    assert len(rows) <= len(result.edges) - 1
    assert [row["to"] for row in rows[:-1]] <= [row["from"] for row in rows[1:]]
    lines = list(csv.DictReader(io.StringIO(evidence_files(result, dial=0.9)["stretches.csv"].decode())))
    assert len(lines) == len(result.edges) - 1
    assert float(lines[0]["dial_from"]) == 0 and float(lines[-1]["dial_to"]) == 1
    for line in lines[:: max(1, len(lines) // 9)]:
        dial = np.array([float(line["dial_from"])])
        for name in ("tokens", "rounds", "relaxed", "right"):
            assert int(line[name]) == result.at(name, dial).sum()
    for points, confidence in ((0, 0.95), (101, 0.95), (float("nan"), 0.9), (1, 0.4)):
        with pytest.raises(BadInput, match="tolerated loss is above 0"):
            Terms(points, Bootstrap(confidence))


def test_the_chosen_setting_and_the_terms(result):
    found = recommended(result, 60, 0.6)
    assert origin_of(result, found.dial, found) is SettingOrigin.RECOMMENDED
    assert origin_of(result, found.dial, found, by_hand=True) is SettingOrigin.RECOMMENDED, "whoever asks for it"
    assert origin_of(result, 0.123, found) is SettingOrigin.BY_HAND
    nothing = recommended(result, 0.1, 0.95)
    assert nothing is not None and nothing.dial is None
    assert origin_of(result, 0.9, nothing) is SettingOrigin.DEFAULT
    assert origin_of(result, 0.9, nothing, by_hand=True) is SettingOrigin.BY_HAND
    for dial, advice, by_hand in ((found.dial, found, False), (0.123, found, True), (0.9, nothing, False)):
        data = evidence_of(result, dial, recommendation=advice)
        assert (
            ("was chosen by hand" in data["chosen"]["words"])
            == ("--dial" in data["reproduction"]["command"])
            == by_hand
        )
    terms = Terms(3, Bootstrap(0.8))
    text = evidence_files(result, dial=0.9, recommendation=advised(result, 3, 0.8), terms=terms)["evidence.md"].decode()
    assert "80 %" in text and "at most 3 points" in text
    assert "95 %" not in text.replace("its 95 % interval", "")
    wide = evidence_files(result, dial=0.9, terms=Terms(3, Bootstrap(0.99)))["evidence.json"].decode()
    assert '"confidence": 0.99' in wide and '"confidence": 0.95' not in wide
    assert "80 %" in "\n".join(summary_lines(result, 0.9, terms=terms))


def test_the_document_has_its_sections_and_lengths(result):
    files = evidence_files(result, dial=0.9, references="@misc{one}")
    text = files["evidence.md"].decode()
    for part in ("To reproduce", "What was run", "Results by task", "Speed", "The dial, θ", "Acceptance", "References"):
        assert text.count(f"\n## {part}\n") == 1
    tables = re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE)
    assert len(tables) > 8 and all(table.count("\n") > 2 for table in tables)
    assert files["references.bib"] == b"@misc{one}"
    bare = evidence_files(replace(result, costs=None), dial=0.9)
    assert "was not measured" in bare["evidence.md"].decode() and "references.bib" not in bare
    data = evidence_of(result, 0.5)
    made, vllm = data["acceptance"], data["engines"][0]["length"]
    tau = next(row for row in data["figures"] if row["figure"] == "tau")["settings"]["chosen"]["estimate"]
    assert made["tokens"] / made["rounds"] == pytest.approx(tau)
    assert (made["tokens"] + made["past_the_end"]) / made["rounds"] == pytest.approx(vllm)
    assert made["past_the_end"] > 0, "or the sentence would not be tested"


def test_each_task_has_what_a_sweep_of_it_alone_has(tmp_path, result):
    rows = by_task(result, 0.6)
    assert [(row.task, row.prompts, row.graded) for row in rows] == [("even", 6, 6), ("odd", 6, 6), (TOGETHER, 12, 12)]
    for row in rows[:-1]:
        own = tuple(item for item in toy_prompts(12).items if item.category == row.task)
        sweep_over(tmp_path / row.task, PromptSet(row.task, own), SETTINGS)
        other = load_sweep(tmp_path / row.task)
        for at, side in ((other.plan.strict, row.strict), (0.6, row.chosen)):
            assert side == {name: value_at(other, measures(other)[name], at) for name in side}
        assert by_task(other, 0.6) == (), "one task is all of it"
    for at, side in ((1.0, rows[-1].strict), (0.6, rows[-1].chosen)):
        assert side == {name: value_at(result, measures(result)[name], at) for name in side}
    said = "\n".join(summary_lines(result, 0.6))
    assert "by task, at θ = 0.6" in said and "\nodd" in said and "\ntogether" in said
    items = [
        replace(item, answer=None, grader="none") if i % 2 else item for i, item in enumerate(toy_prompts(12).items)
    ]
    sweep_over(tmp_path / "sweep2", PromptSet("half", tuple(items)))
    even, odd, whole = by_task(load_sweep(tmp_path / "sweep2"), 0.6)
    assert "accuracy" in even.chosen and "accuracy" not in odd.chosen and (odd.graded, whole.graded) == (0, 6)
    assert "not graded" in "\n".join(summary_lines(load_sweep(tmp_path / "sweep2"), 0.6))


def test_a_task_that_loses_too_much_is_named_whatever_all_together_lose(result):
    def row(task, low, change, high):
        found = {"accuracy_change": Interval(change, low, high, 0.95, Method.BCA)}
        return TaskResults(task, 9, 9, {}, found)

    rows = [row("a", -0.08, -0.05, -0.03), row("b", -0.02, 0.01, 0.04), row(TOGETHER, -0.03, -0.02, -0.015)]
    assert "a −5 points (−8 to −3)" in losing(rows, Terms(1), "strict")
    assert losing(rows, Terms(3.5), "strict") == losing(rows[1:], Terms(1), "strict") == ""
    loosest = by_task(result, 0.0, Bootstrap(0.5))
    terms = Terms(0.001, Bootstrap(0.5))
    if named := losing(loosest, terms, "strict"):
        told = "\n".join(summary_lines(result, 0.0, terms=terms))
        assert named in told and named in evidence_of(result, 0.0, terms=terms)["losing_tasks"]


def test_two_prompts_have_no_bootstrap_interval_and_a_word_on_it(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 2).finish()
    known = measures(result)
    for name in ("tau", "speed_up", "speed_up_strict", "rolled_back"):
        assert np.isnan(value_at(result, known[name], 0.4).low), name
    for name in ("accuracy", "accuracy_change", "same"):
        found = value_at(result, known[name], 0.4)
        assert found.low <= found.estimate <= found.high and found.high - found.low > 0.3, name
    at_strict = value_at(result, known["speed_up_strict"], 1.0)
    assert (at_strict.low, at_strict.high) == (1, 1), "known without any prompt"
    said = "\n".join(summary_lines(result, 0.4))
    assert "(no interval)" in said and "Of 2 prompts a bootstrap" in said and "nan" not in said
    assert "nan" not in evidence_files(result, dial=0.4)["evidence.md"].decode()
    enough = toy_sweep(tmp_path / "enough", FEWEST).finish()
    assert np.isfinite(value_at(enough, measures(enough)["rolled_back"], 0.4).low)
