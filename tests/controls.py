"""Find the controls of a page in a browser, use each, and check its effect; see tests/census."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ElementHandle, Locator, Page, TimeoutError

PATIENCE = 240.0  # seconds; only a dead control takes as long
ENTRIES = "[data-testid$=Dropdown] [role=option]"
AT_FIRST = 120.0  # seconds before a control is tried once more: the first decode of a server loads torch and the models
SCRIPT = Path(__file__).with_suffix(".js")
READY = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.idle()"
STILL = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.still()"
BROKEN = "This part of the page cannot be shown"
Look = str  # A kind of LOOKS in controls.js and its argument: 'link dial' is a parameter of the address
FOCUS: Look = "focus"
ITSELF: Look = "itself"


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
        if page.locator(ENTRIES).count():  # several can be picked
            page.keyboard.press("Escape")

    return Gesture(f"pick {words or 'another entry'}", do)


def uploaded(file: Callable[[], tuple[str, bytes]]) -> Gesture:
    def do(page: Page, spot: ElementHandle) -> None:
        name, data = file()
        with page.expect_file_chooser() as chooser:
            spot.click()
        chooser.value.set_files([{"name": name, "mimeType": "application/octet-stream", "buffer": data}])

    return Gesture("upload a file", do)


SIGNS = dict(csv=b",", parquet=b"PAR1", zip=b"PK", json=b"{", jsonl=b"{", html=b"<html", svg=b"<svg", toml=b"=")
"""Expected contents near the start of a file, by the ending of its name."""


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
FIELDS = ("spinbutton", "textbox", "slider", "switch", "checkbox", "combobox", "radio")
"""Roles in the order of use; others come after them in the order of the page."""
DEFAULTS = {"spinbutton": STEPPED, "textbox": WRITTEN, "slider": NUDGED, "combobox": picked()}
DEFAULTS |= {"focusable": HOVER}


@dataclass(frozen=True, slots=True)
class Control:
    """A control, how it is used, and what must have changed then."""

    role: str  # 'clickable' if only the cursor marks it
    name: str  # with that of its group or field before it; '#' is a number, '*' anything
    use: Gesture
    changes: tuple[Look, ...] = ("page",)  # all of them
    any: bool = False  # one use is enough even if several controls have such a name
    only: str = ""  # the kind of scene in which it is used; empty: every kind
    but: str = "nothing"  # names that other lines of the table have, joined by ' | '
    fleeting: bool = False  # may be absent
    leaves: bool = False  # used last, and the page is opened again

    def fits(self, each: Mapping[str, Any]) -> bool:
        """Return whether this is about that control of the page."""
        label = each["label"]
        return self.role == each["role"] and fits(self.name, label) and not fits(self.but, label)

    def __str__(self) -> str:
        return f"{self.role} “{self.name}”"


Steps = tuple[Control, ...]  # about its first control


def fits(names: str, label: str) -> bool:
    """Return whether a label has one of these names, in which '*' is anything."""
    patterns = (re.escape(name).replace(r"\*", ".*") for name in names.split(" | "))
    return any(re.fullmatch(pattern, label, re.DOTALL) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Scene:
    """A page in one state."""

    kind: str
    link: str
    shows: str  # a selector


@dataclass(slots=True)
class Census:
    """Uses every control of a page in its scenes and keeps the problems."""

    context: BrowserContext
    address: str
    where: str
    table: tuple[Steps, ...]  # controls that are not used as their role asks for
    unused: tuple[Mapping[str, str], ...]  # names by role
    problems: list[str] = field(default_factory=list)
    used: set[tuple[Steps, str]] = field(default_factory=set)  # with the label, if each label is used
    page: Page = field(init=False)
    scene: Scene = field(init=False)

    def go(self, scenes: Iterable[Scene]) -> list[str]:
        """Use every control in every scene, and return the problems."""
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.report(f"the browser met an error: {error}"))
        for scene in scenes:
            self.scene = scene
            self.open()
            self.crawl()
        self.page.close()
        done = {control for steps, _ in self.used for control in steps}
        absent = (control for steps in self.table for control in steps if not control.fleeting and control not in done)
        self.problems += [f"{self.where}: there is no {control} to {control.use.words}" for control in absent]
        return list(dict.fromkeys(self.problems))

    def report(self, words: str) -> None:
        """Keep a problem with its page and scene."""
        self.problems.append(f"{self.where}, {self.scene.kind}: {words}")

    def open(self) -> None:
        """Open the scene's page."""
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.goto(self.address + self.scene.link)
        self.page.wait_for_selector(self.scene.shows)

    def crawl(self) -> None:
        """Use every control, those first that have appeared last, and last those that lead away."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        while True:
            present = {(each["role"], each["label"]): each for each in self.present()}
            new = sorted((key for key in present if key not in found), key=lambda key: (*FIELDS, key[0]).index(key[0]))
            found = {key: present[key] for key in new} | found | present
            waiting = [(steps, key) for key, each in found.items() for steps in self.waiting(each)]
            if not waiting:
                return
            steps, key = min(waiting, key=lambda one: one[0][0].leaves)
            self.used.add((steps, "" if steps[0].any else key[1]))
            self.use(steps, found[key], key in present)

    def present(self) -> list[dict[str, Any]]:
        """Return the present controls."""
        self.page.wait_for_function(READY)
        if self.page.get_by_text(BROKEN).count():
            self.report(f"“{self.page.get_by_text(BROKEN).first.inner_text()}”")
        return self.page.evaluate("census.told()")

    def waiting(self, each: dict[str, Any]) -> list[Steps]:
        """Return the uses of a page's control that have not been made yet."""
        role, label = each["role"], each["label"]
        if each["off"] or (each["taken"] and role in ("radio", "option", "tab")):
            return []
        steps = [steps for steps in self.table if steps[0].fits(each)]
        listed = any(control.fits(each) for steps in self.table for control in steps)
        if not listed and not any(fits(names.get(role, "nothing"), label) for names in self.unused):
            use = SAVED if each["saves"] else DEFAULTS.get(role, CLICK)
            steps = [(Control(role, label, use, () if each["saves"] else ("page",)),)]
        here = (one for one in steps if one[0].only in ("", self.scene.kind))
        return [one for one in here if (one, "" if one[0].any else label) not in self.used]

    def use(self, steps: Steps, each: dict[str, Any], there: bool) -> None:
        """Take the steps, and once more on the page opened again if they fail. Two failures are a problem."""
        failures: list[str] = []
        for patience in (AT_FIRST, PATIENCE):
            try:
                if failures or not there:
                    self.open()
                self.page.set_default_timeout(patience * 1000)
                for control in steps:
                    if each["inside"] or control is steps[0]:  # a list that closes may close its popover
                        self.enter(each["inside"])
                    again = control.role == each["role"] and control.name == steps[0].name
                    self.try_out(control, each["label"] if again else self.label(control))
                break
            except Exception as error:
                failures.append(str(error).split("Call log")[0].split("=====")[0].strip())
        words = f"the {steps[0]}, as “{each['label']}”: {'; then: '.join(failures)}"
        if len(failures) == 2 and not steps[0].fleeting:
            self.report(words)
        elif failures:
            print(f"at the second try: {self.where}, {self.scene.kind}: {words}")
        asked = urlsplit(self.scene.link).path
        if len(failures) == 2 or any(one.leaves for one in steps) or urlsplit(self.page.url).path != asked:
            self.open()

    def label(self, control: Control) -> str:
        """Return the label of the first that can be used, and is not chosen if others are not."""
        able = [each for each in self.present() if control.fits(each) and not each["off"]]
        assert able, f"there is no {control}"
        return min(able, key=lambda each: bool(each["taken"]))["label"]

    def try_out(self, control: Control, label: str) -> None:
        """Use a control once. Raises AssertionError if something that must change does not."""
        self.page.mouse.move(0, 0)
        self.page.wait_for_function(READY)
        pick = "([role, label]) => census.pick(role, label)"
        element = self.page.evaluate_handle(pick, [control.role, label]).as_element()
        assert element is not None, f"the {control} is gone"
        element.scroll_into_view_if_needed()  # an open list closes when its page scrolls
        self.page.wait_for_function(READY)
        if FOCUS in control.changes:
            element.focus()
        elif control.use is HOVER:  # a control with the focus may show its tip already
            self.page.evaluate("census.leave()")
        spot = element if ITSELF in control.changes else None
        wanted = [each.partition(" ")[::2] for each in control.changes]
        look = "([wanted, spot]) => census.look(wanted, spot)"
        before, began = self.page.evaluate(look, [wanted, spot]), self.page.evaluate("performance.now()")
        control.use.do(self.page, element)
        try:
            self.page.wait_for_function(
                "([wanted, before, spot, began]) => census.changed(wanted, before, spot, began)",
                arg=[wanted, before, spot, began],
            )
        except TimeoutError:
            after = self.page.evaluate(look, [wanted, spot])
            same = [one for one, old, new in zip(control.changes, before, after, strict=True) if old == new]
            shown = self.page.locator("body").inner_text()[:2000]
            words = f"to {control.use.words} the {control} does not change: {', '.join(same)}; the page: {shown!r}"
            raise AssertionError(words) from None

    def enter(self, inside: str) -> None:
        """Open the popovers and expanders that hold a control, and close another popover."""
        opener = self.page.evaluate("census.opener()")
        if opener and opener != inside.split(" / ")[0]:
            popover = self.page.locator("[data-testid=stPopoverBody]")
            self.page.keyboard.press("Escape")
            if popover.count():  # the focus is elsewhere
                self.page.locator("[data-testid=stPopoverButton][aria-expanded=true]").click(force=True)
            popover.wait_for(state="detached")
        for name in filter(None, inside.split(" / ")):
            self.page.wait_for_function(READY)
            pick = "name => census.pick('button', name) ?? census.pick('summary', name)"
            element = self.page.evaluate_handle(pick, name).as_element()
            assert element is not None, f"there is no “{name}” to open"
            if not element.evaluate("e => e.getAttribute('aria-expanded') === 'true' || e.parentElement.open === true"):
                element.click()


def swipe(page: Page, place: Locator, x: int = 0, y: int = 0, steps: int = 16) -> None:
    """Move a finger by so many pixels from the middle of a place."""
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    left, top = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    hand = page.context.new_cdp_session(page)
    hand.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": left, "y": top}]})
    for step in range(1, steps + 1):
        page.wait_for_timeout(16 if steps > 3 else 0)  # one frame each, as fingers scroll
        points = [{"x": left + x * step / steps, "y": top + y * step / steps}]
        hand.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points})
    hand.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
