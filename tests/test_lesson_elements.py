"""What the lessons compute in the browser, against what Python computes of the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mars_viz.analysis.close_calls import close_calls
from mars_viz.analysis.gain import expected_speed_up, expected_tokens
from mars_viz.analysis.overlap import OTHERS, Overlap
from mars_viz.components.lesson import ELEMENT, Kind, Knob
from mars_viz.ui.lessons.lesson_view import KNOBS
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

    def evaluated(expression: str, given: Any = None) -> Any:
        harness = (
            'import { readFileSync } from "node:fs";\nimport * as lesson from "./lesson.mjs";\n'
            'const given = JSON.parse(readFileSync(0, "utf8"));\n'
            f"console.log(JSON.stringify({expression}));\n"
        )
        return run(harness, given)

    return evaluated


def as_sent(laws: Overlap) -> dict[str, list[float]]:
    return {name: getattr(laws, name).tolist() for name in ("p", "q", "shared", "residual")}


def test_the_speed_up_in_the_browser_is_pythons(js):
    asked = list(product([0.0, 0.25, 0.8, 0.97, 1.0], [1, 6, 16], [0.0, 0.17, 1.0]))
    found = js("given.map(([a, g, c]) => [lesson.expectedTokens(a, g), lesson.expectedSpeedUp(a, g, c)])", asked)
    for (alpha, gamma, c), (tokens, speed_up) in zip(asked, found, strict=True):
        assert tokens == pytest.approx(float(expected_tokens(alpha, gamma)), rel=1e-12)
        assert speed_up == pytest.approx(float(expected_speed_up(alpha, gamma, c)), rel=1e-12)


def test_a_runner_ups_curve_begins_at_nought_and_never_falls(js):
    for z1, z2 in ((9.0, 8.5), (3.0, -2.0), (60.0, 50.0)):
        curve = js("lesson.curve(given[0], given[1], 40)", [z1, z2])
        assert curve[0][0] == max(-z2, -40) and curve[-1][0] == 40
        assert curve[0][1] == pytest.approx(0 if z2 <= 40 else (z2 - 40) / (z1 - 40))
        assert all(later[1] >= before[1] for before, later in zip(curve, curve[1:], strict=False))


def test_a_runner_ups_ratio_in_the_browser_is_pythons(js):
    calls = close_calls(toy_run(temperature=1.0, max_new_tokens=60))
    assert len(calls)
    for c in (-25, -8, 0, 3.5, 40):
        found = js(
            "given.calls.map(([z1, z2]) => lesson.shiftedRatio(z1, z2, given.c))",
            {"calls": np.stack([calls.z1, calls.z2], 1).tolist(), "c": c},
        )
        assert np.array(found, float) == pytest.approx(calls.ratio(float(c)), nan_ok=True)  # JSON's null is NaN


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


def simulated(laws: Overlap, luck: np.ndarray) -> np.ndarray:
    """int64 [N]; the group that each trial writes: x from q, kept with chance min(1, p/q), else from norm((p - q)+)."""

    def drawn(mass: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        cumulative = np.cumsum(mass)
        return np.minimum(
            np.searchsorted(cumulative, uniforms * cumulative[-1], side="right"), np.flatnonzero(mass > 0)[-1]
        )

    drafted = drawn(laws.q, luck[:, 0])
    if laws.residual.sum() <= 0:
        return drafted
    keeps = luck[:, 1] * laws.q[drafted] <= laws.shared[drafted]
    return np.where(keeps, drafted, drawn(laws.residual, luck[:, 2]))


DISJOINT = replace(LAWS, p=np.array([1.0, 0, 0, 0]), q=np.array([0, 1.0, 0, 0]), shared=np.zeros(4))


@pytest.mark.parametrize("laws", [LAWS, replace(LAWS, q=LAWS.p, shared=LAWS.p), DISJOINT])
def test_each_trial_in_the_browser_writes_what_numpys_does(js, laws):
    luck = np.random.default_rng(1).random((3000, 3))
    found = js(
        "given.luck.map((luck) => lesson.trial(given.laws, luck))", {"laws": as_sent(laws), "luck": luck.tolist()}
    )
    assert found == simulated(laws, luck).tolist()


def test_the_simulation_in_the_browser_follows_the_target_whatever_the_drafter(js):
    """Each frequency within 6 standard errors for each of 4 groups and 2 laws: a false alarm once in 60 million."""
    draws = 100_000
    asked = [LAWS, replace(LAWS, shared=np.zeros(4))]
    found = js(
        "given.laws.map((laws) => new lesson.Trials(laws).upTo(given.draws))",
        {"laws": [as_sent(laws) for laws in asked], "draws": draws},
    )
    for counts in found:
        assert sum(counts) == draws
        off = np.abs(np.array(counts) / draws - LAWS.p)
        assert (off < 6 * np.sqrt(LAWS.p * (1 - LAWS.p) / draws)).all()
    keeping_all = js("new lesson.Trials(given).upTo(100000)", as_sent(replace(LAWS, shared=LAWS.q)))
    assert np.array(keeping_all) / draws == pytest.approx(LAWS.q, abs=0.01), "a wrong rule is seen to be wrong"


def test_more_trials_go_on_where_fewer_stopped_and_come_closer(js):
    small, large, again, near, far = js(
        "(() => { const t = new lesson.Trials(given); const copy = (n) => [...t.upTo(n)];"
        " const all = [copy(100), copy(50000), copy(100)];"
        " return [...all, lesson.distance(all[1].map((n) => n / 50000), given.p),"
        " lesson.distance(new lesson.Trials(given).upTo(10).map((n) => n / 10), given.p)]; })()",
        as_sent(LAWS),
    )
    assert small == again and sum(small) == 100 and all(b >= a for a, b in zip(small, large, strict=True))
    assert near < 0.015 < far
    assert js("lesson.distance(given.p, given.q)", as_sent(LAWS)) == pytest.approx(np.abs(LAWS.p - LAWS.q).sum() / 2)


def test_ticks_are_round_and_within_the_axis(js):
    assert js("lesson.ticks(0, 1, 4)") == [0, 0.5, 1] or js("lesson.ticks(0, 1, 4)") == [0, 0.2, 0.4, 0.6, 0.8, 1]
    for low, high in ((-40, 40), (0.5, 1), (0, 186.3), (0, 0.73), (0, 6.325)):
        found = js("lesson.ticks(given[0], given[1])", [low, high])
        assert 3 <= len(found) <= 11 and low <= found[0] and found[-1] <= high * (1 + 1e-9)
        assert all(len(str(value)) < 6 for value in found) and np.ptp(np.diff(found)) < 1e-9


def test_a_knob_takes_only_values_that_it_has():
    knob = Knob("cost", "c", 0.17, step=0.01)
    assert [knob.settled(at) for at in (None, 0.4, 0.123, 7.0, float("nan"))] == [0.17, 0.4, 0.12, 0.17, 0.17]
    stops = Knob("draws", "Trials", 1000, stops=(10, 1000, 5000))
    assert [stops.settled(at) for at in (10, 11, None)] == [10, 1000, 1000]


def test_a_knob_reaches_its_ends_and_counts_its_steps_from_nought():
    knob = Knob("dial", "θ", 0.987, 0.503, 0.9991, 0.005)
    assert [knob.settled(at) for at in (0.503, 0.9991, 0.987)] == [0.503, 0.9991, 0.987], "as they are"
    assert [knob.settled(at) for at in (0.9, 0.9012, 0.5031, 0.999)] == [0.9, 0.9, 0.505, 0.9991]


def test_every_figure_has_its_file_and_every_knob_its_address():
    folder = Path(__file__).parents[1] / "mars_viz" / "components" / "lesson"
    asked = set()
    for kind in Kind:
        code = (folder / f"{kind.value}.js").read_text("utf-8")
        knobs = re.search(r"show\(.*?, \{ (.*?) \}\) \{", code)
        assert knobs is not None and f"{kind.value}: {kind.value.capitalize()}" in ELEMENT.script
        asked |= {name.split(":")[0].strip() for name in knobs[1].split(",")}
    assert asked == {*KNOBS, "dial"}


def test_token_text_is_only_ever_text():
    assert "innerHTML" not in ELEMENT.script and "insertAdjacentHTML" not in ELEMENT.script
