"""Default runs on a server where other visitors have decoded: the samples, which are what their titles say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz import samples
from mars_viz.errors import BadInput
from mars_viz.records import Timing
from mars_viz.runfiles import load_run
from mars_viz.runstore import RunStore, list_runs
from mars_viz.sweep import load_sweep
from mars_viz.ui import library
from mars_viz.ui.lessons import LESSONS
from mars_viz.ui.lessons.base import is_lossless
from mars_viz.ui.session import KEY, Session
from mars_viz.ui.tune.catalogue import CachedSweep
from tests.factories import toy_run
from tests.tabs import opened, sent, settled
from training import samples as trained

FIRST, SAMPLE, SAMPLED = "0-1-plants-mars", "1-story-mars", "4-story-sampled-lossless"
WITH_RUN = ("explore", "compare", "rules", "learn")


@pytest.fixture
def visited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Visitors' runs in the server's folder: one token, lossy by a disturbed clock, no rounds, interrupted."""
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    store, noisy = RunStore(tmp_path), Timing(draft=0.5, verify=0.001, total=0.6)
    lossy = toy_run(rule="mars-sampling", temperature=1.0, dial=0.5, max_new_tokens=30)
    for run in (
        replace(toy_run(dial=0.9, max_new_tokens=1), title="One token"),
        replace(lossy, title="Lossy", rounds=tuple(replace(round_, timing=noisy) for round_ in lossy.rounds)),
        replace(toy_run(rule="strict"), title="No rounds", rounds=()),
    ):
        store.finish(store.begin(), run)
    journal, cut = store.begin(), toy_run(dial=0.9, max_new_tokens=30)
    journal.write(replace(cut, rounds=cut.rounds[:2], title="Cut short"))
    journal.leave()
    return [kept.name for kept in store.list()]


def query(tab: AppTest) -> dict[str, str]:
    return {name: value[0] if isinstance(value, list) else value for name, value in tab.query_params.items()}


def words(tab: AppTest) -> str:
    return " ".join([*(html.body for html in tab.html), *(part.value for part in tab.markdown)])


def figure(tab: AppTest) -> Any:
    """The figure that the lesson's element was sent."""
    return next(data[0] for data in sent(tab) if "knobs" in data[0])["figure"]


def test_every_page_opens_on_a_sample_whatever_others_decoded(visited: list[str], tmp_path: Path) -> None:
    assert len(visited) == 4
    for page in WITH_RUN:
        assert query(opened(f"pages/{page}.py"))["run"] == FIRST
    cards = [html.body for html in opened("pages/gallery.py").html if "mv-card" in html.body]
    cards = [card for card in cards if "<style>" not in card]
    titles = [load_run(entry.path).title for entry in list_runs(samples.RUNS)]
    assert all(title.replace("'", "&#x27;") in card for title, card in zip(titles, cards[: len(titles)], strict=True))
    assert len(cards) == len(titles) + len(LESSONS)
    replace(toy_run(), title="Masked").save(tmp_path / SAMPLE)
    for name in ("first", "second"):
        replace(toy_run(), title="Twins").save(tmp_path / name)
    shelf = library.shelf(Session())
    assert shelf.recorded[SAMPLE].path.parent == samples.RUNS, "a run cannot hide a sample of its name"
    assert len(set(shelf.labels.values())) == len(shelf.labels), "runs of one title can both be chosen"


def test_a_lesson_opens_on_its_sample(visited: list[str]) -> None:
    runs = [load_run(path) for path in samples.RUNS.iterdir()]
    for number in (1, 2, 3):
        lesson, tab = LESSONS[number - 1], opened("pages/learn.py", lesson=str(number))
        assert query(tab)["run"] == lesson.sample == tab.selectbox(key="run").value
        assert "mv-note" not in words(tab).split("</style>")[-1]
        if number == 1:  # visitors' clocks are left out
            assert {each["name"] for each in figure(tab)["runs"]} == {run.title for run in runs}
            continue
        offered = tab.selectbox(key="run").options
        for run in runs:
            fits = (run.settings.temperature > 0) == (number == 3) and not run.settings.drafts_trees
            assert not fits or run.title in offered
        assert "No rounds" not in offered and ("Lossy" in offered) == (number == 3)
    for lesson in LESSONS:
        run = load_run(samples.RUNS / lesson.sample)
        assert lesson.lacks(run) == "" and (lesson.caution is None or lesson.caution(run) == "")


def test_a_lesson_says_why_a_run_does_not_fit_and_leaves_that_of_other_pages_alone(visited: list[str]) -> None:
    tab = opened("pages/learn.py", lesson="3", run="3-story-sampled-mars")
    assert "This run is lossy" in words(tab) and figure(tab)["p"], "it is shown all the same"
    assert [each.label for each in tab.button if each.key == "learn-open"]
    tab = opened("pages/learn.py", lesson="3", run=SAMPLE)
    assert "This run is greedy" in words(tab) and query(tab)["run"] == SAMPLE
    (way_on,) = (each for each in tab.button if each.key == "learn-open")
    assert load_run(samples.RUNS / SAMPLED).title in way_on.label
    settled(way_on.click().run())
    assert query(tab)["run"] == SAMPLED and "This run is greedy" not in words(tab)
    tab = opened("pages/learn.py", run="2-story-strict")
    settled(tab.button_group(key="learn-lesson").set_value(3).run())
    assert query(tab)["run"] == SAMPLED and tab.session_state[KEY].view.run == "2-story-strict"
    settled(tab.button_group(key="learn-lesson").set_value(0).run())
    assert query(tab)["run"] == "2-story-strict"


def test_without_samples_or_with_others_no_visitors_run_is_the_default(
    visited: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(samples.VARIABLE, "off")
    for page in WITH_RUN:
        tab = opened(f"pages/{page}.py")
        assert "run" not in query(tab) and tab.selectbox(key="run").value is None, page
        assert library.NO_SAMPLES in words(tab), page
    for number in range(1, len(LESSONS) + 1, 3):
        assert library.NONE_CHOSEN in words(opened("pages/learn.py", lesson=str(number)))
    tab = opened("pages/gallery.py")
    assert library.NO_SAMPLES in words(tab) and [each for each in tab.button if each.key == "begin"]

    session = Session()  # its own newest run is
    session.keep(toy_run(seed=1), "upload")
    newest = session.keep(replace(toy_run(seed=2), title="Mine"), "upload")
    shelf = library.shelf(session)
    assert shelf.default == newest and shelf.described(newest).startswith("Your run")
    assert library.suited(shelf, LESSONS[3].lacks, LESSONS[3].sample) == newest

    replace(toy_run(), title="Ours").save(tmp_path / "folder" / "ours")
    monkeypatch.setenv(samples.VARIABLE, str(tmp_path / "folder"))
    assert query(opened("pages/explore.py"))["run"] == "ours" and not samples.wanted()
    monkeypatch.setenv(samples.VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(BadInput, match="names no folder"):
        samples.runs_folder()
    assert "names no folder" in words(opened("pages/gallery.py"))


def test_is_lossless() -> None:
    for rule, temperature, dial, lossless in (
        ("strict", 0.0, None, True),
        ("mars", 0.0, 1.0, True),
        ("mars", 0.0, 0.9, False),
        ("rejection-sampling", 1.0, None, True),
        ("mars-sampling", 1.0, 1.0, True),
        ("mars-sampling", 1.0, 0.99, False),
        ("mars", 1.0, 1.0, False),
        ("mars-code", 1.0, 1.0, False),
    ):
        assert is_lossless(toy_run(max_new_tokens=8, rule=rule, temperature=temperature, dial=dial)) == lossless


def test_the_recorded_samples_are_complete_and_small(tmp_path, capsys):
    runs = {entry.path.name: load_run(entry.path) for entry in list_runs(samples.RUNS)}
    assert set(runs) >= {sample.folder for sample in (*trained.samples(), *trained.chat_samples())}
    for name, run in runs.items():
        assert run.dial_map.complete and run.dial_map.at(run.settings.dial).token_ids == run.token_ids, name
    strict = runs["0-2-plants-strict"].token_ids
    assert all(runs[f"0-{name}"].dial_map.at(1.0).token_ids == strict for name in ("1-plants-mars", "3-plants-tree"))
    for wanted in trained.sample_sweeps():
        result = load_sweep(samples.SWEEPS / wanted.folder)
        assert result.complete and len(result) == trained.PROMPTS and not result.failures
        assert replace(result.plan.settings, dial=None) == wanted.settings
        assert CachedSweep(result).graded and CachedSweep(result).pace == "answer"
    folders = samples.RUNS, samples.SWEEPS, samples.RACES
    assert sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()) < 25e6
    (tmp_path / trained.samples()[-1].folder).mkdir()
    assert trained.main(["--out", str(tmp_path), "--only", "runs"]) == 2 and "exists already" in capsys.readouterr().err
