"""Gallery, Compare, Learn, Rules and Runs in a real browser: by hand, by keyboard, by finger and by link."""

from __future__ import annotations

import io
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz.components.guide import CARDS
from mars_viz.components.stepper.frames import Jump, playback
from mars_viz.recording import Recording
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.run_with_map import mapped
from mars_viz.runstore import RunStore
from mars_viz.speculators.backend import Backend
from mars_viz.ui import visitors
from tests.controls import STILL
from tests.factories import toy_map, toy_run, toy_tree
from tests.fingers import swipe
from tests.served import App

# ---- the start page

WATCH = """
  window.frames_seen = []; // time, dial value and text of every frame with a text
  (function look() {
    const hosts = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")];
    const root = hosts.map((e) => e.shadowRoot).find((each) => each?.querySelector(".explorer .t"));
    const [thumb, stream] = root ? [root.querySelector(".thumb"), root.querySelector(".stream")] : [];
    if (root) frames_seen.push([performance.now(), Number(thumb.getAttribute("aria-valuenow")), stream.textContent]);
    requestAnimationFrame(look);
  })();
"""


@pytest.fixture
def visit(browser: Browser, app: App) -> Iterator[Callable[..., Page]]:
    """Opens the start page in a new visitor's browser."""
    contexts = []

    def visit(**how: Any) -> Page:
        contexts.append(browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **how}))
        contexts[-1].add_init_script(WATCH)
        page = contexts[-1].new_page()
        page.goto(app.address)
        page.wait_for_selector(".explorer .t")
        page.wait_for_selector(".guide h2")
        return page

    yield visit
    for context in contexts:
        context.close()


def watched(page: Page, seconds: float) -> list[tuple[float, float, str]]:
    """Seconds since the first, dial value and text of each frame, over at least so many seconds."""
    page.wait_for_function(f"() => frames_seen.length && frames_seen.at(-1)[0] - frames_seen[0][0] > {1000 * seconds}")
    frames = page.evaluate("frames_seen")
    return [((at - frames[0][0]) / 1000, value, text) for at, value, text in frames]


def plays(page: Page) -> None:
    page.wait_for_function("() => frames_seen.at(-1)?.[1] < 0.99 && sessionStorage.getItem('mars-viz-played')")


def rests(page: Page) -> None:
    page.evaluate("frames_seen = []")
    assert len({value for _, value, _ in watched(page, 1.5)}) == 1


def title(page: Page, id: str) -> None:
    expect(page.locator(".guide h2")).to_have_text(next(card.title for card in CARDS if card.id == id))


def test_the_dial_plays_once_in_a_tab_and_a_hand_stops_it(visit: Callable[..., Page]) -> None:
    page = visit()
    page.wait_for_function("() => frames_seen.some(([, value]) => value === 0.8) && frames_seen.at(-1)[1] === 0.9")
    frames = watched(page, 0)
    first: dict[float, float] = {}
    for seconds, value, _ in frames:
        first.setdefault(value, seconds)
    assert min(first) == 0.8 and max(first) == 1 and first[1] < first[0.8]
    words = {value: text for _, value, text in frames}
    assert len({words[1], words[0.8], words[0.9]}) == 3
    page.reload()
    page.wait_for_selector(".guide h2")
    assert {value for _, value, _ in watched(page, 2.5)} == {0.9}
    for by in ("key", "wheel", "press"):
        page.evaluate("sessionStorage.clear()")
        page.reload()
        plays(page)
        if by == "key":
            page.keyboard.press("Shift")
        elif by == "wheel":
            page.mouse.move(700, 450)
            page.mouse.wheel(0, 10)
        else:
            page.mouse.click(5, 400)
        rests(page)


def test_the_guide_follows_the_reader_and_leads_to_lessons(visit: Callable[..., Page]) -> None:
    page = visit(reduced_motion="reduce")
    complete, outlined = page.locator(".guide .complete"), page.locator(".stream .r").first
    assert {value for _, value, _ in watched(page, 2.5)} == {0.9}, "without motion the dial does not play"
    assert outlined.evaluate("e => getComputedStyle(e).boxShadow") != "none"
    page.locator(".guide").press("ArrowRight")
    title(page, "rejection")
    expect(page.locator(".guide .progress")).to_have_text(f"2 of {len(CARDS)}")
    page.locator(".stream .t.matched").first.click()
    expect(complete).to_have_count(0)
    page.locator(".stream .t.rejected").first.click()
    title(page, "lossless")
    page.locator(".explorer .thumb").press("End")
    title(page, "margin")
    page.locator(".stream").press("End")  # by keyboard: to the last token, then back to a corrected one
    corrected = page.locator(".stream .t.corrected.selected")
    while not corrected.count():
        page.keyboard.press("ArrowLeft")
    title(page, "mars")
    expect(complete).to_have_count(3)
    page.reload()
    title(page, "mars")
    expect(complete).to_have_count(3)
    wide = page.locator(".explorer").bounding_box()
    page.get_by_role("button", name="Skip the guide").click()
    expect(page.locator(".guide")).to_be_hidden()
    assert outlined.evaluate("e => getComputedStyle(e).boxShadow") == "none"
    assert wide and page.locator(".explorer").bounding_box()["width"] > wide["width"] + 200  # type: ignore[index]
    page.reload()
    page.get_by_role("button", name="Open the guide").click()
    lesson = page.get_by_role("link", name="Lesson")
    while not lesson.count():
        page.get_by_role("button", name="Next card").click()
    number = re.search(r"Lesson (\d)", lesson.first.inner_text())
    lesson.first.click()
    expect(page.locator(".mv-lesson h2")).to_contain_text(f"{number and number[1]} ·")


def test_a_telephone_shows_dial_and_text_at_once_and_takes_fingers(visit: Callable[..., Page]) -> None:
    page = visit(viewport={"width": 375, "height": 812}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    for part, least in ((".explorer .sentence", 40), (".explorer .track", 20), (".explorer .stream", 200)):
        box = page.locator(part).bounding_box()
        assert box is not None and box["y"] + least <= 812 and box["y"] >= 0, part
    plays(page)
    swipe(page, page.locator(".explorer .thumb"), x=-60, steps=3)
    rests(page)
    assert page.evaluate("frames_seen.at(-1)[1]") < 0.75
    page.locator(".stream .t.matched").first.tap()
    title(page, "rejection")


# ---- Compare

FRAMES = "async () => { for (let i = 0; i < 3; i += 1) await new Promise(requestAnimationFrame); }"
LOW = """(root) => {
  for (const stream of root.querySelectorAll(".stream")) {
    Object.assign(stream.style, { minHeight: "50px", maxHeight: "60px" });
  }
}"""
STACKED = """() => {
  const [left, right] = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].flatMap((e) =>
    [...e.shadowRoot.querySelectorAll(".compare .pane")]).map((pane) => pane.getBoundingClientRect());
  return right && right.top >= left.bottom;
}"""


@pytest.fixture(scope="module")
def texts(app: App) -> int:
    """Save a run with several texts and one of trees; returns the number of texts of the first."""
    run = toy_run(vocabulary=300, model_seed=2, max_new_tokens=40)
    gammas = (2, run.settings.gamma)
    made = toy_map(run.settings, low=0.5, gammas=gammas, model_seed=2, vocabulary=300)[0]
    app.save("compare-texts", mapped(run, replace(made, frame=run.without_rounds)))
    app.save("compare-tree", toy_tree())
    return len(made.segments)


def compared(page: Page, app: App, run: str) -> None:
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto(f"{app.address}/compare?run={run}&reference={run}~1~&shown={run}")
    page.wait_for_selector(".compare .stream .t")


def link_names_the_selected_token(page: Page) -> None:
    selected = page.locator(".compare .t.selected").evaluate_all("all => all.map(each => each.id)")
    tokens = [name.replace("-slot-", "-") for name in selected]
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get("token", [""])[0] in tokens)


def test_two_texts_scroll_together_and_are_stepped_through(page: Page, app: App, texts: int) -> None:
    compared(page, app, "compare-texts")
    names = page.locator(".pane bdi.name")
    reference, other = names.all_inner_texts()
    assert (reference, other) == ("strict", "θ = 0.90")
    expect(page.locator(".compare .t.parts")).to_have_count(2)
    assert page.locator(".text:not(.head)").count() == texts
    visible = "all => [...new Set(all.filter((e) => e.checkVisibility()).map((e) => getComputedStyle(e).display))]"
    assert page.locator(".compare .stream .t").evaluate_all(visible) == ["inline"], "a block would lose its blank"

    # both texts begin at one height however long a name is
    head = page.locator(".right header .name")
    head.evaluate("name => { name.style.flexBasis = '100%'; name.style.fontSize = '40px'; }")
    tops = page.locator(".compare .stream").evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
    assert abs(tops[0] - tops[1]) < 1
    head.evaluate("name => name.removeAttribute('style')")

    page.locator(".compare").evaluate(LOW)
    page.evaluate(FRAMES)
    left, right = page.locator(".left .stream"), page.locator(".right .stream")
    place = page.locator(".left .r:not(.alone)").last.evaluate(
        "round => round.offsetTop - round.closest('.stream').offsetTop"
    )
    left.evaluate("(stream, to) => { stream.scrollTop = to; }", max(place, 40))
    page.wait_for_function("stream => stream.scrollTop > 0", arg=right.element_handle())
    right.evaluate("stream => { stream.scrollTop = 0; }")
    page.wait_for_function("stream => stream.scrollTop === 0", arg=left.element_handle())

    # keys on the page and in the list switch the other text, keys in a text move between its tokens
    page.keyboard.press("ArrowRight")
    expect(names.nth(1)).not_to_have_text(other)
    expect(names.first).to_have_text(reference)
    expect(page.locator(".compare")).not_to_have_class("explorer compare turning")
    page.wait_for_url(lambda url: "shown=compare-texts~" in url)
    expect(page.locator(".text[aria-selected=true] .name bdi")).to_have_text(names.nth(1).inner_text())
    page.keyboard.press("ArrowLeft")
    expect(names.nth(1)).to_have_text(other)
    left.focus()
    page.keyboard.press("Home")
    selected = page.locator(".left .t.selected")
    first = selected.get_attribute("id") or ""
    page.keyboard.press("ArrowRight")
    expect(selected).not_to_have_attribute("id", first)
    page.keyboard.press("ArrowLeft")
    expect(selected).to_have_attribute("id", first)
    expect(names.nth(1)).to_have_text(other)
    link_names_the_selected_token(page)
    for focus, there, back in ((left, "PageDown", "PageUp"), (page.locator(".list"), "ArrowRight", "ArrowUp")):
        focus.focus()
        page.keyboard.press(there)
        expect(names.nth(1)).not_to_have_text(other)
        page.keyboard.press(back)
        expect(names.nth(1)).to_have_text(other)

    page.locator(".left .t:visible").nth(1).click()
    expect(page.locator(".said")).to_contain_text("strict: token")
    link_names_the_selected_token(page)
    chosen = selected.get_attribute("id") or ""
    page.reload()
    expect(selected).to_have_attribute("id", chosen)
    step = page.get_by_role("button", name="Next difference")
    step.press("Enter")
    expect(page.locator(".compare .t.selected.apart").first).to_be_visible()
    at = page.locator(".compare .t.selected").first.get_attribute("id")
    step.press("Enter")
    link_names_the_selected_token(page)
    assert page.locator(".compare .t.selected").first.get_attribute("id") != at
    page.locator(".pin", has_text="Pin as reference").click()
    expect(names.first).to_have_text(other)
    page.locator(".list").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.locator(".list").evaluate("list => getComputedStyle(list).outlineStyle") == "solid"
    page.get_by_role("radio", name="Outcome").click()
    page.wait_for_url(lambda url: "colour=outcome" in url)
    expect(page.locator(".compare .t.away").first).to_be_visible()

    page.set_viewport_size({"width": 375, "height": 800})
    page.wait_for_function(STACKED)
    page.evaluate(FRAMES)
    for part in (".compare", ".mv-scroll"):
        assert page.locator(part).evaluate("box => box.scrollWidth <= box.clientWidth + 1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    named = page.locator(".text:not(.head) .number").evaluate_all(
        "all => all.map(each => ['::before', '::after'].map(name => getComputedStyle(each, name).content))"
    )
    assert {tuple(each) for each in named} == {('"τ "', "none"), ("none", '" tokens"')}


def test_trees_unfold_in_either_text(page: Page, app: App, texts: int) -> None:
    compared(page, app, "compare-tree")
    right, trees = page.locator(".right .stream"), page.locator(".compare .tree")
    page.locator(".compare").evaluate(LOW)
    right.press("Home")
    right.press("t")
    expect(trees).to_have_count(1)
    options = trees.get_by_role("option")
    assert options.count() == 11 and all(options.nth(i).is_visible() for i in range(11))
    shares = [f"{q:.3f}" for q in toy_tree().rounds[0].speculation.q.tolist()]
    assert sorted(trees.locator(".q").all_text_contents()) == sorted(shares)
    for key, token in (("ArrowDown", "draft"), ("ArrowUp", "token 1"), ("ArrowRight", "token 2")):
        page.keyboard.press(key)
        expect(page.locator(".compare .said")).to_contain_text(f"θ = 0.90: {token}")
    link_names_the_selected_token(page)
    right.evaluate("stream => { stream.scrollTop = 0.8 * stream.querySelector('.tree').offsetHeight; }")
    page.evaluate(FRAMES)
    at, most = page.locator(".left .stream").evaluate(
        "({ scrollTop, scrollHeight, clientHeight }) => [scrollTop, scrollHeight - clientHeight]"
    )
    assert at < 60 < 100 < most, "the other text stays at the round above the tree"
    step = page.locator(".right .leafing button").last
    step.click()
    expect(trees).to_have_count(0)  # another text has none unfolded
    page.locator(".left .fold").first.click()
    expect(trees).to_have_count(1)
    other = page.locator(".right .name").inner_text()
    step.click()
    expect(page.locator(".right .name")).not_to_have_text(other)
    expect(page.locator(".left .tree")).to_have_count(1)
    page.locator(".left .stream").press("Escape")
    expect(trees).to_have_count(0)


# ---- Learn


def at(page: Page, frame: int) -> None:
    expect(page.locator(".stepper")).to_have_attribute("data-frame", str(frame))


def link_is(page: Page, name: str, value: str | None) -> None:
    page.wait_for_function(
        "([name, value]) => new URLSearchParams(location.search).get(name) === value", arg=[name, value]
    )


def test_the_stepper_steps_jumps_and_plays(page: Page, app: App) -> None:
    run = toy_run(rule="mars-sampling", temperature=1.0, max_new_tokens=40, dial=0.9, seed=4)
    app.save("learn-stepper", run)
    played = playback(run)
    last = len(played.frames) - 1
    rejection = next(place for place in played.places(Jump.REJECTION) if place > 1)
    divergence = next(place for place in played.places(Jump.DIVERGENCE) if place > 0)
    stepper, chips = page.locator(".stepper"), page.locator(".flying .chip")
    page.set_viewport_size({"width": 375, "height": 812})
    page.goto(f"{app.address}/learn?run=learn-stepper", wait_until="commit")
    at(page, 0)
    for key, frame in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        at(page, frame)
    assert page.locator(".cache .length").first.inner_text() == str(played.frames[1].target_cache)
    assert page.locator(".cell.new").count() == len(run.rounds[0].speculation)
    speaks = stepper.locator(":is([aria-live], [role=status], output)")
    expect(speaks).to_have_count(1)
    assert page.locator(".said").inner_text() == speaks.inner_text()
    assert chips.first.evaluate("chip => getComputedStyle(chip).animationName") == "none", "without motion"
    page.keyboard.press("x")
    at(page, rejection)
    expect(page.locator(".chip.judged")).to_have_class(re.compile("rejected"))
    page.keyboard.press("ArrowRight")
    assert page.locator(".cell.lost").count() > 0
    link_is(page, "frame", str(rejection + 1))
    stepper.focus()
    for key, frame in (("Home", 0), ("d", divergence), ("Home", 0)):
        page.keyboard.press(key)
        at(page, frame)
    page.get_by_text("Next divergence", exact=True).click()
    at(page, divergence)
    stepper.press("End")
    at(page, last)
    names = stepper.locator(".text [role=option]").evaluate_all("all => all.map((t) => t.ariaLabel)")
    assert len(names) == played.frames[-1].written and all(
        re.match(rf"token {place}, “.*”, (matched|relaxed|corrected|bonus)", name, re.DOTALL)
        for place, name in enumerate(names, 1)
    )
    stepper.locator(".text").press("End")  # there the arrows move between tokens
    page.keyboard.press("ArrowLeft")
    expect(stepper.locator(".text [aria-selected=true]")).to_have_count(1)
    at(page, last)
    stepper.press("Home")
    page.get_by_role("combobox", name="Speed").select_option("4")
    play = page.get_by_role("button", name="Play or pause (space)")
    play.click()
    expect(stepper).to_have_attribute("data-frame", re.compile(r"[3-9]|\d\d"))
    play.click()
    paused = int(stepper.get_attribute("data-frame") or -1)
    page.wait_for_timeout(1200)  # in which it would have gone on
    at(page, paused)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.goto(f"{app.address}/learn?run=learn-stepper&frame={rejection}&teach=1", wait_until="commit")
    at(page, rejection)
    expect(stepper).to_have_class("explorer stepper large")
    assert page.get_by_test_id("stSelectbox").count() == 0


NOTE_WORDS = """(element) => {
    window.noted = new Set();
    const changes = new MutationObserver(() => window.noted.add(element.textContent));
    changes.observe(element, { childList: true, characterData: true, subtree: true });
}"""


def test_the_knobs_of_lessons(page: Page, app: App) -> None:
    page.set_viewport_size({"width": 375, "height": 812})
    page.goto(f"{app.address}/learn?lesson=5", wait_until="commit")
    knob, heading = page.get_by_role("slider", name="c, added to every logit"), page.locator(".lesson .chart-title")
    expect(knob).to_have_value("-8")
    box = knob.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 10 + (box["width"] - 20) * 0.4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    expect(heading.first).to_contain_text("With 0 added")
    assert "shift" not in page.url, "the link waits for the hand to rest"
    page.mouse.up()
    link_is(page, "shift", "0")
    knob.press("Shift+ArrowLeft")
    expect(heading.first).to_contain_text("With −10 added")
    link_is(page, "shift", "-10")
    knob.dblclick(position={"x": 20, "y": 16})
    expect(knob).to_have_value("-8")
    link_is(page, "shift", None)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375

    page.emulate_media(reduced_motion="no-preference")
    page.goto(f"{app.address}/learn?lesson=3&draws=100", wait_until="commit")
    expect(heading.last).to_contain_text("100 trials")
    heading.last.evaluate(NOTE_WORDS)
    page.get_by_role("button", name="Run the trials").click()
    link_is(page, "draws", "100000")
    expect(heading.last).to_contain_text("100\u202f000 trials")
    assert len(page.evaluate("[...window.noted]")) > 3, "the number of trials grows frame by frame"

    page.goto(f"{app.address}/learn?lesson=6&dial=1", wait_until="commit")
    text, finding = page.locator(".lesson-text"), page.locator(".lesson-finding")
    expect(finding).to_contain_text("Identical")
    strict = text.inner_text()
    page.get_by_role("slider").press("Home")
    expect(finding).to_contain_text("Differs")
    assert text.inner_text() != strict and page.locator(".lesson-text mark").first.is_visible()
    link_is(page, "dial", "0.5")


END = """() => {
    const block = document.querySelector(".stMainBlockContainer");
    const whole = document.querySelector("[data-testid=stMain]");
    return whole.scrollHeight - parseFloat(getComputedStyle(block).paddingBottom) <= 900;
}"""
SMALLEST = """() => {
    const inside = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].map((e) => e.shadowRoot)
        .find((root) => root?.querySelector(".inspector"));
    const words = [...inside.querySelectorAll(".inspector *")]
        .filter((e) => e.offsetParent && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
    return Math.min(...words.map((e) => parseFloat(getComputedStyle(e).fontSize)));
}"""


@pytest.mark.parametrize("lesson", range(1, 8))
def test_a_lesson_is_one_screen(page: Page, app: App, lesson: int) -> None:
    for teach in ("&teach=1", "") if lesson in (1, 4) else ("&teach=1",):  # large type needs more room
        page.goto(f"{app.address}/learn?lesson={lesson}{teach}", wait_until="commit")
        page.get_by_text("step by step", exact=False).last.wait_for()
        page.locator(".explorer").first.wait_for()
        page.wait_for_function(STILL)
        page.wait_for_function(END)  # figures get their size last
        assert page.evaluate("document.documentElement.scrollWidth") <= 1400
        if lesson == 4 and teach:
            expect(page.locator(".explorer")).to_have_class("explorer lean large")
            assert page.evaluate(SMALLEST) >= 18
            box, facts = (page.locator(place).first.bounding_box() for place in (".inspector", ".inspector .flip"))
            assert box and facts and facts["y"] + facts["height"] <= box["y"] + box["height"]
    if lesson == 4:
        expect(page.locator(".explorer")).to_have_class("explorer lean")
        for left_out in (".numbers", ".overlays", ".verdicts", ".decode"):
            assert page.locator(f".explorer {left_out}:visible").count() == 0
        box = page.locator(".explorer input[type=number]")
        for value in ("0.5", "0.9", "0.7"):
            box.fill(value)
            box.press("Enter")
            link_is(page, "dial", None if value == "0.9" else value)
            page.wait_for_function(STILL)
            expect(page.locator(".explorer [role=slider]")).to_have_attribute("aria-valuenow", value)


# ---- Rules

COLOURS = """(selectors) => selectors.map((selector) => {
  const found = document.querySelector(selector); // it may be drawn again just now
  const { color, backgroundColor, fill } = found ? getComputedStyle(found) : {};
  return [color, backgroundColor, fill];
})"""


def test_the_table_of_rules_fits_follows_the_theme_and_becomes_exact(page: Page, app: App, pair: Backend) -> None:
    short = Settings(max_new_tokens=12, temperature=0.8, seed=3)
    app.save("rules-short", Recording(pair, "Sam had a new red kite.", short).finish())
    page.set_viewport_size({"width": 800, "height": 900})
    page.goto(f"{app.address}/rules?run=rules-short", wait_until="commit")
    rows, table = page.locator(".mv-rules tbody tr"), page.locator(".mv-wide")
    expect(rows).to_have_count(8)
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth")
    expect(page.get_by_text("Source: arXiv 2601.15498")).to_be_hidden()
    page.get_by_text("About this rule").click()
    expect(page.get_by_text("Source: arXiv 2601.15498")).to_be_visible()
    page.get_by_text(f"Show all {len(RULES)} rules").click()
    expect(rows).to_have_count(len(RULES))
    link_is(page, "rules", "all")
    page.set_viewport_size({"width": 375, "height": 800})
    name = page.locator(".mv-rules tbody th").first
    page.wait_for_function("t => t.scrollWidth > t.clientWidth", arg=table.element_handle())
    before = name.bounding_box()
    table.evaluate("table => { table.scrollLeft = table.scrollWidth; }")
    page.wait_for_function("() => document.querySelector('.mv-wide').scrollLeft > 0")
    after = name.bounding_box()
    assert before and after and after["x"] == before["x"] and before["width"] < 160, "names stay in view"

    page.locator(".js-plotly-plot .gtitle").first.wait_for()
    for scheme, ground in (("dark", "rgb(18, 22, 28)"), ("light", "rgb(255, 255, 255)")):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        expect(page.locator(".stApp")).to_have_css("background-color", ground)
        other = ".mv-rules tbody tr:not(.chosen) > "
        parts = [".stApp", f"{other}:first-child", f"{other}:nth-child(2)"]
        app_colours, head, beside = page.evaluate(COLOURS, parts)
        assert head[1] == ground and head[0] == beside[0] and beside[1] == "rgba(0, 0, 0, 0)", "the head hides nothing"
        page.wait_for_function(f"([ink]) => ({COLOURS})(['.js-plotly-plot .gtitle'])[0][2] === ink", arg=app_colours)

    page.set_viewport_size({"width": 1400, "height": 900})
    decode = page.get_by_role("button", name="Decode every rule on this prompt")
    decode.click()
    expect(page.get_by_text("Every row is exact")).to_be_visible()
    expect(decode).to_be_hidden()


# ---- Runs


def settles(page: Page) -> None:
    page.wait_for_timeout(300)  # the grid sends a tick after a pause
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def tick(page: Page, *rows: int) -> None:
    for row in rows:
        box = page.get_by_test_id("data-grid-canvas").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 15, box["y"] + 38 + 35 * row + 17)
        settles(page)


def test_runs_are_found_tagged_deleted_and_brought_back_by_their_browser_alone(
    page: Page, app: App, browser: Browser
) -> None:
    store, run = RunStore(app.runs), toy_run()
    names = [f"live-shelf-{day}" for day in range(5)]
    for day, name in enumerate(names):
        shutil.rmtree(app.runs / name, ignore_errors=True)
        made = replace(run.provenance, created=f"2026-01-0{day + 1}T00:00:00+00:00")
        store.finish(store.begin(name), replace(run, title=f"Shelf {day}", provenance=made))
    page.goto(f"{app.address}/live?view=saved")  # an old link
    expect(page).to_have_url(re.compile("/runs$"))
    find = page.get_by_role("searchbox")
    expect(find).to_be_visible()
    (cookie,) = (each for each in page.context.cookies(app.address) if each["name"] == visitors.COOKIE)
    assert cookie["httpOnly"]
    for name in names:
        store.makers.note(name, visitors.mark_of(cookie["value"]))

    def kept() -> list[str]:
        return [entry.name for entry in store.list() if entry.name in names]

    def tags(day: int) -> tuple[str, ...]:
        about = store.find(names[day]).manifest
        assert about is not None
        return about.tags

    def listed(count: int) -> None:
        expect(page.get_by_text(re.compile(rf"^{count} of \d+ runs"))).to_be_visible()
        settles(page)

    page.reload()
    expect(find).to_be_visible()
    settles(page)
    find.press_sequentially("shelf")  # each letter searches, without Enter
    listed(5)
    tick(page, 0)
    details = page.get_by_role("button", name="Show details")
    expect(details).to_be_enabled()
    find.fill("shelf 4")
    listed(1)
    expect(details).to_be_disabled()  # a tick belongs to the list that it was made in
    find.fill("shelf")
    listed(5)
    grid = page.get_by_test_id("data-grid-canvas")
    box = grid.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 80, box["y"] + 18)  # sort by title
    page.wait_for_timeout(500)
    tick(page, 0)
    details.click()
    link_is(page, "run", names[0])
    title = page.get_by_role("textbox", name="Title")
    title.fill("<b>Fox</b> shelf")
    title.press("Tab")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("heading", name="<b>Fox</b>")).to_be_visible()
    assert store.find(names[0]).title == "<b>Fox</b> shelf"
    page.get_by_role("button", name="Show all runs").click()
    find.fill("shelf")
    listed(5)

    tick(page, 0, 1)
    page.get_by_role("button", name="Tag").click()
    page.get_by_role("combobox", name="Add").fill("paper")
    page.keyboard.press("Enter")
    settles(page)
    page.get_by_role("button", name="Tag 2 runs").click()
    expect(page.get_by_role("button", name="Tag 2 runs")).to_be_hidden()
    assert tags(4) == tags(3) == ("paper",) and tags(2) == ()
    with page.expect_download() as caught:
        page.get_by_role("button", name="Download").click()
    with zipfile.ZipFile(io.BytesIO(Path(caught.value.path()).read_bytes())) as archive:
        assert sorted(archive.namelist()) == [f"{name}.zip" for name in names[3:]]
    spot = page.get_by_role("button", name="Delete 2").bounding_box()
    assert spot is not None
    for _ in range(2):  # the second click must not bring them back
        page.mouse.click(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
    expect(page.get_by_role("button", name="Undo all")).to_be_enabled()
    settles(page)
    assert kept() == names[2::-1]
    page.wait_for_timeout(1200)
    page.get_by_role("button", name="Undo all").click()
    listed(5)
    assert len(kept()) == 5 and tags(4) == ("paper",)

    # a row by keyboard alone
    page.get_by_role("combobox", name="Sort").focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        if grid.evaluate("grid => grid === document.activeElement || grid.contains(document.activeElement)"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Space")
    expect(details).to_be_enabled()
    cells = grid.locator("[role=gridcell]")  # for screen readers
    expect(cells.filter(has_text="Shelf 2")).to_have_count(1)
    details.press("Enter")
    expect(page).to_have_url(re.compile("run=live-shelf"))

    with browser.new_context() as stranger:
        other = stranger.new_page()
        other.goto(f"{app.address}/runs?run={names[0]}")
        expect(other.get_by_role("heading", name="<b>Fox</b>")).to_be_visible()
        expect(other.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
        for name in ("textbox", "button"):
            expect(other.get_by_role(name, name=re.compile("^(Title|Save)$"))).to_have_count(0)  # type: ignore[arg-type]
        assert other.get_by_text("Bin (").count() == 0
