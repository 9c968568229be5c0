"""Intervals: by hand, their coverage, and the number of prompts that a test needs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from mars_viz.analysis.intervals import (
    Band,
    Bootstrap,
    Interval,
    Method,
    band,
    difference,
    difference_of_ratios,
    interval,
    mean,
    prompts_needed,
    ratio,
    ratio_of_ratios,
    wilson,
)
from mars_viz.errors import BadInput

QUICK = Bootstrap(resamples=400)


def test_estimates_by_hand():
    tokens, rounds = np.array([10.0, 30.0]), np.array([5.0, 5.0])
    assert mean(tokens, QUICK).estimate == 20
    assert ratio(tokens, rounds, QUICK).estimate == 4  # pooled, not the mean of 2 and 6 by accident: see below
    assert ratio(np.array([10.0, 30.0]), np.array([10.0, 5.0]), QUICK).estimate == pytest.approx(40 / 15)
    assert difference(tokens, rounds, QUICK).estimate == 15
    assert difference_of_ratios((tokens, rounds), (rounds, rounds), QUICK).estimate == 3
    assert ratio_of_ratios((tokens, rounds), (rounds, rounds), QUICK).estimate == 4


def test_percentile_agrees_with_resampling_written_out():
    values = np.random.default_rng(1).exponential(size=30)
    how = Bootstrap(resamples=500, seed=3, method=Method.PERCENTILE)
    drawn = np.random.default_rng(3).integers(30, size=(500, 30))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    found = mean(values, how)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_bca_agrees_with_scipy():
    values = np.random.default_rng(2).exponential(size=40)
    found = mean(values, Bootstrap(resamples=20_000))
    other = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=5).confidence_interval
    assert found.low == pytest.approx(other.low, abs=0.02) and found.high == pytest.approx(other.high, abs=0.02)
    plain = mean(values, Bootstrap(resamples=20_000, method=Method.PERCENTILE))
    assert found.high > plain.high + 0.02  # skewed to the right, so the correction moves it there


def test_paired_is_narrower_than_each_alone():
    rng = np.random.default_rng(0)
    strict = rng.normal(5, 2, 100)
    relaxed = strict + rng.normal(0.5, 0.1, 100)
    found = difference(relaxed, strict, QUICK)
    assert found.high - found.low < 0.1
    assert mean(relaxed, QUICK).high - mean(relaxed, QUICK).low > 0.5
    assert found.low < 0.5 < found.high + 0.05


def coverage(make, truth: float, how: Bootstrap, trials: int = 1000) -> int:
    rng = np.random.default_rng(7)
    found = [make(rng, how) for _ in range(trials)]
    return sum(each.low <= truth <= each.high for each in found)


@pytest.mark.parametrize("method", [Method.PERCENTILE, Method.BCA])
def test_coverage_of_a_ratio_of_sums(method):
    """At 100 prompts a 95 % interval must hold the truth in at least 92 of 100 sets.

    1,000 sets: fewer hits than allowed has probability 1e-6 if the coverage is 92 %, and so has more than allowed at
    97.5 %, an interval that is needlessly wide.
    """

    def pooled_tau(rng, how):
        rounds = rng.integers(5, 40, 100).astype(float)
        return ratio(rounds + rng.binomial(6, 0.4, 100) * rounds, rounds, how)

    hits = coverage(pooled_tau, 1 + 6 * 0.4, Bootstrap(resamples=400, method=method))
    assert stats.binom.ppf(1e-6, 1000, 0.92) <= hits <= stats.binom.ppf(1 - 1e-6, 1000, 0.975)


def test_coverage_of_a_paired_accuracy_loss():
    """The same for accuracies that differ on 15 % of 200 prompts, 5 points apart."""

    def loss(rng, how):
        kind = rng.choice(4, 200, p=[0.10, 0.05, 0.6, 0.25])
        return difference((kind == 0) | (kind == 2), (kind == 1) | (kind == 2), how)

    hits = coverage(loss, 0.05, Bootstrap(resamples=400))
    assert stats.binom.ppf(1e-6, 1000, 0.92) <= hits <= stats.binom.ppf(1 - 1e-6, 1000, 0.975)


def test_one_prompt_says_nothing_and_equal_ones_leave_no_room():
    alone = mean(np.array([3.0]), QUICK)
    assert alone.estimate == 3 and math.isnan(alone.low) and math.isnan(alone.high)
    for method in (Method.PERCENTILE, Method.BCA):
        same = ratio(np.full(20, 0.3), np.full(20, 0.1), Bootstrap(method=method))
        assert same.low == same.high == same.estimate == pytest.approx(3)
        none = difference(np.ones(10), np.ones(10), Bootstrap(method=method))
        assert (none.low, none.estimate, none.high) == (0, 0, 0)


def test_what_is_not_defined_is_not_a_number():
    never = ratio(np.ones(5), np.zeros(5), QUICK)
    assert math.isnan(never.estimate) and math.isnan(never.low)
    seldom = ratio(np.ones(5), np.array([1.0, 0, 0, 0, 0]), QUICK)
    assert seldom.estimate == 5 and math.isnan(seldom.high)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 99))
@example(4, 2, 3)  # replicates equal to the estimate but for rounding, which differs between one column and two
def test_a_band_is_the_interval_of_every_segment(prompts, segments, seed):
    values = np.random.default_rng(seed).normal(size=(prompts, segments))
    weights = np.random.default_rng(seed + 1).uniform(1, 2, (prompts, 1))  # the same on every segment
    how = Bootstrap(resamples=100, seed=seed)
    found = band(lambda a, b: a / b, values, weights, how=how)
    assert isinstance(found, Band)
    for segment in range(segments):
        one = interval(lambda a, b: a / b, values[:, segment], weights[:, 0], how=how)
        assert isinstance(one, Interval)
        got = found.estimate[segment], found.low[segment], found.high[segment]
        assert got == pytest.approx((one.estimate, one.low, one.high))
        assert one.low <= one.high


def test_a_wide_band_is_made_in_blocks(monkeypatch):
    values = np.random.default_rng(0).normal(size=(10, 50))
    whole = band(lambda m: m, values, how=QUICK)
    monkeypatch.setattr("mars_viz.analysis.intervals._CHUNK", 400 * 7)
    parts = band(lambda m: m, values, how=QUICK)
    assert np.allclose(whole.low, parts.low) and np.allclose(whole.high, parts.high)


def test_draws_that_are_kept_are_those_that_are_made_anew(monkeypatch):
    """In chunks too, which share one stream of numbers."""
    values = np.random.default_rng(0).normal(size=(41, 3))
    kept = band(lambda m: m, values, how=QUICK)
    for name, value in (("_KEPT", 0), ("_CHUNK", 41 * 7)):
        monkeypatch.setattr(f"mars_viz.analysis.intervals.{name}", value)
        anew = band(lambda m: m, values, how=QUICK)
        np.testing.assert_allclose([kept.low, kept.high], [anew.low, anew.high], rtol=1e-12)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).normal(size=50)
    assert mean(values, QUICK) == mean(values, QUICK)
    assert mean(values, QUICK) != mean(values, Bootstrap(resamples=400, seed=1))


def test_wilson_agrees_with_scipy():
    for successes, trials in ((0, 10), (3, 10), (10, 10), (499, 1000)):
        other = stats.binomtest(successes, trials).proportion_ci(0.9, "wilson")
        found = wilson(successes, trials, 0.9)
        assert (found.low, found.high) == (pytest.approx(other.low), pytest.approx(other.high))
    nothing = wilson(0, 0)
    assert math.isnan(nothing.estimate) and (nothing.low, nothing.high) == (0, 1)


def test_prompts_needed_by_hand():
    # loss .05 with a tenth discordant: (1.6449 √.1 + .8416 √(.1 - .0025))² / .0025
    assert prompts_needed(5, 0.95, 0.1) == math.ceil((1.644854 * 0.1**0.5 + 0.841621 * 0.0975**0.5) ** 2 / 0.0025)
    assert prompts_needed(5, 0.95, 0.0) == prompts_needed(5, 0.95, 0.05)  # a loss needs as many discordant prompts
    assert prompts_needed(100, 0.95, 1.0) >= 2
    assert prompts_needed(1, 0.95, 0.1) > prompts_needed(2, 0.95, 0.1) > prompts_needed(2, 0.95, 0.05)
    assert prompts_needed(1, 0.99, 0.1) > prompts_needed(1, 0.95, 0.1)


def test_that_many_prompts_have_the_power_promised():
    """McNemar's test finds the loss in 80 of 100 sets, within 3.

    Of 10,000 sets, 400 / 10,000 = .004 is one standard deviation, so a share 3 points off has probability below 1e-12.
    """
    loss, share = 0.04, 0.12
    count = prompts_needed(100 * loss, 0.95, share)
    shares = [(share + loss) / 2, (share - loss) / 2, 1 - share]
    lost, won, _ = np.random.default_rng(0).multinomial(count, shares, size=10_000).T
    found = (lost - won) / np.sqrt(lost + won) > stats.norm.ppf(0.95)
    assert found.mean() == pytest.approx(0.8, abs=0.03)


def test_bad_input():
    for bad in ({"confidence": 1.0}, {"confidence": math.nan}, {"resamples": 10}, {"seed": -1}):
        with pytest.raises(BadInput):
            Bootstrap(**bad)
    with pytest.raises(BadInput, match="percentile or BCa"):
        Bootstrap(method=Method.WILSON)
    with pytest.raises(BadInput, match="at least one prompt"):
        mean(np.array([]))
    with pytest.raises(BadInput, match="every number of each"):
        difference(np.ones(3), np.ones(4))
    with pytest.raises(BadInput, match="5 of 4 is no share"):
        wilson(5, 4)
    for bad_arguments in ((0, 0.95, 0.1), (1, 1.0, 0.1), (1, 0.95, 1.1), (math.nan, 0.95, 0.1)):
        with pytest.raises(BadInput):
            prompts_needed(*bad_arguments)


def test_turns_of_a_question_are_drawn_together_by_hand() -> None:
    """Three questions of 1, 2 and 3 prompts, out of order: a replicate is a mean over the prompts of those drawn."""
    units, values = np.array([7, 3, 9, 3, 9, 9]), np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    sums, sizes = np.array([10.0, 1.0, 52.0]), np.array([2, 1, 3])  # of the questions 3, 7 and 9
    how = Bootstrap(method=Method.PERCENTILE, resamples=500)
    drawn = np.random.default_rng(0).integers(3, size=(500, 3))
    replicates = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    found = mean(values, how, units)
    assert found.estimate == values.mean()
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(replicates, [0.025, 0.975])))


@pytest.mark.parametrize("method", [Method.BCA, Method.PERCENTILE])
def test_the_same_prompt_asked_twice_is_no_new_evidence(method: Method) -> None:
    rng, how = np.random.default_rng(2), Bootstrap(method=method)
    a, b = rng.normal(3, 1, 60), rng.uniform(1, 2, 60)
    once = interval(lambda x, y: x / y, a, b, how=how)
    twice = [np.repeat(column, 2) for column in (a, b)]
    together = interval(lambda x, y: x / y, *twice, how=how, units=np.repeat(np.arange(60), 2))
    assert (together.low, together.high) == pytest.approx((once.low, once.high))
    apart = interval(lambda x, y: x / y, *twice, how=how)
    assert apart.high - apart.low < 0.8 * (once.high - once.low)


def test_one_question_alone_says_nothing_of_others() -> None:
    found = mean(np.array([1.0, 2.0, 3.0]), units=np.zeros(3, int))
    assert found.estimate == 2 and np.isnan([found.low, found.high]).all()
