"""Costs: what is modelled from them, and how they are measured under a disturbed clock."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from mars_viz import costs as costing
from mars_viz.analysis.engines import position_rates
from mars_viz.analysis.intervals import Bootstrap
from mars_viz.costs import (
    Cost,
    break_even,
    costs_from,
    disturbance,
    monotone,
    objection,
    per_token,
    position_cost,
    round_cost,
    slower,
)
from mars_viz.documents import lines
from mars_viz.errors import BadInput, Disturbed, ModelError
from mars_viz.recording import Recording
from mars_viz.records import Timing
from mars_viz.run import Settings
from mars_viz.speculators.backend import DraftAndScore, decode_alone
from mars_viz.speculators.costs import Measuring, MeasuringBatches, _opened, measure_costs
from mars_viz.sweep import document, load_sweep
from mars_viz.sweep.measures import EVEN, measures, value_at
from mars_viz.sweep.pairing import SweepSetting, compared, pair
from mars_viz.sweep.report import CachedSweep, keep_batch_costs, kept_batch_costs, load_table
from mars_viz.sweep.store import keep_costs
from tests.sweep_cases import BATCHES, COSTS, TREES, summary_of, timing, toy_sweep
from tests.tables import table_backend


def test_a_round_of_chains_and_trees_by_hand():
    assert [round_cost(COSTS, gamma).seconds for gamma in (1, 3)] == pytest.approx([0.001 + 0.011 + 0.001, 0.017])
    for gamma in (0, 4):
        with pytest.raises(BadInput, match="was not measured"):
            round_cost(COSTS, gamma)
    levels = tuple(Cost(s, s, s) for s in (0.002, 0.005))
    costs = replace(COSTS, tree="dynamic:depth=2,topk=2", drafting=levels)
    expected = [0.002 + 0.011 + 0.001, 0.005 + 0.012 + 0.001, 0.005 + 0.013 + 0.001]
    assert [round_cost(costs, gamma).seconds for gamma in (1, 2, 3)] == pytest.approx(expected)
    assert costs_from(json.loads(json.dumps(asdict(costs)))) == costs
    assert costs.cover(3, costs.tree) and not costs.cover(4, costs.tree) and not costs.cover(3, "chain")
    for wrong in ({"tree": "bush"}, {"tree": 3}, {"drafting": []}, {"tree": "chain"}):
        with pytest.raises(BadInput, match="Measure them again"):
            costs_from(asdict(costs) | wrong)
    found = json.loads(json.dumps(asdict(COSTS)))
    assert costs_from({name: found[name] for name in found if name not in ("tree", "drafting")}) == COSTS


def test_what_one_more_position_costs_and_when_drafting_loses():
    assert position_cost(COSTS).estimate == pytest.approx(0.1)  # 10, 11, 12, 13 ms
    assert slower(COSTS, 3, 1.8) == "" and "1.70 passes, 1.30 of them" in slower(COSTS, 3, 1.6)
    for gamma, tau, lost in ((3, 2.0, 0.3), (3, 2.0, 0.1), (2, 1.5, 0.15)):  # the last drafted token pays or not
        whole, less = round_cost(COSTS, gamma).seconds, round_cost(COSTS, gamma - 1).seconds
        assert (lost > tau * break_even(COSTS, gamma)) == (tau / whole > (tau - lost) / less)
    assert break_even(COSTS, 3) == pytest.approx(0.002 / 0.017)


def test_speed_over_the_load_by_hand(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 12).finish()
    sweep, dial = CachedSweep(result), 0.9
    accepted, tokens = result.at("accepted", np.array([dial]))[:, 0], result.at("tokens", np.array([dial])).sum()
    rounds = accepted.sum()
    taus = [(tokens - (accepted @ np.maximum(np.arange(4) - n, 0)).sum()) / rounds for n in (1, 2, 3)]
    assert taus[2] == pytest.approx(sweep.value("tau", dial).estimate) and taus[0] < taus[1] < taus[2]
    table = load_table(sweep, dial, BATCHES)
    for row, spent in zip(table.speed_ups, BATCHES.rounds, strict=True):
        assert row[0].estimate == 1
        expected = [tau * spent[0].seconds / each.seconds for tau, each in zip(taus, spent[1:], strict=True)]
        assert [each.estimate for each in row[1:]] == pytest.approx(expected)
        assert all(each.low < each.estimate < each.high for each in row[1:])
    assert table.best[2] == 0 and table.schedule[-1] == [16, 16, 0] and table.schedule[0][0] == 1
    assert [end + 1 for _, end, _ in table.schedule[:-1]] == [first for first, *_ in table.schedule[1:]]
    words = "\n".join(lines([*document.load(table), *document.load_settings(table)]))
    assert "With γ = 3 speculation pays with up to" in words
    given = json.loads(next(line for line in words.splitlines() if line.startswith("{")))
    assert given == {"num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": table.schedule}
    wide = replace(BATCHES.rounds[0][3], low=0.007, high=0.028)
    unsure = replace(BATCHES, rounds=((*BATCHES.rounds[0][:3], wide), *BATCHES.rounds[1:]))
    sure, found = (load_table(sweep, dial, each).speed_ups[0][3] for each in (BATCHES, unsure))
    assert found.low < sure.low < sure.high < found.high
    with pytest.raises(BadInput, match="other models or shorter drafts"):
        load_table(sweep, dial, replace(BATCHES, target="another"))
    with pytest.raises(BadInput, match="chains of one length"):
        load_table(CachedSweep(toy_sweep(tmp_path / "trees", 2, TREES).finish()), dial, BATCHES)


def test_measured_rounds_are_stored_and_damaged_ones_refused(tmp_path):
    assert kept_batch_costs(tmp_path) is None
    keep_batch_costs(tmp_path, BATCHES)
    assert kept_batch_costs(tmp_path) == BATCHES
    found = json.loads((tmp_path / "load.json").read_text())
    rounds, negative = found["rounds"], [[{"seconds": -1, "low": -1, "high": 1}] * 4] * 3
    wrongs = [{"rounds": each} for each in (rounds[:2], [*rounds[:2], rounds[2][:3]], negative)]
    for wrong in (*wrongs, {"sizes": [4, 1, 16]}, {"sizes": []}, {"repeats": "x"}, {"more": 1}):
        (tmp_path / "load.json").write_text(json.dumps(found | wrong))
        with pytest.raises(BadInput, match="load.json"):
            kept_batch_costs(tmp_path)


def test_rounds_of_several_texts_are_measured(pair, monkeypatch):
    batches, speculate = set(), DraftAndScore.speculate

    def counted(self, prefixes):
        batches.add(len(prefixes))
        return speculate(self, prefixes)

    monkeypatch.setattr(DraftAndScore, "speculate", counted)
    measuring = MeasuringBatches(pair, Settings(gamma=2), 4, seconds=0.1, cache_length=14)  # its words repeat after 7
    shares, costs = list(measuring), measuring.costs()
    assert batches == {1, 2, 4}
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] == 1 and costs.repeats >= costing.FEWEST
    assert costs.sizes == (1, 2, 4) and {len(row) for row in costs.rounds} == {3} and not costs.left_out

    def opened(backend, short, texts):
        if len(texts) == 4:
            raise ModelError("The device ran out of memory.")
        return _opened(backend, short, texts)

    monkeypatch.setattr("mars_viz.speculators.costs._opened", opened)
    measuring = MeasuringBatches(pair, Settings(gamma=1), 4, seconds=0.1)
    assert all(measuring) and measuring.costs().sizes == (1, 2)
    assert "4 texts at once were left out" in measuring.costs().left_out


def test_acceptance_by_position_is_the_pooled_one_and_its_break_even_follows_from_costs(tmp_path):
    result = toy_sweep(tmp_path / "sweep", 12).finish()
    _, conditional, joint = position_rates(result.acceptance(0.9))
    kinds = CachedSweep(result).positions(0.9)
    for name, expected in (("conditional", conditional), ("joint", joint)):
        assert [each.estimate for each in kinds[name]] == pytest.approx(expected.tolist())
        assert all(each.low <= each.estimate <= each.high for each in kinds[name])
    tau = value_at(result, measures(result)["tau"], 0.9)
    even = [tau.estimate * 0.002 / 0.017 / before for before in (1, *joint[:-1])]
    assert [each.estimate for each in kinds[EVEN]] == pytest.approx(even)
    assert kinds[EVEN][0].low == pytest.approx(tau.low * 0.002 / 0.017)
    pays = [share > least for share, least in zip(conditional, even, strict=True)]
    sentence, table = document.positions(CachedSweep(result), 0.9)
    assert f"up to position {sum(pays)} of 3" in sentence.text and len(table.rows) == 3
    (table,) = document.positions(CachedSweep(replace(result, costs=None)), 0.9)
    assert list(table.heads) == ["position", "conditional", "joint"]


def test_damaged_costs_are_refused():
    found = json.loads(json.dumps(asdict(COSTS)))
    assert costs_from(found) == COSTS
    refused = [
        {"rest": []},
        {"repeats": float("inf")},
        {"repeats": 2.5},
        {"device": ["a device"]},
        {"drafter_step": {"median": "x", "low": 0, "high": 0}},
        {"drafter_step": {"median": 10**400, "low": 1, "high": 10**400}},
        *({"target_pass": [{"median": a, "low": b, "high": c}] * 4} for a, b, c in ((0, 0, 1), (-1, -2, 1), (3, 1, 2))),
    ]
    for wrong in ({}, None, *(found | each for each in refused)):
        with pytest.raises(BadInput, match="Measure them again"):
            costs_from(wrong)
    with pytest.raises(BadInput, match="contradict"):
        costs_from(asdict(replace(COSTS, rest=COSTS.rest[:2])))
    below = replace(COSTS, rest=(Cost(-0.001, -0.002, 0.001),) * 3)  # the rest of a round may be negative
    assert costs_from(json.loads(json.dumps(asdict(below)))) == below


def test_the_built_in_pair_is_measured(pair):
    settings = Settings(rule="mars", tree="dynamic:depth=2,topk=2,nodes=3")
    measuring = Measuring(pair, settings.gamma, settings=settings, seconds=0.2)
    with pytest.raises(BadInput, match="not measured yet"):
        measuring.costs()
    with pytest.raises(BadInput, match="do not fit"):
        measure_costs(replace(pair, context=8), 6)
    shares = list(measuring)
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] <= 1
    try:
        costs = measuring.costs()
    except Disturbed as busy:
        assert "Measure again" in str(busy)
        return
    assert costs.repeats >= costing.LEAST and costs.unsure <= costing.MOST and costs.device == pair.device
    assert (len(costs.target_pass), len(costs.rest), costs.gamma) == (settings.gamma + 1, *[settings.gamma] * 2)
    assert (costs.tree, len(costs.drafting), objection(costs)) == (settings.tree, 2, "")
    for cost in (*costs.target_pass, costs.drafter_step, *costs.drafting, *costs.rest):
        assert 0 < cost.low <= cost.seconds <= cost.high


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_target_alone_writes_what_strict_writes(pair, temperature):
    settings = Settings(rule="strict", temperature=temperature, max_new_tokens=24, gamma=3, seed=5)
    run = Recording(pair, "Once upon a time, there was", settings).finish()
    token_ids, seconds = decode_alone(pair, run.prompt_ids, settings)
    assert token_ids == run.token_ids and seconds > 0


TRUE = {f"target {n}": milliseconds for n, milliseconds in enumerate((3.0, 3.1, 3.2, 3.4), 1)}
TRUE |= {"draft": 1.5, "round 1": 4.1, "round 3": 5.4}
"""Milliseconds of what is timed, with nothing beside it: a round is its drafts, its pass and half a millisecond."""
NOISES = {
    "quiet": lambda luck, turn: 0.0,
    "spikes": lambda luck, turn: 19.0 if luck.random() < 0.25 else 0.0,
    "drift": lambda luck, turn: 0.02 * turn,
    "two kinds": lambda luck, turn: 1.5 * luck.random() if luck.random() < 0.75 else 0.0,
}


class Clock:
    """A clock that goes on when a task is done, and not otherwise."""

    def __init__(self, noise, seed):
        self.now, self.turns = 0.0, dict.fromkeys(TRUE, 0)
        self._noise, self._luck = NOISES[noise], np.random.default_rng(seed)

    def __call__(self):
        return self.now

    def tasks(self, *_):
        return ((name, lambda name=name: self._do(name)) for name in TRUE)

    def _do(self, name):
        noise = self._luck.exponential(0.02) + self._noise(self._luck, self.turns[name])
        taken = TRUE[name] / 1000 * (1 + noise)
        self.turns[name] += 1
        self.now += taken
        if not name.startswith("round"):
            return None
        rest = 0.0005 / (TRUE[name] / 1000) * taken
        return Timing(draft=(taken - rest) / 2, verify=(taken - rest) / 2, total=taken)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", range(3))
def test_a_quiet_machine_is_known_at_once_and_a_disturbed_one_says_the_same_or_nothing(monkeypatch, noise, seed):
    def measured(noise, seed):
        clock = Clock(noise, seed)
        monkeypatch.setattr(Measuring, "_tasks", clock.tasks)
        return measure_costs(table_backend(), 3, clock=clock)

    calm = per_token(measured("quiet", 99), 3)
    try:
        costs = measured(noise, seed)
    except Disturbed as busy:
        assert "too busy" in str(busy) and noise != "quiet"
        return
    found = per_token(costs, 3)
    assert costs.unsure <= costing.MOST
    assert found.low <= calm.high and calm.low <= found.high, "the intervals exclude one another"
    if noise == "quiet":
        assert costing.LEAST <= costs.repeats < 2 * costing.LEAST and costs.unsure <= costing.WANTED
        assert found.low < 3.0 / 5.4 < found.high and found.estimate == pytest.approx(3.0 / 5.4, rel=0.03)


def test_costs_are_lower_quartiles_with_their_intervals():
    steady = Cost.of([1.0 + 0.001 * (n % 7) for n in range(60)])
    slowing = Cost.of([1.0 + 0.02 * n for n in range(60)])
    assert steady.unsure < costing.WANTED < costing.MOST < slowing.unsure
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
    assert disturbance(COSTS) == disturbance(replace(COSTS, others=costing.BUSY / 2)) == ""
    assert "used 1.2 cores" in disturbance(replace(COSTS, others=1.2))
    free = replace(COSTS, drafter_step=Cost(1e-9, 1e-9, 1e-9), rest=(Cost(-0.001, -0.003, 0.001),) * 3)
    for gamma in (1, 2, 3):
        assert per_token(free, gamma).high <= 1
        assert costing.round_cost(free, gamma).low >= free.passes[gamma].low
    check = timing()
    assert check.objection == "" and check.facts()["measured_over_target"] is not None
    slow = replace(check, target=replace(check.target, seconds=20 * check.target.seconds))
    assert "cannot be with τ" in slow.objection and slow.facts()["measured_over_target"] is None


def test_passes_never_fall_with_their_length():
    assert monotone([1, 2, 3]).tolist() == [1, 2, 3] and monotone([3, 1, 2, 5, 4]).tolist() == [2, 2, 2, 4.5, 4.5]
    for values in np.random.default_rng(0).random((50, 8)):
        found = monotone(values)
        assert (np.diff(found) >= 0).all() and found.sum() == pytest.approx(values.sum())
    uneven = replace(COSTS, target_pass=tuple(Cost(s, 0.9 * s, 1.1 * s) for s in (0.012, 0.011, 0.013, 0.0125)))
    for each, longer in zip(uneven.passes, uneven.passes[1:], strict=False):
        assert each.seconds <= longer.seconds and each.low <= each.seconds <= each.high
    assert objection(uneven) == ""


def test_costs_that_cannot_be_are_no_number(tmp_path):
    result = toy_sweep(tmp_path / "sweep").finish()
    assert "speed_up" in measures(result) and "not known" in objection(None)
    for wrong, words in (
        ({"repeats": 3}, "3 times"),
        ({"target_pass": tuple(Cost(s, s, s) for s in (0.010, 0.050, 0.012, 0.013))}, "over 3 positions"),
        ({"rest": (Cost(-0.008, -1, 1),) * 3}, "γ = 1 takes 4 ms"),
    ):
        keep_costs(result.folder, costs := replace(COSTS, **wrong))
        again = load_sweep(result.folder)
        assert again.costs == costs and "speed_up" not in measures(again)
        assert words in objection(costs) and words in summary_of(again, 0.9)


def test_the_costs_interval_goes_into_every_speed_up(tmp_path):
    result, how, passes = toy_sweep(tmp_path / "sweep").finish(), Bootstrap(), COSTS.target_pass
    wide = replace(COSTS, target_pass=tuple(Cost(c.seconds, 0.92 * c.seconds, 1.08 * c.seconds) for c in passes))
    unsure, factor = replace(result, costs=wide), per_token(wide, 3)
    for dial in (result.plan.strict, 0.7):
        sharp, found = (value_at(each, measures(each)["speed_up"], dial, how) for each in (result, unsure))
        assert found.estimate == sharp.estimate
        below = np.hypot(sharp.estimate - sharp.low, found.estimate * (1 - factor.low / factor.estimate))
        above = np.hypot(sharp.high - sharp.estimate, found.estimate * (factor.high / factor.estimate - 1))
        assert (found.low, found.high) == pytest.approx((found.estimate - below, found.estimate + above))
    change, before, same = (
        compared(pair(SweepSetting(each, one), SweepSetting(each, other)), ("speed_up",), how)[0].change
        for each, one, other in ((unsure, 1.0, 0.6), (result, 1.0, 0.6), (unsure, 0.7, 0.7))
    )
    assert change.high - change.low >= before.high - before.low
    assert same.low == same.high == 0, "a setting compared with itself"
