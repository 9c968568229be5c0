"""Whether a class keeps up with its teacher: forty browsers follow a dial that is moved for a minute.

    python benchmarks/classroom.py [--browsers N] [--real N] [--seconds S] [--json FILE]

The real app as a classroom, on this machine. The teacher is a real Chromium, whose dial is dragged by its mouse, ten
seconds at a time, with a rest of eight after each. Of the students `--real` are Chromium contexts as well; the
others are stand-ins, since each page of a browser takes a processor of its own to load: they have a session of
Streamlit on Explore, opened as a browser opens it, ask the route as often as the page's script does, and tell the
server where they stand once the dial has rested, as a browser does, after which their figures are made.

For each place at which the teacher's dial stood it is measured how long it took until a student's stood there, or at a
later one; the clock is the machine's own. A real browser's time is that of the frame after its explorer has moved, a
stand-in's that of the answer. The server's processor is what its process and its children took of one processor, while
the dial moves and, before that, while all follow a dial that stands still.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import secrets
import shutil
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from measuring import json_option, write_json
from playwright.async_api import Browser, Page, async_playwright
from streamlit.proto.WidgetStates_pb2 import WidgetState

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from served import serving  # noqa: E402

from mars_viz.ui.visitors import COOKIE  # noqa: E402
from tests.clients import Tab, opened  # noqa: E402

STORY = "1-story-mars"
EVERY = 0.4  # seconds between two questions, as in components/class_view/class_view.js
RESTS, SPREAD = 1.5, 4.0  # seconds after which a rest is told, as in components/explorer/sent_by_page.js
DRAGS, PAUSES = 10.0, 8.0  # seconds; in a rest all tell where they stand, and their figures are made
IDLE = 15.0  # seconds
NOTES = """() => {
  globalThis.noted = [];
  const note = (event) => {
    const { dial, turned } = event.detail;
    if (dial === undefined || (event.type === "mars-viz-stands" && !turned)) return;
    const shown = () => noted.push([Date.now() / 1000, dial]);
    if (event.type === "mars-viz-go") requestAnimationFrame(shown);
    else shown();
  };
  for (const name of ["mars-viz-stands", "mars-viz-go"]) window.addEventListener(name, note);
}"""
"""Notes when a dial came to stand where: the teacher's as it is moved, a student's with the next frame."""


@dataclass(slots=True)
class Watched:
    """A student, and when their dial stood where."""

    real: bool
    """True for a browser, False for a stand-in."""
    stood: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the epoch, and the dial's value."""
    rests: int = 0
    """How often a stand-in told the server where it rests."""


def behind(teacher: Sequence[tuple[float, float]], student: Sequence[tuple[float, float]]) -> list[float]:
    """For each place of the teacher's, seconds until the student stood there or at a later one."""
    reached: list[tuple[int, float]] = []  # the teacher's last place so far, and when
    for when, dial in student:
        known = [i for i, (moved, value) in enumerate(teacher) if moved <= when and value == dial]
        if known and (not reached or known[-1] > reached[-1][0]):
            reached.append((known[-1], when))
    places = [place for place, _ in reached]
    found = ((moved, bisect_left(places, i)) for i, (moved, _) in enumerate(teacher))
    return [reached[at][1] - moved for moved, at in found if at < len(reached)]


def processor(server: int) -> float:
    """Seconds that a process and its children have taken."""
    total, ticks = 0.0, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if server in (int(stat.parent.name), int(fields[1])):
                total += (int(fields[11]) + int(fields[12])) / ticks
    return total


class StandIn:
    """Asks and tells what a student's page does."""

    def __init__(self, address: str, cookie: str, tab: Tab) -> None:
        self.watched = Watched(False)
        self._place, self._cookie, self._tab = urlsplit(address), cookie, tab
        self._version, self._resting, self._told = "", None, 0.0

    async def see(self) -> None:
        """Say that the text is there, as a browser does, and wait for the figures."""
        painted = next(
            each for each in self._tab.elements("bidi_component") if "first_paint" in each.proto.component_name
        )
        await self._tab.set(painted, WidgetState(id=painted.proto.id, json_value=json.dumps({"painted": True})))
        await self._tab.until(lambda: any(self._tab.elements("plotly_chart")), "the figures")

    async def follow(self) -> None:
        """Until it is cancelled."""
        reader, writer = await asyncio.open_connection(self._place.hostname, self._place.port)
        try:
            while True:
                await self._ask(reader, writer)
                await asyncio.sleep(EVERY)
        finally:
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = f"GET /classroom/shown?since={self._version} HTTP/1.1\r\nHost: {self._place.netloc}\r\n"
        writer.write(f"{asked}Cookie: {COOKIE}={self._cookie}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length and " 204 " not in head else b""
        if not body:
            return
        said = json.loads(body)
        self._version = said["version"]
        self.watched.stood.append((time.time(), said["dial"]))
        if self._resting is not None:
            self._resting.cancel()
        self._resting = asyncio.create_task(self._rest(said))

    def check(self) -> None:
        """Raise AssertionError where the server has not taken in where it rested last."""
        assert f"dial={self._told:g}" in self._tab.query, (self._told, self._tab.query)

    async def _rest(self, said: dict[str, object]) -> None:
        await asyncio.sleep(RESTS + SPREAD * random.random())
        shown = next(each for each in self._tab.elements("bidi_component") if "explorer" in each.proto.component_name)
        sent = shown.proto.json or shown.proto.mixed.json
        revision = re.search(r'"revision": ?"([^"]+)"', sent)
        position = {name: said[name] for name in ("dial", "overlay", "selected", "gamma")}
        told = {"position": {**position, "revision": revision[1] if revision else ""}}
        self.watched.rests += 1
        self._told = float(str(said["dial"]))
        await self._tab.set(shown, WidgetState(id=shown.proto.id, json_value=json.dumps(told)))


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Headless Chromium."""
    names = filter(None, (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"))
    found = next(filter(None, map(shutil.which, names)), None)
    async with async_playwright() as playwright:
        opened_one = await playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--disable-renderer-backgrounding"]
        )
        yield opened_one
        await opened_one.close()


async def in_browser(chromium: Browser, address: str) -> Page:
    """Explore in a browser of its own."""
    page = await (await chromium.new_context(viewport={"width": 1400, "height": 900})).new_page()
    page.set_default_timeout(120_000)
    await page.goto(address)
    return page


async def drag(teacher: Page, seconds: float) -> None:
    """Move the dial to and fro, with a rest now and then."""
    track = await teacher.locator(".explorer .track").bounding_box()
    assert track is not None
    middle, end = track["y"] + track["height"] / 2, time.monotonic() + seconds
    share, step = 0.9, -0.006
    while time.monotonic() < end:
        await teacher.mouse.move(track["x"] + share * track["width"], middle)
        await teacher.mouse.down()
        rest = time.monotonic() + DRAGS
        while time.monotonic() < min(rest, end):
            share += step
            step = -step if not 0.1 < share < 0.95 else step
            await teacher.mouse.move(track["x"] + share * track["width"], middle)
            await asyncio.sleep(0.05)
        await teacher.mouse.up()
        await asyncio.sleep(PAUSES)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was measured."""

    teacher: Sequence[tuple[float, float]]
    """When the dial stood where."""
    students: Sequence[Watched]
    """Who followed."""
    busy: float
    """The server's share of one processor while the dial moved."""
    idle: float
    """And while it stood still."""


async def lesson(address: str, link: str, server: int, browsers: int, real: int, seconds: float) -> Lesson:
    """Gather the class and move the dial."""
    async with AsyncExitStack() as open_ones:
        chromium = await open_ones.enter_async_context(browser())
        teacher = await in_browser(chromium, link)
        await teacher.goto(f"{address}/explore?run={STORY}")
        await teacher.get_by_role("button", name="Show to the class").click()
        await teacher.get_by_role("button", name="Stop showing").wait_for()
        pages = [await in_browser(chromium, f"{address}/explore") for _ in range(real)]
        for page in (teacher, *pages):
            await page.wait_for_selector(".explorer .t")
            await page.evaluate(NOTES)
        stand_ins = []
        for _ in range(browsers - real):
            cookie = secrets.token_urlsafe(32)
            tab = await open_ones.enter_async_context(
                opened(address, "explore", headers={"Cookie": f"{COOKIE}={cookie}"})
            )
            stand_ins.append(StandIn(address, cookie, tab))
            await stand_ins[-1].see()
        following = [asyncio.create_task(each.follow()) for each in stand_ins]
        await asyncio.sleep(RESTS + SPREAD + 5)  # what their first places lead to is over
        idle = processor(server)
        await asyncio.sleep(IDLE)
        idle = (processor(server) - idle) / IDLE
        began, took = time.monotonic(), processor(server)
        await drag(teacher, seconds)
        busy = (processor(server) - took) / (time.monotonic() - began)
        for one in stand_ins:
            one.check()
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        moved, *stood = [[tuple(each) for each in await page.evaluate("noted")] for page in (teacher, *pages)]
    students = [Watched(True, each) for each in stood] + [each.watched for each in stand_ins]
    return Lesson(moved, students, busy, idle)


def main() -> None:
    """Gather, move, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browsers", type=int, default=40, help="students in all")
    parser.add_argument("--real", type=int, default=3, help="of them in Chromium")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which the dial is moved")
    json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"MARS_VIZ_RUNS": folder, "MARS_VIZ_CLASSROOM": "1"}
        with serving(ROOT / "app.py") as server:
            link = re.search(r"http\S+\?teacher=\S+", server.said())
            assert link is not None
            how = (options.browsers, options.real, options.seconds)
            found = asyncio.run(lesson(server.address, link[0], server.process.pid, *how))
    kinds = {"Chromium": True, "stand-ins": False}
    lags = {
        name: [behind(found.teacher, s.stood) for s in found.students if s.real is kind] for name, kind in kinds.items()
    }
    print(f"{options.browsers} students, {options.real} of them in Chromium, the others stand-ins; ", end="")
    print(f"{len(found.teacher)} places of the teacher's dial in {options.seconds:g} s")
    print(f"{'seconds behind the teacher':<38} {'median':>8} {'p95':>8} {'most':>8}   places")
    figures: dict[str, object] = {}
    for name, each in {**lags, "all": [*lags["Chromium"], *lags["stand-ins"]]}.items():
        every = np.concatenate([np.array(lag) for lag in each]) if each else np.array([])
        if every.size:
            middle, high, most = np.percentile(every, [50, 95, 100])
            figures[name] = {"median_s": round(middle, 3), "p95_s": round(high, 3), "most_s": round(most, 3)}
            print(f"{name:<38} {middle:>8.2f} {high:>8.2f} {most:>8.2f}   {every.size}")
    worst = max(float(np.percentile(lag, 95)) for each in lags.values() for lag in each if lag)
    print(f"the student who was furthest behind at the 95th percentile: {worst:.2f} s")
    print(f"the server took {100 * found.busy:.0f} % of one processor while the dial moved, ", end="")
    print(f"{100 * found.idle:.0f} % while it stood still")
    rests = sum(student.rests for student in found.students)
    print(f"stand-ins told the server where they rest {rests} times, after each of which it made their figures")
    print(f"the machine's load in the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    write_json(
        options.json,
        {
            "browsers": options.browsers,
            "chromium": options.real,
            "seconds": options.seconds,
            "places": len(found.teacher),
            "behind": figures,
            "rests_told": rests,
            "worst_student_p95_s": round(worst, 3),
            "server_share_moving": round(found.busy, 3),
            "server_share_still": round(found.idle, 3),
            "load_of_1_minute": round(os.getloadavg()[0], 1),
            "processors": os.cpu_count(),
        },
    )


if __name__ == "__main__":
    main()
