"""The Explore page in a real browser, on runs that come with the product: γ, the first screen, prompt, Share, maps."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from mars_viz import load_run
from mars_viz.analysis.metrics import summary
from mars_viz.dialmap import Budget
from mars_viz.report.page import report_html
from mars_viz.run import Run
from mars_viz.run_with_map import mapped, shown
from mars_viz.samples import RUNS
from mars_viz.ui.jobs.model_process import PROGRAM
from tests.controls import READY
from tests.factories import toy_map, toy_run, toy_tree
from tests.served import served
from tests.waiting import until

STORY = "1-story-mars"


@pytest.fixture(scope="module")
def tree() -> Run:
    return toy_tree()


@pytest.fixture(scope="module")
def address(tree: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a run of trees and one whose map was cut short, besides those that come with the product."""
    folder = tmp_path_factory.mktemp("runs")
    tree.save(folder / "tree")
    for rule in ("traversal", "k-seq"):
        drawn_tree(rule).save(folder / rule)
    cut_short().save(folder / "cut")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARS_VIZ_RUNS", str(folder))
        with served(Path("app.py")) as found:
            yield found


@pytest.fixture(scope="module")
def story() -> Run:
    return load_run(RUNS / STORY)


def cut_short() -> Run:
    run = toy_run(rule="mars", dial=0.9, gamma=2, max_new_tokens=40)
    built_in = replace(run.provenance, target="built-in/target", drafter="built-in/drafter")
    run = replace(run, provenance=built_in, title="Cut short")
    made, _ = toy_map(replace(run.settings, dial=None), 0.5, 1.0, (1, 2), Budget(passes=4))
    return mapped(run, replace(made, frame=replace(made.frame, provenance=built_in)))


def drawn_tree(rule: str) -> Run:
    """Of a rule that judges drawn paths."""
    return toy_run(rule=rule, temperature=0.9, tree="iid:paths=3,depth=4", max_new_tokens=24)


def opened(page: Page, address: str, link: str = f"run={STORY}") -> Page:
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(f"{address}/explore?{link}")
    page.wait_for_selector(".explorer .t")
    page.wait_for_function(READY)
    return page


def linked(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def shows(page: Page, run: Run, dial: float, gamma: int) -> None:
    """The page shows this setting: its text, its numbers, its link, and the dial."""
    told = summary(*shown(run, dial, gamma))
    expect(page.locator(".sentence")).to_contain_text(f": {told.rounds} target passes for {told.tokens} tokens")
    expect(page.get_by_role("radio", name=str(gamma), exact=True)).to_have_attribute("aria-checked", "true")
    tokens = page.locator(".stream :is(.matched, .relaxed, .corrected, .bonus):visible")
    written = "".join(tokens.evaluate_all("found => found.map((token) => token.textContent)"))
    assert written == "".join(run.pieces[token].text for token in run.dial_map.at(dial, gamma).token_ids)
    rolled_back = page.locator("[data-number=rolled_back]").inner_text()
    assert rolled_back == str(told.rolled_back)
    own = run.settings
    page.wait_for_function(
        "([dial, gamma]) => { const at = new URLSearchParams(location.search);"
        " return (at.get('dial') ?? '') === dial && (at.get('gamma') ?? '') === gamma; }",
        arg=["" if dial == own.dial else f"{dial:g}", "" if gamma == own.gamma else str(gamma)],
    )


def model_processes(address: str) -> int:
    """How many the server has."""

    def command(process: Path) -> str:
        with suppress(OSError):  # it has ended meanwhile
            return (process / "cmdline").read_text().replace("\0", " ")
        return ""

    known = {process.name: command(process) for process in Path("/proc").glob("[0-9]*")}
    (server,) = (name for name, said in known.items() if f"--server.port {urlsplit(address).port} " in f"{said} ")
    children = [
        name for task in Path("/proc", server, "task").iterdir() for name in (task / "children").read_text().split()
    ]
    return sum(PROGRAM in known.get(name, "") for name in children)


def test_the_models_get_ready_while_a_prompt_is_written(tab: Page, address: str) -> None:
    page = opened(tab, address)
    assert model_processes(address) == 0  # who only reads needs none
    page.get_by_role("button", name="New prompt").click()
    page.get_by_role("textbox", name="Prompt").wait_for()
    until(lambda: model_processes(address) == 1)
    page.keyboard.press("Escape")
    page.get_by_role("textbox", name="Prompt").wait_for(state="hidden")
    page.get_by_role("button", name="New prompt").click()
    page.get_by_role("textbox", name="Prompt").wait_for()
    page.wait_for_function(READY)
    assert model_processes(address) == 1


def test_gamma_is_chosen_by_click_by_key_and_by_link(tab: Page, address: str, story: Run) -> None:
    page = opened(tab, address)
    shows(page, story, 0.9, 6)
    page.get_by_role("radio", name="4", exact=True).click()
    shows(page, story, 0.9, 4)
    assert linked(page) == {"run": STORY, "gamma": "4"}
    expect(page.locator(".numbers .at")).to_have_text("at the recorded θ = 0.90, γ = 6")
    expect(page.locator(".decode")).to_have_text("Decode at θ = 0.90, γ = 4")
    speed = page.locator("[data-number=speed]").inner_text()
    page.locator(".box input").fill("0.75")  # and θ as well
    page.locator(".box input").press("Enter")
    shows(page, story, 0.75, 4)
    page.keyboard.press("Tab")  # past what pins the setting
    page.keyboard.press("Tab")  # to γ
    page.keyboard.press("ArrowRight")
    shows(page, story, 0.75, 5)
    page.keyboard.press("ArrowLeft")  # where the keys still are, though other rounds have come
    shows(page, story, 0.75, 4)
    page.get_by_role("radio", name="6", exact=True).click()
    shows(page, story, 0.75, 6)
    page.locator(".recorded").click()
    shows(page, story, 0.9, 6)
    assert page.locator("[data-number=speed]").inner_text() == speed, "measured once, whatever the dials say"
    page.goto(f"{address}/explore?run={STORY}&gamma=3")
    page.wait_for_selector(".explorer .t")
    shows(page, story, 0.9, 3)
    expect(page.locator(".js-plotly-plot")).to_have_count(5)
    page.get_by_role("radio", name="1", exact=True).click()
    shows(page, story, 0.9, 1)


def test_decode_is_at_what_was_chosen_however_soon_it_is_pressed(tab: Page, address: str) -> None:
    """Also while the rounds of another draft length are on their way."""
    page = opened(tab, address)
    page.locator(".box input").fill("0.75")
    page.locator(".box input").press("Enter")
    expect(page.locator(".decode")).to_have_text("Decode at θ = 0.75")
    length = page.get_by_role("radio", name="3", exact=True).element_handle()
    page.locator(".decode").evaluate("(button, length) => { length.click(); button.click(); }", length)
    page.wait_for_url("**/explore?run=live-*")
    expect(page.locator(".box input")).to_have_value("0.75")
    expect(page.get_by_role("radio", name="3", exact=True)).to_have_attribute("aria-checked", "true")
    assert "gamma" not in linked(page) and "dial" not in linked(page), "it is the new run's own setting"


def test_back_leads_to_the_page_before_however_often_the_dials_moved(tab: Page, address: str) -> None:
    tab.goto(address)
    tab.get_by_role("link", name="Explore", exact=True).click()
    tab.wait_for_selector(".explorer .t")
    dial = tab.locator(".explorer [role=slider]").first
    for key in ("Home", "ArrowUp"):
        before = tab.url
        dial.press(key)
        tab.wait_for_url(lambda address, before=before: address != before)
    tab.get_by_role("radio", name="3", exact=True).click()
    tab.wait_for_url("**/explore?*gamma=3*")
    left = linked(tab)
    tab.go_back()
    expect(tab.get_by_role("button", name="Open this run in Explore")).to_be_visible()
    tab.go_forward()
    expect(tab.get_by_role("radio", name="3", exact=True)).to_have_attribute("aria-checked", "true")
    assert urlsplit(tab.url).path == "/explore" and linked(tab) == left


def test_outside_the_map_strict_is_what_it_is(tab: Page, address: str, story: Run) -> None:
    page = opened(tab, address, f"run={STORY}&dial=0.25")
    strict = story.dial_map.segments[-1]
    lost, own = sum(r.rolled_back for r in strict.rounds), summary(story, 0.25)
    said = page.locator(".sentence")
    expect(said).to_contain_text(f"strict needs {len(strict.rounds)} for {len(strict.token_ids)}. ")
    expect(said).to_contain_text(f"{own.rolled_back} drafted tokens rolled back, {lost} by strict")
    expect(page.locator(".sentence .tag")).to_have_text("block-local")
    expect(page.locator(".numbers .tag").nth(1)).to_have_text("block-local")
    expect(page.locator(".st-key-savings .gtitle")).to_contain_text(f"{lost - own.rolled_back} fewer")


@pytest.mark.parametrize(("width", "height", "most"), [(1400, 900, 420), (375, 812, 560)])
def test_the_text_begins_on_the_first_screen_and_stays_there(
    tab: Page, address: str, width: int, height: int, most: int
) -> None:
    page = opened(tab, address)
    page.set_viewport_size({"width": width, "height": height})
    first = page.locator(".explorer .stream .t").first
    page.wait_for_function("() => document.fonts.status === 'loaded'")
    before = first.bounding_box()["y"]
    assert before <= most
    if width > 600:  # on a telephone the sentence may take another line, once
        for value in ("0.25", "0.9853", "1"):
            page.locator(".box input").fill(value)
            page.locator(".box input").press("Enter")
            assert page.locator(".stream").evaluate("s => s.getBoundingClientRect().top") <= most
            assert first.bounding_box()["y"] == before
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0


def test_the_prompt_is_that_of_the_run_until_somebody_types(tab: Page, address: str, story: Run) -> None:
    page = opened(tab, address)
    page.get_by_role("button", name="New prompt").click()
    box = page.get_by_role("textbox", name="Prompt")
    expect(box).to_have_value(story.prompt)
    page.keyboard.press("Escape")
    pick(page, "An addition")
    page.get_by_role("button", name="New prompt").click()
    other = load_run(RUNS / "5-addition-mars").prompt
    assert other != story.prompt
    expect(box).to_have_value(other)
    box.fill("A fox of my own")
    box.press("Control+Enter")
    page.keyboard.press("Escape")
    pick(page, "A story, MARS at θ = 0.9, greedy")
    page.get_by_role("button", name="New prompt").click()
    expect(box).to_have_value("A fox of my own")


def pick(page: Page, title: str) -> None:
    before = page.url
    page.get_by_role("combobox", name="Run").click()
    page.get_by_role("option", name=re.compile(re.escape(title))).first.click()
    page.wait_for_url(lambda url: url != before)
    page.wait_for_function(READY)
    expect(page.locator(".sentence")).to_have_count(1)


def test_what_is_shared_is_named_and_made_for_the_setting_shown(tab: Page, address: str, story: Run) -> None:
    page = opened(tab, address, f"run={STORY}&dial=0.9853&gamma=4")
    page.get_by_role("button", name="Share").click()
    expect(page.get_by_text("All of θ = 0.9853, γ = 4, as shown.")).to_be_visible()
    with page.expect_download() as found:
        page.get_by_role("button", name="Table of tokens, CSV").click()
    assert found.value.suggested_filename == "a-story-mars-greedy-at-0-9853-gamma-4.csv"
    rows = list(csv.DictReader(Path(found.value.path()).read_text("utf-8").splitlines()))
    assert {(row["dial"], row["gamma"], row["basis"]) for row in rows} == {("0.9853", "4", "exact")}
    drafted = sum(len(r.speculation) for r in story.dial_map.at(0.9853, 4).rounds)
    assert sum(row["node"] != "" for row in rows) == drafted


def test_the_label_of_a_round_at_the_right_edge_is_not_cut_off(tab: Page, address: str) -> None:
    page = opened(tab, address)
    rights = page.locator(".stream .r").evaluate_all("all => all.map((r) => r.getClientRects()[0].left)")
    late = max(range(len(rights)), key=rights.__getitem__)
    page.locator(".stream .r").nth(late).locator(".t").first.hover()
    expect(page.locator(".stream .r").nth(late)).to_have_class(re.compile(r"\blate\b"))
    page.locator(".stream .r").first.locator(".t").first.hover()
    expect(page.locator(".stream .r").first).not_to_have_class(re.compile(r"\blate\b"))


def test_a_tree_unfolds_is_walked_by_keys_and_follows_the_dial(tab: Page, address: str, tree: Run) -> None:
    text = {at: [tree.pieces[token].text for token in tree.dial_map.at(at, 10).token_ids] for at in (0.9, 0.96)}
    page = opened(tab, address, "run=tree")
    stream, shown_tree, where = page.locator(".stream"), page.locator(".tree"), page.locator(".inspector .where")
    shows(page, tree, 0.9, 10)
    expect(shown_tree).to_have_count(0)
    stream.press("Home")
    page.locator(".fold").first.click()
    expect(shown_tree).to_contain_text("Round 1: a tree of 10 drafted tokens, 3 deep; 3 kept; of kept siblings")
    assert shown_tree.get_by_role("option").count() == 11  # the nodes, and what the target wrote
    on = shown_tree.locator(".twig.on > .node .word")
    assert on.all_text_contents() == text[0.9][:4]
    expect(where).to_contain_text("token 1 · round 1 · depth 1 · node 1 of 10 · sibling 1 of 3")
    for key, told in (
        ("ArrowRight", "depth 2 · node 2 of 10 · sibling 1 of 3"),
        ("ArrowDown", "not in the text · round 1 · depth 2 · node 4 of 10 · sibling 2 of 3"),
        ("ArrowLeft", "depth 1 · node 1 of 10"),
        ("ArrowDown", "not in the text · round 1 · depth 1 · node 6 of 10 · sibling 2 of 3"),
    ):
        page.keyboard.press(key)
        expect(where).to_contain_text(told)
    chosen = stream.get_attribute("aria-activedescendant")
    assert shown_tree.locator(f"#{chosen}").get_attribute("aria-selected") == "true"
    shown_tree.get_by_role("option").nth(9).click()
    expect(where).to_contain_text("not in the text · round 1 · depth 1 · node 9 of 10")
    page.get_by_role("spinbutton").fill("0.96")
    expect(shown_tree).to_contain_text("2 kept")
    assert on.all_text_contents() == text[0.96][:3]
    expect(where).to_contain_text("not in the text · round 1 · depth 1 · node 9 of 10")  # the choice stays
    stream.press("t")
    expect(shown_tree).to_have_count(0)
    page.get_by_role("radio", name="5", exact=True).click()
    shows(page, tree, 0.96, 5)


def test_a_tree_says_how_its_rule_comes_to_one_of_siblings_wherever_it_unfolds(
    tab: Page, address: str, tmp_path: Path
) -> None:
    run, report = drawn_tree("traversal"), tmp_path / "report.html"
    report.write_text(report_html(run, most_steps=1), "utf-8")
    first = next(index for index, round_ in enumerate(run.rounds) if round_.speculation.is_tree)
    says = f"Round {first + 1}: a tree of {len(run.rounds[first].speculation)} drafted tokens, 4 deep; "
    both = "run=traversal&reference=traversal&shown=k-seq"
    for link in (f"{address}/explore?run=traversal", f"{address}/compare?{both}", report.as_uri()):
        tab.goto(link)
        tab.locator(".fold").first.click()
        expect(tab.locator(".tree-words").first).to_contain_text(says)
        expect(tab.locator(".tree-words").first).to_contain_text("; nodes are tried from the leaves upwards, children")


def test_a_map_that_was_cut_short_offers_to_go_on(tab: Page, address: str) -> None:
    page = opened(tab, address, "run=cut")
    expect(page.get_by_text("of all settings known")).to_be_visible()
    expect(page.get_by_role("button", name="Continue")).to_be_enabled()
    opened(tab, address)
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)  # its map is whole
