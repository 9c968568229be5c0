"""A run as one HTML file: what is packed comes out again, it works offline, and a model's text stays text."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz import cli
from mars_viz.analysis.metrics import summary
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.mapped import mapped
from mars_viz.report import MAX_BYTES, check_place, file_name, page, report_html, write_report
from mars_viz.report.detail import LEVELS, UNSAID, Detail, detailed
from mars_viz.report.drawings import settings
from mars_viz.report.parcel import parcel
from mars_viz.report.shown import Ranges, as_shown, same_digits, same_percentage, shortest, to_decimals
from mars_viz.report.text import LETTERS, to_text
from mars_viz.run import Piece, Run
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
UNPACK = """
import { readFileSync } from "node:fs";
let value = await unparcel(readFileSync(0, "utf8"));
if (value !== null && "rules" in value) value = restored(value);
const number = (x) => typeof x === "bigint" ? Number(x) : Number.isFinite(x) ? x : String(x);
const plain = (_, item) => ArrayBuffer.isView(item) ? Array.from(item, number) : item;
console.log(JSON.stringify(value, plain));
"""
SHORT = """
const pairs = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(pairs.map((pair) => pair.map((x) => short(Number(x))))));
"""
DIGITS = """
import { readFileSync } from "node:fs";
import { short } from "./numbers.mjs";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((value) => short(Number(value)))));
"""
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
SHOWN = {"nodes": ("p", "q", "coin"), "rows": ("ratio", "margin", "entropy", "p_below", "p_above")}
"""Columns that every level tells, as they are shown."""


@pytest.fixture(scope="module")
def unpack(tmp_path_factory) -> Callable[[str], object]:
    """Reads a parcel with the page's own script, in node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node; the browser tests read parcels too")
    script = tmp_path_factory.mktemp("parcel") / "read.mjs"
    ours = [(files("mars_viz.report") / name).read_text("utf-8") for name in ("parcel.js", "lean.js")]
    script.write_text("\n".join([*ours, UNPACK]), encoding="utf-8")

    def read(text: str) -> object:
        done = subprocess.run([node, str(script)], input=text, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return read


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Callable[[np.ndarray], list[str]]:
    """What the page writes of numbers."""
    script = (files("mars_viz.components.explorer") / "numbers.js").read_text("utf-8")
    evaluated = in_node_with(tmp_path_factory.mktemp("digits"), {"numbers": script})

    def shown(values: np.ndarray) -> list[str]:
        return evaluated(DIGITS, [str(value).replace("inf", "Infinity") for value in np.ravel(values).tolist()])

    return shown


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


def test_a_parcel_comes_out_as_it_went_in(unpack) -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=40).astype(np.float32)
    value = {
        "text": "a\u2009b </script> \u202e",
        "list": [1, None, 2.5, {"x": noise, "again": noise}],
        "near": np.where(np.arange(40) == 3, np.float32(7), noise),
        "kinds": [np.arange(-3, 300, 50, dtype=kind) for kind in (np.int16, np.int32, np.int64)],
        "bytes": np.arange(5, dtype=np.uint8),
        "odd": np.array([np.nan, np.inf, -np.inf, 0.1]),
        "rows": np.arange(6, dtype=np.float32).reshape(3, 2),
        "none": np.zeros(0, np.float64),
        "one": np.float64(0.5),
    }
    read = unpack(parcel(value))
    assert read["text"] == value["text"] and read["one"] == 0.5 and read["none"] == []
    assert read["list"][:3] == [1, None, 2.5]
    assert read["list"][3]["x"] == read["list"][3]["again"] == noise.tolist()
    assert read["near"] == value["near"].tolist()
    assert read["kinds"] == [kind.tolist() for kind in value["kinds"]]
    assert read["bytes"] == [0, 1, 2, 3, 4]
    assert read["odd"] == ["NaN", "Infinity", "-Infinity", 0.1]
    assert read["rows"] == [[0, 1], [2, 3], [4, 5]]
    assert unpack(parcel([to_decimals(value["rows"], 1)]))[0] == [[0, 1], [2, 3], [4, 5]]


def test_equal_arrays_are_sent_once() -> None:
    noise = np.random.default_rng(2).normal(size=5000)
    once = len(parcel([noise]))
    assert once < len(parcel([noise, noise.copy()])) < 1.01 * once
    assert (
        len(parcel([noise, np.where(np.arange(5000) == 9, 1.0, noise)])) < 1.05 * once
    )  # nearly equal: the difference


def test_rounded_numbers_have_the_digits_that_are_shown(unpack) -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.normal(0, 10.0**power, 60) for power in range(-8, 4)]).astype(np.float32)
    values = np.concatenate([values, np.array([np.nan, np.inf, -np.inf, 0, 0.9996, 9.996, 99.96, 0.0005], np.float32)])
    script = (files("mars_viz.components.explorer") / "numbers.js").read_text("utf-8").replace("export ", "")
    rounded = unpack(parcel([as_shown(values)]))[0]
    sent = json.dumps([[str(a), str(b)] for a, b in zip(values.tolist(), rounded, strict=True)]).replace(
        "inf", "Infinity"
    )
    command = [shutil.which("node") or "node", "-e", script + SHORT]
    done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=600, check=True)
    pairs = json.loads(done.stdout)
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    assert unpack(parcel([to_decimals(np.array([16.20449]), 3)]))[0] == pytest.approx([16.204])


def test_the_payload_of_a_small_run_is_whole(unpack) -> None:
    payload = run_payload(mapped_toy())
    read = unpack(parcel(detailed(payload, Detail())))

    def same(sent: object, got: object) -> None:
        if isinstance(sent, np.ndarray):
            np.testing.assert_array_equal(sent.astype(float), np.array(got, float))
        elif isinstance(sent, dict):
            assert sent.keys() == got.keys()
            for name in sent:
                same(sent[name], got[name])
        elif isinstance(sent, list):
            for one, other in zip(sent, got, strict=True):
                same(one, other)
        else:
            assert sent == got

    same(payload, read)


@pytest.mark.parametrize("run_name", ["mapped", "1-story-mars", "3-story-sampled-mars"])
@pytest.mark.parametrize("level", [1, 6, len(LEVELS) - 4, len(LEVELS) - 1])
def test_less_detail_shows_the_same_digits_of_what_it_tells(unpack, digits, run_name: str, level: int) -> None:
    run = mapped_toy() if run_name == "mapped" else load_run(SAMPLES / run_name)
    payload, detail = run_payload(run), LEVELS[level]
    read = unpack(parcel(detailed(payload, detail)))
    rounds, counts = len(run.rounds), payload["rounds"]["nodes"]
    first = {"nodes": int(counts[:rounds].sum()), "rows": int(counts[:rounds].sum()) + rounds}
    told = {"nodes": detail.drafter, "rows": detail.target}
    for part, most in told.items():
        columns, got, width, start = payload[part], read[part], payload[part]["top"], first[part]
        logits, tokens = (columns[f"top_{what}"].reshape(-1, width) for what in ("logit", "token"))
        found, ids = (np.array(got[f"top_{what}"], float).reshape(-1, width) for what in ("logit", "token"))
        np.testing.assert_array_equal(found[:start], logits[:start])
        np.testing.assert_array_equal(ids[:start], tokens[:start])
        np.testing.assert_array_equal(ids[start:, :most], tokens[start:, :most])
        assert np.isnan(found[start:, most:]).all()
        found, logits = found[start:, :most], logits[start:, :most]
        assert digits(found) == digits(logits)
        level_, exact = (np.array(of["logsumexp"], float)[start:, None] for of in (got, columns))
        assert digits(100 * np.exp(found - level_)) == digits(100 * np.exp(logits - exact))
    for part, names in SHOWN.items():
        for name in names:
            if payload[part][name] is not None:
                assert digits(np.array(read[part][name], float)) == digits(payload[part][name]), name
    if detail.target:
        assert digits(np.array(read["nodes"]["z"], float)) == digits(payload["nodes"]["z"])
    for name in ("breakpoint", "gap", "keep", "token", "parent", "depth", "rank"):
        assert_same(payload["nodes"][name], read["nodes"][name])
    for name in ("breakpoint", "emit_below", "emit_above"):
        assert_same(payload["rows"][name], read["rows"][name])
    for rule, full in zip(read["rules"], payload["rules"], strict=True):
        known = detail.rules or rule["name"] == payload["rule"]["name"]
        end = None if known else first["nodes"]
        assert rule["keep"][:end] == full["keep"][:end].tolist()
        assert known or set(rule["keep"][end:]) <= {UNSAID}
    assert detail.words


def assert_same(sent: np.ndarray | None, got: list[float] | None) -> None:
    assert (sent is None) == (got is None)
    if sent is not None:
        np.testing.assert_array_equal(sent.astype(float), np.array(got, float))


def test_logits_that_cannot_be_shortened_are_sent_as_they_are(unpack) -> None:
    payload = run_payload(mapped_toy())
    start = len(payload["rows"]["logsumexp"]) - 3
    logits, width = payload["rows"]["top_logit"].copy(), payload["rows"]["top"]
    logits[start * width] = 3e30
    logits[(start + 1) * width + 1] = -np.inf
    payload = payload | {"rows": payload["rows"] | {"top_logit": logits}}
    read = np.array(unpack(parcel(detailed(payload, LEVELS[1])))["rows"]["top_logit"], float).reshape(-1, width)
    for row in (start, start + 1):
        np.testing.assert_array_equal(read[row], logits[row * width : (row + 1) * width])


def test_the_shortest_number_of_a_range_lies_in_it() -> None:
    rng = np.random.default_rng(4)
    low = rng.normal(0, 20, 4000)
    ranges = Ranges(low, low + 10.0 ** rng.uniform(-5, 1, 4000))
    found = shortest(ranges)
    assert ((ranges.low <= found.values) & (found.values <= ranges.high)).all()
    coarser = found.mantissas[found.exponents < 0]
    assert (coarser % 2 != 0).all()  # else one place fewer would have done


def test_what_shows_the_same_does(digits) -> None:
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.normal(0, 10.0**power, 300) for power in range(-7, 3)])
    values = np.concatenate([values, [0.9994, 0.9996, 9.994, 9.996, 99.94, 99.96, 0.0005, 0.00049, 1.0]])
    same = same_digits(values)
    assert digits(same.low) == digits(same.high) == digits(values)
    surprise = np.abs(values)
    chance = same_percentage(surprise)
    assert digits(100 * np.exp(-chance.low)) == digits(100 * np.exp(-chance.high)) == digits(100 * np.exp(-surprise))


@pytest.mark.parametrize("length", [0, 1, 2, 12, 13, 14, 500])
def test_bytes_stand_as_text_that_means_nothing_to_html(unpack, length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length, np.uint8)
    assert unpack(parcel([data])) == [data.tolist()]
    text = to_text(bytes(data))
    assert set(text) <= set(LETTERS) and not set(text) & set('<&"\\') and len(text) <= 1.2308 * length + 3


def test_levels_get_smaller() -> None:
    payload = run_payload(load_run(SAMPLES / "1-story-mars"))
    sizes = [len(parcel(detailed(payload, detail))) for detail in LEVELS]
    assert sizes[1] < 0.65 * sizes[0] and sizes[-1] < 0.3 * sizes[0]
    assert all(later < earlier for earlier, later in itertools.pairwise(sizes))


def test_a_report_of_500_tokens_with_its_map_keeps_to_its_size() -> None:
    run = long_toy()
    assert len(run.token_ids) > 450 and run.dial_map is not None
    assert len(report_html(run).encode()) <= MAX_BYTES


def test_too_large_a_run_is_told_in_less_detail(monkeypatch) -> None:
    run = load_run(SAMPLES / "1-story-mars")

    def made(most: int) -> bytes:
        monkeypatch.setattr(page, "MAX_BYTES", most)
        return report_html(run, most_steps=0).encode()

    whole, least = made(10**9), made(1)
    between = made((len(whole) + len(least)) // 2)
    assert len(least) <= len(between) <= (len(whole) + len(least)) // 2
    assert b"To stay small" in least and b"To stay small" not in whole
    assert b"rounded to the digits shown" in between or b"To stay small" in between


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
    assert policy.count("'sha256-") == 3  # what unpacks, what was packed, and Plotly


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
    monkeypatch.setattr(page, "LEVELS", LEVELS[-1:])
    tab = opened(run, most_steps=0)
    for value in (0.55, 1.0):
        turn(tab, value)
        assert shown(tab, "rolled_back") == summary(run.dial_map.at(value)).rolled_back
        for token in tab.locator(".stream .t:visible").all()[-6:]:
            token.click()
    expect(tab.locator(".inspector")).to_contain_text("not in this report")
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
