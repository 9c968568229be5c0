"""What the lessons compute in the browser, against what Python computes of the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

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
from mars_viz.components.lesson import ELEMENT, Knob
from mars_viz.ui.lessons import seven
from tests.factories import toy_run
from tests.in_node import in_node_with
from tests.test_learn_page import with_map

LAWS = Overlap(
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
        {"theory": seven.drafting_theory(), "asked": asked},
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
    drawn = js("given.map((each) => lesson.pointsOf(each, 40))", seven.ratio_curves(calls_of(*logits), 0.9)["curves"])
    for (z1, z2), points in zip(logits, drawn, strict=True):
        x, y = np.array(points).T
        assert x[0] == pytest.approx(max(-z2, -40), abs=1e-3) and x[-1] == 40 and (np.diff(x) > 0).all()
        assert y[0] == pytest.approx(0 if z2 <= 40 else (z2 - 40) / (z1 - 40), abs=1e-3) and y[0] >= 0
        assert (np.diff(y) >= 0).all() and np.diff(x).max() <= 1
        assert y == pytest.approx((z2 + x) / (z1 + x), rel=1e-3, abs=1e-3)


def test_a_runner_ups_ratios_are_those_of_its_shifted_logits():
    (drawn,) = seven.ratio_curves(calls_of((5.0, 5.0)), 0.9)["curves"]
    assert drawn["steep"][:2] == [(-5.0, None), (-4.98, 1.0)] and drawn["ratios"][34:37] == [None, None, 1.0]
    calls = close_calls(toy_run(temperature=1.0, max_new_tokens=60))
    sent = seven.ratio_curves(calls, 0.9)
    assert len(sent["curves"]) == min(len(calls), seven.DRAWN)
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
    found = seven.shifted_verdicts(run, calls)
    by_hand = [int((calls.ratio(float(c)) > 0.8).sum()) for c in range(-seven.REACH, seven.REACH + 1)]
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


DISJOINT = replace(LAWS, p=np.array([1.0, 0, 0, 0]), q=np.array([0, 1.0, 0, 0]), shared=np.zeros(4))


def test_trials_follow_the_target_whatever_the_drafter():
    """Each frequency within 6 standard errors for each of 4 groups and 3 laws: a false alarm once in 40 million."""
    draws = 100_000
    for laws in (LAWS, replace(LAWS, shared=np.zeros(4)), DISJOINT):
        (counts,) = trials(laws, [draws])
        assert counts.sum() == draws
        assert (np.abs(counts / draws - laws.p) <= 6 * np.sqrt(laws.p * (1 - laws.p) / draws)).all()
    assert trials(replace(LAWS, q=LAWS.p, shared=LAWS.p), [draws])[0] / draws == pytest.approx(LAWS.p, abs=0.01)
    keeping_all = trials(replace(LAWS, shared=LAWS.q), [draws])[0]
    assert keeping_all / draws == pytest.approx(LAWS.q, abs=0.01), "a wrong rule is seen to be wrong"


def test_more_trials_go_on_where_fewer_stopped_and_come_closer():
    found = seven.sampling_data(LAWS, ["a", "b", "c", "rest"])
    written, shown = np.array(found["written"]), np.array(found["draws"])
    assert (np.diff(written, axis=0) >= 0).all() and (written.sum(1) == shown).all()
    assert set(seven.DRAWS) <= set(shown.tolist()) and (np.diff(shown) > 0).all()
    assert found["apart"][-1] < 0.015 < found["apart"][0]
    assert found["apart"] == pytest.approx([np.abs(one / one.sum() - LAWS.p).sum() / 2 for one in written], rel=1e-3)
    assert total_variation(LAWS.p, LAWS.q) == pytest.approx(np.abs(LAWS.p - LAWS.q).sum() / 2)


def test_a_knob_takes_only_values_that_it_has():
    knob = Knob("cost", "c", 0.17, step=0.01)
    assert [knob.settled(at) for at in (None, 0.4, 0.123, 7.0, float("nan"))] == [0.17, 0.4, 0.12, 0.17, 0.17]
    stops = Knob("draws", "Trials", 1000, stops=(10, 1000, 5000))
    assert [stops.settled(at) for at in (10, 11, None)] == [10, 1000, 1000]
    dial = Knob("dial", "θ", 0.987, 0.503, 0.9991, 0.005)  # its ends and its start are values as they are
    values = {0.503: 0.503, 0.9991: 0.9991, 0.987: 0.987, 0.9: 0.9, 0.9012: 0.9, 0.5031: 0.505, 0.999: 0.9991}
    assert [dial.settled(at) for at in values] == list(values.values())
