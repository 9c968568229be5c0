"""A run of 20,000 tokens in a real browser: little of it is there at a time, and what is there is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz.analysis.metrics import judged_rounds
from mars_viz.components.explorer.element import RunPayload
from mars_viz.records import Round
from mars_viz.run import Run
from tests.factories import long_run
from tests.served import served
from tests.test_browser_component import compare, dial, drag

TOKENS = 22_000
MOST = 12_000
"""Elements of the text at a time; all of it would be 50,000."""
PAGE = f"""
import streamlit as st
from factories import long_run

from mars_viz.components.explorer.element import explorer

st.set_page_config(layout="wide")
run = st.cache_resource(long_run, show_spinner=False)({TOKENS})
token = st.query_params.get("token")
state = explorer(run, dial=None, overlay="outcome", selected=None if token is None else int(token), key="explorer")
st.text(f"selected {{state.selected}}")
"""


@pytest.fixture(scope="module")
def run() -> Run:
    return long_run(TOKENS)


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory) -> Iterator[Callable[[str], Page]]:
    """Opens the page on a link; a script error in the browser fails the test."""
    script = tmp_path_factory.mktemp("page") / "page.py"
    script.write_text(PAGE, encoding="utf-8")
    errors: list[str] = []
    with served(script) as address, browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))

        def go(link: str) -> Page:
            page.goto(address + link)
            page.wait_for_selector(".explorer .t")
            return page

        yield go
    assert not errors


def elements(page: Page) -> int:
    return page.locator(".stream").evaluate("stream => stream.querySelectorAll('*').length")


def scroll(page: Page, share: float) -> None:
    """Let the text stand at a share of its height, and wait until it is there."""
    page.locator(".stream").evaluate(
        """(stream, share) => new Promise((done) => {
          stream.scrollTop = share * (stream.scrollHeight - stream.clientHeight);
          const box = stream.getBoundingClientRect();
          const there = () => [...stream.querySelectorAll(".chunk:not(.built)")].every((chunk) => {
            const at = chunk.getBoundingClientRect();
            return at.bottom <= box.top || at.top >= box.bottom;
          });
          const wait = () => (there() ? done() : setTimeout(wait, 10));
          setTimeout(wait, 10);
        })""",
        share,
    )


def in_view(page: Page, slot: int) -> bool:
    return page.locator(f"#slot-{slot}").evaluate("""(token) => {
      const at = token.getBoundingClientRect(), box = token.closest(".stream").getBoundingClientRect();
      return at.top >= box.top && at.bottom <= box.bottom;
    }""")


def test_scrolling_to_the_end_and_back_keeps_the_page_small_and_the_dial_right(opened, run):
    page = opened("/")
    slots = sum(len(round_.speculation) + 1 for round_ in run.rounds)
    assert slots > 40_000
    before = page.locator(".stream .r").first.inner_text()
    most = 0
    for step in [*range(41), *range(39, -1, -1)]:
        scroll(page, step / 40)
        most = max(most, elements(page))
        if step == 20:
            drag(page, 0.8)
            compare(page, run)
        if step == 40:
            scroll(page, 1)  # what was built there may be taller than was guessed
            assert in_view(page, slots - 1)
            assert page.locator("#slot-0").count() == 1, "the selected token's surroundings stay"
            assert page.locator("#slot-1500").count() == 0, "what is far away is taken down"
            shown = page.locator(".stream .r").last.locator(":is(.matched, .relaxed, .corrected, .bonus):not([hidden])")
            page.locator(".recorded").click()
            last = [run.pieces[token].text for token in run.rounds[-1].token_ids]
            assert shown.evaluate_all("all => all.map(token => token.textContent)") == last
            compare(page, run)
    assert most < MOST
    page.locator(".recorded").click()
    assert page.locator(".stream .r").first.inner_text() == before
    assert page.locator(".chunk").first.locator(".faded").count() == 0


def test_link_to_a_far_token_shows_it_with_its_evidence(opened, run):
    slot = 39_988
    page = opened(f"/?token={slot}")
    expect(page.locator(".t.selected")).to_have_id(f"slot-{slot}")
    assert in_view(page, slot)
    assert page.locator(".stream").get_attribute("aria-activedescendant") == f"slot-{slot}"
    ends = np.cumsum([len(round_.speculation) + 1 for round_ in run.rounds])  # one slot per node, one for the emission
    round_ = run.rounds[int(np.searchsorted(ends, slot, side="right"))]
    node = slot - int(ends[ends <= slot].max(initial=0))
    assert node < len(round_.speculation)
    row = round_.speculation.parents[node] + 1
    best = [run.pieces[token].text for token in round_.speculation.top_ids[row, :10].tolist()]
    target = page.locator(".law").first.locator("tbody tr:not([hidden]) .token")
    expect(target.first).to_have_text(f"“{best[0]}”", use_inner_text=True)
    assert target.all_inner_texts()[:10] == [f"“{text}”" for text in best]
    assert page.locator(".verdicts tr").count() == len(RunPayload.of(run, None).whole.head["rules"])
    assert elements(page) < MOST


def test_keys_walk_from_one_end_to_the_other_and_python_hears(opened, run):
    page = opened("/")
    slots = sum(len(round_.speculation) + 1 for round_ in run.rounds)
    page.locator(".stream").focus()
    page.keyboard.press("End")
    expect(page.get_by_test_id("stText")).to_have_text(f"selected {slots - 1}")
    assert in_view(page, slots - 1)
    label = page.locator(".t.selected").get_attribute("aria-label")
    assert label.startswith(f"token {len(run.token_ids)}, ")
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Home")
    assert in_view(page, 0)
    expect(page.get_by_test_id("stText")).to_have_text("selected 0")
    expect(page.locator(".inspector .where")).to_contain_text("round 1")
    expect(page.locator(".laws")).to_be_visible()


def listed(rounds: Iterable[Round]) -> int:
    """Tokens that are shown, drafts included."""
    return sum(len(round_.speculation) + (round_.emission is not None) for round_ in rounds)


def test_places_are_told_among_all_tokens_though_few_are_there(opened, run):
    page = opened("/")
    everything = listed(run.rounds)
    page.locator(".stream").focus()
    page.keyboard.press("End")
    expect(page.locator(".t.selected")).to_have_attribute("aria-posinset", str(everything))
    expect(page.locator(".t.selected")).to_have_attribute("aria-setsize", str(everything))
    page.keyboard.press("Home")
    expect(page.locator(".t.selected")).to_have_attribute("aria-posinset", "1")
    shown = page.locator(".stream .t[aria-posinset]:not([hidden])")
    places = shown.evaluate_all("all => all.map(token => Number(token.getAttribute('aria-posinset')))")
    assert 100 < len(places) < everything / 4
    assert places == sorted(set(places))
    names = "all => all.map(token => token.getAttribute('aria-label'))"
    named = page.locator(".stream .t[aria-label]")
    before = named.evaluate_all(names)
    drag(page, 0.5, release=False)
    assert named.evaluate_all(names)[:100] == before[:100], "names wait until the hand rests"
    page.mouse.up()
    page.wait_for_function(
        "(old) => old.some((name, i) => document.querySelectorAll('.stream .t[aria-label]')[i]?.ariaLabel !== name)",
        arg=before[:100],
    )
    expect(page.locator(".t.selected")).to_have_attribute("aria-setsize", str(listed(judged_rounds(run, dial(page)))))
