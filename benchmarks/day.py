"""A working day with the app, as its user waits for it: how long each thing takes that is done all day.

    python benchmarks/day.py [--days N] [--warm N] [--no-sweep] [--json FILE]

Each day is a clean server with folders of its own and a fresh tab of headless Chromium: the server starts, Explore
shows its first token; every page is opened after the other; from the Gallery a run is opened in Explore; a report is
made; a prompt of 128 tokens is decoded by click, first (the models are loaded then; their libraries since the form was
opened, about a second before) and warm; a decode is cancelled; a sweep of 60 prompts is begun in Tune and ends. Every
day is done twice, in turn: with nothing else running, and with one core kept busy by another process. Seconds from the
click to the end of the first frame that shows what was asked for: the new page's own content, the decoded text, the
saved file, the word that it was stopped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hand import PAINTED, PATIENCE, ROOT, TOKEN, chromium, shown
from measuring import json_option, write_json
from playwright.sync_api import Browser, Page

from served import served  # isort: skip

GOALS = {
    "server start to first token": 3.0,
    "Gallery to Explore": 0.7,
    "decode of 128 tokens, first": 6.0,
    "decode of 128 tokens, warm": 1.5,
    "page switch": 0.7,
    "report": 2.0,
    "sweep of 60 prompts": None,
    "cancel": 0.5,
}
"""Seconds to reach with nothing else running; None where nothing is asked."""
PAGES = {
    "Explore": ".explorer .t",
    "Live": "[data-testid=stMain] textarea",
    "Compare": ".compare .t",
    "Rules": "[data-testid=stMain] table",
    "Tune": ".explorer .knob",
    "Learn": ".stepper .stage",
    "Gallery": ".mv-card",
}
"""By name what shows that a page is there: its own content, and not its title alone."""
THERE = """([title, selector]) => {
  const roots = [document, ...[...document.querySelectorAll("*")].map((e) => e.shadowRoot).filter(Boolean)];
  const said = document.querySelector("[data-testid=stMain] h1")?.textContent ?? "";
  return said.startsWith(title) && roots.some((root) => root.querySelector(selector));
}"""
PROMPT = "Once upon a time, there was a little {} who"
WHO = ("cat", "dog", "frog", "bear", "hen", "fox", "bird", "fish", "mouse", "cow")
BUSY = "while True: pass"

Found = dict[str, list[float]]
"""By what was done: seconds, one each time."""


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """That many cores kept busy by processes of their own."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def until(page: Page, script: str, argument: object = None) -> None:
    """Wait until it holds, looked at in every frame, and is painted."""
    page.wait_for_function(script, arg=argument, polling="raf", timeout=PATIENCE)
    page.evaluate(PAINTED)


def timed(page: Page, click: Callable[[], object], script: str, argument: object = None) -> float:
    """Seconds from the click to the end of the frame in which it holds."""
    began = time.perf_counter()
    click()
    until(page, script, argument)
    return time.perf_counter() - began


def day(browser: Browser, warm: int, *, sweeps: bool) -> Found:
    """One day, from the server's start."""
    found: Found = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("RUNS", "SWEEPS"):
            os.environ[f"MARS_VIZ_{name}"] = str(Path(folder) / name.lower())
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(PATIENCE)
        began = time.perf_counter()
        with served(ROOT / "app.py", patience=PATIENCE / 1000) as address:
            shown(page, f"{address}/explore")
            found["server start to first token"].append(time.perf_counter() - began)
            _switches(page, address, found)
            _report(page, found)
            _decodes(page, warm, found)
            _cancels(page, warm, found)
            if sweeps:
                _sweep(page, found)
        page.close()
    return dict(found)


def _open(page: Page, name: str) -> float:
    """Open a page from the navigation."""
    link = page.get_by_role("link", name=name, exact=True)
    title = "" if name == "Gallery" else name
    return timed(page, link.click, THERE, [title, PAGES[name]])


def _switches(page: Page, address: str, found: Found) -> None:
    """Every page from the one before it, three times, and from the Gallery a run in Explore."""
    for _ in range(3):
        for name in PAGES:
            found["page switch"].append(_open(page, name))
            page.wait_for_timeout(700)  # somebody looks at it
        run = page.get_by_role("button", name="Open", exact=True).first
        found["Gallery to Explore"].append(timed(page, run.click, THERE, ["Explore", PAGES["Explore"]]))
        page.wait_for_timeout(700)


def _decodes(page: Page, warm: int, found: Found) -> None:
    """A prompt by click, the first time and warm."""
    for turn in range(warm + 1):
        before = page.url
        page.get_by_role("button", name="New prompt").click()
        box = page.get_by_role("textbox", name="Prompt")
        box.fill(PROMPT.format(WHO[turn % len(WHO)]))
        box.press("Control+Enter")
        page.wait_for_timeout(700)
        click = page.get_by_role("button", name="Decode", exact=True).click
        took = timed(page, click, f"(before) => location.href !== before && ({TOKEN})()", before)
        found[f"decode of 128 tokens, {'warm' if turn else 'first'}"].append(took)
        page.wait_for_timeout(2500)  # its map fills in


def _report(page: Page, found: Found) -> None:
    """From the click to the whole file."""
    for _ in range(3):
        page.get_by_role("button", name="Share").click()
        button = page.get_by_role("button", name="Report, one HTML file")
        button.wait_for()
        began = time.perf_counter()
        with page.expect_download(timeout=PATIENCE) as download:
            button.click()
        download.value.path()
        found["report"].append(time.perf_counter() - began)
        page.keyboard.press("Escape")
        page.wait_for_timeout(500)


def _cancels(page: Page, times: int, found: Found) -> None:
    """A long decode on Live, stopped after its first tokens."""
    _open(page, "Live")
    page.get_by_role("button", name="Settings").click()
    limit = page.get_by_role("spinbutton", name="Max new tokens")
    limit.fill("450")
    limit.press("Enter")
    page.wait_for_timeout(700)
    page.keyboard.press("Escape")
    for turn in range(times):
        box = page.get_by_role("textbox", name="Prompt")
        box.fill(PROMPT.format(WHO[turn % len(WHO)]))
        box.press("Control+Enter")
        page.wait_for_timeout(700)
        page.get_by_role("button", name="Decode now").click()
        cancel = page.get_by_role("button", name="Cancel")
        cancel.wait_for()
        stopped = "() => !/Cancel/.test([...document.querySelectorAll('button')].map((b) => b.textContent).join())"
        found["cancel"].append(timed(page, cancel.click, stopped))
        page.wait_for_timeout(500)


def _sweep(page: Page, found: Found) -> None:
    """The sweep that Tune's form begins with, of ten prompts of each of six tasks, from the click to its end."""
    _open(page, "Tune")
    page.get_by_role("button", name="New sweep").click()
    page.wait_for_timeout(700)
    each = page.get_by_role("spinbutton", name="Prompts of each task")
    each.fill("10")
    each.press("Enter")
    page.get_by_text("60 prompts:").wait_for()
    begin = page.get_by_role("button", name="Sweep", exact=True)
    ended = "() => !/Stop/.test([...document.querySelectorAll('button')].map((b) => b.textContent).join())"
    began = time.perf_counter()
    begin.click()
    page.get_by_role("button", name="Stop").wait_for()
    until(page, ended)
    found["sweep of 60 prompts"].append(time.perf_counter() - began)


def quantiles(seconds: list[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    middle, high = np.percentile(seconds, [50, 95])
    return float(middle), float(high)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=3, help="days with nothing else running, and as many busy ones")
    parser.add_argument("--warm", type=int, default=6, help="warm decodes, and decodes that are cancelled, a day")
    parser.add_argument("--no-sweep", action="store_true", help="leave the sweep out")
    json_option(parser)
    options = parser.parse_args()
    every: dict[str, Found] = {"idle": defaultdict(list), "busy": defaultdict(list)}
    with chromium() as browser:
        for _ in range(options.days):
            for kind, cores in (("idle", 0), ("busy", 1)):
                with busy(cores):
                    for name, seconds in day(browser, options.warm, sweeps=not options.no_sweep).items():
                        every[kind][name] += seconds
    print(f"{'seconds':<32} {'goal':>5}   {'idle':>6} {'p95':>6}   {'busy':>6} {'p95':>6}   times")
    figures: dict[str, object] = {}
    for name, goal in GOALS.items():
        if name not in every["idle"]:
            continue
        (middle, high), (slow, slowest) = (quantiles(every[kind][name]) for kind in ("idle", "busy"))
        aim = "" if goal is None else f"{goal:g}"
        times = len(every["idle"][name])
        print(f"{name:<32} {aim:>5}   {middle:>6.2f} {high:>6.2f}   {slow:>6.2f} {slowest:>6.2f}   {times}")
        figures[name] = {"goal_s": goal} | {
            kind: {"seconds": [round(each, 3) for each in every[kind][name]]} for kind in every
        }
    write_json(options.json, {"cores": os.cpu_count(), **figures})


if __name__ == "__main__":
    main()
