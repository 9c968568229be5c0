"""Use every control of every page, or of the named pages, and list those that do nothing or are not in the table.

python -m tests.census [PAGE ...]    about 17 minutes for all pages; exit status 1 if a control fails
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.census.table import CONTROLS, EVERYWHERE, SCENES, UNUSED
from tests.controls import SCRIPT, Census
from tests.served import ROOT

KEYS = re.compile(r"\b(?:Arrow(?:Left|Right|Up|Down)|Page(?:Up|Down)|Home|End)\b")
ELEMENTS = {
    "explorer": "explore",
    "compare": "compare",
    "guide": "gallery",
    "race": "live",
    "stepper": "learn",
    "lesson": "learn",
}


def unpressed_keys(page: str) -> list[str]:
    """Return a problem for each key that the scripts of the page's elements handle and the table does not press."""
    pressed = {key for control in CONTROLS[page] for key in KEYS.findall(control.use.words)}
    problems = []
    for element in (name for name, of in ELEMENTS.items() if of == page):
        scripts = [file.read_text("utf-8") for file in (ROOT / "mars_viz" / "components" / element).glob("*.js")]
        handled = {key for script in scripts if "event" in script for key in KEYS.findall(script)}
        problems += [f"{page}: no control of the table presses {key} ({element})" for key in sorted(handled - pressed)]
    return problems


def main(arguments: list[str] | None = None) -> int:
    """Run the census and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.census", description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"one of {', '.join(CONTROLS)}; without: all")
    pages = parser.parse_args(arguments).pages or list(CONTROLS)
    if unknown := set(pages) - set(CONTROLS):
        parser.error(f"no page {', '.join(sorted(unknown))}")
    names = filter(None, (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"))
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        parser.error("there is no Chromium; name one in the variable CHROMIUM")
    problems = [problem for page in pages for problem in unpressed_keys(page)]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, ExitStack() as opened:
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": folder, "XDG_DATA_HOME": folder}
        sys.path.insert(0, str(ROOT / "tests"))
        from tests.staged import staged  # imports torch, which reads these variables

        server = opened.enter_context(staged(Path(folder) / "staged"))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
        context.add_init_script(path=SCRIPT)
        for page in pages:
            began = time.monotonic()
            unused = UNUSED["everywhere"], UNUSED.get(page, {})
            census = Census(context, server.address, page, CONTROLS[page], EVERYWHERE, unused, print)
            problems += (found := census.go(SCENES[page]))
            print(
                f"{page}: {len(census.used)} uses, {len(found)} problems, {time.monotonic() - began:.0f} s", flush=True
            )
        browser.close()
    print("Controls that do nothing or are not in tests/census/table.py:" if problems else "Every control works.")
    print(*problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
