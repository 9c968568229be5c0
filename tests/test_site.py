"""A static site: opened from a folder and from a web host, without a network; a model's text stays text; files."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from mars_viz import cli
from mars_viz.analysis.alignment import align_runs
from mars_viz.analysis.metrics import summary
from mars_viz.errors import BadInput
from mars_viz.run import Piece, Run
from mars_viz.run_with_map import mapped
from mars_viz.runfiles import load_run, save_run, write_zip
from mars_viz.site import check_site_place, named_runs, run_pages, write_site
from mars_viz.site.files import LISTED, classic
from mars_viz.site.lesson_pages import worded
from mars_viz.ui.lessons import LESSONS
from mars_viz.words import number
from tests.factories import toy_map, toy_run
from tests.served import PATIENCE
from tests.test_explorer_controller import cut_run

SAMPLES = Path(__file__).parent.parent / "sample_runs"
MOST_BYTES = 2_000_000
"""Until the first run is seen."""
SCRIPTED = "</title></script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
HOSTILE = {place: SCRIPTED.encode() for place in range(5, 12)} | {12: "\u202eevil".encode(), 13: b"\x00\x1b"}


def hostile_run() -> Run:
    run = toy_run(rule="mars", dial=0.9, gamma=4, pieces=HOSTILE)
    made, _ = toy_map(run.settings, 0.5, 1.0, gammas=(1, 4), pieces=HOSTILE)
    run = mapped(run, replace(made, frame=run.without_rounds))
    return replace(run, title=SCRIPTED, prompt=SCRIPTED, pieces=run.pieces | {0: Piece(b"<b>", special=True)})


@functools.cache
def story() -> Run:
    return load_run(SAMPLES / "1-story-mars")


@functools.cache
def strict() -> Run:
    return load_run(SAMPLES / "2-story-strict")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two sample runs and one that is hostile throughout."""
    runs = {"1-story-mars": story(), "2 Story/Strict": strict(), "<b>": hostile_run()}
    return write_site(runs, tmp_path_factory.mktemp("sites") / "site")


@pytest.fixture(scope="module")
def hosted(folder: Path) -> Iterator[str]:
    """The site's address on Python's own web host."""
    command = [sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={"PYTHONUNBUFFERED": "1"})
    assert host.stdout is not None
    port = re.search(rb"port (\d+)", host.stdout.readline())[1].decode()
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    host.terminate()
    host.wait()
    host.stdout.close()


@pytest.fixture(params=["folder", "host"])
def base(request: pytest.FixtureRequest, folder: Path, hosted: str) -> str:
    """Where the site is opened from."""
    return folder.as_uri() if request.param == "folder" else hosted


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, folder: Path, hosted: str) -> Iterator[Opened]:
    """Opens a page; an error, or a wish for anything outside the site, fails the test."""
    problems: list[str] = []
    places = (folder.as_uri(), hosted, "data:", "blob:")
    contexts = []

    def open_page(address: str, scheme: str = "light", width: int = 1400) -> Page:
        offline = address.startswith("file:")
        context = browser.new_context(viewport={"width": width, "height": 1000}, offline=offline, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        tab.on("request", lambda asked: None if asked.url.startswith(places) else problems.append(asked.url))
        tab.goto(address)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert [each for each in problems if "favicon" not in each and "404" not in each] == []


def turn(tab: Page, value: float) -> None:
    tab.locator(".box input").fill(str(value))
    tab.locator(".box input").press("Enter")
    expect(tab.locator(".thumb")).to_have_attribute("aria-valuenow", f"{value:g}")


def says(run: Run, dial: float, gamma: int | None = None) -> str:
    """What the sentence of a setting has in it."""
    expected = summary(run.dial_map.at(dial, gamma))
    return f": {expected.rounds} target passes for {expected.tokens} tokens"


def seen(tab: Page) -> Locator:
    first = tab.locator(".stream .t:visible").first
    expect(first).to_be_visible()
    return first


# ---- runs


def test_the_gallery_leads_to_a_run_whose_dial_shows_what_each_setting_writes(
    opened: Opened, base: str, folder: Path
) -> None:
    tab = opened(f"{base}/index.html")
    loaded = [tab.url]
    tab.on("request", lambda asked: loaded.append(asked.url))
    expect(tab.locator(".cards").first.locator("a")).to_have_count(3)
    tab.get_by_role("link", name=story().title).click()
    seen(tab)
    paths = {urlsplit(url).path.removeprefix(urlsplit(base).path).lstrip("/") for url in loaded}
    assert {"index.html", "runs/1-story-mars.html", "data/1-story-mars.g6.js"} <= paths
    sizes = {path: (folder / path).stat().st_size for path in paths if (folder / path).is_file()}
    assert sum(sizes.values()) < MOST_BYTES
    for dial in (0.6, 0.95, 1.0):
        turn(tab, dial)
        expect(tab.locator(".sentence")).to_contain_text(says(story(), dial))
    expect(tab.locator("#savings .g-gtitle")).to_contain_text("no drafted token is spared")  # the figures follow
    expect(tab.locator("#heat_map .main-svg").first).to_be_visible()


def test_the_hand_drags_the_dial_and_the_address_keeps_where_it_rests(opened: Opened, folder: Path) -> None:
    base = folder.as_uri()
    tab = opened(f"{base}/runs/1-story-mars.html")
    seen(tab)
    lane, thumb = tab.locator(".lane").bounding_box(), tab.locator(".thumb").bounding_box()
    assert lane is not None and thumb is not None
    y = thumb["y"] + thumb["height"] / 2
    tab.mouse.move(thumb["x"] + thumb["width"] / 2, y)
    tab.mouse.down()
    tab.mouse.move(lane["x"] + lane["width"] * 0.6, y, steps=4)
    stands = float(tab.locator(".thumb").get_attribute("aria-valuenow") or "nan")
    assert stands == pytest.approx(0.6, abs=0.01)
    expect(tab.locator(".sentence")).to_contain_text(says(story(), stands))  # while it is held
    tab.mouse.up()
    tab.wait_for_function(
        "dial => new URLSearchParams(location.hash.slice(1)).get('dial') === String(dial)", arg=stands
    )


@pytest.mark.parametrize("sign", ["#", "?"])
def test_a_link_carries_the_view_as_the_app_s_links_do(opened: Opened, folder: Path, hosted: str, sign: str) -> None:
    base = folder.as_uri() if sign == "#" else hosted
    tab = opened(f"{base}/runs/1-story-mars.html{sign}dial=0.6&overlay=margin&selected=9&gamma=4")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6, 4))
    expect(tab.locator(".thumb")).to_have_attribute("aria-valuenow", "0.6")
    expect(tab.get_by_role("radio", name="Margin")).to_be_checked()
    expect(tab.get_by_role("radio", name="4", exact=True)).to_be_checked()
    expect(tab.locator(".stream [aria-selected=true], .stream .selected").first).to_be_visible()
    expect(tab.locator("#undrawn")).to_be_visible()  # figures are of the run's own draft length
    tab.get_by_role("radio", name="6", exact=True).click()
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6))
    expect(tab.locator("#savings .main-svg").first).to_be_visible()
    tab.evaluate("location.hash = 'dial=0.95'")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.95))


def test_what_a_link_asks_for_in_vain_is_said(opened: Opened, folder: Path) -> None:
    tab = opened(f"{folder.as_uri()}/runs/1-story-mars.html#dial=7&overlay=%3Cb%3E&selected=x&gamma=99")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), story().settings.dial or 0))
    for name in ("dial", "overlay", "selected", "gamma"):
        expect(tab.locator("#complaint")).to_contain_text(f"The link’s {name} cannot be shown")


def test_back_and_forth(opened: Opened, folder: Path) -> None:
    base = folder.as_uri()
    tab = opened(f"{base}/index.html")
    tab.get_by_role("link", name=story().title).click()
    seen(tab)
    turn(tab, 0.6)
    tab.wait_for_function("() => location.hash.includes('dial=0.6')")
    tab.get_by_role("link", name="Compare with another run").click()
    expect(tab.locator("#finding")).to_contain_text("Same first")
    tab.go_back()
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6))
    tab.go_back()
    expect(tab.locator(".cards").first).to_be_visible()
    tab.go_forward()
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6))


def test_the_evidence_of_a_long_run_comes_when_a_token_is_looked_at(
    opened: Opened, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_pages, "WHOLE", 10)
    monkeypatch.setattr("mars_viz.components.explorer.payload.WINDOW", 5)
    monkeypatch.setattr(run_pages, "WINDOW", 5)
    monkeypatch.setattr("mars_viz.components.explorer.payload.WINDOW", 5)
    there = write_site([replace(story(), dial_map=None)], folder / "long")
    tab = opened(f"{there.as_uri()}/runs/{named_runs([story()])[0].name}.html")
    seen(tab)
    tab.locator(".stream .t:visible").last.click()
    last = story().rounds[-1].speculation
    expect(tab.locator(".inspector .law").first).to_contain_text("prob.")
    expect(tab.locator(".inspector").first).to_contain_text(number(float(last.top_logits[0, 0])))
    assert len(list((there / "data").glob("*.w*.js"))) == -(-len(story().rounds) // 5)


def test_a_controller_s_threshold_is_turned_as_well(opened: Opened, folder: Path) -> None:
    run = cut_run("svip")
    write_site({"cut": run}, folder / "cut")
    page = (folder / "cut" / "runs" / "cut.html").as_uri()
    tab = opened(page)
    seen(tab)
    tab.get_by_role("button", name="of the controller").click()
    made = run.controller_map
    expect(tab.locator(".sentence")).to_contain_text("drafted")
    turn(tab, made.span.high)
    expect(tab.locator(".sentence")).to_contain_text(f": {len(made.at(made.span.high).rounds)} target pass")
    tab.wait_for_function("() => location.hash.includes('cuts=1')")
    tab.reload()
    expect(tab.locator(".thumb")).to_have_attribute("aria-valuenow", f"{made.span.high:g}")
    tab.get_by_role("button", name="of the rule").click()
    expect(tab.locator("#savings .main-svg").first).to_be_visible()


# ---- comparisons


def test_any_two_runs_are_compared(opened: Opened, base: str) -> None:
    tab = opened(f"{base}/compare.html#reference=1-story-mars&shown=2-story-strict")
    found = align_runs(story(), strict())
    expect(tab.locator("#finding")).to_contain_text(f"Same first {found.prefix} tokens")
    expect(tab.locator("#numbers tbody tr").first).to_contain_text(number(story().tau))
    texts = [tab.locator(f".pane.{side} .stream").inner_text() for side in ("left", "right")]
    assert texts[0] != texts[1]
    tab.get_by_role("button", name="Next difference").click()
    tab.wait_for_function("() => location.hash.includes('token=')")
    tab.get_by_role("button", name="Pin as reference").click()
    expect(tab.locator("#reference")).to_have_value("2-story-strict")
    tab.wait_for_function("() => location.hash.includes('reference=2-story-strict')")
    tab.locator("#shown").select_option("b")
    expect(tab.locator("#finding")).to_contain_text("They continue different prompts")
    tab.get_by_role("radio", name="Outcome").click()
    tab.wait_for_function("() => location.hash.includes('colour=outcome')")
    tab.reload()
    expect(tab.locator("#shown")).to_have_value("b")
    expect(tab.get_by_role("radio", name="Outcome")).to_be_checked()


def test_both_texts_of_a_pair_are_those_of_the_runs(opened: Opened, folder: Path) -> None:
    """The panes are read from what the runs' own pages load, dial maps and all."""
    tab = opened(f"{folder.as_uri()}/compare.html#reference=2-story-strict&shown=1-story-mars")
    for side, run in (("left", strict()), ("right", story())):
        expect(tab.locator(f".pane.{side} .detail")).to_contain_text(f"{len(run.token_ids)} tokens")
        written = tab.locator(f".pane.{side} .stream .t").evaluate_all(
            "tokens => tokens.filter((token) => token.getClientRects().length).map(({ textContent }) => textContent)"
        )
        assert "".join("".join(written).split()) == "".join(run.text.split())


# ---- lessons


def test_a_lesson_follows_the_hand_and_its_link_opens_it_there(opened: Opened, base: str) -> None:
    tab = opened(f"{base}/index.html")
    tab.get_by_role("link", name="1 · Why drafting pays").click()
    knob = tab.get_by_role("slider", name="γ, draft length")
    said = tab.locator(".lesson-finding").first
    expect(said).to_contain_text("A target pass yields")
    before = said.inner_text()
    knob.focus()
    tab.keyboard.press("ArrowRight")
    expect(said).not_to_have_text(before)
    tab.wait_for_function("() => location.hash.includes('block=7')")
    after = said.inner_text()
    tab.reload()
    expect(tab.locator(".lesson-finding").first).to_have_text(after)
    expect(tab.locator("#aside .main-svg").first).to_be_visible()  # what a pass costs
    tab.locator(".question summary").click()
    expect(tab.locator(".question")).to_contain_text("has probability α^γ")


def test_the_lesson_on_mars_is_the_explorer(opened: Opened, folder: Path) -> None:
    tab = opened(f"{folder.as_uri()}/lessons/4.html#dial=0.6")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6))
    assert tab.locator(".stream .t[class*=' c']").count() > 20  # by the ratio


def test_a_run_is_watched_step_by_step(opened: Opened, folder: Path) -> None:
    base = folder.as_uri()
    tab = opened(f"{base}/lessons/2.html")
    tab.get_by_text("Watch the strict text step by step").click()
    stepper = tab.locator(".stepper")
    expect(stepper).to_have_attribute("data-frame", "0")
    stepper.focus()
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    tab.wait_for_function("() => location.hash.includes('frame=3')")
    tab.reload()
    expect(tab.locator(".stepper")).to_have_attribute("data-frame", "3")
    tab.goto(f"{base}/runs/1-story-mars.html#frame=2")
    expect(tab.locator(".stepper")).to_have_attribute("data-frame", "2")


def test_lessons_that_no_run_serves_are_left_out(folder: Path) -> None:
    """No run of this site is sampled but for the third lesson's."""
    pages = {page.stem for page in (folder / "lessons").iterdir()}
    assert pages == {"1", "2", "4", "5", "6", "7"}
    assert "lessons/3.html" not in (folder / "index.html").read_text("utf-8")


def test_the_lessons_words_leave_nothing_of_their_markdown() -> None:
    said = [words for lesson in LESSONS for words in (*lesson.text, lesson.question, lesson.answer)]
    shown = [re.sub(r"<[^>]*>", "", worded(words)) for words in said]
    assert not [words for words in shown if re.search(r"\*|`|\$|\\|\]\(|\{", words)]
    assert worded("<b> **x *y* z** `c`") == "&lt;b&gt; <strong>x <em>y</em> z</strong> <code>c</code>"
    assert "<sup>γ + 1</sup>) / ((1 − α)(γ c + 1))" in "".join(map(worded, LESSONS[0].text))
    assert worded("[a](javascript:alert)") == "[a](javascript:alert)"


# ---- what models wrote


@pytest.mark.parametrize("page", ["index.html", "runs/b.html", "compare.html#reference=b&shown=1-story-mars"])
def test_text_of_a_model_stays_text(opened: Opened, folder: Path, page: str) -> None:
    tab = opened(f"{folder.as_uri()}/{page}")
    place = tab.locator({"i": ".cards", "r": ".stream", "c": ".pane.left .stream"}[page[0]]).first
    expect(place).to_contain_text("</script><script>window.hacked=1</script>")
    if page[0] == "r":
        expect(tab.locator("h1")).to_have_text(SCRIPTED)
        assert SCRIPTED in tab.title()
        for token in tab.locator(".stream .t:visible").all()[:8]:
            token.click()
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img[src=x]").count() == 0


def test_no_page_may_load_what_is_not_in_the_site(folder: Path) -> None:
    pages = list(folder.rglob("*.html"))
    assert len(pages) >= 5
    for page in pages:
        text = page.read_text("utf-8")
        assert text.index("Content-Security-Policy") < text.index("<script" if "<script" in text else "<body")
        assert "default-src 'none'; script-src 'self' file:;" in unescape(text)
        assert re.search(r"<script(?![^>]* src=)|\son[a-z]+=\"|https?://(?!arxiv|github)", text) is None, page


# ---- in other pages


def test_a_run_is_embedded_in_a_course_page(opened: Opened, base: str, folder: Path) -> None:
    tab = opened(f"{base}/runs/1-story-mars.html#dial=0.6&overlay=ratio")
    seen(tab)
    tab.locator(".embed summary").click()
    snippet = tab.locator("#snippet").inner_text()
    course = folder / "course.html"
    course.write_text(f"<!DOCTYPE html><h1>Week 3</h1>{snippet}", encoding="utf-8")
    tab.goto(f"{base}/course.html")
    frame = tab.frame_locator("iframe")
    expect(frame.locator(".sentence")).to_contain_text(says(story(), 0.6))
    for hidden in ("nav", "h1", "#figures", ".tiles", "footer"):
        expect(frame.locator(hidden).first).to_be_hidden()
    thumb = frame.locator(".thumb")
    thumb.focus()
    thumb.press("End")
    expect(frame.locator(".sentence")).to_contain_text(says(story(), 1.0))
    whole = frame.get_by_role("link", name="Open the whole page")
    expect(whole).to_have_attribute("href", re.compile(r"1-story-mars\.html#.*dial=1"))
    course.unlink()


@pytest.mark.parametrize(("width", "scheme"), [(375, "light"), (1400, "dark")])
@pytest.mark.parametrize("page", ["index.html", "runs/1-story-mars.html", "compare.html", "lessons/6.html"])
def test_pages_fit_the_screen_and_follow_the_theme(
    opened: Opened, folder: Path, page: str, width: int, scheme: str
) -> None:
    tab = opened(f"{folder.as_uri()}/{page}", scheme, width)
    if page != "index.html":
        expect(tab.locator(".explorer").first).to_have_attribute("data-theme", scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 28)" if scheme == "dark" else "rgb(255, 255, 255)")


SHIFTED = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const { value } of list.getEntries()) sum += value; }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 400);
})"""  # noqa: E501


@pytest.mark.parametrize(
    ("page", "width"), [("runs/1-story-mars.html", 375), ("runs/1-story-mars.html", 1400), ("compare.html", 1400)]
)
def test_nothing_is_seen_to_move_while_a_page_opens(opened: Opened, folder: Path, page: str, width: int) -> None:
    tab = opened(f"{folder.as_uri()}/{page}", width=width)
    expect(tab.locator("footer")).to_be_visible()
    assert tab.evaluate(SHIFTED) < 0.01


def test_a_page_that_lacks_its_data_says_so(browser: Browser, folder: Path, tmp_path: Path) -> None:
    copied = tmp_path / "site"
    shutil.copytree(folder, copied)
    for file in (copied / "data").glob("1-story-mars.g6.js"):
        file.unlink()
    with browser.new_context(offline=True) as context:
        tab = context.new_page()
        tab.goto((copied / "runs/1-story-mars.html").as_uri())
        expect(tab.locator("#failed")).to_contain_text("data/1-story-mars.g6.js could not be loaded")
        expect(tab.locator("footer")).to_be_visible()


def test_a_browser_that_cannot_unpack_says_so(browser: Browser, folder: Path) -> None:
    with browser.new_context(offline=True) as context:
        tab = context.new_page()
        tab.add_init_script("delete globalThis.DecompressionStream")
        tab.goto((folder / "compare.html").as_uri())
        expect(tab.locator("#failed")).to_contain_text("This browser is too old")


# ---- files


def test_scripts_of_a_site_are_no_modules() -> None:
    assert "export" not in classic("export default function f() {}\nexport const a = 1;\nexport class B {}\n")
    assert classic('const text = "x\\nexport default y";').count("export default") == 1


def test_names_are_safe_in_addresses_and_each_run_s_own() -> None:
    run = toy_run(rule="strict", max_new_tokens=4)
    names = [one.name for one in named_runs({"../../A b": run, "a-b": run, "ä": run, "…": run, "x" * 300: run})]
    assert names == ["a-b", "a-b-2", "run", "run-2", "x" * 60]
    with pytest.raises(BadInput, match="no runs"):
        named_runs([])
    with pytest.raises(BadInput, match="at most 200"):
        named_runs([run] * 201)


def command(*arguments: object) -> int:
    return cli.main(["site", *map(str, arguments)])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder of two runs."""
    for name in ("one", "two"):
        save_run(toy_run(rule="strict", max_new_tokens=8), tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_runs_are_folders_zips_and_folders_of_runs(saved: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "three.zip").write_bytes(write_zip(load_run(saved / "one")))
    out = tmp_path / "site"
    assert command(saved, saved / "one", tmp_path / "three.zip", "-o", out) == 0
    told = capsys.readouterr()
    assert "4 runs" in told.out and "Run 4 of 4" in told.err
    names = {page.stem for page in (out / "runs").iterdir()}
    assert names == {"one", "two", "one-2", "three"}


def test_a_lone_run_has_nothing_to_be_compared_with(opened: Opened, saved: Path, folder: Path) -> None:
    assert command(saved / "one", "-o", folder / "alone") == 0
    tab = opened((folder / "alone" / "compare.html").as_uri())
    expect(tab.locator("main")).to_contain_text("one run alone")


def spoiled(saved: Path, tmp_path: Path) -> dict[str, tuple[Path, str]]:
    (saved / "two" / "nodes.parquet").write_bytes(b"PAR1 nonsense")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no zip")
    return {
        "nowhere": (tmp_path / "nowhere", "does not exist"),
        "no runs": (tmp_path / "empty", "holds no run"),
        "one of them damaged": (saved, "leave two out"),
        "damaged": (saved / "two", "nodes.parquet"),
        "no zip": (tmp_path / "text.zip", "text.zip"),
    }


@pytest.mark.parametrize("case", ["nowhere", "no runs", "one of them damaged", "damaged", "no zip"])
def test_bad_runs_are_refused_and_nothing_is_written(saved: Path, tmp_path: Path, capsys, case: str) -> None:
    place, words = spoiled(saved, tmp_path)[case]
    before = sorted(tmp_path.iterdir())
    assert command(place, "-o", tmp_path / "site") == 2
    told = capsys.readouterr().err
    assert words in told and len(told.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_only_a_site_of_ours_is_replaced_or_what_is_forced(saved: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "site"
    out.mkdir()
    (out / "CNAME").write_text("example.org")
    assert command(saved, "-o", out) == 2 and "is no site" in capsys.readouterr().err
    assert command(saved, "-o", out, "--force") == 0 and not (out / "CNAME").exists()
    assert command(saved / "one", "-o", out) == 0
    assert not (out / "runs" / "two.html").exists()
    (out / "CNAME").write_text("example.org")
    capsys.readouterr()
    assert command(saved, "-o", out) == 2 and "holds CNAME" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert command(saved, "-o", tmp_path / "file", "--force") == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_without_samples_the_runs_have_to_be_named(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    assert command("-o", tmp_path / "site") == 2
    assert "Name runs" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("force", [False, True])
def test_the_folder_that_one_works_in_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    (tmp_path / "work" / "inside").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "inside")
    for place in (".", "..", tmp_path):
        with pytest.raises(BadInput, match="work in"):
            check_site_place(place, force=force)


def test_what_ends_the_writing_leaves_the_old_site(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "site"
    assert command(saved / "one", "-o", out) == 0
    before = (out / LISTED).read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("mars_viz.site.files.pairs_file", full)
        assert command(saved, "-o", out) == 2
    with monkeypatch.context() as broken:
        rename = Path.rename
        broken.setattr(
            Path, "rename", lambda path, to: full() if (path / LISTED).read_bytes() != before else rename(path, to)
        )
        assert command(saved, "-o", out) == 2
    assert (out / LISTED).read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
