"""The Live page and a race's replay in a real browser on a real Streamlit server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from mars_viz.runfiles import load_run
from mars_viz.runstore import RunStore
from mars_viz.ui import visitors
from tests.served import ROOT, served
from tests.test_race import toy_race

UNHURRIED = """
import os
import time
from pathlib import Path

from mars_viz.recording import Recording

at_full_speed = Recording.__iter__


def rounds(recording):
    for number, made in enumerate(at_full_speed(recording)):
        while number and not Path(os.environ["GO_ON"]).exists():
            time.sleep(0.05)
        yield made


Recording.__iter__ = rounds
"""
"""Run by the server's interpreter as it starts: after its first round the decode waits until the test lets it go on,
for the built-in pair ends a text before a hand can stop it."""
MARKED = """marks => marks.map((mark) => {
  const glyph = getComputedStyle(mark, "::after").content.match(/^"([^"]*)"/);
  return mark.textContent + (glyph ? glyph[1] : "");
})"""
NAMES = "tokens => tokens.map((token) => token.getAttribute('aria-label'))"
PAGE = """
import time
from dataclasses import replace

import streamlit as st
from factories import toy_run
from test_race import toy_race

from mars_viz.components.race import growing, replay

HOSTILE = {
    5: b"<img src=x onerror=window.hacked=1>",
    6: "\\u202eevil".encode(),
    7: b"</span><script>window.hacked=1</script>",
}
run = st.cache_resource(lambda: toy_run(temperature=1.0, max_new_tokens=60, pieces=HOSTILE), show_spinner=False)()
kind = st.query_params.get("kind", "race")
if kind == "race":
    replay(st.cache_resource(toy_race, show_spinner=False)(), key="race")
else:
    made = st.session_state.get("made", 2)
    growing(replace(run, rounds=run.rounds[:made]), "Once", job="a", key="stream")
    if st.button("more"):
        st.session_state["made"] = made + 3
        st.rerun()
    st.caption(f"{made} rounds")
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("toy") / "page.py"
    script.write_text(PAGE)
    with served(script) as address:
        yield address


@pytest.fixture
def page(tab: Page) -> Page:
    tab.set_viewport_size({"width": 1400, "height": 900})
    tab.emulate_media(reduced_motion="no-preference")
    return tab


def test_a_race_is_played_by_keys_and_ends_with_its_board(toy: str, page: Page) -> None:
    page.goto(toy)
    lanes = page.locator(".track-lane")
    expect(lanes).to_have_count(3)
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(page.locator(".race-legend")).to_be_visible()
    expect(page.locator(".race-sentence")).to_be_visible()  # the verdict stands at once
    expect(page.locator(".race-sentence")).to_contain_text(re.compile(r"times as fast as the target alone"))
    assert page.locator(".r[data-state=ahead]").count() == 0
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Home")
    expect(page.locator(".race-sentence")).to_be_hidden()
    assert page.locator(".r:not([data-state=ahead])").count() == 0
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    first = [lane.locator(".r:not([data-state=ahead])").count() for lane in lanes.all()]
    assert sum(first) > 0
    page.keyboard.press("End")
    expect(page.locator(".race-sentence")).to_be_visible()
    assert page.locator(".r[data-state=ahead]").count() == 0
    expect(lanes.nth(1).locator(".track-count")).to_contain_text(re.compile("done · 40 tokens"))
    end = page.get_by_role("slider", name="Recorded time").get_attribute("aria-valuetext")
    assert re.fullmatch(r"(\d+\.\d\d s) of \1", end), "heard with its unit, not as a bare number"
    page.keyboard.press("Home")
    assert page.locator(".r:not([data-state=ahead])").count() == 0
    page.get_by_role("radio", name="true speed").click()
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".race-sentence")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_rolled_back_tokens_are_seen_when_their_round_is_settled_and_go_later(toy: str, page: Page) -> None:
    page.goto(toy)
    strict = page.locator(".track-lane").nth(1)
    expect(strict).to_be_visible()
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Home")
    seen = set()
    for _ in range(50):
        page.keyboard.press("ArrowRight")
        for state in ("drafted", "settled", "past"):
            lost = strict.locator(f".r[data-state={state}] :is(.rejected, .discarded)")
            if lost.count():
                seen.add((state, lost.first.is_visible()))
    assert {("settled", True), ("past", False)} <= seen


def test_every_token_says_what_became_of_it_once_that_is_settled(toy: str, page: Page) -> None:
    page.goto(toy)
    expect(page.locator(".track-lane")).to_have_count(3)
    alone, strict, relaxed = page.locator(".track-lane").all()
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("End")
    race = toy_race()
    for lane, run in ((strict, race.strict), (relaxed, race.relaxed)):
        named = [name for name in lane.locator("[role=option]").evaluate_all(NAMES) if name.startswith("token")]
        assert len(named) == len(run.token_ids)
        for place, (name, token) in enumerate(zip(named, run.token_ids, strict=True)):
            assert re.fullmatch(
                rf"token {place + 1}, “{re.escape(run.pieces[token].text)}”, "
                r"(matched|relaxed|corrected|bonus), ratio (–|−?[\d.]+)",
                name,
            )
    lost = [name for name in relaxed.locator("[role=option]").evaluate_all(NAMES) if name.startswith("draft")]
    assert lost and all(re.search(", (rejected|discarded), ratio ", name) for name in lost)
    names = alone.locator("[role=option]").evaluate_all(NAMES)
    assert names[0] == f"token 1, “{race.strict.pieces[race.alone.token_ids[0]].text}”"  # nobody decided that one

    # in a text the arrows move between its tokens, and the clock stands still
    text = strict.get_by_role("listbox", name=re.compile("Text of Strict; left and right"))
    text.focus()
    page.keyboard.press("Home")
    chosen = strict.locator("[aria-selected=true]")
    expect(chosen).to_have_attribute("aria-label", re.compile("^token 1,"))
    assert text.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("ArrowRight")
    expect(chosen).to_have_attribute("aria-label", re.compile("^(token 2|draft),"))
    page.keyboard.press("ArrowLeft")
    expect(chosen).to_have_attribute("aria-label", re.compile("^token 1,"))
    expect(page.locator(".race-sentence")).to_be_visible()

    # while a block is only drafted, its tokens do not say how that will end
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Home")
    expect(chosen).to_have_count(0)
    for _ in range(50):
        page.keyboard.press("ArrowRight")
        drafted = page.locator(".r[data-state=drafted] [role=option]")
        if drafted.count():
            assert all(re.fullmatch("draft, “[^”]*”", name) for name in drafted.evaluate_all(NAMES))
            break
    else:
        pytest.fail("no block was seen while it was drafted")


def test_the_lanes_texts_begin_at_one_height_also_where_their_heads_need_two_lines(toy: str, page: Page) -> None:
    page.set_viewport_size({"width": 1000, "height": 900})
    page.emulate_media(reduced_motion="reduce")
    page.goto(toy)
    expect(page.locator(".race-sentence")).to_be_visible()
    page.add_style_tag(content=".stMainBlockContainer { max-width: none !important; }")  # wide, as Live is
    heads = page.locator(".track-head").evaluate_all("heads => heads.map(head => head.getBoundingClientRect().top)")
    assert max(heads) - min(heads) < 1, "side by side"
    page.locator(".track-count").first.evaluate("count => { count.textContent = 'many words '.repeat(20); }")
    tops = page.locator(".track-text").evaluate_all("lanes => lanes.map(lane => lane.getBoundingClientRect().top)")
    assert len(tops) == 3 and max(tops) - min(tops) < 1, tops


def test_those_who_want_no_motion_see_how_it_ended(toy: str, page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(toy)
    expect(page.locator(".race-sentence")).to_be_visible()
    assert page.locator(".r[data-state=ahead]").count() == 0


def test_a_growing_text_adds_rounds_and_keeps_hostile_tokens_text(toy: str, page: Page) -> None:
    page.goto(f"{toy}?kind=live")
    rounds = page.locator(".r")
    expect(rounds).to_have_count(2)
    legend = page.locator(".race-legend")
    expect(legend).to_be_visible()
    assert legend.locator(".t").evaluate_all(MARKED) == ["relaxed◆", "rejected×", "discarded", "corrected↺", "bonus+"]
    rounds.first.evaluate("element => { element.mine = true }")
    page.get_by_role("button", name="more").click()
    expect(rounds).to_have_count(5)
    assert rounds.first.evaluate("element => element.mine")  # what was there was not built anew
    assert page.evaluate("window.hacked") is None
    assert page.locator(".track-text img, .track-text script").count() == 0
    names = page.locator(".r [role=option]").evaluate_all(NAMES)
    assert names and all(re.match("(token [0-9]+|draft), “", name) for name in names)
    assert not any("\u202e" in name for name in names)  # spelled out, or it would turn what follows


@dataclass(frozen=True, slots=True)
class App:
    """A server of the app without samples, whose decodes wait for the test."""

    address: str
    """Where."""
    runs: Path
    """What was decoded."""
    go_on: Path
    """While it is there, decodes go on after their first round."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("app")
    (folder / "sitecustomize.py").write_text(UNHURRIED, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARS_VIZ_RUNS", str(folder / "runs"))
        patch.setenv("MARS_VIZ_SAMPLES", "off")
        patch.setenv("GO_ON", str(folder / "go-on"))
        with served(ROOT / "app.py", before=folder) as address:
            yield App(address, folder / "runs", folder / "go-on")


def test_a_race_and_a_decode_stream_on_the_real_page(app: App, page: Page) -> None:
    page.goto(f"{app.address}/live?tokens=24")
    page.get_by_role("button", name="Race now", exact=True).click()
    lanes = page.locator(".track-lane")
    expect(page.get_by_text("Race, untimed")).to_be_visible()
    expect(lanes).to_have_count(3)
    expect(lanes.nth(0).locator(".r").first).to_be_visible()  # while the race goes on
    expect(lanes.nth(2).locator(".r")).to_have_count(0)
    expect(page.locator(".race-sentence")).to_have_count(0)
    app.go_on.touch()
    sentence = page.locator(".race-sentence")
    expect(sentence).to_be_visible()  # without pressing Play
    expect(sentence).to_contain_text(re.compile(r"times as fast as the target alone (and|cannot be)"))
    app.go_on.unlink()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("spinbutton", name="Max new tokens").fill("40")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Decode now", exact=True).click()
    expect(page.locator(".track-text .r")).to_have_count(1)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Stopping after this round")).to_be_visible()
    app.go_on.touch()
    expect(page.get_by_text("You stopped it after")).to_be_visible()
    expect(page.locator(".track-text .r")).to_have_count(2)  # the round that was under way is kept
    page.get_by_role("button", name="Explore", exact=True).click()
    expect(page.locator(".stream .r").first).to_be_visible()
    store = RunStore(app.runs)
    (entry,) = store.list()
    (cookie,) = (each for each in page.context.cookies(app.address) if each["name"] == visitors.COOKIE)
    assert entry.name.startswith("live-") and store.makers.of(entry.name) == visitors.mark_of(cookie["value"]) != ""


def test_a_tree_is_chosen_on_live_and_decoded(app: App, page: Page) -> None:
    app.go_on.touch()
    before = {entry.name for entry in RunStore(app.runs).list()}
    page.goto(f"{app.address}/live?tokens=12")
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("radio", name="Tree").click()
    expect(page.get_by_role("spinbutton", name="Draft length γ")).to_have_count(0)
    for name, value in (("Depth", "3"), ("Branching k", "2"), ("Nodes", "6")):
        box = page.get_by_role("spinbutton", name=name)
        box.fill(value)
        box.press("Enter")
    expect(page).to_have_url(re.compile("tree=dynamic%3Adepth%3D3%2Ctopk%3D2%2Cnodes%3D6"))
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Decode now", exact=True).click()
    expect(page.get_by_text("Done: 12 tokens")).to_be_visible()
    (entry,) = (entry for entry in RunStore(app.runs).list() if entry.name not in before)
    page.goto(f"{app.address}/runs?run={entry.name}")
    expect(page.get_by_text("tree of 6 nodes, depth 3, branching 2").first).to_be_visible()
    run = load_run(entry.path)
    assert (run.settings.tree, run.settings.gamma) == ("dynamic:depth=3,topk=2", 6)
    assert any(round_.speculation.is_tree for round_ in run.rounds)


def test_live_plays_its_recorded_race_once_and_a_race_of_ones_own_replaces_it(app: App, page: Page) -> None:
    page.goto(f"{app.address}/live?tokens=24")
    pause = page.get_by_role("button", name="Pause", exact=True)
    expect(pause).to_be_visible()
    expect(page.get_by_text("A recorded example")).to_be_visible()
    assert page.locator(".r[data-state=ahead]").count() > 0
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.get_by_role("link", name="Live", exact=True).click()
    expect(page.locator(".race-sentence")).to_be_visible()
    assert pause.count() == 0  # once is enough
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    expect(page.locator(".race-sentence")).to_be_visible()
    assert pause.count() == 0 and page.locator(".r[data-state=ahead]").count() == 0
    app.go_on.touch()
    page.get_by_role("button", name="Race now", exact=True).click()
    expect(page.get_by_text("A recorded example")).to_have_count(0)
    expect(page.get_by_role("combobox", name="Race", exact=False)).to_have_value(re.compile("^Once upon a time"))
