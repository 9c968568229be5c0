"""Live and the choice of models in a real browser: race, decode, cancel, trees, other pairs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from mars_viz.race.files import save_race
from mars_viz.runfiles import load_run
from mars_viz.runstore import KeptRun, RunStatus, RunStore, read
from mars_viz.ui import visitors
from tests.served import App
from tests.test_race import toy_race
from tests.waiting import until

NAMES = "tokens => tokens.map((token) => token.getAttribute('aria-label'))"
HEAD = "Built-in target with its EAGLE-3 head"


@pytest.fixture
def new(app: App) -> NewRun:
    return NewRun(app.runs)


class NewRun:
    """Return the run that a test has decoded."""

    def __init__(self, folder: Path):
        self.store = RunStore(folder)
        self._before = {entry.name for entry in self.store.list()}

    def entries(self) -> list[KeptRun]:
        return [entry for entry in self.store.list() if entry.name not in self._before]

    def entry(self) -> KeptRun:
        until(lambda: [entry.standing for entry in self.entries()] == [RunStatus.WHOLE], 0.1)
        return self.entries()[0]


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_race_is_played_by_keys_and_its_tokens_have_names(page: Page, app: App, motion: str) -> None:
    race = toy_race()
    if not (folder := app.runs / "races" / "live-toy").exists():
        save_race(race, folder)
    page.emulate_media(reduced_motion=motion)  # type: ignore[arg-type]
    page.goto(f"{app.address}/live?view=race&race=live-toy")
    lanes, verdict = page.locator(".track-lane"), page.locator(".race-sentence")
    ahead, play = page.locator(".r[data-state=ahead]"), page.get_by_role("button", name="Play")
    expect(lanes).to_have_count(3)
    expect(verdict).to_be_visible()
    expect(ahead).to_have_count(0)
    if motion == "reduce":
        heads = page.locator(".track-head").evaluate_all("all => all.map(head => head.getBoundingClientRect().top)")
        assert max(heads) - min(heads) < 1
        page.locator(".track-count").first.evaluate("count => { count.textContent = 'many words '.repeat(20); }")
        tops = page.locator(".track-text").evaluate_all("all => all.map(lane => lane.getBoundingClientRect().top)")
        assert max(tops) - min(tops) < 1, "texts begin at one height"
        return
    play.focus()
    page.keyboard.press("Home")
    expect(verdict).to_be_hidden()
    assert page.locator(".r:not([data-state=ahead])").count() == 0
    strict, seen, drafted_names = lanes.nth(1), set(), list[str]()
    for _ in range(50):
        page.keyboard.press("ArrowRight")
        for state in ("drafted", "settled", "past"):
            lost = strict.locator(f".r[data-state={state}] :is(.rejected, .discarded)")
            if lost.count():
                seen.add((state, lost.first.is_visible()))
        drafted_names += page.locator(".r[data-state=drafted] [role=option]").evaluate_all(NAMES)
    assert {("settled", True), ("past", False)} <= seen, "rolled-back tokens go after their round"
    assert drafted_names and all(re.fullmatch("draft, “[^”]*”", name) for name in drafted_names)
    page.keyboard.press("End")
    expect(verdict).to_be_visible()
    expect(ahead).to_have_count(0)
    expect(strict.locator(".track-count")).to_contain_text("40 tokens")
    end = page.get_by_role("slider", name="Recorded time").get_attribute("aria-valuetext") or ""
    assert re.fullmatch(r"(\d+\.\d\d s) of \1", end)
    for lane, run in ((strict, race.strict), (lanes.nth(2), race.relaxed)):
        names = lane.locator("[role=option]").evaluate_all(NAMES)
        for place, (name, token) in enumerate(
            zip([name for name in names if name.startswith("token")], run.token_ids, strict=True), 1
        ):
            text = re.escape(run.pieces[token].text)
            assert re.fullmatch(
                rf"token {place}, “{text}”, (matched|relaxed|corrected|bonus), ratio (–|−?[\d.]+)", name
            )
        assert all(re.search(", (rejected|discarded), ratio ", name) for name in names if name.startswith("draft"))
    alone = lanes.first.locator("[role=option]").evaluate_all(NAMES)
    assert alone[0] == f"token 1, “{race.strict.pieces[race.alone.token_ids[0]].text}”"
    text, chosen = strict.get_by_role("listbox"), strict.locator("[aria-selected=true]")
    text.press("Home")  # in a text the arrows move between tokens
    expect(chosen).to_have_attribute("aria-label", re.compile("^token 1,"))
    assert text.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("ArrowRight")
    expect(chosen).to_have_attribute("aria-label", re.compile("^(token 2|draft),"))
    expect(verdict).to_be_visible()
    play.press("Home")
    expect(chosen).to_have_count(0)
    page.get_by_role("radio", name="true speed").click()
    play.click()
    expect(verdict).to_be_visible()
    expect(play).to_be_visible()


def test_a_race_and_a_decode_stream_and_a_cancelled_decode_is_kept(page: Page, app: App, new: NewRun) -> None:
    page.goto(f"{app.address}/live?tokens=24")
    lanes, verdict = page.locator(".track-lane"), page.locator(".race-sentence")
    with app.held():
        page.get_by_role("button", name="Race now", exact=True).click()
        expect(page.get_by_text("Race, untimed")).to_be_visible()
        expect(lanes.first.locator(".r").first).to_be_visible()  # while the race goes on
        expect(lanes.nth(2).locator(".r")).to_have_count(0)
        expect(verdict).to_have_count(0)
    expect(verdict).to_be_visible()  # without a press on Play
    expect(page.get_by_role("combobox", name="Race", exact=False)).to_have_value(re.compile("^Once upon a time"))
    expect(page.get_by_text("A recorded example")).to_have_count(0)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("spinbutton", name="Max new tokens").fill("40")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    rounds = page.locator(".track-text .r")
    with app.held():
        page.get_by_role("button", name="Decode now", exact=True).click()
        expect(rounds).to_have_count(1)
        rounds.first.evaluate("element => { element.mine = true }")
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_text("Stopping after this round")).to_be_visible()
    expect(page.get_by_text("You stopped it after")).to_be_visible()
    expect(rounds).to_have_count(2)  # the round under way is kept
    assert rounds.first.evaluate("element => element.mine"), "the text grows and is not built again"
    page.get_by_role("button", name="Explore", exact=True).click()
    expect(page.locator(".stream .r").first).to_be_visible()
    (entry,) = new.entries()
    (cookie,) = (each for each in page.context.cookies(app.address) if each["name"] == visitors.COOKIE)
    assert entry.name.startswith("live-")
    assert new.store.makers.of(entry.name) == visitors.mark_of(cookie["value"]) != ""


def test_a_tree_is_chosen_on_live_and_decoded(page: Page, app: App, new: NewRun) -> None:
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
    run = load_run(new.entry().path)
    assert (run.settings.tree, run.settings.gamma) == ("dynamic:depth=3,topk=2", 6)
    assert any(round_.speculation.is_tree for round_ in run.rounds)


def test_live_plays_its_recorded_race_once(page: Page, app: App) -> None:
    page.emulate_media(reduced_motion="no-preference")
    page.goto(f"{app.address}/live?tokens=24")
    pause, verdict = page.get_by_role("button", name="Pause", exact=True), page.locator(".race-sentence")
    expect(pause).to_be_visible()
    assert page.locator(".r[data-state=ahead]").count() > 0
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.get_by_role("link", name="Live", exact=True).click()
    expect(verdict).to_be_visible()
    assert pause.count() == 0
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    expect(verdict).to_be_visible()
    assert pause.count() == 0 and page.locator(".r[data-state=ahead]").count() == 0


def test_another_pair_decodes_on_every_page_and_models_are_unloaded(page: Page, app: App, new: NewRun) -> None:
    page.goto(f"{app.address}/explore")
    chosen, pair = page.locator(".st-key-models .mv-small").first, page.get_by_role("combobox", name="Pair")
    models, load = (page.get_by_role("button", name=name, exact=True) for name in ("Models", "Load"))
    expect(chosen).to_have_text("Built-in pair")
    models.click()
    pair.click()
    page.get_by_role("option", name=HEAD, exact=True).click()
    expect(chosen).to_have_text(HEAD)
    load.click()
    expect(page.get_by_text(f"Loaded: {HEAD}.")).to_be_visible()
    expect(load).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="New prompt").click()
    prompt = page.get_by_role("textbox", name="Prompt")
    expect(prompt).to_have_attribute("placeholder", re.compile(HEAD))
    prompt.fill("Once upon a time")
    page.get_by_role("button", name="Decode", exact=True).click()
    assert read(new.entry().path).provenance.drafter == "eagle3"
    expect(page.locator(".explorer .t").first).to_be_visible()
    for name in ("Live", "Rules"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(chosen).to_have_text(HEAD)
        expect(page).to_have_url(re.compile("drafter=eagle3"))
    page.reload()
    expect(chosen).to_have_text(HEAD)
    models.click()
    page.get_by_role("button", name="Unload", exact=True).click()
    expect(page.get_by_text("No models are loaded")).to_be_visible()
    pair.click()
    page.get_by_role("option", name="Another pair …").click()
    target = page.get_by_role("textbox", name="Target")
    target.fill("/no/such/folder")
    target.press("Enter")
    expect(page.get_by_text("is not the id of a model on the hub")).to_be_visible()  # a visitor may not name folders
    expect(chosen).to_have_text(HEAD)
