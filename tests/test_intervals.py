"""Intervals: by hand, their coverage, and the number of prompts that a test needs."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mars_viz.analysis.intervals import (
    Band,
    Bootstrap,
    Interval,
    Method,
    band,
    difference,
    interval,
    mean,
    prompts_needed,
    ratio,
    ratio_of_ratios,
    wilson,
)
from mars_viz.errors import BadInput
from mars_viz.sweep.figure_words import told

BOTH = [Method.PERCENTILE, Method.BCA]


def test_estimates_and_turns_by_hand():
    tokens, rounds = np.array([10.0, 30.0]), np.array([5.0, 5.0])
    assert mean(tokens).estimate == 20
    assert ratio(tokens, rounds).estimate == 4  # pooled, not the mean of 2 and 6 by accident: see below
    assert ratio(np.array([10.0, 30.0]), np.array([10.0, 5.0])).estimate == pytest.approx(40 / 15)
    assert difference(tokens, rounds).estimate == 15
    assert ratio_of_ratios((tokens, rounds), (rounds, rounds)).estimate == 4
    units, values = np.array([7, 3, 9, 3, 9, 9]), np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    sums, sizes = np.array([10.0, 1.0, 52.0]), np.array([2, 1, 3])  # of the questions 3, 7 and 9
    found = mean(values, Bootstrap(method=Method.PERCENTILE), units)
    assert found.estimate == values.mean()
    each = np.array(list(product(range(3), repeat=3)))  # all 27 resamples, equally likely
    replicates = np.sort(sums[each].sum(axis=1) / sizes[each].sum(axis=1))
    assert replicates[0] <= found.low < replicates[2] and replicates[-3] < found.high <= replicates[-1]


def drawn(statistic, columns, sizes, seed, resamples):
    rng, units = np.random.default_rng(seed), len(sizes)
    parts = []
    for _ in range(resamples // 10_000):
        weights = rng.multinomial(units, np.full(units, 1 / units), size=10_000).astype(float)
        parts.append(statistic(*(weights @ column / (weights @ sizes) for column in columns)))
    return np.sort(np.concatenate(parts))


def read_off(replicates, estimate, left_out, method):
    levels = np.array([0.025, 0.975])
    if method is Method.BCA:
        below = (np.mean(replicates < estimate - 1e-12) + np.mean(replicates <= estimate + 1e-12)) / 2
        away = left_out.mean() - left_out
        skew, bias = np.sum(away**3) / (6 * np.sum(away**2) ** 1.5), stats.norm.ppf(below)
        moved = bias + stats.norm.ppf(levels)
        levels = stats.norm.cdf(bias + moved / (1 - skew * moved))
    return np.quantile(replicates, levels)


def cases(prompts):
    rng = np.random.default_rng(prompts)
    rounds = rng.integers(3, 40, prompts).astype(float)
    tokens = rounds + rng.binomial(6, 0.4, prompts) * rounds / 2
    fewer, others = np.ceil(rounds * rng.uniform(0.7, 1.1, prompts)), tokens * rng.uniform(0.9, 1.1, prompts)
    seconds = rng.exponential(size=prompts) ** 2
    return {
        "mean": (lambda m: m, (seconds,)),
        "ratio": (lambda a, b: a / b, (tokens, rounds)),
        "skewed ratio": (lambda a, b: a / b, (seconds, rounds)),
        "difference of ratios": (lambda a, b, c, d: a / b - c / d, (others, fewer, tokens, rounds)),
        "ratio of ratios": (lambda a, b, c, d: (a / b) / (c / d), (others, fewer, tokens, rounds)),
    }


RESAMPLES = 40_000
NOISE = 4 / math.sqrt(RESAMPLES)
"""Standard deviation, in standard errors, of an end that so many resamples give: about 2.7 / sqrt(resamples) for the
quantile, and about as much for BCa's bias, which is estimated too."""


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize(("prompts", "off"), [(12, 0.06), (200, 0.01)])
def test_what_is_computed_is_what_resampling_comes_to(prompts, off, method):
    sizes = np.random.default_rng(1).integers(1, 5, prompts)
    for name, (statistic, columns) in cases(prompts).items():
        for size in (np.ones(prompts, int), sizes):
            units = np.repeat(np.arange(prompts), size)
            each = [np.repeat(column / size, size) for column in columns]
            found = interval(statistic, *each, how=Bootstrap(method=method), units=units)
            assert found.estimate == pytest.approx(
                statistic(*(column.sum() for column in columns)) / (size.sum() if name == "mean" else 1)
            )
            replicates = drawn(statistic, columns, size.astype(float), 5, RESAMPLES)
            rest = size.sum() - size
            left_out = statistic(*((column.sum() - column) / rest for column in columns))
            low, high = read_off(replicates, found.estimate, left_out, method)
            room = (off + 6 * NOISE) * replicates.std()
            assert (found.low, found.high) == (pytest.approx(low, abs=room), pytest.approx(high, abs=room)), name


@pytest.mark.parametrize("method", BOTH)
def test_shares_agree_with_resampling_to_half_a_prompt(method):
    for right, prompts in ((1, 20), (17, 20), (35, 50), (199, 200)):
        values = np.repeat([1.0, 0.0], [right, prompts - right])
        found = mean(values, Bootstrap(method=method))
        replicates = drawn(lambda m: m, [values], np.ones(prompts), 3, RESAMPLES)
        left_out = (values.sum() - values) / (prompts - 1)
        low, high = read_off(replicates, found.estimate, left_out, method)
        assert 0 <= found.low <= found.high <= 1
        assert (found.low, found.high) == (pytest.approx(low, abs=1 / prompts), pytest.approx(high, abs=1 / prompts))


def test_the_order_of_prompts_changes_no_printed_number():
    for prompts in (12, 200):
        for name, (statistic, columns) in cases(prompts).items():
            printed = set()
            for seed in range(5):
                order = np.random.default_rng(seed).permutation(prompts)
                found = interval(statistic, *(c[order] for c in columns))
                printed.add(told(name, (found.estimate, found.low, found.high)))
            assert len(printed) == 1, (name, printed)


def coverage(make, truth, how, trials=1000):
    rng = np.random.default_rng(7)
    found = [make(rng, how) for _ in range(trials)]
    return sum(each.low <= truth <= each.high for each in found)


@pytest.mark.parametrize("method", BOTH)
def test_coverage_of_a_ratio_of_sums(method):

    def pooled_tau(rng, how):
        rounds = rng.integers(5, 40, 100).astype(float)
        return ratio(rounds + rng.binomial(6, 0.4, 100) * rounds, rounds, how)

    hits = coverage(pooled_tau, 1 + 6 * 0.4, Bootstrap(method=method))
    assert stats.binom.ppf(1e-6, 1000, 0.92) <= hits <= stats.binom.ppf(1 - 1e-6, 1000, 0.975)


def test_coverage_of_a_paired_accuracy_loss():

    def loss(rng, how):
        kind = rng.choice(4, 200, p=[0.10, 0.05, 0.6, 0.25])
        return difference((kind == 0) | (kind == 2), (kind == 1) | (kind == 2), how)

    hits = coverage(loss, 0.05, Bootstrap())
    assert stats.binom.ppf(1e-6, 1000, 0.92) <= hits <= stats.binom.ppf(1 - 1e-6, 1000, 0.975)


def test_undefined_values_and_single_prompts_have_no_interval():
    alone = mean(np.array([3.0]))
    assert alone.estimate == 3 and math.isnan(alone.low) and math.isnan(alone.high)
    for method in BOTH:
        same = ratio(np.full(20, 0.3), np.full(20, 0.1), Bootstrap(method=method))
        assert same.low == same.high == same.estimate == pytest.approx(3)
        none = difference(np.ones(10), np.ones(10), Bootstrap(method=method))
        assert (none.low, none.estimate, none.high) == (0, 0, 0)
    never = ratio(np.ones(5), np.zeros(5))
    assert math.isnan(never.estimate) and math.isnan(never.low)
    seldom = ratio(np.ones(5), np.array([1.0, 0, 0, 0, 0]))
    assert seldom.estimate == 5 and math.isnan(seldom.high)
    found = mean(np.array([1.0, 2.0, 3.0]), units=np.zeros(3, int))
    assert found.estimate == 2 and np.isnan([found.low, found.high]).all()


@settings(max_examples=30)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 99))
def test_a_band_is_the_interval_of_every_segment(prompts, segments, seed):
    values = np.random.default_rng(seed).normal(size=(prompts, segments))
    weights = np.random.default_rng(seed + 1).uniform(1, 2, (prompts, 1))  # the same on every segment
    how = Bootstrap()
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
    whole = band(lambda m: m, values)
    monkeypatch.setattr("mars_viz.analysis.intervals._CHUNK", 10 * 7)
    parts = band(lambda m: m, values)
    assert np.allclose(whole.low, parts.low) and np.allclose(whole.high, parts.high)


def test_the_number_of_prompts_needed_by_hand():
    assert prompts_needed(5, 0.95, 0.1) == math.ceil((1.644854 * 0.1**0.5 + 0.841621 * 0.0975**0.5) ** 2 / 0.0025)
    assert prompts_needed(5, 0.95, 0.0) == prompts_needed(5, 0.95, 0.05)  # a loss needs as many discordant prompts
    assert prompts_needed(100, 0.95, 1.0) >= 2
    assert prompts_needed(1, 0.95, 0.1) > prompts_needed(2, 0.95, 0.1) > prompts_needed(2, 0.95, 0.05)
    assert prompts_needed(1, 0.99, 0.1) > prompts_needed(1, 0.95, 0.1)
    for successes, trials in ((0, 10), (3, 10), (10, 10), (499, 1000)):
        other = stats.binomtest(successes, trials).proportion_ci(0.9, "wilson")
        found = wilson(successes, trials, 0.9)
        assert (found.low, found.high) == (pytest.approx(other.low), pytest.approx(other.high))
    nothing = wilson(0, 0)
    assert math.isnan(nothing.estimate) and (nothing.low, nothing.high) == (0, 1)


def test_that_many_prompts_have_the_power_promised():
    loss, share = 0.04, 0.12
    count = prompts_needed(100 * loss, 0.95, share)
    shares = [(share + loss) / 2, (share - loss) / 2, 1 - share]
    lost, won, _ = np.random.default_rng(0).multinomial(count, shares, size=10_000).T
    found = (lost - won) / np.sqrt(lost + won) > stats.norm.ppf(0.95)
    assert found.mean() == pytest.approx(0.8, abs=0.03)


def test_bad_input():
    for bad in ({"confidence": 1.0}, {"confidence": math.nan}):
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


@pytest.mark.parametrize("method", BOTH)
def test_the_same_prompt_asked_twice_is_no_new_evidence(method):
    rng, how = np.random.default_rng(2), Bootstrap(method=method)
    a, b = rng.normal(3, 1, 60), rng.uniform(1, 2, 60)
    once = interval(lambda x, y: x / y, a, b, how=how)
    twice = [np.repeat(column, 2) for column in (a, b)]
    together = interval(lambda x, y: x / y, *twice, how=how, units=np.repeat(np.arange(60), 2))
    assert (together.low, together.high) == pytest.approx((once.low, once.high))
    apart = interval(lambda x, y: x / y, *twice, how=how)
    assert apart.high - apart.low < 0.8 * (once.high - once.low)
