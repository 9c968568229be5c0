"""Takes the README's screenshots of the real app: `python docs/screenshots.py [--out FOLDER]`.

Both themes, wide and narrow, in headless Chromium on the sample runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from browser import chromium  # noqa: E402
from served import served  # noqa: E402

SIZES = {"": (1400, 900), "-narrow": (800, 1000)}


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="the repository keeps explore-light.png")
    parser.add_argument("--full", action="store_true", help="the whole page, not only what is in view")
    parser.add_argument("--query", default="", help="of the page's address, such as ?run=2-story-strict")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with served(ROOT / "app.py") as address, chromium() as browser:
        for theme in ("light", "dark"):
            for suffix, (width, height) in SIZES.items():
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
                page.goto(address + "/" + options.query)
                page.wait_for_selector(".explorer .t", timeout=60_000)
                page.wait_for_timeout(2500)  # figures and fonts
                page.screenshot(path=options.out / f"explore-{theme}{suffix}.png", full_page=options.full)
                page.close()


if __name__ == "__main__":
    main()
