"""A folder of many runs: how long it takes to list, to search while somebody types, and to find on the page.

    python benchmarks/run_library.py [--runs 2000] [--repeats 9] [--browser] [--json FILE]

The folders are made here: copies of the sample runs (their tables as hard links where the disk has them) whose
manifests say other titles, tags, seeds, dials and times. Listed is by a process of its own that has read none of them
yet, and again by one that has; searched is for a phrase that grows letter by letter. With --browser the Runs page is
opened in headless Chromium and the same phrase typed: what is taken is the time from a letter to its list.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measuring import json_option, show, spread, write_json

from mars_viz import samples
from mars_viz.runlist import found, listed_runs

sys.path.append(str(Path(__file__).parents[1]))
PHRASE = "story 7 lily"
"""Typed letter by letter; its words stand in title and prompt."""
_TAGS = ("paper", "lossless", "to check", "draft length")


def make(folder: Path, count: int) -> None:
    """So many runs, each with a manifest of its own."""
    given = sorted(path for path in samples.RUNS.iterdir() if path.is_dir())
    for place in range(count):
        source, made = given[place % len(given)], folder / f"live-{place:05}"
        made.mkdir(parents=True)
        for file in source.iterdir():
            if file.name == "manifest.json":
                (made / file.name).write_text(_manifest(json.loads(file.read_text("utf-8")), place), "utf-8")
            else:
                _linked(file, made / file.name)


def _manifest(about: dict[str, object], place: int) -> str:
    settings, provenance = about["settings"], about["provenance"]
    assert isinstance(settings, dict) and isinstance(provenance, dict)
    settings["seed"] = place
    provenance["created"] = f"2026-{place % 12 + 1:02}-{place % 28 + 1:02}T{place % 24:02}:00:00+00:00"
    changed = about | {"title": f"Story {place}", "tags": [_TAGS[place % len(_TAGS)]]}
    return json.dumps(changed, ensure_ascii=False, indent=1)


def _linked(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another disk
        shutil.copyfile(source, place)


def timed(deed: Callable[[], object]) -> float:
    """Milliseconds that it takes."""
    began = time.perf_counter()
    deed()
    return 1000 * (time.perf_counter() - began)


def cold(folder: Path, repeats: int) -> Iterator[tuple[float, float]]:
    """Milliseconds to list in a process that has just started, its imports left out: by the clock, and of processor,
    which says what it takes where others work on the same cores."""
    code = (
        "import sys, time; from pathlib import Path; from mars_viz.runlist import listed_runs; "
        "began = time.perf_counter(), time.process_time(); listed_runs(Path(sys.argv[1])); "
        "print(time.perf_counter() - began[0], time.process_time() - began[1])"
    )
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
        clock, processor = map(float, done.stdout.split())
        yield 1000 * clock, 1000 * processor


def command(folder: Path, repeats: int) -> Iterator[float]:
    """Milliseconds of the command, from its start to its end."""
    line = [sys.executable, "-m", "mars_viz", "runs", "--folder", str(folder), "--search", PHRASE]
    for _ in range(repeats):
        yield timed(lambda: subprocess.run(line, capture_output=True, check=True))


def searched(folder: Path, repeats: int) -> Iterator[float]:
    """Milliseconds to find and sort at each letter that is typed, of runs that are listed."""
    runs = listed_runs(folder)
    for _ in range(repeats):
        for end in range(1, len(PHRASE) + 1):
            yield timed(lambda end=end: found(runs, PHRASE[:end]))  # type: ignore[misc]


def typed(folder: Path, repeats: int) -> dict[str, list[float]]:
    """Milliseconds in headless Chromium: until the page shows its list, and from each letter to what it finds."""
    from playwright.sync_api import expect, sync_playwright

    from tests.conftest import BROWSERS, OPTIONS
    from tests.served import ROOT, served

    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)))
    runs = listed_runs(folder)
    os.environ |= {"MARS_VIZ_RUNS": str(folder), "MARS_VIZ_SAMPLES": "off"}
    taken: dict[str, list[float]] = {"page": [], "letter": []}
    with served(ROOT / "app.py") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        for _ in range(repeats):
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            counted = page.get_by_text(f"of {len(runs):,} runs".replace(",", "\u202f"))
            taken["page"].append(timed(lambda: (page.goto(f"{address}/runs"), counted.wait_for())))  # noqa: B023
            page.get_by_test_id("data-grid-canvas").wait_for()
            before = len(runs)
            for end in range(1, len(PHRASE) + 1):
                count = len(found(runs, PHRASE[:end]))
                here = f"{count:,} of ".replace(",", "\u202f")
                page.wait_for_timeout(300)
                page.get_by_role("searchbox").press("End")
                began = time.perf_counter()
                page.keyboard.type(PHRASE[end - 1])
                expect(counted).to_contain_text(here, timeout=60_000)
                if count != before:  # else the page need not answer to show it
                    taken["letter"].append(1000 * (time.perf_counter() - began))
                before = count
            page.close()
        browser.close()
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--browser", action="store_true", help="type on the Runs page, too")
    json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        make(folder, options.runs)
        listed_runs(folder)
        first = list(cold(folder, options.repeats))
        taken = {
            "list, by a process that has read none": [clock for clock, _ in first],
            "the same, of processor": [processor for _, processor in first],
            "list again": [timed(lambda: listed_runs(folder)) for _ in range(options.repeats)],
            "search and sort, a letter": list(searched(folder, options.repeats)),
            "mars-viz runs --search, start to end": list(command(folder, options.repeats)),
        }
        if options.browser:
            shown = typed(folder, options.repeats)
            taken |= {
                "page, until its list is there": shown["page"],
                "page, from a letter to its list": shown["letter"],
            }
    print(f"{options.runs} runs, ms: median (range)")
    for label, values in taken.items():
        show(label, spread(values), "ms", 0 if min(values) > 50 else 1)
    write_json(options.json, {"runs": options.runs} | {label: spread(values) for label, values in taken.items()})


if __name__ == "__main__":
    main()
