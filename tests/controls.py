"""Finds the controls of a page in a browser, uses each as a person does, and sees what has changed.

Knows pages and gestures; which controls there are, and what they are for, is the test's to say.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, ElementHandle, Page, TimeoutError

from tests.gestures import HOVER, NOTHING, PATIENCE, Gesture

AT_FIRST = 120.0
"""Seconds; what has not come by then is tried once more, with patience, since the browser is another's program. The
first decode of a server loads torch and the models: 36 seconds where three others compute on two cores."""
SCRIPT = Path(__file__).with_suffix(".js")
READY = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.idle()"
STILL = "() => document.querySelector('[data-testid=stMainBlockContainer]') && census.still()"
MOST_SHOWN = 2000
"""Characters of the page in a message."""
BROKEN = "This part of the page cannot be shown"
Look = tuple[str, str]
"""What to look at: a kind of `LOOKS` in the script, and of what."""


def link(name: str = "") -> Look:
    """A parameter of the address; the whole link without a name."""
    return ("link", name)


def path() -> Look:
    """Which page is open."""
    return ("path", "")


def text(selector: str) -> Look:
    """The words in a part of the page."""
    return ("text", selector)


def answer(selector: str, words: str) -> Look:
    """The text of these elements, or a note that says these words."""
    return ("answer", f"{selector} | {words}")


def drawn(selector: str) -> Look:
    """A part of the page with its colours and sizes."""
    return ("drawn", selector)


def figures(selector: str = "body") -> Look:
    """The data, titles and ranges of the figures in a part of the page."""
    return ("figures", selector)


def state(selector: str) -> Look:
    """What is written, chosen or checked."""
    return ("state", selector)


def seen(selector: str) -> Look:
    """How many of it can be seen."""
    return ("seen", selector)


def scrolled(selector: str) -> Look:
    """How far it is scrolled."""
    return ("scroll", selector)


FOCUS: Look = ("focus", "")
"""What the keys go to."""
ITSELF: Look = ("itself", "")
"""What the control that is used says of itself: its value, or whether it is chosen."""


def _line() -> int:
    """Of the table that is being written."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame.f_lineno


@dataclass(frozen=True, slots=True)
class Control:
    """A control, how it is used, and what must have changed then."""

    role: str
    """As the browser tells it to those who cannot see; 'clickable' where only the cursor gives it away."""
    name: str
    """Its label, behind that of its group or field; '#' stands for a figure, '〈run〉' for a run's title, '*' for
    anything."""
    use: Gesture
    """What a hand does."""
    changes: tuple[Look, ...] = ()
    """All of these must be other than before, once the server has answered."""
    inside: str = ""
    """Names of the popovers and expanders that hold it, one in the other, with ' / ' between them."""
    each: bool = False
    """True if the whole census is to use it with every kind of run and not once; of several that it tells of, one is
    enough with the next kinds."""
    any: bool = False
    """True if one of those that it tells of is enough, but for the whole census."""
    again: bool = False
    """True of the same thing once more, which is used elsewhere in the list; only the whole census uses it here."""
    without: tuple[str, ...] = ()
    """Kinds of run with which it has nothing to change."""
    but: str = "nothing"
    """Labels that another one tells of."""
    fleeting: bool = False
    """True of what is there for a moment, or disabled here, and so is not missed."""
    leaves: bool = False
    """True if the page has to be opened anew before the next is used."""
    anywhere: bool = False
    """True of what every page has: it is used wherever the one before it has led."""
    line: int = field(default_factory=_line)
    """Where it stands in the test."""

    def taken(self, whole: bool) -> Control:
        """As the whole census takes it, or one that uses everything once."""
        if whole:
            return replace(self, any=False)
        return replace(self, each=False, **({"use": NOTHING, "changes": (), "leaves": False} if self.again else {}))

    def is_of(self, role: str, label: str) -> bool:
        """True of a control that this one tells of."""
        return self.role == role and _fits(self.name, label) and not _fits(self.but, label)


def _fits(name: str, label: str) -> bool:
    return re.fullmatch(re.escape(name).replace(r"\*", ".*"), label, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Scene:
    """A page in one state."""

    kind: str
    """With what kind of run."""
    link: str
    """Of the page, from the slash on."""
    shows: str
    """A selector of what must be there."""
    before: tuple[tuple[str, str], ...] = ()
    """Roles and names of what is clicked first."""
    way: str = ""
    """The link that every page has to it, of a scene that is the same after other pages."""


@dataclass(slots=True)
class Census:
    """Goes through scenes of a page and keeps what is wrong."""

    context: BrowserContext
    """Of the browser, with the script in it."""
    address: str
    """Of the server."""
    where: str
    """The page's name."""
    controls: tuple[Control, ...]
    """Those that are known, in the order in which they are used."""
    everywhere: tuple[Control, ...]
    """Those of every page, which are used where they are listed."""
    dead: dict[tuple[str, str], str]
    """Roles and names of those that are known to do nothing, which are not used, and why."""
    problems: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    """What failed once and then did what it is for."""
    used: set[tuple[int, str, str]] = field(default_factory=set)
    """The place of a control in `controls`, its label, and the kind of run where that matters."""
    page: Page = field(init=False)
    scene: Scene = field(init=False)
    opened: str = ""
    """The popovers and expanders that are open now."""
    away: bool = False
    """True once a control has led away from the scene; it is opened anew when something is left to do there."""
    clear: bool = False
    """True while no popover lies over the page."""
    usable: list[dict[str, Any]] | None = None
    """What can be used; None once something was done to the page."""
    at_first: list[dict[str, Any]] = field(default_factory=list)
    """What could be used whenever the scene had just been opened."""

    def go(self, scenes: Iterable[Scene]) -> list[str]:
        """Use every control in every scene; what is wrong."""
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.says(f"the browser met an error: {error}"))
        for scene in scenes:
            self.scene, self.at_first = scene, []
            self.open()
            for place, control in enumerate(self.controls):
                try:
                    self.use(place, control)
                except Exception as error:
                    self.says(f"on the way to the {named(control)}: {_first(error)}")
                    self.open()
        self.page.close()
        found = {place for place, _, _ in self.used}
        for place, control in enumerate(self.controls):
            if place not in found and not control.fleeting and (control.role, control.name) not in self.dead:
                self.problems.append(f"{self.where}: nowhere is there a {named(control)}, to {control.use.words}")
        return list(dict.fromkeys(self.problems))

    def says(self, words: str) -> None:
        """Keep what is wrong with where it is."""
        self.problems.append(f"{self.where}, {self.scene.kind}: {words}")

    def open(self) -> None:
        """Open the scene's page anew."""
        way = self.page.get_by_role("link", name=self.scene.way, exact=True)
        if self.away and self.scene.way and way.is_visible():
            way.click()
        else:
            self.page.goto(self.address + self.scene.link)
        self.opened, self.usable, self.away, self.clear = "", None, False, True
        self.page.wait_for_selector(self.scene.shows)
        self.page.wait_for_function(READY)
        for role, name in self.scene.before:
            self.clear = False
            self.page.get_by_role(role, name=name).first.click()  # type: ignore[arg-type]
            self.page.wait_for_function(READY)
        known = [(each["role"], each["label"]) for each in self.at_first]
        self.at_first += [each for each in self.told() if (each["role"], each["label"]) not in known]

    def told(self) -> list[dict[str, Any]]:
        """What can be used now. What is not listed is a problem."""
        if self.usable is not None:
            return self.usable
        self.page.wait_for_function(READY)  # a look too early would leave out what has not come yet
        self.usable = found = self.page.evaluate("census.told()")
        if self.page.get_by_text(BROKEN).count():
            self.says(f"“{self.page.get_by_text(BROKEN).first.inner_text()}”")
        for each in found:
            if not any(one.is_of(each["role"], each["label"]) for one in (*self.controls, *self.everywhere)):
                inside = f", inside “{self.opened}”" if self.opened else ""
                self.says(f"nobody listed the {each['role']} “{each['label']}”{inside}; say in CONTROLS what it is for")
        return found

    def use(self, place: int, control: Control) -> None:
        """Use all that the control tells of and that were not used before."""
        kind = self.scene.kind if control.each else ""
        if self.scene.kind in control.without or (control.role, control.name) in self.dead:
            return
        one = control.any or (not control.each and "*" not in control.name)
        if one and any(place == done for done, _, _ in self.used):
            return
        if self.away and not self.worth_opening(place, control, kind):
            return
        if self.away and not control.anywhere:
            self.open()
        if control.inside and not self.enter(control.inside):
            return
        if not control.inside:
            self.leave()
        while (label := self.next(place, control, kind, self.at_first if self.away else self.told())) is not None:
            if control.inside and not self.enter(control.inside):
                return
            self.used.add((place, label, kind))
            if not self.worked(control, label):
                continue
            self.away = control.leaves
            if one or (self.away and not self.worth_opening(place, control, kind)):
                return
            if self.away:
                self.open()

    def worth_opening(self, place: int, control: Control, kind: str) -> bool:
        """Whether something of it can be there, unused, once the scene is opened anew."""
        outer = control.inside.split(" / ")[0]
        if outer:
            return any(each["role"] in ("button", "summary") and each["label"] == outer for each in self.at_first)
        return self.next(place, control, kind, self.at_first) is not None

    def next(self, place: int, control: Control, kind: str, there: list[dict[str, Any]]) -> str | None:
        """The label of one that the control tells of and that was not used yet; what is chosen already comes last."""
        done = {label for at, label, _ in self.used if at == place}
        begun = control.each and any((at, of) == (place, kind) for at, _, of in self.used)
        able = [
            each["label"]
            for each in sorted(there, key=lambda one: bool(one["taken"]))
            if control.is_of(each["role"], each["label"])
            and (control.use is NOTHING or not each["off"])
            and not (each["taken"] and control.leaves)
            and (place, each["label"], kind) not in self.used
            and not (begun and each["label"] in done)
        ]
        return next(iter(able), None)

    def worked(self, control: Control, label: str) -> bool:
        """Use it, and once more on the page opened anew if that fails. False, and a problem, where it fails twice."""
        try:
            self.page.set_default_timeout(AT_FIRST * 1000)
            self.try_out(control, label)
            return True
        except Exception as error:
            failed = f"{named(control)}, as “{label}”: {control.use.words}: {_first(error)}"
        finally:
            self.page.set_default_timeout(PATIENCE * 1000)
        try:
            self.open()
            assert not control.inside or self.enter(control.inside), "what holds it is gone"
            self.try_out(control, label)
        except Exception as error:
            self.says(f"{failed}; then: {_first(error)}")
            self.open()
            return False
        self.twice.append(f"{self.where}, {self.scene.kind}: {failed}")
        return True

    def try_out(self, control: Control, label: str) -> None:
        """Use it once. Raises AssertionError where something has not changed that must."""
        if control.use is NOTHING:
            return
        self.usable, self.clear = None, False
        self.page.mouse.move(0, 0)
        self.page.wait_for_function(READY)
        spot = self.page.evaluate_handle("([role, label]) => census.pick(role, label)", [control.role, label])
        found = spot.as_element()
        assert found is not None, "it is gone"
        found.scroll_into_view_if_needed()  # a list that is open closes as its page scrolls
        self.page.wait_for_function(READY)
        if FOCUS in control.changes:
            found.focus()
        elif control.use is HOVER:  # what has the focus may explain itself already
            self.page.evaluate("census.leave()")
        spot = found if ITSELF in control.changes else None
        before, began = self.look(control, spot), self.page.evaluate("performance.now()")
        control.use.do(self.page, found)
        try:
            self.page.wait_for_function(
                "([wanted, before, spot, began]) => census.changed(wanted, before, spot, began)",
                arg=[control.changes, before, spot, began],
            )
        except TimeoutError:
            after = self.look(control, spot)
            same = [seen for seen, one, other in zip(control.changes, before, after, strict=True) if one == other]
            raise AssertionError(
                "nothing changes: "
                + ", ".join(" of ".join(filter(None, at)) for at in same)
                + f"; the page says: {self.page.locator('body').inner_text()[:MOST_SHOWN]!r}"
            ) from None

    def look(self, control: Control, spot: ElementHandle | None) -> list[str]:
        """What there is to be seen now of what it must change."""
        found: list[str] = self.page.evaluate("([wanted, spot]) => census.look(wanted, spot)", [control.changes, spot])
        return found

    def leave(self) -> None:
        """Close the popover that is open, for it would lie over the page."""
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
        """Open the popovers and expanders that hold a control; False if they are not there."""
        if inside.split(" / ")[0] != self.opened.split(" / ")[0]:
            self.leave()
        for name in filter(None, inside.split(" / ")):
            opens = self.page.evaluate_handle(
                "name => census.pick('button', name) ?? census.pick('summary', name)", name
            ).as_element()
            if opens is None:
                return False
            if opens.evaluate("e => e.getAttribute('aria-expanded') === 'true' || e.parentElement.open === true"):
                continue
            self.usable, self.clear = None, False
            opens.click()
            self.page.wait_for_function(READY)
        self.opened = inside
        return True


def _first(error: Exception) -> str:
    """What happened, without what a browser tried."""
    return str(error).split("Call log")[0].split("=====")[0].strip()


def named(control: Control) -> str:
    """Which one is meant, and where it stands in the test."""
    return f"{control.role} “{control.name}” (tests/test_controls.py, line {control.line})"
