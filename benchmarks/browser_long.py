"""How Explore answers on a long run: opening, dragging, scrolling, and the memory of its tab.

Knows the app and a browser; `browser.py` runs it. The run is made of the rounds of a recorded sample of the built-in
pair, again and again, and is read from a folder of runs as any other.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hand import PATIENCE, ROOT, SCROLL, SCROLLS, WATCH, drag, line, memory, p95, shown, sweep
from playwright.sync_api import Browser, Page

from factories import long_run  # isort: skip
from served import served  # isort: skip

from mars_viz import default_folders
from mars_viz.components.explorer.element import RunPayload
from mars_viz.runfiles import save_run

LONG = 100_000
"""Tokens of the long run."""
OPENINGS = 5
"""Servers that it is opened on."""
WHEEL = """([steps, pixels]) => new Promise((done) => {
  const stream = document.querySelector("[data-testid=stBidiComponentIsolated]").shadowRoot.querySelector(".stream");
  const times = [];
  let before = performance.now(), step = 0;
  stream.scrollTop = stream.scrollHeight / 3;
  const next = (now) => {
    times.push(now - before);
    before = now;
    stream.scrollTop += pixels;
    if (++step <= steps) requestAnimationFrame(next);
    else done(times.slice(2));
  };
  requestAnimationFrame(next);
})"""


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """How Explore answers on a long run."""

    opens: list[float]
    """Seconds from asking for the page to the end of the first frame that shows a token, the run unread so far; on one
    server after the other."""
    opens_again: float
    """Likewise in another tab, the server knowing the run, the browser's cache empty."""
    figures: float
    """Seconds until the figures stand too, the first time."""
    server: float
    """Processor seconds of the server, until it is idle after opening the first time."""
    payload: float
    """What is sent of the run at once, MB."""
    delays: list[float]
    """Milliseconds from each pointer event of a drag to the end of its frame."""
    works: list[float]
    """The page's part of them."""
    frames: list[float]
    """Milliseconds from frame to frame while the hand turns the dial without a rest."""
    scrolling: list[float]
    """Milliseconds from frame to frame while the text scrolls from end to end."""
    wheeling: list[float]
    """Likewise while it scrolls by a hundred pixels a frame, as a wheel does."""
    memory: float
    """The tab's largest resident set, MB."""


def long_answer(browser: Browser, tokens: int, moves: int) -> LongAnswer:
    """Open a run of that many tokens on Explore, drag its dial, scroll its text."""
    run = long_run(tokens)
    sent = RunPayload.of(run, None)
    with tempfile.TemporaryDirectory() as folder:
        save_run(run, Path(folder) / "long")
        save_run(long_run(100), Path(folder) / "a-short")  # the first, which the server reads as it starts
        opens = []
        for _ in range(OPENINGS - 1):
            with _served_from(folder) as address:
                page = _fresh(browser, address)
                opens.append(shown(page, f"{address}/explore?run=long"))
                page.close()
        with _served_from(folder) as address:
            page = _fresh(browser, address)
            before = server_seconds()
            began = time.perf_counter()
            opens.append(shown(page, f"{address}/explore?run=long"))
            page.wait_for_selector(".js-plotly-plot")
            figures = time.perf_counter() - began
            page.wait_for_timeout(3000)
            server = server_seconds() - before
            page.close()
            page = browser.new_page(viewport={"width": 1400, "height": 900})  # whose memory holds this run alone
            page.set_default_timeout(PATIENCE)
            again = shown(page, f"{address}/explore?run=long")
            page.wait_for_selector(".js-plotly-plot")
            page.wait_for_timeout(3000)
            sizes = [memory()]
            page.evaluate(WATCH)
            drag(page, moves)
            delays, works = page.evaluate("window.delays"), page.evaluate("window.works")
            page.wait_for_timeout(3000)  # Python hears of the rest, and draws
            frames = sweep(page, moves)
            page.wait_for_timeout(3000)
            sizes.append(memory())
            wheeling = page.evaluate(WHEEL, [SCROLLS, 100])
            scrolling = page.evaluate(SCROLL, SCROLLS)
            page.wait_for_timeout(1000)
            sizes.append(memory())
            page.close()
    size = (sent.columns.nbytes + len(json.dumps(sent.head))) / 1e6
    return LongAnswer(opens, again, figures, server, size, delays, works, frames, scrolling, wheeling, max(sizes))


def _fresh(browser: Browser, address: str) -> Page:
    """A tab that has the app's own scripts, which have nothing to do with the run."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(PATIENCE)
    shown(page, f"{address}/explore?run=a-short")
    page.wait_for_selector(".js-plotly-plot")
    return page


@contextmanager
def _served_from(folder: str) -> Iterator[str]:
    """The app with the runs of a folder."""
    before = os.environ.get(default_folders.RUNS)
    os.environ[default_folders.RUNS] = folder
    try:
        with served(ROOT / "app.py", patience=PATIENCE / 1000) as address:
            yield address
    finally:
        os.environ.pop(default_folders.RUNS)
        if before is not None:
            os.environ[default_folders.RUNS] = before


def server_seconds() -> float:
    """Processor seconds of the Streamlit server that this process started; NaN where /proc does not say."""
    for found in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = found.read_text().rpartition(")")[2].split()  # from the third on
            if int(fields[1]) == os.getpid() and b"streamlit" in found.with_name("cmdline").read_bytes():
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return float("nan")


def show_long(tokens: int, found: LongAnswer) -> None:
    """A table."""
    line(f"{tokens:,} tokens: event to painted frame", found.delays)
    line("  of it the page's work", found.works)
    line("  dragging on, from frame to frame", found.frames)
    line("  scrolling from end to end", found.scrolling)
    line("  scrolling as a wheel does", found.wheeling)
    opens = f"{np.median(found.opens):.2f} s ({min(found.opens):.2f} to {max(found.opens):.2f})"
    print(f"{'  opens, again, with its figures':<38} {opens}, {found.opens_again:.2f} s, {found.figures:.2f} s")
    print(f"{'  server, payload, tab':<38} {found.server:.2f} s, {found.payload:.1f} MB, {found.memory:.0f} MB")


def long_figures(tokens: int, found: LongAnswer) -> dict[str, object]:
    """For the results file."""
    return {
        "tokens": tokens,
        "opens_s": [round(each, 2) for each in found.opens],
        "opens_again_s": round(found.opens_again, 2),
        "figures_s": round(found.figures, 2),
        "server_cpu_s": round(found.server, 2),
        "payload_mb": round(found.payload, 1),
        "drag_median_ms": round(float(np.median(found.delays)), 2),
        "drag_p95_ms": p95(found.delays),
        "drag_work_p95_ms": p95(found.works),
        "drag_frames_p95_ms": p95(found.frames),
        "scroll_p95_ms": p95(found.scrolling),
        "wheel_p95_ms": p95(found.wheeling),
        "tab_mb": round(found.memory),
    }
