"""What a hand does to a control in a browser: mouse, keys and files. Knows pages, and of no control what it is for."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from playwright.sync_api import ElementHandle, Page, TimeoutError

PATIENCE = 240.0  # seconds; only a dead control waits as long


@dataclass(frozen=True, slots=True)
class Gesture:
    """How a hand uses a control."""

    words: str
    """For a failure."""
    do: Callable[[Page, ElementHandle], None]
    """Does it. Raises AssertionError where what comes of it is wrong."""


def _at(page: Page, spot: ElementHandle) -> tuple[float, float]:
    spot.scroll_into_view_if_needed()
    box = spot.bounding_box()
    assert box is not None, "it has no place on the page"
    told = spot.evaluate("e => e.type === 'range' ? [e.valueAsNumber, Number(e.min), Number(e.max)] : null")
    value, low, high = told or (0.5, 0, 1)
    share = (value - low) / ((high - low) or 1)
    return box["x"] + (8 + (box["width"] - 16) * share if told else box["width"] / 2), box["y"] + box["height"] / 2


def _clicked(page: Page, spot: ElementHandle) -> None:
    spot.click(timeout=PATIENCE * 1000)


def clicked_at(share: float) -> Gesture:
    """A click so far along its width."""

    def do(page: Page, spot: ElementHandle) -> None:
        box = spot.bounding_box()
        assert box is not None
        spot.click(position={"x": box["width"] * share, "y": box["height"] / 2})

    return Gesture(f"click at {share:.0%} of its width", do)


def ticked(*rows: int) -> Gesture:
    """Clicks on the boxes of these rows of a table, counted from 0."""

    def do(page: Page, spot: ElementHandle) -> None:
        box = spot.bounding_box()
        assert box is not None
        for row in rows:
            page.mouse.click(box["x"] + 15, box["y"] + 55 + 35 * row)
            page.wait_for_timeout(500)

    return Gesture(f"tick the rows {rows}", do)


def dragged(by: int, down: int = 0) -> Gesture:
    """The pointer takes hold of it and moves so many pixels to the right."""

    def do(page: Page, spot: ElementHandle) -> None:
        x, y = _at(page, spot)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + by / 2, y + down / 2)
        page.mouse.move(x + by, y + down)
        page.mouse.up()

    return Gesture(f"drag by {by} pixels", do)


def pressed(*keys: str) -> Gesture:
    """Keys, with the focus on it."""

    def do(page: Page, spot: ElementHandle) -> None:
        spot.evaluate("e => (e.tabIndex >= 0 || !e.querySelector('input') ? e : e.querySelector('input')).focus()")
        for key in keys:
            page.keyboard.press(key)

    return Gesture(f"press {' '.join(keys)}", do)


def pressed_in_turn(keys: tuple[str, ...], changes: tuple[tuple[str, str], ...]) -> Gesture:
    """Keys, with the focus on it, each of which changes all of this; the address is asked after the first alone, since
    it follows once the hand rests."""
    at_once = tuple(each for each in changes if each[0] != "link")

    def do(page: Page, spot: ElementHandle) -> None:
        pressed().do(page, spot)
        for place, key in enumerate(keys):
            wanted = at_once if place else changes
            before = page.evaluate("([wanted, spot]) => census.look(wanted, spot)", [wanted, spot])
            page.keyboard.press(key)
            try:
                page.wait_for_function(
                    "([wanted, before, spot]) => census.look(wanted, spot).every((now, at) => now !== before[at])",
                    arg=[wanted, before, spot],
                )
            except TimeoutError:
                raise AssertionError(f"{key} does not change all of {wanted}") from None

    return Gesture(f"press {', '.join(keys)}", do)


def typed(words: str, finish: str = "Tab") -> Gesture:
    """Other words, and a key that ends them."""

    def do(page: Page, spot: ElementHandle) -> None:
        spot.fill(words)
        page.keyboard.press(finish)

    return Gesture(f"type {words!r} and {finish}", do)


def picked(words: str = "") -> Gesture:
    """Another entry of its list: the next, or the one that these words find."""

    def do(page: Page, spot: ElementHandle) -> None:
        if spot.evaluate("e => e.tagName === 'SELECT'"):
            spot.select_option(words)
            return
        spot.click()
        page.locator("[data-testid$=Dropdown] [role=option]").first.wait_for()
        if words:
            page.keyboard.type(words)
            page.locator("[data-testid$=Dropdown] [role=option]", has_text=words).first.wait_for()
        other = page.locator("[data-testid$=Dropdown] [role=option]:not([aria-selected=true])")
        (other.filter(has_text=words) if words else other).first.click()
        page.keyboard.press("Escape")

    return Gesture(f"pick {words or 'another entry'}", do)


def uploaded(file: Callable[[], tuple[str, bytes]]) -> Gesture:
    """A file of that name and contents, chosen in the browser's window."""

    def do(page: Page, spot: ElementHandle) -> None:
        name, data = file()
        with page.expect_file_chooser() as chooser:
            spot.click()
        chooser.value.set_files([{"name": name, "mimeType": "application/octet-stream", "buffer": data}])

    return Gesture("upload a file", do)


def _read(name: str, data: bytes) -> None:
    """Raises where the file is not what its ending says, or empty."""
    ending = name.rsplit(".", 1)[-1]
    assert data, f"{name} is empty"
    if ending == "csv":
        assert len(pd.read_csv(io.BytesIO(data)).columns) > 1, f"{name} has no columns"
    elif ending == "parquet":
        assert len(pd.read_parquet(io.BytesIO(data)).columns) > 1, f"{name} has no columns"
    elif ending == "zip":
        assert zipfile.ZipFile(io.BytesIO(data)).testzip() is None, f"{name} is damaged"
    elif ending in ("json", "jsonl"):
        [json.loads(line) for line in ([data] if ending == "json" else data.splitlines())]
    elif ending in ("html", "svg"):
        assert f"<{ending}" in data[:2000].decode(), f"{name} is no {ending}"
    else:
        raise AssertionError(f"{name} is of no kind that is known here")


def saved(ending: str, has: str = "") -> Gesture:
    """A click that saves a file of that ending, which can be read and has these words in it."""

    def do(page: Page, spot: ElementHandle) -> None:
        with page.expect_download(timeout=PATIENCE * 1000) as download:
            spot.click()
        name, data = download.value.suggested_filename, Path(download.value.path()).read_bytes()
        assert name.endswith(f".{ending}"), f"it saves {name}, no .{ending}"
        _read(name, data)
        assert has in (data.decode("utf-8", "replace") if has else ""), f"{name} does not say {has}"

    return Gesture(f"save a .{ending}", do)


def _camera(page: Page, spot: ElementHandle) -> None:
    spot.hover(position={"x": 5, "y": 5})
    button = spot.evaluate_handle("e => e.closest('.js-plotly-plot').querySelector('.modebar-btn')").as_element()
    assert button is not None, "it has no camera"
    saved("svg").do(page, button)


def _opened(page: Page, spot: ElementHandle) -> None:
    spot.click()
    page.locator("[data-testid$=Dropdown] [role=option]").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("[data-testid$=Dropdown]").wait_for(state="detached")


def _pointed(page: Page, spot: ElementHandle) -> None:
    page.mouse.click(*_at(page, spot))


CLICK = Gesture("click", _clicked)
POINT = Gesture("click into", _pointed)
OPEN = Gesture("open its list", _opened)
HOVER = Gesture("point at", lambda page, spot: spot.hover())
DOUBLE = Gesture("click twice", lambda page, spot: spot.dblclick())
NOTHING = Gesture("leave alone what its list's keys reach", lambda page, spot: None)
CAMERA = Gesture("save by its camera", _camera)
