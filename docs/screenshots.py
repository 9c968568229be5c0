"""Takes the README's screenshots of the real app: `python docs/screenshots.py`.

Serves the app on the sample runs, the sample race and a small sweep that it makes first (so PyTorch is needed), and
goes over all pages in headless Chromium: light, 1400 pixels wide, and Explore dark as well, into docs/images. With
`--look FOLDER` every page is taken whole, in both themes and three widths, uncompressed: to look at a change; and with
them what the README does not show: forms, lessons, sweeps side by side, a grid, a report. `--only NAME …` takes some.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

from browser import chromium  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, Locator, Page  # noqa: E402
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


def sheets(page: Page) -> None:
    """Tune with all that it folds away."""
    for summary in page.get_by_test_id("stExpander").locator("summary").all():
        summary.click()
    page.wait_for_timeout(6000)


def fixed_settings(page: Page) -> None:
    """A form of settings, on a rule that has a fixed one."""
    page.get_by_role("button", name="Settings").click()
    choose_vllm(page, page.get_by_role("combobox", name="Rule", exact=False).last)


def new_prompt(page: Page) -> None:
    """What opens for a new prompt, with its settings, on a rule that has a fixed one."""
    page.get_by_role("button", name="New prompt").click()
    page.get_by_text("Settings", exact=True).click()
    choose_vllm(page, page.get_by_role("combobox", name="Rule", exact=False).last)


def choose_vllm(page: Page, box: Locator) -> None:
    """Search a list for a rule that has a fixed setting; what is far down in a list is not there until then."""
    box.click()
    page.keyboard.type("vLLM")
    page.get_by_role("option", name="vLLM relaxed thinking", exact=True).click()


def new_sweep(page: Page) -> None:
    """The form of a sweep, on a rule that has a fixed setting, with all that it folds away."""
    page.get_by_role("button", name="New sweep").click()
    choose_vllm(page, page.get_by_role("combobox", name="Rules", exact=False).last)
    page.keyboard.press("Tab")  # the list stays open for more
    page.get_by_text("Dial range, settings and folder").click()


def models(page: Page) -> None:
    """The choice of models in the header, on the head in place of the drafter."""
    page.get_by_role("button", name="Models").click()
    page.get_by_role("combobox", name="Pair", exact=False).click()
    page.get_by_role("option", name="EAGLE-3 head", exact=False).first.click()


def pinned(page: Page) -> None:
    """Explore with a token and a setting pinned, the dial elsewhere, and a word found."""
    page.get_by_role("button", name="Pin this setting", exact=True).click()
    page.locator(".stream .relaxed").first.click()
    page.get_by_role("button", name="Pin this token", exact=True).click()
    page.locator(".stream .corrected").first.click()
    field = page.locator(".explorer .box input")
    field.fill("0.6")
    field.press("Enter")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Find in the text", exact=True).click()
    page.keyboard.type("the")


@dataclass(frozen=True, slots=True)
class Scene:
    """A page in a state that is worth seeing."""

    name: str
    """Of the image."""
    path: str
    """In the app, with its parameters; or an address, in which STAGED stands for the folder of what was made for it."""
    shows: str
    """A selector of what must be there."""
    then: Callable[[Page], None] = nothing
    """What a reader would do first."""
    readme: bool = False
    """True if the README shows it."""


SCENES = (
    Scene("gallery", "/", ".mv-card img", readme=True),
    Scene("explore", "/explore?run=0-1-plants-mars", ".explorer .t", readme=True),
    Scene("live", "/live", ".race-board", readme=True),
    Scene("compare", "/compare", ".lanes", readme=True),
    Scene("rules", "/rules", ".js-plotly-plot", readme=True),
    Scene("tune", "/tune?sweep=sample%3A1-counting-eagle3", ".js-plotly-plot", readme=True),
    Scene("learn", "/learn?run=3-story-sampled-mars&lesson=3&draws=10000", ".lesson .chart rect", readme=True),
    Scene("explore-form", "/explore?run=1-story-mars", ".explorer .t", new_prompt),
    Scene("explore-pins", "/explore?run=1-story-mars", ".explorer .t", pinned),
    Scene("models", "/explore?run=1-story-mars", ".explorer .t", models),
    Scene("runs", "/runs", "[data-testid=data-grid-canvas]"),
    Scene("runs-details", "/runs?run=1-story-mars", ".mv-facts"),
    Scene("live-form", "/live", "[data-testid=stMainBlockContainer] textarea", fixed_settings),
    Scene("compare-sweep", "/compare?across=sweep&sweep=builtin&to=0.5", ".texts .t"),
    Scene("compare-sweeps", "/compare?across=sweep&sweep=builtin&beside=margin&to=6", ".texts .t"),
    Scene("tune-sheets", "/tune?sweep=builtin", ".js-plotly-plot", sheets),
    Scene("tune-form", "/tune?sweep=builtin", ".js-plotly-plot", new_sweep),
    Scene("tune-grid", "/tune?sweep=grid/vllm-thinking-k5", ".js-plotly-plot", sheets),
    Scene("stepper", "/learn?run=1-story-mars&frame=30", ".stepper"),
    *(Scene(f"lesson-{lesson}", f"/learn?lesson={lesson}", ".explorer") for lesson in range(1, 8)),
    Scene("site", "file://STAGED/site/index.html", ".mv-card img"),
    Scene("site-run", "file://STAGED/site/runs/1-story-mars.html", ".explorer .t"),
    Scene("site-compare", "file://STAGED/site/compare.html", ".stream .t"),
    Scene("site-lesson", "file://STAGED/site/lessons/3.html", "main"),
    Scene("report", "file://STAGED/report.html", ".explorer .t"),
)

NAMES = [scene.name for scene in SCENES]


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--look", type=Path, metavar="FOLDER", help="every page whole, in both themes and all widths")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="these pages alone")
    options = parser.parse_args()
    out = options.look or IMAGES
    out.mkdir(parents=True, exist_ok=True)
    scenes = [scene for scene in SCENES if (options.look or scene.readme) and scene.name in (options.only or NAMES)]
    with staged(scenes) as folder, served(ROOT / "app.py") as address, chromium() as browser:
        for scene in scenes:
            where = scene.path.replace("STAGED", str(folder)) if ":" in scene.path else address + scene.path
            for file, theme, width in images(scene, look=options.look is not None):
                taken = take(browser, where, scene, theme, width, whole=options.look is not None)
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
def staged(scenes: Sequence[Scene]) -> Iterator[Path]:
    """An empty home for runs, with small sweeps and a report where a scene needs them: nobody's own runs are to be
    seen. Yields the folder that holds it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sweeps = folder / "sweeps"
        os.environ.pop("MARS_VIZ_RUNS", None)
        os.environ.update({"XDG_DATA_HOME": str(folder / "data"), "MARS_VIZ_SWEEPS": str(sweeps)})
        os.environ["PYTHONPATH"] = str(ROOT)
        names = " ".join(scene.name for scene in scenes)
        swept = ["sweep", "--set", "builtin", "--limit", str(SWEPT)]
        if "tune-" in names or "sweep" in names:
            mars_viz(*swept, "--low", "0.5", "--out", sweeps / "builtin")
        if "compare-sweeps" in names:
            mars_viz(*swept, "--rule", "mars-margin", "--out", sweeps / "margin")
        if "tune-grid" in names:
            mars_viz(*swept, "--rule", "vllm-thinking", "--grid", "k=3,5,10", "--out", sweeps / "grid")
        if "report" in names:
            mars_viz("report", ROOT / "sample_runs" / "1-story-mars", "-o", folder / "report.html")
        if "site" in names:
            mars_viz("site", "-o", folder / "site")
        yield folder


def mars_viz(*arguments: str | Path) -> None:
    """Run the command."""
    command = [sys.executable, "-m", "mars_viz", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def take(browser: Browser, where: str, scene: Scene, theme: str, width: int, *, whole: bool) -> bytes:
    """One image, PNG. Raises where the browser meets a script error, or the page is wider than its window."""
    errors: list[str] = []
    window = {"width": width, "height": HEIGHTS[width]}
    page = browser.new_page(viewport=window, color_scheme=theme, reduced_motion="reduce")
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(PATIENCE)
    page.goto(where)
    settle(page, scene)
    scene.then(page)
    settle(page, scene)
    if whole:  # the page scrolls inside itself, so the window is made as high as it is
        high = page.evaluate(
            "(document.querySelector('[data-testid=stMain]') ?? document.documentElement).scrollHeight"
        )
        page.set_viewport_size({"width": width, "height": min(max(high, HEIGHTS[width]), TALLEST)})
        page.wait_for_timeout(700)
    overflow = page.evaluate("document.documentElement.scrollWidth") - width
    image = page.screenshot(animations="disabled", caret="hide")
    page.close()
    if errors or overflow > 0:
        raise SystemExit(f"{scene.name}, {theme}, {width} pixels: {errors or f'{overflow} pixels too wide'}")
    return image


def settle(page: Page, scene: Scene) -> None:
    """Wait until the script has run, nothing is a placeholder, and figures and fonts are drawn."""
    ready = "body" if ":" in scene.path else READY
    page.wait_for_selector(ready)
    page.wait_for_function(WAITING)
    page.wait_for_selector(scene.shows)
    page.wait_for_selector(ready)
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
