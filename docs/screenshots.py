"""Takes the README's screenshots of the real app: `python docs/screenshots.py`.

Serves the app on the sample runs, the sample race and a small sweep that it makes first (so PyTorch is needed), and
goes over all pages in headless Chromium: light, 1400 pixels wide, and Explore dark as well, into docs/images. With
`--look FOLDER` every page is taken whole, in both themes and three widths, uncompressed: to look at a change.
`--only NAME …` takes some of them.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

from browser import chromium  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, Page  # noqa: E402
from served import served  # noqa: E402

IMAGES = ROOT / "docs" / "images"
HEIGHTS = {1400: 900, 800: 1000, 375: 812}
"""Of the window by its width, pixels."""
TALLEST = 6000
"""Pixels of a page that is taken whole."""
SWEPT = 60
"""Exercises of the sweep that Tune shows."""
PATIENCE = 120_000  # ms; a busy machine is no reason to fail
READY = "[data-testid=stApp][data-test-script-state=notRunning] [data-testid=stMainBlockContainer]"
WAITING = "() => !document.querySelector('[data-testid=stSkeleton], [data-testid=stSpinner]')"


def nothing(page: Page) -> None:
    """Of a page that is to be seen as it opens."""


def race(page: Page) -> None:
    """Live on its recorded race; where no motion is wanted it stands at its end."""
    page.get_by_role("radiogroup", name="Show").get_by_text("Races", exact=True).click()
    page.wait_for_selector(".race-board")


@dataclass(frozen=True, slots=True)
class Scene:
    """A page in a state that is worth seeing."""

    name: str
    """Of the image."""
    path: str
    """In the app, with its parameters."""
    shows: str
    """A selector of what must be there."""
    then: Callable[[Page], None] = nothing
    """What a reader would do first."""


SCENES = (
    Scene("gallery", "/", ".mv-card img"),
    Scene("explore", "/explore?run=1-story-mars&selected=24", ".explorer .t"),
    Scene("live", "/live", "[data-testid=stMainBlockContainer] textarea", race),
    Scene("compare", "/compare", ".lanes"),
    Scene("rules", "/rules", ".js-plotly-plot"),
    Scene("tune", "/tune", ".js-plotly-plot"),
    Scene("learn", "/learn?run=3-story-sampled-mars&lesson=3&draws=10000", ".lesson .chart rect"),
)


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--look", type=Path, metavar="FOLDER", help="every page whole, in both themes and all widths")
    parser.add_argument("--only", nargs="+", choices=[scene.name for scene in SCENES], help="these pages alone")
    options = parser.parse_args()
    out = options.look or IMAGES
    out.mkdir(parents=True, exist_ok=True)
    scenes = [scene for scene in SCENES if not options.only or scene.name in options.only]
    sweep = any(scene.name == "tune" for scene in scenes)
    with staged(sweep=sweep), served(ROOT / "app.py") as address, chromium() as browser:
        for scene in scenes:
            for file, theme, width in images(scene, look=options.look is not None):
                taken = take(browser, address, scene, theme, width, whole=options.look is not None)
                (out / file).write_bytes(taken if options.look else compressed(taken))
    total = sum(file.stat().st_size for file in out.glob("*.png"))
    print(f"{out}: {total / 1e6:.2f} MB of images")


def images(scene: Scene, *, look: bool) -> Iterator[tuple[str, str, int]]:
    """File name, theme and width of every image of a scene."""
    if look:
        yield from (
            (f"{scene.name}-{theme}-{width}.png", theme, width) for theme in ("light", "dark") for width in HEIGHTS
        )
        return
    yield f"{scene.name}.png", "light", 1400
    if scene.name == "explore":
        yield f"{scene.name}-dark.png", "dark", 1400


@contextmanager
def staged(*, sweep: bool) -> Iterator[None]:
    """An empty home for runs, with a small sweep in it: nobody's own runs are to be seen."""
    with tempfile.TemporaryDirectory() as folder:
        home, sweeps = Path(folder) / "data", Path(folder) / "sweeps"
        os.environ.pop("MARS_VIZ_RUNS", None)
        os.environ.update({"XDG_DATA_HOME": str(home), "MARS_VIZ_SWEEPS": str(sweeps), "PYTHONPATH": str(ROOT)})
        if sweep:
            made = [
                "sweep",
                "--set",
                "builtin",
                "--limit",
                str(SWEPT),
                "--low",
                "0.5",
                "--out",
                str(sweeps / "builtin"),
            ]
            subprocess.run([sys.executable, "-m", "mars_viz", *made], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        yield


def take(browser: Browser, address: str, scene: Scene, theme: str, width: int, *, whole: bool) -> bytes:
    """One image, PNG. Raises where the browser meets a script error, or the page is wider than its window."""
    errors: list[str] = []
    window = {"width": width, "height": HEIGHTS[width]}
    page = browser.new_page(viewport=window, color_scheme=theme, reduced_motion="reduce")
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(PATIENCE)
    page.goto(address + scene.path)
    settle(page, scene.shows)
    scene.then(page)
    settle(page, scene.shows)
    if whole:  # the page scrolls inside itself, so the window is made as high as it is
        high = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": width, "height": min(max(high, HEIGHTS[width]), TALLEST)})
        page.wait_for_timeout(700)
    overflow = page.evaluate("document.documentElement.scrollWidth") - width
    image = page.screenshot(animations="disabled", caret="hide")
    page.close()
    if errors or overflow > 0:
        raise SystemExit(f"{scene.name}, {theme}, {width} pixels: {errors or f'{overflow} pixels too wide'}")
    return image


def settle(page: Page, shows: str) -> None:
    """Wait until the script has run, nothing is a placeholder, and figures and fonts are drawn."""
    page.wait_for_selector(READY)
    page.wait_for_function(WAITING)
    page.wait_for_selector(shows)
    page.wait_for_selector(READY)
    page.wait_for_timeout(2000)


def compressed(image: bytes) -> bytes:
    """The image in 256 colours of its own, at a third of the size; text stays as sharp as it was."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        buffer, "PNG", optimize=True
    )
    return buffer.getvalue()


if __name__ == "__main__":
    main()
