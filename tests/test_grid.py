"""Grids: each variant's sweep is what it would be by itself, no prefix is asked twice, and the tables say the same."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import Counting
from sweep_cases import COSTS, toy_prompts, toy_sweep
from test_turns import talks

from mars_viz import cli, locks
from mars_viz.commands import decoding
from mars_viz.commands import grid as command
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptSet
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators import loading
from mars_viz.speculators.backend import Backend
from mars_viz.sweep import Sweep, SweepResult, load_sweep
from mars_viz.sweep.evidence import dial_grid
from mars_viz.sweep.evidence_pack import evidence_files, write_evidence
from mars_viz.sweep.figure_words import cell
from mars_viz.sweep.grid import Advised, best_of, few_dials, grid_of, grid_table
from mars_viz.sweep.grid_sweep import GridSweep
from mars_viz.sweep.measures import measures, value_at
from mars_viz.sweep.result import recommended
from tests.tables import table_backend

TESTS = Path(__file__).parent
VLLM = Settings(rule="vllm-thinking", gamma=3, max_new_tokens=16)
WHOLE = Span(0.0, 1.0, (3,))
GRID = grid_of(rule_named("vllm-thinking"), "k=1,2,3,5")


def toy_grid(
    out: Path, *, count: int = 5, backend: Backend | None = None, resume: bool = False, batch: int | None = None
) -> GridSweep:
    settings = [replace(VLLM, rule=rule.name) for rule in GRID.rules]
    return GridSweep(
        backend or table_backend(),
        toy_prompts(count),
        settings,
        GRID.folders(out),
        WHOLE,
        resume=resume,
        costs=lambda: COSTS,
        batch=batch,
    )


def finished(sweep: GridSweep) -> list[SweepResult]:
    for _ in sweep:
        pass
    return [one.result() for one in sweep.sweeps]


def equal(one: SweepResult, other: SweepResult) -> bool:
    """Line for line and prompt for prompt, but for the clock."""
    same = all(np.array_equal(values, other.lines[name]) for name, values in one.lines.items())
    prompts = all(
        np.array_equal(values, other.prompts[name]) for name, values in one.prompts.items() if name != "seconds"
    )
    return same and prompts and np.array_equal(one.starts, other.starts) and one.plan.settings == other.plan.settings


def counted_backend() -> tuple[Backend, list[Counting]]:
    opened: list[Counting] = []

    def speculator() -> Counting:
        opened.append(Counting(VLLM))
        return opened[-1]

    class Counted(Backend):
        def speculator(self, settings: Settings) -> Counting:  # type: ignore[override]
            return speculator()

    return Counted(**{each.name: getattr(table_backend(), each.name) for each in fields(Backend)}), opened


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[SweepResult]:
    return finished(toy_grid(tmp_path_factory.mktemp("grid") / "out", count=8))


# ---- what a grid is


def test_a_grid_is_read_with_its_folders() -> None:
    assert GRID.values == (1, 2, 3, 5)
    assert [rule.name for rule in GRID.rules] == [
        "vllm-thinking:k=1",
        "vllm-thinking:k=2",
        "vllm-thinking",
        "vllm-thinking:k=5",
    ]
    assert [path.name for path in GRID.folders(Path("o"))] == [f"vllm-thinking-k{k}" for k in (1, 2, 3, 5)]
    assert grid_of(rule_named("fly"), " W = 5, 4,4.0").values == (4, 5)


@pytest.mark.parametrize(
    ("rule", "text", "remedy"),
    [
        ("mars", "k=1", "has no settings besides its dial"),
        ("vllm-thinking", "n=1", "has no setting 'n' for a grid; it has k"),
        ("vllm-thinking", "k", "names no values; write k=2,3,4"),
        ("vllm-thinking", "k=", "names no values"),
        ("vllm-thinking", "k=1,,2", "missing between commas; list values such as 2, 3, 4"),
        ("vllm-thinking", "k=1,two", "'two' is no number"),
        ("vllm-thinking", "k=1,17", "from 1 to 16"),
        ("vllm-thinking", "k=1.5", "whole number"),
        ("vllm-thinking:k=5", "k=1,2", "so does the grid"),
        ("typical", "c=" + ",".join(f"{0.1 * i:.1f}" for i in range(1, 19)), "at most 16"),
    ],
)
def test_what_is_no_grid_is_refused_with_the_remedy(rule: str, text: str, remedy: str) -> None:
    with pytest.raises(BadInput) as refusal:
        grid_of(rule_named(rule), text)
    assert remedy in str(refusal.value) and "\n" not in str(refusal.value)


# ---- sweeping


@pytest.mark.parametrize("batch", [1, 3, None])
def test_every_variant_is_as_if_swept_alone_and_no_prefix_is_asked_twice(tmp_path: Path, batch: int | None) -> None:
    backend, opened = counted_backend()
    results = finished(toy_grid(tmp_path / "grid", backend=backend, batch=batch))
    asked = [prefix for one in opened for batch_ in one.batches for prefix in batch_]
    assert len(asked) == len(set(asked)) and len(opened) <= 2
    apart = 0
    for rule, result in zip(GRID.rules, results, strict=True):
        alone = toy_sweep(tmp_path / rule.slug, 5, replace(VLLM, rule=rule.name)).finish()
        assert equal(alone, result) and result.complete and result.costs == COSTS
        apart += alone.positions
    assert len({tuple(result.lines["tokens"].tolist()) for result in results}) > 2  # the variants do differ
    assert 3 * len(asked) < apart  # positions, three a prefix: sharing did save something


def test_of_conversations_no_prefix_is_asked_twice(tmp_path: Path) -> None:
    """Later turns of a question are in hand before the first of the next ones are finished."""
    backend, opened = counted_backend()
    settings = [replace(VLLM, rule=rule.name) for rule in GRID.rules]
    grid = GridSweep(backend, talks(), settings, GRID.folders(tmp_path), WHOLE, batch=2)
    results = finished(grid)
    asked = [prefix for one in opened for batch in one.batches for prefix in batch]
    assert len(asked) == len(set(asked)) and len(grid._shared) == 0
    alone = Sweep(table_backend(), talks(), settings[3], WHOLE, tmp_path / "alone").finish()
    assert equal(results[3], alone)


def test_all_folders_are_held_from_the_first_step_to_the_end(tmp_path: Path) -> None:
    sweep = toy_grid(tmp_path / "grid", count=2)
    folders = [one.folder for one in sweep.sweeps]
    for _ in sweep:
        assert all(locks.holder(folder) is not None for folder in folders)
    assert not any(locks.holder(folder) for folder in folders)


def test_a_folder_that_somebody_takes_refuses_before_the_models_are_asked(tmp_path: Path) -> None:
    backend, opened = counted_backend()
    sweep = toy_grid(tmp_path / "grid", backend=backend)
    folders = [one.folder for one in sweep.sweeps]
    with locks.held(folders[-1]):
        with pytest.raises(BadInput, match="is in use"):
            next(iter(sweep))
        assert not opened and not any(locks.holder(folder) for folder in folders[:-1])


def test_answers_are_kept_no_longer_than_they_may_be_asked_for(tmp_path: Path) -> None:
    sweep, most, total = toy_grid(tmp_path / "grid", count=12, batch=1), 0, 0
    shared = sweep._shared
    for _ in sweep:
        most, total = max(most, len(shared)), max(total, shared.last)
    assert len(shared) == 0 and total == 12
    prefixes = sweep.sweeps[-1].result().positions / 3  # of twelve prompts, by the loosest variant alone
    assert 0 < most < prefixes / 2


def test_progress_counts_what_all_variants_have_finished_and_folders_are_let_go(tmp_path: Path) -> None:
    sweep = toy_grid(tmp_path / "grid", count=3)
    seen = []
    for progress in sweep:
        seen.append(progress)
        assert progress.finished == min(one.progress.finished for one in sweep.sweeps) and 0 <= progress.share <= 1
        if progress.finished == 1:
            assert locks.holder(sweep.sweeps[0].folder) is not None
            break
    del progress
    again = toy_grid(tmp_path / "grid", count=3, resume=True)
    assert again.progress.finished == 1
    assert [(each.finished, each.prompts) for each in seen][-1] == (1, 3)
    results = finished(again)
    assert all(locks.holder(result.folder) is None for result in results)
    assert all(
        equal(one, other) for one, other in zip(results, finished(toy_grid(tmp_path / "b", count=3)), strict=True)
    )


KILLED = """
import os, sys, time
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
from test_grid import toy_grid
for progress in toy_grid(Path({folder!r}), resume=True):
    time.sleep(0.002)
"""


def test_a_grid_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    code = KILLED.format(tests=str(TESTS), root=str(TESTS.parent), folder=str(tmp_path / "killed"))
    counts: list[list[int]] = []
    for wanted in (1, 3):
        child = subprocess.Popen([sys.executable, "-c", code])
        end = time.monotonic() + 120
        while (
            sum(finished_prompts(tmp_path / "killed")) < 4 * wanted and child.poll() is None and time.monotonic() < end
        ):
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        counts.append(finished_prompts(tmp_path / "killed"))
    assert all(0 < sum(each) < 20 for each in counts), counts  # killed in the middle of things
    backend, opened = counted_backend()
    results = finished(toy_grid(tmp_path / "killed", resume=True, backend=backend))
    wholes = finished(toy_grid(tmp_path / "whole"))
    assert all(equal(one, other) for one, other in zip(results, wholes, strict=True))
    asked = [prefix for one in opened for batch in one.batches for prefix in batch]
    assert len(asked) == len(set(asked))


def finished_prompts(folder: Path) -> list[int]:
    return [len(list((each / "results").glob("prompt-*.parquet"))) for each in GRID.folders(folder) if each.is_dir()]


def test_a_folder_in_the_way_refuses_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "grid" / "vllm-thinking-k5").mkdir(parents=True)
    (tmp_path / "grid" / "vllm-thinking-k5" / "mine.txt").write_text("")
    with pytest.raises(BadInput, match="is not empty"):
        toy_grid(tmp_path / "grid")
    assert [path.name for path in (tmp_path / "grid").iterdir()] == ["vllm-thinking-k5"]


def test_a_variant_that_was_begun_otherwise_refuses_before_anything_is_written(tmp_path: Path) -> None:
    other = replace(VLLM, rule="vllm-thinking:k=5", seed=4)
    toy_sweep(tmp_path / "grid" / "vllm-thinking-k5", 5, other).finish()
    with pytest.raises(BadInput, match="seed was 4 and is 0"):
        toy_grid(tmp_path / "grid", resume=True)
    assert [path.name for path in (tmp_path / "grid").iterdir()] == ["vllm-thinking-k5"]


# ---- tables and evidence


def test_the_evidence_holds_every_sweeps_own_values(swept: list[SweepResult], tmp_path: Path) -> None:
    variants = [Advised.of(result, 1.0, 0.95, 4) for result in swept]
    chosen = variants[2]
    folder = write_evidence(
        tmp_path / "pack", chosen.result, dial=0.4, recommendation=chosen.found, beside=[*variants[:2], *variants[3:]]
    )
    found = json.loads((folder / "evidence.json").read_text())["setting_grid"]
    assert found["setting"]["key"] == "k" and found["dial"] == "r"
    assert [row["value"] for row in found["rows"]] == [1, 2, 3, 5]
    assert [row["rule"] for row in found["rows"]] == [rule.name for rule in GRID.rules]
    lines = list(csv.DictReader(io.StringIO((folder / "setting_grid.csv").read_text())))
    dials = dial_grid(chosen.result, 0.4)
    assert len(lines) == 4 * len(dials) and list(lines[0])[:2] == ["k", "dial"]
    own = [line for line in lines if float(line.pop("k")) == 3]
    stretched = {line["dial"]: line for line in csv.DictReader(io.StringIO((folder / "grid.csv").read_text()))}
    alike = [line for line in own if line["dial"] in stretched]
    assert alike and all(line.items() <= stretched[line["dial"]].items() for line in alike)
    lines = list(csv.DictReader(io.StringIO((folder / "setting_grid.csv").read_text())))
    text = (folder / "evidence.md").read_text()
    assert "## The grid, k × r" in text
    for row, each in zip(found["rows"], variants, strict=True):
        assert row["recommendation"]["sentence"] == each.found.sentence and row["prompts"] == 8
        assert " ".join(row["recommendation"]["sentence"].split()) in text
        for at in row["dials"]:
            for name in ("tau", "speed_up", "accuracy", "rolled_back"):
                alone = value_at(each.result, measures(each.result)[name], at["dial"])
                assert at[name] == pytest.approx({"estimate": alone.estimate, "low": alone.low, "high": alone.high})
                (line,) = (one for one in lines if float(one["k"]) == row["value"] and float(one["dial"]) == at["dial"])
                assert [float(line[f"{name}{end}"]) for end in ("", "_low", "_high")] == [*at[name].values()]
        told = measures(each.result)["tau"]
        assert f"| k = {row['value']:g} | {cell(told, value_at(each.result, told, 0.0))} |" in text
    own = json.loads((folder / "evidence.json").read_text())
    assert own["rule"]["fixed"] == {"k": 3} and "| fixed settings | k = 3 |" in text


def test_strict_is_the_same_for_all_and_more_candidates_are_faster_or_the_same(swept: list[SweepResult]) -> None:
    table = grid_table([Advised(result, None) for result in swept[::-1]], [0.0, 1.0])
    assert table.values == (1, 2, 3, 5) and table.symbol == "r"
    taus = np.stack([table.band(place, "tau").estimate for place in range(4)])
    assert len(set(taus[:, 1].tolist())) == 1 and taus[0, 0] == taus[0, 1]
    assert taus[-1, 0] > taus[1, 0] > taus[0, 0]


def test_without_other_variants_the_evidence_has_no_grid(swept: list[SweepResult]) -> None:
    files = evidence_files(swept[2], dial=0.5)
    assert (
        files["grid.csv"].startswith(b"dial_from,dial_to,dial,")
        and "setting_grid.csv" not in files
        and "× r" not in files["evidence.md"].decode()
    )
    assert json.loads(files["evidence.json"])["setting_grid"] is None


def test_sweeps_that_are_no_grid_are_refused(swept: list[SweepResult], tmp_path: Path) -> None:
    def refused(other: SweepResult, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            evidence_files(swept[0], dial=0.5, beside=[Advised(other, None)])

    refused(toy_sweep(tmp_path / "rule", 8, replace(VLLM, rule="mars")).finish(), "one rule and drafts of one shape")
    refused(toy_sweep(tmp_path / "gamma", 8, replace(VLLM, gamma=2)).finish(), "one rule and drafts of one shape")
    refused(toy_sweep(tmp_path / "prompts", 7).finish(), "one rule")
    refused(toy_sweep(tmp_path / "fewer", 7, replace(VLLM, rule="vllm-thinking:k=9")).finish(), "same prompts")
    refused(swept[0], "differ in one fixed setting")
    half = toy_sweep(tmp_path / "half", 8, replace(VLLM, rule="vllm-thinking:k=7"))
    for progress in half:
        if progress.finished == 2:
            break
    refused(half.result(), "not finished")


def test_a_grid_speaks_for_its_fastest_safe_variant(swept: list[SweepResult]) -> None:
    nobody = [Advised.of(result, 0.001, 0.999, 4) for result in swept]
    assert best_of(nobody).result is swept[2]  # nothing can be told of eight prompts: the rule as it is
    assert best_of([Advised(swept[3], None), Advised(swept[1], None)]).result is swept[3]
    everything = [Advised.of(result, 100.0, 0.5, 4) for result in swept]
    speeds = [
        value_at(each.result, measures(each.result)["speed_up_strict"], each.found.dial).estimate for each in everything
    ]
    assert best_of(everything) is everything[int(np.argmax(speeds))] and len(set(speeds)) > 1


def test_the_fastest_of_several_is_as_sure_as_was_asked_for(swept: list[SweepResult]) -> None:
    """Four are tested, so each at a quarter of the error that is allowed: 80 % of all is 95 % of each."""
    for result in swept:
        found, each = Advised.of(result, 40, 0.8, 4).found, recommended(result, 40, 0.95)
        assert found is not None and each is not None
        assert (found.finding, found.dial, found.prompts_needed) == (each.finding, each.dial, each.prompts_needed)
        assert found.bound == pytest.approx(each.bound) and found.bound > recommended(result, 40, 0.8).bound  # type: ignore[union-attr]
        assert found.sentence.endswith(
            "Each of the 4 variants is tested at 95 %, so that whichever is chosen holds at 80 %."
        )
        assert recommended(result, 40, 0.8, 1) == recommended(result, 40, 0.8) and "Each of" not in each.sentence


def test_a_dial_value_that_not_all_sweeps_hold_stays_in_the_chosen_ones_table(
    swept: list[SweepResult], tmp_path: Path
) -> None:
    narrow = Sweep(
        table_backend(), toy_prompts(8), replace(VLLM, rule="vllm-thinking:k=5"), Span(0.5, 1.0, (3,)), tmp_path / "n"
    ).finish()
    files = evidence_files(swept[2], dial=0.3, beside=[Advised(narrow, None)])
    tables = {
        name: list(csv.DictReader(io.StringIO(files[name].decode()))) for name in ("grid.csv", "setting_grid.csv")
    }
    dials = dial_grid(swept[2], 0.3).tolist()
    assert 0.3 in [float(line["dial"]) for line in tables["grid.csv"]]
    shared = [dial for dial in dials if dial >= 0.5]
    assert [float(line["dial"]) for line in tables["setting_grid.csv"]] == 2 * shared
    said = "r = 0.30 is no column, because not all of these sweeps go as far."
    assert said in files["evidence.md"].decode()
    assert said not in evidence_files(swept[2], dial=0.5, beside=[Advised(narrow, None)])["evidence.md"].decode()


def test_few_of_many_dial_values_are_shown() -> None:
    values = np.linspace(0, 1, 21).tolist()
    assert few_dials(values, (values[3], 0.123)) == [values[place] for place in (0, 3, 5, 10, 15, 20)]
    assert few_dials([0.5]) == [0.5] and few_dials([]) == []


# ---- the command line


@pytest.fixture
def toy_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sweeps the toy pair."""

    def begun(
        _: object, prompts: PromptSet, settings: Sequence[Settings], folders: Sequence[Path], span: Span, **how: Any
    ) -> GridSweep:
        return GridSweep(table_backend(), prompts, settings, folders, span, costs=lambda: COSTS, **how)

    monkeypatch.setattr(decoding, "opened_backend", lambda *_: None)
    monkeypatch.setattr(command, "sweep_grid", begun)


ASKED = ["sweep", "--rule", "vllm-thinking", "--gamma", "3", "--max-new-tokens", "16", "--limit", "1"]


@pytest.mark.usefixtures("toy_models")
def test_the_command_sweeps_tells_and_packs_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, pack = tmp_path / "grid", tmp_path / "pack"
    assert cli.main([*ASKED, "--grid", "k=1,4", "--out", str(out), "--evidence", str(pack), "--dial", "0.3"]) == 0
    text = capsys.readouterr().out
    assert "k = 4" in text and "r = 0.3" in text and f"evidence in {pack}" in text
    assert sorted(path.name for path in out.iterdir()) == ["vllm-thinking-k1", "vllm-thinking-k4"]
    assert load_sweep(out / "vllm-thinking-k4").plan.settings.rule == "vllm-thinking:k=4"
    assert "The grid, k × r" in (pack / "evidence.md").read_text()
    again = [*ASKED, "--grid", "k=1,4,6", "--out", str(out)]
    assert cli.main(again) == 2
    assert f"{out} holds sweeps of this grid already. Go on with them (--resume)" in capsys.readouterr().err
    assert cli.main([*again, "--resume", "--json", "--confidence", "0.85", "--loss", "100"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (told["terms"]["loss_points"], told["terms"]["confidence"]) == (100, 0.85)
    assert "Each of the 3 variants is tested at 95 %, so that whichever" in told["recommendation"]["sentence"]
    assert [row["value"] for row in told["setting_grid"]["rows"]] == [1, 4, 6]


@pytest.mark.usefixtures("toy_models")
def test_a_grid_of_first_turns_goes_on_as_it_was_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "set.jsonl", tmp_path / "grid"
    file.write_text("".join(json.dumps({"turns": [f"Add {n} and 2.", "And 3?"]}) + "\n" for n in range(2)))
    asked = [*ASKED, "--limit", "2", "--set", str(file), "--out", str(out)]
    assert cli.main([*asked, "--turns", "first", "--grid", "k=4"]) == 0
    assert cli.main([*asked, "--grid", "k=1,4", "--resume"]) == 0, capsys.readouterr().err
    assert [len(load_sweep(folder)) for folder in sorted(out.iterdir())] == [2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "k=0"], "from 1 to 16"),
        (["--grid", "n=1"], "it has k"),
        (["--grid", "k=1,4", "--wall-clock"], "vllm-thinking:k=4 --out {new}/vllm-thinking-k4 --resume."),
        (["--grid", "k=1", "--rule", "mars"], "no settings besides"),
        (["--grid", "k=1", "--rule", "strict"], "no dial"),
        (["--rule", "vllm-thinking:k=40"], "from 1 to 16"),
        (["--rule", "vllm-thinking:n=4"], "no setting 'n'"),
        (["--grid", "k=1", "--rule", "vllm-thinking:k=4"], "so does the grid"),
        (["--grid", "k=1", "--dial", "3"], "outside what is swept"),
        (["--grid", "k=1", "--high", "0.5"], "must reach the strict end"),
    ],
)
def test_bad_input_is_one_line_and_code_2_and_nothing_is_written(
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pytest.fail("it began to load the models"))
    assert cli.main([*ASKED, "--out", str(tmp_path / "new"), *options]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1
    assert message.format(new=tmp_path / "new") in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("grid", [[], ["--grid", "k=1,4"]])
@pytest.mark.parametrize(
    ("device", "asked", "taken"),
    [
        ("Toy, 1 thread", [], "bfloat16"),
        ("Toy, 4 threads", ["--resume"], "bfloat16"),
        ("Toy, 4 threads", ["--resume", "--dtype", "float32"], "float32"),
        ("NVIDIA Toy", ["--resume"], "auto"),
    ],
)
def test_gone_on_with_auto_is_the_dtype_that_it_was_begun_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grid: list[str], device: str, asked: list[str], taken: str
) -> None:
    """What auto takes on a CPU depends on the processor and the version; elsewhere each model has its own."""
    settings = replace(VLLM, rule="vllm-thinking:k=1" if grid else VLLM.rule)
    backend = replace(table_backend(), processor=device, dtype="bfloat16")
    out = tmp_path / "out" / "vllm-thinking-k1" if grid else tmp_path / "out"
    Sweep(backend, toy_prompts(1), settings, Span(0.0, 1.0, (3,)), out)
    if not asked:
        out, taken, asked = tmp_path / "elsewhere", "auto", ["--resume"]
    loaded: list[str] = []

    def load_backend(*_: object, dtype: str, **others: object) -> None:
        loaded.append(dtype)
        raise BadInput("far enough")

    monkeypatch.setattr(loading, "load_backend", load_backend)
    place = out.parent if grid and out.name != "elsewhere" else out
    assert cli.main([*ASKED, *grid, "--out", str(place), *asked]) == 2
    assert loaded == [taken]


def test_a_grid_goes_into_no_sweep_and_over_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pytest.fail("it began to load the models"))
    toy_sweep(tmp_path / "one", 2).finish()
    assert cli.main([*ASKED, "--grid", "k=1,4", "--out", str(tmp_path / "one"), "--resume"]) == 2
    assert "holds a sweep itself" in capsys.readouterr().err
    assert cli.main([*ASKED, "--grid", "k=1,4", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
