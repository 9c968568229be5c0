"""Gestures of a person in a browser: mouse, keys and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import ElementHandle, Page

PATIENCE = 240.0  # seconds; only a dead control takes as long
ENTRIES = "[data-testid$=Dropdown] [role=option]"


class Gesture(NamedTuple):
    """A way to use a control."""

    words: str
    do: Callable[[Page, ElementHandle], None]  # raises AssertionError if its outcome is wrong


def _box(spot: ElementHandle) -> tuple[float, float, float, float]:
    spot.scroll_into_view_if_needed()
    box = spot.bounding_box()
    assert box is not None, "it has no place on the page"
    return box["x"], box["y"], box["width"], box["height"]


def _at(spot: ElementHandle) -> tuple[float, float]:
    """Return its middle, or that of a slider's thumb."""
    x, y, width, height = _box(spot)
    thumb = spot.evaluate("e => e.type === 'range' ? (e.valueAsNumber - e.min) / (e.max - e.min || 1) : null")
    return x + (width / 2 if thumb is None else 8 + (width - 16) * thumb), y + height / 2


def clicked_at(share: float) -> Gesture:
    words = f"click at {share:.0%} of its width"
    return Gesture(words, lambda page, spot: spot.click(position={"x": _box(spot)[2] * share, "y": _box(spot)[3] / 2}))


def ticked(*rows: int) -> Gesture:
    """Click the boxes of these rows of a table, counted from 0."""

    def do(page: Page, spot: ElementHandle) -> None:
        x, y, *_ = _box(spot)
        for row in rows:
            page.mouse.click(x + 15, y + 55 + 35 * row)
            page.wait_for_timeout(500)

    return Gesture(f"tick the rows {rows}", do)


def dragged(by: int, down: int = 0) -> Gesture:
    def do(page: Page, spot: ElementHandle) -> None:
        x, y = _at(spot)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + by / 2, y + down / 2)
        page.mouse.move(x + by, y + down)
        page.mouse.up()

    return Gesture(f"drag by {by} pixels", do)


def _nudged(page: Page, spot: ElementHandle) -> None:
    low, value, high = spot.evaluate(
        "e => [e.min ?? e.ariaValueMin, e.value ?? e.ariaValueNow, e.max ?? e.ariaValueMax].map(Number)"
    )
    dragged(-250 if value > (low + high) / 2 else 250).do(page, spot)


def _stepped(page: Page, spot: ElementHandle) -> None:
    value, step, most = spot.evaluate("e => [+e.value, +e.step || 1, e.max === '' ? 1e9 : +e.max]")
    typed(f"{value + step if value + step <= most else value - step:.6g}").do(page, spot)


def pressed(*keys: str) -> Gesture:
    def do(page: Page, spot: ElementHandle) -> None:
        spot.evaluate("e => (e.tabIndex >= 0 || !e.querySelector('input') ? e : e.querySelector('input')).focus()")
        for key in keys:
            page.keyboard.press(key)

    return Gesture(f"press {' '.join(keys)}", do)


def typed(words: str, finish: str = "") -> Gesture:
    """Type words and a key, which is Enter by default or, in an area of text, Control+Enter."""

    def do(page: Page, spot: ElementHandle) -> None:
        spot.fill(words)
        page.keyboard.press(finish or spot.evaluate("e => e.tagName === 'TEXTAREA' ? 'Control+Enter' : 'Enter'"))

    return Gesture(f"type {words!r}", do)


def picked(words: str = "") -> Gesture:
    """Pick the first other entry of a list, or the first other with these words."""

    def do(page: Page, spot: ElementHandle) -> None:
        if spot.evaluate("e => e.tagName === 'SELECT'"):
            spot.select_option(words)
            return
        spot.click()
        page.locator(ENTRIES).first.wait_for()
        if words:
            page.keyboard.type(words)
            page.locator(ENTRIES, has_text=words).first.wait_for()
        other = page.locator(f"{ENTRIES}:not([aria-selected=true])")
        (other.filter(has_text=words) if words else other).first.click()
        page.keyboard.press("Escape")

    return Gesture(f"pick {words or 'another entry'}", do)


def uploaded(file: Callable[[], tuple[str, bytes]]) -> Gesture:
    def do(page: Page, spot: ElementHandle) -> None:
        name, data = file()
        with page.expect_file_chooser() as chooser:
            spot.click()
        chooser.value.set_files([{"name": name, "mimeType": "application/octet-stream", "buffer": data}])

    return Gesture("upload a file", do)


SIGNS = {"csv": b",", "parquet": b"PAR1", "zip": b"PK", "json": b"{", "html": b"<html", "svg": b"<svg", "toml": b"="}
"""By ending of a file's name: what it holds near its start."""


def saved(ending: str, has: str = "") -> Gesture:
    """Click and save a file that can be read and contains these words."""

    def do(page: Page, spot: ElementHandle) -> None:
        with page.expect_download(timeout=PATIENCE * 1000) as download:
            spot.click()
        name, data = download.value.suggested_filename, Path(download.value.path()).read_bytes()
        assert name.endswith(ending), f"it saves {name}, no .{ending}"
        assert SIGNS[name.rpartition(".")[2]] in data[:2000], f"{name} is damaged"
        assert has.encode() in data, f"{name} lacks {has}"

    return Gesture(f"save a file {ending}", do)


def _camera(page: Page, spot: ElementHandle) -> None:
    spot.hover(position={"x": 5, "y": 5})
    button = spot.evaluate_handle("e => e.closest('.js-plotly-plot').querySelector('.modebar-btn')").as_element()
    assert button is not None, "it has no camera"
    saved("svg").do(page, button)


CLICK = Gesture("click", lambda page, spot: spot.click(timeout=PATIENCE * 1000))
NUDGED = Gesture("drag to the middle", _nudged)
POINT = Gesture("click into", lambda page, spot: page.mouse.click(*_at(spot)))
HOVER = Gesture("point at", lambda page, spot: spot.hover())
DOUBLE = Gesture("click twice", lambda page, spot: spot.dblclick())
STEPPED = Gesture("type the next number", _stepped)
WRITTEN = typed("several")
SAVED = saved("")
CAMERA = Gesture("save by its camera", _camera)
