"""The start page in a browser: its dial plays once, and its guide follows what a reader does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from mars_viz.components.guide import CARDS
from tests.served import ROOT, served

WATCH = """
  window.frames_seen = []; // when, where the dial is, and the text, in every frame in which there is a text
  (function look() {
    const hosts = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")];
    const root = hosts.map((e) => e.shadowRoot).find((each) => each?.querySelector(".explorer .t"));
    const [thumb, stream] = root ? [root.querySelector(".thumb"), root.querySelector(".stream")] : [];
    if (root) frames_seen.push([performance.now(), Number(thumb.getAttribute("aria-valuenow")), stream.textContent]);
    requestAnimationFrame(look);
  })();
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(ROOT / "app.py") as found:
        yield found


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens the start page as a new visitor's browser would."""
    contexts = []

    def visit(**how: Any) -> Page:
        contexts.append(browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **how}))
        contexts[-1].add_init_script(WATCH)
        page = contexts[-1].new_page()
        page.goto(address)
        page.wait_for_selector(".explorer .t")
        page.wait_for_selector(".guide h2")
        return page

    yield visit
    for context in contexts:
        context.close()


def watched(page: Page, seconds: float) -> list[tuple[float, float, str]]:
    """Seconds since the text is there, the dial's value and the text, in every frame of so many seconds or more."""
    page.wait_for_function(f"() => frames_seen.length && frames_seen.at(-1)[0] - frames_seen[0][0] > {1000 * seconds}")
    frames = page.evaluate("frames_seen")
    return [((at - frames[0][0]) / 1000, value, text) for at, value, text in frames]


def rests(page: Page) -> None:
    """The dial stays where it is."""
    page.evaluate("frames_seen = []")
    assert len({value for _, value, _ in watched(page, 1.5)}) == 1


def title(page: Page, id: str) -> None:
    """Wait until that card is shown."""
    expect(page.locator(".guide h2")).to_have_text(next(card.title for card in CARDS if card.id == id))


def plays(page: Page) -> None:
    """Wait until the dial is on its way."""
    page.wait_for_function("() => frames_seen.at(-1)?.[1] < 0.99 && sessionStorage.getItem('mars-viz-played')")


def test_a_visitor_who_touches_nothing_sees_the_dial_change_the_text_once(visit: Callable[..., Page]) -> None:
    page = visit()
    page.wait_for_function("() => frames_seen.some(([, value]) => value === 0.8) && frames_seen.at(-1)[1] === 0.9")
    frames = watched(page, 0)
    first: dict[float, float] = {}
    for seconds, value, _ in frames:
        first.setdefault(value, seconds)
    moving = [seconds for seconds, value, _ in frames if value != 0.9]
    assert min(first) == 0.8 and max(first) == 1 and first[1] < first[0.8] < 8
    assert moving[-1] - moving[0] < 7, "six seconds, and what a busy machine adds"
    texts = {value: text for _, value, text in frames}
    assert len({texts[1], texts[0.8], texts[0.9]}) == 3
    page.reload()
    page.wait_for_selector(".guide h2")
    assert {value for _, value, _ in watched(page, 2.5)} == {0.9}, "once in a tab"


@pytest.mark.parametrize("by", ["key", "wheel", "press"])
def test_a_key_the_wheel_or_a_press_stops_the_dial_where_it_is(visit: Callable[..., Page], by: str) -> None:
    page = visit()
    plays(page)
    if by == "key":
        page.keyboard.press("Shift")
    elif by == "wheel":
        page.mouse.move(700, 450)
        page.mouse.wheel(0, 10)
    else:
        page.mouse.click(5, 400)
    rests(page)


def test_without_motion_the_dial_rests(visit: Callable[..., Page]) -> None:
    assert {value for _, value, _ in watched(visit(reduced_motion="reduce"), 2.5)} == {0.9}


def test_doing_what_a_card_asks_completes_it_and_goes_on(visit: Callable[..., Page]) -> None:
    page = visit(reduced_motion="reduce")
    guide, complete = page.locator(".guide"), page.locator(".guide .complete")
    guide.press("ArrowRight")
    title(page, "rejection")
    expect(page.locator(".guide .progress")).to_have_text(f"2 of {len(CARDS)}")
    page.locator(".stream .t.matched").first.click()
    expect(complete).to_have_count(0)
    page.locator(".stream .t.rejected").first.click()
    expect(page.locator(".guide .done")).to_have_text("✓ Done")
    title(page, "lossless")
    page.locator(".explorer .thumb").press("End")
    title(page, "margin")
    page.locator(".stream").press("End")  # with the keyboard alone: to the last token, then back to a corrected one
    corrected = page.locator(".stream .t.corrected.selected")
    while not corrected.count():
        page.keyboard.press("ArrowLeft")
    title(page, "mars")
    expect(complete).to_have_count(3)
    page.reload()
    title(page, "mars")
    expect(complete).to_have_count(3)


def test_the_guide_closes_opens_and_leads_to_lessons(visit: Callable[..., Page]) -> None:
    page = visit(reduced_motion="reduce")
    outlined = page.locator(".stream .r").first
    assert outlined.evaluate("e => getComputedStyle(e).boxShadow") != "none"
    wide = page.locator(".explorer").bounding_box()
    page.get_by_role("button", name="Skip the guide").click()
    expect(page.locator(".guide")).to_be_hidden()
    assert outlined.evaluate("e => getComputedStyle(e).boxShadow") == "none"
    assert wide and page.locator(".explorer").bounding_box()["width"] > wide["width"] + 200
    page.reload()
    page.get_by_role("button", name="Open the guide").click()
    page.get_by_role("button", name="Next card").click()
    page.get_by_role("link", name="Lesson 2").click()
    expect(page.locator(".mv-lesson h2")).to_contain_text("2 ·")


def finger(page: Page, place: Locator, by: int) -> None:
    """A finger pulls a place to the side."""
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hand = page.context.new_cdp_session(page)
    hand.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for share in (0.3, 0.6, 1):
        points = [{"x": x + by * share, "y": y}]
        hand.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points})
    hand.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_telephone_shows_dial_and_text_at_once_and_takes_fingers(visit: Callable[..., Page]) -> None:
    page = visit(viewport={"width": 375, "height": 812}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    for part, least in ((".explorer .sentence", 40), (".explorer .track", 20), (".explorer .stream", 200)):
        box = page.locator(part).bounding_box()
        assert box is not None and box["y"] + least <= 812 and box["y"] >= 0, part
    plays(page)
    finger(page, page.locator(".explorer .thumb"), -60)
    rests(page)
    assert page.evaluate("frames_seen.at(-1)[1]") < 0.75, "where the finger has left it"
    page.locator(".stream .t.matched").first.tap()
    title(page, "rejection")
