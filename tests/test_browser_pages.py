"""Gallery, Compare, Learn and Runs in a real browser: by hand, by keyboard, by finger and by link."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Page, expect

from mars_viz.components.guide import CARDS
from mars_viz.components.stepper import playback
from mars_viz.exploration import mapped
from mars_viz.runstore import RunStore
from mars_viz.ui import visitors
from tests.controls import swipe
from tests.factories import toy_map, toy_run
from tests.served import App
from tests.test_browser_explore import link_has

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


def visit(page: Page, app: App) -> Page:
    page.add_init_script(WATCH)
    page.goto(app.address)
    page.wait_for_selector(".explorer .t")
    page.wait_for_selector(".guide h2")
    return page


def watched(page: Page, seconds: float) -> list[tuple[float, float, str]]:
    """Seconds since the first, dial value and text of each frame, over at least so many seconds."""
    page.wait_for_function(f"() => frames_seen.length && frames_seen.at(-1)[0] - frames_seen[0][0] > {1000 * seconds}")
    frames = page.evaluate("frames_seen")
    return [((at - frames[0][0]) / 1000, value, text) for at, value, text in frames]


def title(page: Page, id: str) -> None:
    expect(page.locator(".guide h2")).to_have_text(next(card["title"] for card in CARDS if card["id"] == id))


def test_on_a_telephone_the_dial_plays_once_in_a_tab_and_a_finger_stops_it(browser: Browser, app: App) -> None:
    with browser.new_context(viewport={"width": 375, "height": 812}, is_mobile=True, has_touch=True) as context:
        page = visit(context.new_page(), app)
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        for part, least in ((".explorer .sentence", 40), (".explorer .track", 20), (".explorer .stream", 200)):
            box = page.locator(part).bounding_box()
            assert box is not None and box["y"] + least <= 812 and box["y"] >= 0, part
        page.wait_for_function("() => frames_seen.some(([, value]) => value === 0.8) && frames_seen.at(-1)[1] === 0.9")
        frames = watched(page, 0)
        first = {value: seconds for seconds, value, _ in reversed(frames)}
        assert min(first) == 0.8 and max(first) == 1 and first[1] < first[0.8]
        words = {value: text for _, value, text in frames}
        assert len({words[1], words[0.8], words[0.9]}) == 3
        page.reload()
        page.wait_for_selector(".guide h2")
        assert {value for _, value, _ in watched(page, 2.5)} == {0.9}
        page.evaluate("sessionStorage.clear()")
        page.reload()
        page.wait_for_function("() => frames_seen.at(-1)?.[1] < 0.99 && sessionStorage.getItem('mars-viz-played')")
        swipe(page, page.locator(".explorer .thumb"), x=-60, steps=3)
        page.evaluate("frames_seen = []")
        ((value, _),) = {(value, text) for _, value, text in watched(page, 1.5)}
        assert value < 0.75
        page.locator(".stream .t.matched").first.tap()
        title(page, "rejection")


def test_the_guide_follows_the_reader_and_leads_to_lessons(browser: Browser, app: App) -> None:
    with browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce") as context:
        page = visit(context.new_page(), app)
        complete = page.locator(".guide .complete")
        assert {value for _, value, _ in watched(page, 2.5)} == {0.9}, "without motion the dial does not play"
        page.locator(".guide").press("ArrowRight")
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
        page.reload()
        expect(complete).to_have_count(3)
        page.get_by_role("button", name="Skip the guide").click()
        expect(page.locator(".guide")).to_be_hidden()
        page.reload()
        page.get_by_role("button", name="Open the guide").click()
        lesson = page.get_by_role("link", name="Lesson")
        while not lesson.count():
            page.get_by_role("button", name="Next card").click()
        number = re.search(r"Lesson (\d)", lesson.first.inner_text())
        lesson.first.click()
        expect(page.locator(".mv-lesson h2")).to_contain_text(f"{number and number[1]} ·")


# ---- Compare


def link_names_the_selected_token(page: Page) -> None:
    selected = page.locator(".compare .t.selected").evaluate_all("all => all.map(each => each.id)")
    tokens = [name.replace("-slot-", "-") for name in selected]
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get("token", [""])[0] in tokens)


def test_two_texts_scroll_together_and_are_stepped_through(page: Page, app: App) -> None:
    run = toy_run(vocabulary=300, model_seed=2, max_new_tokens=40)
    made, _ = toy_map(run.settings, low=0.5, gammas=(2, run.settings.gamma), model_seed=2, vocabulary=300)
    app.save("compare-texts", mapped(run, replace(made, frame=run.without_rounds)))
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto(f"{app.address}/compare?run=compare-texts&reference=compare-texts~1~&shown=compare-texts")
    page.wait_for_selector(".compare .stream .t")
    names = page.locator(".pane bdi.name")
    reference, other = names.all_inner_texts()
    assert (reference, other) == ("strict", "θ = 0.90")
    assert page.locator(".text:not(.head)").count() == len(made.segments)
    page.locator(".compare").evaluate(
        "root => root.querySelectorAll('.stream').forEach((e) => { e.style = 'min-height: 0; max-height: 60px'; })"
    )
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    left, right = page.locator(".left .stream"), page.locator(".right .stream")
    place = page.locator(".left .r:not(.alone)").last.evaluate(
        "round => round.offsetTop - round.closest('.stream').offsetTop"
    )
    left.evaluate("(stream, to) => { stream.scrollTop = to; }", max(place, 40))
    page.wait_for_function("stream => stream.scrollTop > 0", arg=right.element_handle())
    right.evaluate("stream => { stream.scrollTop = 0; }")
    page.wait_for_function("stream => stream.scrollTop === 0", arg=left.element_handle())

    # keys on the page and in the list switch the other text, keys in a text move between its tokens
    for focus, there, back in ((None, "ArrowRight", "ArrowLeft"), (left, "PageDown", "PageUp")):
        if focus:
            focus.focus()
        page.keyboard.press(there)
        expect(names.nth(1)).not_to_have_text(other)
        page.wait_for_url("**shown=compare-texts~*")
        expect(page.locator(".text[aria-selected=true] .name bdi")).to_have_text(names.nth(1).inner_text())
        page.keyboard.press(back)
        expect(names.nth(1)).to_have_text(other)
    page.keyboard.press("Home")
    selected = page.locator(".left .t.selected")
    first = selected.get_attribute("id") or ""
    page.keyboard.press("ArrowRight")
    expect(selected).not_to_have_attribute("id", first)
    expect(names.nth(1)).to_have_text(other)
    link_names_the_selected_token(page)
    page.locator(".left .t:visible").nth(1).click()
    expect(page.locator(".said")).to_contain_text("strict: token")
    chosen = selected.get_attribute("id") or ""
    link_names_the_selected_token(page)
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
    page.get_by_role("radio", name="Outcome").click()
    page.wait_for_url(lambda url: "colour=outcome" in url)
    expect(page.locator(".compare .t.away").first).to_be_visible()
    page.set_viewport_size({"width": 375, "height": 800})
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


# ---- Learn


def at(page: Page, frame: int) -> None:
    expect(page.locator(".stepper")).to_have_attribute("data-frame", str(frame))


def test_the_stepper_steps_jumps_and_plays(page: Page, app: App) -> None:
    run = toy_run(rule="mars-sampling", temperature=1.0, max_new_tokens=40, dial=0.9, seed=4)
    app.save("learn-stepper", run)
    played = playback(run)
    last = len(played.frames) - 1
    rejection = next(place for place in played.places("rejection") if place > 1)
    divergence = next(place for place in played.places("divergence") if place > 0)
    stepper = page.locator(".stepper")
    page.goto(f"{app.address}/learn?run=learn-stepper", wait_until="commit")
    at(page, 0)
    for key, frame in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        at(page, frame)
    assert page.locator(".cache .length").first.inner_text() == str(played.frames[1].target_cache)
    assert page.locator(".cell.new").count() == len(run.rounds[0].speculation)
    page.keyboard.press("x")
    at(page, rejection)
    expect(page.locator(".chip.judged")).to_have_class(re.compile("rejected"))
    page.keyboard.press("ArrowRight")
    assert page.locator(".cell.lost").count() > 0
    link_has(page, frame=str(rejection + 1))
    stepper.focus()
    for key, frame in (("Home", 0), ("d", divergence), ("End", last)):
        page.keyboard.press(key)
        at(page, frame)
    assert stepper.locator(".text [role=option]").count() == played.frames[-1].written
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


def test_a_lessons_knob_follows_the_hand_and_the_link_follows_when_it_rests(page: Page, app: App) -> None:
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
    link_has(page, shift="0")
    knob.press("Shift+ArrowLeft")
    expect(heading.first).to_contain_text("With −10 added")
    link_has(page, shift="-10")
    knob.dblclick(position={"x": 20, "y": 16})
    expect(knob).to_have_value("-8")
    link_has(page, shift=None)


# ---- Runs


def settles(page: Page) -> None:
    page.wait_for_timeout(300)  # the grid sends a tick after a pause
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def test_runs_are_found_deleted_and_brought_back_by_their_browser_alone(page: Page, app: App, browser: Browser) -> None:
    store, run, names = RunStore(app.runs), toy_run(), [f"live-shelf-{day}" for day in range(5)]
    for day, name in enumerate(names):
        shutil.rmtree(app.runs / name, ignore_errors=True)
        made = replace(run.provenance, created=f"2026-01-0{day + 1}T00:00:00+00:00")
        store.finish(store.begin(name), replace(run, title=f"<b>Shelf</b> {day}", provenance=made))
    page.goto(f"{app.address}/live?view=saved")  # an old link
    expect(page).to_have_url(re.compile("/runs$"))
    find, details = page.get_by_role("searchbox"), page.get_by_role("button", name="Show details")
    expect(find).to_be_visible()
    (cookie,) = (each for each in page.context.cookies(app.address) if each["name"] == visitors.COOKIE)
    assert cookie["httpOnly"]
    for name in names:
        store.makers.note(name, visitors.mark_of(cookie["value"]))
    grid = page.get_by_test_id("data-grid-canvas")

    def kept() -> list[str]:
        return [entry.name for entry in store.list() if entry.name in names]

    def listed(count: int) -> None:
        expect(page.get_by_text(re.compile(rf"^{count} of \d+ runs"))).to_be_visible()
        settles(page)

    def tick(*rows: int) -> None:
        for row in rows:
            box = grid.bounding_box()
            assert box is not None
            page.mouse.click(box["x"] + 15, box["y"] + 55 + 35 * row)
            settles(page)

    page.reload()
    expect(find).to_be_visible()
    settles(page)
    find.press_sequentially("shelf")  # each letter searches, without Enter
    listed(5)
    tick(0)
    expect(details).to_be_enabled()
    find.fill("shelf</b> 4")
    listed(1)
    expect(details).to_be_disabled()  # a tick belongs to the list that it was made in
    find.fill("shelf")
    listed(5)
    tick(0, 1)
    spot = page.get_by_role("button", name="Delete 2").bounding_box()
    assert spot is not None
    for _ in range(2):  # the second click must not bring them back
        page.mouse.click(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_have_count(2)
    settles(page)
    assert kept() == names[2::-1]
    page.wait_for_timeout(1200)
    for left in (4, 5):
        undo.first.click()
        listed(left)
    assert len(kept()) == 5
    with browser.new_context() as stranger:
        other = stranger.new_page()
        other.goto(f"{app.address}/runs?run={names[0]}")
        expect(other.get_by_role("heading", name="<b>Shelf</b>")).to_be_visible()
        expect(other.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
        assert other.get_by_text("Bin (").count() == 0
