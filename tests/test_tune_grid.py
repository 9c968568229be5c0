"""Grids on the Tune page: the form, their jobs, table and evidence."""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sweep_cases import SHORT, toy_prompts, toy_sweep

from mars_viz import default_folders, locks
from mars_viz.analysis.intervals import Bootstrap
from mars_viz.analysis.recommendation import about
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.sweep import grid_sweep, load_sweep
from mars_viz.sweep.figure_words import cell
from mars_viz.sweep.grid_sweep import GridSweep
from mars_viz.ui import tab_jobs
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.tune import detail, sweep_requests
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.catalogue import jobs_in, shelf
from mars_viz.ui.tune.jobs import SweepJob
from tests.tables import table_backend
from tests.test_grid import GRID, VLLM, toy_grid
from tests.test_tune_jobs import until, worker
from tests.test_tune_page import SECTIONS, clicked, empty, frames, opened, said, section, settled

OWN = "vllm-thinking-k3"
__all__ = ["empty"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of four variants, an older sweep of one of them, another rule's, and one that is not finished."""
    folder = tmp_path_factory.mktemp("sweeps")
    for _ in toy_grid(folder, count=8):
        pass
    toy_sweep(folder / "another-k5", 8, replace(VLLM, rule="vllm-thinking:k=5")).finish()
    toy_sweep(folder / "mars", 8).finish()
    toy_sweep(folder / "gamma", 8, replace(VLLM, rule="vllm-thinking:k=8", gamma=2)).finish()
    half = toy_sweep(folder / "half", 8, replace(VLLM, rule="vllm-thinking:k=9"))
    next(now for now in half if now.finished == 2)
    return folder


@pytest.fixture
def folder(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(default_folders.SWEEPS, str(swept))
    return swept


def test_the_form_has_the_rules_fixed_settings(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(sweep_requests, "_begin", lambda wish, names, span, into: begun.append((names, span)) or [into])
    tab = opened()
    settled(tab.multiselect(key="sweep-rules").set_value(["mars", "vllm-thinking", "tensorrt-llm", "fly"]).run())
    assert not [each for each in tab.number_input if each.key and each.key.startswith("sweep-fixed-mars")]
    field = tab.number_input(key="sweep-fixed-vllm-thinking-k")
    assert (field.value, field.min, field.max, field.label) == (3, 1, 16, "Best tokens k")
    field.set_value(5)
    for listed, fragment in (
        ("2, four", "'four'"),
        ("2,,4", "a value is missing"),
        ("20", "k is 20; it must be a whole number from 1 to 16"),
        ("<img src=x>", "is no number"),
    ):
        tab.text_input(key="sweep-also-vllm-thinking-k").set_value(listed)
        clicked(tab, "sweep-begin")
        assert fragment in said(tab).replace("&#x27;", "'") and "<img" not in said(tab) and not begun
    tab.text_input(key="sweep-also-vllm-thinking-k").set_value("1, 5,3")
    tab.number_input(key="sweep-fixed-fly-w").set_value(2)
    tab.number_input(key="sweep-loosest-vllm-thinking").set_value(0.2)
    clicked(tab, "sweep-begin")
    assert begun == [
        (["mars"], Span(0.0, 1.0, (6,))),
        (["vllm-thinking:k=5", "vllm-thinking:k=1", "vllm-thinking"], Span(0.2, 1.0, (6,))),
        (["tensorrt-llm"], Span(0.0, 1.0, (6,))),
        (["fly:w=2"], Span(0.0, 1.1, (6,))),
    ]


def test_a_grid_is_one_job_with_many_folders(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = worker()
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: own)
    monkeypatch.setattr(
        grid_sweep,
        "sweep_grid",
        lambda pair, prompts, settings, folders, span, **how: toy_grid(folders[0].parent / "made"),
    )
    wish = sweep_requests.SweepRequest(
        toy_prompts(3), ("vllm-thinking", "vllm-thinking:k=5", "vllm-thinking:k=2"), VLLM
    )
    many = replace(wish, rules=tuple(f"fly:w={window}" for window in range(1, 19) if window != 6), settings=SHORT)
    with pytest.raises(BadInput, match="at most 16"):
        sweep_requests.begin(many, empty)
    names = sweep_requests.begin(wish, empty)
    assert [name.split("-", 2)[2] for name in names] == ["vllm-thinking", "vllm-thinking-k5", "vllm-thinking-k2"]
    jobs = jobs_in(empty)
    assert set(jobs) == set(names) and len(set(map(id, jobs.values()))) == 1
    (job,) = set(jobs.values())
    labels = shelf(empty).labels
    until(lambda: job.progress.state.finished)
    assert (job.progress.state, job.progress.finished, job.progress.prompts) == (JobState.DONE, 5, 5)
    assert all("vLLM relaxed thinking, k = 5 · toys, 3 prompts" in labels[name] for name in names[1:2])


def test_the_catalogue_finds_the_sweeps_of_a_grid(folder: Path) -> None:
    found = shelf(folder)
    variants = set(found.variants(OWN))
    five = {"vllm-thinking-k5", "another-k5"} & variants
    assert len(five) == 1 and variants - five == {"vllm-thinking-k1", "vllm-thinking-k2"}
    assert not found.variants("mars") and not found.variants("half") and not found.variants("gamma")
    assert not found.variants("nowhere")


def test_the_grids_table_has_the_figures_of_each_sweep(folder: Path) -> None:
    tab = section(opened(sweep=OWN, dial="0.3"), SECTIONS)
    table = frames(tab)[0].value
    assert list(table["k"]) == ["1", "2", "3", "5"]
    assert list(table.columns)[1:] == ["r = 0.00", "r = 0.25", "r = 0.30", "r = 0.50", "r = 0.75", "r = 1.00"]
    for k, path in zip((1, 2, 3), GRID.folders(folder), strict=False):
        study = CachedSweep(load_sweep(path))
        row = table[table["k"] == str(k)].iloc[0]
        assert row["r = 0.30"] == cell(study.measures["tau"], study.value("tau", 0.3))
    assert "by k and r. k: how many of the target&#x27;s best tokens" in said(tab)
    tab.segmented_control(key="grid-figure").set_value("accuracy")
    again = frames(settled(tab.run()))[0].value
    study = CachedSweep(load_sweep(folder / OWN))
    assert again.iloc[2]["r = 0.30"] == cell(study.measures["accuracy"], study.value("accuracy", 0.3))


def test_overlaid_sweeps_are_named_by_their_differences(folder: Path) -> None:
    grid = [CachedSweep(load_sweep(path)) for path in GRID.folders(folder)]
    assert detail._names(grid) == ["k = 1", "k = 2", "k = 3", "k = 5"]
    mars, gamma = (CachedSweep(load_sweep(folder / name)) for name in ("mars", "gamma"))
    assert detail._names([grid[3], mars]) == ["vLLM relaxed thinking, k = 5", "MARS"]
    assert detail._names([grid[3], gamma]) == ["k = 5, γ = 3", "k = 8, γ = 2"]
    assert detail._names([grid[2]]) == ["vLLM relaxed thinking"]
    again = CachedSweep(load_sweep(folder / "another-k5"))
    assert detail._names([grid[3], again]) == 2 * ["vLLM relaxed thinking, k = 5"]


def test_the_grid_recommends_a_setting_of_each_variant(folder: Path) -> None:
    tab = section(opened(sweep=OWN, loss="100", confidence="0.5"), SECTIONS)
    table = frames(tab)[1].value
    assert list(table["k"]) == ["1", "2", "3", "5"] and set(table["loosest within the loss"]) == {"r = 0.00"}
    study = CachedSweep(load_sweep(folder / OWN), Bootstrap(0.5))
    assert table.iloc[2][study.measures[study.pace].title] == cell(
        study.measures[study.pace], study.value(study.pace, 0.0)
    )
    assert "Each of the 4 variants is tested at 87.5 %, so that whichever is chosen holds at 50 %." in said(tab)
    few = section(opened(sweep=OWN), SECTIONS)
    little, needed = frames(few)[1].value, study.recommendation(1.0, 0.95, 4).prompts_needed
    assert little.iloc[2]["prompts to test the next"] == f"about {about(needed)}"
    assert set(little["loosest within the loss"]) == {"not enough prompts"}
    assert "grid-figure" not in {each.key for each in section(opened(sweep="mars"), SECTIONS).segmented_control}
    assert all(text.startswith("about ") for text in little["prompts to test the next"])
    assert study.recommendation(1.0, 0.95).prompts_needed != needed


def test_the_evidence_holds_the_grid(folder: Path) -> None:
    packs: list[Any] = []
    packed = lambda _, data, *rest, **how: packs.append(data) if how["key"] == "evidence-pack" else None  # noqa: E731
    with patch.object(detail.st, "download_button", packed):
        section(opened(sweep=OWN, dial="0.3"), 5)
        section(opened(sweep="mars"), 5)
    (of_grid, alone) = (zipfile.ZipFile(io.BytesIO(data())) for data in packs)
    lines = list(csv.DictReader(io.StringIO(of_grid.read("evidence/setting_grid.csv").decode())))
    assert {line["k"] for line in lines} == {"1", "2", "3", "5"}
    assert of_grid.read("evidence/evidence.md").decode().count("is tested at 98.75 %, so that") == 5  # its own, and all
    assert "## The grid, k × r" in of_grid.read("evidence/evidence.md").decode()
    assert "evidence/setting_grid.csv" not in alone.namelist()
    assert "is tested at" not in alone.read("evidence/evidence.md").decode()


def left(folder: Path, finished: int, *rules: str, count: int = 5) -> None:
    """Sweeps that were stopped so far."""
    for rule in rules:
        steps = iter(toy_sweep(folder / rule.replace(":", "-"), count, replace(VLLM, rule=rule)))
        next(now for now in steps if now.finished == finished)
        steps.close()  # type: ignore[attr-defined]


def test_unfinished_variants_are_continued_together(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(empty, 2, "vllm-thinking:k=5", "fly:w=2", "mars")
    left(empty, 1, "vllm-thinking", "vllm-thinking:k=2")
    left(empty, 1, "vllm-thinking:k=7", count=4)
    toy_sweep(empty / "whole", 5, replace(VLLM, rule="vllm-thinking:k=8")).finish()
    made: list[GridSweep] = []

    def begun(_: object, prompts: Any, settings: Any, folders: Any, span: Any, **how: Any) -> GridSweep:
        made.append(GridSweep(table_backend(), prompts, settings, folders, span, **how))
        return made[0]

    own = worker()
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: own)
    monkeypatch.setattr(grid_sweep, "sweep_grid", begun)
    found, name = shelf(empty), "vllm-thinking-k=5"
    assert [each.path.name for each in found.left_beside("mars")] == []
    with locks.held(empty / "vllm-thinking-k=2"):
        assert [each.path.name for each in found.left_beside(name)] == ["vllm-thinking"]
    tab = opened(sweep=name)
    assert "Continue also resumes 2 unfinished variants of this rule" in said(tab)
    sweep_requests.go_on(found.entries[name], found.left_beside(name))
    job = jobs_in(empty)[name]
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.DONE, job.progress
    assert {path.name for path in job.labels} == {name, "vllm-thinking", "vllm-thinking-k=2"}
    assert len(made[0].sweeps) == 3 and all(load_sweep(folder).complete for folder in job.labels)
    assert not load_sweep(empty / "fly-w=2").complete


def test_a_grid_in_a_subfolder_is_found(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in toy_grid(empty / "g", count=2):
        pass
    toy_sweep(empty / "alone", 2).finish()
    (empty / "file.txt").write_text("")
    toy_sweep(empty / "far" / "away" / "mars", 2).finish()
    found = shelf(empty)
    assert set(found.entries) == {"alone", *(f"g/{path.name}" for path in GRID.folders(empty))}
    assert len(found.variants(f"g/{OWN}")) == 3
    tab = opened(sweep=f"g/{OWN}")
    assert "vLLM relaxed thinking at " in said(tab)
    job = SweepJob(empty / "g" / OWN, lambda pair: pytest.fail("never begun"), "a")
    tab_jobs.shared_worker().name(job, job.folder)
    assert jobs_in(empty) == {f"g/{OWN}": job} and jobs_in(empty / "g") == {OWN: job}
    assert not jobs_in(empty.parent.parent)
