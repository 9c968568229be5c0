"""Costs from a clock that was disturbed: made-up series of times, whose outcome is known, under their own clock."""

from dataclasses import replace

import numpy as np
import pytest
from sweep_cases import COSTS, toy_sweep

from mars_viz.analysis.intervals import Bootstrap
from mars_viz.costs import (
    BUSY,
    LEAST,
    MOST,
    WANTED,
    Cost,
    costs_from,
    disturbance,
    monotone,
    objection,
    per_token,
    round_cost,
)
from mars_viz.errors import Disturbed
from mars_viz.records import Timing
from mars_viz.sweep import load_sweep
from mars_viz.sweep.measures import curve, difference_at, measures, value_at
from mars_viz.sweep.report import summary_lines
from mars_viz.sweep.store import keep_costs
from tests.sweep_cases import timing
from tests.tables import table_backend

GAMMA = 3
TRUE = {
    "target 1": 3.0,
    "target 2": 3.1,
    "target 3": 3.2,
    "target 4": 3.4,
    "draft": 1.5,
    "round 1": 4.1,
    "round 3": 5.4,
}
"""Milliseconds of what is timed, with nothing beside it: a round is its drafts, its pass and half a millisecond."""
RIGHT = 3.0 / 5.4


def quiet(luck, turn):
    return float(luck.exponential(0.02))


def spikes(luck, turn):
    return quiet(luck, turn) + (19.0 if luck.random() < 0.25 else 0.0)


def drift(luck, turn):
    return quiet(luck, turn) + 0.02 * turn


def two_kinds(luck, turn):
    return quiet(luck, turn) + (1.5 * luck.random() if luck.random() < 0.75 else 0.0)


class Clock:
    """A clock that goes on when a task is done, and not otherwise."""

    def __init__(self, noise, seed):
        self.now, self.turns = 0.0, dict.fromkeys(TRUE, 0)
        self._noise, self._luck = noise, np.random.default_rng(seed)

    def __call__(self):
        return self.now

    def tasks(self, *_):
        return ((name, lambda name=name: self._do(name)) for name in TRUE)

    def _do(self, name):
        taken = TRUE[name] / 1000 * (1 + self._noise(self._luck, self.turns[name]))
        self.turns[name] += 1
        self.now += taken
        if not name.startswith("round"):
            return None
        rest = 0.0005 / (TRUE[name] / 1000) * taken
        return Timing(draft=(taken - rest) / 2, verify=(taken - rest) / 2, total=taken)


@pytest.fixture
def measured(monkeypatch):
    costs = pytest.importorskip("mars_viz.speculators.costs")

    def measure(noise, seed=0):
        clock = Clock(noise, seed)
        monkeypatch.setattr(costs, "_tasks", clock.tasks)
        return costs.measure_costs(table_backend(), GAMMA, clock=clock)

    return measure


@pytest.mark.parametrize("seed", range(3))
def test_a_quiet_machine_is_known_at_once(measured, seed):
    costs = measured(quiet, seed)
    factor = per_token(costs, GAMMA)
    assert LEAST <= costs.repeats < 2 * LEAST and costs.unsure <= WANTED
    assert factor.low < RIGHT < factor.high and factor.estimate == pytest.approx(RIGHT, rel=0.03)


@pytest.mark.parametrize("noise", [spikes, drift, two_kinds])
@pytest.mark.parametrize("seed", range(3))
def test_a_disturbed_machine_says_the_same_or_nothing(measured, noise, seed):
    calm = per_token(measured(quiet, 99), GAMMA)
    try:
        costs = measured(noise, seed)
    except Disturbed as busy:
        assert "too busy" in str(busy)
        return
    found = per_token(costs, GAMMA)
    assert costs.unsure <= MOST
    assert found.low <= calm.high and calm.low <= found.high, "the intervals exclude one another"


def test_costs_are_lower_quartiles_with_their_intervals():
    steady = Cost.of([1.0 + 0.001 * (n % 7) for n in range(60)])
    slowing = Cost.of([1.0 + 0.02 * n for n in range(60)])
    assert steady.unsure < WANTED < MOST < slowing.unsure
    assert slowing.low <= slowing.seconds <= slowing.high
    luck = np.random.default_rng(1)
    true = np.quantile(np.exp(luck.normal(size=1_000_000) * 0.3), 0.25)
    found = [Cost.of(np.exp(luck.normal(size=60) * 0.3)) for _ in range(400)]
    assert np.mean([each.low <= true <= each.high for each in found]) >= 0.95
    assert Cost.of([3.0, 1.0, 2.0, 4.0]) == Cost(1.75, 1.0, 4.0)
    old = {"median": 0.003, "low": 0.002, "high": 0.006}
    found = costs_from(
        {name: getattr(COSTS, name) for name in ("device", "dtype", "target", "drafter", "cache_length", "repeats")}
        | {"target_pass": [old] * 3, "drafter_step": old, "rest": [old] * 2}
    )
    assert found.passes[0] == Cost(0.003, 0.002, 0.006) and found.others is None
    assert per_token(found, 2).low < 0.003 / 0.012 < per_token(found, 2).high
    assert disturbance(COSTS) == disturbance(replace(COSTS, others=BUSY / 2)) == ""
    assert "used 1.2 cores" in disturbance(replace(COSTS, others=1.2))
    free = replace(COSTS, drafter_step=Cost(1e-9, 1e-9, 1e-9), rest=(Cost(-0.001, -0.003, 0.001),) * 3)
    for gamma in (1, 2, 3):
        assert per_token(free, gamma).high <= 1
        assert round_cost(free, gamma).low >= free.passes[gamma].low
    check = timing()
    assert check.objection == "" and check.facts()["measured_over_target"] is not None
    slow = replace(check, target=replace(check.target, seconds=20 * check.target.seconds))
    assert "cannot be with τ" in slow.objection and slow.facts()["measured_over_target"] is None


def test_passes_never_fall_with_their_length():
    assert monotone([1, 2, 3]).tolist() == [1, 2, 3]
    assert monotone([3, 1, 2, 5, 4]).tolist() == [2, 2, 2, 4.5, 4.5]
    luck = np.random.default_rng(0)
    for _ in range(50):
        values = luck.random(8)
        found = monotone(values)
        assert (np.diff(found) >= 0).all() and found.sum() == pytest.approx(values.sum())
    uneven = replace(COSTS, target_pass=tuple(Cost(s, 0.9 * s, 1.1 * s) for s in (0.012, 0.011, 0.013, 0.0125)))
    for each, longer in zip(uneven.passes, uneven.passes[1:], strict=False):
        assert each.seconds <= longer.seconds and each.low <= each.seconds <= each.high
    assert objection(uneven) == ""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"repeats": 3}, "3 times"),
        ({"target_pass": tuple(Cost(s, s, s) for s in (0.010, 0.050, 0.012, 0.013))}, "over 3 positions"),
        ({"rest": (Cost(-0.008, -1, 1),) * 3}, "γ = 1 takes 4 ms"),
    ],
)
def test_costs_that_cannot_be_are_no_number(tmp_path, wrong, words):
    costs = replace(COSTS, **wrong)
    assert words in objection(costs) and "not known" in objection(None)
    result = toy_sweep(tmp_path / "sweep").finish()
    assert "speed_up" in measures(result)
    keep_costs(result.folder, costs)
    again = load_sweep(result.folder)
    assert again.costs == costs and "speed_up" not in measures(again)
    told = "\n".join(summary_lines(again, 0.9))
    assert words in told and "--resume" in told


def wide(costs, share):
    passes = tuple(Cost(c.seconds, c.seconds * (1 - share), c.seconds * (1 + share)) for c in costs.target_pass)
    return replace(costs, target_pass=passes)


def test_the_costs_interval_goes_into_every_speed_up(tmp_path):
    result, how = toy_sweep(tmp_path / "sweep").finish(), Bootstrap()
    unsure = replace(result, costs=wide(COSTS, 0.08))
    for dial in (result.plan.strict, 0.7):
        sharp, found = (value_at(each, measures(each)["speed_up"], dial, how) for each in (result, unsure))
        factor = per_token(wide(COSTS, 0.08), 3)
        assert found.estimate == sharp.estimate == pytest.approx(curve(result, measures(result)["speed_up"]).at(dial))
        below = np.hypot(sharp.estimate - sharp.low, found.estimate * (1 - factor.low / factor.estimate))
        above = np.hypot(sharp.high - sharp.estimate, found.estimate * (factor.high / factor.estimate - 1))
        assert (found.low, found.high) == pytest.approx((found.estimate - below, found.estimate + above))
    change, before = (difference_at(each, measures(each)["speed_up"], 0.6, 1.0, how) for each in (unsure, result))
    assert change.high - change.low >= before.high - before.low
    same = difference_at(unsure, measures(unsure)["speed_up"], 0.7, 0.7, how)
    assert same.low == same.high == 0, "a setting compared with itself"
