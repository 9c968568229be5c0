"""The stepper in a real browser on a real server: keys, play, jumps, the address, teacher mode, hostile text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from mars_viz.components.stepper.frames import Jump, Playback, playback
from mars_viz.run import Run
from mars_viz.run_with_map import mapped
from tests.controls import STILL
from tests.factories import toy_map, toy_run
from tests.served import ROOT, served
from tests.test_browser_component import HOSTILE


def run() -> Run:
    return toy_run(rule="mars-sampling", temperature=1.0, max_new_tokens=40, dial=0.9, seed=4, pieces=HOSTILE)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    replace(run(), title="Hostile").save(folder / "hostile")
    sampled = toy_run(rule="rejection-sampling", temperature=1.0, max_new_tokens=30, pieces=HOSTILE)
    replace(sampled, title="Sampled").save(folder / "hostile-2")
    greedy = toy_run(dial=0.9, max_new_tokens=30, pieces=HOSTILE)
    mapped(greedy, toy_map(replace(greedy.settings, dial=None), 0.5, None, (6,))[0]).save(folder / "mapped")
    patch = pytest.MonkeyPatch()
    patch.setenv("MARS_VIZ_RUNS", str(folder))
    patch.setenv("MARS_VIZ_SAMPLES", str(folder))
    with served(ROOT / "app.py") as found:
        yield found
    patch.undo()


@pytest.fixture(scope="module")
def samples_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page as it comes: with the recorded runs and measurements of the product."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MARS_VIZ_RUNS", str(tmp_path_factory.mktemp("none")))
    patch.delenv("MARS_VIZ_SAMPLES", raising=False)
    with served(ROOT / "app.py") as found:
        yield found
    patch.undo()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Playback:
    return playback(run())


def next_place(played: Playback, frame: int, jump: Jump) -> int:
    """Where a jump leads from this frame."""
    return next(place for place in played.places(jump) if place > frame)


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """Where the reader asked for no motion; a script error in the browser fails the test."""
    errors: list[str] = []
    tab.set_viewport_size({"width": 375, "height": 812})
    tab.emulate_media(reduced_motion="reduce")
    tab.on("pageerror", note := lambda error: errors.append(str(error)))
    yield tab
    tab.remove_listener("pageerror", note)
    assert not errors


def at(page: Page, frame: int) -> None:
    expect(page.locator(".stepper")).to_have_attribute("data-frame", str(frame))


def test_keys_play_jumps_and_a_link_for_the_class(page: Page, address: str, played: Playback, tmp_path: Path) -> None:
    page.goto(f"{address}/learn", wait_until="commit")
    at(page, 0)
    for press, frame in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(press)
        at(page, frame)
    assert page.locator(".cache .length").first.inner_text() == str(played.frames[1].target_cache)
    speaks = page.locator(".stepper :is([aria-live], [role=status], output)")
    expect(speaks).to_have_count(1)  # a step is told in its sentence, and in nothing else
    assert page.locator(".said").inner_text() == speaks.inner_text()
    still = page.locator(".flying .chip").first.evaluate("chip => getComputedStyle(chip).animationName")
    assert still == "none", "the reader asked for no motion"
    assert page.locator(".cell.new").count() == len(played.run.rounds[0].speculation)
    rejection = next_place(played, 1, Jump.REJECTION)
    page.keyboard.press("x")
    at(page, rejection)
    assert "rejected" in (page.locator(".chip.judged").get_attribute("class") or "")
    page.keyboard.press("ArrowRight")  # and what is thrown away leaves the caches
    assert page.locator(".cell.lost").count() > 0
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.stepper') ?? document.body).animationName") == "none"
    )
    written = "frame => new URLSearchParams(location.search).get('frame') === frame"
    page.wait_for_function(written, arg=str(rejection + 1))
    page.locator(".stepper").focus()
    page.keyboard.press("Home")
    at(page, 0)
    divergence = next_place(played, 0, Jump.DIVERGENCE)
    page.keyboard.press("d")
    at(page, divergence)
    page.keyboard.press("Home")
    at(page, 0)
    page.get_by_text("Next divergence", exact=True).click()
    at(page, divergence)
    page.locator(".stepper").focus()
    page.keyboard.press("End")
    at(page, len(played.frames) - 1)
    shown = page.locator(".stepper .text .t:visible").count()
    assert shown >= played.frames[-1].written - 2, "tokens without a visible mark may have no box"
    names = page.locator(".stepper .text [role=option]").evaluate_all("all => all.map((t) => t.ariaLabel)")
    assert all(
        re.match(rf"token {place}, “.*”, (matched|relaxed|corrected|bonus)(, ratio |$)", name, re.DOTALL)
        for place, name in enumerate(names, 1)
    )
    page.locator(".stepper .text").focus()  # where the arrows move between tokens, and the step stays
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".stepper .text [aria-selected=true]")).to_have_count(1)
    at(page, len(played.frames) - 1)
    page.locator(".stepper").focus()
    page.keyboard.press("Home")
    page.get_by_role("combobox", name="Speed").select_option("4")
    page.get_by_role("button", name="Play or pause (space)").click()
    expect(page.locator(".stepper")).to_have_attribute("data-frame", re.compile(r"[3-9]|\d\d"))
    page.get_by_role("button", name="Play or pause (space)").click()
    stands = page.locator(".stepper").get_attribute("data-frame")
    page.wait_for_timeout(1200)  # in which it would have gone on
    at(page, int(stands or -1))
    assert page.evaluate("window.hacked") is None and page.locator(".stepper img, .stepper script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_a_teachers_link_opens_that_very_step_in_large_type(page: Page, address: str, played: Playback) -> None:
    rejection = next_place(played, 0, Jump.REJECTION)
    page.goto(f"{address}/learn?run=hostile&frame={rejection}&teach=1", wait_until="commit")
    at(page, rejection)
    expect(page.locator(".stepper")).to_have_class("explorer stepper large")
    assert page.get_by_test_id("stSelectbox").count() == 0
    page.keyboard.press("ArrowRight")
    at(page, rejection + 1)
    page.wait_for_function(f"new URLSearchParams(location.search).get('frame') === '{rejection + 1}'")


def test_a_lessons_knob_is_followed_under_the_hand_and_goes_into_the_address_at_rest(page: Page, address: str) -> None:
    page.goto(f"{address}/learn?run=hostile&lesson=5", wait_until="commit")
    knob = page.get_by_role("slider", name="c, added to every logit")
    expect(knob).to_have_value("-8")
    box = knob.bounding_box()
    assert box is not None
    title, middle = page.locator(".lesson .chart-title").first, box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 10 + (box["width"] - 20) * 0.4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    expect(title).to_contain_text("With 0 added")
    assert "shift" not in page.url, "nothing is told while the hand holds the knob"
    page.mouse.up()
    page.wait_for_function("new URLSearchParams(location.search).get('shift') === '0'")
    knob.press("Shift+ArrowLeft")
    expect(title).to_contain_text("With −10 added")
    page.wait_for_function("new URLSearchParams(location.search).get('shift') === '-10'")
    knob.dblclick(position={"x": 20, "y": 16})
    expect(knob).to_have_value("-8")
    page.wait_for_function("!new URLSearchParams(location.search).has('shift')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


NOTE_WORDS = """(element) => {
    window.noted = new Set();
    const changes = new MutationObserver(() => window.noted.add(element.textContent));
    changes.observe(element, { childList: true, characterData: true, subtree: true });
}"""
"""From now on all that an element says one after the other."""


def test_rejection_sampling_converges_before_ones_eyes_with_hostile_tokens(page: Page, address: str) -> None:
    page.emulate_media(reduced_motion="no-preference")
    page.goto(f"{address}/learn?run=hostile-2&lesson=3&draws=100", wait_until="commit")
    title = page.locator(".lesson .chart-title").last
    expect(title).to_contain_text("After 100 trials")
    title.evaluate(NOTE_WORDS)
    page.get_by_role("button", name="Run the trials").click()
    page.wait_for_url("**draws=100000*")
    assert len(page.evaluate("[...window.noted]")) > 3, "it goes on by itself, with every frame"
    expect(title).to_contain_text("After 100\u202f000 trials")
    assert page.evaluate("window.hacked") is None and page.locator(".lesson :is(img, script)").count() == 0


def test_the_text_follows_the_dial_of_the_last_lesson(page: Page, address: str) -> None:
    page.goto(f"{address}/learn?run=mapped&lesson=6&dial=1", wait_until="commit")
    text, knob = page.locator(".lesson-text"), page.get_by_role("slider")
    expect(page.locator(".lesson-finding")).to_contain_text("Identical to the strict text.")
    strict = text.inner_text()
    knob.press("Home")
    expect(page.locator(".lesson-finding")).to_contain_text("Differs from the strict text")
    assert text.inner_text() != strict and page.locator(".lesson-text mark").is_visible()
    page.wait_for_function("new URLSearchParams(location.search).get('dial') === '0.5'")
    assert page.evaluate("window.hacked") is None and page.locator(".lesson :is(img, script)").count() == 0


END = """() => {
    const block = document.querySelector(".stMainBlockContainer");
    const whole = document.querySelector("[data-testid=stMain]");
    return whole.scrollHeight - parseFloat(getComputedStyle(block).paddingBottom);
}"""
"""Pixels from the window's upper edge to where the last thing on the page ends, if that is below the edge."""


@pytest.mark.parametrize("teach", ["", "&teach=1"])
@pytest.mark.parametrize("lesson", range(1, 8))
def test_a_lesson_is_one_screen(page: Page, samples_address: str, lesson: int, teach: str) -> None:
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(f"{samples_address}/learn?lesson={lesson}{teach}", wait_until="commit")
    page.get_by_text("step by step", exact=False).last.wait_for()
    page.locator(".explorer").first.wait_for()
    page.wait_for_function(STILL)
    page.wait_for_function(f"() => ({END})() <= 900")  # figures get their size last
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400


def test_close_calls_are_shown_on_a_lean_text(page: Page, samples_address: str) -> None:
    page.goto(f"{samples_address}/learn?lesson=4", wait_until="commit")
    expect(page.locator(".explorer")).to_have_class("explorer lean")
    expect(page.locator(".explorer .stream .t").first).to_be_visible()
    for left_out in (".numbers", ".overlays", ".verdicts", ".decode"):
        assert page.locator(f".explorer {left_out}:visible").count() == 0
    assert "z2/z1" in page.locator(".explorer .legend").inner_text()
    page.goto(f"{samples_address}/learn?lesson=4&teach=1", wait_until="commit")
    expect(page.locator(".explorer")).to_have_class("explorer lean large")


SMALLEST = """() => {
    const inside = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].map((e) => e.shadowRoot)
        .find((root) => root?.querySelector(".inspector"));
    const told = [...inside.querySelectorAll(".inspector *")]
        .filter((e) => e.offsetParent && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
    return Math.min(...told.map((e) => parseFloat(getComputedStyle(e).fontSize)));
}"""
"""Pixels of the smallest words that the inspector shows."""


def test_in_front_of_a_class_the_inspector_is_as_large_as_the_rest(page: Page, samples_address: str) -> None:
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(f"{samples_address}/learn?lesson=4&teach=1", wait_until="commit")
    expect(page.locator(".inspector .facts")).to_be_visible()
    assert page.evaluate(SMALLEST) >= 18
    box, facts = page.locator(".inspector").first.bounding_box(), page.locator(".inspector .flip").bounding_box()
    assert box is not None and facts is not None
    assert facts["y"] + facts["height"] <= box["y"] + box["height"], "numbers and breakpoint are seen without scrolling"
    overlap = page.locator(".inspector .facts").evaluate("list => list.scrollWidth > list.clientWidth")
    assert not overlap


def test_every_move_of_the_lessons_dial_holds(page: Page, samples_address: str) -> None:
    page.goto(f"{samples_address}/learn?lesson=4", wait_until="commit")
    box = page.locator(".explorer input[type=number]")
    for value in ("0.5", "0.9", "0.7", "0.6"):
        box.fill(value)
        box.press("Enter")
        if value != "0.9":  # the run's own, which links leave out
            page.wait_for_url(f"**dial={value}*")
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
        expect(page.locator(".explorer [role=slider]")).to_have_attribute("aria-valuenow", value)
