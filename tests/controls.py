"""Find the controls of a page in a browser, use each, and check its effect; see tests/census."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Page, TimeoutError

from tests import gestures as by
from tests.gestures import PATIENCE, Gesture

AT_FIRST = 120.0  # seconds before a control is tried once more: the first decode of a server loads torch and the models
SCRIPT = Path(__file__).with_suffix(".js")
READY = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.idle()"
STILL = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.still()"
MOST_SHOWN = 2000  # characters of the page in a message
BROKEN = "This part of the page cannot be shown"
Look = str  # A kind of LOOKS in controls.js and its argument: 'link dial' is a parameter of the address
FOCUS: Look = "focus"
ITSELF: Look = "itself"
FIELDS = ("spinbutton", "textbox", "slider", "switch", "checkbox", "combobox", "radio")
"""Roles in the order of use; others come after them in the order of the page."""
DEFAULTS = {"spinbutton": by.STEPPED, "textbox": by.WRITTEN, "slider": by.NUDGED, "combobox": by.picked()}
DEFAULTS |= {"focusable": by.HOVER}


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
    note: Callable[[str], None]  # receives what succeeded at the second try only
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
        """Return what is still to be done with a control of the page."""
        role, label = each["role"], each["label"]
        if each["off"] or (each["taken"] and role in ("radio", "option", "tab")):
            return []
        steps = [steps for steps in self.table if steps[0].fits(each)]
        listed = any(control.fits(each) for steps in self.table for control in steps)
        if not listed and not any(fits(names.get(role, "nothing"), label) for names in self.unused):
            use = by.SAVED if each["saves"] else DEFAULTS.get(role, by.CLICK)
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
            self.note(f"at the second try: {self.where}, {self.scene.kind}: {words}")
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
        elif control.use is by.HOVER:  # a control with the focus may show its tip already
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
            shown = self.page.locator("body").inner_text()[:MOST_SHOWN]
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
