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
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz import cli
from mars_viz.analysis.metrics import summary
from mars_viz.analysis.positions import positions
from mars_viz.components.explorer.packing import packed
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.figures import ALONG_THE_DIAL, LIGHT, two_logits
from mars_viz.report import MAX_BYTES, check_place, file_name, page, report_html, write_report
from mars_viz.report.page import LEVELS, UNSAID, Detail, detailed
from mars_viz.report.prerendered_figures import prerendered_figures, settings
from mars_viz.run import Piece, Run
from mars_viz.run_with_map import mapped
from mars_viz.run_with_map import shown as shown_at
from mars_viz.runfiles import load_run
from tests.factories import toy_map, toy_run
from tests.fingers import swipe_up
from tests.in_node import in_node_with

HOSTILE = {
    5: b"<img src=x onerror=window.hacked=1>",
    6: "\u202eevil".encode(),
    7: b"</script><script>window.hacked=1</script>",
    8: b"<!--<script>",
    9: b"\x00\x1b",
}
STOP = """() => {
  let stop = document.activeElement;
  if (stop === document.body) return null;
  while (stop.shadowRoot?.activeElement) stop = stop.shadowRoot.activeElement;
  const { outlineStyle: outline } = getComputedStyle(stop);
  let opacity = 1;
  for (let at = stop; at instanceof Element; at = at.parentElement ?? at.getRootNode().host) {
    at.getAnimations().forEach((running) => running.finish());
    opacity *= getComputedStyle(at).opacity;
  }
  return { name: stop.getAttribute("aria-label") ?? stop.innerText.trim(), opacity, outline };
}"""
SAMPLES = Path(__file__).parent.parent / "sample_runs"


def mapped_toy(**asked: object) -> Run:
    run = toy_run(rule="mars", dial=0.9, gamma=4, **asked)
    made, _ = toy_map(run.settings, 0.5, 1.0, gammas=(1, 2, 4))
    return mapped(run, replace(made, frame=run.without_rounds))


def long_toy() -> Run:
    """As much as a report must hold: 500 tokens, and all texts of the dial."""
    run = toy_run(rule="mars", dial=0.9, gamma=6, max_new_tokens=500, vocabulary=32, model_seed=5)
    made, _ = toy_map(run.settings, 0.0, 1.0, model_seed=5)
    return mapped(run, replace(made, frame=run.without_rounds))


# ---- what is packed


def sent(html: str, name: str) -> tuple[dict[str, Any], bytes]:
    """What stands in a report under that name: its JSON, and the bytes behind it."""
    text = re.search(rf'id="{name}">([^<]*)<', html)[1]
    head, _, data = gzip.decompress(b64decode(text)).partition(b"\n")
    return json.loads(head), data


def test_a_report_carries_the_explorer_s_own_payload() -> None:
    for run in (mapped_toy(), toy_run(rule="strict")):
        head, data = sent(report_html(run, most_steps=0), "run")
        expected = packed({"payload": run_payload(run)})
        assert head["payload"] == json.loads(json.dumps(expected.head))["payload"]
        assert data == expected.data.tobytes()


@pytest.mark.parametrize("detail", LEVELS[1:])
def test_less_detail_leaves_out_what_it_says_and_nothing_of_the_first_text(detail: Detail) -> None:
    run = mapped_toy()
    payload = run_payload(run)
    told, nodes = detailed(payload, detail), sum(len(round_.speculation) for round_ in run.rounds)
    starts = {"nodes": (nodes, detail.drafter), "rows": (nodes + len(run.rounds), detail.target)}
    for part, (start, count) in starts.items():
        width = payload[part]["top"]
        assert told[part].keys() == payload[part].keys() and len(payload[part]["top_logit"]) > start * width
        for name in ("top_token", "top_logit"):
            whole, got = (columns[part][name].reshape(-1, width) for columns in (payload, told))
            np.testing.assert_array_equal(got[:start], whole[:start])
            np.testing.assert_array_equal(got[:, :count], whole[:, :count])
        assert np.isnan(got[start:, count:]).all()
        assert all(told[part][name] is payload[part][name] for name in told[part] if not name.startswith("top_"))
    for rule, whole in zip(told["rules"], payload["rules"], strict=True):
        known = detail.rules or rule["name"] == payload["rule"]["name"]
        assert rule["keep"][: None if known else nodes].tolist() == whole["keep"][: None if known else nodes].tolist()
        assert known or set(rule["keep"][nodes:].tolist()) <= {UNSAID}
    assert detail.words.startswith("To stay small")


def test_levels_get_smaller() -> None:
    payload = run_payload(load_run(SAMPLES / "1-story-mars"))
    sizes = [len(gzip.compress(packed(detailed(payload, detail)).data)) for detail in LEVELS]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 0.55 * sizes[0]


def test_a_report_of_500_tokens_with_its_map_keeps_to_its_size() -> None:
    run = long_toy()
    assert len(run.token_ids) > 450 and run.dial_map is not None
    html = report_html(run)
    assert len(html.encode()) <= MAX_BYTES == 3_000_000 and "To stay small" not in html


def test_too_large_a_run_is_told_in_less_detail(monkeypatch) -> None:
    run = load_run(SAMPLES / "1-story-mars")

    def made(most: int) -> bytes:
        monkeypatch.setattr(page, "MAX_BYTES", most)
        return report_html(run, most_steps=0).encode()

    whole, least = made(10**9), made(1)
    between = made((len(whole) + len(least)) // 2)
    assert len(least) <= len(between) <= (len(whole) + len(least)) // 2
    assert b"To stay small" in least and b"To stay small" in between and b"To stay small" not in whole


def test_figures_stand_for_the_segment_they_are_drawn_in() -> None:
    run = mapped_toy()
    made = run.dial_map
    drawn = settings(run, 4)
    assert [one.dial for one in drawn] == sorted({one.dial for one in drawn})
    assert {segment.low for segment in made.segments_for(4)} | {0.9} <= {one.dial for one in drawn}
    for one in drawn:
        if one.dial >= made.span.low:
            segment = made.segment(one.dial, 4)
            assert one.low == segment.low <= one.dial < one.high
        else:
            assert np.isinf(one.low)
    assert [one.dial for one in settings(toy_run(rule="strict"), 6)] == [None]


def test_figures_come_as_they_are_made_and_marks_as_rows_of_the_payload() -> None:
    run = mapped_toy()
    rows = run_payload(run)["rows"]
    made = prerendered_figures(run, 4, rows, most=20)
    best, clouds = rows["top_logit"].reshape(-1, rows["top"])[:, :2], 0
    for dial, _, _, words, *indices in made["settings"]:
        at = positions(*shown_at(run, dial, 4))
        assert words == at.words
        for figure, index in zip([make(at, LIGHT) for make in ALONG_THE_DIAL], indices, strict=True):
            spec = made["specs"][index]
            assert spec["layout"]["title"]["text"] == figure.layout.title.text
            for trace, sent_as in zip(figure.data, (made["traces"][i] for i in spec["data"]), strict=True):
                assert sent_as["name"] == trace.name
                if "cloud" not in sent_as:
                    np.testing.assert_allclose(sent_as["y"], np.array(trace.y, float), rtol=1e-5)
                    continue
                clouds += 1
                at_rows, at_rounds = (np.cumsum(sent_as["cloud"][name]) for name in ("rows", "rounds"))
                np.testing.assert_array_equal(best[at_rows], np.stack([trace.x, trace.y], axis=1))
                np.testing.assert_array_equal(at_rounds, trace.customdata[:, 0])
                np.testing.assert_allclose(rows["ratio"][at_rows], trace.customdata[:, 1], rtol=1e-6)
    assert clouds and len(made["traces"]) < sum(len(spec["data"]) for spec in made["specs"])


# ---- how drawing keeps pace


PACED = """
import { Pace } from "./pace.mjs";
const drawn = [];
let clock = 0, frames = [], hand = 0;
const pace = new Pace({ frame: (turn) => frames.push(turn), now: () => clock, budget: 10 });
const figure = (name, cost) => () => { clock += cost; drawn.push(`${name}${hand}`); };
const figures = [figure("a", 6), figure("b", 6), figure("c", 30)];
const perFrame = [];
for (hand = 1; hand <= 6; hand++) {
  if (hand <= 4) figures.forEach((draw) => pace.ask(draw));
  const turns = frames;
  frames = [];
  turns.forEach((turn) => turn());
  perFrame.push(drawn.splice(0));
}
console.log(JSON.stringify({ perFrame, waiting: pace.waiting.size, frames: frames.length }));
"""


def test_a_frame_draws_what_it_has_room_for_and_nobody_waits_for_ever(tmp_path) -> None:
    """Four moves of the hand, with two figures to a frame or one slow one; what is drawn is the latest there is."""
    pace = (files("mars_viz.report") / "pace.js").read_text("utf-8") + "\nexport { Pace };"
    found = in_node_with(tmp_path, {"pace": pace})(PACED, None)
    assert found["perFrame"] == [["a1", "b1"], ["c2"], ["a3", "b3"], ["c4"], ["a5", "b5"], []]
    assert found["waiting"] == found["frames"] == 0


# ---- what stands in the HTML


def test_nothing_is_fetched_and_only_known_scripts_run() -> None:
    html = report_html(mapped_toy(), most_steps=0)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    markup = re.sub(r"<script[^>]*>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=|url\(|@import", markup)
    assert html.count("<script") == html.count("</script>") == 5
    assert "<!--" not in html  # within a script it would hide the end of it
    scripts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", html, re.DOTALL)
    known = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(scripts) == 2 and all(f"'sha256-{digest}'" in policy for digest in known)
    assert policy.count("'sha256-") == 3  # what says that nothing can be shown, the page's own, and Plotly


def test_a_model_s_text_is_nowhere_in_the_html() -> None:
    run = toy_run(pieces={i: b"</script><b>zebra</b>" for i in range(32)})
    html = report_html(replace(run, title="<script>alert(1)</script> zebra", prompt="zebra"), most_steps=0)
    assert html.count("zebra") == 2  # both the title, escaped
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt; zebra") == 2


def test_facts_and_citations_are_there() -> None:
    run = mapped_toy(seed=3)
    made_by = replace(run.provenance, target="a/b<i>", target_revision="0123456789abcdef", versions={"torch": "9.9"})
    made_by = replace(made_by, device='Intel(R) "<b>" CPU @ 2.00GHz, 8 threads')
    html = report_html(replace(run, provenance=made_by), gamma=2, most_steps=0)
    for fact in (
        "a/b&lt;i&gt; @ 0123456789ab",
        "torch 9.9",
        "θ = 0.90",
        "2 (recorded with 4)",
        "song2026mars",
        "Intel &quot;&lt;b&gt;&quot;, 8 threads",
        'title="Intel(R) &quot;&lt;b&gt;&quot; CPU @ 2.00GHz, 8 threads"',
        "marsviz",
    ):
        assert fact in html


def test_file_names_are_plain() -> None:
    assert file_name(replace(toy_run(), title="../../A <b>Störy</b> at θ = 0.90!")) == "a-b-st-ry-b-at-0-9"
    assert file_name(replace(toy_run(), title="θθ", prompt="")) == "run-at-0-9"
    assert file_name(replace(toy_run(rule="strict"), title="A story")) == "a-story"
    margin = replace(toy_run(rule="cascade-opt", dial=-0.25), title="A story")
    assert file_name(margin) == "a-story-at-minus-0-25"


def test_file_names_say_the_very_setting() -> None:
    run = replace(mapped_toy(), title="A story, MARS at θ = 0.9, greedy")
    assert file_name(run, 0.9853, 1) == "a-story-mars-greedy-at-0-9853-gamma-1"
    near = math.nextafter(0.9853, 1)
    assert file_name(run, near) == f"a-story-mars-greedy-at-{str(near).replace('.', '-')}"


# ---- on disk


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return toy_run(rule="strict").save(tmp_path / "run")


def test_the_command_writes_a_report_and_replaces_its_own(saved, tmp_path, capsys) -> None:
    out = tmp_path / "r.html"
    for _ in range(2):
        assert cli.main(["report", str(saved), "-o", str(out)]) == 0
        assert "Wrote" in capsys.readouterr().out
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "run"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "-o", "r.html"], "does not exist"),
        (["run", "-o", "."], "is a folder"),
        (["run", "-o", "away/r.html"], "does not exist"),
        (["run", "-o", "mine.txt"], "--force"),
        (["run", "-o", "r.html", "--gamma", "3"], "not on the run's map"),
        (["run", "-o", "r.html", "--gamma", "0"], "γ = 0 is not on the run's map"),
        (["run", "-o", "r.html", "--dial", "0.5"], "dial"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_everything_alone(
    saved, tmp_path, monkeypatch, capsys, arguments, sentence
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    assert cli.main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "run"]
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_damaged_run_is_refused(saved, tmp_path, capsys) -> None:
    (saved / "nodes.parquet").write_bytes(b"PAR1 nonsense")
    assert cli.main(["report", str(saved), "-o", str(tmp_path / "r.html")]) == 2
    assert "nodes.parquet" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_an_interrupted_write_leaves_the_old_report(tmp_path, monkeypatch) -> None:
    old = write_report(f"<!DOCTYPE html>{page.MARK}old", tmp_path / "r.html")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadInput, match="No space left"):
        write_report("new", old)
    assert old.read_text().endswith("old") and len(list(tmp_path.iterdir())) == 1


def test_only_force_replaces_what_is_no_report(tmp_path) -> None:
    path = tmp_path / "notes.html"
    path.write_text("<p>mine</p>")
    with pytest.raises(BadInput, match="--force"):
        check_place(path)
    assert write_report("new", path, force=True).read_text() == "new"


# ---- in a browser that has no network


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a report from disk; an error, or a wish to fetch anything, fails the test."""
    problems: list[str] = []
    with browser.new_context(viewport={"width": 1400, "height": 1000}, offline=True) as context:

        def open_report(run: Run, scheme: str = "light", **asked: object) -> Page:
            path = write_report(report_html(run, **asked), tmp_path / "report.html")
            tab = context.new_page()
            tab.emulate_media(color_scheme=scheme)
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
            tab.on(
                "request",
                lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else problems.append(asked.url),
            )
            tab.goto(path.as_uri())
            tab.wait_for_selector("#savings .main-svg")
            return tab

        yield open_report
    assert problems == []


def turn(tab: Page, value: float) -> None:
    tab.locator(".box input").fill(str(value))
    tab.locator(".box input").press("Enter")
    expect(tab.locator(".thumb")).to_have_attribute("aria-valuenow", f"{value:g}")


def drawn_at(tab: Page, value: float) -> None:
    """Wait until the map of all settings is drawn with its marks at this dial value, and nothing moved aside."""
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


def test_dial_text_inspector_and_figures_work_offline(opened) -> None:
    run = mapped_toy().dial_map.at(0.99)
    run = mapped(run, toy_map(run.settings, 0.5, 1.0, gammas=(1, 2, 4))[0])
    tab = opened(run, most_steps=20)
    assert tab.locator(".part").count() == len(run.dial_map.segments_for(4))
    assert tab.locator(".decode").count() == 0
    for value in (0.9, 0.55, 1.0):
        turn(tab, value)
        expected = summary(run.dial_map.at(value))
        said = f": {expected.rounds} target passes for {expected.tokens} tokens"
        expect(tab.locator(".sentence")).to_contain_text(said)
        assert shown(tab, "rolled_back") == expected.rolled_back
        expect(tab.locator("#savings .g-gtitle")).to_contain_text(f"{value:.2f}")
        drawn_at(tab, value)
        cloud = two_logits(positions(*shown_at(run, value, 4)), LIGHT).data
        marks = tab.locator("#two_logits").evaluate("({ data }) => data.map(({ x, y }) => [[...x], [...y]])")
        assert len(marks) == len(cloud)
        for trace, drawn in zip(cloud, marks, strict=True):
            np.testing.assert_allclose(drawn, [trace.x, trace.y], rtol=1e-5)
    expect(tab.locator("#basis")).to_contain_text("Exact")
    turn(tab, 0.2)
    expect(tab.locator("#basis")).to_contain_text("Block-local")
    tab.get_by_role("button", name="target passes").click()
    expect(tab.locator("#heat_map .g-gtitle")).to_contain_text("Fewest target passes")
    tab.get_by_role("radio", name="Entropy").click()
    assert tab.locator(".t[class*=' c']").count() > 20
    written = tab.locator(".stream .corrected:visible, .stream .bonus:visible").last
    written.click()
    expect(tab.locator(".inspector .what")).to_contain_text(written.inner_text().strip())
    expect(tab.locator(".inspector .law").first).to_contain_text("prob.")
    assert tab.locator(".verdicts tr").count() > 10


def test_words_are_found_in_a_report_wherever_the_dial_stands(opened) -> None:
    run = mapped_toy()
    tab = opened(run)
    for value in (0.9, 0.55):
        turn(tab, value)
        pieces = [run.pieces[token].text for token in run.dial_map.at(value).token_ids]
        wanted = "".join(pieces[5:8])
        text = "".join(pieces)
        often = len(re.findall(re.escape(wanted.strip()), text, re.IGNORECASE))
        tab.locator(".stream").press("/")
        tab.locator(".search input").fill(wanted.strip())
        expect(tab.locator(".found-count")).to_have_text(f"1 of {often}")
        assert tab.locator(".stream .t.found").count() >= often > 0
        tab.keyboard.press("Escape")
        expect(tab.locator(".stream .t.found")).to_have_count(0)


def test_a_token_and_a_setting_are_pinned_in_a_report_without_a_server(opened) -> None:
    run = mapped_toy()
    tab = opened(run)
    turn(tab, 0.9)
    pinned = summary(run.dial_map.at(0.9))
    tab.get_by_role("button", name="Pin this setting").click()
    tab.get_by_role("button", name="Pin this token").click()
    token = tab.locator(".inspector .what").first.inner_text()
    own = run.dial_map.at(0.9).token_ids
    other = next(part for part in run.dial_map.segments_for(4) if part.token_ids != own)
    turn(tab, other.high)
    words = tab.locator(".pin-words")
    first = next(i for i, (one, two) in enumerate(zip(other.token_ids, own, strict=False)) if one != two)
    expect(words).to_contain_text(f"first token {first + 1} (")
    expect(tab.locator(".tile.rolled_back .was")).to_have_text(f"pinned {pinned.rolled_back}")
    assert tab.locator(".stream .t.unlike").count() > 0
    expect(tab.locator(".pin-side .what")).to_have_text(token)
    expect(tab.locator(".pin-note")).to_have_text("Pinned at θ = 0.90, γ = 4")
    tab.get_by_role("button", name="Show the pinned setting").click()
    expect(words).to_contain_text("It is the setting shown")
    tab.get_by_role("button", name="Unpin the setting").click()
    tab.get_by_role("button", name="Unpin the token").click()
    expect(tab.locator(".pin-line")).to_be_hidden()
    expect(tab.locator(".pin-side")).to_be_hidden()
    expect(tab.locator(".stream .t.unlike")).to_have_count(0)


PLACES = """() => {  // read at once: when the marks have rested for a moment they are drawn anew
  const [line, map] = [".shapelayer path", ".nsewdrag"].map((part) => document.querySelector(`#heat_map ${part}`).getBoundingClientRect());
  return [line.left + line.width / 2, map.left, map.width];
}"""  # noqa: E501


def test_figures_follow_the_hand_while_it_holds_the_dial(opened) -> None:
    run = mapped_toy()
    tab = opened(run, most_steps=50)
    lane, thumb = tab.locator(".lane").bounding_box(), tab.locator(".thumb").bounding_box()
    y = thumb["y"] + thumb["height"] / 2
    tab.mouse.move(thumb["x"] + thumb["width"] / 2, y)
    tab.mouse.down()
    for value in (0.8, 0.7, 0.6):  # the dial is held all the while
        tab.mouse.move(lane["x"] + lane["width"] * value, y, steps=3)
        stands = float(tab.locator(".thumb").get_attribute("aria-valuenow"))
        assert stands == pytest.approx(value, abs=0.006)
        expect(tab.locator("#savings .g-gtitle")).to_contain_text(f"At θ = {stands:.2f}")
        expect(tab.locator("#heat_map .annotation-text")).to_have_text(f"θ = {stands:.2f}")
        line, left, width = tab.evaluate(PLACES)
        share = (stands - run.dial_map.span.low) / (run.dial_map.span.high - run.dial_map.span.low)
        assert line == pytest.approx(left + share * width, abs=2)
    tab.mouse.up()
    drawn_at(tab, stands)


def test_page_keys_go_from_segment_to_segment(opened) -> None:
    run = load_run(SAMPLES / "1-story-mars")
    tab, starts = opened(run, most_steps=0), [segment.low for segment in run.dial_map.segments_for(6)]
    assert len(starts) > 9
    thumb = tab.locator(".thumb")
    turn(tab, 0.6)
    assert starts[0] < 0.6 < starts[1]
    thumb.focus()

    def leafed(key: str) -> float:
        tab.keyboard.press(key)
        return float(thumb.get_attribute("aria-valuenow"))

    assert [leafed("PageUp") for _ in starts] == [*starts[1:], 1.0]
    expect(tab.locator(".segment")).to_contain_text(f"Segment {len(starts)} of {len(starts)}")
    assert [leafed("PageDown") for _ in starts] == [*starts[-2::-1], 0.0]


@pytest.mark.parametrize("figure", ["savings", "heat_map"])
def test_a_finger_on_a_figure_moves_the_page(browser: Browser, tmp_path: Path, figure: str) -> None:
    path = write_report(report_html(mapped_toy(), most_steps=0), tmp_path / "report.html")
    with browser.new_context(
        viewport={"width": 375, "height": 800}, is_mobile=True, has_touch=True, offline=True
    ) as context:
        tab = context.new_page()
        tab.goto(path.as_uri())
        tab.wait_for_selector("#heat_map .main-svg")
        assert tab.evaluate("document.documentElement.scrollWidth") == 375
        place = tab.locator(f"#{figure}")
        place.evaluate("element => element.scrollIntoView({ block: 'center' })")
        swipe_up(tab, place)


def test_whoever_comes_by_keys_sees_where_they_are_and_can_leave(opened) -> None:
    """Every stop of the Tab key, from the first to the last; the buttons over figures among them."""
    tab, stops = opened(mapped_toy(), most_steps=0), []
    for _ in range(200):
        tab.keyboard.press("Tab")
        stop = tab.evaluate(STOP)
        if stop is None:
            break
        stops.append(stop)
    assert stops[-1]["name"] != stops[-2]["name"] and len(stops) < 200, "no place keeps whoever comes to it"
    assert {"ratio threshold", "Outcome", "The selected token", "Save as PNG", "target passes"} <= {
        stop["name"] for stop in stops
    }
    assert [stop for stop in stops if stop["opacity"] < 0.5 or stop["outline"] == "none"] == []


def test_the_names_of_a_list_are_one_stop_and_arrows_move_among_them(opened) -> None:
    tab = opened(mapped_toy(), most_steps=0)
    tab.locator(".stream .t:visible").nth(2).click()
    names, tip = tab.locator(".verdicts th"), tab.locator(".tip")
    assert names.count() > 20 and tab.locator(".verdicts [tabindex='0']").count() == 1
    names.first.focus()
    for press, place in (("ArrowUp", 0), ("ArrowDown", 1), ("ArrowRight", 2), ("ArrowUp", 1)):
        tab.keyboard.press(press)
        expect(names.nth(place)).to_be_focused()
        expect(names.nth(place)).to_have_attribute("tabindex", "0")
        assert tab.locator(".verdicts [tabindex='0']").count() == 1
    expect(tip).to_have_text(names.nth(1).get_attribute("data-tip") or "")
    assert tab.locator(".facts [tabindex='0'], .legend [tabindex='0']").count() == 2


def test_text_of_a_model_stays_text(opened) -> None:
    run = toy_run(
        rule="mars", pieces=HOSTILE | {i: b"</script><script>window.hacked=1</script>" for i in range(10, 20)}
    )
    title = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script>"
    tab = opened(
        replace(run, title=title, prompt=title, pieces=run.pieces | {0: Piece(b"<b>", special=True)}), most_steps=0
    )
    for token in tab.locator(".stream .t:visible").all()[:12]:
        token.click()
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0
    expect(tab.locator("h1")).to_have_text(title)
    expect(tab.locator(".stream")).to_contain_text("</script><script>window.hacked=1</script>")


def test_the_leanest_report_still_shows_every_text(opened, monkeypatch) -> None:
    run = mapped_toy()
    monkeypatch.setattr(page, "MAX_BYTES", 1)
    tab = opened(run, most_steps=0)
    for value in (0.55, 1.0):
        turn(tab, value)
        assert shown(tab, "rolled_back") == summary(run.dial_map.at(value)).rolled_back
        for token in tab.locator(".stream .t:visible").all()[-6:]:
            token.click()
    expect(tab.locator(".inspector").first).to_contain_text("not in this report")
    expect(tab.locator("main")).to_contain_text("To stay small")


def test_the_theme_is_the_reader_s(opened) -> None:
    tab = opened(mapped_toy(), "dark", most_steps=0)
    expect(tab.locator(".explorer")).to_have_attribute("data-theme", "dark")
    ink = "e => e.layout.title.font.color"
    assert tab.locator("#savings").evaluate(ink) == "#E5E7EB"
    tab.emulate_media(color_scheme="light")
    expect(tab.locator(".explorer")).to_have_attribute("data-theme", "light")
    assert tab.locator("#savings").evaluate(ink) == "#1F2937"


def test_figures_are_saved_as_svg_and_png(opened) -> None:
    tab = opened(mapped_toy(), most_steps=0)
    for kind, head in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        tab.locator("#savings").hover()
        with tab.expect_download() as found:
            tab.locator(f"#savings [data-title='Save as {kind}']").click()
        assert found.value.suggested_filename == f"a-toy-run-at-0-9-savings.{kind.lower()}"
        assert Path(found.value.path()).read_bytes().startswith(head)


def test_a_damaged_report_says_so(browser: Browser, tmp_path: Path) -> None:
    html = report_html(toy_run(rule="strict"), most_steps=0)
    start = html.index('id="run">') + 200
    path = tmp_path / "r.html"
    path.write_text(html[:start] + "AAAA" + html[start + 40 :], encoding="utf-8")
    with browser.new_context(offline=True) as context:
        tab = context.new_page()
        tab.goto(path.as_uri())
        expect(tab.locator("#failed")).to_contain_text("could not be shown")


def test_a_browser_that_cannot_unpack_says_so_in_a_sentence(browser: Browser, tmp_path: Path) -> None:
    path = write_report(report_html(toy_run(rule="strict"), most_steps=0), tmp_path / "r.html")
    with browser.new_context(offline=True) as context:
        tab = context.new_page()
        errors: list[str] = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.add_init_script("delete globalThis.DecompressionStream")
        tab.goto(path.as_uri())
        expect(tab.locator("#failed")).to_have_text(
            "This browser is too old to unpack the report. Open it in a browser of 2023 or later."
        )
        expect(tab.locator("#waiting")).to_be_hidden()
    assert errors == []
