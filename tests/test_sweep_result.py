"""What is read off a sweep: exact curves, paired bands, the frontier, the recommendation, the evidence, the command."""

import argparse
import csv
import itertools
import json
import re
from dataclasses import replace
from math import nan

import numpy as np
import pytest
from sweep_cases import COSTS, SETTINGS, SHORT, TREES, timing, toy_prompts, toy_sweep

from mars_viz.analysis.intervals import difference, ratio, ratio_of_ratios, wilson
from mars_viz.analysis.recommendation import recommend
from mars_viz.analysis.steps import plain_within, stacked, total
from mars_viz.commands import decoding
from mars_viz.commands import sweep as sweep_command
from mars_viz.costs import modelled_speed_up
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.run import Settings
from mars_viz.sweep import (
    Sweep,
    band_at,
    curve,
    frontier,
    load_sweep,
    measures,
    places,
    relaxed_at,
    value_at,
)
from mars_viz.sweep.engine_settings import ENGINES, engine_settings
from mars_viz.sweep.evidence import NOT_MEASURED, dial_grid
from mars_viz.sweep.evidence_pack import write_evidence
from mars_viz.sweep.evidence_text import markdown, table
from mars_viz.sweep.figure_words import told
from mars_viz.sweep.pairing import SweepSetting, pair
from mars_viz.sweep.report import summary_lines, table_of
from mars_viz.sweep.result import recommended
from mars_viz.sweep.timing import keep_check, kept_checks
from mars_viz.sweep.wall_clock import spread_over
from mars_viz.ui.compare import sweep_pair
from mars_viz.ui.compare.compare_words import Names
from mars_viz.ui.links import to_parameters
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.page_state import TuneView
from mars_viz.ui.tune.words import coverage
from mars_viz.words import exact_setting, exactly, number, times
from tests.tables import table_backend


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return toy_sweep(tmp_path_factory.mktemp("sweeps") / "sweep", 12).finish()


def lines_at(result, column, dial):
    found = []
    for start, end in zip(result.starts, result.starts[1:], strict=False):
        rows = [row for row in range(start, end) if result.lines["low"][row] <= dial]
        found.append(result.lines[column][rows[-1]])
    return np.array(found)


def test_curves_are_the_pooled_lines_everywhere(result):
    known = measures(result)
    curves = {name: curve(result, measure) for name, measure in known.items()}
    dials = [*np.random.default_rng(0).uniform(0, 1, 10).tolist(), *result.edges[:-1:3].tolist(), 1.0]
    for dial in dials:
        tokens, rounds, right = (lines_at(result, name, dial).sum() for name in ("tokens", "rounds", "right"))
        assert curves["tau"].at(dial) == pytest.approx(tokens / rounds)
        assert curves["accuracy"].at(dial) == pytest.approx(right / 12)
        assert curves["speed_up"].at(dial) == pytest.approx(float(modelled_speed_up(COSTS, tokens, rounds, 3)))
        strict = lines_at(result, "tokens", 1.0).sum() / lines_at(result, "rounds", 1.0).sum()
        assert curves["speed_up_strict"].at(dial) == pytest.approx(tokens / rounds / strict)
        assert curves["acceptance"].at(dial) == pytest.approx(
            lines_at(result, "kept", dial).sum() / lines_at(result, "drafted", dial).sum()
        )
    assert [curves[name].at(1.0) for name in ("accuracy_change", "same", "edits")] == [0, 1, 0]
    assert all(len(each) <= len(result.edges) - 1 for each in curves.values())


def test_bands_are_paired_and_agree_with_the_curves(result):
    dials = places(result)
    assert (dials[0], dials[-1]) == (0.0, 1.0)
    assert len(places(result, 5)) == 5
    for measure in measures(result).values():
        band = band_at(result, measure, dials)
        np.testing.assert_allclose(band.estimate, [curve(result, measure).at(dial) for dial in dials])
    known, loose = measures(result), dials[0]
    tokens, rounds, right = (lines_at(result, name, loose) for name in ("tokens", "rounds", "right"))
    tokens1, rounds1, right1 = (lines_at(result, name, 1.0) for name in ("tokens", "rounds", "right"))
    assert value_at(result, known["tau"], loose) == ratio(tokens, rounds)
    assert value_at(result, known["accuracy_change"], loose) == difference(right, right1)
    ours = value_at(result, known["speed_up_strict"], loose)
    theirs = ratio_of_ratios((tokens, rounds), (tokens1, rounds1))
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
    assert every[0] == -1 and -1 < every[1] < 0
    assert turned == (-every[1], 1)
    for part, count in itertools.product((-0.5, -1 / 3, 0.25, 0.9), (2, 10, 40)):  # each question loses or wins a part
        low, high = agreed(part, count, 0.95)
        assert -1 <= low < part < high <= 1 and agreed(-part, count, 0.95)[0] == pytest.approx(-high)
    strict = [value_at(same, known[name], 1.0) for name in ("accuracy_change", "same", "speed_up_strict")]
    assert [(each.low, each.high) for each in strict] == [(0, 0), (1, 1), (1, 1)]  # by definition, not by luck
    assert frontier(same, paired=True).accuracy.low[0] == pytest.approx(-wide, abs=1e-6)


def test_the_frontier_goes_through_the_curves_at_short_dial_values(result):
    path = frontier(result)
    known = measures(result)
    assert path.over == "the target alone"
    np.testing.assert_allclose(path.accuracy.estimate, [curve(result, known["accuracy"]).at(d) for d in path.dials])
    np.testing.assert_allclose(path.speed_up.estimate, [curve(result, known["speed_up"]).at(d) for d in path.dials])
    assert frontier(replace(result, costs=None)).over == "strict"
    assert "speed_up" not in measures(replace(result, costs=None))
    raw, named = places(result), frontier(result).dials
    assert (named[0], named[-1]) == (raw[0], raw[-1])
    for column in ("tokens", "right"):  # the last stretch is named twice in `places`, by its begin and by its end
        assert np.array_equal(np.unique(result.at(column, raw), axis=1), np.unique(result.at(column, named), axis=1))
    assert sum(len(exactly(value)) for value in named) < sum(len(exactly(value)) for value in raw)
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
    for each, mask in ((result, None), (partly, chosen)):
        beside = stacked([steps.simplified() for steps in each.each("right", mask)])
        assert np.array_equal(each.graded_steps().steps.edges, beside.edges)
        assert np.array_equal(each.graded_steps().steps.values, beside.values == 1)


def test_lines_that_were_looked_for_before_are_found_again(result):
    whole = np.linspace(0, 1, 9)
    first, chosen = result.at("tokens", whole), np.arange(len(result)) < 5
    for dial in np.linspace(0, 1, 30):
        assert result.at("rounds", np.array([dial]))[:, 0].tolist() == lines_at(result, "rounds", dial).tolist()
    assert np.array_equal(result.at("tokens", whole, chosen), first[:5])
    assert np.array_equal(result.at("tokens", whole), first)
    with pytest.raises(BadInput, match="The sweep goes from 0 to 1"):
        result.at("tokens", np.array([0.5, np.nan]))


def test_a_rule_that_is_strict_at_its_low_end(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 6, Settings(rule="tensorrt-llm", gamma=3, max_new_tokens=16)).finish()
    assert result.graded_steps().strict == 0
    assert curve(result, measures(result)["same"]).at(0.0) == 1
    assert relaxed_at(result, 0.0).by_rank.sum() == 0
    loose = relaxed_at(result, 1.0)
    assert loose.by_rank.sum() == loose.by_share.sum() == result.at("relaxed", np.array([1.0])).sum() > 0


def test_a_set_without_grades_has_speed_and_agreement_only(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 3, graded=False).finish()
    assert not {"accuracy", "accuracy_change"} & set(measures(result))
    for refused in (lambda: result.graded_steps(), lambda: frontier(result)):
        with pytest.raises(BadInput, match="No prompt of the set is graded"):
            refused()
    assert "no accuracy" in (write_evidence(tmp_path / "pack", result, dial=0.9) / "evidence.md").read_text()
    with pytest.raises(BadInput, match="goes from 0 to 1"):
        result.acceptance(1.5)


def test_checks_are_kept_beside_the_sweep_and_damaged_ones_named(result, tmp_path):
    check = timing()
    assert check.over_strict.estimate == pytest.approx(2)
    assert check.over_target.estimate == pytest.approx(2.4)
    assert check.pace(check.strict).estimate == pytest.approx(60 / (1.1 + 2.05 + 3.15))
    assert check.facts()["repetitions"] == 2
    result = toy_sweep(tmp_path / "sweep2", 2, SHORT).finish()
    first = replace(timing(SHORT.gamma), created="2026-01-01T00:00:00+00:00", modelled_over_target=nan)
    assert kept_checks(result.folder, result.plan).found == ()
    for check in (replace(first, created="2026-01-03"), first, replace(first, dial=0.98765, created="2026-01-02")):
        keep_check(result.folder, check)
    found = kept_checks(result.folder, result.plan)
    assert [check.created[-2:] for check in found.found] == ["00", "02", "03"] and found.problems == ()
    assert found.found[0].to_json() == first.to_json() and found.found[0].over_strict == first.over_strict
    latest = found.latest(0.9), found.latest(0.98765), found.latest(0.5)
    assert [None if each is None else each.created[:10] for each in latest] == ["2026-01-03", "2026-01-02", None]
    assert load_sweep(result.folder).complete and toy_sweep(result.folder, 2, SHORT, resume=True).finish().complete
    (tmp_path / "checks22").write_text("a file where the folder should be")
    with pytest.raises(BadInput, match="was not kept"):
        keep_check(tmp_path, timing())
    result = toy_sweep(tmp_path / "sweep3", 1, SHORT).finish()
    keep_check(result.folder, timing(SHORT.gamma))
    path = keep_check(result.folder, timing(SHORT.gamma))
    text = path.read_text()
    for old, new, why in (
        ('"mars-viz-wall-clock"', '"else"', "another file"),
        ('"schema": 1', '"schema": 3', "its schema is 3"),
        ('"gamma": 2', '"gamma": 9', "of another sweep"),
        ('"gamma": 2', '"gamma": Infinity', "damaged"),
        ("1.2", "0.0", "damaged"),
        ('"rounds"', '"laps"', "damaged"),
        ("}", "", "damaged"),
    ):
        path.write_text(text.replace(old, new))
        found = kept_checks(result.folder, result.plan)
        assert len(found.found) == 1 and len(found.problems) == 1
        assert path.name in found.problems[0] and why in found.problems[0]


def read_csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_evidence_has_the_same_numbers_in_three_forms(result, tmp_path):
    found = recommend(result.graded_steps(), 40, 0.8, symbol="θ")
    checks = [replace(timing(), created=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2)]
    checks.append(replace(checks[0], dial=0.5))
    path = write_evidence(tmp_path / "pack", result, dial=0.9, recommendation=found, checks=checks)
    names = ["engines", "grid", "prompts", "stretches", "summary", "tasks"]
    assert {file.name for file in path.iterdir()} == {
        "evidence.json",
        "evidence.md",
        *(f"{name}.csv" for name in names),
    }
    data, text = json.loads((path / "evidence.json").read_text()), (path / "evidence.md").read_text()
    assert (data["models"]["target"], data["data_set"]["n"], len(data["engines"])) == ("toy-target", 12, 9)
    assert data["off_is_strict"] == data["off_is_strict"] | {"same": 12, "n": 12, "different": []}
    assert {row["dial"] for row in data["grid"]} >= {0.9, 1.0}
    relaxed = data["relaxed_tokens"]
    total, second = sum(relaxed["by_target_rank"].values()), relaxed["shares_by_target_rank"]["2"]
    assert second["estimate"] == pytest.approx(relaxed["by_target_rank"]["2"] / total)
    assert second["low"] <= second["estimate"] <= second["high"]
    assert data["wall_clock"]["created"] == "2026-01-02T00:00:00+00:00"  # the newest of this setting
    assert [each["dial"] for each in data["wall_clock_checks"]] == [0.9, 0.9, 0.5]
    assert text == markdown(data) and found.sentence in text and text.count("| 2026-01-0") == 3
    engines = read_csv(path / "engines.csv")
    assert [row["engine"] for row in engines] == [row["engine"] for row in data["engines"]]
    low, length, high = (float(engines[0][name]) for name in ("length_low", "length", "length_high"))
    assert low < length < high and length == data["engines"][0]["length"]
    assert (engines[8]["length"], engines[8]["length_low"]) == ("", "")  # LM Studio reports none
    assert f"{number(length)} ({number(low)} to {number(high)})" in text
    accuracy = {name: each["wilson"]["estimate"] for name, each in data["accuracy"].items()}
    assert float(read_csv(path / "grid.csv")[-1]["accuracy"]) == accuracy["strict"]
    alone, strict, chosen = read_csv(path / "summary.csv")
    assert [row["setting"] for row in (alone, strict, chosen)] == ["target", "strict", "chosen"]
    assert {row["target"] for row in (alone, strict, chosen)} == {"toy-target"} and alone["n"] == "12"
    assert (alone["dial"], float(strict["dial"]), float(chosen["dial"])) == ("", 1.0, 0.9)
    tau = next(row for row in data["figures"] if row["figure"] == "tau")["settings"]["chosen"]
    ends = [float(chosen[f"tau{end}"]) for end in ("", "_low", "_high")]
    assert ends == [tau[k] for k in ("estimate", "low", "high")] and tau["dial"] == 0.9
    assert float(alone["tokens_per_second"]) == data["wall_clock"]["tokens_per_second"]["target"]["estimate"]
    assert alone["tau"] == "" and float(alone["accuracy"]) == accuracy["target"]
    assert float(chosen["measured_over_target_low"]) == data["wall_clock"]["measured_over_target"]["low"]
    tokens = [int(line["chosen_tokens"]) for line in read_csv(path / "prompts.csv")]
    assert tokens == lines_at(result, "tokens", 0.9).tolist()
    with pytest.raises(BadInput, match="exists already"):
        write_evidence(path, result, dial=0.9)


FINE = 0.98765432


def test_a_dial_value_is_printed_in_full(result, tmp_path):
    assert [exactly(value) for value in (0.9, 1.0, FINE, 0.1 + 0.2)] == ["0.9", "1", str(FINE), "0.30000000000000004"]
    assert [exact_setting("θ", value) for value in (0.9, FINE)] == ["θ = 0.90", "θ = 0.98765432"]
    pack = write_evidence(tmp_path / "pack", result, dial=FINE)
    texts = ["\n".join(summary_lines(result, FINE)), (pack / "evidence.md").read_text()]
    texts += [str(to_parameters(TuneView("a", FINE))), engine_settings(Settings(rule="sglang-acc"), FINE)[1].text]
    texts.append(engine_settings(Settings(rule="vllm-thinking"), FINE)[0].note)
    assert all("0.98765432" in text for text in texts)


def test_figures_of_a_sweep_of_trees_name_its_shape(tmp_path):
    tree = "tree of 5 nodes, depth 3, branching 2"
    result = toy_sweep(tmp_path / "trees", 6, TREES).finish()
    made = json.loads((write_evidence(tmp_path / "pack", result, dial=0.9) / "evidence.json").read_text())
    assert tree in "\n".join(summary_lines(result, 0.9)) and tree in coverage(CachedSweep(result))
    assert (made["rule"]["tree"], made["rule"]["gamma"]) == ("dynamic:depth=3,topk=2", 5)
    assert len(made["synthetic_acceptance"]["rates"]) == 3  # a place each on the longest path
    assert "speed_up" in measures(result)
    assert "speed_up" not in measures(replace(result, costs=replace(result.costs, tree="chain", drafting=())))
    both = pair(
        SweepSetting(toy_sweep(tmp_path / "chains", 6, replace(TREES, tree="chain")).finish(), 0.9),
        SweepSetting(result, 0.9),
    )
    assert sweep_pair.names(both) == Names("MARS at θ = 0.90 with γ = 5", f"MARS at θ = 0.90 with {tree}")


def test_numbers_and_times_are_printed_in_their_units():
    printed = {1.0: "1", 1.0042: "1.004", 0.9961: "0.996", 1.0096: "1.01", 1.2: "1.20", 0.99999: "1.00", nan: "–"}
    assert [times(value) for value in printed] == [*printed.values()]
    for name, values, text in (
        ("accuracy_change", (-0.0467, -0.0767, 0), "−4.7 points (−7.7 to 0)"),
        ("same", (0.5, 0.25, 1), "50 % (25 to 100)"),
        ("speed_up_strict", (1.0042, 1.0021, 1.0061), "1.004 (1.002 to 1.006)"),
        ("speed_up_strict", (1.0042, 1, 1.2), "1.00 (1 to 1.20)"),
        ("tau", (1.0042, 1, 1.2), "1.00 (1 to 1.20)"),
    ):
        assert told(name, values) == text
    rows = [["a | <b>\n[c](d) `e`", "\u202e\x1b"], ["---", "# **f**"]]
    assert table(["", "b"], rows).splitlines() == [
        "|  | b |",
        "| --- | --- |",
        "| a \\| \\<b\\> \\[c\\](d) \\`e\\` | U+202EU+001B |",
        "| \\--- | \\# \\*\\*f\\*\\* |",
    ]
    texts = [str(place) for place in range(9)]
    assert spread_over(texts, 5) == ["0", "2", "4", "6", "8"]
    assert spread_over(texts, 1) == ["0"]
    assert spread_over(texts, 20) == texts


def test_recommended_and_listed_dial_values_are_within_the_range(tmp_path):
    settings = Settings(rule="top-k-set", gamma=3, max_new_tokens=16)
    result = toy_sweep(tmp_path / "sweep", 6, settings).finish()
    right = (result.lines["low"] < 4).astype(np.int8)  # looser than that, every answer is wrong
    found = recommended(replace(result, lines={**result.lines, "right": right}), 20, 0.5)
    assert found is not None and found.dial is not None and 3 <= found.dial < 64
    assert found.dial.is_integer() and found.sentence.startswith(f"k = {found.dial:.0f} is the loosest")
    span = Span(0.12345678, 1.0, (3,))
    result = Sweep(table_backend(), toy_prompts(1), SETTINGS, span, tmp_path / "sweep2").finish()
    assert dial_grid(replace(result, plan=replace(result.plan, low=0.1234564)), 0.9)[0] == 0.1234564
    assert dial_grid(result, 0.9)[0] >= 0.12345678


def test_the_evidence_admits_what_was_not_measured(result, tmp_path):
    path = write_evidence(tmp_path / "pack", replace(result, costs=None), dial=1.0)
    assert json.loads((path / "evidence.json").read_text())["tokens_per_second"] == NOT_MEASURED
    text = (path / "evidence.md").read_text()
    assert "not measured" in text and "No token was relaxed" in text
    summary = "\n".join(summary_lines(result, 0.9, timing()))
    assert all(each in summary for each in ("θ = 1", "θ = 0.9", "θ = 0", "12 of 12", "Tokens a second"))
    assert {row["figure"]: row for row in table_of(result, 0.9)}["speed_up"]["basis"] == "modelled"
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        write_evidence(tmp_path / "file" / "pack", result, dial=0.9)


def test_engines_get_settings_where_they_have_the_rule():
    for rule, engine, needed in (
        ("tensorrt-llm", "TensorRT-LLM", "relaxed_topk=10, relaxed_delta=0.3"),
        ("vllm-thinking", "vLLM", "relaxed_thinking"),
        ("vllm-fly", "vLLM", '"fly_entropy_threshold": 0.3'),
        ("sglang-acc", "SGLang", "--speculative-accept-threshold-acc 0.3"),
        ("sglang-single", "SGLang", "--speculative-accept-threshold-single 0.3"),
        ("mars", "", ""),
    ):
        found = engine_settings(Settings(rule=rule), 0.3)
        assert tuple(each.engine for each in found) == ENGINES
        assert [each.engine for each in found if each.text] == ([engine] if engine else [])
        assert all(needed in each.text for each in found if each.text)
        assert all("does not exist there" in each.note for each in found if not each.text)
    tree = Settings(tree="dynamic:depth=4,topk=3,nodes=8")
    shape = "--speculative-num-steps 4 --speculative-eagle-topk 3 --speculative-num-draft-tokens 9 "
    assert engine_settings(replace(tree, rule="sglang-acc"), 0.5)[1].text.startswith(shape)
    for rule in ("vllm-thinking", "tensorrt-llm"):
        found = engine_settings(replace(tree, rule=rule), 0.3)
        assert not any(each.text for each in found) and any("tree of 8 nodes" in each.note for each in found)


@pytest.fixture
def loaded(pair, monkeypatch):
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pair)


def command(*given):
    parser = argparse.ArgumentParser()
    sweep_command.arguments(parser)
    sweep_command.run(parser.parse_args(given))


@pytest.mark.usefixtures("loaded", "unmeasured")
def test_the_command_says_what_adds_prompts_and_adds_them(tmp_path, capsys):
    path, out = tmp_path / "set.jsonl", tmp_path / "out"
    lines = [{"prompt": f"Add 1 and {n}.\n", "answer": f"{n + 1}"} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, lines)))
    common = ["--gamma", "2", "--max-new-tokens", "6", "--low", "0.8", "--out", str(out)]
    command(*common, "--limit", "1")
    suggested = re.search(r"--resume --limit (\d+)", capsys.readouterr().out)
    assert suggested is not None and 6 * int(suggested[1]) >= 100
    written = {path: path.read_bytes() for path in (out / "results").iterdir()}
    for more in (["--limit", "2"], []):  # without --limit as many as there are
        command(*common, "--resume", *more)
        assert "12 prompts" in capsys.readouterr().out
    assert len(written) == 6 and all(path.read_bytes() == data for path, data in written.items())
    with pytest.raises(BadInput, match="number of prompts was 12 and is 6"):
        command(*common, "--resume", "--limit", "1")
    command(*common, "--set", str(path), "--grader", "last-number", "--limit", "1", "--out", str(tmp_path / "b"))
    assert "has 3 that are graded" in capsys.readouterr().out


@pytest.mark.usefixtures("loaded")
def test_the_command_sweeps_resumes_and_writes_the_evidence(tmp_path, capsys):
    prompts = tmp_path / "set.jsonl"
    lines = [{"prompt": "Add 12 and 30.\n", "answer": "42"}, {"prompt": "Tom saw a dog. " * 300}, {"prompt": "Once"}]
    prompts.write_text("\n".join(json.dumps(line) for line in lines) + "\nnonsense\n")
    common = ["--set", str(prompts), "--grader", "last-number", "--out", str(tmp_path / "out"), "--low", "0.8"]
    small = [*common, "--gamma", "2", "--max-new-tokens", "6"]
    with pytest.raises(BadInput, match="line 4"):
        command(*small)
    assert not (tmp_path / "out").exists()
    timed = ["--wall-clock", "--timed", "1", "--repetitions", "1", "--evidence", str(tmp_path / "evidence")]
    command(*small, "--skip-bad", "--json", *timed)
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert "Line 4" in err and "line-2" in err
    assert (found["prompts"], found["off_is_strict"], found["wall_clock"]["strict_same_as_target"]) == (2, 2, 1)
    assert [failure["id"] for failure in found["failures"]] == ["line-2"]
    measured = found["costs"] is not None  # on a busy machine they may not be
    assert found["costs"]["rest"] if measured else "Measure again" in found["costs_objection"]
    assert (tmp_path / "evidence" / "evidence.md").is_file()
    with pytest.raises(BadInput, match="--resume"):
        command(*small, "--skip-bad")
    with pytest.raises(BadInput, match="gamma was 2 and is 3"):
        command(*small, "--gamma", "3", "--skip-bad", "--resume")
    command(*small, "--skip-bad", "--resume")
    out, err = capsys.readouterr()
    assert "Not enough prompts" in out and "2 of 2 texts" in out
    assert load_sweep(tmp_path / "out").complete


def test_bad_options_are_refused_before_anything_is_made(tmp_path):
    for options, why in (
        ("--rule strict", "no dial"),
        ("--rule nosuch", "no rule"),
        ("--high 0.9", "strict end"),
        ("--loss 0", "tolerated loss is above 0"),
        ("--confidence 1", "--confidence must"),
        ("--confidence 0.4", "at least 0.5"),
        ("--dial 0.1 --low 0.5", "--dial 0.1 is outside"),
        ("--set /nosuch.jsonl", "cannot be read"),
        ("--grader exact", "grader of their own"),
        ("--limit 0", "make no set"),
        ("--wall-clock --timed 0", "at least one prompt"),
    ):
        with pytest.raises(BadInput, match=why):
            command("--out", str(tmp_path / "out"), *options.split())
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("column", ["tokens", "right", "agreed"])
def test_sums_of_all_prompts_at_once_are_those_of_one_after_the_other(result, column):
    for chosen in (None, result.graded, np.arange(len(result)) % 3 == 1):
        fast, slow = result.summed(column, chosen), total(result.each(column, chosen))
        assert np.array_equal(fast.edges, slow.edges) and np.array_equal(fast.values, slow.values)
    with pytest.raises(BadInput):
        result.summed(column, np.zeros(len(result), bool))
