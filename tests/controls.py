"""Find the controls of a page in a browser, use each, and check its effect; see tests/census."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, TimeoutError

from tests.gestures import HOVER, PATIENCE, Gesture

AT_FIRST = 120.0  # seconds before a control is tried once more: the first decode of a server loads torch and the models
SCRIPT = Path(__file__).with_suffix(".js")
READY = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.idle()"
STILL = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.still()"
MOST_SHOWN = 2000  # characters of the page in a message
BROKEN = "This part of the page cannot be shown"
Look = str  # A kind of LOOKS in controls.js and its argument: 'link dial' is a parameter of the address
FOCUS: Look = "focus"
ITSELF: Look = "itself"


@dataclass(frozen=True, slots=True)
class Control:
    """A control, how it is used, and what must have changed then."""

    role: str  # 'clickable' if only the cursor marks it
    name: str  # with that of its group or field before it; '#' is a number, '*' anything
    use: Gesture
    changes: tuple[Look, ...] = ()  # all of them
    inside: str = ""  # popovers and expanders that hold it, joined by ' / '
    any: bool = False  # one use is enough even if several controls have such a name
    only: str = ""  # the kind of scene in which it is used; empty: every kind
    but: str = "nothing"  # names that other lines of the table have, joined by ' | '
    fleeting: bool = False  # may be absent
    leaves: bool = False  # the page is opened again before the next control is used
    anywhere: bool = False  # used wherever the control before it has led

    def is_of(self, role: str, label: str) -> bool:
        """Return whether this line of the table is about that control."""
        return (
            self.role == role and fits(self.name, label) and not any(fits(but, label) for but in self.but.split(" | "))
        )

    def __str__(self) -> str:
        return f"{self.role} “{self.name}”"


def fits(name: str, label: str) -> bool:
    """Return whether a label has a name of the table, in which '*' is anything."""
    return re.fullmatch(re.escape(name).replace(r"\*", ".*"), label, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Scene:
    """A page in one state."""

    kind: str
    link: str
    shows: str  # a selector
    way: str = ""  # the link to it on every page


@dataclass(slots=True)
class Census:
    """Uses every control of a page in its scenes and keeps the problems."""

    context: BrowserContext
    address: str
    where: str
    controls: tuple[Control, ...]  # in the order of use
    everywhere: tuple[Control, ...]
    unused: tuple[Mapping[str, str], ...]  # names that are not used, by role
    note: Callable[[str], None]  # receives what succeeded at the second try only
    problems: list[str] = field(default_factory=list)
    used: set[tuple[int, str]] = field(default_factory=set)  # places in `controls`, and labels
    page: Page = field(init=False)
    scene: Scene = field(init=False)
    opened: str = ""  # the open popovers and expanders
    away: bool = False  # a control has led away from the scene
    clear: bool = False  # no popover covers the page
    usable: list[dict[str, Any]] | None = None  # the present controls; None once something has been used
    at_first: list[dict[str, Any]] = field(default_factory=list)  # the controls of a scene that was just opened

    def go(self, scenes: Iterable[Scene]) -> list[str]:
        """Use every control in every scene, and return the problems."""
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.report(f"the browser met an error: {error}"))
        for scene in scenes:
            self.scene, self.at_first = scene, []
            self.open()
            for place, control in enumerate(self.controls):
                try:
                    self.use(place, control)
                except Exception as error:
                    self.report(f"before the {control}: {_first(error)}")
                    self.open()
        self.page.close()
        found = {place for place, _ in self.used}
        for place, control in enumerate(self.controls):
            if place not in found and not control.fleeting:
                self.problems.append(f"{self.where}: there is no {control} to {control.use.words}")
        return list(dict.fromkeys(self.problems))

    def report(self, words: str) -> None:
        """Keep a problem with its page and scene."""
        self.problems.append(f"{self.where}, {self.scene.kind}: {words}")

    def open(self) -> None:
        """Open the scene's page."""
        way = self.page.get_by_role("link", name=self.scene.way, exact=True)
        if self.away and self.scene.way and way.is_visible():
            way.click()
        else:
            self.page.goto(self.address + self.scene.link)
        self.opened, self.usable, self.away, self.clear = "", None, False, True
        self.page.wait_for_selector(self.scene.shows)
        known = [(each["role"], each["label"]) for each in self.at_first]
        self.at_first += [each for each in self.present() if (each["role"], each["label"]) not in known]

    def present(self) -> list[dict[str, Any]]:
        """Return the present controls. Those that are not in the table become problems."""
        if self.usable is not None:
            return self.usable
        self.page.wait_for_function(READY)
        self.usable = found = self.page.evaluate("census.told()")
        if self.page.get_by_text(BROKEN).count():
            self.report(f"“{self.page.get_by_text(BROKEN).first.inner_text()}”")
        for each in found:
            role, label = each["role"], each["label"]
            unused = any(fits(name, label) for names in self.unused for name in names.get(role, "nothing").split(" | "))
            if not unused and not any(one.is_of(role, label) for one in (*self.controls, *self.everywhere)):
                inside = f", inside “{self.opened}”" if self.opened else ""
                self.report(f"the {role} “{label}”{inside} is not in the table")
        return found

    def use(self, place: int, control: Control) -> None:
        """Use all controls that this line of the table is about and that have not been used."""
        if control.only not in ("", self.scene.kind):
            return
        one = control.any or "*" not in control.name
        if one and any(place == done for done, _ in self.used):
            return
        if self.away and not self.worth_opening(place, control):
            return
        if self.away and not control.anywhere:
            self.open()
        if control.inside and not self.enter(control.inside):
            return
        if not control.inside:
            self.leave()
        while (label := self.next(place, control, self.at_first if self.away else self.present())) is not None:
            if control.inside and not self.enter(control.inside):
                return
            self.used.add((place, label))
            if not self.worked(control, label):
                continue
            self.away = control.leaves
            if one or (self.away and not self.worth_opening(place, control)):
                return
            if self.away:
                self.open()

    def worth_opening(self, place: int, control: Control) -> bool:
        """Return whether the scene may have an unused one once it is opened again."""
        outer = control.inside.split(" / ")[0]
        if outer:
            return any(each["role"] in ("button", "summary") and each["label"] == outer for each in self.at_first)
        return self.next(place, control, self.at_first) is not None

    def next(self, place: int, control: Control, present: list[dict[str, Any]]) -> str | None:
        """Return the label of an unused control, chosen ones last."""
        for each in sorted(present, key=lambda one: bool(one["taken"])):
            able = not each["off"] and not (each["taken"] and control.leaves)
            if able and control.is_of(each["role"], each["label"]) and (place, each["label"]) not in self.used:
                return each["label"]
        return None

    def worked(self, control: Control, label: str) -> bool:
        """Use a control, and once more on the page opened again if that fails. Two failures are a problem."""
        failures: list[str] = []
        for patience in (AT_FIRST, PATIENCE):
            try:
                self.page.set_default_timeout(patience * 1000)
                assert not (failures and control.inside) or self.enter(control.inside), f"{control.inside} is gone"
                self.try_out(control, label)
                break
            except Exception as error:
                failures.append(_first(error))
                self.page.set_default_timeout(PATIENCE * 1000)
                self.open()
        self.page.set_default_timeout(PATIENCE * 1000)
        words = f"{control}, as “{label}”: {control.use.words}: {'; then: '.join(failures)}"
        if len(failures) == 1:
            self.note(f"at the second try: {self.where}, {self.scene.kind}: {words}")
        elif failures:
            self.report(words)
        return len(failures) < 2

    def try_out(self, control: Control, label: str) -> None:
        """Use a control once. Raises AssertionError if something that must change does not."""
        self.usable, self.clear = None, False
        self.page.mouse.move(0, 0)
        self.page.wait_for_function(READY)
        pick = "([role, label]) => census.pick(role, label)"
        element = self.page.evaluate_handle(pick, [control.role, label]).as_element()
        assert element is not None, "it is gone"
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
            shown = self.page.locator("body").inner_text()[:MOST_SHOWN]
            raise AssertionError(f"does not change: {', '.join(same)}; the page: {shown!r}") from None

    def leave(self) -> None:
        """Close the open popover."""
        if self.clear:
            return
        self.opened, self.clear = "", True
        popover = self.page.locator("[data-testid=stPopoverBody]")
        if popover.count():
            self.usable = None
            self.page.keyboard.press("Escape")
            if popover.count():  # the focus is elsewhere
                self.page.locator("[data-testid=stPopoverButton][aria-expanded=true]").click(force=True)
            popover.wait_for(state="detached")

    def enter(self, inside: str) -> bool:
        """Open the popovers and expanders that hold a control; return False if one is missing."""
        if inside.split(" / ")[0] != self.opened.split(" / ")[0]:
            self.leave()
        for name in inside.split(" / "):
            pick = "name => census.pick('button', name) ?? census.pick('summary', name)"
            element = self.page.evaluate_handle(pick, name).as_element()
            if element is None:
                return False
            if element.evaluate("e => e.getAttribute('aria-expanded') === 'true' || e.parentElement.open === true"):
                continue
            self.usable, self.clear = None, False
            element.click()
            self.page.wait_for_function(READY)
        self.opened = inside
        return True


def _first(error: Exception) -> str:
    """Return the message without the browser's log."""
    return str(error).split("Call log")[0].split("=====")[0].strip()
