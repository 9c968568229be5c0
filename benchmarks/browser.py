"""How fast the page answers: the dial under the hand, and the first token after the server starts.

    python benchmarks/browser.py [--moves N] [--sizes N …] [--json FILE]

A drag is measured in headless Chromium on a made-up run: from the time stamp of each pointer event to the end of the
frame that it led to (the task after that frame's painting). That is the wait until Chromium starts a frame, up to one
period of the screen (16.7 ms) whatever the page does, and from there on the page's own work; both are shown. Of the
same page: how long it takes to open when the server already knows the run (a reload), the frames while its text scrolls
from end to end, and the memory of its tab (the renderer's resident set). The first token is measured on the real app,
from starting the server's process to the end of the first frame that shows a token.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from measuring import json_option, write_json
from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from factories import toy_run  # noqa: E402
from served import served  # noqa: E402

from mars_viz.run import Run  # noqa: E402
from tests.conftest import BROWSERS, QUIET  # noqa: E402

SIZES = (2_000, 10_000)
PAGE = """
import sys
sys.path.insert(0, {benchmarks!r})
import streamlit as st
from browser import long_run
from mars_viz.components.explorer import explorer

st.set_page_config(layout="wide")
run = st.cache_resource(long_run)({tokens})
explorer(run, dial=None, overlay="outcome", selected=None, key="explorer")
"""
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
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
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


def long_run(tokens: int) -> Run:
    """A run of about that many tokens: toy rounds under many seeds, again and again."""
    parts = [toy_run(rule="mars-sampling", temperature=0.8, seed=seed, max_new_tokens=100) for seed in range(12)]
    rounds = [round_ for part in parts for round_ in part.rounds[:-1]]
    written = np.cumsum([len(round_.token_ids) for round_ in rounds])
    again = -(-tokens // int(written[-1]))
    chosen = tuple((rounds * again)[: int(np.searchsorted(_repeated(written, again), tokens)) + 1])
    settings = replace(parts[0].settings, max_new_tokens=sum(len(round_.token_ids) for round_ in chosen))
    return replace(parts[0], rounds=chosen, settings=settings)


def _repeated(written: np.ndarray, times: int) -> np.ndarray:
    return (written + written[-1] * np.arange(times)[:, None]).ravel()


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's, headless."""
    names = filter(None, (os.environ.get("CHROMIUM"), *BROWSERS))
    path = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """How the page of one run answers; times in milliseconds."""

    opening: float
    """From asking for the page to the end of the first frame that shows a token, the server knowing the run."""
    delays: list[float]
    """Of a drag: from each pointer event's time stamp to the end of its frame."""
    works: list[float]
    """The page's part of it: from the event's delivery to the end of its frame."""
    scrolling: list[float]
    """From frame to frame while the text scrolls by a window at a time, from its beginning to its end."""
    memory: float
    """The tab's largest resident set meanwhile, MB."""


def answer(browser: Browser, tokens: int, moves: int) -> Answer:
    """Open a run of about that many tokens, drag its dial, scroll its text."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "page.py"
        script.write_text(PAGE.format(benchmarks=str(ROOT / "benchmarks"), tokens=tokens), encoding="utf-8")
        with served(script, patience=PATIENCE / 1000) as address:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(address)
            page.wait_for_selector(".explorer .t", timeout=PATIENCE)
            began = time.perf_counter()
            page.goto(address)
            page.wait_for_selector(".explorer .t", timeout=PATIENCE)
            page.evaluate(PAINTED)
            opening = 1000 * (time.perf_counter() - began)
            page.wait_for_timeout(1000)
            memory = [_memory()]
            page.evaluate(WATCH)
            _drag(page, moves)
            delays, works = page.evaluate("window.delays"), page.evaluate("window.works")
            memory.append(_memory())
            scrolling = page.evaluate(SCROLL, SCROLLS)
            memory.append(_memory())
            page.close()
    return Answer(opening, delays, works, scrolling, max(memory))


def _memory() -> float:
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


def _drag(page: Page, moves: int) -> None:
    """Sweep the dial over the half where breakpoints lie, back and forth."""
    box = page.locator(".explorer .lane").bounding_box()
    assert box is not None
    x = box["x"] + box["width"] * (1 - 0.25 * (1 - np.cos(np.linspace(0, 6 * np.pi, moves))))
    y = box["y"] + box["height"] / 2
    page.mouse.move(float(x[0]), y)
    page.mouse.down()
    for at in x:
        page.mouse.move(float(at), y)
        page.wait_for_timeout(25)
    page.mouse.up()
    page.wait_for_timeout(300)


def first_token(browser: Browser) -> float | None:
    """Seconds from starting the app's server to its first token on the screen; None if it shows no token."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    began = time.perf_counter()
    with served(ROOT / "app.py") as address:
        page.goto(f"{address}/explore")
        with suppress(TimeoutError):
            page.wait_for_selector(".explorer .t", timeout=30_000)
        if not page.locator(".explorer .t").count():
            return None
        page.evaluate(PAINTED)
        took = time.perf_counter() - began
        page.close()
    return took


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=300, help="pointer events of each drag")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="tokens of the made-up runs")
    json_option(parser)
    options = parser.parse_args()
    with chromium() as browser:
        answers = {size: answer(browser, size, options.moves) for size in options.sizes}
        seconds = first_token(browser)
    print(f"{'':<38} {'median':>8} {'p95':>8} {'max':>8}   frames")
    for size, found in answers.items():
        _line(f"{size:,} tokens: event to painted frame", found.delays)
        _line("  of it the page's work", found.works)
        _line("  scrolling, from frame to frame", found.scrolling)
        print(f"{'  opening, and memory of the tab':<38} {found.opening / 1000:>5.2f} s {found.memory:>6.0f} MB")
    print(f"server start to first token          {seconds:.2f} s" if seconds else "the app shows no token within 30 s")
    figures = {
        "drag_p95_ms": {str(size): _p95(found.delays) for size, found in answers.items()},
        "drag_work_p95_ms": {str(size): _p95(found.works) for size, found in answers.items()},
        "scroll_p95_ms": {str(size): _p95(found.scrolling) for size, found in answers.items()},
        "opening_s": {str(size): round(found.opening / 1000, 2) for size, found in answers.items()},
        "memory_mb": {str(size): round(found.memory) for size, found in answers.items()},
        "first_token_s": seconds and round(seconds, 2),
    }
    write_json(options.json, figures)


def _line(label: str, values: list[float]) -> None:
    middle, high, most = np.percentile(values, [50, 95, 100])
    print(f"{label:<38} {middle:>5.1f} ms {high:>5.1f} ms {most:>5.1f} ms   {len(values)}")


def _p95(values: list[float]) -> float:
    return round(float(np.percentile(values, 95)), 2)


if __name__ == "__main__":
    main()
