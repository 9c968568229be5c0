"""Many tabs at one server: they start decodes, cancel some, open the runs again, and move dials meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from streamlit.proto.WidgetStates_pb2 import WidgetState

from tests.clients import PATIENCE, Shown, Tab, opened

_ENDED = re.compile(r"Done: (?P<done>\d+)|You stopped the decode(?: after (?P<stopped>\d+))?")
AWAY = 1 / 3  # how often a tab loses its connection between two runs
IMPATIENCE = 30.0  # seconds after which a person chooses a page again
TRIES = 5  # before they give up
_STOPPED = 1.0  # seconds without a tick after which the whole machine must have been held up


Move = Callable[[Tab, float], Awaitable[None]]


class End(Enum):
    """How a run ended, according to its page."""

    DONE = "done"
    STOPPED = "stopped"  # cancelled, and kept
    NOTHING = "nothing"  # cancelled before its first round


class Ended(NamedTuple):
    """One run, as its tab saw it."""

    prompt: str  # unique
    end: End
    tokens: int = 0
    name: str = ""


class Moved(NamedTuple):
    """One move of a dial or slider."""

    page: str
    seconds: float  # from the message to the end of the script run that it caused
    busy: bool  # some tab was waiting for its decode all the time
    began: float  # time.monotonic()


class Crowd:
    """Some tabs, each with a number of runs to make."""

    def __init__(self, sessions: int, runs: int, *, pause: float = 0.5, seed: int = 0) -> None:
        """Share `runs` out evenly; `pause` is the mean of the seconds between two moves of a tab."""
        self.sessions, self.each = sessions, -(-runs // sessions)
        self.ended: list[Ended] = []
        self.moved: list[Moved] = []
        self.again = 0  # how often a page was chosen again that did not come or answer
        self._pause, self._luck = pause, random.Random(seed)
        self._waiting = 0
        self._idle = time.monotonic()

    async def gather(self, address: str, after_first: Callable[[], None] = lambda: None) -> None:
        """Run all tabs. `after_first` is called once each has made one run, while all wait."""
        barrier = asyncio.Barrier(self.sessions)
        async with asyncio.TaskGroup() as group:
            for number in range(self.sessions):
                group.create_task(self._person(address, number, barrier, after_first))

    def answers(self, held_up: list[tuple[float, float]], page: str = "") -> list[float]:
        """Seconds of the moves during decodes, without those during which this machine was held up."""

        def counts(move: Moved) -> bool:
            held = any(first < move.began + move.seconds and last > move.began for first, last in held_up)
            return move.busy and page in ("", move.page) and not held

        return [move.seconds for move in self.moved if counts(move)]

    async def _person(self, address: str, number: int, wait: asyncio.Barrier, after_first: Callable[[], None]) -> None:
        luck = random.Random(f"{self._luck.random()} {number}")
        async with opened(address, "live") as tab:
            for made in range(self.each):
                if made and luck.random() < AWAY:
                    await tab.reconnect()
                prompt = f"Once upon a time, there was a little fox called {number}-{made} who"
                self.ended.append(await self._run(address, tab, prompt, luck))
                if made == 0:
                    if await wait.wait() == 0:
                        after_first()
                    await wait.wait()

    async def _run(self, address: str, tab: Tab, prompt: str, luck: random.Random) -> Ended:
        await self._to(tab, "live")
        ended = await self._decode(tab, prompt, luck)
        if ended.name:
            await self._turn(tab, "explore", self._dial, luck)
            await self._to(tab, "rules")
            await self._turn(tab, "rules", self._slider, luck)
            if luck.random() < 0.5:
                async with opened(address, "explore", f"run={ended.name}") as other:  # its link in another tab
                    await other.until(lambda: _explorer(other) is not None, "the run of the link")
                    assert _run_of(other) == ended.name
        return ended

    async def _decode(self, tab: Tab, prompt: str, luck: random.Random) -> Ended:
        await tab.until(lambda: tab.can_press("Decode now"), "Decode")
        await self._turn(tab, "live", self._slider, luck)
        await tab.write("Prompt", prompt)
        self._waiting += 1
        try:
            await tab.press("Decode now")
            await tab.until(lambda: prompt in streamed(tab), "the tab's own prompt")
            if luck.random() < 1 / 3:
                await asyncio.sleep(luck.uniform(0, 2 * self._pause))
                if tab.can_press("Cancel"):
                    await tab.press("Cancel")
            await tab.until(lambda: end_of(tab) is not None, "the end of the decode")
            found = end_of(tab)
            assert found is not None
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._idle = time.monotonic()
        if not (found["done"] or found["stopped"]):
            return Ended(prompt, End.NOTHING)
        await tab.press("Explore")
        await tab.until(lambda: "run=" in tab.query and _explorer(tab) is not None, "the run in Explore")
        end = End.DONE if found["done"] else End.STOPPED
        return Ended(prompt, end, int(found["done"] or found["stopped"]), _run_of(tab))

    async def _to(self, tab: Tab, page: str) -> None:
        for _ in range(TRIES):
            before = tab.finished
            await tab.go(page)
            if await tab.comes(lambda at=before: tab.finished > at and _is_at(tab, page), IMPATIENCE):
                return
            self.again += 1
        raise AssertionError(f"{page} did not come though it was chosen {TRIES} times; it says: {tab.text[-300:]}")

    async def _turn(self, tab: Tab, page: str, move: Move, luck: random.Random) -> None:
        """Move a dial three times."""
        for _ in range(3):
            await asyncio.sleep(luck.expovariate(1 / self._pause) if self._pause else 0)
            shown = (lambda: _explorer(tab) is not None) if page == "explore" else (lambda: any(tab.elements("slider")))
            await tab.until(shown, f"a dial on {page}")
            before, began, was_busy = tab.finished, time.monotonic(), self._waiting > 0
            await move(tab, luck.uniform(0.5, 1.0))
            if not await tab.comes(lambda before=before: tab.finished > before, IMPATIENCE):
                self.again += 1  # the end of the page may be lost with a connection
                await self._to(tab, page)
                continue
            busy = was_busy and self._waiting > 0 and self._idle < began
            self.moved.append(Moved(page, time.monotonic() - began, busy, began))

    async def _slider(self, tab: Tab, share: float) -> None:
        slider = next(tab.elements("slider"))
        low, high, step = slider.proto.min, slider.proto.max, slider.proto.step or 1.0
        state = WidgetState(id=slider.proto.id)
        state.double_array_value.data.append(low + round(share * (high - low) / step) * step)
        await tab.set(slider, state)

    async def _dial(self, tab: Tab, share: float) -> None:
        """Send what the explorer sends when a hand lets go of its dial."""
        shown = _explorer(tab)
        told = json.dumps({"dial": share, "overlay": "outcome", "selected": None})
        await tab.set(shown, WidgetState(id=shown.proto.id, json_value=told))


@contextmanager
def watch() -> Iterator[list[tuple[float, float]]]:
    """Collect the beginnings and ends of times in which this process was held up."""
    found: list[tuple[float, float]] = []
    over = threading.Event()

    def tick() -> None:
        before = time.monotonic()
        while not over.wait(0.02):
            now = time.monotonic()
            if now - before > _STOPPED:
                found.append((before, now))
            before = now

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(PATIENCE)


def end_of(tab: Tab) -> re.Match[str] | None:
    sentences = (shown.proto.text for shown in tab.elements("progress"))
    return next(filter(None, map(_ENDED.search, sentences)), None)


def streamed(tab: Tab) -> str:
    """Return what the growing text of the Live page was sent."""
    found = (shown.proto for shown in tab.elements("bidi_component") if "race" in shown.proto.component_name)
    return "".join(proto.json or proto.mixed.json for proto in found)


def _explorer(tab: Tab) -> Shown | None:
    return next((each for each in tab.elements("bidi_component") if "explorer" in each.proto.component_name), None)


def _run_of(tab: Tab) -> str:
    return next(part for part in tab.query.split("&") if part.startswith("run=")).removeprefix("run=")


def _is_at(tab: Tab, page: str) -> bool:
    return tab.page == tab.pages[page] and any(tab.elements("slider"))
