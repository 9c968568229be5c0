"""The search in the explorer's text in a real browser: marks, steps, keys, the dial, and long texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from mars_viz import load_run
from mars_viz.run import Run
from mars_viz.samples import RUNS
from tests.factories import long_run
from tests.served import served
from tests.test_browser_long import TOKENS, in_view

STORY = "1-story-mars"
PAGE = f"""
import streamlit as st
from factories import long_run

from mars_viz import load_run
from mars_viz.components.explorer.element import explorer
from mars_viz.samples import RUNS

st.set_page_config(layout="wide")
make = {{"story": lambda: load_run(RUNS / "{STORY}"), "long": lambda: long_run({TOKENS})}}
name = st.query_params.get("run", "story")
run = st.cache_resource(lambda name: make[name](), show_spinner=False)(name)
state = explorer(run, dial=None, overlay="outcome", selected=None, key=f"explorer-{{name}}")
st.text(f"selected {{state.selected}}")
"""
MARKED = ".stream .t.found:not([hidden])"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("page") / "page.py"
    script.write_text(PAGE, encoding="utf-8")
    with served(script) as found:
        yield found


@pytest.fixture
def opened(tab: Page, address: str) -> Iterator[Callable[[str], Page]]:
    """Opens one of the runs; a script error in the browser fails the test."""
    errors: list[str] = []

    def go(run: str) -> Page:
        tab.set_viewport_size({"width": 1400, "height": 900})
        tab.goto(f"{address}/?run={run}")
        tab.wait_for_selector(".explorer .t")
        return tab

    tab.on("pageerror", note := lambda error: errors.append(str(error)))
    yield go
    tab.remove_listener("pageerror", note)
    assert not errors


def story() -> Run:
    return load_run(RUNS / STORY)


def written(run: Run, dial: float) -> list[str]:
    assert run.dial_map is not None
    return [run.pieces[token].text for token in run.dial_map.at(dial).token_ids]


def holding(tokens: list[str], pattern: str) -> tuple[int, list[str]]:
    """How often the text of these tokens has the pattern, and the tokens that it lies in."""
    text, starts = "".join(tokens), [0]
    for token in tokens:
        starts.append(starts[-1] + len(token))
    matches = list(re.finditer(pattern, text, re.IGNORECASE))
    touched = {
        index
        for index in range(len(tokens))
        for match in matches
        if starts[index] < match.end() and match.start() < starts[index + 1]
    }
    return len(matches), [tokens[index] for index in sorted(touched)]


def marked(page: Page) -> list[str]:
    return page.locator(MARKED).evaluate_all("all => all.map((token) => token.textContent)")


def search(page: Page, words: str) -> None:
    page.locator(".stream").focus()
    page.keyboard.press("/")
    expect(page.locator(".search input")).to_be_focused()
    page.keyboard.type(words)


def count(page: Page, words: str) -> None:
    expect(page.locator(".found-count")).to_have_text(words)


def test_every_occurrence_is_marked_over_borders_of_tokens_and_the_looks_stay(opened) -> None:
    page, tokens = opened("story"), written(story(), 0.9)
    expect(page.locator(".search")).to_be_hidden()
    looks = (
        "all => all.map((token) => [getComputedStyle(token).backgroundColor, getComputedStyle(token).textDecoration])"
    )
    before = page.locator(".stream .t").evaluate_all(looks)
    for words, pattern in (
        ("ball", "ball"),
        ("She wanted to play", r"she\s+wanted\s+to\s+play"),
        ("with it. so", r"with\s+it\.\s+so"),
    ):
        often, lie_in = holding(tokens, pattern)
        assert often and len(lie_in) >= often
        page.locator(".stream").focus()
        page.keyboard.press("/")
        page.locator(".search input").fill(words)
        count(page, f"1 of {often}")
        assert marked(page) == lie_in
    assert page.locator(".stream .t").evaluate_all(looks) == before
    page.locator(".search input").fill("no such words")
    count(page, "not in this text")
    assert marked(page) == []
    expect(page.get_by_role("button", name="Next match")).to_be_disabled()


def test_enter_and_buttons_step_round_and_round_and_select_what_they_come_to(opened) -> None:
    page = opened("story")
    often, _ = holding(written(story(), 0.9), "ball")
    search(page, "ball")
    count(page, f"1 of {often}")
    page.keyboard.press("Enter")
    count(page, f"2 of {often}")
    second = page.locator(".t.here").get_attribute("id")
    expect(page.locator(".inspector .what")).to_contain_text("ball")
    expect(page.locator(".stream")).to_have_attribute("aria-activedescendant", second)
    expect(page.get_by_test_id("stText")).to_have_text(f"selected {second.removeprefix('slot-')}")
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    count(page, f"{often} of {often}")
    page.get_by_role("button", name="Next match").click()
    count(page, f"1 of {often}")
    page.get_by_role("button", name="Previous match").click()
    count(page, f"{often} of {often}")
    page.keyboard.press("Escape")
    expect(page.locator(".search")).to_be_hidden()
    assert marked(page) == []
    expect(page.locator(".stream")).to_be_focused()


def test_case_is_told_apart_where_asked_for(opened) -> None:
    page, tokens = opened("story"), written(story(), 0.9)
    either, _ = holding(tokens, "she")
    exact = "".join(tokens).count("She")
    assert 0 < exact < either
    search(page, "She")
    count(page, f"1 of {either}")
    page.get_by_role("button", name="Match case").click()
    count(page, f"1 of {exact}")


def test_a_slash_in_a_field_stays_there(opened) -> None:
    page = opened("story")
    page.locator(".explorer .box input").focus()
    page.keyboard.press("/")
    expect(page.locator(".search")).to_be_hidden()


def test_matches_follow_the_dial(opened) -> None:
    page, run = opened("story"), story()
    assert run.dial_map is not None
    search(page, "play")
    for dial in (0.6, 1.0, 0.9, 0.75):
        page.locator(".box input").fill(f"{dial}")
        page.locator(".box input").press("Enter")
        often, lie_in = holding(written(run, dial), "play")
        expect(page.locator(".found-count")).to_have_text(re.compile(rf"\d+ of {often}"))
        assert marked(page) == lie_in
    expect(page.locator(".found-count")).to_have_attribute("aria-live", "off")
    expect(page.locator(".explorer .heard")).to_contain_text(re.compile(rf"“play”: \d+ of {often}\."))
    texts = {segment: "".join(written(run, segment)) for segment in (0.6, 1.0)}
    assert len(set(texts.values())) == 2, "the dial leads to other texts"


def test_a_match_far_down_a_long_text_is_brought_into_view(opened) -> None:
    page, run = opened("long"), long_run(TOKENS)
    text = "".join(run.pieces[token].text for token in run.token_ids)
    wanted = text[-40:].strip()
    often = len(re.findall(re.escape(wanted).replace(r"\ ", r"\s+"), text, re.IGNORECASE))
    began = page.evaluate("performance.now()")
    search(page, "")
    page.locator(".search input").fill(wanted)
    count(page, f"1 of {often}")
    assert page.evaluate("performance.now()") - began < 5000
    page.keyboard.press("Shift+Enter")
    count(page, f"{often} of {often}")
    last = int(page.locator(".t.here").last.get_attribute("id").removeprefix("slot-"))
    assert last > 40_000
    assert in_view(page, last)
    page.keyboard.press("Enter")
    count(page, f"1 of {often}")
    assert in_view(page, int(page.locator(".t.here").first.get_attribute("id").removeprefix("slot-")))


def test_the_count_is_announced_and_the_button_says_whether_it_is_open(opened) -> None:
    page = opened("story")
    expect(page.locator(".found-count")).to_have_attribute("role", "status")
    opener = page.locator(".find")
    expect(opener).to_have_attribute("aria-expanded", "false")
    opener.click()
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".search input")).to_be_focused()
    page.locator(".find").click()
    expect(page.locator(".search")).to_be_hidden()
