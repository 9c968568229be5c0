"""Use every control of every page, or of the named pages, and list those that do nothing.

python -m tests.census [PAGE ...]    about 17 minutes for all pages; exit status 1 if a control fails
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.census.table import CONTROLS, SCENES, UNUSED
from tests.controls import SCRIPT, Census
from tests.served import ROOT


def main(pages: list[str]) -> int:
    """Run the census and return its exit status."""
    names = filter(None, (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"))
    chromium = next(filter(None, map(shutil.which, names)), None)
    assert chromium, "There is no Chromium. Name one in the variable CHROMIUM."
    problems: list[str] = []
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
