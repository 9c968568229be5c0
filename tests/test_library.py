"""What a newcomer is shown on a server where others have decoded: the samples, whatever the others made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from streamlit.testing.v1 import AppTest

from mars_viz import samples
from mars_viz.errors import BadInput
from mars_viz.records import Timing
from mars_viz.run import Run
from mars_viz.runfiles import list_runs, load_run
from mars_viz.runstore import RunStore
from mars_viz.ui import library
from mars_viz.ui.lessons import LESSONS
from mars_viz.ui.lessons.base import is_lossless
from mars_viz.ui.session import KEY, Session
from tests.factories import toy_run
from tests.served import ROOT, served
from tests.tabs import opened, settled
from tests.test_learn_page import element, query, said

EVERY = range(1, len(LESSONS) + 1)
NOISY = Timing(draft=0.5, verify=0.001, total=0.6)
FIRST, SAMPLE = "0-1-plants-mars", "1-story-mars"


def odd_runs() -> Iterator[Run]:
    """What visitors leave behind: one token, a lossy sampled text by a clock that was disturbed, no rounds."""
    yield replace(toy_run(dial=0.9, max_new_tokens=1), title="One token")
    lossy = toy_run(rule="mars-sampling", temperature=1.0, dial=0.5, max_new_tokens=30)
    yield replace(lossy, title="Lossy", rounds=tuple(replace(round_, timing=NOISY) for round_ in lossy.rounds))
    yield replace(toy_run(rule="strict"), title="No rounds", rounds=())


def fill(folder: Path) -> list[str]:
    """Put them into a store, and one that was interrupted; their ids."""
    store = RunStore(folder)
    for run in odd_runs():
        store.finish(store.begin(), run)
    journal = store.begin()
    cut = toy_run(dial=0.9, max_new_tokens=30)
    journal.write(replace(cut, rounds=cut.rounds[:2], title="Cut short"))
    journal.leave()
    return [kept.name for kept in store.list()]


@pytest.fixture
def visited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of visitors' runs in the server's folder."""
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    return fill(tmp_path)


def shown(tab: AppTest) -> str:
    return query(tab)["run"]


def pages_without_run(**parameters: str) -> dict[str, AppTest]:
    return {page: opened(f"pages/{page}.py", **parameters) for page in ("explore", "compare", "rules", "learn")}


def test_a_newcomer_sees_samples_on_every_page_whatever_others_decoded(visited):
    assert len(visited) == 4
    assert {page: shown(tab) for page, tab in pages_without_run().items()} == dict.fromkeys(
        ("explore", "compare", "rules", "learn"), FIRST
    )


@pytest.mark.parametrize("number", EVERY)
def test_a_lesson_is_shown_on_its_sample_and_says_so(visited, number):
    lesson, tab = LESSONS[number - 1], opened("pages/learn.py", lesson=str(number))
    assert shown(tab) == lesson.sample and "mv-note" not in said(tab).split("</style>")[-1]
    run = load_run(samples.RUNS / lesson.sample)
    assert lesson.lacks(run) == "" and "Sample run: " in said(tab)
    assert lesson.caution is None or lesson.caution(run) == ""
    assert query(tab)["run"] == tab.selectbox(key="run").value


def test_a_lesson_offers_the_runs_that_may_fit_and_no_others(visited):
    for number, fits in ((3, is_sampled), (2, is_greedy_chain)):
        offered = opened("pages/learn.py", lesson=str(number)).selectbox(key="run").options
        titles = {run.title for run in map(load_run, samples.RUNS.iterdir()) if fits(run)}
        assert titles <= set(offered) and not {"No rounds"} & set(offered)
        assert ("Lossy" in offered) == (number == 3)


def is_greedy_chain(run: Run) -> bool:
    return run.settings.temperature == 0 and not run.settings.drafts_trees


def is_sampled(run: Run) -> bool:
    return run.settings.temperature > 0


def test_a_run_that_does_not_fit_says_why_and_offers_the_sample_that_does(visited):
    tab = opened("pages/learn.py", lesson="3", run=SAMPLE)
    assert "This run is greedy" in said(tab) and shown(tab) == SAMPLE
    (way_on,) = (each for each in tab.button if each.key == "learn-open")
    assert way_on.label == f"Open “{load_run(samples.RUNS / '4-story-sampled-lossless').title}”"
    settled(way_on.click().run())
    assert shown(tab) == "4-story-sampled-lossless" and "This run is greedy" not in said(tab)


def test_rejection_sampling_on_a_lossy_run_says_that_the_run_is_lossy(visited):
    tab = opened("pages/learn.py", lesson="3", run="3-story-sampled-mars")
    assert "This run is lossy" in said(tab) and element(tab)["figure"]["p"], "it is shown all the same"
    assert [each.label for each in tab.button if each.key == "learn-open"]
    assert "lossy" not in said(opened("pages/learn.py", lesson="3")).replace(LESSONS[3].answer, "")


def test_lessons_leave_the_run_of_the_other_pages_alone(visited):
    session = Session(shows_text=True)
    tab = opened("pages/learn.py", run="2-story-strict")
    tab.session_state[KEY] = session = tab.session_state[KEY]
    settled(tab.button_group(key="learn-lesson").set_value(3).run())
    assert shown(tab) == "4-story-sampled-lossless" and session.view.run == "2-story-strict"
    settled(tab.button_group(key="learn-lesson").set_value(0).run())
    assert shown(tab) == "2-story-strict"


def test_visitors_clocks_are_no_diamonds(visited):
    tab = opened("pages/learn.py", lesson="1")
    assert {run["name"] for run in element(tab)["figure"]["runs"]} == {
        load_run(path).title for path in samples.RUNS.iterdir()
    }


def test_the_gallery_shows_the_samples_first_and_others_runs_apart(visited):
    tab = opened("pages/gallery.py")
    cards = [html.body for html in tab.html if "mv-card" in html.body and "<style>" not in html.body]
    titles = [load_run(entry.path).title for entry in list_runs(samples.RUNS)]
    assert all(title.replace("'", "&#x27;") in card for title, card in zip(titles, cards[: len(titles)], strict=True))
    assert "Lossy" not in "".join(cards[: len(titles)]) and "Lossy" in "".join(cards[len(titles) :])
    assert len(cards) == len(titles) + len(visited) + len(LESSONS) + 1, "each run is one card"
    assert all("<img" in card for card in cards[-len(LESSONS) - 1 :]), "every lesson and the race has a picture"


def test_without_samples_nobody_elses_run_is_anybodys_default(visited, monkeypatch):
    monkeypatch.setenv(samples.VARIABLE, "off")
    for page, tab in pages_without_run().items():
        assert "run" not in query(tab) and tab.selectbox(key="run").value is None, page
        assert library.NO_SAMPLES in said(tab) and "Choose a run from the list" in said(tab), page
    for number in EVERY:
        tab = opened("pages/learn.py", lesson=str(number))
        assert library.NO_SAMPLES in said(tab) and LESSONS[number - 1].wanted.replace("'", "&#x27;") in said(tab)
    tab = opened("pages/gallery.py")
    assert library.NO_SAMPLES in said(tab) and "Open one of the runs below" in said(tab)
    assert next(each.label for each in tab.button if each.key == "begin") == "Decode a prompt on Explore"


def test_of_a_tab_without_samples_its_own_newest_run_is_the_default(visited, monkeypatch):
    monkeypatch.setenv(samples.VARIABLE, "off")
    session = Session()
    session.keep(toy_run(seed=1), "upload")
    newest = session.keep(replace(toy_run(seed=2), title="Mine"), "upload")
    shelf = library.shelf(session)
    assert shelf.default == newest and shelf.described(newest).startswith("Your run, Uploaded: ")
    assert library.suited(shelf, LESSONS[3].lacks, LESSONS[3].sample) == newest


def test_a_sample_cannot_be_hidden_behind_a_run_of_its_name(visited, tmp_path, monkeypatch):
    replace(toy_run(), title="Masked").save(tmp_path / SAMPLE)
    assert library.shelf(Session()).recorded[SAMPLE].path.parent == samples.RUNS


def test_runs_of_one_title_can_both_be_chosen(visited, tmp_path):
    for name in ("first", "second"):
        replace(toy_run(), title="Twins").save(tmp_path / name)
    labels = library.shelf(Session()).labels
    assert len(set(labels.values())) == len(labels)
    tab = opened("pages/explore.py")
    for name in ("first", "second"):
        tab.selectbox(key="run").select(name).run()
        assert shown(tab) == name


def test_samples_can_be_of_another_folder(visited, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("ours")
    replace(toy_run(), title="Ours").save(folder / "ours")
    monkeypatch.setenv(samples.VARIABLE, str(folder))
    assert shown(opened("pages/explore.py")) == "ours" and not samples.wanted()
    monkeypatch.setenv(samples.VARIABLE, str(folder / "gone"))
    with pytest.raises(BadInput, match="names no folder"):
        samples.runs_folder()
    assert "names no folder" in said(opened("pages/gallery.py"))


@pytest.mark.parametrize(
    ("settings", "lossless"),
    [
        ({"rule": "strict"}, True),
        ({"rule": "mars", "dial": 1.0}, True),
        ({"rule": "mars", "dial": 0.9}, False),
        ({"rule": "rejection-sampling", "temperature": 1.0}, True),
        ({"rule": "mars-sampling", "temperature": 1.0, "dial": 1.0}, True),
        ({"rule": "mars-sampling", "temperature": 1.0, "dial": 0.99}, False),
        ({"rule": "mars", "temperature": 1.0, "dial": 1.0}, False),
        ({"rule": "mars-code", "temperature": 1.0, "dial": 1.0}, False),
    ],
)
def test_what_is_lossless(settings: dict[str, Any], lossless: bool):
    assert is_lossless(toy_run(max_new_tokens=8, **settings)) == lossless


@pytest.fixture
def newcomer(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Page, str]]:
    """A fresh browser on a server with visitors' runs; a script error in it fails the test."""
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    fill(tmp_path)
    errors: list[str] = []
    with (
        served(ROOT / "app.py") as address,
        browser.new_context(viewport={"width": 1400, "height": 900}) as context,
    ):
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page, address
    assert not errors


def test_in_a_browser_the_first_visit_leads_through_samples_that_work(newcomer: tuple[Page, str]) -> None:
    page, address = newcomer
    page.goto(address, wait_until="commit")
    page.get_by_role("button", name="Open this run in Explore").click()
    page.wait_for_url(f"**/explore?run={FIRST}*")
    expect(page.locator(".explorer .stream .t").first).to_be_visible()
    page.get_by_role("link", name="Learn").click()
    for number, lesson in enumerate(LESSONS, 1):
        page.get_by_role("radio", name=f"{number} · {lesson.name}").click()
        page.wait_for_function(
            "([run, lesson]) => { const q = new URLSearchParams(location.search);"
            " return q.get('run') === run && q.get('lesson') === lesson; }",
            arg=[lesson.sample, str(number)],
        )
        expect(page.get_by_role("heading", name=f"{number} · {lesson.title}")).to_be_visible()
        expect(page.locator(".explorer").first).to_be_visible()
        expect(page.locator(".mv-note")).to_have_count(0)
