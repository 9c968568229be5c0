"""How fast the page answers: the dial under the hand, and the first token after the server starts.

    python benchmarks/browser.py [--moves N] [--sizes N …] [--long N] [--trees N] [--json FILE]

A drag is measured in headless Chromium on a made-up run: from the time stamp of each pointer event to the end of the
frame that it led to (the task after that frame's painting). That is the wait until Chromium starts a frame, up to one
period of the screen (16.7 ms) whatever the page does, and from there on the page's own work; both are shown, and the
same drag on a bare page with a thumb and a number, for what no page can be below on this machine. Then the hand turns
the dial without a rest, and the time from frame to frame says how many frames a second it sees. Of the same page: how
long it takes to open when the server already knows the run (a reload), the frames while its text scrolls from end to
end, and the memory of its tab (the renderer's resident set). The first token is measured on the real app, from starting
the server's process to the end of the first frame that shows a token.

The long run (`--long`, 0 leaves it out) is opened on Explore itself, figures and all, from a folder of runs: the rounds
of a recorded sample of the built-in pair again and again. It opens in a browser that has the app's own scripts on
servers that have never read the run ("opens": median and range of five), and then in a fresh tab with an empty cache
("again"), whose memory is what is reported. The server's processor seconds are those until it is idle after the last
opening, figures included.
From end to end the text scrolls by several windows a frame, so it is shown in glimpses; as a wheel does, all of it is.

Runs of draft trees (`--trees`, 0 leaves them out) are held against runs of chains of as many tokens, in turns: θ, a
controller's threshold λ, and the number of nodes against γ, which the server answers; see `browser_trees`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from browser_long import LONG, long_answer, long_figures, show_long
from browser_trees import TOKENS, show_trees, tree_answers, tree_figures
from hand import PATIENCE, ROOT, SCROLL, SCROLLS, WATCH, chromium, drag, line, memory, p95, shown, sweep
from measuring import json_option, write_json
from playwright.sync_api import Browser, TimeoutError

from factories import toy_run  # isort: skip
from served import served  # isort: skip

from mars_viz.run import Run

SIZES = (2_000, 10_000)
PAGE = """
import sys
sys.path.insert(0, {benchmarks!r})
import streamlit as st
from browser import made_up_run
from mars_viz.components.explorer.element import explorer

st.set_page_config(layout="wide")
run = st.cache_resource(made_up_run)({tokens})
explorer(run, dial=None, overlay="outcome", selected=None, key="explorer")
"""

BARE = """
<div class="explorer">
  <div class="lane" style="width: 1200px; height: 30px"><b style="position: absolute">0</b></div>
</div>
<script>
  const thumb = document.querySelector("b");
  window.onpointermove = ({ buttons, clientX }) => {
    if (!buttons) return;
    thumb.style.transform = `translateX(${clientX}px)`;
    thumb.textContent = clientX;
  };
</script>
"""


def made_up_run(tokens: int) -> Run:
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


@dataclass(frozen=True, slots=True)
class Answer:
    """How the page of one run answers; times in milliseconds."""

    opening: float
    """From asking for the page to the end of the first frame that shows a token, the server knowing the run."""
    delays: list[float]
    """Of a drag: from each pointer event's time stamp to the end of its frame."""
    works: list[float]
    """The page's part of it: from the event's delivery to the end of its frame."""
    frames: list[float]
    """From frame to frame while the hand turns the dial without a rest."""
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
            opening = 1000 * shown(page, address)
            page.wait_for_timeout(1000)
            sizes = [memory()]
            page.evaluate(WATCH)
            drag(page, moves)
            delays, works = page.evaluate("window.delays"), page.evaluate("window.works")
            frames = sweep(page, moves)
            sizes.append(memory())
            scrolling = page.evaluate(SCROLL, SCROLLS)
            sizes.append(memory())
            page.close()
    return Answer(opening, delays, works, frames, scrolling, max(sizes))


def bare(browser: Browser, moves: int) -> list[float]:
    """The delays of the same drag on a page that has nothing but a thumb and a number: what no page can be below."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_content(BARE)
    page.evaluate(WATCH)
    drag(page, moves)
    delays: list[float] = page.evaluate("window.delays")
    page.close()
    return delays


def first_token(browser: Browser) -> float | None:
    """Seconds from starting the app's server to its first token on the screen; None if it shows no token."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    began = time.perf_counter()
    with served(ROOT / "app.py") as address:
        try:
            shown(page, f"{address}/explore", patience=30_000)
        except TimeoutError:
            return None
        took = time.perf_counter() - began
        page.close()
    return took


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=300, help="pointer events of each drag")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="tokens of the made-up runs")
    parser.add_argument("--long", type=int, default=LONG, help="tokens of the long run on Explore; 0 for none")
    parser.add_argument("--trees", type=int, default=TOKENS, help="tokens of the runs of draft trees; 0 for none")
    json_option(parser)
    options = parser.parse_args()
    with chromium() as browser:
        answers = {size: answer(browser, size, options.moves) for size in options.sizes}
        long = long_answer(browser, options.long, options.moves) if options.long else None
        trees = tree_answers(browser, options.trees, options.moves) if options.trees else None
        nothing = bare(browser, options.moves)
        seconds = first_token(browser)
    print(f"{'':<38} {'median':>8} {'p95':>8} {'max':>8}   frames")
    line("a bare page: event to painted frame", nothing)
    for size, found in answers.items():
        line(f"{size:,} tokens: event to painted frame", found.delays)
        line("  of it the page's work", found.works)
        line("  dragging on, from frame to frame", found.frames)
        line("  scrolling, from frame to frame", found.scrolling)
        print(f"{'  opening, and memory of the tab':<38} {found.opening / 1000:>5.2f} s {found.memory:>6.0f} MB")
    if long:
        show_long(options.long, long)
    if trees:
        show_trees(options.trees, trees)
    print(f"server start to first token          {seconds:.2f} s" if seconds else "the app shows no token within 30 s")
    figures = {
        "drag_median_ms": {str(size): round(float(np.median(found.delays)), 2) for size, found in answers.items()},
        "drag_p95_ms": {str(size): p95(found.delays) for size, found in answers.items()},
        "bare_drag_p95_ms": p95(nothing),
        "drag_work_p95_ms": {str(size): p95(found.works) for size, found in answers.items()},
        "drag_frames_p95_ms": {str(size): p95(found.frames) for size, found in answers.items()},
        "scroll_p95_ms": {str(size): p95(found.scrolling) for size, found in answers.items()},
        "opening_s": {str(size): round(found.opening / 1000, 2) for size, found in answers.items()},
        "memory_mb": {str(size): round(found.memory) for size, found in answers.items()},
        "long": long and long_figures(options.long, long),
        "trees": trees and tree_figures(options.trees, trees),
        "first_token_s": seconds and round(seconds, 2),
    }
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
