"""Explore in a real browser: dial, keyboard, γ, search, trees, pins, Share, and a long text in a report on disk."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from mars_viz import load_run
from mars_viz.analysis.metrics import Basis, summary
from mars_viz.exploration import shown
from mars_viz.report import report_html
from mars_viz.run import Run
from mars_viz.samples import RUNS
from mars_viz.ui.lessons import LESSONS
from tests.controls import READY
from tests.factories import long_run, toy_chat, toy_run, toy_tree
from tests.served import App
from tests.test_explorer_controller import cut_run

STORY, STRICT = "1-story-mars", "2-story-strict"
WRITTEN = ".stream :is(.matched, .relaxed, .corrected, .bonus):visible"


@pytest.fixture(scope="module")
def story() -> Run:
    return load_run(RUNS / STORY)


@pytest.fixture(scope="module")
def runs(app: App) -> dict[str, Run]:
    """Toy runs that the server has besides its samples."""
    found = {
        "sampled": toy_run(rule="mars-sampling", temperature=0.8, dial=0.9, seed=3),
        "greedy": toy_run(rule="mars", dial=0.9, max_new_tokens=400),
        "tree": toy_tree(),
        "controlled": cut_run("svip", rule="mars"),
    }
    for name, run in found.items():
        app.save(f"explore-{name}", run)
    return found


def opened(page: Page, app: App, link: str) -> Page:
    page.goto(f"{app.address}/explore?run={link}")
    page.wait_for_selector(".explorer .t")
    page.wait_for_function(READY)
    return page


def link_has(page: Page, **wanted: str | None) -> None:
    """Wait until the link has these values; None means that the name is absent."""
    page.wait_for_function(
        """(wanted) => {
          const link = new URLSearchParams(location.search);
          return Object.entries(wanted).every(([name, value]) => link.get(name) === value);
        }""",
        arg=wanted,
    )


def linked(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def number(page: Page, name: str) -> float:
    text = page.locator(f"[data-number={name}]").inner_text()
    return float(re.sub(r"[\u202f%]", "", text).replace("−", "-"))


def passes(page: Page) -> tuple[int, int]:
    """Target passes and tokens in the sentence."""
    text = page.locator(".sentence").inner_text().replace("\u202f", "")
    found = re.search(r": (\d+) target pass(?:es)? for (\d+) tokens?", text)
    assert found is not None
    return int(found[1]), int(found[2])


def drag(page: Page, value: float, *, release: bool = True) -> None:
    """Drag the dial from its present value."""
    lane, thumb = page.locator(".lane").bounding_box(), page.locator(".thumb").bounding_box()
    low, high = page.locator(".thumb").evaluate("at => [+at.ariaValueMin, +at.ariaValueMax]")
    assert lane is not None and thumb is not None
    y = lane["y"] + lane["height"] / 2
    page.mouse.move(thumb["x"] + thumb["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(lane["x"] + lane["width"] * (value - low) / (high - low), y, steps=4)
    if release:
        page.mouse.up()


def dial(page: Page) -> float:
    return float(page.locator(".thumb").get_attribute("aria-valuenow") or "nan")


def turn(page: Page, value: float, explorer: int = 0) -> None:
    box = page.locator(".explorer").nth(explorer).locator(".box input")
    box.fill(f"{value:g}")
    box.press("Enter")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def texts(tokens: Locator) -> list[str]:
    found: list[str] = tokens.evaluate_all("all => all.map(token => token.textContent)")
    return found


def compare(page: Page, run: Run) -> None:
    """The numbers shown are Python's at the dial value shown."""
    expected = summary(run, dial(page))
    assert passes(page) == (expected.rounds, expected.tokens)
    assert number(page, "rolled_back") == expected.rolled_back
    assert number(page, "saved_autoregressive") == expected.passes_saved_autoregressive
    assert number(page, "tau") == pytest.approx(expected.tau, rel=5e-3)
    assert number(page, "acceptance") == pytest.approx(100 * expected.acceptance_rate, rel=5e-3)
    assert number(page, "saved_strict") == pytest.approx(expected.passes_saved_strict, abs=0.05)
    assert page.locator(".group .tag").first.inner_text() == expected.basis.value
    exact = {expected.basis, expected.strict_basis} == {Basis.EXACT}
    assert page.locator(".group .tag").nth(1).inner_text() == ("exact" if exact else "block-local")


def shows(page: Page, run: Run, value: float, gamma: int) -> None:
    """The page shows this setting: its text, its numbers, its link, and the dial."""
    expected = summary(*shown(run, value, gamma))
    words = rf": {expected.rounds} target passes for {expected.tokens} tokens.* {expected.rolled_back} drafted"
    expect(page.locator(".sentence")).to_contain_text(re.compile(words))
    expect(page.get_by_role("radio", name=str(gamma), exact=True)).to_have_attribute("aria-checked", "true")
    assert "".join(texts(page.locator(WRITTEN))) == "".join(written(run, value, gamma))
    own = run.settings
    dial = None if value == own.dial else f"{value:g}"
    link_has(page, dial=dial, gamma=None if gamma == own.gamma else str(gamma))


def written(run: Run, value: float, gamma: int | None = None) -> list[str]:
    assert run.dial_map is not None
    return [run.pieces[token].text for token in run.dial_map.at(value, gamma).token_ids]


# ---- the dial and the text


def test_numbers_follow_the_hand_and_the_link_follows_when_it_rests(page: Page, app: App, runs: dict[str, Run]) -> None:
    opened(page, app, "explore-sampled")
    run, seen = runs["sampled"], set()
    for slot, value in ((0, 0.8), (len(run.rounds[0].speculation), 0.985), (0, 0.5)):
        page.locator(f"#slot-{slot}").click()
        link_has(page, selected=str(slot))
        before = page.url
        drag(page, value, release=False)
        assert dial(page) == pytest.approx(value, abs=0.006)
        compare(page, run)
        seen.add(passes(page)[1])
        assert page.url == before, "the link waits for the hand to rest"
        page.mouse.up()
        link_has(page, dial=f"{dial(page):g}")
    assert len(seen) > 1
    page.locator(".recorded").click()
    link_has(page, dial=None)
    assert dial(page) == 0.9 and page.locator(".divider, .r.faded").count() == 0
    turn(page, next(d / 200 for d in range(200, 0, -1) if summary(run, d / 200).first_difference is not None))
    expect(page.locator(".divider")).to_contain_text("block-local")
    assert page.locator(".divider ~ .r").count() == page.locator(".divider ~ .r.faded").count() > 0


def test_the_dial_by_keyboard_box_and_double_click_and_tokens_by_key_and_click(
    page: Page, app: App, runs: dict[str, Run]
) -> None:
    opened(page, app, "explore-greedy")
    heard, box = page.locator(".explorer .heard"), page.locator(".box input")
    page.locator(".thumb").focus()
    for key, value in (("ArrowLeft", 0.895), ("Shift+ArrowLeft", 0.845), ("ArrowUp", 0.85), ("Home", 0), ("End", 1)):
        page.keyboard.press(key)
        assert dial(page) == pytest.approx(value)
    link_has(page, dial="1")
    expect(heard).to_contain_text("At θ = 1")
    page.locator(".track").dblclick(position={"x": 200, "y": 14})
    link_has(page, dial=None)
    drag(page, 0.4, release=False)
    assert "θ = 0.40" in page.locator(".sentence").inner_text() and "0.40" not in heard.inner_text()
    page.mouse.up()
    expect(heard).to_contain_text("block-local")
    turn(page, 0.8765)
    link_has(page, dial="0.8765")
    turn(page, 7)
    expect(page.get_by_role("alert")).to_contain_text("0.00 to 1.00")
    assert dial(page) == 0.8765 and box.get_attribute("aria-invalid") is not None
    page.locator(".thumb").focus()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(box).to_have_value("0.8765")
    page.locator(".recorded").click()

    where, stream = page.locator(".inspector .where"), page.locator(".stream")
    stream.focus()
    page.keyboard.press("Home")
    expect(where).to_contain_text("round 1")
    page.keyboard.press("ArrowRight")
    label = page.locator(".t.selected").get_attribute("aria-label") or ""
    assert re.fullmatch(r"(token \d+|draft), “.*”, [a-z]+, ratio [\d.]+", label)
    page.keyboard.press("ArrowDown")
    expect(where).to_contain_text("round 2")
    page.keyboard.press("Home")
    active = stream.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    stream.locator(".t").nth(2).click()
    link_has(page, selected="2")
    stream.evaluate("s => { s.scrollTop = 300; s.querySelector('.chunk').dataset.mine = 'yes'; }")
    page.get_by_role("radio", name="Ratio").click()
    link_has(page, overlay="ratio")
    assert re.search(r" c\d+\b", stream.locator(".t").nth(2).get_attribute("class") or "")
    page.keyboard.press("ArrowRight")
    link_has(page, overlay="margin")
    page.wait_for_function(READY)
    assert stream.evaluate("s => [s.scrollTop, s.querySelector('.chunk').dataset.mine]") == [300, "yes"]


COPIED = """(stream) => {
  const range = document.createRange();
  range.selectNodeContents(stream.querySelector(".chunk"));
  const selection = stream.getRootNode().getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
  return selection.toString();
}"""


def test_the_text_copies_clean_and_control_tokens_unfold(page: Page, tmp_path: Path) -> None:
    run, stream, report = toy_chat(), page.locator(".stream"), tmp_path / "report.html"
    report.write_text(report_html(run, most_steps=1), "utf-8")
    page.goto(report.as_uri())
    whole = run.decode(run.prompt_ids)
    assert stream.evaluate(COPIED) == run.prompt + run.text != whole + run.text, "without marks and rolled-back drafts"
    expect(page.locator(".prompt")).to_have_text(run.prompt, use_inner_text=True)
    expect(page.locator(".ending")).to_contain_text(f"<|im_end|> (id {run.token_ids[-1]})")
    page.locator(".prompt .unfold").click()
    expect(page.locator(".prompt .special:visible")).to_have_text(["<|im_start|>", "<|im_end|>"])
    page.locator(".thumb").press("ArrowLeft")
    assert stream.evaluate(COPIED) == whole + run.text, "the prompt stays unfolded"
    stream.press("p")
    assert stream.evaluate(COPIED) == run.prompt + run.text


# ---- draft length, links, Share


def test_gamma_by_click_key_and_link_what_is_shared_and_decode_at_the_setting_shown(
    page: Page, app: App, story: Run
) -> None:
    opened(page, app, STORY)
    assert story.dial_map is not None
    shows(page, story, 0.9, 6)
    page.get_by_role("radio", name="4", exact=True).click()
    shows(page, story, 0.9, 4)
    assert linked(page) == {"run": STORY, "gamma": "4"}
    speed = page.locator("[data-number=speed]").inner_text()
    turn(page, 0.9853)
    shows(page, story, 0.9853, 4)
    assert page.locator("[data-number=speed]").inner_text() == speed, "measured once, at the recorded setting"
    press(page, "Share")
    with page.expect_download() as download:
        press(page, "Table of tokens, CSV")
    assert download.value.suggested_filename == "a-story-mars-greedy-at-0-9853-gamma-4.csv"
    rows = list(csv.DictReader(Path(download.value.path()).read_text("utf-8").splitlines()))
    assert {(row["dial"], row["gamma"], row["basis"]) for row in rows} == {("0.9853", "4", "exact")}
    drafted = sum(len(round_.speculation) for round_ in story.dial_map.at(0.9853, 4).rounds)
    assert sum(row["node"] != "" for row in rows) == drafted
    page.keyboard.press("Escape")
    page.get_by_role("radio", name="4", exact=True).press("ArrowRight")
    shows(page, story, 0.9853, 5)
    turn(page, 0.75)
    shows(page, story, 0.75, 5)
    expect(page.locator(".decode")).to_have_text("Decode at θ = 0.75, γ = 5")
    length = page.get_by_role("radio", name="3", exact=True).element_handle()
    page.locator(".decode").evaluate("(button, length) => { length.click(); button.click(); }", length)
    page.wait_for_url("**/explore?run=live-*")
    expect(page.locator(".box input")).to_have_value("0.75")
    expect(page.get_by_role("radio", name="3", exact=True)).to_have_attribute("aria-checked", "true")
    link_has(page, gamma=None, dial=None)  # they are the new run's own settings


def test_from_the_gallery_to_explore_and_back_and_to_the_samples_of_lessons(page: Page, app: App) -> None:
    page.goto(app.address)
    page.get_by_role("button", name="Open this run in Explore").click()
    page.wait_for_url("**/explore?run=0-1-plants-mars*")
    page.wait_for_selector(".explorer .t")
    for key in ("Home", "ArrowUp"):
        before = page.url
        page.locator(".explorer [role=slider]").first.press(key)
        page.wait_for_url(lambda address, before=before: address != before)
    left = linked(page)
    page.go_back()
    expect(page.get_by_role("button", name="Open this run in Explore")).to_be_visible()
    page.go_forward()
    page.wait_for_selector(".explorer .t")
    assert urlsplit(page.url).path == "/explore" and linked(page) == left
    page.get_by_role("link", name="Learn").click()
    page.get_by_role("radio", name=f"4 · {LESSONS[3].name}").click()
    link_has(page, run=LESSONS[3].sample, lesson="4")
    expect(page.get_by_role("heading", name=f"4 · {LESSONS[3].title}")).to_be_visible()
    expect(page.locator(".mv-note")).to_have_count(0)


# ---- trees, and the text however the dial came there


def test_a_tree_unfolds_is_walked_by_keys_and_follows_the_dial(page: Page, app: App, runs: dict[str, Run]) -> None:
    opened(page, app, "explore-tree")
    tree, stream, unfolded = runs["tree"], page.locator(".stream"), page.locator(".tree")
    where, kept = page.locator(".inspector .where"), unfolded.locator(".twig.on > .node .word")
    shows(page, tree, 0.9, 10)
    expect(unfolded).to_have_count(0)
    stream.press("Home")
    page.locator(".fold").first.click()
    expect(unfolded).to_contain_text("Round 1: a tree of 10 drafted tokens, 3 deep; 3 kept")
    assert unfolded.get_by_role("option").count() == 11  # the nodes and the emission
    assert kept.all_text_contents() == written(tree, 0.9, 10)[:4]
    expect(where).to_contain_text("token 1 · round 1 · depth 1 · node 1 of 10 · sibling 1 of 3")
    for key, place in (
        ("ArrowRight", "depth 2 · node 2 of 10 · sibling 1 of 3"),
        ("ArrowDown", "round 1 · depth 2 · node 4 of 10 · sibling 2 of 3"),
        ("ArrowLeft", "depth 1 · node 1 of 10"),
    ):
        page.keyboard.press(key)
        expect(where).to_contain_text(place)
    unfolded.get_by_role("option").nth(9).click()
    expect(where).to_contain_text("depth 1 · node 9 of 10")
    turn(page, 0.96)
    expect(unfolded).to_contain_text("2 kept")
    assert kept.all_text_contents() == written(tree, 0.96, 10)[:3]
    expect(where).to_contain_text("depth 1 · node 9 of 10")
    page.get_by_role("radio", name="5", exact=True).click()
    shows(page, tree, 0.96, 5)


DRAWN = """() => {
  const roots = [document, ...[...document.querySelectorAll("*")].map((at) => at.shadowRoot).filter(Boolean)];
  const stream = roots.map((root) => root.querySelector(".explorer .stream")).find(Boolean);
  const near = (at) => at.closest(".chunk").chunk.near;
  const kept = (at, { name, value }) => value !== "" && !["style", "class", "aria-selected"].includes(name)
    && (near(at) || !name.startsWith("aria-"));
  const attributes = (at) => [...at.attributes].filter((each) => kept(at, each))
    .map(({ name, value }) => `${name}=${value}`).sort().join(" ");
  const classes = (at) => [...at.classList].filter((name) => name !== "selected").sort().join(".");
  const drawn = (at) => at.nodeType === 3 ? at.data
    : `<${at.tagName} ${classes(at)} ${attributes(at)}>${[...at.childNodes].map(drawn).join("")}</>`;
  const ids = [...stream.querySelectorAll("[id]")].map(({ id }) => id);
  if (new Set(ids).size < ids.length) throw new Error("two tokens have one id");
  return [...stream.querySelectorAll(".chunk.built")].flatMap((chunk) => [...chunk.childNodes].map(drawn));
}"""
"""The rounds that are built, with their elements, classes, words and, near the view, labels; without the selection."""


def drawn(page: Page) -> list[str]:
    """Return the text once it no longer changes: labels follow when the hand rests."""
    before: list[str] = []
    while (now := page.evaluate(DRAWN)) != before:
        before = now
        page.wait_for_timeout(400)
    return before


@pytest.mark.parametrize("name", ["tree", "controlled"])
def test_a_text_is_drawn_the_same_however_the_dial_came_there(
    page: Page, app: App, runs: dict[str, Run], name: str
) -> None:
    link = f"explore-{name}&overlay=p"
    run: Any = runs[name]
    middles = [(each.low + each.high) / 2 for each in run.map.segments]
    some = middles[:: max(1, len(middles) // 2)]
    opened(page, app, link)
    seen: list[tuple[float, list[str]]] = []
    for place, value in enumerate([*some, *some[::-1]]):
        drag(page, value)
        if place % 2:
            seen.append((page.locator(".thumb").evaluate("at => +at.ariaValueNow"), drawn(page)))
    assert len({str(found) for _, found in seen}) > 1
    for value, found in seen:
        fresh = drawn(opened(page, app, f"{link}&dial={value!r}"))
        for one, other in zip(found, fresh, strict=True):
            assert one == other, f"at {value}"


# ---- search


def test_search_steps_through_matches_and_follows_the_dial(page: Page, app: App, story: Run) -> None:
    opened(page, app, STORY)
    text, count, field = "".join(written(story, 0.9)), page.locator(".found-count"), page.locator(".search input")
    page.locator(".explorer .box input").press("/")
    expect(page.locator(".search")).to_be_hidden()  # in a field it is a letter
    page.locator(".stream").press("/")
    expect(field).to_be_focused()
    field.fill("She")
    press(page, "Match case")
    expect(count).to_have_text(f"1 of {text.count('She')}")
    press(page, "Match case")
    field.fill("ball")
    often = text.lower().count("ball")
    field.press("Enter")
    expect(count).to_have_text(f"2 of {often}")
    second = page.locator(".t.here").get_attribute("id") or ""
    link_has(page, selected=second.removeprefix("slot-"))
    page.keyboard.press("Shift+Enter")
    press(page, "Previous match")
    expect(count).to_have_text(f"{often} of {often}")
    field.fill("play")
    turn(page, 0.6)
    often = "".join(written(story, 0.6)).lower().count("play")
    expect(count).to_have_text(re.compile(rf"\d+ of {often}"))
    assert "".join(texts(page.locator(".stream .t.found:not([hidden])"))).lower().count("play") == often
    field.press("Escape")
    expect(page.locator(".stream")).to_be_focused()
    assert texts(page.locator(".stream .t.found")) == []


# ---- pins


COMPARED = ("ratio", "margin", "entropy", "p(x)")
OURS, THEIRS = ".side:not(.pin-side)", ".pin-side"


def facts(page: Page, where: str) -> dict[str, tuple[str, bool]]:
    """By name, the number in an inspector and whether it is marked."""
    found = page.locator(f"{where} .facts > div:not([hidden])").evaluate_all(
        """all => all.map((one) => [one.children[0].textContent, one.children[1].textContent,
             one.children[1].classList.contains("unlike")])"""
    )
    return {name: (value, marked) for name, value, marked in found}


def test_pinned_settings_and_tokens_are_compared_with_others(page: Page, app: App, story: Run) -> None:
    opened(page, app, STORY)
    words, unlike = page.locator(".pin-words"), page.locator(".stream .t.unlike")
    press(page, "Pin this setting")
    link_has(page, pin_dial="0.9~6")
    expect(words).to_contain_text("θ = 0.90, γ = 6")
    assert unlike.count() == 0
    pinned, then = summary(*shown(story, 0.9, 6)), written(story, 0.9, 6)
    turn(page, 0.75)
    expected, now = summary(*shown(story, 0.75, 6)), written(story, 0.75, 6)
    for change in (expected.rounds - pinned.rounds, expected.rolled_back - pinned.rolled_back):
        expect(words).to_contain_text(f"{abs(change)} {'more' if change > 0 else 'fewer'}" if change else "as many")
    first = next(i for i, (one, two) in enumerate(zip(now, then, strict=False)) if one != two)
    expect(words).to_contain_text(f"token {first + 1} (“{now[first].strip()}” instead of “{then[first].strip()}”)")
    assert unlike.first.text_content() == now[first]
    expect(page.locator(".tile.tau .was")).to_contain_text(f"{pinned.tau:.2f}")
    press(page, "Show the pinned setting")
    expect(page.locator(".explorer .box input")).to_have_value("0.90")
    press(page, "Unpin this setting")
    link_has(page, pin_dial=None)

    expect(page.locator(THEIRS)).to_be_hidden()
    turn(page, 0.9)
    page.locator(".stream .relaxed").first.click()
    chosen = facts(page, OURS)
    press(page, "Pin this token")
    page.wait_for_url("**pin_token=**")
    assert facts(page, THEIRS) == chosen == facts(page, OURS) and not any(marked for _, marked in chosen.values())
    page.locator(".stream .corrected").first.click()
    ours, theirs = facts(page, OURS), facts(page, THEIRS)
    for name, (value, marked) in ours.items():
        unlike = name in COMPARED and value != chosen[name][0]
        assert marked == unlike and (name not in COMPARED or theirs[name][1] == unlike)
    assert any(ours[name][1] for name in COMPARED)
    expect(page.locator(f"{THEIRS} .pill")).to_have_class(re.compile("relaxed unlike"))
    changes = list(filter(None, texts(page.locator(f"{OURS} .facts .change"))))
    assert changes and all(re.fullmatch(r"[+−][\d.e−\u202f]+", one) for one in changes)
    turn(page, 0.3)
    assert [value for value, _ in facts(page, THEIRS).values()] == [value for value, _ in chosen.values()]
    press(page, "Unpin the token")
    expect(page.locator(THEIRS)).to_be_hidden()
    link_has(page, pin_token=None)

    opened(page, app, f"{STORY}&pin_dial=0.8~4&pin_token=14~0.75~3&selected=12")
    fewer = summary(*shown(story, 0.8, 4)).rounds - pinned.rounds
    expect(words).to_contain_text(f"{fewer} fewer")
    expect(page.locator(".pin-note")).to_contain_text("θ = 0.75, γ = 3")
    press(page, "Show the pinned setting")
    link_has(page, gamma="4", dial="0.8")


# ---- a long text, from a report on disk


def in_view(page: Page, slot: int) -> bool:
    found: bool = page.locator(f"#slot-{slot}").evaluate("""(token) => {
      const at = token.getBoundingClientRect(), box = token.closest(".stream").getBoundingClientRect();
      return at.top >= box.top && at.bottom <= box.bottom;
    }""")
    return found


def test_of_a_long_text_only_the_part_in_view_is_built(page: Page, tmp_path: Path) -> None:
    run, report = long_run(12_000), tmp_path / "report.html"
    report.write_text(report_html(run, most_steps=1), "utf-8")
    page.goto(report.as_uri())
    page.wait_for_selector(".explorer .t")
    stream, selected = page.locator(".stream"), page.locator(".t.selected")
    ends = np.cumsum([len(round_.speculation) + 1 for round_ in run.rounds])  # a slot per node and one per emission
    everything = int(ends[-1]) - sum(round_.emission is None for round_ in run.rounds)
    first = page.locator(".stream .r").first.inner_text()
    stream.focus()
    page.keyboard.press("End")
    expect(selected).to_have_attribute("aria-posinset", str(everything))
    assert in_view(page, int(ends[-1]) - 1) and page.locator("#slot-1500").count() == 0
    assert (selected.get_attribute("aria-label") or "").startswith(f"token {len(run.token_ids)}, ")
    assert stream.evaluate("stream => stream.querySelectorAll('*').length") < 12_000, "all would be some 30,000"
    drag(page, 0.8)
    compare(page, run)
    page.locator(".recorded").click()
    last = page.locator(".stream .r").last.locator(":is(.matched, .relaxed, .corrected, .bonus):not([hidden])")
    assert texts(last) == [run.pieces[token].text for token in run.rounds[-1].token_ids]
    stream.focus()
    page.keyboard.press("Home")
    expect(selected).to_have_attribute("aria-posinset", "1")
    assert in_view(page, 0) and page.locator(".stream .r").first.inner_text() == first
    ending = "".join(run.pieces[token].text for token in run.token_ids)[-40:].strip()
    stream.press("/")
    page.locator(".search input").fill(ending)
    expect(page.locator(".found-count")).to_have_text(re.compile("^1 of"))
    page.keyboard.press("Shift+Enter")
    here = page.locator(".t.here")
    expect(here.last).to_be_visible()
    assert in_view(page, int((here.last.get_attribute("id") or "").removeprefix("slot-")))
