"""The Compare page in a real browser: a link, texts that scroll together, leafing by keys, and a small screen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.factories import toy_tree
from tests.served import ROOT, served
from tests.test_compare import charted

FRAMES = "async () => { for (let i = 0; i < 3; i += 1) await new Promise(requestAnimationFrame); }"
"""Let a few pass, in which the page is laid out and measured anew."""
STACKED = """() => {
  const [left, right] = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].flatMap((e) =>
    [...e.shadowRoot.querySelectorAll(".compare .pane")]).map((pane) => pane.getBoundingClientRect());
  return right && right.top >= left.bottom;
}"""
"""The texts stand one below the other."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("runs")
    charted().save(folder / "mapped")
    toy_tree().save(folder / "tree")
    before = os.environ.get("MARS_VIZ_RUNS")
    os.environ["MARS_VIZ_RUNS"] = str(folder)  # the server inherits it
    try:
        with served(ROOT / "app.py") as found:
            yield found
    finally:
        os.environ.pop("MARS_VIZ_RUNS") if before is None else os.environ.update(MARS_VIZ_RUNS=before)


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    errors: list[str] = []
    with browser.new_context(viewport={"width": 1200, "height": 900}) as context:
        found = context.new_page()
        found.on("pageerror", lambda error: errors.append(str(error)))
        found.goto(f"{address}/compare?run=mapped&reference=mapped~1~&shown=mapped")
        found.wait_for_selector(".compare .stream .t")
        yield found
    assert not errors


def test_what_differs_flows_as_text_does(page: Page) -> None:
    """A token that is laid out as a block of its own loses the blank that it begins with."""
    expect(page.locator(".compare .t.apart").first).to_be_visible()
    shown = "all => [...new Set(all.filter((e) => e.checkVisibility()).map((e) => getComputedStyle(e).display))]"
    assert page.locator(".compare .stream .t").evaluate_all(shown) == ["inline"]


def names(page: Page) -> list[str]:
    return page.locator(".pane bdi.name").all_inner_texts()


def address_holds_what_is_selected(page: Page) -> None:
    """Wait until the address names the token that is selected now, in either text."""
    selected = page.locator(".compare .t.selected").evaluate_all("all => all.map(each => each.id)")
    tokens = [name.replace("-slot-", "-") for name in selected]
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get("token", [""])[0] in tokens)


def test_a_link_opens_both_texts_which_scroll_together_and_are_leafed_through(page):
    assert names(page) == ["strict", "θ = 0.90"]
    expect(page.locator(".compare .t.parts")).to_have_count(2)
    rows = page.locator(".text:not(.head)")
    run = charted()
    assert rows.count() == len(run.dial_map.segments)

    # both begin at one height however long a name is, and the mark of the first difference covers no token
    head = page.locator(".right header .name")
    head.evaluate("name => { name.style.flexBasis = '100%'; name.style.fontSize = '40px'; }")
    tops = page.locator(".compare .stream").evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
    assert abs(tops[0] - tops[1]) < 1
    head.evaluate("name => name.removeAttribute('style')")
    margins = page.locator(".compare .t.parts").evaluate_all(
        "all => all.map(each => getComputedStyle(each).marginLeft)"
    )
    assert [float(margin.removesuffix("px")) for margin in margins] == [4, 4], "three of them are the mark"

    # a text much taller than its frame: both sides come to the same round
    page.locator(".compare").evaluate("""(root) => {
      const low = { minHeight: "50px", maxHeight: "60px" };
      for (const stream of root.querySelectorAll(".stream")) Object.assign(stream.style, low);
    }""")
    page.evaluate(FRAMES)
    left, right = page.locator(".left .stream"), page.locator(".right .stream")
    aligned = page.locator(".left .r:not(.alone)")
    assert aligned.count() > 1
    place = aligned.last.evaluate("round => round.offsetTop - round.closest('.stream').offsetTop")
    left.evaluate("(stream, to) => { stream.scrollTop = to; }", max(place, 40))
    page.wait_for_function("stream => stream.scrollTop > 0", arg=right.element_handle())
    right.evaluate("stream => { stream.scrollTop = 0; }")
    page.wait_for_function("stream => stream.scrollTop === 0", arg=left.element_handle())

    # the arrow keys leaf, the reference stays, and the address says so
    shown = page.locator(".count").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".count")).not_to_have_text(shown)
    expect(page.locator(".pane bdi.name").nth(1)).not_to_have_text("θ = 0.90")
    assert names(page)[0] == "strict"
    expect(page.locator(".compare")).not_to_have_class("explorer compare turning")
    page.wait_for_url(lambda url: "shown=mapped~" in url)
    selected = page.locator(".text[aria-selected=true] .name bdi")
    expect(selected).to_have_text(names(page)[1])
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".pane bdi.name").nth(1)).to_have_text("θ = 0.90")

    # in a text they move between its tokens, and Page Down leafs; the page says so
    expect(page.locator(".said")).to_contain_text(
        "In a text, arrow keys move between tokens and Page Up and Page Down switch texts"
    )
    left.focus()
    page.keyboard.press("Home")
    first = page.locator(".left .t.selected").get_attribute("id")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".left .t.selected")).not_to_have_attribute("id", first)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".left .t.selected")).to_have_attribute("id", first)
    expect(page.locator(".pane bdi.name").nth(1)).to_have_text("θ = 0.90")
    address_holds_what_is_selected(page)
    assert "Page Up and Page Down switch texts" in left.get_attribute("aria-label")
    page.keyboard.press("PageDown")
    expect(page.locator(".pane bdi.name").nth(1)).not_to_have_text("θ = 0.90")
    page.keyboard.press("PageUp")
    expect(page.locator(".pane bdi.name").nth(1)).to_have_text("θ = 0.90")
    page.locator(".list").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".pane bdi.name").nth(1)).not_to_have_text("θ = 0.90")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".pane bdi.name").nth(1)).to_have_text("θ = 0.90")

    # a token is told of in both texts, and the address holds it
    page.locator(".left .t:visible").nth(1).click()
    expect(page.locator(".said")).to_contain_text("strict: token")
    address_holds_what_is_selected(page)
    chosen = page.locator(".left .t.selected").get_attribute("id")
    page.reload()
    expect(page.locator(".left .t.selected")).to_have_attribute("id", chosen)

    # from there on the next difference, whose link it becomes
    page.get_by_role("button", name="Next difference").press("Enter")
    expect(page.locator(".compare .t.selected.apart").first).to_be_visible()
    at = page.locator(".compare .t.selected").first.get_attribute("id")
    page.get_by_role("button", name="Next difference").press("Enter")
    address_holds_what_is_selected(page)
    assert page.locator(".compare .t.selected").first.get_attribute("id") != at

    # pinning swaps, and focus is seen
    page.locator(".pin", has_text="Pin as reference").click()
    expect(page.locator(".pane bdi.name").first).to_have_text("θ = 0.90")
    page.locator(".list").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.locator(".list").evaluate("list => getComputedStyle(list).outlineStyle") == "solid"
    page.get_by_role("radio", name="Outcome").click()
    page.wait_for_url(lambda url: "colour=outcome" in url)
    expect(page.locator(".compare .t.away").first).to_be_visible()


def test_a_small_screen_stacks_the_texts_and_nothing_sticks_out(page):
    page.set_viewport_size({"width": 375, "height": 800})
    page.wait_for_function(STACKED)
    page.evaluate(FRAMES)
    left, right = (page.locator(f".pane.{side}").bounding_box() for side in ("left", "right"))
    assert right["y"] >= left["y"] + left["height"] and abs(left["x"] - right["x"]) < 1
    widths = page.locator(".compare").evaluate("root => [root.scrollWidth, root.clientWidth]")
    assert widths[0] <= widths[1] + 1
    named = page.locator(".text:not(.head) .number").evaluate_all(
        "all => all.map(each => ['::before', '::after'].map(name => getComputedStyle(each, name).content))"
    )
    assert {tuple(each) for each in named} == {('"τ "', "none"), ("none", '" tokens"')}, "numbers bear their names"
    table = page.locator(".mv-scroll").evaluate("box => [box.scrollWidth, box.clientWidth]")
    assert table[0] <= table[1] + 1
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]


def test_trees_unfold_in_either_text_and_the_texts_go_on_scrolling_together(page: Page, address: str) -> None:
    run = toy_tree()
    page.goto(f"{address}/compare?run=tree&reference=tree~1~&shown=tree")
    page.wait_for_selector(".compare .stream .t")
    right, trees = page.locator(".right .stream"), page.locator(".compare .tree")
    page.locator(".compare").evaluate("""(root) => {
      const low = { minHeight: "50px", maxHeight: "60px" };
      for (const stream of root.querySelectorAll(".stream")) Object.assign(stream.style, low);
    }""")
    expect(page.locator(".compare .said")).to_contain_text("t unfolds the draft tree")
    right.press("Home")
    right.press("t")
    expect(trees).to_have_count(1)
    expect(trees).to_contain_text("Round 1: a tree of 10 drafted tokens, 3 deep; 3 kept")
    options = trees.get_by_role("option")
    assert options.count() == 11 and all(options.nth(i).is_visible() for i in range(11))  # drafts that are away, too
    shares = [f"{q:.3f}" for q in run.rounds[0].speculation.q.tolist()]
    assert sorted(trees.locator(".q").all_text_contents()) == sorted(shares)
    options.nth(1).hover()
    expect(page.locator(".compare .tip")).to_contain_text("the drafter's probability of it")
    for key, told in (("ArrowDown", "draft"), ("ArrowUp", "token 1"), ("ArrowRight", "token 2")):
        page.keyboard.press(key)
        expect(page.locator(".compare .said")).to_contain_text(f"θ = 0.90: {told}")
    address_holds_what_is_selected(page)

    # while one text is scrolled along its tree, the other stays at the round above it
    right.evaluate("stream => { stream.scrollTop = 0.8 * stream.querySelector('.tree').offsetHeight; }")
    page.evaluate(FRAMES)
    scrolled = page.locator(".left .stream").evaluate(
        "({ scrollTop, scrollHeight, clientHeight }) => [scrollTop, scrollHeight - clientHeight]"
    )
    assert scrolled[0] < 60 < 100 < scrolled[1]

    page.locator(".right .leafing button").last.click()  # the reference keeps its tree, another text has none unfolded
    expect(trees).to_have_count(0)
    page.locator(".left .fold").first.click()
    expect(trees).to_have_count(1)
    drawn = page.locator(".right .name").inner_text()
    page.locator(".right .leafing button").last.click()
    expect(page.locator(".right .name")).not_to_have_text(drawn)
    expect(page.locator(".left .tree")).to_have_count(1)
    page.locator(".left .stream").press("Escape")
    expect(trees).to_have_count(0)
