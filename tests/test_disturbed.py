"""Costs from a clock that was disturbed: made-up series of times, whose outcome is known, under their own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

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
    Costs,
    costs_from,
    disturbance,
    monotone,
    objection,
    per_token,
    round_cost,
)
from mars_viz.errors import Disturbed
from mars_viz.records import Timing
from mars_viz.run import Settings
from mars_viz.sweep import load_sweep
from mars_viz.sweep.measures import curve, difference_at, measures, value_at
from mars_viz.sweep.report import summary_lines
from mars_viz.sweep.store import keep_costs
from mars_viz.ui.jobs.job import TaskStep
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

Noise = Callable[[np.random.Generator, int], float]
"""From a source of luck and the turn to what comes on top of a time, as a share of it."""


def quiet(luck: np.random.Generator, turn: int) -> float:
    return float(luck.exponential(0.02))


def spikes(luck: np.random.Generator, turn: int) -> float:
    return quiet(luck, turn) + (19.0 if luck.random() < 0.25 else 0.0)


def drift(luck: np.random.Generator, turn: int) -> float:
    return quiet(luck, turn) + 0.02 * turn


def two_kinds(luck: np.random.Generator, turn: int) -> float:
    return quiet(luck, turn) + (1.5 * luck.random() if luck.random() < 0.75 else 0.0)


class Clock:
    """A clock that goes on when a task is done, and not otherwise."""

    def __init__(self, noise: Noise, seed: int) -> None:
        self.now, self.turns = 0.0, dict.fromkeys(TRUE, 0)
        self._noise, self._luck = noise, np.random.default_rng(seed)

    def __call__(self) -> float:
        return self.now

    def tasks(self, *_: object) -> Iterator[tuple[str, Callable[[], Timing | None]]]:
        return ((name, lambda name=name: self._do(name)) for name in TRUE)

    def _do(self, name: str) -> Timing | None:
        taken = TRUE[name] / 1000 * (1 + self._noise(self._luck, self.turns[name]))
        self.turns[name] += 1
        self.now += taken
        if not name.startswith("round"):
            return None
        rest = 0.0005 / (TRUE[name] / 1000) * taken
        return Timing(draft=(taken - rest) / 2, verify=(taken - rest) / 2, total=taken)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Costs]:
    costs = pytest.importorskip("mars_viz.speculators.costs")

    def measure(noise: Noise, seed: int = 0) -> Costs:
        clock = Clock(noise, seed)
        monkeypatch.setattr(costs, "_tasks", clock.tasks)
        return costs.measure_costs(table_backend(), GAMMA, clock=clock)

    return measure


@pytest.mark.parametrize("seed", range(3))
def test_a_quiet_machine_is_known_at_once(measured, seed: int) -> None:
    costs = measured(quiet, seed)
    factor = per_token(costs, GAMMA)
    assert LEAST <= costs.repeats < 2 * LEAST and costs.unsure <= WANTED
    assert factor.low < RIGHT < factor.high and factor.estimate == pytest.approx(RIGHT, rel=0.03)


@pytest.mark.parametrize("noise", [spikes, drift, two_kinds])
@pytest.mark.parametrize("seed", range(3))
def test_a_disturbed_machine_says_the_same_or_nothing(measured, noise: Noise, seed: int) -> None:
    calm = per_token(measured(quiet, 99), GAMMA)
    try:
        costs = measured(noise, seed)
    except Disturbed as busy:
        assert "too busy" in str(busy)
        return
    found = per_token(costs, GAMMA)
    assert costs.unsure <= MOST
    assert found.low <= calm.high and calm.low <= found.high, "the intervals exclude one another"


def test_one_spike_in_four_moves_no_cost(measured) -> None:
    costs = measured(spikes)
    assert [each.seconds for each in costs.passes] == pytest.approx([0.0030, 0.0031, 0.0032, 0.0034], rel=0.05)


def test_a_machine_that_slows_down_has_wide_intervals() -> None:
    steady = Cost.of([1.0 + 0.001 * (n % 7) for n in range(60)])
    slowing = Cost.of([1.0 + 0.02 * n for n in range(60)])
    assert steady.unsure < WANTED < MOST < slowing.unsure
    assert slowing.low <= slowing.seconds <= slowing.high


def test_the_interval_holds_the_lower_quartile_as_often_as_it_says() -> None:
    luck = np.random.default_rng(1)
    true = np.quantile(np.exp(luck.normal(size=1_000_000) * 0.3), 0.25)
    found = [Cost.of(np.exp(luck.normal(size=60) * 0.3)) for _ in range(400)]
    assert np.mean([each.low <= true <= each.high for each in found]) >= 0.95


def test_too_few_repeats_have_their_range() -> None:
    assert Cost.of([3.0, 1.0, 2.0, 4.0]) == Cost(1.75, 1.0, 4.0)


def test_passes_never_fall_with_their_length() -> None:
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


def test_a_speed_up_is_never_above_tau() -> None:
    free = replace(COSTS, drafter_step=Cost(1e-9, 1e-9, 1e-9), rest=(Cost(-0.001, -0.003, 0.001),) * 3)
    for gamma in (1, 2, 3):
        assert per_token(free, gamma).high <= 1
        assert round_cost(free, gamma).low >= free.passes[gamma].low


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"repeats": 3}, "3 times"),
        ({"target_pass": tuple(Cost(s, s, s) for s in (0.010, 0.050, 0.012, 0.013))}, "over 3 positions"),
        ({"rest": (Cost(-0.008, -1, 1),) * 3}, "γ = 1 takes 4 ms"),
    ],
)
def test_costs_that_cannot_be_are_no_number(tmp_path: Path, wrong: dict[str, object], words: str) -> None:
    costs = replace(COSTS, **wrong)
    assert words in objection(costs) and "not known" in objection(None)
    result = toy_sweep(tmp_path / "sweep").finish()
    assert "speed_up" in measures(result)
    keep_costs(result.folder, costs)
    again = load_sweep(result.folder)
    assert again.costs == costs and "speed_up" not in measures(again)
    told = "\n".join(summary_lines(again, 0.9))
    assert words in told and "--resume" in told


def test_what_was_kept_before_is_read_as_a_median_and_a_range() -> None:
    old = {"median": 0.003, "low": 0.002, "high": 0.006}
    found = costs_from(
        {name: getattr(COSTS, name) for name in ("device", "dtype", "target", "drafter", "cache_length", "repeats")}
        | {"target_pass": [old] * 3, "drafter_step": old, "rest": [old] * 2}
    )
    assert found.passes[0] == Cost(0.003, 0.002, 0.006) and found.others is None
    assert per_token(found, 2).low < 0.003 / 0.012 < per_token(found, 2).high


def test_what_else_ran_is_said() -> None:
    assert disturbance(COSTS) == disturbance(replace(COSTS, others=BUSY / 2)) == ""
    assert "used 1.2 cores" in disturbance(replace(COSTS, others=1.2))


def wide(costs: Costs, share: float) -> Costs:
    passes = tuple(Cost(c.seconds, c.seconds * (1 - share), c.seconds * (1 + share)) for c in costs.target_pass)
    return replace(costs, target_pass=passes)


def test_the_costs_interval_goes_into_every_speed_up(tmp_path: Path) -> None:
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


def test_a_wall_clock_check_says_no_more_than_tau() -> None:
    check = timing()
    assert check.objection == "" and check.facts()["measured_over_target"] is not None
    slow = replace(check, target=replace(check.target, seconds=20 * check.target.seconds))
    assert "cannot be with τ" in slow.objection and slow.facts()["measured_over_target"] is None


def test_costs_are_measured_again_where_a_page_asks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit.testing.v1 import AppTest

    from mars_viz.ui import tab_jobs
    from mars_viz.ui.jobs import tasks
    from mars_viz.ui.jobs.models import Models
    from mars_viz.ui.jobs.worker import Worker
    from tests.test_ui_worker import until

    def asks(folder: str) -> None:
        from functools import partial
        from pathlib import Path

        from mars_viz.backend_choice import BUILT_IN
        from mars_viz.run import Settings
        from mars_viz.sweep.store import keep_costs
        from mars_viz.ui.tab_jobs import measure_again

        measure_again("here", "Not known.", Settings(), BUILT_IN, partial(keep_costs, Path(folder)))

    tries: list[int] = []

    def disturbed_at_first(settings: Settings, pair: object) -> Iterator[TaskStep]:
        yield TaskStep(0.5)
        tries.append(1)
        if len(tries) == 1:
            raise Disturbed("The machine is too busy. Measure again.")
        yield TaskStep(1.0, replace(COSTS, others=0.1))

    worker = Worker(Models(lambda choice, tell: object()))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    monkeypatch.setattr(tasks, "measure", disturbed_at_first)
    folder = toy_sweep(tmp_path / "sweep").finish().folder
    keep_costs(folder, replace(COSTS, repeats=3))
    tab = AppTest.from_function(asks, kwargs={"folder": str(folder)}, default_timeout=240).run()
    for label in ("Measure costs", "Measure again"):
        (button,) = tab.button
        assert button.label == label
        button.click().run()
        job = tab.session_state["costs-job-here"]
        until(lambda job=job: job.progress.state.finished)
        tab = tab.run()
        assert ("too busy" in job.progress.error) == (label == "Measure costs")
    assert load_sweep(folder).costs == replace(COSTS, others=0.1)
