"""Measured costs and what is modelled from them."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from sweep_cases import COSTS

from mars_viz.costs import (
    LEAST,
    MOST,
    Cost,
    autoregressive_seconds,
    costs_from,
    modelled_seconds,
    modelled_speed_up,
    objection,
    round_seconds,
)
from mars_viz.errors import BadInput, Disturbed
from mars_viz.run import Settings
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.costs import Measuring, measure_costs
from mars_viz.ui.live.live_words import cost_tiles


def test_a_round_of_chains_and_trees_by_hand():
    assert round_seconds(COSTS, 3) == pytest.approx(3 * 0.001 + 0.013 + 0.001)
    assert round_seconds(COSTS, 1) == pytest.approx(0.001 + 0.011 + 0.001)
    np.testing.assert_allclose(modelled_seconds(COSTS, np.array([2, 10]), 3), [0.034, 0.17])
    assert autoregressive_seconds(COSTS, 40) == pytest.approx(0.4)
    assert modelled_speed_up(COSTS, 40, 10, 3) == pytest.approx(0.4 / 0.17)
    assert np.isnan(modelled_speed_up(COSTS, 0, 0, 3))
    for gamma in (0, 4):
        with pytest.raises(BadInput, match="was not measured"):
            round_seconds(COSTS, gamma)
    levels = tuple(Cost(s, s, s) for s in (0.002, 0.005))
    costs = replace(COSTS, tree="dynamic:depth=2,topk=2", drafting=levels)
    assert round_seconds(costs, 3) == pytest.approx(0.005 + 0.013 + 0.001)
    assert round_seconds(costs, 2) == pytest.approx(0.005 + 0.012 + 0.001)
    assert round_seconds(costs, 1) == pytest.approx(0.002 + 0.011 + 0.001)
    assert costs_from(json.loads(json.dumps(asdict(costs)))) == costs
    assert costs.cover(3, costs.tree) and not costs.cover(4, costs.tree) and not costs.cover(3, "chain")
    for wrong in ({"tree": "bush"}, {"tree": 3}, {"drafting": []}, {"tree": "chain"}):
        with pytest.raises(BadInput, match="Measure them again"):
            costs_from(asdict(costs) | wrong)
    found = json.loads(json.dumps(asdict(COSTS)))
    assert costs_from({name: found[name] for name in found if name not in ("tree", "drafting")}) == COSTS


@pytest.mark.parametrize("shape", ["chain", "dynamic:depth=2,topk=2"])
def test_live_shows_what_passes_cost_of_chains_and_of_trees(shape):
    levels = () if shape == "chain" else (Cost(0.002, 0.002, 0.002), Cost(0.005, 0.005, 0.005))
    tiles = {tile.name: tile.value for tile in cost_tiles(replace(COSTS, tree=shape, drafting=levels), 3)}
    verifying, drafting = ("Target, 3 nodes", "Drafter, a tree") if levels else ("Target, 4 tokens", "Drafter, 1 token")
    assert tiles["Target, 1 token"].startswith("10") and tiles[verifying].startswith("13")
    assert tiles[drafting].startswith("5" if levels else "1") and "Break-even τ, modelled" in tiles


def test_damaged_costs_are_refused():
    found = json.loads(json.dumps(asdict(COSTS)))
    assert costs_from(found) == COSTS
    for wrong in ({}, None, found | {"rest": []}, found | {"drafter_step": {"median": "x", "low": 0, "high": 0}}):
        with pytest.raises(BadInput, match="Measure them again"):
            costs_from(wrong)
    with pytest.raises(BadInput, match="contradict"):
        costs_from(asdict(replace(COSTS, rest=COSTS.rest[:2])))
    for wrong in (
        {"repeats": float("inf")},
        {"repeats": 2.5},
        {"cache_length": "64"},
        {"device": ["a device"]},
        {"drafter_step": {"median": 10**400, "low": 1, "high": 10**400}},
        {"drafter_step": {"median": float("nan"), "low": 1, "high": 2}},
        {"target_pass": [{"median": 0, "low": 0, "high": 1}] * 4},
        {"target_pass": [{"median": -1, "low": -2, "high": 1}] * 4},
        {"target_pass": [{"median": 3, "low": 1, "high": 2}] * 4},
    ):
        with pytest.raises(BadInput, match="Measure them again"):
            costs_from(asdict(COSTS) | wrong)
    below = replace(COSTS, rest=(Cost(-0.001, -0.002, 0.001),) * 3)  # the rest of a round may be negative
    assert costs_from(json.loads(json.dumps(asdict(below)))) == below


TREES = Settings(rule="mars", tree="dynamic:depth=2,topk=2,nodes=3")


@pytest.mark.parametrize("settings", [Settings(rule="strict"), TREES])
def test_the_built_in_pair_is_measured(pair, settings):
    gamma = settings.gamma if settings.drafts_trees else 2
    measuring = Measuring(pair, gamma, settings=settings, seconds=0.2)
    with pytest.raises(BadInput, match="not measured yet"):
        measuring.costs()
    shares = list(measuring)
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] <= 1
    try:
        costs = measuring.costs()
    except Disturbed as busy:
        assert "Measure again" in str(busy)
        return
    assert costs.repeats >= LEAST and costs.unsure <= MOST
    assert (len(costs.target_pass), len(costs.rest), costs.gamma) == (gamma + 1, gamma, gamma)
    assert (costs.tree, len(costs.drafting)) == (settings.tree, 2 if settings.drafts_trees else 0)
    for cost in (*costs.target_pass, costs.drafter_step, *costs.drafting, *costs.rest):
        assert 0 < cost.low <= cost.seconds <= cost.high
    assert costs.device == pair.device and objection(costs) == ""
    assert round_seconds(costs, gamma) > costs.passes[gamma].seconds
    assert costs_from(json.loads(json.dumps(asdict(costs)))) == costs


def test_trace_that_no_context_holds_are_refused(pair):
    with pytest.raises(BadInput, match="do not fit"):
        measure_costs(replace(pair, context=8), 6)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_target_alone_writes_what_strict_writes(pair, temperature):
    from mars_viz.recording import Recording

    settings = Settings(rule="strict", temperature=temperature, max_new_tokens=24, gamma=3, seed=5)
    run = Recording(pair, "Once upon a time, there was", settings).finish()
    alone = decode_alone(pair, run.prompt_ids, settings)
    assert alone.token_ids == run.token_ids
    assert alone.seconds > 0
