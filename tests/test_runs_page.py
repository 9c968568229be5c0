"""The Runs page in AppTest: search, selection, changes, the bin, details; and the cookie that tells browsers apart."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.runtime.scriptrunner_utils.exceptions import StopException
from streamlit.runtime.state import SessionStateProxy
from streamlit.testing.v1 import AppTest

from mars_viz import samples
from mars_viz.components.explorer.pins import Choice
from mars_viz.runfiles import load_run
from mars_viz.runstore import RunStore
from mars_viz.ui import runs as runs_page
from mars_viz.ui import visitors
from mars_viz.ui.compare.page_state import Across
from mars_viz.ui.links import from_parameters, to_parameters
from mars_viz.ui.live import SAVED
from mars_viz.ui.runs import RunsPageState, RunsView
from mars_viz.ui.session import KEY
from tests import tabs
from tests.factories import toy_run
from tests.tabs import address, captions, keys, notes, press, settled

STORY = load_run(samples.RUNS / "1-story-mars").unmapped


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """An empty one, of a server that lets everybody change runs."""
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    monkeypatch.setenv("MARS_VIZ_DELETE", "everybody")
    return RunStore(tmp_path)


def kept(store: RunStore, title: str, day: int = 1, **values: object) -> str:
    """The name of a run that is in the store from then on."""
    made = replace(STORY.provenance, created=f"2026-01-0{day}T00:00:00+00:00")
    run = replace(STORY, title=title, provenance=made, **values)  # type: ignore[arg-type]
    return store.finish(store.begin(f"live-{day}"), run)


def opened(**parameters: str) -> AppTest:
    return tabs.opened("pages/runs.py", **parameters)


def rows(tab: AppTest) -> list[str]:
    """Ids in the table."""
    return [] if not tab.dataframe else list(tab.dataframe[0].value["id"])


def select(tab: AppTest, *names: str) -> AppTest:
    """Tick the rows of these runs."""
    places = [rows(tab).index(name) for name in names]
    (key,) = (each.proto.id.split("-", 2)[-1] for each in tab.dataframe)
    tab.session_state[key[key.index("runs-") :]] = {"selection": {"rows": places, "columns": [], "cells": []}}
    return settled(tab.run())


def rename(tab: AppTest, name: str, title: str) -> AppTest:
    tab.text_input(key=f"title-run-{name}").set_value(title)
    return press(tab, "run-save")


def test_runs_of_every_kind_are_rows_and_an_interrupted_one_opens(store, monkeypatch):
    assert "press Decode" in notes(opened())
    monkeypatch.delenv("MARS_VIZ_SAMPLES")
    kept(store, "Fox", tags=("wood", "b"))
    journal = store.begin("live-7")
    journal.write(replace(toy_run(), rounds=toy_run().rounds[:2]))
    (toy_run().save(store.folder / "toy") / "rows.parquet").write_bytes(b"")
    (store.folder / "broken").mkdir()
    (store.folder / "broken" / "manifest.json").write_text("{")
    table = opened().dataframe[0].value.set_index("id")
    assert len(table) == 4 + len(list(samples.RUNS.iterdir()))
    assert table.loc[["live-7", "broken"], "from"].tolist() == ["growing", "broken"]
    assert "being decoded" in notes(opened(run="live-7"))
    fox = table.loc["live-1", ["rule and dial", "sampling", "draft", "models", "tokens", "τ", "tags", "made, UTC"]]
    made = ["MARS θ = 0.9", "T 0", "γ 6", "built-in pair", 128, 6.4, "b, wood", "2026-01-01 00:00"]
    assert fox.tolist() == made
    assert str(store.folder) not in table.loc["broken", "prompt"] or visitors.may_name_paths()
    journal.leave()
    tab = opened(run="live-7")
    assert "interrupted" in notes(tab) and press(tab, "runs-open").selectbox(key="run").value == "live-7"
    broken = opened(run="toy")
    assert "is damaged or changed" in notes(broken) and broken.button(key="runs-open").disabled
    assert "no run of that name here" in notes(opened(run="../toy"))


def test_what_is_typed_and_chosen_is_in_the_link(store):
    kept(store, "Fox", 1, tags=("wood",))
    kept(store, "Bear", 2, prompt="By the river")
    made = replace(toy_run().provenance, created="2026-01-03T00:00:00+00:00")
    store.finish(store.begin("live-3"), replace(toy_run(rule="strict"), title="Wolf", provenance=made))
    tab = opened()
    assert rows(tab) == ["live-3", "live-2", "live-1"]
    settled(tab.text_input(key="runs-search").set_value("nowhere").run())
    assert rows(tab) == [] and "Search for fewer words" in notes(tab)
    for words, expected in (("RIVER by", ["live-2"]), ("strict", ["live-3"]), ("wood", ["live-1"])):
        settled(tab.text_input(key="runs-search").set_value(words).run())
        assert rows(tab) == expected and address(tab) == {"search": words}
    again = opened(search="mars", **{"from": "saved"})
    assert rows(again) == ["live-2", "live-1"] and again.text_input(key="runs-search").value == "mars"
    assert rows(opened(**{"from": "sample"})) == [] and "none of" in notes(opened(**{"from": "nope"}))
    assert len(rows(tabs.opened("pages/live.py", view=SAVED))) == 3  # an old link
    view = RunsView("a", "b c", "mine")
    assert from_parameters(RunsView, to_parameters(view)).view == view and to_parameters(RunsView()) == {}


def test_selected_runs_are_opened_and_compared(store):
    first, second = kept(store, "Fox", 1, tags=("wood",)), kept(store, "Bear", 2)
    whats = {"details", "explore", "compare"}
    for chosen, disabled in (((), whats), ((first,), {"compare"}), ((first, second), {"details", "explore"})):
        tab = select(opened(), *chosen)
        assert {what for what in whats if tab.button(key=f"runs-{what}").disabled} == disabled
    press(tab, "runs-compare")
    view = tab.session_state["mars_viz_Comparison"].view
    assert (view.across, {view.reference, view.shown}) == (Across.RUNS, {Choice(first), Choice(second)})
    assert press(select(opened(), first), "runs-explore").selectbox(key="run").value == first


def test_selected_runs_go_to_the_bin_and_come_back(store, monkeypatch):
    names = [kept(store, title, day) for day, title in enumerate(("Fox", "Bear", "Wolf"), 1)]
    tab = press(select(opened(), *names[:2]), "runs-delete")
    assert [entry.name for entry in store.list()] == [names[2]] and "Deleted: Bear" in notes(tab)
    assert tab.button(key="runs-delete").disabled, "nothing is selected any more"
    for name in names[:2]:
        press(tab, f"undo-run-{name}")
    assert len(store.list()) == 3 and "Deleted" not in notes(tab)
    press(select(tab, names[0]), "runs-delete")
    press(opened(), f"undo-run-{names[0]}")
    assert len(store.list()) == 3 and "not in the bin any more" in notes(press(tab, f"undo-run-{names[0]}"))
    monkeypatch.delenv("MARS_VIZ_SAMPLES")
    tab = select(opened(), "1-story-mars", names[1])
    assert tab.button(key="runs-delete").disabled and runs_page.SAMPLE in tab.button(key="runs-delete").help


def test_a_click_that_ends_the_run_of_the_one_before_takes_no_undo(store, monkeypatch):
    def end(*_):
        raise StopException

    state, item = RunsPageState(), runs_page.item_of(store.find(kept(store, "Fox")))
    monkeypatch.setattr(SessionStateProxy, "__setitem__", end)
    with suppress(StopException):
        state.delete([item])
    assert state.deleted == {item.key} and not store.list()


@pytest.mark.parametrize(
    ("setting", "browser", "may", "fragment"),
    [
        ("maker", "mine", True, "Only the browser that made a run"),
        ("maker", "other", False, "Only the browser that made it"),
        ("maker", "", False, "no cookie"),
        ("everybody", "", True, "Everybody"),
        ("nobody", "mine", False, "nobody"),
        ("anybody", "mine", False, "“anybody”"),
    ],
)
def test_who_may_change_runs_is_shown_and_enforced(store, monkeypatch, setting, browser, may, fragment):
    monkeypatch.setattr(visitors, "mark", lambda: browser)
    monkeypatch.setenv("MARS_VIZ_DELETE", setting)
    name = kept(store, "Fox")
    store.makers.note(name, "mine")
    tab = opened(run=name)
    assert tab.button(key="run-delete").disabled == ("run-save" not in keys(tab)) == (not may)
    listed = select(opened(), name)
    button = listed.button(key="runs-delete")
    assert button.disabled == (not may) and fragment in captions(listed) + button.help.replace("\\", "")
    state, run = RunsPageState(), store.find(name)
    state.attempt([runs_page.item_of(run)], lambda item: store.rename(item.name, "Bear"))
    assert store.find(name).heading == ("Bear" if may else "Fox")
    state.delete([runs_page.item_of(run)])
    assert [entry.name for entry in store.list()] == ([] if may else [name]) and bool(state.notices) == (not may)


def test_only_the_browser_that_made_a_run_restores_it_and_an_unknown_one_stays(store, monkeypatch):
    monkeypatch.delenv("MARS_VIZ_DELETE")
    unknown, mine = kept(store, "Fox", 2), kept(store, "Fox", 3)
    store.makers.note(mine, "mine")
    state, run = RunsPageState(), store.find(mine)
    for browser in ("mine", "other"):
        monkeypatch.setattr(visitors, "mark", lambda browser=browser: browser)
        assert rows(opened(**{"from": "mine"})) == ([mine] if browser == "mine" else [])
        state.delete(map(runs_page.item_of, [run, store.find(unknown)]))
        assert "not known which browser" in state.notices[-1] and [entry.name for entry in store.list()] == [unknown]
    state.restore([runs_page.item_of(run)])
    assert [entry.name for entry in store.list()] == [unknown] and state.notices


def test_two_tabs_change_one_run(store):
    name = kept(store, "Fox")
    one, other = (opened(run=name) for _ in range(2))
    rename(one, name, "Bear")
    rename(other, name, "Wolf")
    assert "It was renamed to “Bear” meanwhile" in notes(other) and store.find(name).heading == "Bear"
    rename(other, name, "Wolf")
    assert store.find(name).heading == "Wolf" and "meanwhile" not in notes(other)
    press(one, "run-delete")
    press(other, "run-delete")
    assert "no run of that name here any more" in notes(other) and address(one) == {}


def test_all_about_one_run(store):
    name = kept(store, "<img src=x>", prompt="It's a “fox”\n")
    tab = opened(run=name)
    assert "MARS θ = 0.9 · T 0 · seed 0" in notes(tab) and "<img" not in notes(tab)
    codes = [each.value for each in tab.code]
    assert any(code.startswith("mars-viz record --prompt='It'\"'\"'s a “fox”\n'") for code in codes)
    (link,) = (code for code in codes if "/explore?" in code)
    assert parse_qs(urlsplit(link).query) == {"run": [name]}
    (tags,) = (each.key for each in tab.multiselect if each.label == "Tags")
    for title, added, words in ((" ", [], "title is empty"), ("x", ["b,c"], "comma"), ("Fox", ["b", "a"], "Fox")):
        tab.session_state[tags] = added
        assert words in notes(rename(tab, name, title))
    assert store.find(name).heading == "Fox" and store.find(name).tags == ("a", "b")
    toy_run().save(store.folder / "toy")
    assert "does not name the drafter" in notes(opened(run="toy"))
    assert set(rows(press(opened(run=name), "runs-back"))) == {name, "toy"}


def test_the_folder_is_not_read_at_every_letter_and_a_run_of_this_tab_alone_has_no_link(store):
    fox, tab, bear = kept(store, "A fox", 1), opened(), kept(store, "A bear", 2)
    assert rows(settled(tab.text_input(key="runs-search").set_value("a").run())) == [fox], "typing waits for no disk"
    assert sorted(rows(settled(tab.segmented_control(key="runs-whose").set_value("saved").run()))) == sorted(
        [bear, fox]
    )
    tab = opened()
    name = tab.session_state[KEY].keep(STORY, "upload")
    settled(tab.run())
    assert rows(tab)[0] == name and tab.dataframe[0].value["from"][0] == "this tab"
    select(tab, name)
    assert tab.button(key="runs-delete").disabled and "only in the tab" in tab.button(key="runs-delete").help
    press(tab, "runs-details")
    assert "No link opens it" in notes(tab) and not any("/explore?" in each.value for each in tab.code)


def cookie(header: str) -> str:
    return SimpleCookie(header)[visitors.COOKIE].value


def test_a_browser_keeps_its_cookie_which_scripts_and_other_sites_do_not_read(monkeypatch):
    first, second = (cookie(visitors.set_cookie("", False)) for _ in range(2))
    assert first != second and visitors.mark_of(first) != visitors.mark_of(second)
    assert cookie(visitors.set_cookie(f"other=1; {visitors.COOKIE}={first}", False)) == first
    assert first not in visitors.mark_of(first) and len(visitors.mark_of(first)) == 64
    for sent in ("x", "", "a" * 42, "a" * 44, "é" * 43, "../" * 14 + "a"):
        assert visitors.mark_of(sent) == ""
        assert visitors.mark_of(cookie(visitors.set_cookie(f"{visitors.COOKIE}={sent}", False)))
    plain, secure = (visitors.set_cookie("", is_secure) for is_secure in (False, True))
    assert "HttpOnly" in plain and "SameSite=Lax" in plain and "Secure" not in plain and "Path=/;" in plain
    assert all(word in secure for word in ("HttpOnly", "SameSite=None", "Secure", "Partitioned"))
    monkeypatch.setattr(visitors.st, "get_option", {"server.baseUrlPath": "/viz/"}.__getitem__)
    assert "Path=/viz;" in visitors.set_cookie("", False)
