"""Grids: each variant's sweep is what it would be by itself, no prefix is asked twice, and the tables say the same."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from factories import Counting
from sweep_cases import COSTS, accuracy, asking, equal, evidence_files, toy_prompts, toy_sweep
from test_turns import talks

from mars_viz import cli, locks
from mars_viz.axis import Span
from mars_viz.commands import decoding
from mars_viz.commands import sweep as command
from mars_viz.errors import BadInput
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators import loading
from mars_viz.sweep import Sweep, load_sweep
from mars_viz.sweep.document import few_dials
from mars_viz.sweep.evidence import DEFAULT_TERMS, dial_grid
from mars_viz.sweep.grid import advised, grid_of, recommended
from mars_viz.sweep.measures import cell
from mars_viz.sweep.report import Advised, CachedSweep, best_of, grid_table
from tests.tables import table_backend

VLLM = Settings(rule="vllm-thinking", gamma=3, max_new_tokens=16)
WHOLE = Span(0.0, 1.0, (3,))
GRID = grid_of(rule_named("vllm-thinking"), "k=1,2,3,5")


def toy_grid(out, *, count=5, **how):
    settings, folders = GRID.settings(VLLM), GRID.folders(out)
    return Sweep(table_backend(), toy_prompts(count), settings, WHOLE, folders, costs=lambda: COSTS, **how)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    for _ in (sweep := toy_grid(tmp_path_factory.mktemp("grid") / "out", count=8)):
        pass
    return sweep.results()


def test_a_grid_is_read_with_its_folders_or_refused():
    names = ["vllm-thinking:k=1", "vllm-thinking:k=2", "vllm-thinking", "vllm-thinking:k=5"]
    assert GRID.values == (1, 2, 3, 5) and [each.rule for each in GRID.settings(VLLM)] == names
    assert [path.name for path in GRID.folders(Path("o"))] == [f"vllm-thinking-k{k}" for k in (1, 2, 3, 5)]
    assert grid_of(rule_named("fly"), " W = 5, 4,4.0").values == (4, 5)
    for rule, text, why in (
        ("mars", "k=1", "no settings other than"),
        ("vllm-thinking", "n=1", "it has k"),
        ("vllm-thinking", "k", "names no values"),
        ("vllm-thinking", "k=", "names no values"),
        ("vllm-thinking", "k=1,,2", "missing between commas"),
        ("vllm-thinking", "k=1,two", "'two' is no number"),
        ("vllm-thinking", "k=1,17", "from 1 to 16"),
        ("vllm-thinking", "k=1.5", "whole number"),
        ("vllm-thinking:k=5", "k=1,2", "so does the grid"),
        ("typical", "c=" + ",".join(f"{0.1 * i:.1f}" for i in range(1, 19)), "at most 16"),
    ):
        with pytest.raises(BadInput, match=why):
            grid_of(rule_named(rule), text)


@pytest.mark.parametrize("batch", [3, 8])
@pytest.mark.parametrize("prompts", [toy_prompts(5), talks()], ids=["prompts", "talks"])
def test_every_variant_is_as_if_swept_alone_and_no_prefix_is_asked_twice(tmp_path, batch, prompts):
    opened = []
    backend = asking(table_backend(), lambda settings: opened.append(Counting(VLLM)) or opened[-1])
    settings, folders = GRID.settings(VLLM), GRID.folders(tmp_path)
    grid = Sweep(backend, prompts, settings, WHOLE, folders, batch=batch)
    with locks.held(folders[-1]):
        with pytest.raises(BadInput, match="is in use"):
            next(iter(grid))
        assert not opened and not any(locks.holder(folder) for folder in folders[:-1])
    for _ in grid:
        assert all(locks.holder(folder) is not None for folder in folders)
    results = grid.results()
    asked = [prefix for one in opened for batch_ in one.batches for prefix in batch_]
    assert len(asked) == len(set(asked)) and not grid._mapper.shared and len(opened) <= 2
    apart = 0
    for each, result in zip(settings, results, strict=True):
        alone = Sweep(table_backend(), prompts, each, WHOLE, tmp_path / f"alone-{each.rule}").finish()
        assert equal(alone, result) and result.complete
        apart += alone.positions
    assert len({tuple(result.lines["tokens"].tolist()) for result in results}) > 2  # the variants do differ
    assert 3 * len(asked) < apart  # positions, three a prefix: sharing did save something


def test_answers_are_shared_no_longer_than_needed(tmp_path):
    sweep = toy_grid(tmp_path / "grid", count=12, batch=1)
    shares, held = zip(*((now.share, len(sweep._mapper.shared)) for now in sweep), strict=True)
    prefixes = sweep.results()[-1].positions / 3  # of twelve prompts, by the loosest variant alone
    assert not sweep._mapper.shared and 0 < max(held) < prefixes / 2 and 0 <= min(shares) <= max(shares) <= 1
    settings, folders = (
        [*GRID.settings(VLLM), replace(VLLM, rule="vllm-thinking:k=6")],
        [*sweep.folders, tmp_path / "6"],
    )
    more = Sweep(table_backend(), toy_prompts(12), settings, WHOLE, folders, resume=True, batch=1)
    mapped = {number for _ in more for each in more._mapper._hand.values() for number in each.walkers}
    assert mapped == {4} and more.results()[4].complete, "what is finished is mapped again"


def given(results, terms=DEFAULT_TERMS):
    return Advised.each([CachedSweep(result) for result in results], terms)


def test_the_evidence_holds_every_sweeps_own_values(swept, tmp_path):
    variants = given(swept, accuracy(1.0, 0.95))
    beside = [*variants[:2], *variants[3:]]
    files = evidence_files(swept[2], dial=0.4, recommendation=variants[2].found, beside=beside)
    data, text = json.loads(files["evidence.json"]), files["evidence.md"].decode()
    found = data["setting_grid"]
    lines = list(csv.DictReader(files["setting_grid.csv"].decode().splitlines()))
    assert (found["setting"]["key"], found["dial"], data["rule"]["fixed"]) == ("k", "r", {"k": 3})
    rules = [(row["value"], row["rule"]) for row in found["rows"]]
    assert rules == [*zip((1, 2, 3, 5), (each.rule for each in GRID.settings(VLLM)), strict=True)]
    assert len(lines) == 4 * len(dial_grid(swept[2], 0.4)) and list(lines[0])[:2] == ["k", "dial"]
    for row, each in zip(found["rows"], variants, strict=True):
        assert row["recommendation"]["sentence"] == each.found.sentence and row["prompts"] == 8
        for at in row["dials"]:
            (line,) = (one for one in lines if float(one["k"]) == row["value"] and float(one["dial"]) == at["dial"])
            for name in ("tau", "speed_up", "accuracy", "rolled_back"):
                alone = each.sweep.value(name, at["dial"])
                assert at[name] == pytest.approx({"estimate": alone.estimate, "low": alone.low, "high": alone.high})
                assert [float(line[f"{name}{end}"]) for end in ("", "_low", "_high")] == [*at[name].values()]
        tau = cell(each.sweep.measures["tau"], each.sweep.value("tau", 0.0))
        assert f"| {row['value']:g} | {tau} |" in text
    alone = evidence_files(swept[2], dial=0.5)
    assert "setting_grid.csv" not in alone and json.loads(alone["evidence.json"])["setting_grid"] is None
    narrow = toy_sweep(tmp_path / "n", 8, replace(VLLM, rule="vllm-thinking:k=5"), low=0.5).finish()
    files = evidence_files(swept[2], dial=0.3, beside=given([narrow]))
    lines = list(csv.DictReader(files["setting_grid.csv"].decode().splitlines()))
    dials = dial_grid(swept[2], 0.3).tolist()
    assert 0.3 in dials and [float(line["dial"]) for line in lines] == 2 * [dial for dial in dials if dial >= 0.5]
    values = np.linspace(0, 1, 21).tolist()
    assert few_dials(values, values[3]) == [values[place] for place in (0, 3, 5, 10, 15, 20)] and few_dials([], 1) == []
    half = toy_sweep(tmp_path / "half", 8, replace(VLLM, rule="vllm-thinking:k=7"))
    next(progress for progress in half if progress.finished == 2)
    for other, why in (
        (toy_sweep(tmp_path / "rule", 8, replace(VLLM, rule="mars")).finish(), "in one fixed setting"),
        (toy_sweep(tmp_path / "gamma", 8, replace(VLLM, gamma=2)).finish(), "in one fixed setting"),
        (toy_sweep(tmp_path / "fewer", 7, replace(VLLM, rule="vllm-thinking:k=9")).finish(), "in one fixed setting"),
        (swept[0], "differ in one fixed setting"),
        (half.result(), "not finished"),
    ):
        with pytest.raises(BadInput, match=why):
            evidence_files(swept[0], dial=0.5, beside=given([other]))


def test_the_fastest_safe_variant_is_recommended_at_the_asked_confidence(swept):
    nobody = given(swept, accuracy(0.001, 0.999))
    assert best_of(nobody) is nobody[2]  # nothing can be told of eight prompts: the rule as it is
    assert best_of([nobody[3], nobody[1]]) is nobody[3]
    everything = given(swept, accuracy(100.0, 0.5))
    speeds = [each.sweep.value("speed_up_strict", each.found.dial).estimate for each in everything]
    assert best_of(everything) is everything[int(np.argmax(speeds))] and len(set(speeds)) > 1
    for result in swept:
        found, each = advised(result, accuracy(40, 0.8), 4), recommended(result, accuracy(40, 0.95))
        assert (found.finding, found.dial, found.prompts_needed) == (each.finding, each.dial, each.prompts_needed)
        assert found.bound == pytest.approx(each.bound) and found.bound > recommended(result, accuracy(40, 0.8)).bound
        assert "4 variants is tested at 95 %" in found.sentence
        assert (
            recommended(result, accuracy(40, 0.8), 1) == recommended(result, accuracy(40, 0.8))
            and "Each of" not in each.sentence
        )
    table = grid_table(nobody[::-1], [0.0, 1.0])
    assert table.values == (1, 2, 3, 5) and table.symbol == "r"
    taus = np.array([[at["tau"]["estimate"] for at in row["dials"]] for row in table.facts()["rows"]])
    assert len(set(taus[:, 1].tolist())) == 1 and taus[0, 0] == taus[0, 1]
    assert taus[-1, 0] > taus[1, 0] > taus[0, 0]


ASKED = ["sweep", "--rule", "vllm-thinking", "--gamma", "3", "--max-new-tokens", "16", "--limit", "1"]


def test_the_command_sweeps_tells_and_packs_a_grid(tmp_path, capsys, monkeypatch):
    def begun(_, prompts, settings, span, folders, **how):
        return Sweep(table_backend(), prompts, settings, span, folders, costs=lambda: COSTS, **how)

    monkeypatch.setattr(decoding, "opened_backend", lambda *_: None)
    monkeypatch.setattr(command, "sweep_prompts", begun)
    out, pack = tmp_path / "grid", tmp_path / "pack"
    assert cli.main([*ASKED, "--grid", "k=1,4", "--out", str(out), "--evidence", str(pack), "--dial", "0.3"]) == 0
    text = capsys.readouterr().out
    assert "by k and r" in text and "\n4  " in text and "r = 0.3" in text and f"evidence in {pack}" in text
    assert sorted(path.name for path in out.iterdir()) == ["vllm-thinking-k1", "vllm-thinking-k4"]
    assert load_sweep(out / "vllm-thinking-k4").plan.settings.rule == "vllm-thinking:k=4"
    assert "by k and r" in (pack / "evidence.md").read_text()
    again = [*ASKED, "--grid", "k=1,4,6", "--out", str(out), "--resume", "--json"]
    assert cli.main([*again, "--confidence", "0.85", "--loss", "100"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (told["terms"]["loss_points"], told["terms"]["confidence"]) == (100, 0.85)
    assert "3 variants is tested at 95 %" in told["recommendation"]["sentence"]
    assert [row["value"] for row in told["setting_grid"]["rows"]] == [1, 4, 6]


def test_bad_input_is_one_line_and_code_2_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    taken = tmp_path / "taken" / "vllm-thinking-k5"
    taken.mkdir(parents=True)
    (taken / "mine.txt").write_text("")
    toy_sweep(tmp_path / "begun" / "vllm-thinking-k5", 5, replace(VLLM, rule="vllm-thinking:k=5", seed=4)).finish()
    toy_sweep(tmp_path / "one", 2).finish()
    for folder, resume, why in (("taken", False, "is not empty"), ("begun", True, "seed was 4 and is 0")):
        with pytest.raises(BadInput, match=why):
            toy_grid(tmp_path / folder, resume=resume)
        assert [path.name for path in (tmp_path / folder).iterdir()] == ["vllm-thinking-k5"]
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pytest.fail("it began to load the models"))
    for out, options, why in (
        ("new", "--grid k=0", "from 1 to 16"),
        ("new", "--grid k=1,4 --wall-clock", "vllm-thinking:k=4 --out {out}/vllm-thinking-k4 --resume"),
        ("new", "--grid k=1 --rule strict", "no dial"),
        ("new", "--rule vllm-thinking:n=4", "no setting 'n'"),
        ("new", "--grid k=1 --dial 3", "outside what is swept"),
        ("new", "--grid k=1 --high 0.5", "strict end"),
        ("one", "--grid k=1,4 --resume", "holds a sweep"),
        ("", "--grid k=1,4", "is not empty"),
    ):
        assert cli.main([*ASKED, "--out", str(tmp_path / out), *options.split()]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.startswith("error: ") and printed.err.count("\n") == 1
        assert why.format(out=tmp_path / out) in printed.err and not (tmp_path / "new").exists()


@pytest.mark.parametrize("grid", [[], ["--grid", "k=1,4"]])
def test_a_resumed_sweep_has_the_dtype_that_it_was_begun_in(tmp_path, monkeypatch, grid):
    loaded: list[str] = []

    def load_backend(*_, dtype, **others):
        loaded.append(dtype)
        raise BadInput("far enough")

    monkeypatch.setattr(loading, "load_backend", load_backend)
    settings = replace(VLLM, rule="vllm-thinking:k=1" if grid else VLLM.rule)
    for device in ("Toy, 4 threads", "NVIDIA Toy"):
        backend, place = replace(table_backend(), processor=device, dtype="bfloat16"), tmp_path / device
        Sweep(backend, toy_prompts(1), settings, WHOLE, place / "vllm-thinking-k1" if grid else place)
    for out, *dtype in (("Toy, 4 threads",), ("Toy, 4 threads", "--dtype", "float32"), ("NVIDIA Toy",), ("new",)):
        assert cli.main([*ASKED, *grid, "--out", str(tmp_path / out), "--resume", *dtype]) == 2
    assert loaded == ["bfloat16", "float32", "auto", "auto"]
