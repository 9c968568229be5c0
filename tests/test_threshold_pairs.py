"""Sweeps of draft-length controllers in pairs on Compare: figures and their intervals, where texts part, and words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mars_viz.costs import Cost, at_ends, drafts_seconds, per_token
from mars_viz.run import Settings
from mars_viz.sweep import SweepResult, difference_at, measures, value_at
from mars_viz.sweep.pairing import SweepSetting, compared, divergence, pair
from mars_viz.sweep.result import costed_by
from mars_viz.ui.compare import sweep_pair
from mars_viz.ui.compare.compare_words import Names
from tests.sweep_cases import toy_sweep
from tests.test_compare_page import folder, link, opened, recorded  # noqa: F401
from tests.test_threshold_sweep import DEAR, GREEDY, threshold_sweep

NAMES = ("tau", "accuracy", "speed_up", "drafted", "same")
UNSURE = replace(
    DEAR,
    target_pass=tuple(Cost(each.seconds, 0.97 * each.seconds, 1.05 * each.seconds) for each in DEAR.target_pass),
    drafter_step=Cost(0.004, 0.0037, 0.0042),
)
SAMPLED = Settings(rule="rejection-sampling", temperature=0.9, seed=2, gamma=3, max_new_tokens=16)


def settings(one, left, other, right):
    return pair(SweepSetting(one, left), SweepSetting(other, right))


def speed_up(result, dial, costs):
    rows, gamma = result.rows(np.array([dial]))[:, 0], result.plan.settings.gamma
    tokens = result.lines["tokens"][rows].sum()
    controller = result.plan.cut_by
    if controller is None:
        return float(per_token(costs, gamma).estimate * tokens / result.lines["rounds"][rows].sum())
    counts = result.lines["lengths"][rows].sum(axis=0).tolist()
    lengths = [length for length, count in enumerate(counts) for _ in range(count)]
    spent = drafts_seconds(costs, lengths, [controller.steps(each, gamma) for each in lengths])
    return float(tokens * costs.passes[0].seconds / spent)


@pytest.fixture(scope="module")
def confidence(tmp_path_factory):
    return threshold_sweep(tmp_path_factory.mktemp("pairs") / "confidence", costs=UNSURE, count=8)


@pytest.fixture(scope="module")
def svip(tmp_path_factory):
    return threshold_sweep(tmp_path_factory.mktemp("pairs") / "svip", "svip", costs=UNSURE, count=8)


@pytest.fixture(scope="module")
def theta(tmp_path_factory):
    made = toy_sweep(tmp_path_factory.mktemp("pairs") / "theta", 8, replace(GREEDY, dial=None)).finish()
    return replace(made, costs=UNSURE)


def test_two_thresholds_are_compared_as_the_sweep_compares_them(confidence, theta):
    both, known = settings(confidence, 0.0, confidence, 0.6), measures(confidence)
    found = {each.measure.name: each for each in compared(both, NAMES)}
    assert set(found) == set(NAMES)
    for name, each in found.items():
        assert (each.left, each.right) == tuple(value_at(confidence, known[name], at) for at in (0.0, 0.6))
        assert each.change == difference_at(confidence, known[name], 0.6, 0.0)
    assert found["drafted"].change.high < 0 and found["same"].measure.title == "texts identical to those of fixed γ"
    again = replace(UNSURE, drafter_step=Cost(0.008, 0.008, 0.008))
    (found,) = compared(settings(confidence, 0.5, costed_by(confidence, again), 0.5), ("speed_up",))
    assert (found.change.estimate, found.left) == (0, found.right)
    elsewhere = replace(again, device="Another")
    (apart,) = compared(settings(confidence, 0.5, costed_by(confidence, elsewhere), 0.5), ("speed_up",))
    assert apart.right.estimate == pytest.approx(speed_up(confidence, 0.5, elsewhere)) and apart.change.high < 0
    found = [each.measure.name for each in compared(settings(theta, 0.8, confidence, 0.6), NAMES)]
    assert found == ["tau", "accuracy", "speed_up", "drafted"]
    assert "drafted" not in [each.measure.name for each in compared(settings(theta, 0.8, theta, 0.6), NAMES)]


@pytest.mark.parametrize("beside", ["svip", "theta"])
def test_the_difference_of_modelled_speed_ups_holds_the_costs_that_both_stand_on(beside, confidence, request):
    other: SweepResult = request.getfixturevalue(beside)
    at = (0.6, 0.4)
    (found,) = compared(settings(confidence, at[0], other, at[1]), ("speed_up",))
    sure = replace(
        UNSURE,
        target_pass=tuple(Cost(each.seconds, each.seconds, each.seconds) for each in UNSURE.target_pass),
        drafter_step=Cost(0.004, 0.004, 0.004),
    )
    bare = settings(replace(confidence, costs=sure), at[0], replace(other, costs=sure), at[1])
    (narrow,) = compared(bare, ("speed_up",))

    def gap(costs):
        return speed_up(other, at[1], costs) - speed_up(confidence, at[0], costs)

    assert math.isclose(found.change.estimate, gap(UNSURE)) and narrow.change.estimate == found.change.estimate
    moves = [[gap(end) - gap(UNSURE) for end in ends] for ends in at_ends(UNSURE)]
    below = (narrow.change.estimate - narrow.change.low) ** 2 + sum(min(0.0, *each) ** 2 for each in moves)
    above = (narrow.change.high - narrow.change.estimate) ** 2 + sum(max(0.0, *each) ** 2 for each in moves)
    assert found.change.low == pytest.approx(found.change.estimate - math.sqrt(below))
    assert found.change.high == pytest.approx(found.change.estimate + math.sqrt(above))
    assert found.change.low < narrow.change.low and found.change.high > narrow.change.high


def test_texts_part_from_one_text_only_where_the_same_rule_stands_at_the_same_dial(confidence, svip, theta, tmp_path):
    assert divergence(settings(confidence, 0.5, svip, 0.5)) is not None
    assert divergence(settings(theta, 0.5, confidence, 0.5)) is None, "MARS at θ = 0.8 is not strict"
    elsewhere = threshold_sweep(tmp_path / "looser", settings=replace(GREEDY, dial=0.5), count=8)
    assert divergence(settings(confidence, 0.5, elsewhere, 0.5)) is None
    lossless = threshold_sweep(tmp_path / "lossless", settings=replace(GREEDY, rule="strict", dial=None), count=8)
    assert divergence(settings(theta, 0.5, lossless, 0.5)) is not None
    drawn = [
        threshold_sweep(tmp_path / rule, settings=replace(SAMPLED, rule=rule), count=3)
        for rule in ("rejection-sampling", "block-verification")
    ]
    dialled = toy_sweep(tmp_path / "dialled", 3, replace(SAMPLED, rule="mars-sampling")).finish()
    assert divergence(settings(drawn[0], 0.5, dialled, 0.5)) is not None
    assert divergence(settings(drawn[1], 0.5, dialled, 0.5)) is None
    assert divergence(settings(drawn[0], 0.5, drawn[1], 0.5)) is None


def test_settings_are_named_by_threshold_and_by_what_judges(confidence, svip, theta):
    one, mixed = settings(confidence, 0.0, confidence, 0.6), settings(theta, 0.9, svip, 0.3)
    assert sweep_pair.names(one) == Names("fixed γ", "λ = 0.60")
    assert sweep_pair.names(settings(confidence, 0.6, svip, 1.5)) == Names("Confidence at λ = 0.60", "fixed γ")
    assert sweep_pair.names(mixed) == Names("MARS at θ = 0.90", "SVIP at λ = 0.30, MARS at θ = 0.80")
    assert "MARS at θ = 0.80" in sweep_pair.stands(one) and not sweep_pair.stands(settings(theta, 0.9, theta, 1.0))
    rows = tuple(compared(one, sweep_pair.COMPARED))
    sentence = sweep_pair.finding(one, rows, sweep_pair.turned(one), sweep_pair.names(one))
    assert "(λ = 0.60)" in sentence and "(fixed γ)" in sentence and "Drafted tokens per prompt:" in sentence
    assert {"drafted, reference", "drafted, compared"} <= set(sweep_pair.prompts(one, divergence(one)))
