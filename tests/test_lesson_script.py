"""What the lessons' element does under the hand, in node: where knobs come to rest, what is told, what is heard."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mars_viz.analysis.lesson_sums import Overlap, RunnerUps, expected_speed_up, expected_tokens
from mars_viz.analysis.tree_gain import tree_tokens
from mars_viz.components.lesson import ELEMENT, Kind, Knob
from mars_viz.ui.lessons import ratio, trees, why
from mars_viz.ui.lessons.lossless import DRAWS, SHOWN, told
from tests.in_node import in_node_with

LAWS = Overlap((1, 2), p=np.array([0.5, 0.5]), q=np.array([0.2, 0.8]), shared=np.array([0.2, 0.5]))
PRICE = {"gamma": 3, "kept": 2, "lost": 1, "passes": 2, "title": "The price", "words": "A sentence."}
SEGMENT = {
    "low": 0.503,
    "high": 1,
    "tau": 2.5,
    "right": None,
    "rounds": 9,
    "same": "a text",
    "other": "",
    "words": "Words.",
}
CALLS = ratio.curves(RunnerUps(*np.array([[2], [1], [20], [17], [0]])), 0.9) | {"theta": 0.9, "reach": ratio.REACH}
COUNTED = {"runnerUps": 3, "above": [0] * ratio.REACH + [1, 2] + [3] * (ratio.REACH - 1)}
DIAL = Knob("dial", "θ", 0.987, 0.503, 1.0, 0.005, digits=3)
READINGS = {
    "symbol": "θ",
    "chart": "frontier",
    "mark": "dial",
    "thinned": False,
    "rows": [{"title": "accuracy", "kind": "exact", "strict": "91 % (88 to 94)"}],
    "places": [
        {"low": 0.503, "cells": ["80 % (75 to 85)"], "x": 80, "y": 2},
        {"low": 0.8, "cells": ["90 % (87 to 93)"], "x": 90, "y": 1.5},
        {"low": 1.0, "cells": ["91 % (88 to 94)"], "x": 91, "y": 1},
    ],
}

FIGURES: dict[Kind, tuple[tuple[Knob, ...], dict[str, Any]]] = {
    Kind.DRAFTING: (
        (Knob("alpha", "α", 0.8, step=0.01), Knob("block", "γ", 6, 1, 16), Knob("cost", "c", 0.17, step=0.01)),
        {"runs": [], "own": "Its own.", "theory": why.theory()},
    ),
    Kind.ROLLBACK: ((Knob("drafted", "γ", 3, stops=(3,)),), {"prices": [PRICE]}),
    Kind.LOSSLESS: ((Knob("draws", "Trials", 1000, stops=DRAWS),), told(LAWS, ["a", "b"])),
    Kind.SHIFT: (
        (Knob("shift", "c", 0, -ratio.REACH, ratio.REACH),),
        {**CALLS, **COUNTED, "rules": [{"name": "MARS", "changes": [1] * ratio.REACH + [0] + [1] * ratio.REACH}]},
    ),
    Kind.CHOOSING: (
        (DIAL,),
        {"symbol": "θ", "strictTau": 2.0, "graded": False, "prompt": "Say", "segments": [SEGMENT]},
    ),
    Kind.BRANCHING: (
        (
            Knob("alpha", "α", 0.6, stops=trees.ALPHAS),
            Knob("second", "b", 0.5, stops=trees.SECONDS),
            Knob("wider", "v", 0.05, high=trees.WIDEST, step=0.005),
        ),
        {**trees.theory(), "widest": trees.WIDEST, "own": "Its own."},
    ),
    Kind.SETTING: ((replace(DIAL, exact=True),), READINGS),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs statements on `at`, a lesson's opened element, and gives what they return; `lesson` is the script."""
    small = (Path(__file__).parent / "lesson_page.js").read_text("utf-8")
    run = in_node_with(tmp_path_factory.mktemp("script"), {"lesson": ELEMENT.script, "page": small})

    def evaluated(statements: str, kind: Kind, sent: dict[str, Any] | None = None, **changed: Any) -> Any:
        knobs, figure = FIGURES[kind]
        own = {
            "kind": kind.value,
            "knobs": [asdict(knob) for knob in knobs],
            "position": {knob.name: knob.start for knob in knobs},
            "figure": figure | changed,
        }
        harness = (
            'import { readFileSync } from "node:fs";\nimport { opened, pass } from "./page.mjs";\n'
            'import * as lesson from "./lesson.mjs";\n'
            'const at = opened(lesson.default, JSON.parse(readFileSync(0, "utf8")));\n'
            f"console.log(JSON.stringify((() => {{ {statements} }})()));\n"
        )
        return run(harness, own | (sent or {}))

    return evaluated


@pytest.mark.parametrize("kind", Kind)
def test_every_lesson_s_finding_is_a_status_that_screen_readers_read(page, kind):
    statuses = "at.found('p').filter(({ attributes }) => attributes.role === 'status')"
    heard = page(f"return {statuses}.map((p) => p.textContent);", kind)
    assert len(heard) == 1 and len(heard[0]) > 5


TIMED = [{"name": "a", "alpha": 0.5, "gamma": gamma, "c": 0.2, "speedUp": 1.5} for gamma in (6, 3)]
CERTAIN = {"alpha": 1.0, "block": 6, "cost": 0.5}
PRECISE = {"position": {"dial": 0.9876543}, "knobs": [asdict(replace(DIAL, exact=True, start=0.9876543))]}
APART = told(replace(LAWS, shared=np.array([0.2, 0.4])), ["a", "b"])


@pytest.mark.parametrize(
    ("kind", "sent", "changed", "part", "words"),
    [
        (Kind.DRAFTING, {}, {}, "lesson-sum", r".*\(1 − 0.807\) / \(\(1 − 0.80\)\(6 × 0.17 \+ 1\)\) = 1.96 .*"),
        (
            Kind.DRAFTING,
            {"position": CERTAIN},
            {},
            "lesson-sum",
            r".*\(γ \+ 1\) / \(γc \+ 1\) = .* = 1.75 \(modelled\)",
        ),
        (Kind.DRAFTING, {}, {"runs": TIMED[:1]}, "chart-key", r".*at γ = 6,.*\(modelled from measured times\)"),
        (Kind.DRAFTING, {}, {"runs": TIMED}, "chart-key", ".*each at its own γ,.*"),
        (Kind.DRAFTING, {}, {"runs": []}, "chart-key", "(?!.*◆)(?!.*sample run).*at these settings.*"),
        (Kind.LOSSLESS, {}, APART, "chart-title", "60(.0)? %.*"),
        (Kind.LOSSLESS, {}, APART, "chart-title", ".*every draft kept: 40(.0)? %"),
        (Kind.SHIFT, {}, {}, "chart-title", "With 0 .* 1 of 3 .* θ = 0.90"),
        (Kind.SHIFT, {"position": {"shift": 1.0}}, {}, "chart-title", "With 1 .* 2 of 3 .* θ = 0.90, instead of 1"),
        (Kind.SHIFT, {"position": {"shift": 10}}, {}, "lesson-finding", ".*z2/z1 = 0.850. .* 0.900.*3.00.*0.050.*"),
        (
            Kind.SHIFT,
            {"position": {"shift": -19}},
            {},
            "lesson-finding",
            ".*z2/z1 = 0.850. .*it is −2.00.*3.00.*0.050.*",
        ),
        (Kind.SHIFT, {"position": {"shift": -20}}, {}, "lesson-finding", r".*it is undefined.*3.00.*0.050.*"),
        (Kind.CHOOSING, {}, {}, "chart-title", r".*2.50 tokens per pass; strict: 2.00 \(exact\)"),
        (Kind.CHOOSING, {}, {"strictTau": None}, "chart-title", r"(?!.*strict).*2.50 tokens per pass \(exact\)"),
        (Kind.SETTING, PRECISE, {}, "knob-value", "0.9876543"),
    ],
)
def test_numbers_in_the_words(page, kind, sent, changed, part, words):
    found = page(f"return at.found('{part}').map((each) => each.textContent);", kind, sent, **changed)
    plain = [text.replace("\u00a0", " ").replace("\u202f", " ") for text in found]
    assert any(re.fullmatch(words, text) for text in plain), plain


def test_the_speed_up_of_the_formula_is_python_s():
    assert float(expected_speed_up(0.8, 6, 0.17)) == pytest.approx(1.96, abs=0.005)


def test_notes_and_roles(page):
    note = "const [note] = at.found('lesson-note'); return [note.textContent, note.hidden];"
    assert "modelled from" in page(note, Kind.DRAFTING, runs=TIMED)[0]
    assert [page(note, Kind.DRAFTING, runs=runs)[1] for runs in (TIMED, [])] == [False, True]
    text = page("return at.found('lesson-text')[0].attributes;", Kind.CHOOSING)
    assert text["role"] == "group" and text["aria-label"]
    thinned = page("at.pull(0.9); return at.found('aside')[0].textContent;", Kind.SETTING, thinned=True)
    assert "θ = 0.80" in thinned and "3 settings" in thinned


def test_stopped_between_two_stops_the_trials_go_to_the_one_below_and_are_heard_once(page):
    seen, heard, told = page(
        "const button = at.found('lesson-play')[0], heard = () => at.found('heard')[0].textContent;"
        "const before = heard(); button.dispatchEvent({ type: 'click' }); pass(3300);"
        "const seen = [at.found('knob-value')[0].textContent, heard() === before];"
        "button.dispatchEvent({ type: 'click' }); return [seen, heard(), at.told];",
        Kind.LOSSLESS,
    )
    trials = int(seen[0].replace("\u202f", ""))
    assert trials in SHOWN and trials not in DRAWS and seen[1]
    below = max(stop for stop in DRAWS if stop <= trials)
    assert [position["draws"] for position in told] == [below]
    assert heard.replace("\u202f", "").startswith(f"After {below} trials")
    assert FIGURES[Kind.LOSSLESS][0][0].settled(told[0]["draws"]) == below


def test_a_dial_rests_where_python_has_it_too(page):
    asked = [0.5, 0.503, 0.9, 0.9012, 1.0]  # of 0.503 the thumb goes to the nearest step
    shown, told = page(
        f"const shown = at.found('knob-value')[0].textContent; for (const value of {asked}) at.pull(value);"
        "return [shown, at.told.map(({ dial }) => dial)];",
        Kind.CHOOSING,
    )
    assert shown == "0.987", "its own value, as it is"
    assert told == [0.503, 0.505, 0.9, 1.0], "what stands where it stood is not told again"
    assert [DIAL.settled(value) for value in told] == told


@pytest.mark.parametrize(
    ("speed_up", "words"),
    [
        (2.5, "2.50 times as fast"),
        (1.004, "1.004 times as fast"),
        (1, "as fast as the target alone"),
        (0.9997, "as fast as the target alone"),
        (0.997, "0.997 times as fast, slower than the target alone"),
        (0.5, "0.500 times as fast, slower than the target alone"),
    ],
)
def test_a_speed_up_near_one_is_not_rounded_to_the_wrong_side(page, speed_up, words):
    assert page(f"return lesson.paceWords({speed_up});", Kind.DRAFTING) == words


def test_a_setting_s_figures_follow_the_hand_and_are_told_when_it_rests(page):
    read = "[at.found('spread')[0].textContent, at.found('setting')[0].childNodes[0].childNodes[1].textContent]"
    for value, spread, estimate in ((0.8, "87 to 93", "90 %"), (0.795, "75 to 85", "80 %"), (1, "88 to 94", "91 %")):
        assert page(f"at.pull({value}); return {read};", Kind.SETTING) == [spread, estimate]
    told = page("at.pull(0.8); return [at.told.at(-1), at.found('heard')[0].textContent];", Kind.SETTING)
    assert told == [{"revision": "1", "dial": 0.8}, "θ = 0.80: accuracy 90 % (87 to 93)"]
    moving = "const [range] = at.found('input'); range.value = 0.6; range.dispatchEvent({ type: 'input' });"
    heard = page(f"{moving} return at.found('heard')[0].textContent;", Kind.SETTING)
    assert heard == "θ = 0.987: accuracy 90 % (87 to 93)"


def test_the_strip_under_the_dial_says_where_it_stands_and_leads_to_a_segments_edge(page):
    segments = [
        {**SEGMENT, "high": 0.7512345, "same": "loose"},
        {**SEGMENT, "low": 0.7512345, "tau": None, "words": "Cut."},
    ]
    click = """
        const [strip] = at.found('segments');
        strip.getBoundingClientRect = () => ({ left: 0, width: 1000 });
        const parts = strip.childNodes, style = parts[1].style, words = () => at.found('segment')[0].textContent;
        const before = words();
        strip.listeners.click({ clientX: 502 });  // three pixels beside the edge
        return [before, words(), style.left, at.found('knob-value')[0].textContent, at.told.at(-1), at.found('lesson-finding')[0].textContent];
    """  # noqa: E501
    start = {"position": {"dial": 0.6}, "knobs": [asdict(replace(DIAL, exact=True, start=0.6))]}
    before, after, left, said, told, finding = page(click, Kind.CHOOSING, start, segments=segments)
    assert before == "Segment 1 of 2: θ 0.503 to 0.7512, τ\u00a0=\u00a02.50"
    assert "not mapped to its end" in after and float(left.rstrip("%")) == pytest.approx(49.946, abs=0.01)
    assert (said, told, finding) == ("0.7512345", {"revision": "1", "dial": 0.7512345}, "Cut.")


FADED = """
    const figure = {
        _fullLayout: { xaxis: { l2p: (x) => x }, yaxis: { l2p: (y) => y } },
        layout: { annotations: [{ name: 'dial', x: 90, y: 1.5, text: '<b>θ = 0.98765</b>' }] },
        on() {},
    };
    const title = { style: {} }, tag = { dataset: { index: 0 }, style: {}, querySelector: () => null };
    figure.querySelector = () => title;
    figure.querySelectorAll = (selector) => (selector.startsWith('.annotation') ? [tag] : []);
    document.querySelector = () => figure;
    const faded = [];
    const fades = (dial, text) => {
        figure.layout.annotations[0].text = text;
        at.renew({ position: { dial }, revision: String(faded.length + 2) });
        faded.push(title.style.opacity !== '');
    };
    fades(0.98765, '<b>θ = 0.98765</b>');
    fades(0.98765, 'θ = 0.9877');
    fades(0.9, '<b>θ = 0.98765</b>');
    fades(0.905, '<b>θ = 0.90</b>');
    return faded;
"""


def test_a_figure_s_title_is_faded_only_while_it_speaks_of_another_setting(page):
    assert page(FADED, Kind.SETTING) == [False, False, True, True]


RENEWED = """
    const [range] = at.found('input');
    range.listeners.pointerdown?.({});
    range.value = 0.6;
    range.dispatchEvent({ type: 'input' });
    const places = [{ low: 0.503, cells: ['70 % (65 to 75)'], x: 70, y: 2 }];
    at.renew({ id: 'b', revision: '2', figure: { ...at.sent.figure, places } });
    const held = [at.found('input')[0] === range, at.found('knob-value')[0].textContent, at.found('setting')[0].childNodes[0].childNodes[1].textContent];
    range.dispatchEvent({ type: 'change' });
    return [...held, at.told.at(-1)];
"""  # noqa: E501


def test_new_figures_come_under_a_knob_that_is_held_and_leave_it_in_the_hand(page):
    assert page(RENEWED, Kind.SETTING) == [True, "0.600", "70 %", {"revision": "2", "dial": 0.6}]


@pytest.mark.parametrize(("alpha", "second", "wider"), [(0.6, 0.5, 0.05), (0.9, 0.0, 0.0), (0.05, 1.0, 0.2)])
def test_trees_and_chains_are_fastest_where_python_says(page, alpha, second, wider):
    at = {"position": {"alpha": alpha, "second": second, "wider": wider}}
    title, words = page(
        "return [at.found('chart-title')[0], at.found('lesson-finding')[0]].map((each) => each.textContent);",
        Kind.BRANCHING,
        at,
    )
    nodes = np.arange(1, trees.MOST + 1)
    tokens = [tree_tokens(alpha, second, trees.MOST), expected_tokens_of(alpha)]
    paces = [each / (1 + wider * nodes) for each in tokens]
    counts = re.search(r"a tree of (\d+) nodes? is (\S+) times .*, of (\d+), (\S+) times", title)
    assert counts is not None
    for found, pace in zip((int(counts[1]), int(counts[3])), paces, strict=True):
        assert pace[found - 1] == pytest.approx(pace.max(), rel=1e-4)
    assert [float(counts[2]), float(counts[4])] == pytest.approx([pace.max() for pace in paces], abs=0.006)
    assert words.endswith("(modelled). Its own.")


def expected_tokens_of(alpha: float) -> np.ndarray:
    return np.array([float(expected_tokens(alpha, n)) for n in range(1, trees.MOST + 1)])
