"""A run as one HTML file: what is packed comes out again, it works offline, and a model's text stays text."""

from __future__ import annotations

import gzip
import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from streamlit.testing.v1 import AppTest

from mars_viz import cli
from mars_viz.analysis.metrics import positions, summary
from mars_viz.components.explorer.payload import packed, run_payload
from mars_viz.documents import Block, Code, Section, Sentence, Table, lines, markdown
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped
from mars_viz.exploration import shown as shown_at
from mars_viz.figures import ALONG_THE_DIAL, LIGHT
from mars_viz.report import check_place, file_name, report_html, write_report
from mars_viz.report.page import settings_drawn
from mars_viz.run import Run
from mars_viz.ui.documents import NARROW
from tests.factories import toy_map, toy_run


def mapped_toy(**asked: object) -> Run:
    run = toy_run(rule="mars", dial=0.9, gamma=4, **asked)
    made, _ = toy_map(run.settings, 0.5, 1.0, gammas=(1, 2, 4))
    return mapped(run, replace(made, frame=run.without_rounds))


def test_a_report_carries_the_explorer_s_own_payload() -> None:
    for run in (mapped_toy(), toy_run(rule="strict")):
        text = re.search(r'id="run">([^<]*)<', report_html(run, most_steps=0))[1]
        head, _, data = gzip.decompress(b64decode(text)).partition(b"\n")
        expected = packed({"payload": run_payload(run)})
        assert json.loads(head)["payload"] == json.loads(json.dumps(expected.head))["payload"]
        assert data == expected.data.tobytes()


def test_figures_stand_for_their_segment() -> None:
    run = mapped_toy()
    drawn, lows = settings_drawn(run, 4), {each.low for each in run.dial_map.segments_for(4)}
    assert lows | {0.9} <= {dial for dial, *_ in drawn} and settings_drawn(toy_run(rule="strict"), 6)[0][0] is None
    for dial, low, _ in drawn:
        assert low == (run.dial_map.segment(dial, 4).low if dial >= run.dial_map.span.low else -np.inf)


def test_nothing_is_fetched_only_known_scripts_run_and_a_model_s_text_is_nowhere_in_the_html() -> None:
    run = toy_run(pieces={i: b"</script><b>zebra</b>" for i in range(32)})
    html = report_html(replace(run, title="<script>alert(1)</script> zebra", prompt="zebra"), most_steps=0)
    assert html.count("zebra") == html.count("&lt;script&gt;alert(1)&lt;/script&gt; zebra") == 2  # the title, escaped
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1])
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    markup = re.sub(r"<script[^>]*>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=|url\(|@import", markup)
    assert html.count("<script") == html.count("</script>") == 5
    assert "<!--" not in html  # within a script it would hide the end of it
    scripts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", html, re.DOTALL)
    known = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(scripts) == 2 and all(f"'sha256-{digest}'" in policy for digest in known)


def test_facts_and_citations_are_in_the_report() -> None:
    run, device = mapped_toy(seed=3), 'Intel(R) "<b>" CPU @ 2.00GHz, 8 threads'
    made = {"target": "a/b<i>", "target_revision": "0123456789abcdef", "versions": {"torch": "9.9"}, "device": device}
    html = report_html(replace(run, provenance=replace(run.provenance, **made)), gamma=2, most_steps=0)
    shown = ("a/b&lt;i&gt; @ 0123456789abcdef", "torch 9.9", "θ = 0.90", "γ = 2 (recorded with γ = 4)", "song2026mars")
    shown += ("marsviz", "Intel(R) &quot;&lt;b&gt;&quot; CPU @ 2.00GHz, 8 threads<")
    assert [fact for fact in shown if fact not in html] == []


def test_file_names_are_plain_and_have_the_exact_setting() -> None:
    after, toy = math.nextafter(0.9853, 1), toy_run()
    for run, title, asked, name in (
        (toy, "../../A <b>Störy</b> at θ = 0.90!", (), "a-b-st-ry-b-at-0-9"),
        (toy, "θθ", (), "run-at-0-9"),
        (toy_run(rule="strict"), "A story", (), "a-story"),
        (toy_run(rule="cascade-opt", dial=-0.25), "A story", (), "a-story-at-minus-0-25"),
        (toy, "A story, MARS at θ = 0.9, greedy", (0.9853, 1), "a-story-mars-greedy-at-0-9853-gamma-1"),
        (toy, "A story", (after,), f"a-story-at-{after}".replace(".", "-")),
    ):
        assert file_name(replace(run, title=title, prompt=""), *asked) == name


def test_bad_input_writes_nothing(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    toy_run(rule="strict").save(Path("run"))
    (toy_run(rule="strict").save(Path("damaged")) / "nodes.parquet").write_bytes(b"PAR1 nonsense")
    Path("mine.html").write_text("<p>mine</p>")
    for arguments, words in (
        ("nowhere -o r.html", "nowhere"),
        ("damaged -o r.html", "nodes.parquet"),
        ("run -o .", "is a folder"),
        ("run -o away/r.html", "does not exist"),
        ("run -o mine.html", "--force"),
        ("run -o r.html --gamma 3", "γ = 3"),
        ("run -o r.html --gamma 0", "γ = 0"),
        ("run -o r.html --dial 0.5", "dial"),
    ):
        assert cli.main(["report", *arguments.split()]) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "mine.html", "run"]
    assert Path("mine.html").read_text() == "<p>mine</p>"


def test_the_command_replaces_its_own_reports_and_others_by_force(tmp_path, capsys, monkeypatch) -> None:
    out, other = tmp_path / "r.html", tmp_path / "notes.html"
    saved = toy_run(rule="strict").save(tmp_path / "run")
    for _ in range(2):
        assert cli.main(["report", str(saved), "-o", str(out)]) == 0 and "Wrote" in capsys.readouterr().out
        assert out.read_text("utf-8").startswith("<!DOCTYPE html>")
    other.write_text("<p>mine</p>")
    with pytest.raises(BadInput, match="--force"):
        check_place(other)
    assert write_report("new", other, force=True).read_text() == "new"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadInput, match="No space left"):
        write_report("newer", other, force=True)
    assert other.read_text() == "new" and len(list(tmp_path.iterdir())) == 3


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a report from disk; an error or a request fails the test."""
    problems: list[str] = []
    with browser.new_context(viewport={"width": 1400, "height": 1000}, offline=True) as context:

        def open_report(run: Run, **asked: object) -> Page:
            path = write_report(report_html(run, **asked), tmp_path / "report.html")
            tab = context.new_page()
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
            tab.on("request", lambda request: problems.append(request.url) if "http" in request.url[:5] else None)
            tab.goto(path.as_uri())
            tab.wait_for_selector("#savings .main-svg")
            return tab

        yield open_report
    assert problems == []


def turn(tab: Page, value: float) -> None:
    tab.locator(".box input").fill(str(value))
    tab.locator(".box input").press("Enter")
    expect(tab.locator(".thumb")).to_have_attribute("aria-valuenow", str(value).removesuffix(".0"))


def drawn_at(tab: Page, value: float) -> None:
    """Wait until the map of all settings is drawn with its marks at this dial value, and nothing is displaced."""
    tab.wait_for_function(
        """(value) => {
          const map = document.getElementById("heat_map");
          const moved = [...map.querySelectorAll("*")].some(({ style }) => style.translate);
          return map.layout.shapes[0].x0 === value && map.data.at(-1).x[0] === value && !moved;
        }""",
        arg=value,
    )


def shown(tab: Page, name: str) -> float:
    return float(re.sub(r"[\u202f%]", "", tab.locator(f"[data-number={name}]").inner_text()).replace("−", "-"))


def test_dial_text_and_figures_work_offline(opened) -> None:
    run = mapped_toy().dial_map.at(0.99)
    run = mapped(run, toy_map(run.settings, 0.5, 1.0, gammas=(1, 2, 4))[0])
    tab = opened(run, most_steps=20)
    for value in (0.55, 1.0):
        turn(tab, value)
        expected = summary(run.dial_map.at(value))
        expect(tab.locator(".sentence")).to_contain_text(f": {expected.rounds} target passes for {expected.tokens} tok")
        assert shown(tab, "rolled_back") == expected.rolled_back
        expect(tab.locator("#savings .g-gtitle")).to_contain_text(f"{value:.2f}")
        drawn_at(tab, value)
        for make in ALONG_THE_DIAL:
            traces = make(positions(*shown_at(run, value, 4)), LIGHT).data
            marks = tab.locator(f"#{make.__name__}").evaluate("({ data }) => data.map(({ name, y }) => [name, [...y]])")
            for trace, (name, drawn) in zip(traces, marks, strict=True):
                assert name == trace.name
                np.testing.assert_allclose(np.array(drawn, float), np.array(trace.y, float), rtol=1e-5)
    turn(tab, 0.2)
    expect(tab.locator("#basis")).to_contain_text("Block-local")
    turn(tab, 1.0)
    tab.get_by_role("button", name="target passes").click()
    expect(tab.locator("#heat_map .g-gtitle")).to_contain_text("Fewest target passes")
    tab.locator("#savings").hover()
    with tab.expect_download() as found:
        tab.locator("#savings [data-title='Save as SVG']").click()
    assert found.value.suggested_filename == "a-toy-run-at-1-savings.svg"  # the setting shown
    assert Path(found.value.path()).read_bytes().startswith(b"<svg")


def test_a_report_follows_the_pointer_and_the_theme(opened) -> None:
    tab = opened(run := mapped_toy(), most_steps=50)
    lane, thumb = tab.locator(".lane").bounding_box(), tab.locator(".thumb").bounding_box()
    y = thumb["y"] + thumb["height"] / 2
    tab.mouse.move(thumb["x"] + thumb["width"] / 2, y)
    tab.mouse.down()
    tab.mouse.move(lane["x"] + lane["width"] * 0.6, y, steps=3)
    dial = float(tab.locator(".thumb").get_attribute("aria-valuenow"))
    assert dial == pytest.approx(0.6, abs=0.006)
    expect(tab.locator("#heat_map .annotation-text")).to_have_text(f"θ = {dial:.2f}")
    tab.mouse.up()
    drawn_at(tab, dial)
    assert shown(tab, "rolled_back") == summary(run.dial_map.at(dial)).rolled_back
    tab.locator(".stream .t:visible").last.click()
    expect(tab.locator(".inspector").first).to_contain_text("not in this report")
    tab.emulate_media(color_scheme="dark")
    expect(tab.locator(".explorer")).to_have_attribute("data-theme", "dark")
    assert tab.locator("#savings").evaluate("e => e.layout.title.font.color") == "#E5E7EB"
    for _ in range(200):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement === document.body"):
            break
    else:
        pytest.fail("the Tab key does not leave the report")


BLOCKS: list[Block] = [
    Sentence("Twice *as* fast.", "measured"),
    Section("Costs <b>", [Table(["pass", "ms"], [["target | all", "12.5"], ["drafter", "1"]]), Code("mars-viz *")]),
]
WIDE = [Table([*"abcde"], [["x" * size, *"1234"]], f"of-{size}") for size in (NARROW, NARROW + 1)]
TWICE = Table(["number", "strict", "strict"], [["τ", "5", "-1"]], "twice", help={"number": "*All* of them"})


def test_markdown_escapes_all_but_code_and_lines_align() -> None:
    assert markdown(BLOCKS) == (
        "Twice \\*as\\* fast.\n\n## Costs \\<b\\>\n\n| pass | ms |\n| --- | --- |\n| target \\| all | 12.5 |\n"
        "| drafter | 1 |\n\n```\nmars-viz *\n```"
    )
    assert list(lines(BLOCKS)) == [
        *("Twice *as* fast.", "", "Costs <b>"),
        *("pass            ms", "target | all  12.5", "drafter          1", "mars-viz *"),
    ]


def test_a_page_draws_text_as_text() -> None:
    def page() -> None:
        from test_report import BLOCKS, TWICE, WIDE

        from mars_viz.ui.documents import draw

        draw([*BLOCKS, *WIDE, TWICE])

    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception
    drawn = " ".join(each.proto.body for each in app.get("html"))
    assert "Twice *as* fast." in drawn and ">measured</span>" in drawn and "Costs &lt;b&gt;" in drawn
    assert ['"pinned": true' in each.proto.columns for each in app.dataframe] == [False, True, False, False]
    assert app.dataframe[0].value.to_numpy().tolist() == BLOCKS[1].blocks[0].rows and app.code[0].value == "mars-viz *"  # type: ignore[union-attr]
    columns = json.loads(app.dataframe[3].proto.columns)
    assert list(columns)[:3] == ["number", "strict", "strict\u200b"] and columns["strict"]["alignment"] == "right"
    assert columns["number"]["help"] == "\\*All\\* of them"
