"""Grids on the Tune page, sweeps as jobs, and the figures of the page."""

from __future__ import annotations

import io
import threading
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
from sweep_cases import SHORT, timing, toy_prompts, toy_sweep

from mars_viz import default_folders, figures, locks
from mars_viz.analysis.intervals import Band, Bootstrap, Frontier, Interval, Method
from mars_viz.analysis.recommendation import about
from mars_viz.axis import Span
from mars_viz.errors import BadInput
from mars_viz.figures.frontier import RulePath, dial_curve, frontier_figure, share_bars
from mars_viz.sweep import Sweep, load_sweep
from mars_viz.sweep.columns import RANK_WORDS, SHARE_WORDS
from mars_viz.sweep.measures import Terms, cell
from mars_viz.sweep.report import CachedSweep
from mars_viz.sweep.store import list_sweeps, open_store
from mars_viz.sweep.wall_clock import keep_check
from mars_viz.ui import tab_jobs
from mars_viz.ui.jobs.models import JobState, Models, background_task
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.tune import detail, sweep_requests
from mars_viz.ui.tune.catalogue import Sweeping, jobs_in, shelf, sweep_job, timed_check
from tests.factories import PATIENCE, until
from tests.tables import table_backend
from tests.tabs import keys, notes, press
from tests.test_grid import GRID, VLLM, toy_grid
from tests.test_tune_page import empty, frames, opened, section, settled

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
    stopped(folder / "half", 2, "vllm-thinking:k=9", 8)
    return folder


def stopped(out: Path, finished: int, rule: str, count: int = 5) -> None:
    """A sweep that was stopped after so many prompts."""
    steps = iter(toy_sweep(out, count, replace(VLLM, rule=rule)))
    next(now for now in steps if now.finished == finished)
    steps.close()  # type: ignore[attr-defined]


def study_of(path: Path, *interval: Bootstrap) -> CachedSweep:
    return CachedSweep(load_sweep(path), *interval)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = worker()
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: made)
    return made


@pytest.fixture
def folder(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(default_folders.SWEEPS, str(swept))
    return swept


def test_the_form_has_the_rules_fixed_settings(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(sweep_requests, "_begin", lambda wish, names, span, into: begun.append((names, span)) or [into])
    tab = opened()
    settled(tab.multiselect(key="sweep-rules").set_value(["mars", "vllm-thinking", "fly"]).run())
    assert not [key for key in keys(tab) if key.startswith("sweep-fixed-mars")]
    field = tab.number_input(key="sweep-fixed-vllm-thinking-k")
    assert (field.value, field.min, field.max) == (3, 1, 16)
    field.set_value(5)
    for listed, fragment in (
        ("2, four", "'four'"),
        ("2,,4", "a value is missing"),
        ("20", "k is 20; it must be a whole number from 1 to 16"),
        ("<img src=x>", "is no number"),
    ):
        tab.text_input(key="sweep-also-vllm-thinking-k").set_value(listed)
        press(tab, "sweep-begin")
        assert fragment in notes(tab).replace("&#x27;", "'") and "<img" not in notes(tab) and not begun
    tab.text_input(key="sweep-also-vllm-thinking-k").set_value("1, 5,3")
    tab.number_input(key="sweep-fixed-fly-w").set_value(2)
    tab.number_input(key="sweep-loosest-vllm-thinking").set_value(0.2)
    press(tab, "sweep-begin")
    assert begun == [
        (["mars"], Span(0.0, 1.0, (6,))),
        (["vllm-thinking:k=5", "vllm-thinking:k=1", "vllm-thinking"], Span(0.2, 1.0, (6,))),
        (["fly:w=2"], Span(0.0, 1.1, (6,))),
    ]


def test_a_grid_is_one_job_with_many_folders(empty: Path, own: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lambda pair, prompts, settings, span, out, **how: toy_grid(out[0].parent / "made")  # noqa: E731
    monkeypatch.setattr("mars_viz.ui.tune.sweep_requests.sweep_prompts", made)
    rules = ("vllm-thinking", "vllm-thinking:k=5", "vllm-thinking:k=2")
    wish = sweep_requests.SweepRequest(toy_prompts(3), rules, VLLM)
    many = replace(wish, rules=tuple(f"fly:w={window}" for window in range(1, 19) if window != 6), settings=SHORT)
    with pytest.raises(BadInput, match="at most 16"):
        sweep_requests.begin(many, empty)
    names = sweep_requests.begin(wish, empty)
    assert [name.split("-", 2)[2] for name in names] == [rule.replace(":k=", "-k") for rule in rules]
    jobs = jobs_in(empty)
    assert set(jobs) == set(names) and len(set(map(id, jobs.values()))) == 1
    (job,) = set(jobs.values())
    labels = shelf(empty).labels
    until(lambda: job.progress.state.finished)
    assert (job.progress.state, job.progress.finished, job.progress.prompts) == (JobState.DONE, 5, 5)
    assert "vLLM relaxed thinking, k = 5 · toys, 3 prompts" in labels[names[1]]


def test_the_sweeps_of_a_grid_are_found_and_named_by_their_differences(folder: Path) -> None:
    found = shelf(folder)
    variants = set(found.variants(OWN))
    five = {"vllm-thinking-k5", "another-k5"} & variants
    assert len(five) == 1 and variants - five == {"vllm-thinking-k1", "vllm-thinking-k2"}
    assert not found.variants("mars") and not found.variants("half") and not found.variants("gamma")
    assert not found.variants("nowhere")
    one, two, three, five = (study_of(path) for path in GRID.folders(folder))
    mars, gamma, again = (study_of(folder / name) for name in ("mars", "gamma", "another-k5"))
    for studies, names in (
        ([one, two, three, five], ["k = 1", "k = 2", "k = 3", "k = 5"]),
        ([five, mars], ["vLLM relaxed thinking, k = 5", "MARS"]),
        ([five, gamma], ["k = 5, γ = 3", "k = 8, γ = 2"]),
        ([three], ["vLLM relaxed thinking"]),
        ([five, again], 2 * ["vLLM relaxed thinking, k = 5"]),
    ):
        assert detail._names(studies) == names


def test_the_grids_tables_have_the_figures_of_each_sweep_and_recommend_a_setting(folder: Path) -> None:
    tab = section(opened(sweep=OWN, dial="0.3"), 7)
    table = frames(tab)[0].value
    assert list(table["k"]) == ["1", "2", "3", "5"]
    assert list(table.columns)[1:] == ["r = 0.00", "r = 0.25", "r = 0.30", "r = 0.50", "r = 0.75", "r = 1.00"]
    for place, path in enumerate(GRID.folders(folder)[:3]):
        study = study_of(path)
        assert table.iloc[place]["r = 0.30"] == cell(study.measures["tau"], study.value("tau", 0.3))
    settled(tab.segmented_control(key="grid-figure").set_value("accuracy").run())
    study = study_of(folder / OWN)
    accuracy = cell(study.measures["accuracy"], study.value("accuracy", 0.3))
    assert frames(tab)[0].value.iloc[2]["r = 0.30"] == accuracy
    tab = section(opened(sweep=OWN, loss="100", cut_off="100", looping="100", confidence="0.5"), 7)
    table = frames(tab)[1].value
    assert list(table["k"]) == ["1", "2", "3", "5"] and set(table["loosest within the loss"]) == {"r = 0.00"}
    study = study_of(folder / OWN, Bootstrap(0.5))
    pace = study.measures[study.pace]
    assert table.iloc[2][pace.title] == cell(pace, study.value(study.pace, 0.0))
    assert "Each of the 4 variants is tested at 87.5 %, so that whichever is chosen holds at 50 %." in notes(tab)
    few = frames(section(opened(sweep=OWN), 7))[1].value
    needed = study.recommendation(Terms(), 4).prompts_needed
    assert few.iloc[2]["prompts to test the next"] == f"about {about(needed)}"
    assert set(few["loosest within the loss"]) == {"not enough prompts"}
    assert study.recommendation(Terms()).prompts_needed != needed
    assert "grid-figure" not in keys(section(opened(sweep="mars"), 7))


def test_the_evidence_holds_the_grid(folder: Path) -> None:
    packs: list[Any] = []
    packed = lambda _, data, *rest, **how: packs.append(data) if how["key"] == "evidence-pack" else None  # noqa: E731
    with patch.object(detail.st, "download_button", packed):
        for name, has_grid in ((OWN, True), ("mars", False)):
            section(opened(sweep=name, dial="0.3"), 6)
            pack = zipfile.ZipFile(io.BytesIO(packs.pop()()))
            assert ("evidence/setting_grid.csv" in pack.namelist()) == has_grid
            words = pack.read("evidence/evidence.md").decode()
            assert words.count("is tested at 98.75 %, so that") == (6 if has_grid else 0)  # its own too


def test_unfinished_variants_are_continued_together(empty: Path, own: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    for rule, finished, count in (
        *(("vllm-thinking:k=5", 2, 5), ("fly:w=2", 2, 5), ("mars", 2, 5)),
        *(("vllm-thinking", 1, 5), ("vllm-thinking:k=2", 1, 5), ("vllm-thinking:k=7", 1, 4)),
    ):
        stopped(empty / rule.replace(":", "-"), finished, rule, count)
    toy_sweep(empty / "whole", 5, replace(VLLM, rule="vllm-thinking:k=8")).finish()
    made: list[Sweep] = []

    def begun(_: object, prompts: Any, settings: Any, span: Any, out: Any, **how: Any) -> Sweep:
        made.append(Sweep(table_backend(), prompts, settings, span, out, **how))
        return made[0]

    monkeypatch.setattr("mars_viz.ui.tune.sweep_requests.sweep_prompts", begun)
    found, name = shelf(empty), "vllm-thinking-k=5"
    assert not found.left_beside("mars")
    with locks.held(empty / "vllm-thinking-k=2"):
        assert [each.path.name for each in found.left_beside(name)] == ["vllm-thinking"]
    assert "Continue also resumes 2 unfinished variants of this rule" in notes(opened(sweep=name))
    sweep_requests.go_on(found.entries[name], found.left_beside(name))
    job = jobs_in(empty)[name]
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.DONE, job.progress
    assert {path.name for path in job.progress.labels} == {name, "vllm-thinking", "vllm-thinking-k=2"}
    assert len(made[0].folders) == 3 and all(load_sweep(folder).complete for folder in job.progress.labels)
    assert not load_sweep(empty / "fly-w=2").complete


def test_a_grid_in_a_subfolder_is_found(empty: Path) -> None:
    for _ in toy_grid(empty / "g", count=2):
        pass
    for path in ("alone", "far/away/mars"):
        toy_sweep(empty / path, 2).finish()
    found = shelf(empty)
    assert set(found.entries) == {"alone", *(f"g/{path.name}" for path in GRID.folders(empty))}
    assert len(found.variants(f"g/{OWN}")) == 3 and len(set(found.labels.values())) == 5
    assert "vLLM relaxed thinking at " in notes(opened(sweep=f"g/{OWN}"))
    job = sweep_job({empty / "g" / OWN: "a"}, lambda pair: pytest.fail("never begun"))
    tab_jobs.shared_worker().name(job, empty / "g" / OWN)
    assert jobs_in(empty) == {f"g/{OWN}": job} and jobs_in(empty / "g") == {OWN: job}
    assert not jobs_in(empty.parent.parent)


def worker() -> Worker:
    return Worker(Models(lambda choice, tell: object()))


def test_a_cancelled_sweep_job_is_resumed_and_a_job_begun_once(tmp_path):
    own, folder, go = worker(), tmp_path / "sweep", threading.Event()
    seen: list[Sweeping] = []

    def tell(**news: object) -> None:
        type(job).tell(job, **news)
        seen.append(job.progress)
        if job.progress.finished == 2:
            job.cancel()

    job = sweep_job({folder: "toys"}, lambda pair: go.wait(PATIENCE) and toy_sweep(folder, 4, SHORT))
    job.tell = tell
    other = sweep_job({folder: "toys"}, lambda pair: pytest.fail("begun twice"))
    assert own.begin(job, folder) is job and own.begin(other, folder) is job
    go.set()
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.CANCELLED and load_sweep(folder).finished == 2
    assert seen[-1].prompts == 4 and 0 < max(each.part for each in seen) <= 0.75 and job.progress.left > 0
    again = sweep_job({folder: "toys"}, lambda pair: toy_sweep(folder, 4, SHORT, resume=True))
    assert own.begin(again, folder) is again and own.names() == {folder: again}
    until(lambda: again.progress.state.finished)
    assert (again.progress.state, again.progress.before, again.progress.finished) == (JobState.DONE, 2, 4)
    assert load_sweep(folder).complete


def test_a_check_that_cannot_be_saved_is_shown(tmp_path):
    (tmp_path / "checks").write_text("a file where the folder should be")
    clock = MagicMock(progress=(0, 1), check=timing)
    clock.__iter__.return_value = iter([(1, 1)])
    own, job = worker(), background_task(partial(timed_check, lambda pair: clock), keep=partial(keep_check, tmp_path))
    own.submit(job)
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.FAILED and job.progress.result is not None
    assert "was not kept" in job.progress.error


def test_changed_and_missing_prompts_of_a_sweep_are_reported_and_sweeps_listed_with_their_progress(tmp_path):
    assert list_sweeps(tmp_path / "none") == []
    toy_sweep(tmp_path / "whole", 3, SHORT).finish()
    next(iter(toy_sweep(tmp_path / "begun", 2, SHORT)))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sweep.json").write_text("nonsense")
    (tmp_path / "other").mkdir()
    found = {entry.path.name: entry for entry in list_sweeps(tmp_path)}
    assert set(found) == {"whole", "begun", "broken"} and list(found)[-1] == "broken"
    assert found["whole"].complete and not found["begun"].complete
    assert "damaged" in found["broken"].error and found["broken"].plan is None
    store, path = open_store(tmp_path / "whole"), tmp_path / "whole" / "prompts.jsonl"
    assert store.prompts() == toy_prompts(3)
    path.write_text(path.read_text().replace("prompt 1", "prompt 7"))
    with pytest.raises(BadInput, match="is not what was swept"):
        store.prompts()
    path.unlink()
    with pytest.raises(BadInput, match="does not hold the prompts"):
        store.prompts()


theme = figures.DARK


def band(values: list[float], spread: float = 0.01) -> Band:
    estimate = np.array(values)
    return Band(estimate, estimate - spread, estimate + spread, 0.95, Method.BCA)


def rule_path(name: str, speeds: list[float], lost: list[float], marked: float = 0.9) -> RulePath:
    """Dial values 0.8, 0.9 and 1; strict at 1."""
    path = Frontier(np.array([0.8, 0.9, 1.0]), band([-each / 100 for each in lost]), band(speeds), "strict", True)
    return RulePath(name, "θ", path, 1.0, 0.8, marked)


def test_the_best_setting_is_the_fastest_within_the_loss_and_the_title_says_it():
    path = rule_path("A", [1.5, 1.2, 1.0], [5, 1, 0]).path
    assert [path.best_within(1.0, points) for points in (0.5, 1.0, 5.0)] == [2, 1, 0]
    alone = replace(path, accuracy=band([0.45, 0.49, 0.5]), paired=False)
    assert alone.lost(1.0) == pytest.approx([5, 1, 0]) and alone.best_within(1.0, 1.0) == 1
    accuracy, pace = (Interval(*values, 0.95, Method.BCA) for values in ((-0.03, -0.04, -0.02), (1.3, 1.2, 1.4)))
    found = path.through(0.85, accuracy, pace)
    assert found.dials.tolist() == [0.8, 0.85, 0.9, 1.0]
    assert found.speed_up.low[1] == 1.2 and found.accuracy.estimate[1] == -0.03 and found.near(0.87) == 1
    assert path.through(0.9, accuracy, pace) is path
    figure = frontier_figure([rule_path("<b>A</b>", [1.5, 1.2, 1.0], [5, 1, 0])], theme, 1.0)
    assert figures.spoken_title(figure).endswith(
        " at θ = 0.90 is 1.20× as fast as strict and loses 1 point of accuracy on these prompts"
    )
    assert "<b>A</b>" not in figure.to_json() and "&lt;b&gt;A" in figure.to_json()
    (left, right), (low, high) = figure.layout.xaxis.range, figure.layout.yaxis.range
    assert -5 < left < -2 and right > 1 and low < 0.99 and 1.21 < high < 1.5  # a loss of 5 is far beyond the limit of 1
    assert frontier_figure([rule_path("A", [1.5, 1.2, 1.0], [2, 1, 0])], theme, 1.0).layout.updatemenus == ()
    _, whole = figure.layout.updatemenus[0].buttons
    assert whole.args[0]["xaxis.range"][0] < -6 and whole.args[0]["yaxis.range"][1] > 1.51
    chosen = frontier_figure([rule_path("A", [1.5, 1.2, 1.0], [5, 1, 0], 0.8)], theme, 1.0)
    assert chosen.layout.xaxis.range[0] < -6  # the chosen setting is always in view
    two = [rule_path("A", [1.5, 1.2, 1.0], [5, 1, 0], 0.8), rule_path("B", [1.4, 1.3, 1.0], [2, 0.5, 0])]
    assert figures.spoken_title(frontier_figure(two, theme, 1.0)) == (
        "For at most 1 point lost on these prompts, B is fastest: 1.30× strict, at θ = 0.90"
    )


def test_a_frontier_has_a_box_for_each_setting_and_names_every_path_in_its_key():
    paths = [rule_path(name, [1.5, 1.2, 1.0], [5, 1, 0]) for name in ("A", "<B>")]
    figure = frontier_figure(paths, theme, 1.0)
    band = next(trace for trace in figure.data if trace.name == "band")
    assert [*band.x[:5], *band.x[6:11]] == pytest.approx([-6, -4, -4, -6, -6, -2, 0, 0, -2, -2]) and len(band.x) == 18
    assert band.y[:5] == pytest.approx([1.49, 1.49, 1.51, 1.51, 1.49])
    key = " ".join(each.text for each in figure.layout.annotations)
    assert "A, to θ = 0.80" in key and "&lt;B&gt;, to θ = 0.80" in key and "1 lost" in key


def test_bars_by_hand():
    shares = Band(np.array([0.75, 0.25]), np.array([0.5, 0.0]), np.array([1.0, 0.5]), 0.95, Method.BCA)
    for counts, words in (
        ([0, 0], "There is no relaxed token at this setting"),
        ([0, 1], "The one relaxed token has rank 3"),
        ([5, 0], "All 5 relaxed tokens have rank 2"),
        ([3, 1], "75 % of 4 relaxed tokens have rank 2"),
    ):
        figure = share_bars(["2", "3"], np.array(counts), shares, theme, axis="rank")
        assert figures.spoken_title(figure) == words and bool(figure.data) == any(counts)
    assert list(figure.data[0].x) == [75, 25] and list(figure.data[0].error_x.array) == [25, 25]
    assert list(figure.data[0].y) == ["2", "3"] and figure.layout.yaxis.autorange == "reversed"  # the first on top


def test_a_studys_figures_are_those_of_the_sweep(tmp_path: Path):
    study = CachedSweep(toy_sweep(tmp_path / "sweep", 8).finish())
    path = study.path(0.4321, paired=True)
    place = path.near(0.4321)
    assert path.dials[place] == 0.4321 and study.path(0.4321, paired=True) is path
    assert path.accuracy.estimate[place] == study.value("accuracy_change", 0.4321).estimate
    assert path.speed_up.estimate[place] == pytest.approx(study.value("speed_up_strict", 0.4321).estimate)
    for (counts, shares), labels in zip(study.relaxed(0.4).values(), (RANK_WORDS, SHARE_WORDS), strict=True):
        assert shares.estimate == pytest.approx(counts / counts.sum()) and len(labels) == len(counts)
    for name in study.measures:
        assert "At θ = 0.40" in figures.spoken_title(dial_curve(study.curve(name), 0.4, theme))
    assert 0 < study.value("agreed", 0.2).estimate < 1 and study.value("agreed", 1.0).estimate == 1
