"""A page under the hand: what every measurement in the browser needs to open it, drag, scroll and weigh it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.conftest import BROWSERS, OPTIONS  # noqa: E402

WATCH = """
window.delays = [];
window.works = [];
const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => {
  const { made, delivered } = waiting.shift();
  const painted = performance.now();
  window.delays.push(painted - made);
  window.works.push(painted - delivered);
};
window.addEventListener("pointermove", (event) => {
  if (!event.buttons) return;
  const times = { made: event.timeStamp, delivered: performance.now() };
  requestAnimationFrame(() => { waiting.push(times); channel.port2.postMessage(0); });
}, true);
"""
FRAMES = """
window.frames = [];
window.addEventListener("pointermove", (event) => {
  const seen = (began) => { if (window.frames.at(-1) !== began) window.frames.push(began); };
  if (event.buttons) requestAnimationFrame(seen);
}, true);
"""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
TOKEN = """() => [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")].some(
  (component) => component.shadowRoot?.querySelector(".explorer .t"))"""
SCROLL = """(steps) => new Promise((done) => {
  const stream = document.querySelector("[data-testid=stBidiComponentIsolated]")?.shadowRoot?.querySelector(".stream")
    ?? document.querySelector(".stream");
  const times = [];
  let before = performance.now(), step = 0;
  stream.scrollTop = 0;
  const next = (now) => {
    times.push(now - before);
    before = now;
    stream.scrollTop = (++step / steps) * (stream.scrollHeight - stream.clientHeight);
    if (step < steps) requestAnimationFrame(next);
    else requestAnimationFrame((end) => done([...times.slice(1), end - before]));
  };
  requestAnimationFrame(next);
})"""
SCROLLS = 240
"""Frames in which the text scrolls from end to end."""
PATIENCE = 600_000
"""Milliseconds, for the server and the page."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's, headless."""
    names = filter(None, (os.environ.get("CHROMIUM"), *BROWSERS))
    path = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        yield browser
        browser.close()


def shown(page: Page, address: str, patience: float = PATIENCE) -> float:
    """Open the page; seconds until a token has been painted. Raises TimeoutError after `patience` milliseconds.

    It looks in every frame: where Playwright waits for a selector, it looks but twice a second.
    """
    began = time.perf_counter()
    page.goto(address)
    page.wait_for_function(TOKEN, polling="raf", timeout=patience)
    page.evaluate(PAINTED)
    return time.perf_counter() - began


def memory() -> float:
    """The largest resident set among the renderers that this process started, MB; NaN where /proc does not say."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, float] = {}
    for found in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            status = dict(line.split(":", 1) for line in found.read_text().splitlines() if ":" in line)
            pid = int(status["Pid"])
            children.setdefault(int(status["PPid"]), []).append(pid)
            if b"--type=renderer" in found.with_name("cmdline").read_bytes():
                sizes[pid] = int(status.get("VmRSS", "0 kB").split()[0]) / 1024
    waiting, own = [os.getpid()], []
    while waiting:
        own.append(waiting.pop())
        waiting += children.get(own[-1], [])
    return max((sizes[pid] for pid in own if pid in sizes), default=float("nan"))


def drag(page: Page, moves: int) -> None:
    """Sweep the dial over the half where breakpoints lie, back and forth."""
    low, high, y = _span(page)
    x = high - 0.5 * (high - low) * (1 - np.cos(np.linspace(0, 6 * np.pi, moves)))
    page.mouse.move(float(x[0]), y)
    page.mouse.down()
    for at in x:
        page.mouse.move(float(at), y)
        page.wait_for_timeout(25)
    page.mouse.up()
    page.wait_for_timeout(300)


def sweep(page: Page, moves: int) -> list[float]:
    """Turn the dial over the same half without a rest, each event as soon as the one before has been taken.

    Milliseconds from one frame to the next, of those frames that an event led to: where Playwright is late with an
    event, the wait for it counts too.
    """
    low, high, y = _span(page)
    page.evaluate(FRAMES)
    page.mouse.move(high, y)
    page.mouse.down()
    for turn in range(6):
        page.mouse.move(high if turn % 2 else low, y, steps=moves // 6)
    page.mouse.up()
    page.wait_for_timeout(300)
    began: list[float] = page.evaluate("window.frames")
    return np.diff(began).tolist()


def _span(page: Page) -> tuple[float, float, float]:
    """Pixels from the left of that half's ends, and from the top of the lane's middle."""
    box = page.locator(".explorer .lane").bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["x"] + box["width"], box["y"] + box["height"] / 2


def line(label: str, values: list[float]) -> None:
    """A line of the table: median, 95th percentile, maximum, how many."""
    middle, high, most = np.percentile(values, [50, 95, 100])
    print(f"{label:<38} {middle:>5.1f} ms {high:>5.1f} ms {most:>5.1f} ms   {len(values)}")


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return round(float(np.percentile(values, 95)), 2)
