"""The text of the explorer in a real browser: however the dial came to stand where it does, it shows the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from mars_viz.run import Run
from mars_viz.run_with_map import mapped
from tests.factories import toy_map, toy_run, toy_tree
from tests.served import served
from tests.test_controllers import toy_controller_map

PAGE = """
import streamlit as st

from mars_viz.components.explorer.element import explorer
from mars_viz.runfiles import load_run

st.set_page_config(layout="wide")
name, dial = st.query_params["run"], st.query_params.get("dial")
run = st.cache_resource(load_run)({folder!r} + "/" + name)
explorer(run, dial=None if dial is None else float(dial), overlay=st.query_params.get("overlay", "outcome"),
         selected=None, key=name, cuts=name.startswith("cut"))
"""
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
  return [...stream.querySelectorAll(".chunk.built")].flatMap((chunk) => [...chunk.childNodes].map(drawn));
}"""
"""What is built of the text, a line for each round: elements, classes and words, and of what is near the labels; not
what is selected, which stays where it was."""
TWICE = """() => {
  const roots = [document, ...[...document.querySelectorAll("*")].map((at) => at.shadowRoot).filter(Boolean)];
  const ids = roots.flatMap((root) => [...root.querySelectorAll(".stream [id]")].map(({ id }) => id));
  return ids.filter((id, i) => ids.indexOf(id) !== i);
}"""
"""Names of tokens that two of them have."""


def runs() -> Iterator[tuple[str, Run]]:
    """Chains with a map of θ, trees with one, chains with maps of controllers' thresholds; all have several texts."""
    sampled = toy_run(rule="mars-sampling", temperature=0.9, dial=0.9, gamma=4, max_new_tokens=60)
    made, _ = toy_map(sampled.settings, low=0.5)
    yield "chain", mapped(sampled, replace(made, frame=sampled.without_rounds))
    yield "tree", toy_tree()
    for name, settings in (
        ("confidence", {"rule": "mars-sampling", "temperature": 0.9, "max_new_tokens": 60}),
        ("svip", {"rule": "mars", "max_new_tokens": 500}),  # several chunks
    ):
        run = toy_run(gamma=5, **settings)
        yield f"cut-{name}", mapped(run, replace(toy_controller_map(run.settings, name), frame=run.without_rounds))


@pytest.fixture(scope="module")
def kept() -> dict[str, Run]:
    return dict(runs())


@pytest.fixture(scope="module")
def address(kept: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    for name, run in kept.items():
        run.save(folder / name)
    script = Path(tmp_path_factory.mktemp("page")) / "page.py"
    script.write_text(PAGE.format(folder=str(folder)), encoding="utf-8")
    with served(script) as found:
        yield found


def drawn(page: Page) -> list[str]:
    """The text once it stands still: labels follow when the hand rests."""
    before: list[str] = []
    while (now := page.evaluate(DRAWN)) != before:
        before = now
        page.wait_for_timeout(400)
    return now


def opened(page: Page, address: str, link: str) -> Page:
    page.goto(f"{address}/?{link}")
    page.wait_for_selector(".explorer .t")
    return page


def turn(page: Page, dial: float) -> None:
    """Turn the dial as the hand does, from where it stands."""
    lane, thumb = page.locator(".lane").bounding_box(), page.locator(".thumb").bounding_box()
    low, high = page.locator(".thumb").evaluate("at => [+at.ariaValueMin, +at.ariaValueMax]")
    assert lane is not None and thumb is not None
    y = lane["y"] + lane["height"] / 2
    page.mouse.move(thumb["x"] + thumb["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(lane["x"] + lane["width"] * (dial - low) / (high - low), y, steps=5)
    page.mouse.up()


def places(run: Run, name: str) -> list[float]:
    """Dial values in about six segments, forwards and backwards."""
    made: Any = run.controller_map if name.startswith("cut") else run.dial_map
    middles = [(each.low + each.high) / 2 for each in made.segments]
    some = middles[:: max(1, len(middles) // 6)]
    return [*some, *some[::-1]]


@pytest.mark.parametrize("name", ["chain", "tree", "cut-confidence", "cut-svip"])
def test_a_text_is_drawn_the_same_however_the_dial_came_there(
    tab: Page, address: str, kept: dict[str, Run], name: str
) -> None:
    link = f"run={name}&overlay=p"  # shades besides the outcomes, some of which hang on what was emitted
    opened(tab, address, link)
    stood: list[tuple[float, list[str]]] = []
    for place, dial in enumerate(places(kept[name], name)):
        turn(tab, dial)
        if place % 2:  # past every other one the hand goes on without a rest
            stood.append((tab.locator(".thumb").evaluate("at => +at.ariaValueNow"), drawn(tab)))
            assert not tab.evaluate(TWICE)
    assert len({str(found) for _, found in stood}) > 1, "the dial changes what is shown"
    for dial, found in stood:
        fresh = drawn(opened(tab, address, f"{link}&dial={dial!r}"))
        for one, other in zip(found, fresh, strict=True):
            assert one == other, f"at {dial}"


def test_an_unfolded_tree_stays_right_behind_its_round(tab: Page, address: str, kept: dict[str, Run]) -> None:
    opened(tab, address, "run=tree")
    tab.locator(".fold").first.click()
    behind = []
    for dial in places(kept["tree"], "tree"):
        turn(tab, dial)
        drawn(tab)
        behind += tab.locator(".tree").evaluate_all("all => all.map((at) => at.previousSibling.dataset.round)")
        said = tab.locator(".tree-words").all_text_contents()
        assert [words.split(":")[0].lower() for words in said] == behind[-1:]
    assert len(behind) > 6, "it is carried along"
