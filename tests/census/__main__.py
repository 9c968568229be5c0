"""Use every control of every page, or of the named pages, and list those that do nothing or are not in the table.

python -m tests.census [PAGE ...]    about 17 minutes for all pages; exit status 1 if a control fails
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.census.table import CONTROLS, SCENES, UNUSED
from tests.controls import SCRIPT, Census
from tests.served import ROOT

KEYS = re.compile(r"\b(?:Arrow(?:Left|Right|Up|Down)|Page(?:Up|Down)|Home|End)\b")
ELEMENTS = {"explorer": "explore", "compare": "compare", "guide": "gallery", "race": "live"}
ELEMENTS |= dict.fromkeys(("stepper", "lesson"), "learn")


def unpressed_keys(page: str) -> list[str]:
    """Return a problem for each key that the scripts of the page's elements handle and the table does not press."""
    pressed = {key for steps in CONTROLS[page] for control in steps for key in KEYS.findall(control.use.words)}
    problems = []
    for element in (name for name, of in ELEMENTS.items() if of == page):
        scripts = [file.read_text("utf-8") for file in (ROOT / "mars_viz" / "components" / element).glob("*.js")]
        handled = {key for script in scripts if "event" in script for key in KEYS.findall(script)}
        problems += [f"{page}: no control of the table presses {key} ({element})" for key in sorted(handled - pressed)]
    return problems


def main(pages: list[str]) -> int:
    """Run the census and return its exit status."""
    names = filter(None, (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"))
    chromium = next(filter(None, map(shutil.which, names)), None)
    assert chromium, "There is no Chromium. Name one in the variable CHROMIUM."
    problems = [problem for page in pages for problem in unpressed_keys(page)]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": folder, "XDG_DATA_HOME": folder}
        sys.path.insert(0, str(ROOT / "tests"))
        from tests.staged import staged  # imports torch, which reads these variables

        with staged(Path(folder) / "staged") as address:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
            context.add_init_script(path=SCRIPT)
            for page in pages:
                began, unused = time.monotonic(), (UNUSED["everywhere"], UNUSED.get(page, {}))
                census = Census(context, address, page, CONTROLS[page], unused)
                problems += (found := census.go(SCENES[page]))
                seconds = time.monotonic() - began
                print(f"{page}: {len(census.used)} uses, {len(found)} problems, {seconds:.0f} s", flush=True)
            browser.close()
    print("Controls that do nothing:" if problems else "Every control works.")
    print(*problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(CONTROLS)))
