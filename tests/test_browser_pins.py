"""Pins on Explore in a real browser: a token, a setting and a run stay beside what is looked at, and in the link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from mars_viz import load_run
from mars_viz.analysis.metrics import summary
from mars_viz.run import Run
from mars_viz.run_with_map import shown
from mars_viz.samples import RUNS
from tests.controls import READY
from tests.served import served
from tests.test_accessibility import COLOURS, in_words, violations

STORY, STRICT = "1-story-mars", "2-story-strict"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(Path("app.py")) as found:
        yield found


@pytest.fixture(scope="module")
def story() -> Run:
    return load_run(RUNS / STORY)


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """A script error in the browser fails the test."""
    errors: list[str] = []
    tab.on("pageerror", note := lambda error: errors.append(str(error)))
    tab.set_viewport_size({"width": 1400, "height": 900})
    yield tab
    tab.remove_listener("pageerror", note)
    assert not errors


def opened(page: Page, address: str, link: str = f"run={STORY}") -> Page:
    page.goto(f"{address}/explore?{link}")
    page.wait_for_selector(".explorer .t")
    page.wait_for_function(READY)
    return page


def turn(page: Page, value: float, explorer: int = 0) -> None:
    field = page.locator(".explorer").nth(explorer).locator(".box input")
    field.fill(f"{value:g}")
    field.press("Enter")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def in_link(page: Page, name: str, value: str | None) -> None:
    """Wait until the address says so; None for nothing of that name."""
    page.wait_for_function(
        "([name, value]) => new URLSearchParams(location.search).get(name) === value", arg=[name, value]
    )


def texts(run: Run, dial: float, gamma: int = 6) -> list[str]:
    assert run.dial_map is not None
    return [run.pieces[token].text for token in run.dial_map.at(dial, gamma).token_ids]


def changed(by: int) -> str:
    return f"{abs(by)} {'more' if by > 0 else 'fewer'}" if by else "as many"


def test_a_pinned_setting_stands_beside_every_other_one(page: Page, address: str, story: Run) -> None:
    opened(page, address)
    expect(page.locator(".pin-line")).to_be_hidden()
    expect(page.locator(".pinned-at")).to_be_hidden()
    press(page, "Pin this setting")
    in_link(page, "pin_dial", "0.9~6")
    expect(page.locator(".pin-words")).to_contain_text("Pinned: θ = 0.90, γ = 6. It is the setting shown")
    assert page.locator(".stream .t.unlike").count() == 0
    pinned = summary(*shown(story, 0.9, 6))
    for dial in (0.75, 0.95, 1.0):
        turn(page, dial)
        told = summary(*shown(story, dial, 6))
        passes, lost = told.rounds - pinned.rounds, told.rolled_back - pinned.rolled_back
        words = page.locator(".pin-words")
        expect(words).to_contain_text(f"{changed(passes)} target pass")
        expect(words).to_contain_text(f"{changed(lost)} drafted token")
        now, then = texts(story, dial), texts(story, 0.9)
        first = next(i for i, (one, two) in enumerate(zip(now, then, strict=False)) if one != two)
        expect(words).to_contain_text(
            f"first token {first + 1} (“{now[first].strip()}” instead of “{then[first].strip()}”)"
        )
        marked = page.locator(".stream .t.unlike")
        found = int(re.search(r"(\d+) of \d+ tokens", words.inner_text())[1])
        assert marked.count() == found > 0
        assert marked.first.text_content() == now[first]
    expect(page.locator(".explorer .heard")).to_contain_text("Beside the pinned θ = 0.90")
    expect(page.locator(".tile.tau .was")).to_have_text("pinned 6.40")
    expect(page.locator(".tile.rolled_back .was")).to_have_text(f"pinned {pinned.rolled_back}")
    lane = page.locator(".lane").first.bounding_box()
    line = page.locator(".pinned-at").bounding_box()
    assert line["x"] + line["width"] / 2 == pytest.approx(lane["x"] + 0.9 * lane["width"], abs=1)
    assert line["y"] + line["height"] >= page.locator(".segments").bounding_box()["y"] + 10, "on the strip as well"
    press(page, "Show the pinned setting")
    expect(page.locator(".explorer .box input")).to_have_value("0.90")
    press(page, "Unpin this setting")
    in_link(page, "pin_dial", None)
    expect(page.locator(".pin-line")).to_be_hidden()
    expect(page.locator(".tile.tau .was")).to_be_hidden()


def test_marks_follow_the_hand_in_the_same_frame(page: Page, address: str, story: Run) -> None:
    opened(page, address)
    press(page, "Pin this setting")
    page.locator(".explorer .thumb").focus()
    counts = page.evaluate(
        """() => {
          const hosts = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")];
          const root = hosts.map((host) => host.shadowRoot).find((found) => found?.querySelector(".thumb"));
          const thumb = root.querySelector(".thumb");
          return Array.from({ length: 40 }, (_, i) => {
            const key = i < 10 ? "ArrowRight" : "ArrowLeft";
            thumb.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            const said = root.querySelector(".pin-words").textContent.match(/([0-9]+) of [0-9]+ token/);
            return [root.querySelectorAll(".stream .t.unlike").length, Number(said?.[1] ?? 0)];
          });
        }"""
    )
    assert all(marked == told for marked, told in counts)
    assert len({marked for marked, _ in counts}) > 2


def test_pins_at_another_draft_length_come_by_link(page: Page, address: str, story: Run) -> None:
    opened(page, address, f"run={STORY}&pin_dial=0.8~4&pin_token=14~0.75~3&selected=12")
    told, other = summary(*shown(story, 0.9, 6)), summary(*shown(story, 0.8, 4))
    expect(page.locator(".pin-words")).to_contain_text("Beside the pinned θ = 0.80, γ = 4")
    expect(page.locator(".pin-words")).to_contain_text(f"{other.rounds - told.rounds} fewer target passes")
    expect(page.locator(".pinned-at.elsewhere")).to_be_visible()
    expect(page.locator(".pin-note")).to_have_text("Pinned at θ = 0.75, γ = 3")
    assert page.locator(".pin-side .law tbody tr:not([hidden])").count() >= 10
    press(page, "Show the pinned setting")
    in_link(page, "gamma", "4")
    in_link(page, "dial", "0.8")
    expect(page.locator(".pin-words")).to_contain_text("It is the setting shown")
    expect(page.locator(".pin-note")).to_have_text("Pinned at θ = 0.75, γ = 3")
    page.get_by_role("radio", name="6", exact=True).click()
    expect(page.locator(".pin-words")).to_contain_text("Beside the pinned θ = 0.80, γ = 4")


COMPARED = ("ratio", "margin", "entropy", "p(x)")


def facts(page: Page, where: str) -> dict[str, tuple[str, bool]]:
    """By name: the number in an inspector, and whether it is marked."""
    return {
        name: (value, marked)
        for name, value, marked in page.locator(f"{where} .facts > div:not([hidden])").evaluate_all(
            """all => all.map((one) => [one.children[0].textContent, one.children[1].textContent,
                 one.children[1].classList.contains("unlike")])"""
        )
    }


def test_a_pinned_token_stays_beside_the_selected_one(page: Page, address: str) -> None:
    opened(page, address)
    ours, theirs = ".side:not(.pin-side)", ".pin-side"
    expect(page.locator(theirs)).to_be_hidden()
    page.locator(".stream .relaxed").first.click()
    pinned = facts(page, ours)
    press(page, "Pin this token")
    page.wait_for_function("() => new URLSearchParams(location.search).get('pin_token')")
    assert {name: value for name, (value, _) in facts(page, theirs).items()} == {
        name: value for name, (value, _) in pinned.items()
    }
    assert not any(marked for where in (ours, theirs) for _, marked in facts(page, where).values()), "they are the same"
    page.locator(".stream .corrected").first.click()
    now = facts(page, ours)
    for name in COMPARED:
        unlike = now[name][0] != pinned[name][0]
        assert now[name][1] == facts(page, theirs)[name][1] == unlike
    assert any(now[name][1] for name in COMPARED)
    assert not any(now[name][1] for name in now if name not in COMPARED)
    expect(page.locator(f"{ours} .pill")).to_have_class(re.compile("corrected unlike"))
    expect(page.locator(f"{theirs} .pill")).to_have_class(re.compile("relaxed unlike"))
    best = [
        page.locator(f"{where} .law >> nth=0").locator("tbody tr .token").all_inner_texts()[:2]
        for where in (ours, theirs)
    ]
    marked = (
        page.locator(f"{ours} .law >> nth=0")
        .locator("tbody tr")
        .evaluate_all("rows => rows.slice(0, 2).map((row) => row.classList.contains('unlike'))")
    )
    assert marked == [one != two for one, two in zip(*best, strict=True)]
    change = page.locator(f"{ours} .facts .change").evaluate_all(
        "all => all.map((one) => one.textContent).filter(Boolean)"
    )
    assert change and all(re.fullmatch(r"[+−][\d.e−\u202f]+", one) for one in change)
    left, right = (page.locator(f"{where} .inspector").bounding_box() for where in (ours, theirs))
    assert right["x"] >= left["x"] + left["width"] and right["y"] == left["y"]
    turn(page, 0.3)
    assert {name: value for name, (value, _) in facts(page, theirs).items()} == {
        name: value for name, (value, _) in pinned.items()
    }, "wherever the dial stands"
    page.set_viewport_size({"width": 375, "height": 800})
    above, below = (page.locator(f"{where} .inspector").bounding_box() for where in (ours, theirs))
    assert below["y"] >= above["y"] + above["height"] and below["x"] == above["x"]
    press(page, "Unpin the token")
    expect(page.locator(theirs)).to_be_hidden()
    in_link(page, "pin_token", None)


def test_a_pin_that_does_not_fit_says_so(page: Page, address: str) -> None:
    opened(page, address, f"run={STORY}&pin_token=999999~0.9~6")
    expect(page.locator(".pin-lost")).to_contain_text("The pinned token is not in this run's text")
    expect(page.locator(".pin-side")).to_be_hidden()
    opened(page, address, f"run={STORY}&pin_dial=1.7~6&pin_run=nobody~~")
    expect(page.get_by_text("The pinned setting is none of this run's")).to_be_visible()
    expect(page.get_by_text("The pinned run is not here any more")).to_be_visible()
    expect(page.locator(".pin-line")).to_be_hidden()


def choose(page: Page, label: str) -> None:
    page.get_by_role("combobox", name="Run").click()
    page.locator("[data-testid$=Dropdown]").get_by_role("option", name=label).click()


def test_a_pinned_run_stands_beside_the_next_one_with_its_own_dials(page: Page, address: str, story: Run) -> None:
    opened(page, address)
    press(page, "Pin this setting")
    press(page, "Open or save")
    press(page, "Pin this run")
    expect(page.get_by_text("open another run, and this one stands beside it")).to_be_visible()
    in_link(page, "pin_run", f"{STORY}~~")
    page.keyboard.press("Escape")
    assert page.locator(".explorer").count() == 1
    choose(page, "The same story, strict")
    expect(page.locator(".explorer")).to_have_count(2)
    expect(page.get_by_text("What was pinned was of another run")).to_be_visible()
    in_link(page, "run", STRICT)
    boxes = [page.locator(".explorer").nth(i).bounding_box() for i in (0, 1)]
    assert boxes[1]["x"] >= boxes[0]["x"] + boxes[0]["width"]
    turn(page, 0.75, explorer=1)
    in_link(page, "pin_run", f"{STORY}~0.75~")
    in_link(page, "dial", None)
    told = summary(*shown(story, 0.75, 6))
    expect(page.locator(".sentence").nth(1)).to_contain_text(f": {told.rounds} target passes for {told.tokens} tokens")
    page.locator(".explorer").nth(0).get_by_role("radio", name="Entropy").click()
    in_link(page, "overlay", "entropy")
    expect(page.locator(".explorer").nth(1).get_by_role("radio", name="Entropy")).to_have_attribute(
        "aria-checked", "true"
    )
    expect(page.locator(".sentence").nth(1)).to_contain_text("At θ = 0.75")
    page.reload()
    expect(page.locator(".sentence").nth(1)).to_contain_text("At θ = 0.75")
    press(page, "Unpin the run")
    expect(page.locator(".explorer")).to_have_count(1)
    in_link(page, "pin_run", None)


def test_both_texts_open_on_compare(page: Page, address: str) -> None:
    opened(page, address, f"run={STRICT}&pin_run={STORY}~0.75~")
    press(page, "Compare the texts")
    page.wait_for_selector(".compare .pane.right .t")
    expect(page.locator(".compare .pane.left .name")).to_have_text("θ = 0.75")
    expect(page.locator(".compare .pane.right .name")).to_have_text("strict")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_pinned_and_found_is_legible(page: Page, address: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    opened(page, address, f"run={STORY}&dial=0.75&selected=40&pin_dial=0.9~6&pin_token=14~0.9~6")
    page.locator(".find").click()
    page.keyboard.type("play")
    expect(page.locator(".found-count")).to_have_text(re.compile("1 of"))
    page.wait_for_function(READY)
    found = violations(page, *(COLOURS if scheme == "dark" else ()))
    page.emulate_media(color_scheme="light")
    assert not found, in_words(found)
