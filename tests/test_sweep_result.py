"""Results of a sweep: curves, intervals, frontier, evidence pack and the command."""

import argparse
import csv
import itertools
import json
import shlex
from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest
from sweep_cases import (
    SETTINGS,
    SHORT,
    TREES,
    accuracy,
    evidence_files,
    evidence_of,
    summary_of,
    sweep_over,
    timing,
    toy_prompts,
    toy_sweep,
    write_evidence,
)

from mars_viz.analysis.intervals import (
    Bootstrap,
    Interval,
    Method,
    Steps,
    combined,
    interval,
    plain_within,
    ratio,
    wilson,
)
from mars_viz.analysis.recommendation import recommend
from mars_viz.axis import Span
from mars_viz.commands import decoding
from mars_viz.commands import sweep as sweep_command
from mars_viz.documents import Table, markdown
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptSet, load_prompts, to_jsonl
from mars_viz.recording import mapping_of
from mars_viz.run import Settings
from mars_viz.samples import SWEEPS
from mars_viz.sweep import Sweep, band_at, curve, frontier, load_sweep, measures, places, relaxed_at, value_at
from mars_viz.sweep.document import ENGINES, by_drafter, engine_settings, only_drafter_differs
from mars_viz.sweep.evidence import ENDS, NOT_MEASURED, dial_grid, reproduction, table_of
from mars_viz.sweep.grid import advised, recommended
from mars_viz.sweep.measures import FEWEST, Terms, alone, told
from mars_viz.sweep.report import TOGETHER, TOLD, CachedSweep, TaskResults, losing, stretches
from mars_viz.sweep.wall_clock import keep_check, kept_checks
from mars_viz.words import exact_setting, exactly, times
from tests.tables import table_backend


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return toy_sweep(tmp_path_factory.mktemp("sweeps") / "sweep", 12).finish()


def lines_at(result, column, dial):
    spans = [slice(*ends) for ends in zip(result.starts, result.starts[1:], strict=False)]
    return np.array([result.lines[column][span][result.lines["low"][span] <= dial][-1] for span in spans])


def test_curves_are_the_pooled_lines_everywhere_and_bands_agree_with_them(result):
    known, names = measures(result), ("tokens", "rounds", "right", "kept", "drafted")
    curves = {name: curve(result, measure) for name, measure in known.items()}
    at_strict = strict_tokens, strict_rounds, strict_right = [lines_at(result, name, 1.0) for name in names[:3]]
    strict = at_strict[0].sum() / at_strict[1].sum()
    for dial in [*np.random.default_rng(0).uniform(0, 1, 10).tolist(), *result.edges[:-1:3].tolist(), 1.0]:
        tokens, rounds, right, kept, drafted = (lines_at(result, name, dial).sum() for name in names)
        expected = {"tau": tokens / rounds, "accuracy": right / 12, "speed_up_strict": tokens / rounds / strict}
        expected |= {"speed_up": 0.010 * tokens / (0.017 * rounds), "acceptance": kept / drafted}
        assert {name: curves[name].at(dial) for name in expected} == pytest.approx(expected)
    assert [curves[name].at(1.0) for name in ("accuracy_change", "same", "edits")] == [0, 1, 0]
    dials = places(result)
    assert (dials[0], dials[-1], len(places(result, 5))) == (0.0, 1.0, 5)
    for name, measure in known.items():
        np.testing.assert_allclose(band_at(result, measure, dials).estimate, [curves[name].at(dial) for dial in dials])
    tokens, rounds, right = (lines_at(result, name, 0.0) for name in names[:3])
    assert value_at(result, known["tau"], 0.0) == ratio(tokens, rounds)
    assert value_at(result, known["accuracy_change"], 0.0) == interval(np.subtract, right, strict_right)
    ours = value_at(result, known["speed_up_strict"], 0.0)
    theirs = interval(lambda a, b, c, d: a / b * d / c, tokens, rounds, strict_tokens, strict_rounds)
    np.testing.assert_allclose([ours.estimate, ours.low, ours.high], [theirs.estimate, theirs.low, theirs.high])


def test_prompts_that_all_agree_are_no_certainty(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 6).finish()
    right = np.ones(len(result.lines["right"]), np.int8)
    same = replace(result, lines={**result.lines, "right": right})
    known, wide = measures(same), 1 - 0.025 ** (1 / 6)
    for dial in (0.0, 0.9):
        change, accuracy = (value_at(same, known[name], dial) for name in ("accuracy_change", "accuracy"))
        assert (change.estimate, change.low, change.high) == pytest.approx((0, -wide, wide), abs=1e-6)
        assert (accuracy.estimate, accuracy.low) == (1, wilson(6, 6).low) and accuracy.high == 1
    band = band_at(same, known["accuracy_change"], np.array([0.0, 0.5, 1.0]))
    assert band.low == pytest.approx([-wide, -wide, 0], abs=1e-6)
    assert band.high == pytest.approx([wide, wide, 0], abs=1e-6)
    agreed = known["accuracy_change"].agreed
    every, turned = agreed(-1.0, 6, 0.95), agreed(1.0, 6, 0.95)  # all six lost, all six won
    assert every[0] == -1 and -1 < every[1] < 0 and turned == (-every[1], 1)
    for part, count in itertools.product((-0.5, -1 / 3, 0.25, 0.9), (2, 10, 40)):  # each question loses or wins a part
        low, high = agreed(part, count, 0.95)
        assert -1 <= low < part < high <= 1 and agreed(-part, count, 0.95)[0] == pytest.approx(-high)
    strict = [value_at(same, known[name], 1.0) for name in ("accuracy_change", "same", "speed_up_strict")]
    assert [(each.low, each.high) for each in strict] == [(0, 0), (1, 1), (1, 1)]  # by definition, not by luck
    assert frontier(same, paired=True).accuracy.low[0] == pytest.approx(-wide, abs=1e-6)


def test_the_frontier_goes_through_the_curves_at_short_dial_values(result):
    path, known, raw, bare = frontier(result), measures(result), places(result), replace(result, costs=None)
    for name, band in (("accuracy", path.accuracy), ("speed_up", path.speed_up)):
        np.testing.assert_allclose(band.estimate, [curve(result, known[name]).at(dial) for dial in path.dials])
    assert (path.over, frontier(bare).over) == ("the target alone", "strict") and "speed_up" not in measures(bare)
    assert (path.dials[0], path.dials[-1]) == (raw[0], raw[-1])
    for column in ("tokens", "right"):  # `places` has the last stretch twice, by its begin and by its end
        each, short = (np.unique(result.at(column, dials), axis=1) for dials in (raw, path.dials))
        assert np.array_equal(each, short)
    assert sum(len(exactly(value)) for value in path.dials) < sum(len(exactly(value)) for value in raw)
    ends = ((0.94, 1.01), (0.941, 1.0), (0.123456, 0.1235), (2.0, 3.0))
    assert [exactly(plain_within(*each)) for each in ends] == ["1", "0.95", "0.12346", "2"]


def test_the_recommendation_rests_on_every_prompts_grades(result):
    graded = result.graded_steps()
    assert graded.strict == len(graded.steps) - 1
    for dial in np.linspace(0, 1, 50):
        assert graded.steps.at(dial).tolist() == (lines_at(result, "right", dial) == 1).tolist()
    assert recommend(graded, 40, 0.8).dial is not None and recommend(graded, 0.1).dial is None
    chosen = np.arange(len(result)) % 3 > 0  # ungraded prompts have no part in it, nor have their edges
    partly = replace(result, prompts={**result.prompts, "target_right": np.where(chosen, 1, -1)})
    for each in (result, partly):
        parts = [slice(*each.starts[row : row + 2]) for row in np.flatnonzero(each.graded)]
        low, right = each.lines["low"], each.lines["right"]
        rows = [Steps(np.append(low[part], each.top), right[part]).simplified() for part in parts]
        beside = combined(lambda *values: np.stack(values), *rows)
        assert np.array_equal(each.graded_steps().steps.edges, beside.edges)
        assert np.array_equal(each.graded_steps().steps.values, beside.values == 1)


def test_strict_low_ends_missing_grades_and_values_within_the_range(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 6, Settings(rule="tensorrt-llm", gamma=3, max_new_tokens=16)).finish()
    assert result.graded_steps().strict == 0
    assert curve(result, measures(result)["same"]).at(0.0) == 1
    assert relaxed_at(result, 0.0)["rank"][0].sum() == 0
    (ranks, _), (shares, _) = relaxed_at(result, 1.0).values()
    assert ranks.sum() == shares.sum() == result.at("relaxed", np.array([1.0])).sum() > 0
    result = toy_sweep(tmp_path / "sweep2", 3, graded=False).finish()
    assert not {"accuracy", "accuracy_change"} & set(measures(result))
    for refused in (lambda: result.graded_steps(), lambda: frontier(result)):
        with pytest.raises(BadInput, match="No prompt of the set is graded"):
            refused()
    assert "Not enough prompts to tell whether" in evidence_files(result, dial=0.9)["evidence.md"].decode()
    with pytest.raises(BadInput, match="goes from 0 to 1"):
        result.acceptance(1.5)
    settings = Settings(rule="top-k-set", gamma=3, max_new_tokens=16)
    result = toy_sweep(tmp_path / "sweep3", 6, settings).finish()
    right = (result.lines["low"] < 4).astype(np.int8)  # looser than that, every answer is wrong
    found = recommended(replace(result, lines={**result.lines, "right": right}), accuracy(20, 0.5))
    assert found is not None and found.dial is not None and 3 <= found.dial < 64
    assert found.dial.is_integer() and found.sentence.startswith(f"k = {found.dial:.0f} is the loosest")
    span = Span(0.12345678, 1.0, (3,))
    result = Sweep(table_backend(), toy_prompts(1), SETTINGS, span, tmp_path / "sweep4").finish()
    assert dial_grid(replace(result, plan=replace(result.plan, low=0.1234564)), 0.9)[0] == 0.1234564
    assert dial_grid(result, 0.9)[0] >= 0.12345678


def test_checks_are_kept_beside_the_sweep_and_damaged_ones_named(tmp_path):
    check = timing()
    assert [check.pace_over(way).estimate for way in (check.strict, check.target)] == pytest.approx([2, 2.4])
    assert check.pace(check.strict).estimate == pytest.approx(60 / (1.1 + 2.05 + 3.15))
    assert check.facts()["repetitions"] == 2
    result = toy_sweep(tmp_path / "sweep", 2, SHORT).finish()
    first = replace(timing(SHORT.gamma), created="2026-01-01", modelled_over_target=nan)
    for check in (replace(first, created="2026-01-03"), first, replace(first, dial=0.98765, created="2026-01-02")):
        path = keep_check(result.folder, check)
    found = kept_checks(result.folder, result.plan)
    assert [check.created[-2:] for check in found.found] == ["01", "02", "03"] and found.problems == ()
    assert found.found[0].to_json() == first.to_json() and found.found[0].pace_over(first.strict) == first.pace_over(
        first.strict
    )
    latest = found.latest(0.9), found.latest(0.98765), found.latest(0.5)
    assert [each and each.created for each in latest] == ["2026-01-03", "2026-01-02", None]
    assert load_sweep(result.folder).complete and toy_sweep(result.folder, 2, SHORT, resume=True).finish().complete
    (tmp_path / "checks").write_text("a file where the folder should be")
    with pytest.raises(BadInput, match="was not kept"):
        keep_check(tmp_path, timing())
    text = path.read_text()
    for old, new, why in (
        ('"mars-viz-wall-clock"', '"else"', "is not that of a"),
        ('"schema": 3', '"schema": 2', "the schema 2"),
        ('"gamma": 2', '"gamma": 9', "of another sweep"),
        ('"gamma": 2', '"gamma": Infinity', "damaged"),
        ("1.2", "0.0", "damaged"),
        ('"rounds"', '"laps"', "damaged"),
        ("}", "", "damaged"),
    ):
        path.write_text(text.replace(old, new))
        found = kept_checks(result.folder, result.plan)
        assert len(found.found) == 2 and len(found.problems) == 1
        assert path.name in found.problems[0] and why in found.problems[0]


def test_the_evidence_has_the_same_numbers_in_three_forms(result, tmp_path):
    found = replace(recommend(result.graded_steps(), 40, 0.8), sentence="θ = 0.9 is the loosest safe setting.")
    checks = [replace(timing(), created=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2)]
    checks.append(replace(checks[0], dial=0.5))
    path = write_evidence(tmp_path / "pack", result, dial=0.9, recommendation=found, checks=checks)
    tables = {file.stem: list(csv.DictReader(file.read_text().splitlines())) for file in path.glob("*.csv")}
    assert set(tables) == {"engines", "grid", "prompts", "stretches", "summary", "tasks"}
    data, text = json.loads((path / "evidence.json").read_text()), (path / "evidence.md").read_text()
    assert data["off_is_strict"] == data["off_is_strict"] | {"same": 12, "n": 12, "different": []}
    assert data["wall_clock"]["created"] == "2026-01-02T00:00:00+00:00"  # the newest of this setting
    assert [each["dial"] for each in data["wall_clock_checks"]] == [0.9, 0.9, 0.5]
    assert found.sentence in text and text.count("| 2026-01-0") == 3
    for figure in data["figures"]:
        cells = [told(figure["figure"], [at[end] for end in ENDS]) for at in figure["settings"].values()]
        assert f"| {figure['title']} | {' | '.join(cells)} | {figure['basis']} |" in text
    for row in data["grid"]:
        assert " | ".join(told(name, [row[name][end] for end in ENDS]) for name in TOLD if name in row) in text
    engines = tables["engines"]
    assert [row["engine"] for row in engines] == [row["engine"] for row in data["engines"]]
    low, length, high = (float(engines[0][name]) for name in ("length_low", "length", "length_high"))
    assert low < length == data["engines"][0]["length"] < high and engines[8]["length"] == ""  # LM Studio has none
    alone, strict, chosen = tables["summary"]
    assert (alone["dial"], float(strict["dial"]), float(chosen["dial"])) == ("", 1.0, 0.9)
    tau = next(row for row in data["figures"] if row["figure"] == "tau")["settings"]["chosen"]
    ends = [float(chosen[f"tau{end}"]) for end in ("", "_low", "_high")]
    assert ends == [tau[k] for k in ("estimate", "low", "high")] and tau["dial"] == 0.9
    assert float(alone["tokens_per_second"]) == data["wall_clock"]["tokens_per_second"]["target"]["estimate"]
    assert alone["tau"] == "" and float(alone["accuracy"]) == data["accuracy"]["target"]["wilson"]["estimate"]
    assert float(chosen["measured_over_target_low"]) == data["wall_clock"]["measured_over_target"]["low"]
    tokens = [int(line["chosen_tokens"]) for line in tables["prompts"]]
    assert tokens == lines_at(result, "tokens", 0.9).tolist()
    lines = tables["stretches"]
    assert len(lines) == len(result.edges) - 1
    assert float(lines[0]["dial_from"]) == 0 and float(lines[-1]["dial_to"]) == 1
    for line in lines[:: max(1, len(lines) // 9)]:
        for name in ("tokens", "rounds", "relaxed", "right"):
            assert int(line[name]) == result.at(name, np.array([float(line["dial_from"])])).sum()
    (tmp_path / "file").write_text("")
    for place, why in ((path, "exists already"), (tmp_path / "file" / "pack", "cannot be written")):
        with pytest.raises(BadInput, match=why):
            write_evidence(place, result, dial=0.9)


def test_the_evidence_of_trees_and_without_costs(result, tmp_path):
    trees = toy_sweep(tmp_path / "trees", 6, TREES).finish()
    made = evidence_of(trees, 0.9)
    assert (made["rule"]["tree"], made["rule"]["gamma"]) == ("dynamic:depth=3,topk=2", 5)
    assert len(made["synthetic_acceptance"]["rates"]) == 3  # a place each on the longest path
    assert "speed_up" in measures(trees)
    assert "speed_up" not in measures(replace(trees, costs=replace(trees.costs, tree="chain", drafting=())))
    files = evidence_files(replace(result, costs=None), dial=1.0, references="@misc{one}")
    assert files["references.bib"] == b"@misc{one}"
    assert json.loads(files["evidence.json"])["tokens_per_second"] == NOT_MEASURED
    assert "No token was relaxed" in files["evidence.md"].decode()
    fine = 0.98765432
    summary = summary_of(result, fine, replace(timing(), dial=fine))
    assert all(each in summary for each in ("θ = 1", f"θ = {fine}", "θ = 0", "12 of 12", "Tokens a second"))
    assert {row["figure"]: row for row in table_of(CachedSweep(result), 0.9)}["speed_up"]["basis"] == "modelled"
    assert str(fine) in engine_settings(Settings(rule="sglang-acc"), fine)[1].text
    assert [exact_setting("θ", value) for value in (0.9, fine)] == ["θ = 0.90", f"θ = {fine}"]


def test_numbers_and_times_are_printed_in_their_units():
    printed = {1.0: "1", 1.0042: "1.004", 0.9961: "0.996", 1.0096: "1.01", 1.2: "1.20", 0.99999: "1.00", nan: "–"}
    assert [times(value) for value in printed] == [*printed.values()]
    assert told("accuracy_change", (-0.0467, -0.0767, 0)) == "−4.7 points (−7.7 to 0)"
    assert told("same", (0.5, 0.25, 1)) == "50 % (25 to 100)"
    assert told("speed_up_strict", (1.0042, 1.0021, 1.0061)) == "1.004 (1.002 to 1.006)"
    assert told("speed_up_strict", (1.0042, 1, 1.2)) == told("tau", (1.0042, 1, 1.2)) == "1.00 (1 to 1.20)"
    assert told("accuracy", (0.5, 0.4, 0.62), change=True) == "+50 points (+40 to +62)"
    assert told("tau", (-0.5, nan, nan), change=True) == "−0.500 (no interval)"
    hostile = Table(["", "b"], [["a | <b>\n[c](d) `e`", "\u202e\x1b"], ["---", "# **f**"]])
    rows = markdown([hostile]).splitlines()
    assert rows[2:] == ["| a \\| \\<b\\> \\[c\\](d) \\`e\\` | U+202EU+001B |", "| \\--- | \\# \\*\\*f\\*\\* |"]


def test_engines_get_settings_where_they_have_the_rule():
    for rule, engine, needed in (
        ("tensorrt-llm", "TensorRT-LLM", "relaxed_topk=10, relaxed_delta=0.3"),
        ("vllm-thinking", "vLLM", "relaxed_thinking"),
        ("vllm-fly", "vLLM", '"fly_entropy_threshold": 0.3'),
        ("sglang-acc", "SGLang", "--speculative-accept-threshold-acc 0.3"),
        ("sglang-single", "SGLang", "--speculative-accept-threshold-single 0.3"),
        ("mars", "", ""),
    ):
        found = {each.engine: each for each in engine_settings(Settings(rule=rule), 0.3)}
        assert tuple(found) == ENGINES and all("6" in each.text or "7" in each.text for each in found.values())
        lacking = [name for name in found if not found[name].has_rule]
        having = {engine} - {""} | ({"MAX"} if rule == "tensorrt-llm" else set())
        assert set(ENGINES) - set(lacking) == having
        assert not engine or needed in found[engine].text
    assert (
        engine_settings(Settings(controller="confidence:0.4"), 0.9)[3].text
        == "--spec-draft-n-max 6 --spec-draft-p-min 0.4"
    )
    tree = Settings(tree="dynamic:depth=4,topk=3,nodes=8")
    shape = "--speculative-num-steps 4 --speculative-eagle-topk 3 --speculative-num-draft-tokens 9 "
    assert engine_settings(replace(tree, rule="sglang-acc"), 0.5)[1].text.startswith(shape)
    for rule in ("vllm-thinking", "tensorrt-llm"):
        made = engine_settings(replace(tree, rule=rule), 0.3)
        assert [each.engine for each in made if each.text] == ["SGLang"] and "tree of 8 nodes" in made[0].note


def options_of(*given):
    parser = argparse.ArgumentParser()
    sweep_command.arguments(parser)
    return parser.parse_args(given)


def command(*given):
    sweep_command.run(options_of(*given))


def test_the_command_sweeps_adds_prompts_and_writes_the_evidence(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pair)
    monkeypatch.chdir(tmp_path)
    lines = [{"prompt": "Add 12 and 30.\n", "answer": "42"}, {"prompt": "Tom saw a dog. " * 300}, {"prompt": "Once"}]
    Path("set.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\nnonsense\n")
    small = "--set set.jsonl --grader last-number --out out --low 0.8 --gamma 2 --max-new-tokens 6"
    with pytest.raises(BadInput, match="line 4"):
        command(*small.split())
    assert not Path("out").exists()
    small += " --skip-bad"
    command(*small.split(), "--limit", "1")
    printed, err = capsys.readouterr()
    assert "a larger --limit adds" in printed and "Line 4" in err
    written = {path: path.read_bytes() for path in Path("out", "results").iterdir()}
    timed = "--resume --limit 3 --json --wall-clock --timed 1 --repetitions 1 --evidence pack"
    command(*small.split(), *timed.split())
    printed, err = capsys.readouterr()
    found = json.loads(printed)
    assert Path("pack", "evidence.md").is_file()
    assert (found["prompts"], found["off_is_strict"], found["wall_clock"]["strict_same_as_target"]) == (2, 2, 1)
    assert [failure["id"] for failure in found["failures"]] == ["line-2"]
    assert found["costs"]["rest"] if found["costs"] else "Measure again" in found["costs_objection"]  # if disturbed
    assert all(path.read_bytes() == data for path, data in written.items()) and load_sweep("out").complete
    refused = {"": "--resume", "--gamma 3 --resume": "gamma was 2", "--resume --limit 1": r"prompts was \d and is 1"}
    for more, why in refused.items():
        with pytest.raises(BadInput, match=why):
            command(*small.split(), *more.split())


def test_bad_options_are_refused_before_anything_is_made(tmp_path):
    for options, why in (
        ("--rule strict", "no dial"),
        ("--rule nosuch", "no rule"),
        ("--high 0.9", "strict end"),
        ("--loss 0", "tolerated loss or increase is above 0"),
        ("--confidence 1", "--confidence must"),
        ("--confidence 0.4", "at least 0.5"),
        ("--dial 0.1 --low 0.5", "--dial 0.1 is outside"),
        ("--set /nosuch.jsonl", "cannot be read"),
        ("--grader exact", "grader of their own"),
        ("--limit 0", "take at least 1"),
        ("--wall-clock --timed 0", "take at least 1"),
    ):
        with pytest.raises(BadInput, match=why):
            command("--out", str(tmp_path / "out"), *options.split())
        assert not (tmp_path / "out").exists()


def test_the_command_has_every_setting_and_repeats_what_was_chosen(result, tmp_path):
    def repeated(result, terms=None, **how):
        made = reproduction(result, terms or Terms(), **how)
        program, name, *words = shlex.split(made["command"])
        assert (program, name) == ("mars-viz", "sweep")
        return made, options_of(*words)

    odd = replace(SETTINGS, rule="lenience", gamma=4, max_new_tokens=12, stop=("the end", "it's"))
    for settings in (replace(TREES, temperature=0.8, seed=3, top_p=0.9, top_k=20), odd):
        sweep_over(folder := tmp_path / settings.rule, toy_prompts(2), settings)
        options, plan = repeated(load_sweep(folder))[1], load_sweep(folder).plan
        asked = decoding.settings_of(options)
        assert replace(asked, dial=plan.settings.dial) == plan.settings
        assert mapping_of(asked, options.over, options.low, options.high, (asked.gamma,))[1] == plan.span
    plain = repeated(result)[1]
    assert (plain.dial, plain.loss, plain.confidence) == (None, 1, 0.95)
    assert (plain.intervals, plain.wall_clock) == ("bca", False)
    terms = Terms(2.5, Bootstrap(0.9, Method.PERCENTILE))
    said = repeated(result, terms, dial=0.7, timing=timing())[1]
    assert (said.dial, said.loss, said.confidence, said.intervals) == (0.7, 2.5, 0.9, "percentile")
    assert (said.wall_clock, said.timed, said.repetitions) == (True, 3, 2)
    assert repeated(result, terms, grid="k=1,2")[1].grid == "k=1,2"
    path = tmp_path / "my set's prompts.jsonl"
    path.write_bytes(to_jsonl(toy_prompts(9)))
    sweep_over(tmp_path / "sweep2", some := load_prompts(path, limit=4))
    made, options = repeated(load_sweep(tmp_path / "sweep2"))
    assert (options.set, options.limit, options.grader) == (path.name, 4, "contains")
    assert "SHA-256" in made["needs"][0] and path.name in made["needs"][0]
    assert load_prompts(path, grader=options.grader, limit=options.limit).items == some.items


def test_every_row_of_the_dial_holds_from_end_to_end_and_no_further(result):
    found, known = stretches(result, np.linspace(0, 1, 21), TOLD), measures(result)
    names = [name for name in TOLD if name in known]

    def read(dial):
        return [alone(name, value_at(result, known[name], dial).estimate) for name in names]

    for row in found:
        inside = np.append(np.random.default_rng(0).uniform(row.low, row.high, 5), [row.low, *row.shown])
        kept = [float(dial) for dial in inside if row.low <= dial and (row.last or dial < row.high)]
        assert all(read(dial) == read(row.dial) for dial in kept)
        assert row.low <= row.shown[0] <= row.shown[1] <= row.high
        assert row.low == 0 or read(float(np.nextafter(row.low, 0))) != read(row.dial)
        assert row.last or read(row.high) != read(row.dial)
    assert [row.low for row in found] == sorted({row.low for row in found}), "no row twice"
    rows = evidence_of(result, 0.9)["grid"]
    assert [row["to"] for row in rows[:-1]] <= [row["from"] for row in rows[1:]]


def test_a_setting_that_makes_answers_loop_or_longer_is_not_recommended():
    result = load_sweep(SWEEPS / "9-holders-eagle3-tree")
    assert recommended(result, Terms()).dial == recommended(result, accuracy(1, 0.95)).dial == 0.5
    loose, lines = result.lines["high"] <= 0.8, result.lines
    for column, words in (
        ("looping", "Looser settings make more answers loop: "),
        ("cut_off", "reach the length limit: "),
    ):
        worse = replace(result, lines={**lines, column: loose.astype(np.int8)})
        found = recommended(worse, Terms())
        assert found.limited_by == column and 0.5 < found.dial < 0.8, found.sentence
        assert words in found.sentence and found.sentence.endswith("of 640 answers, 0 at strict.")
        assert recommended(worse, accuracy(1, 0.95)).dial == 0.5  # by accuracy alone it is
    ungraded = {**result.prompts, "target_right": np.full(len(result), -1)}
    free = replace(result, prompts=ungraded, lines={**lines, "right": np.full(len(loose), -1)})
    found = recommended(free, Terms())
    assert found.dial == 0.5 and found.changed is None and found.sentence.startswith("Without grades: θ = 0.5 is")
    tokens = np.where(loose, 50 * lines["tokens"], lines["tokens"])
    longer = recommended(replace(free, lines={**free.lines, "tokens": tokens}), Terms())
    assert longer.limited_by == "length" and 0.5 < longer.dial < 0.85
    few = result.starts[4]  # the first four prompts
    first = {name: values[:4] for name, values in ungraded.items()}
    short = replace(free, prompts=first, starts=result.starts[:5], lines={n: v[:few] for n, v in free.lines.items()})
    assert recommended(short, Terms()).dial is None and recommended(short, Terms()).limited_by == "cut_off"


def test_time_per_answer_divides_the_time_per_token_by_the_length():
    result = load_sweep(SWEEPS / "4-turns-mars")
    known, ways = measures(result), ("answer", "answer_strict", "speed_up", "speed_up_strict", "length")
    answer, answer_strict, per_token, per_token_strict, length = (value_at(result, known[n], 0.9) for n in ways)
    assert answer.estimate == pytest.approx(per_token.estimate / length.estimate) and length.estimate > 1
    assert answer_strict.estimate == pytest.approx(per_token_strict.estimate / length.estimate)
    assert answer.low < answer.estimate < answer.high < per_token.high
    assert value_at(result, known["answer_strict"], 1.0).high == 1


def test_the_chosen_setting_and_the_terms(result):
    found, nothing = recommended(result, accuracy(60, 0.6)), recommended(result, accuracy(0.1, 0.95))
    assert nothing is not None and nothing.dial is None
    recommended_, by_hand_, default = "recommended", "by_hand", "default"
    for dial, advice, origin, chosen in (
        (found.dial, found, recommended_, recommended_),
        (0.123, found, by_hand_, by_hand_),
        (0.9, nothing, default, by_hand_),
    ):
        data = evidence_of(result, dial, recommendation=advice)
        forced = evidence_of(result, dial, recommendation=advice, by_hand=True)
        assert [data["chosen"]["how"], forced["chosen"]["how"]] == [origin, chosen]
        told = "was chosen by hand" in data["chosen"]["words"]
        assert told == ("--dial" in data["reproduction"]["command"]) == (origin is by_hand_)
    terms = accuracy(3, 0.8)
    files = evidence_files(result, dial=0.9, recommendation=advised(result, accuracy(3, 0.8)), terms=terms)
    text = files["evidence.md"].decode()
    assert "80 %" in text and "at most 3 points" in text and "95 %" not in text.replace("its 95 % interval", "")
    wide = evidence_files(result, dial=0.9, terms=accuracy(3, 0.99))["evidence.json"].decode()
    assert '"confidence": 0.99' in wide and '"confidence": 0.95' not in wide
    assert "80 %" in summary_of(result, 0.9, terms=terms)
    for points, confidence in ((0, 0.95), (101, 0.95), (nan, 0.9), (1, 0.4)):
        with pytest.raises(BadInput, match="tolerated loss or increase is above 0"):
            Terms(points, Bootstrap(confidence))


def test_each_task_has_what_a_sweep_of_it_alone_has_and_its_loss_is_named(tmp_path, result):
    rows = CachedSweep(result).tasks(0.6)
    assert [(row.task, row.prompts, row.graded) for row in rows] == [("even", 6, 6), ("odd", 6, 6), (TOGETHER, 12, 12)]
    items = toy_prompts(12).items
    for row in rows:
        own = tuple(item for item in items if row.task in (item.category, TOGETHER))
        sweep_over(tmp_path / row.task, PromptSet(row.task, own), SETTINGS)
        other = load_sweep(tmp_path / row.task)
        for at, side in ((other.plan.strict, row.strict), (0.6, row.chosen)):
            assert side == {name: value_at(other, measures(other)[name], at) for name in side}
        assert row.task == TOGETHER or CachedSweep(other).tasks(0.6) == (), "one task is all of it"
    half = tuple(replace(item, answer=None, grader="none") if i % 2 else item for i, item in enumerate(items))
    sweep_over(tmp_path / "half", PromptSet("half", half))
    even, odd, whole = CachedSweep(load_sweep(tmp_path / "half")).tasks(0.6)
    assert "accuracy" in even.chosen and "accuracy" not in odd.chosen and (odd.graded, whole.graded) == (0, 6)
    assert "not graded" in summary_of(load_sweep(tmp_path / "half"), 0.6)
    rows = [
        TaskResults(task, 9, 9, {}, {"accuracy_change": Interval(change, low, high, 0.95, Method.BCA)})
        for task, low, change, high in (
            ("a", -0.08, -0.05, -0.03),
            ("b", -0.02, 0.01, 0.04),
            (TOGETHER, -0.03, -0.02, -0.01),
        )
    ]
    assert "a −5 points (−8 to −3)" in losing(rows, Terms(1), "strict")
    assert losing(rows, Terms(3.5), "strict") == losing(rows[1:], Terms(1), "strict") == ""


def test_two_prompts_have_no_bootstrap_interval(tmp_path):
    result, enough = (toy_sweep(tmp_path / str(count), count).finish() for count in (2, FEWEST))
    known = measures(result)
    assert all(np.isnan(value_at(result, known[name], 0.4).low) for name in ("tau", "speed_up", "rolled_back"))
    for name in ("accuracy", "accuracy_change", "same"):
        found = value_at(result, known[name], 0.4)
        assert found.low <= found.estimate <= found.high and found.high - found.low > 0.3, name
    for text in (summary_of(result, 0.4), evidence_files(result, dial=0.4)["evidence.md"].decode()):
        assert "(no interval)" in text and "nan" not in text
    assert np.isfinite(value_at(enough, measures(enough)["rolled_back"], 0.4).low)


def test_drafters_of_the_same_prompts_are_rows_of_one_table():
    names = (
        "1-counting-eagle3",
        "2-counting-mars",
        "11-counting-mtp",
        "12-counting-dflash",
        "13-counting-suffix-eagle3",
    )
    first, *others = swept = [CachedSweep(load_sweep(SWEEPS / name)) for name in names]
    assert all(only_drafter_differs(first.plan, each.plan) for each in others)
    same = (first, CachedSweep(load_sweep(SWEEPS / "3-holders-mars")))
    assert not any(only_drafter_differs(first.plan, each.plan) for each in same)
    rows = {row[0]: row for row in by_drafter(swept, 0.9).rows}
    paces = {each.plan.provenance.drafter: each.value("answer", 0.9).estimate for each in swept}
    assert list(rows) == sorted(paces, key=lambda drafter: -paces[drafter])
    for each in swept:
        row, costs = rows[each.plan.provenance.drafter], each.result.costs
        assert [float(cell) for cell in row[-6:]] == [
            pytest.approx(share.estimate, abs=6e-4) for share in each.positions(0.9)["conditional"]
        ]
        whole = costs.drafting[-1].seconds if costs.drafting else 6 * costs.drafter_step.seconds
        assert float(row[4].split()[0]) == pytest.approx(whole / costs.passes[0].seconds, abs=6e-3)
    mixed, head = (rows[drafter] for drafter in ("suffix:n=16,min=3+eagle3", "eagle3"))
    assert float(mixed[4].split()[0]) > 0.8 * float(head[4].split()[0]), "its model's cost"
