"""Statistics of a sweep: step functions, intervals and the recommended setting."""

import functools
import math
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from mars_viz.analysis import intervals, recommendation
from mars_viz.analysis.intervals import Bootstrap, Interval, Method, Steps, combined, interval, prompts_needed, ratio
from mars_viz.analysis.recommendation import Changed, Finding, Graded, loss_bound, recommend, score_bound
from mars_viz.errors import BadInput

BOTH = [Method.PERCENTILE, Method.BCA]
averaged = partial(interval, np.positive)


def test_estimates_and_turns_by_hand():
    tokens, rounds = np.array([10.0, 30.0]), np.array([5.0, 5.0])
    assert averaged(tokens).estimate == 20
    assert ratio(tokens, rounds).estimate == 4  # pooled, not the mean of 2 and 6 by accident: see below
    assert ratio(np.array([10.0, 30.0]), np.array([10.0, 5.0])).estimate == pytest.approx(40 / 15)
    assert interval(np.subtract, tokens, rounds).estimate == 15
    units, values = np.array([7, 3, 9, 3, 9, 9]), np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    sums, sizes = np.array([10.0, 1.0, 52.0]), np.array([2, 1, 3])  # of the questions 3, 7 and 9
    found = averaged(values, how=Bootstrap(method=Method.PERCENTILE), units=units)
    assert found.estimate == values.mean()
    each = np.array(list(product(range(3), repeat=3)))  # all 27 resamples, equally likely
    replicates = np.sort(sums[each].sum(axis=1) / sizes[each].sum(axis=1))
    assert replicates[0] <= found.low < replicates[2] and replicates[-3] < found.high <= replicates[-1]


def cases(prompts):
    rng = np.random.default_rng(prompts)
    rounds = rng.integers(3, 40, prompts).astype(float)
    tokens = rounds + rng.binomial(6, 0.4, prompts) * rounds / 2
    fewer, others = np.ceil(rounds * rng.uniform(0.7, 1.1, prompts)), tokens * rng.uniform(0.9, 1.1, prompts)
    seconds = rng.exponential(size=prompts) ** 2
    return {
        "mean": (lambda m: m, (seconds,)),
        "skewed ratio": (lambda a, b: a / b, (seconds, rounds)),
        "difference of ratios": (lambda a, b, c, d: a / b - c / d, (others, fewer, tokens, rounds)),
        "ratio of ratios": (lambda a, b, c, d: (a / b) / (c / d), (others, fewer, tokens, rounds)),
    }


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("prompts", [12, 200])
def test_intervals_are_those_of_scipy_s_bootstrap(prompts, method):
    """An end of 2,000 resamples is off by .06 standard errors, 1.5 % of the width; 5 times that is allowed."""
    for name, (statistic, columns) in cases(prompts).items():
        found = interval(statistic, *columns, how=Bootstrap(method=method))
        assert found.estimate == pytest.approx(statistic(*(column.mean() for column in columns)))
        of_means = lambda *each, axis: statistic(*(column.mean(axis=axis) for column in each))  # noqa: B023, E731
        how = {"paired": True, "method": method.value.lower(), "n_resamples": 20_000, "batch": 5_000, "rng": 1}
        other = stats.bootstrap(columns, of_means, vectorized=True, **how)
        ends, room = tuple(other.confidence_interval), 0.3 * other.standard_error
        assert (found.low, found.high) == pytest.approx(ends, abs=room), name


@pytest.mark.parametrize(("loss", "method"), [(False, BOTH[0]), (False, BOTH[1]), (True, BOTH[1])])
def test_coverage_of_pooled_ratios_and_paired_losses(loss, method):
    """Fails by chance once in 500,000 if the coverage is 92 to 97.5 %."""
    rng, hits = np.random.default_rng(7), 0
    for _ in range(1000):
        if loss:
            kind = rng.choice(4, 200, p=[0.10, 0.05, 0.6, 0.25])
            found = interval(
                np.subtract, (kind == 0) | (kind == 2), (kind == 1) | (kind == 2), how=Bootstrap(method=method)
            )
        else:
            rounds = rng.integers(5, 40, 100).astype(float)
            found = ratio(rounds + rng.binomial(6, 0.4, 100) * rounds, rounds, Bootstrap(method=method))
        hits += found.low <= (0.05 if loss else 3.4) <= found.high
    assert stats.binom.ppf(1e-6, 1000, 0.92) <= hits <= stats.binom.ppf(1 - 1e-6, 1000, 0.975)


def test_undefined_values_and_single_prompts_have_no_interval():
    alone = averaged(np.array([3.0]))
    assert alone.estimate == 3 and math.isnan(alone.low) and math.isnan(alone.high)
    for method in BOTH:
        same = ratio(np.full(20, 0.3), np.full(20, 0.1), Bootstrap(method=method))
        assert same.low == same.high == same.estimate == pytest.approx(3)
        none = interval(np.subtract, np.ones(10), np.ones(10), how=Bootstrap(method=method))
        assert (none.low, none.estimate, none.high) == (0, 0, 0)
    never = ratio(np.ones(5), np.zeros(5))
    assert math.isnan(never.estimate) and math.isnan(never.low)
    seldom = ratio(np.ones(5), np.array([1.0, 0, 0, 0, 0]))
    assert seldom.estimate == 5 and math.isnan(seldom.high)
    found = averaged(np.array([1.0, 2.0, 3.0]), units=np.zeros(3, int))
    assert found.estimate == 2 and np.isnan([found.low, found.high]).all()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 99))
def test_a_band_is_the_interval_of_every_segment_and_made_in_blocks(monkeypatch, prompts, segments, seed):
    monkeypatch.setattr("mars_viz.analysis.intervals._CHUNK", 30)
    values = np.random.default_rng(seed).normal(size=(prompts, segments))
    weights = np.random.default_rng(seed + 1).uniform(1, 2, (prompts, 1))  # the same on every segment
    found = intervals.band(lambda a, b: a / b, values, weights, how=Bootstrap())
    for segment in range(segments):
        one = interval(lambda a, b: a / b, values[:, segment], weights[:, 0], how=Bootstrap())
        assert isinstance(one, Interval) and one.low <= one.high
        got = found.estimate[segment], found.low[segment], found.high[segment]
        assert got == pytest.approx((one.estimate, one.low, one.high))


def test_the_number_of_prompts_needed_by_hand():
    assert prompts_needed(5, 0.95, 0.1) == math.ceil((1.644854 * 0.1**0.5 + 0.841621 * 0.0975**0.5) ** 2 / 0.0025)
    assert prompts_needed(5, 0.95, 0.0) == prompts_needed(5, 0.95, 0.05)  # a loss needs as many discordant prompts
    assert prompts_needed(100, 0.95, 1.0) >= 2
    assert prompts_needed(1, 0.95, 0.1) > prompts_needed(2, 0.95, 0.1) > prompts_needed(2, 0.95, 0.05)
    assert prompts_needed(1, 0.99, 0.1) > prompts_needed(1, 0.95, 0.1)
    loss, share = 0.04, 0.12
    count = prompts_needed(100 * loss, 0.95, share)
    shares = [(share + loss) / 2, (share - loss) / 2, 1 - share]
    lost, won, _ = np.random.default_rng(0).multinomial(count, shares, size=10_000).T
    found = (lost - won) / np.sqrt(lost + won) > stats.norm.ppf(0.95)
    assert found.mean() == pytest.approx(0.8, abs=0.03), "the power that is promised"
    for successes, trials in ((0, 10), (3, 10), (10, 10), (499, 1000)):
        other = stats.binomtest(successes, trials).proportion_ci(0.9, "wilson")
        found = intervals.wilson(successes, trials, 0.9)
        assert (found.low, found.high) == (pytest.approx(other.low), pytest.approx(other.high))
    nothing = intervals.wilson(0, 0)
    assert math.isnan(nothing.estimate) and (nothing.low, nothing.high) == (0, 1)


def test_bad_intervals_are_refused():
    for refused, why in (
        (lambda: Bootstrap(confidence=1.0), "onfidence"),
        (lambda: Bootstrap(confidence=math.nan), "onfidence"),
        (lambda: averaged(np.array([])), "at least one prompt"),
    ):
        with pytest.raises(BadInput, match=why):
            refused()


@st.composite
def functions(draw):
    found = []
    for _ in range(draw(st.integers(1, 6))):
        inner = draw(st.lists(st.integers(1, 31), unique=True, max_size=8))
        edges, size = np.array([0.0, *(i / 32 for i in sorted(inner)), 1.0]), len(inner) + 1
        found.append(Steps(edges, np.array(draw(st.lists(st.integers(-9, 9), min_size=size, max_size=size)))))
    return found


def probes(edges):
    near = np.concatenate([edges, np.nextafter(edges, -1), np.nextafter(edges, 2), (edges[1:] + edges[:-1]) / 2])
    return near[(near >= edges[0]) & (near <= edges[-1])]


def test_steps_by_hand_and_bad_input():
    one = Steps(np.array([0.0, 0.5, 1.0]), np.array([1, 2]))
    two = Steps(np.array([0.0, 0.25, 0.5, 1.0]), np.array([10, 20, 30]))
    assert [int(one.at(dial)) for dial in (0.0, np.nextafter(0.5, 0), 0.5, 1.0)] == [1, 1, 2, 2]
    for outside in (-0.1, 1.1, np.nan):
        with pytest.raises(BadInput, match="lies outside 0 to 1"):
            one.at(outside)
    assert combined(np.add, one, two).edges.tolist() == [0, 0.25, 0.5, 1]
    assert combined(lambda a, b: b / a, one, two).values.tolist() == [10, 20, 15]
    assert Steps(np.arange(4.0), np.array([np.nan, np.nan, 1])).simplified().edges.tolist() == [0, 2, 3]
    ascending = ([0.0], []), ([0.0, 1], [1, 2]), ([[0.0, 1]], [1])
    others = [[0.0, 0, 1], [0.0, 2, 1], [0.0, np.nan, 1], [0.0, 1, np.inf]]
    for edges, values in (*ascending, *((each, [1, 2]) for each in others)):
        with pytest.raises(BadInput, match="must be numbers that ascend"):
            Steps(np.array(edges), np.array(values))


@given(functions())
def test_functions_put_together_and_simplified_agree_with_every_point(found):
    side = combined(lambda *rows: np.stack(rows), *found)
    for dial in probes(side.edges):
        assert side.at(dial).tolist() == [int(function.at(dial)) for function in found]
    simple = (function := found[0]).simplified()
    assert all(simple.at(dial) == function.at(dial) for dial in probes(function.edges))
    assert (np.diff(simple.values) != 0).all()


EDGES = np.array([0.5, 0.6123456, 0.8, 0.9377, 1.0])


def graded(prompts, wrong, *, right_too=0, edges=EDGES, strict=3):
    right = np.ones((prompts, len(wrong)), bool)
    for segment, count in enumerate(wrong):
        right[:count, segment] = False
    right[prompts - right_too :, strict] = False
    return Graded(Steps(edges, right), strict)


def test_recommended_dial_values():
    found = recommend(graded(1000, [40, 10, 3, 0]), 2)
    assert found.finding is Finding.RECOMMENDED
    assert (found.segment, found.dial, found.changed) == (1, 0.613, Changed(10, 0, 1000))
    assert found.changed.words == "of 1000 prompts it loses 10 and wins 0"
    assert 0.01 < found.bound <= 0.02 and found.prompts_needed is None  # the next one loses 4 points already
    for wrong, won, segment in (
        ([0, 100, 3, 0], 0, 2),  # a good segment behind a bad one is not reached
        ([0, 0, 100, 0], 0, 3),
        ([30, 30, 30, 0], 0, 3),
        ([30, 30, 30, 0], 30, 0),  # wins make up for losses
    ):
        assert recommend(graded(1000, wrong, right_too=won), 2).segment == segment
    edges = np.array([0.0, 0.1, 0.25, 1.0])
    found = recommend(graded(1000, [0, 5, 100], edges=edges, strict=0), 2)
    assert (found.segment, found.dial) == (1, 0.249)
    assert recommend(graded(1000, [0, 5, 5], edges=edges, strict=0), 2).dial == 1.0
    edges = np.array([0.5, 0.90001234, 0.90001236, 1.0])
    found = recommend(graded(1000, [100, 3, 0], edges=edges, strict=2), 2)
    assert (found.segment, found.dial) == (1, 0.90001234)


def test_too_few_prompts_are_counted():
    found = recommend(graded(50, [0, 0, 0, 0]), 1)
    assert (found.finding, found.dial, found.changed) == (Finding.NOT_ENOUGH, None, None)
    assert "there are 50, about 570 more" in found.sentence
    assert found.more == found.prompts_needed - 50 > 0 and found.next_step == "", "the sentence has it"
    one = Graded(Steps(np.array([0.5, 1.0]), np.ones((1, 1), bool)), 0)
    assert recommend(one, 5).finding is Finding.NOT_ENOUGH
    enough = recommend(graded(found.prompts_needed, [0, 0, 0, 0]), 1)
    assert (enough.finding, enough.dial) == (Finding.RECOMMENDED, 0.5)
    half, none = (recommend(graded(2, [wrong] * 3 + [0]), 1) for wrong in (1, 0))
    assert half.prompts_needed == none.prompts_needed and 299 <= half.more < 1000
    assert recommend(graded(50, [25, 25, 25, 0]), 1).more > 10_000, "of 50 it is one"
    found = recommend(graded(400, [40, 40, 3, 0]), 1)
    assert found.segment == 3  # 3 of 400 lost is .75 points, but up to 2 with 95 % confidence
    assert found.prompts_needed > 400
    right = np.ones((4, 2), bool)
    right[:2, 1] = False  # the looser one wins 2 of 4
    found = recommend(Graded(Steps(np.array([0.0, 0.5, 1.0]), right), 1), 60, 0.95)
    assert (found.segment, found.prompts_needed) == (0, None)
    assert recommend(graded(4, [2, 0, 0, 0], right_too=4), 60, 0.95).finding is Finding.RECOMMENDED


@pytest.mark.parametrize(("lost", "won", "n"), [(0, 0, 30), (5, 2, 40), (1, 9, 100), (40, 0, 40), (0, 7, 20)])
def test_the_score_bound_inverts_the_score_test(lost, won, n):
    bound = score_bound(Changed(lost, won, n), 0.95)
    if lost + won == 0:
        assert bound == pytest.approx(1.644854**2 / (n + 1.644854**2), abs=1e-5)
    if lost == n:
        assert bound == pytest.approx(1)
        return

    def minus_log(q):
        shares = np.clip([q + bound, q, 1 - 2 * q - bound], 1e-300, 1)
        return -float(np.dot([lost, won, n - lost - won], np.log(shares)))

    ends = max(0.0, -bound), (1 - bound) / 2
    q = optimize.minimize_scalar(minus_log, bounds=ends, method="bounded", options={"xatol": 1e-10}).x
    z = (lost - won - n * bound) / math.sqrt(n * (2 * q + bound * (1 - bound)))
    assert z == pytest.approx(-1.644854, abs=2e-3)


@pytest.mark.parametrize("sizes", [(1,), (3,), (1, 2), (1, 2, 3, 7)])
def test_the_bootstrap_bound_agrees_with_a_large_simulation(sizes):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        turns = rng.choice(sizes, rng.integers(5, 600))
        strict, luck = rng.random(turns.sum()) >= rng.choice([0, 0.03]), rng.random(turns.sum())
        other = np.where(strict, luck >= rng.choice([0.004, 0.05, 0.2]), luck < 0.5)
        steps = Steps(np.array([0.0, 0.5, 1.0]), np.column_stack([other, strict]))
        changed = Graded(steps, 1, units=np.repeat(np.arange(len(turns)), turns)).changed()[0]
        kinds = changed.drawn()
        lost, turns, counts = (np.array([getattr(kind, name) for kind in kinds]) for name in ("lost", "turns", "count"))
        drawn = rng.multinomial(counts.sum(), counts / counts.sum(), size=100_000)
        losses, bound = (drawn @ lost) / (drawn @ turns), recommendation.bootstrap_bound(changed, 0.95)
        off = 5 * math.sqrt(0.95 * 0.05 / len(losses)) + (0.01 if len(sizes) > 1 else 0)
        assert np.mean(losses < bound - 1e-12) <= 0.95 + off
        assert np.mean(losses < bound + 1e-12) >= 0.95 - off


def test_bounds_by_hand():
    bounds = [recommendation.bootstrap_bound(Changed(1, 0, 2), confidence) for confidence in (0.5, 0.75, 0.76, 0.95)]
    assert bounds == [0.5, 0.5, 1, 1]
    assert recommendation.bootstrap_bound(Changed(0, 2, 2), 0.95) == -1
    assert recommendation.bootstrap_bound(Changed(0, 0, 7), 0.95) == 0
    assert loss_bound(Changed(0, 0, 298), 0.95) > 0.01 >= loss_bound(Changed(0, 0, 299), 0.95)
    assert score_bound(Changed(0, 0, 268), 0.95) < 0.01
    for lost, n in ((0, 1), (0, 300), (1, 300), (7, 20), (20, 20), (300, 4000)):
        expected = stats.binomtest(lost, n, alternative="less").proportion_ci(0.95).high
        assert recommendation.exact_bound(lost, n, 0.95) == pytest.approx(expected, abs=1e-9)
    strict = np.array([True, True, True, False, True])
    other = np.array([False, False, True, True, False])
    steps = Steps(np.array([0.0, 0.5, 1.0]), np.column_stack([other, strict]))
    changed = Graded(steps, 1, units=np.array([5, 5, 8, 8, 2])).changed()[0]
    assert (changed.lost, changed.won, changed.prompts, changed.questions) == (3, 1, 5, 3)
    kinds = (1, 1, 1), (-1, 2, 1), (2, 2, 1)
    assert set(changed.kinds) == {recommendation.QuestionKind(*each) for each in kinds}
    assert changed.independent() == Changed(lost=2, won=0, prompts=2)  # 25 / 9 prompts' worth
    assert Changed(3, 1, 5).independent() == Changed(3, 1, 5)


@pytest.mark.parametrize("n", [20, 60])
@pytest.mark.parametrize(("p_lost", "p_won"), [(0.05, 0.0), (0.02, 0.02), (0.1, 0.05), (0.3, 0.1)])
def test_the_bound_holds_as_often_as_it_says_and_is_no_lower_than_the_loss_seen(n, p_lost, p_won):
    holds = 0.0
    for lost in range(n + 1):
        for won in range(n + 1 - lost):
            chance = stats.multinomial.pmf([lost, won, n - lost - won], n, [p_lost, p_won, 1 - p_lost - p_won])
            if chance > 1e-7:
                changed = Changed(lost, won, n)
                bound = loss_bound(changed, 0.95)
                holds += chance if bound >= p_lost - p_won else 0
                assert changed.loss <= bound + 1e-12 and bound <= 1
    assert holds >= 0.93


def test_bad_settings_are_seldom_recommended(monkeypatch):
    monkeypatch.setattr(recommendation, "loss_bound", functools.cache(loss_bound))
    rng, bad = np.random.default_rng(0), 0
    edges = np.linspace(0, 1, 12)
    loses_at = np.array([0.01 * (11 - segment) for segment in range(11)])  # loosest first; the last is strict
    for _ in range(2000):
        luck = rng.random((150, 1))  # a prompt that breaks stays broken further out
        right = luck >= np.append(loses_at[:-1], 0)
        found = recommend(Graded(Steps(edges, right), 10), 5)
        bad += found.segment is not None and found.segment != 10 and loses_at[found.segment] > 0.05 + 1e-9
    assert bad <= stats.binom.ppf(1 - 1e-6, 2000, 0.06)


def test_turns_of_a_question_count_as_one_prompt():
    alone = graded(400, [40, 4, 1, 0])
    right = np.repeat(alone.steps.values, 3, axis=0)
    thrice = Graded(Steps(EDGES, right), 3, units=np.repeat(np.arange(400), 3))
    one, other = (recommend(each, 2) for each in (alone, thrice))
    assert (one.finding, one.dial, one.segment) == (other.finding, other.dial, other.segment)
    assert other.bound == pytest.approx(one.bound, rel=0.1) and other.prompts_needed == one.prompts_needed
    assert "400 questions with 1200 graded turns" in other.changed.words
    assert other.changed.kinds and other.changed.questions == 400
    assert recommend(Graded(Steps(EDGES, right), 3), 2).segment < other.segment  # what no such evidence allows
    units = np.append(np.arange(700), np.full(300, 700))
    found = recommend(Graded(Steps(EDGES, np.ones((1000, 4), bool)), 3, units=units), 1)
    assert (found.finding, found.prompts_needed, found.more) == (Finding.NOT_ENOUGH, 772, 71)
    assert "701 questions with 1000 graded turns, about 71 more" in found.sentence
