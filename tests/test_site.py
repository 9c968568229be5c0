"""A static site: opened from a folder and from a web host, without a network; a model's text stays text; files."""

from __future__ import annotations

import functools
import re
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
from playwright.sync_api import Browser, Page, expect

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
MOST_BYTES = 2_000_000  # until the first run is shown
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


@pytest.fixture
def opened(browser: Browser, folder: Path, hosted: str) -> Iterator[Callable[..., Page]]:
    """Opens a page; an error or a request for anything outside the site fails the test."""
    problems: list[str] = []
    places = (folder.as_uri(), hosted, "data:", "blob:")
    contexts = []

    def open_page(address: str, scheme: str = "light", width: int = 1400) -> Page:
        offline = address.startswith("file:")
        context = browser.new_context(viewport={"width": width, "height": 1000}, offline=offline, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        tab.on("request", lambda request: None if request.url.startswith(places) else problems.append(request.url))
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
    """Return a part of the sentence at a setting."""
    expected = summary(run.dial_map.at(dial, gamma))
    return f": {expected.rounds} target passes for {expected.tokens} tokens"


def in_hash(tab: Page, part: str) -> None:
    tab.wait_for_function("part => location.hash.includes(part)", arg=part)


SHIFTED = """() => new Promise((done) => {
  let sum = 0;
  const add = (list) => { for (const { value } of list.getEntries()) sum += value; };
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 400);
})"""


def test_a_hosted_site_from_the_gallery_to_runs_and_comparisons(opened, hosted: str, folder: Path) -> None:
    tab = opened(f"{hosted}/index.html")
    loaded = [tab.url]
    tab.on("request", lambda request: loaded.append(request.url))
    expect(tab.locator(".cards").first.locator("a")).to_have_count(3)
    tab.get_by_role("link", name=story().title).click()
    expect(tab.locator("#savings .main-svg").first).to_be_visible()
    paths = {urlsplit(url).path.lstrip("/") for url in loaded}
    assert {"index.html", "runs/1-story-mars.html", "data/1-story-mars.g6.js"} <= paths
    assert sum((folder / path).stat().st_size for path in paths if (folder / path).is_file()) < MOST_BYTES
    for dial in (0.6, 1.0):
        turn(tab, dial)
        expect(tab.locator(".sentence")).to_contain_text(says(story(), dial))
    expect(tab.locator("#savings .g-gtitle")).to_contain_text("no drafted token is spared")
    dial = 0.6
    turn(tab, dial)
    in_hash(tab, f"dial={dial}")
    tab.get_by_role("link", name="Compare with another run").click()
    expect(tab.locator("#finding")).to_contain_text("Same first")
    tab.go_back()
    expect(tab.locator(".sentence")).to_contain_text(says(story(), dial))
    tab.goto(f"{hosted}/runs/1-story-mars.html?dial=0.6&overlay=margin&selected=9&gamma=4")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6, 4))
    for name in ("Margin", "4"):
        expect(tab.get_by_role("radio", name=name, exact=True)).to_be_checked()
    expect(tab.locator(".stream [aria-selected=true], .stream .selected").first).to_be_visible()
    expect(tab.locator("#undrawn")).to_be_visible()  # figures are for the run's own draft length
    tab.goto(f"{hosted}/compare.html#reference=1-story-mars&shown=2-story-strict")
    expect(tab.locator("#finding")).to_contain_text(f"Same first {align_runs(story(), strict()).prefix} tokens")
    expect(tab.locator("#numbers tbody tr").first).to_contain_text(number(story().tau))
    for side, run in (("left", story()), ("right", strict())):
        expect(tab.locator(f".pane.{side} .detail")).to_contain_text(f"{len(run.token_ids)} tokens")
        written = tab.locator(f".pane.{side} .stream .t").evaluate_all(
            "tokens => tokens.filter((token) => token.getClientRects().length).map(({ textContent }) => textContent)"
        )
        assert "".join("".join(written).split()) == "".join(run.text.split())
    tab.get_by_role("button", name="Next difference").click()
    in_hash(tab, "token=")
    tab.get_by_role("button", name="Pin as reference").click()
    in_hash(tab, "reference=2-story-strict")
    tab.locator("#shown").select_option("b")
    tab.get_by_role("radio", name="Outcome").click()
    in_hash(tab, "colour=outcome")
    tab.reload()
    expect(tab.locator("#reference")).to_have_value("2-story-strict")
    expect(tab.locator("#shown")).to_have_value("b")
    expect(tab.get_by_role("radio", name="Outcome")).to_be_checked()


def test_a_folder_of_lessons_embedded_runs_and_links(opened, folder: Path) -> None:
    base = folder.as_uri()
    tab = opened(f"{base}/lessons/1.html")
    finding = tab.locator(".lesson-finding").first
    before = finding.inner_text()
    tab.get_by_role("slider", name="γ, draft length").focus()
    tab.keyboard.press("ArrowRight")
    expect(finding).not_to_have_text(before)
    in_hash(tab, "block=7")
    after = finding.inner_text()
    tab.reload()
    expect(finding).to_have_text(after)
    expect(tab.locator("#aside .main-svg").first).to_be_visible()
    tab.goto(f"{base}/lessons/2.html")
    tab.get_by_text("Watch the strict text step by step").click()
    expect(tab.locator(".stepper")).to_be_visible()  # a hidden element takes no focus
    tab.locator(".stepper").press("ArrowRight")
    in_hash(tab, "frame=1")
    tab.goto(f"{base}/lessons/4.html#dial=0.6")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6))
    assert tab.locator(".stream .t[class*=' c']").count() > 20  # coloured by the ratio
    tab.goto(f"{base}/runs/1-story-mars.html#frame=2")
    expect(tab.locator(".stepper")).to_have_attribute("data-frame", "2")
    tab.goto(f"{base}/index.html")
    tab.goto(f"{base}/runs/1-story-mars.html#dial=7&overlay=%3Cb%3E&selected=x&gamma=99")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), story().settings.dial))
    for name in ("dial", "overlay", "selected", "gamma"):
        expect(tab.locator("#complaint")).to_contain_text(f"The link’s {name} ")
    tab.evaluate("location.hash = 'dial=0.6&overlay=ratio'")
    expect(tab.locator(".sentence")).to_contain_text(says(story(), 0.6))
    tab.locator(".embed summary").click()
    course = folder / "course.html"
    course.write_text(f"<!DOCTYPE html><h1>Week 3</h1>{tab.locator('#snippet').inner_text()}", encoding="utf-8")
    tab.goto(f"{base}/course.html")
    course.unlink()
    frame = tab.frame_locator("iframe")
    expect(frame.locator(".sentence")).to_contain_text(says(story(), 0.6))
    for hidden in ("nav", "h1", "#figures", ".tiles", "footer"):
        expect(frame.locator(hidden).first).to_be_hidden()
    frame.locator(".thumb").press("End")
    whole = frame.get_by_role("link", name="Open the whole page")
    expect(whole).to_have_attribute("href", re.compile(r"1-story-mars\.html#.*dial=1"))
    for page, place in (("index", ".cards"), ("runs/b", ".stream"), ("compare", ".pane.left .stream")):
        tab.goto(f"{base}/{page}.html#reference=b&shown=1-story-mars")
        expect(tab.locator(place).first).to_contain_text("</script><script>window.hacked=1</script>")
        if page == "runs/b":
            expect(tab.locator("h1")).to_have_text(SCRIPTED)
            for token in tab.locator(".stream .t:visible").all()[:8]:
                token.click()
        assert tab.evaluate("window.hacked") is None and tab.locator("img[src=x]").count() == 0


def test_pages_fit_a_phone_and_follow_the_theme_without_a_shift(opened, folder: Path) -> None:
    for page, width, scheme in (
        ("index", 375, "dark"),
        ("runs/1-story-mars", 375, "light"),
        ("runs/1-story-mars", 1400, "dark"),
        ("compare", 375, "dark"),
        ("compare", 1400, "light"),
        ("lessons/6", 375, "light"),
    ):
        tab = opened(f"{folder.as_uri()}/{page}.html", scheme, width)
        expect(tab.locator("footer")).to_be_visible()
        assert page[0] not in "rc" or (page, width) == ("compare", 375) or tab.evaluate(SHIFTED) < 0.01
        if page != "index":
            expect(tab.locator(".explorer").first).to_have_attribute("data-theme", scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(18, 22, 28)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_long_runs_thresholds_lone_runs_and_missing_data(opened, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(run_pages, "WHOLE", 10)
    for module in ("mars_viz.components.explorer.payload", "mars_viz.site.run_pages"):
        monkeypatch.setattr(f"{module}.WINDOW", 5)
    long = write_site([replace(story(), dial_map=None)], folder / "long")
    address = f"{long.as_uri()}/runs/{named_runs([story()])[0].name}.html"
    tab = opened(address)
    expect(tab.locator(".stream .t:visible").first).to_be_visible()
    tab.locator(".stream .t:visible").first.click()
    tab.keyboard.press("End")
    expect(tab.locator(".inspector .law").first).to_contain_text("prob.")
    last = story().rounds[-1].speculation
    logit = float(last.top_logits[len(last) - 1, 0])  # of the row that judges the last draft
    expect(tab.locator(".inspector").first).to_contain_text(number(logit))
    windows = sorted((long / "data").glob("*.w*.js"))
    assert len(windows) == -(-len(story().rounds) // 5)
    tab.goto(f"{long.as_uri()}/compare.html")
    expect(tab.locator("main")).to_contain_text("one run alone")
    made = (run := cut_run("svip")).controller_map
    tab.goto(f"{write_site({'cut': run}, folder / 'cut').as_uri()}/runs/cut.html")
    tab.get_by_role("button", name="of the controller").click()
    turn(tab, made.span.high)
    expect(tab.locator(".sentence")).to_contain_text(f": {len(made.at(made.span.high).rounds)} target pass")
    in_hash(tab, "cuts=1")
    tab.reload()
    expect(tab.locator(".thumb")).to_have_attribute("aria-valuenow", f"{made.span.high:g}")
    tab.get_by_role("button", name="of the rule").click()
    expect(tab.locator("#savings .main-svg").first).to_be_visible()
    (missing := next(file for file in (long / "data").glob("*.js") if file not in windows)).unlink()
    bare = tab.context.browser.new_context(offline=True)
    tab = bare.new_page()
    tab.goto(address)
    expect(tab.locator("#failed")).to_contain_text(f"data/{missing.name}")
    tab.add_init_script("delete globalThis.DecompressionStream")
    tab.goto((folder / "compare.html").as_uri())
    expect(tab.locator("#failed")).to_contain_text("too old")
    bare.close()


def test_lessons_that_no_run_serves_are_left_out(folder: Path) -> None:
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


def test_no_page_may_load_what_is_not_in_the_site(folder: Path) -> None:
    pages = list(folder.rglob("*.html"))
    assert len(pages) >= 5
    for page in pages:
        text = page.read_text("utf-8")
        assert text.index("Content-Security-Policy") < text.index("<script" if "<script" in text else "<body")
        assert "default-src 'none'; script-src 'self' file:;" in unescape(text)
        assert re.search(r"<script(?![^>]* src=)|\son[a-z]+=\"|https?://(?!arxiv|github)", text) is None, page


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


def test_bad_input_is_refused_and_nothing_is_written(saved: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    (saved / "two" / "nodes.parquet").write_bytes(b"PAR1 nonsense")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no zip")
    before = sorted(tmp_path.iterdir())
    for places, words in (
        (["nowhere"], "does not exist"),
        (["empty"], "empty"),
        (["runs"], "two"),
        (["runs/two"], "nodes.parquet"),
        (["text.zip"], "text.zip"),
        ([], "Name runs"),
    ):
        assert command(*(tmp_path / place for place in places), "-o", tmp_path / "site") == 2
        error = capsys.readouterr().err
        assert words in error and len(error.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.chdir(saved)
    for place in (".", "..", tmp_path):
        for force in (False, True):
            with pytest.raises(BadInput, match="work in"):
                check_site_place(place, force=force)
