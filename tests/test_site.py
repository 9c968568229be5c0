"""A static site: opened from a folder without a network; a model's text stays text; files."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz import cli
from mars_viz.analysis.alignment import align_runs
from mars_viz.analysis.metrics import summary
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped
from mars_viz.run import Piece, Run
from mars_viz.runfiles import load_run, save_run, write_zip
from mars_viz.samples import RUNS
from mars_viz.site import LISTED, check_site_place, classic, named_runs, worded, write_site
from mars_viz.ui.lessons import LESSONS
from mars_viz.words import number
from tests.factories import toy_map, toy_run
from tests.test_explorer_controller import cut_run

SCRIPTED = "</title></script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
HOSTILE = {place: SCRIPTED.encode() for place in range(5, 12)} | {12: "\u202eevil".encode(), 13: b"\x00\x1b"}


def hostile_run() -> Run:
    run = toy_run(rule="mars", dial=0.9, gamma=4, pieces=HOSTILE)
    made, _ = toy_map(run.settings, 0.5, 1.0, gammas=(1, 4), pieces=HOSTILE)
    run = mapped(run, replace(made, frame=run.without_rounds))
    return replace(run, title=SCRIPTED, prompt=SCRIPTED, pieces=run.pieces | {0: Piece(b"<b>", special=True)})


@functools.cache
def sample(name: str) -> Run:
    return load_run(RUNS / name)


story, strict = (functools.partial(sample, name) for name in ("1-story-mars", "2-story-strict"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two sample runs and one that is hostile throughout."""
    runs = {"1-story-mars": story(), "2 Story/Strict": strict(), "<b>": hostile_run()}
    return write_site(runs, tmp_path_factory.mktemp("sites") / "site")


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Iterator[Callable[..., Page]]:
    """Opens a page; an error or a request for anything outside the site fails the test."""
    problems: list[str] = []
    with browser.new_context(viewport={"width": 1400, "height": 1000}, offline=True) as context:

        def open_page(address: str) -> Page:
            tab = context.new_page()
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
            tab.on("request", lambda made: problems.append(made.url) if made.url.startswith("http") else None)
            tab.goto(address)
            return tab

        yield open_page
    assert problems == []


def turned(tab: Page, run: Run, dial: float, gamma: int | None = None) -> None:
    """Expect the sentence of a setting."""
    expected = summary(run.dial_map.at(dial, gamma))
    said = f": {expected.rounds} target passes for {expected.tokens} tokens"
    expect(tab.locator(".sentence")).to_contain_text(said)


def turn(tab: Page, value: float) -> None:
    tab.locator(".box input").fill(str(value))
    tab.locator(".box input").press("Enter")
    expect(tab.locator(".thumb")).to_have_attribute("aria-valuenow", f"{value:g}")


def in_hash(tab: Page, part: str) -> None:
    tab.wait_for_function("part => location.hash.includes(part)", arg=part)


def test_a_folder_from_the_gallery_to_runs_and_comparisons(opened, folder: Path) -> None:
    base = folder.as_uri()
    tab = opened(f"{base}/index.html")
    tab.get_by_role("link", name=story().title).click()
    for dial in (1.0, 0.6):
        turn(tab, dial)
        turned(tab, story(), dial)
    in_hash(tab, "dial=0.6")
    tab.get_by_role("link", name="Compare with another run").click()
    expect(tab.locator("#finding")).to_contain_text("Same first")
    tab.go_back()
    turned(tab, story(), 0.6)
    tab.goto(f"{base}/runs/1-story-mars.html?dial=0.6&overlay=margin&selected=9&gamma=4")
    turned(tab, story(), 0.6, 4)
    for name in ("Margin", "4"):
        expect(tab.get_by_role("radio", name=name, exact=True)).to_be_checked()
    tab.goto(f"{base}/compare.html#reference=1-story-mars&shown=2-story-strict")
    expect(tab.locator("#finding")).to_contain_text(f"Same first {align_runs(story(), strict()).prefix} tokens")
    expect(tab.locator("#numbers tbody tr").first).to_contain_text(number(story().tau))
    for side, run in (("left", story()), ("right", strict())):
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


def test_lessons_embedded_runs_and_links(opened, folder: Path) -> None:
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
    tab.goto(f"{base}/lessons/4.html#dial=0.6")
    turned(tab, story(), 0.6)
    tab.goto(f"{base}/runs/1-story-mars.html#frame=2")
    expect(tab.locator(".stepper")).to_have_attribute("data-frame", "2")
    tab.goto(f"{base}/index.html")
    tab.goto(f"{base}/runs/1-story-mars.html#dial=7&overlay=%3Cb%3E&selected=x&gamma=99")
    turned(tab, story(), story().settings.dial)
    for name in ("dial", "overlay", "selected", "gamma"):
        expect(tab.locator("#complaint")).to_contain_text(f"The link’s {name} ")
    tab.evaluate("location.hash = 'dial=0.6&overlay=ratio'")
    turned(tab, story(), 0.6)
    tab.locator(".embed summary").click()
    course = folder / "course.html"
    course.write_text(f"<!DOCTYPE html><h1>Week 3</h1>{tab.locator('#snippet').inner_text()}", encoding="utf-8")
    tab.goto(f"{base}/course.html")
    course.unlink()
    frame = tab.frame_locator("iframe")
    turned(frame, story(), 0.6)
    frame.locator(".thumb").press("End")
    whole = frame.get_by_role("link", name="Open the whole page")
    expect(whole).to_have_attribute("href", re.compile(r"1-story-mars\.html#.*dial=1"))
    for page, place in (("index", ".cards"), ("runs/b", ".stream"), ("compare", ".pane.left .stream")):
        tab.goto(f"{base}/{page}.html#reference=b&shown=1-story-mars")
        expect(tab.locator(place).first).to_contain_text("</script><script>window.hacked=1</script>")
        if page == "runs/b":
            expect(tab.locator("h1")).to_have_text(SCRIPTED)
        assert tab.evaluate("window.hacked") is None and tab.locator("img[src=x]").count() == 0
    tab.set_viewport_size({"width": 375, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") == 375
    tab.emulate_media(color_scheme="dark")
    expect(tab.locator(".explorer").first).to_have_attribute("data-theme", "dark")


def test_lone_runs_thresholds_and_missing_data(opened, folder: Path) -> None:
    lone = write_site([replace(story(), map=None)], folder / "lone")
    address = f"{lone.as_uri()}/runs/{next(iter(named_runs([story()])))}.html"
    tab = opened(address)
    tab.locator(".stream .t:visible").first.click()
    tab.keyboard.press("End")
    last = story().rounds[-1].speculation
    logit = float(last.top_logits[len(last) - 1, 0])  # of the row that judges the last draft
    expect(tab.locator(".inspector").first).to_contain_text(number(logit))
    tab.goto(f"{lone.as_uri()}/compare.html")
    expect(tab.locator("main")).to_contain_text("one run alone")
    made = (run := cut_run("svip")).map
    tab.goto(f"{write_site({'cut': run}, folder / 'cut').as_uri()}/runs/cut.html#cuts=1&dial={made.span.high}")
    expect(tab.locator(".sentence")).to_contain_text(f": {len(made.at(made.span.high).rounds)} target pass")
    (missing := next((lone / "data").glob("*.js"))).unlink()
    with tab.context.browser.new_context(offline=True) as bare:
        tab = bare.new_page()
        tab.goto(address)
        expect(tab.locator("#failed")).to_contain_text(f"data/{missing.name}")
        tab.add_init_script("delete globalThis.DecompressionStream")
        tab.goto((folder / "compare.html").as_uri())
        expect(tab.locator("#failed")).to_contain_text("too old")


def test_the_lessons_words_leave_nothing_of_their_markdown() -> None:
    said = [words for lesson in LESSONS for words in (*lesson.text, lesson.question, lesson.answer)]
    shown = [re.sub(r"<[^>]*>", "", worded(words)) for words in said]
    assert not [words for words in shown if re.search(r"\*|`|\$|\\|\]\(|\{", words)]
    assert worded("<b> **x *y* z** `c`") == "&lt;b&gt; <strong>x <em>y</em> z</strong> <code>c</code>"
    assert "<sup>γ + 1</sup>) / ((1 − α)(γ c + 1))" in "".join(map(worded, LESSONS[0].text))
    assert worded("[a](javascript:alert)") == "[a](javascript:alert)"
    assert "export" not in classic("export default function f() {}\nexport const a = 1;\nexport class B {}\n")
    assert classic('const text = "x\\nexport default y";').count("export default") == 1


def test_no_page_may_load_what_is_not_in_the_site_and_lessons_without_a_run_are_left_out(folder: Path) -> None:
    assert {page.stem for page in (folder / "lessons").iterdir()} == {"1", "2", "4", "5", "6", "7"}
    for page in folder.rglob("*.html"):
        text = page.read_text("utf-8")
        assert text.index("Content-Security-Policy") < text.index("<script" if "<script" in text else "<body")
        assert "default-src 'none'; script-src 'self' file:;" in unescape(text)
        assert re.search(r"<script(?![^>]* src=)|\son[a-z]+=\"|https?://(?!arxiv|github)", text) is None, page


def test_names_are_safe_in_addresses_and_each_run_s_own() -> None:
    run = toy_run(rule="strict", max_new_tokens=4)
    names = list(named_runs({"../../A b": run, "a-b": run, "ä": run, "…": run, "x" * 300: run}))
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


def test_runs_of_all_kinds_are_written_and_only_a_site_of_ours_is_replaced(saved: Path, tmp_path: Path, capsys) -> None:
    out, file = tmp_path / "site", tmp_path / "file"
    (tmp_path / "three.zip").write_bytes(write_zip(load_run(saved / "one")))
    assert command(saved, saved / "one", tmp_path / "three.zip", "-o", out) == 0
    told = capsys.readouterr()
    assert "4 runs" in told.out and "Run 4 of 4" in told.err
    assert {page.stem for page in (out / "runs").iterdir()} == {"one", "two", "one-2", "three"}
    assert command(saved / "one", "-o", out) == 0 and not (out / "runs" / "two.html").exists()
    (out / "CNAME").write_text("example.org")
    capsys.readouterr()
    assert command(saved, "-o", out) == 2 and "holds CNAME" in capsys.readouterr().err
    assert command(saved, "-o", saved) == 2 and "is no site" in capsys.readouterr().err
    assert command(saved, "-o", out, "--force") == 0 and not (out / "CNAME").exists()
    file.write_text("mine")
    assert command(saved, "-o", file, "--force") == 2 and file.read_text() == "mine"


def test_what_ends_the_writing_leaves_the_old_site(saved: Path, tmp_path: Path, monkeypatch) -> None:
    out, rename = tmp_path / "site", Path.rename
    assert command(saved / "one", "-o", out) == 0
    before = (out / LISTED).read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def renamed(path: Path, to: Path) -> object:
        return full() if (path / LISTED).read_bytes() != before else rename(path, to)

    for place, name, broken in (("mars_viz.site", "pairs_file", full), ("pathlib.Path", "rename", renamed)):
        with monkeypatch.context() as patch:
            patch.setattr(f"{place}.{name}", broken)
            assert command(saved, "-o", out) == 2
    assert (out / LISTED).read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_bad_input_is_refused_and_nothing_is_written(saved: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    (saved / "two" / "nodes.parquet").write_bytes(b"PAR1 nonsense")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no zip")
    before, refused = sorted(tmp_path.iterdir()), {"nowhere": "No such file", "empty": "empty", "runs": "two"}
    refused |= {"runs/two": "nodes.parquet", "text.zip": "text.zip", "": "Name runs"}
    for place, words in refused.items():
        assert command(*([tmp_path / place] if place else []), "-o", tmp_path / "site") == 2
        error = capsys.readouterr().err
        assert words in error and len(error.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.chdir(saved)
    for place in (".", "..", tmp_path):
        with pytest.raises(BadInput, match="work in"):
            check_site_place(place, force=True)
