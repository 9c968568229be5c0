"""What lessons compute and draw, how their element behaves under the hand, in node, and what comes with the product."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st

from mars_viz import figures, samples
from mars_viz.analysis import lesson_sums as sums
from mars_viz.analysis.branching import tree_tokens
from mars_viz.analysis.intervals import Steps, wilson
from mars_viz.analysis.lesson_sums import (
    OTHERS,
    Overlap,
    RunnerUps,
    close_calls,
    expected_tokens,
    round_cost,
    total_variation,
    trials,
)
from mars_viz.analysis.metrics import summary
from mars_viz.components import lesson
from mars_viz.components.lesson import ELEMENT, Kind, Knob, lesson_figure
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped, walk
from mars_viz.figures.engines import accuracy_curve
from mars_viz.records import Timing
from mars_viz.rules import rule_named
from mars_viz.speculators.backend import Backend
from mars_viz.ui.jobs import tasks
from mars_viz.ui.lessons import lossless, ratio, rollback, trees, why
from mars_viz.ui.lessons.lossless import DRAWS, SHOWN, told
from mars_viz.walk import Ending
from tests.factories import PROMPT, ToySpeculator, make_speculation, processed, toy_map, toy_run
from tests.in_node import in_node_with
from tests.test_learn_page import with_map

LAWS = sums.Overlap((1, 2), p=np.array([0.5, 0.5]), q=np.array([0.2, 0.8]), shared=np.array([0.2, 0.5]))
PRICE = {"gamma": 3, "kept": 2, "lost": 1, "passes": 2, "title": "The price", "words": "A sentence."}
SEGMENT = {"low": 0.503, "high": 1, "tau": 2.5, "rounds": 9, "right": None, "same": "a", "other": "", "words": "Words."}
CALLS = ratio.curves(sums.RunnerUps(*np.array([[20], [17], [0]])), 0.9) | {"theta": 0.9, "reach": ratio.REACH}
COUNTED = {"runnerUps": 3, "above": [0] * ratio.REACH + [1, 2] + [3] * (ratio.REACH - 1)}
DIAL = Knob("dial", "θ", 0.987, 0.503, 1.0, 0.005, digits=3)
READINGS = {
    **{"symbol": "θ", "chart": "frontier", "mark": "dial"},
    "rows": [{"title": "accuracy", "kind": "exact", "strict": "91 % (88 to 94)"}],
    "places": [
        {"low": 0.503, "until": 0.8, "cells": ["80 % (75 to 85)"], "x": 80, "y": 2},
        {"low": 0.8, "until": 1, "cells": ["90 % (87 to 93)"], "x": 90, "y": 1.5},
        {"low": 1.0, "until": 1, "cells": ["91 % (88 to 94)"], "x": 91, "y": 1},
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
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs statements on `at`, the opened element of a lesson, of each row, and gives all that they return.

    A row is (statements, kind, what is sent otherwise, what is otherwise in its figure).
    """
    small = (Path(__file__).parent / "lesson_page.js").read_text("utf-8")
    run = in_node_with(tmp_path_factory.mktemp("script"), {"lesson": ELEMENT.script, "page": small})

    def evaluated(*rows: tuple[str, Kind, dict[str, Any], dict[str, Any]]) -> Any:
        sent, calls = [], []
        for at, (statements, kind, otherwise, changed) in enumerate(rows):
            knobs, figure = FIGURES[kind]
            own = {"kind": kind.value, "knobs": [asdict(knob) for knob in knobs], "figure": figure | changed}
            sent.append(own | {"position": {knob.name: knob.start for knob in knobs}} | otherwise)
            calls.append(f"((at) => {{ {statements} }})(opened(lesson.default, sent[{at}]))")
        harness = (
            'import { readFileSync } from "node:fs";\nimport { opened, pass } from "./page.mjs";\n'
            'import * as lesson from "./lesson.mjs";\nconst sent = JSON.parse(readFileSync(0, "utf8"));\n'
            f"console.log(JSON.stringify([{', '.join(calls)}]));\n"
        )
        return run(harness, sent)

    return evaluated


@pytest.fixture(scope="module")
def page(pages: Callable[..., Any]) -> Callable[..., Any]:
    return lambda statements, kind, sent=None, **changed: pages((statements, kind, sent or {}, changed))[0]


def test_every_lesson_s_finding_is_a_status_that_screen_readers_read(pages):
    statuses = "at.found('p').filter(({ attributes }) => attributes.role === 'status')"
    for heard in pages(*((f"return {statuses}.map((p) => p.textContent);", kind, {}, {}) for kind in Kind)):
        assert len(heard) == 1 and len(heard[0]) > 5


TIMED = [{"name": "a", "alpha": 0.5, "gamma": gamma, "c": 0.2, "speedUp": 1.5} for gamma in (6, 3)]
PRECISE = {"position": {"dial": 0.9876543}, "knobs": [asdict(replace(DIAL, exact=True, start=0.9876543))]}
APART = told(replace(LAWS, shared=np.array([0.2, 0.4])), ["a", "b"])
WORDS = [
    (Kind.DRAFTING, {}, {}, "lesson-sum", r".*\(1 − 0.807\) / \(\(1 − 0.80\)\(6 × 0.17 \+ 1\)\) = 1.96 .*"),
    (Kind.DRAFTING, {"position": {"alpha": 1.0, "block": 6, "cost": 0.5}}, {}, "lesson-sum",
     r".*\(γ \+ 1\) / \(γc \+ 1\) = .* = 1.75 \(modelled\)"),
    (Kind.DRAFTING, {}, {"runs": TIMED[:1]}, "chart-key", r".*at γ = 6,.*\(modelled from measured times\)"),
    (Kind.DRAFTING, {}, {"runs": TIMED}, "chart-key", ".*each at its own γ,.*"),
    (Kind.LOSSLESS, {}, APART, "chart-title", "60(.0)? %.*"),
    (Kind.LOSSLESS, {}, APART, "chart-title", ".*every draft kept: 40(.0)? %"),
    (Kind.SHIFT, {}, {}, "chart-title", "With 0 .* 1 of 3 .* θ = 0.90"),
    (Kind.SHIFT, {"position": {"shift": 1.0}}, {}, "chart-title", "With 1 .* 2 of 3 .* θ = 0.90, instead of 1"),
    (Kind.SHIFT, {"position": {"shift": 10}}, {}, "lesson-finding", ".*z2/z1 = 0.850. .* 0.900.*3.00.*0.050.*"),
    (Kind.SHIFT, {"position": {"shift": -19}}, {}, "lesson-finding", ".*z2/z1 = 0.850. .*it is −2.00.*3.00.*0.050.*"),
    (Kind.SHIFT, {"position": {"shift": -20}}, {}, "lesson-finding", ".*it is undefined.*3.00.*0.050.*"),
    (Kind.CHOOSING, {}, {}, "chart-title", r".*2.50 tokens per pass; strict: 2.00 \(exact\)"),
    (Kind.CHOOSING, {}, {"strictTau": None}, "chart-title", r"(?!.*strict).*2.50 tokens per pass \(exact\)"),
    (Kind.SETTING, PRECISE, {}, "knob-value", "0.9876543"),
]  # fmt: skip


def test_numbers_in_the_words(pages):
    rows = [(f"return at.found('{part}').map((p) => p.textContent);", *asked) for *asked, part, _ in WORDS]
    for (*_, words), found in zip(WORDS, pages(*rows), strict=True):
        plain = [text.replace("\u00a0", " ").replace("\u202f", " ") for text in found]
        assert any(re.fullmatch(words, text) for text in plain), (words, plain)
    assert float(sums.expected_tokens(0.8, 6)) / sums.round_cost(6, 0.17) == pytest.approx(1.96, abs=0.005)
    for pace, words in (
        (2.5, "2.50 times as fast"),
        (1.004, "1.004 times as fast"),
        (0.9997, "as fast as the target alone"),
        (0.997, "0.997 times as fast, slower than the target alone"),
    ):  # near one it is not rounded to the wrong side
        assert pages((f"return lesson.paceWords({pace});", Kind.DRAFTING, {}, {})) == [words]


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


def test_a_setting_s_figures_follow_the_hand_and_are_told_when_it_rests(page):
    read = "[at.found('spread')[0].textContent, at.found('setting')[0].childNodes[0].childNodes[1].textContent]"
    for value, spread, estimate in ((0.8, "87 to 93", "90 %"), (0.795, "75 to 85", "80 %"), (1, "88 to 94", "91 %")):
        assert page(f"at.pull({value}); return {read};", Kind.SETTING) == [spread, estimate]
    told = page("at.pull(0.8); return [at.told.at(-1), at.found('heard')[0].textContent];", Kind.SETTING)
    assert told == [{"revision": "1", "dial": 0.8}, "θ = 0.80: accuracy 90 % (87 to 93)"]
    moving = "const [range] = at.found('input'); range.value = 0.6; range.dispatchEvent({ type: 'input' });"
    heard = page(f"{moving} return at.found('heard')[0].textContent;", Kind.SETTING)
    assert heard == "θ = 0.987: accuracy 90 % (87 to 93)"


RENEWED = """
    const [range] = at.found('input');
    range.listeners.pointerdown?.({});
    range.value = 0.6;
    range.dispatchEvent({ type: 'input' });
    const places = [{ low: 0.503, cells: ['70 % (65 to 75)'], x: 70, y: 2 }];
    at.renew({ id: 'b', revision: '2', figure: { ...at.sent.figure, places } });
    const held = [at.found('input')[0] === range, at.found('knob-value')[0].textContent];
    const estimate = at.found('setting')[0].childNodes[0].childNodes[1].textContent;
    range.dispatchEvent({ type: 'change' });
    return [...held, estimate, at.told.at(-1)];
"""


def test_new_figures_come_under_a_knob_that_is_held_and_leave_it_in_the_hand(page):
    assert page(RENEWED, Kind.SETTING) == [True, "0.600", "70 %", {"revision": "2", "dial": 0.6}]


def test_trees_and_chains_are_fastest_where_python_says(pages):
    nodes = np.arange(1, trees.MOST + 1)
    settings = [(0.6, 0.5, 0.05), (0.9, 0.0, 0.0), (0.05, 1.0, 0.2)]
    positions = [dict(zip(("alpha", "second", "wider"), each, strict=True)) for each in settings]
    title = "return at.found('chart-title')[0].textContent;"
    rows = [(title, Kind.BRANCHING, {"position": each}, {}) for each in positions]
    for (alpha, second, wider), words in zip(settings, pages(*rows), strict=True):
        chain = np.array([float(sums.expected_tokens(alpha, n)) for n in nodes])
        paces = [each / (1 + wider * nodes) for each in (tree_tokens(alpha, second, trees.MOST), chain)]
        counts = re.search(r"a tree of (\d+) nodes? is (\S+) times .*, of (\d+), (\S+) times", words)
        assert counts is not None
        for found, pace in zip((int(counts[1]), int(counts[3])), paces, strict=True):
            assert pace[found - 1] == pytest.approx(pace.max(), rel=1e-4)
        assert [float(counts[2]), float(counts[4])] == pytest.approx([pace.max() for pace in paces], abs=0.006)


def test_the_formulas_by_hand():
    assert sums.expected_tokens(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
    assert sums.expected_tokens(1.0, 6) == 7 and sums.expected_tokens(0.0, 6) == 1
    assert sums.expected_tokens(0.8, 5) == pytest.approx((1 - 0.8**6) / 0.2) and sums.round_cost(5, 0.02) == 1.1
    assert sums.expected_tokens(np.array([0.0, 0.5]), 1).tolist() == [1.0, 1.5]


def test_a_runs_own_letters_by_hand():
    run = toy_run()
    timing = Timing(draft=0.006, verify=0.002, evidence=1.0, total=2.0)
    timed = replace(run, rounds=tuple(replace(r, timing=timing) for r in run.rounds))
    found = sums.gain(timed)
    kept = sum(round_.kept for round_ in run.rounds)
    rejected = sum(outcome.value == "rejected" for round_ in run.rounds for outcome in round_.outcomes)
    assert found.alpha == kept / (kept + rejected) and found.gamma == 6 and found.tau == run.tau
    assert found.draft_step == pytest.approx(0.001) and found.c == pytest.approx(0.5)
    assert found.speed_up == pytest.approx(run.tau * 0.002 / 0.008)
    assert not sums.gain(run).timed, "a run without timings has no c"
    assert np.isnan(sums.gain(replace(run, rounds=())).alpha)


def test_prices_are_those_of_decoding_at_the_strict_end():
    run = toy_run(dial=0.9)
    run = mapped(run, toy_map(replace(run.settings, dial=None), 0.5, None, (1, 3, 6))[0])
    found, prices = sums.strict_runs(run), rollback.picture(run, ()).figure["prices"]
    assert list(found) == [price["gamma"] for price in prices] == [1, 3, 6]
    for price, (gamma, strict) in zip(prices, found.items(), strict=True):
        settings = replace(run.settings, gamma=gamma)
        ending = Ending(frozenset({0}), settings.max_new_tokens)
        rounds = list(walk(ToySpeculator(settings), rule_named("strict"), None, PROMPT, ending))
        assert price["passes"] == len(rounds) and price["kept"] == sum(r.kept for r in rounds)
        assert price["kept"] + price["lost"] == sum(len(r.speculation) for r in rounds)
        assert strict.token_ids == tuple(t for r in rounds for t in r.token_ids)
        assert rollback.strict_text(run, {"drafted": gamma}).token_ids == strict.token_ids
    assert rollback.strict_text(run, {}).settings.gamma == 6


def test_a_small_share_of_wasted_drafts_is_some_and_without_a_strict_text_there_is_no_price():
    strict = toy_run(rule="strict")
    for lost, of, share in ((1, 300, "0.333"), (7, 100, "7"), (0, 0, "0")):
        numbers = replace(summary(strict), drafted=of, rolled_back=lost)
        assert rollback.heading(3, numbers).endswith(f", {share} % of drafted tokens rolled back (exact)")
    assert sums.strict_runs(toy_run(dial=0.7)) == {} and rollback.picture(toy_run(dial=0.7), ()) is None
    assert sums.strict_runs(strict) == {6: strict} and rollback.strict_text(strict, {}) is strict


def test_the_areas_are_those_of_the_full_laws():
    rng = np.random.default_rng(3)
    for temperature in (0.7, 1.0, 1.6):
        target, drafter = rng.normal(0, 2, (4, 40)), rng.normal(0, 2, (3, 40))
        tokens = [int(np.argmax(z)) for z in drafter]
        spec = make_speculation(target, drafter, tokens, temperature=temperature)
        run = toy_run(rule="rejection-sampling", temperature=temperature)
        run = replace(run, rounds=(replace(run.rounds[0], speculation=spec),))
        for node in range(3):
            laws = sums.overlap(run, (0, node))
            p, q = (processed(z[node].astype(np.float32), temperature) for z in (target, drafter))
            shown = list(laws.tokens[:-1])
            rest = np.setdiff1d(np.arange(40), shown)
            for group, full in ((laws.p, p), (laws.q, q), (laws.shared, np.minimum(p, q))):
                assert group[:-1] == pytest.approx(full[shown], abs=1e-5)
                assert group[-1] == pytest.approx(full[rest].sum(), abs=1e-4)
            assert laws.acceptance == pytest.approx(1 - np.abs(p - q).sum() / 2, abs=1e-5)
            assert laws.p.sum() == pytest.approx(1) and laws.q.sum() == pytest.approx(1)
            assert laws.tokens[-1] == sums.OTHERS


def test_places_are_those_whose_laws_are_known_and_the_lesson_says_what_is_missing():
    run = toy_run(rule="rejection-sampling", temperature=1.0)
    lacks = lossless.LESSON.lacks
    assert sums.places(run) and lacks(run) == ""
    assert all(node < len(run.rounds[index].speculation) for index, node in sums.places(run))
    assert "greedy" in lacks(toy_run())
    assert "top-k" in lacks(toy_run(rule="rejection-sampling", temperature=1.0, top_p=0.9))
    assert "recorded both distributions" in lacks(replace(run, rounds=()))


def test_close_calls_and_their_ratios_by_hand():
    target = np.array([[20.0, 17, 0], [3, 2.9, 0], [0, 0, 5]])
    spec = make_speculation(target, target[:2], [1, 1])
    run = toy_run()
    calls = sums.close_calls(replace(run, rounds=(replace(run.rounds[0], speculation=spec),)))
    assert calls.z1.tolist() == pytest.approx([3, 20]) and calls.positions.tolist() == [1, 0]
    assert calls.ratio(0.0) == pytest.approx([2.9 / 3, 0.85]) and calls.ratio(10.0)[1] == pytest.approx(0.9)
    assert calls.odds == pytest.approx([np.exp(-0.1), np.exp(-3)])
    low = calls.ratio(np.array([-3.0, -25.0]))
    assert np.isnan(low[0, 0]) and low[0, 1] == pytest.approx(14 / 17) and np.isnan(low[1]).all()


RIGHT = Steps(np.array([0.5, 0.6, 0.8, 0.9, 1.0]), np.array([282.0, 290.0, 295.0, 296.0]))


def test_the_accuracy_curve_counts_and_its_axis_stands_still_and_holds_every_interval():
    ranges = set()
    for dial in (0.5, 0.7, 0.85, 1.0):
        figure, sure = accuracy_curve(RIGHT, 300, "θ", dial, figures.LIGHT), wilson(int(RIGHT.at(dial)), 300)
        mark = figure.data[1]
        reach = [mark.y[0] - mark.error_y.arrayminus[0], mark.y[0] + mark.error_y.array[0]]
        assert reach == pytest.approx([100 * sure.low, 100 * sure.high])
        low, high = figure.layout.yaxis.range
        assert low <= reach[0] < reach[1] <= high
        ranges.add((low, high))
    assert len(ranges) == 1
    figure = accuracy_curve(RIGHT, 300, "θ", 0.85, figures.LIGHT)
    assert figures.spoken_title(figure) == (
        "295 of 300 exercises are right at θ = 0.85, strict 296 (exact); 95 % interval 96 to 99 %"
    )
    assert list(figure.data[0].customdata) == [282, 290, 295, 296, 296] and figure.data[0].y[0] == pytest.approx(94)


def test_what_comes_along_tells_the_lessons_point(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    costs, graded = samples.recorded_costs(), samples.recorded_grades()
    assert costs.gamma == why.MEASURED and (costs.target, costs.drafter) == ("built-in/target", "built-in/drafter")
    times = [each.seconds for each in costs.target_pass]
    assert times[-1] < 2 * times[0], "nine positions take little more time than one"
    assert costs.drafter_step.seconds < times[0] and graded.exercises == 300
    strict, loose = (float(graded.right.at(theta)) for theta in (1.0, 0.5))
    assert loose < 0.9 * strict and 270 < strict < 300


def test_exercises_in_free_wording_are_graded_in_turn(pair: Backend):
    steps = [result for _, result in tasks.grade(pair, 1)]
    assert [step and step.exercises for step in steps] == [1, 2, 3]
    right = steps[-1].right
    assert right.low == 0.5 and right.at(1.0) <= 3


WRONG = {
    "exercises": ["many", 0, 2.5, 10**400],
    "edges": [[1, 0], [[0, 1]]],
    "right": [[1, 2], [4], ["x"], [[1], [2]], [[1, 2]], [2.5], 2, [10**400], [None]],
}


NUMBERS = {"exercises": 3, "edges": [0, 1], "right": [2]}


@pytest.mark.parametrize("found", [None, [], {"exercises": 3}, *(NUMBERS | {n: v} for n in WRONG for v in WRONG[n])])
def test_bad_grades_are_refused(found):
    with pytest.raises(BadInput):
        samples.graded_from(found)


def recorded(name: str) -> str:
    return (samples.MEASURED / name).read_text("utf-8")


ZEROS = "0" * 5000
DAMAGED = {
    samples.COSTS: [
        *(('"repeats": ', f'"repeats": {value}, "was": ') for value in ("Infinity", "1e999", "3")),
        *(('"seconds": 0.', f'"seconds": {value}, "was": 0.') for value in ("0", f"1{ZEROS[:400]}", f"1{ZEROS}")),
        ('"seconds": 0.', '"seconds": -0.'),
        (recorded(samples.COSTS), recorded(samples.COSTS)[:-5]),
        (recorded(samples.COSTS), "[" * 100_000),
    ],
    samples.GRADED: [
        *(("282.0", value) for value in ("[282.0]", "282.5", "NaN")),
        ("300", "3"),
        (recorded(samples.GRADED), json.dumps(NUMBERS | {"right": [[1], [2]]})),
        (recorded(samples.GRADED), '{"exercises": ' * 100_000),
    ],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_as_good_as_none_and_a_whole_one_is_read(name, tmp_path: Path, monkeypatch):
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    whole = {each: recorded(each) for each in DAMAGED}
    for place, (old, new) in enumerate(DAMAGED[name]):
        assert old in whole[name]
        (folder := tmp_path / str(place)).mkdir()  # the text of a path is read once
        monkeypatch.setattr(samples, "MEASURED", folder)
        (folder / name).write_text(whole[name].replace(old, new, 1), encoding="utf-8")
        assert samples.recorded_costs() is None and samples.recorded_grades() is None
    (folder := tmp_path / "whole").mkdir()
    monkeypatch.setattr(samples, "MEASURED", folder)
    for each, text in whole.items():
        (folder / each).write_text(text, encoding="utf-8")
    later = {"tree": "chain", "drafting": [], "passes_per_token": 1.0}  # fields that older files lack
    costs = json.loads(json.dumps(asdict(samples.recorded_costs())))
    assert costs == json.loads(whole[samples.COSTS]) | later
    assert samples.as_json(samples.recorded_grades()) == json.loads(whole[samples.GRADED])
    monkeypatch.setenv(samples.VARIABLE, "off")
    assert samples.recorded_costs() is None and samples.recorded_grades() is None


class Tab:
    """The tab's state, and what each element was last sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}
        monkeypatch.setattr(st, "session_state", self.state)
        monkeypatch.setattr(lesson, "mount", self.take)

    def take(self, element: object, data: list[dict[str, Any]], *, key: str, answers: tuple[str, ...]) -> None:
        self.sent[key] = data[0]

    def rest(self, key: str, dial: float) -> None:
        """The hand comes to rest on what the browser was last sent."""
        self.state[key] = {"position": {"revision": self.sent[key]["revision"], "dial": dial}}

    def show(self, key: str, figure: int, dial: float) -> float:
        knob = Knob("dial", "θ", 0.9, 0.5, 1.0, 0.005)
        return lesson_figure(Kind.SETTING, [knob], {"figure": figure}, {"dial": dial}, key=key, label="")["dial"]


tab = pytest.fixture(lambda monkeypatch: Tab(monkeypatch))


def test_a_rest_that_comes_with_the_rerun_that_brings_new_figures_is_heard(tab):
    assert tab.show("k", 1, 0.9) == 0.9
    before = tab.sent["k"]["revision"]
    tab.rest("k", 0.7)
    assert tab.show("k", 2, 0.9) == 0.7
    assert tab.sent["k"]["position"] == {"dial": 0.7} and tab.sent["k"]["revision"] != before
    assert tab.show("k", 2, 0.7) == 0.7
    tab.rest("k", 0.6)
    assert tab.show("k", 3, 0.8) == 0.6, "the setting that the sweep speaks for moved with its figures"


FOUR = Overlap(
    tokens=(1, 2, 3, OTHERS),
    p=np.array([0.5, 0.1, 0.3, 0.1]),
    q=np.array([0.2, 0.6, 0.1, 0.1]),
    shared=np.array([0.2, 0.1, 0.1, 0.05]),  # the others' own laws share only half of what each has
)


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Any], Any]:
    """Evaluates an expression over `lesson`, what the script exports, and `given`."""
    run = in_node_with(tmp_path_factory.mktemp("script"), {"lesson": ELEMENT.script})
    start = 'import { readFileSync } from "node:fs";\nimport * as lesson from "./lesson.mjs";\n'
    start += 'const given = JSON.parse(readFileSync(0, "utf8"));\n'
    return lambda expression, given=None: run(f"{start}console.log(JSON.stringify({expression}));\n", given)


def test_the_speed_up_in_the_browser_is_pythons(js):
    asked = list(product(np.linspace(0, 1, 101).round(2).tolist(), [1, 6, 16], [0.0, 0.17, 0.5, 1.0]))
    found = js(
        "given.asked.map((at) => Object.values(lesson.theoryAt(given.theory, ...at)))",
        {"theory": why.theory(), "asked": asked},
    )
    for (alpha, gamma, c), (tokens, speed_up) in zip(asked, found, strict=True):
        assert tokens == pytest.approx(float(expected_tokens(alpha, gamma)), rel=1e-5)
        assert speed_up == pytest.approx(float(expected_tokens(alpha, gamma)) / round_cost(gamma, c), rel=1e-5)


def calls_of(*logits: tuple[float, float]) -> RunnerUps:
    """Runner-ups with these z1 and z2."""
    z1, z2 = np.array(logits, float).T
    places = np.arange(len(logits))
    return RunnerUps(z1, z2, places)


def test_a_runner_ups_curve_begins_at_nought_and_never_falls(js):
    logits = ((9.0, 8.5), (3.0, -2.0), (60.0, 50.0), (20.0, 16.9996))
    drawn = js("given.map((each) => lesson.pointsOf(each, 40))", ratio.curves(calls_of(*logits), 0.9)["curves"])
    for (z1, z2), points in zip(logits, drawn, strict=True):
        x, y = np.array(points).T
        assert x[0] == pytest.approx(max(-z2, -40), abs=1e-3) and x[-1] == 40 and (np.diff(x) > 0).all()
        assert y[0] == pytest.approx(0 if z2 <= 40 else (z2 - 40) / (z1 - 40), abs=1e-3) and y[0] >= 0
        assert (np.diff(y) >= 0).all() and np.diff(x).max() <= 1
        assert y == pytest.approx((z2 + x) / (z1 + x), rel=1e-3, abs=1e-3)


def test_a_runner_ups_ratios_are_those_of_its_shifted_logits():
    (drawn,) = ratio.curves(calls_of((5.0, 5.0)), 0.9)["curves"]
    assert drawn["steep"][:2] == [(-5.0, None), (-4.98, 1.0)] and drawn["ratios"][34:37] == [None, None, 1.0]
    calls = close_calls(toy_run(temperature=1.0, max_new_tokens=60))
    sent = ratio.curves(calls, 0.9)
    assert len(sent["curves"]) == min(len(calls), ratio.DRAWN)
    for place, drawn in enumerate(sent["curves"]):
        wanted = calls.ratio(np.arange(-40.0, 41))[:, place]
        assert np.array(drawn["ratios"], float) == pytest.approx(wanted, rel=1e-3, nan_ok=True)
        assert drawn["odds"] == calls.odds[place]
    near = int(np.nanargmin(np.abs(calls.ratio(0.0) - 0.9)))
    assert (sent["told"]["z1"], sent["told"]["z2"]) == (calls.z1[near], calls.z2[near])
    assert sent["told"]["ratios"][40] == pytest.approx(calls.ratio(0.0)[near], rel=1e-3)


def test_the_runner_ups_above_theta_are_those_that_mars_keeps():
    run = toy_run(temperature=1.0, vocabulary=64, max_new_tokens=150, dial=0.8)
    calls = close_calls(run)
    found = ratio.verdicts(run, calls)
    by_hand = [int((calls.ratio(float(c)) > 0.8).sum()) for c in range(-ratio.REACH, ratio.REACH + 1)]
    assert found["above"] == by_hand and len(set(by_hand)) > 1 and found["runnerUps"] == len(calls)


def test_a_segment_holds_its_low_end_and_the_last_one_its_high_end(js):
    run = with_map("A", temperature=0.0, dial=0.8)
    assert run.dial_map is not None
    segments = run.dial_map.segments_for(6)
    assert len(segments) > 1
    dials = [*(end for each in segments for end in (each.low, each.high)), *np.linspace(0.5, 1, 21).tolist()]
    bounds = [{"low": each.low, "place": place} for place, each in enumerate(segments)]
    found = js(
        "given.dials.map((dial) => lesson.segmentAt(given.bounds, dial).place)", {"dials": dials, "bounds": bounds}
    )
    assert found == [segments.index(run.dial_map.segment(dial, 6)) for dial in dials]


DISJOINT = replace(FOUR, p=np.array([1.0, 0, 0, 0]), q=np.array([0, 1.0, 0, 0]), shared=np.zeros(4))


def test_trials_follow_the_target_whatever_the_drafter():
    """Each frequency within 6 standard errors for each of 4 groups and 3 laws: a false alarm once in 40 million."""
    draws = 100_000
    for laws in (FOUR, replace(FOUR, shared=np.zeros(4)), DISJOINT):
        (counts,) = trials(laws, [draws])
        assert counts.sum() == draws
        assert (np.abs(counts / draws - laws.p) <= 6 * np.sqrt(laws.p * (1 - laws.p) / draws)).all()
    assert trials(replace(FOUR, q=FOUR.p, shared=FOUR.p), [draws])[0] / draws == pytest.approx(FOUR.p, abs=0.01)
    keeping_all = trials(replace(FOUR, shared=FOUR.q), [draws])[0]
    assert keeping_all / draws == pytest.approx(FOUR.q, abs=0.01), "a wrong rule is seen to be wrong"


def test_more_trials_go_on_where_fewer_stopped_and_come_closer():
    found = lossless.told(FOUR, ["a", "b", "c", "rest"])
    written, shown = np.array(found["written"]), np.array(found["draws"])
    assert (np.diff(written, axis=0) >= 0).all() and (written.sum(1) == shown).all()
    assert set(lossless.DRAWS) <= set(shown.tolist()) and (np.diff(shown) > 0).all()
    assert found["apart"][-1] < 0.015 < found["apart"][0]
    assert found["apart"] == pytest.approx([np.abs(one / one.sum() - FOUR.p).sum() / 2 for one in written], rel=1e-3)
    assert total_variation(FOUR.p, FOUR.q) == pytest.approx(np.abs(FOUR.p - FOUR.q).sum() / 2)


def test_a_knob_takes_only_values_that_it_has():
    knob = Knob("cost", "c", 0.17, step=0.01)
    assert [knob.settled(at) for at in (None, 0.4, 0.123, 7.0, float("nan"))] == [0.17, 0.4, 0.12, 0.17, 0.17]
    stops = Knob("draws", "Trials", 1000, stops=(10, 1000, 5000))
    assert [stops.settled(at) for at in (10, 11, None)] == [10, 1000, 1000]
    dial = Knob("dial", "θ", 0.987, 0.503, 0.9991, 0.005)  # its ends and its start are values as they are
    values = {0.503: 0.503, 0.9991: 0.9991, 0.987: 0.987, 0.9: 0.9, 0.9012: 0.9, 0.5031: 0.505, 0.999: 0.9991}
    assert [dial.settled(at) for at in values] == list(values.values())
