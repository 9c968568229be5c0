"""The recommendation: by hand, the promise that it keeps, and what it says when it cannot tell."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from mars_viz.analysis import recommendation
from mars_viz.analysis.recommendation import (
    Changed,
    Finding,
    Graded,
    QuestionKind,
    bootstrap_bound,
    exact_bound,
    loss_bound,
    recommend,
    score_bound,
)
from mars_viz.analysis.steps import Steps
from mars_viz.errors import BadInput

EDGES = np.array([0.5, 0.6123456, 0.8, 0.9377, 1.0])


def graded(prompts, wrong, *, right_too=0, edges=EDGES, strict=3):
    right = np.ones((prompts, len(wrong)), bool)
    for segment, count in enumerate(wrong):
        right[:count, segment] = False
    right[prompts - right_too :, strict] = False
    return Graded(Steps(edges, right), strict)


def test_the_loosest_good_segment_is_found():
    found = recommend(graded(1000, [40, 10, 3, 0]), 2, symbol="θ")
    assert found.finding is Finding.RECOMMENDED
    assert (found.segment, found.dial, found.changed) == (1, 0.613, Changed(10, 0, 1000))
    assert all(part in found.sentence for part in ("θ = 0.613", "1000 prompts", "loses 10", "wins 0"))
    assert 0.01 < found.bound <= 0.02 and found.prompts_needed is None  # the next one loses 4 points already
    # a good segment behind a bad one is not reached
    assert recommend(graded(1000, [0, 100, 3, 0]), 2).segment == 2
    assert recommend(graded(1000, [0, 0, 100, 0]), 2).segment == 3
    # wins make up for losses
    assert recommend(graded(1000, [30, 30, 30, 0], right_too=0), 2).segment == 3
    assert recommend(graded(1000, [30, 30, 30, 0], right_too=30), 2).segment == 0


def test_dial_values_of_the_recommendation():
    edges = np.array([0.0, 0.1, 0.25, 1.0])
    found = recommend(graded(1000, [0, 5, 100], edges=edges, strict=0), 2)
    assert (found.segment, found.dial) == (1, 0.249)
    assert recommend(graded(1000, [0, 5, 5], edges=edges, strict=0), 2).dial == 1.0
    edges = np.array([0.5, 0.90001234, 0.90001236, 1.0])
    found = recommend(graded(1000, [100, 3, 0], edges=edges, strict=2), 2)
    assert found.segment == 1 and edges[1] <= found.dial < edges[2]
    assert found.dial == 0.90001234


def test_too_few_prompts_are_counted():
    found = recommend(graded(50, [0, 0, 0, 0]), 1)
    assert (found.finding, found.dial, found.changed) == (Finding.NOT_ENOUGH, None, None)
    assert "there are 50, about 570 more" in found.sentence
    assert found.prompts_needed is not None and found.more == found.prompts_needed - 50 > 0
    assert found.next_step == "", "the sentence has it"
    one = Graded(Steps(np.array([0.5, 1.0]), np.ones((1, 1), bool)), 0)
    assert recommend(one, 5).finding is Finding.NOT_ENOUGH
    enough = recommend(graded(found.prompts_needed, [0, 0, 0, 0]), 1)
    assert (enough.finding, enough.dial) == (Finding.RECOMMENDED, 0.5)
    half = recommend(graded(2, [1, 1, 1, 0]), 1)
    none = recommend(graded(2, [0, 0, 0, 0]), 1)
    assert half.prompts_needed == none.prompts_needed and 299 <= (half.more or 0) < 1000
    many = recommend(graded(50, [25, 25, 25, 0]), 1)
    assert many.more is not None and many.more > 10_000, "of 50 it is one"
    found = recommend(graded(400, [40, 40, 3, 0]), 1)
    assert found.segment == 3  # 3 of 400 lost is .75 points, but up to 2 with 95 % confidence
    assert found.prompts_needed is not None and found.prompts_needed > 400
    right = np.ones((4, 2), bool)
    right[:2, 1] = False  # the looser one wins 2 of 4
    found = recommend(Graded(Steps(np.array([0.0, 0.5, 1.0]), right), 1), 60, 0.95)
    assert (found.segment, found.prompts_needed) == (0, None)
    lone = recommend(graded(4, [2, 0, 0, 0], right_too=4), 60, 0.95)
    assert lone.finding is Finding.RECOMMENDED


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


@pytest.mark.parametrize(("lost", "n"), [(0, 1), (0, 300), (1, 300), (7, 20), (20, 20), (300, 4000)])
def test_the_exact_bound_agrees_with_scipy(lost, n):
    expected = stats.binomtest(lost, n, alternative="less").proportion_ci(0.95).high
    assert exact_bound(lost, n, 0.95) == pytest.approx(expected, abs=1e-9)


def questions(seed, sizes):
    rng = np.random.default_rng(seed)
    turns = rng.choice(sizes, rng.integers(5, 600))
    strict = rng.random(turns.sum()) >= rng.choice([0, 0.03])
    other = np.where(strict, rng.random(turns.sum()) >= rng.choice([0.004, 0.05, 0.2]), rng.random(turns.sum()) < 0.5)
    steps = Steps(np.array([0.0, 0.5, 1.0]), np.column_stack([other, strict]))
    return Graded(steps, 1, units=np.repeat(np.arange(len(turns)), turns)).changed()[0]


@pytest.mark.parametrize("sizes", [(1,), (3,), (1, 2), (1, 2, 3, 7)])
def test_the_bootstrap_bound_agrees_with_a_large_simulation(sizes):
    for seed in range(10):
        changed = questions(seed, sizes)
        kinds = changed.drawn()
        lost, turns, counts = (np.array([getattr(kind, name) for kind in kinds]) for name in ("lost", "turns", "count"))
        drawn = np.random.default_rng(seed).multinomial(counts.sum(), counts / counts.sum(), size=100_000)
        losses, bound = (drawn @ lost) / (drawn @ turns), bootstrap_bound(changed, 0.95)
        off = 5 * math.sqrt(0.95 * 0.05 / len(losses)) + (0.01 if len(sizes) > 1 else 0)
        assert np.mean(losses < bound - 1e-12) <= 0.95 + off
        assert np.mean(losses < bound + 1e-12) >= 0.95 - off


def test_bounds_by_hand():
    bounds = [bootstrap_bound(Changed(1, 0, 2), confidence) for confidence in (0.5, 0.75, 0.76, 0.95)]
    assert bounds == [0.5, 0.5, 1, 1]
    assert bootstrap_bound(Changed(0, 2, 2), 0.95) == -1
    assert bootstrap_bound(Changed(0, 0, 7), 0.95) == 0
    assert loss_bound(Changed(0, 0, 298), 0.95) > 0.01 >= loss_bound(Changed(0, 0, 299), 0.95)
    assert score_bound(Changed(0, 0, 268), 0.95) < 0.01
    strict = np.array([True, True, True, False, True])
    other = np.array([False, False, True, True, False])
    steps = Steps(np.array([0.0, 0.5, 1.0]), np.column_stack([other, strict]))
    changed = Graded(steps, 1, units=np.array([5, 5, 8, 8, 2])).changed()[0]
    assert (changed.lost, changed.won, changed.prompts, changed.questions) == (3, 1, 5, 3)
    assert set(changed.kinds) == {QuestionKind(1, 1, 1), QuestionKind(-1, 2, 1), QuestionKind(2, 2, 1)}
    assert changed.independent() == Changed(lost=2, won=0, prompts=2)  # 25 / 9 prompts' worth
    assert Changed(3, 1, 5).independent() == Changed(3, 1, 5)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 200), st.sampled_from([0.8, 0.95]))
def test_the_bound_is_no_lower_than_the_loss_seen(lost, won, same, confidence):
    if lost + won + same:
        changed = Changed(lost, won, lost + won + same)
        bound = loss_bound(changed, confidence)
        assert changed.loss <= bound + 1e-12 and bound <= 1
        assert loss_bound(Changed(lost, won, changed.prompts), 0.99) >= score_bound(changed, 0.8) - 1e-12


@pytest.mark.parametrize("n", [20, 60])
@pytest.mark.parametrize(("p_lost", "p_won"), [(0.05, 0.0), (0.02, 0.02), (0.1, 0.05), (0.3, 0.1)])
def test_the_bound_holds_as_often_as_it_says(n, p_lost, p_won):
    holds = 0.0
    for lost in range(n + 1):
        for won in range(n + 1 - lost):
            chance = stats.multinomial.pmf([lost, won, n - lost - won], n, [p_lost, p_won, 1 - p_lost - p_won])
            if chance > 1e-7 and loss_bound(Changed(lost, won, n), 0.95) >= p_lost - p_won:
                holds += chance
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


def test_bad_input():
    good = graded(10, [0, 0, 0, 0])
    for points, confidence in ((0, 0.95), (101, 0.95), (math.nan, 0.95), (1, 1.0), (1, 0.4)):
        with pytest.raises(BadInput):
            recommend(good, points, confidence)
    with pytest.raises(BadInput, match="not an end"):
        Graded(good.steps, 1)
    with pytest.raises(BadInput, match="graded set"):
        Graded(Steps(np.array([0.0, 1.0]), np.array([[0.5]])), 0)
    with pytest.raises(BadInput, match="graded set"):
        Graded(Steps(np.array([0.0, 1.0]), np.array([1])), 0)


def test_turns_of_a_question_count_as_one_prompt():
    alone = graded(400, [40, 4, 1, 0])
    right = np.repeat(alone.steps.values, 3, axis=0)
    thrice = Graded(Steps(EDGES, right), 3, units=np.repeat(np.arange(400), 3))
    one, other = (recommend(each, 2, symbol="θ") for each in (alone, thrice))
    assert (one.finding, one.dial, one.segment) == (other.finding, other.dial, other.segment)
    assert other.bound == pytest.approx(one.bound, rel=0.1)
    assert other.prompts_needed == one.prompts_needed
    assert "400 questions with 1200 graded turns" in other.sentence
    assert other.changed.kinds and other.changed.questions == 400
    assert recommend(Graded(Steps(EDGES, right), 3), 2).segment < other.segment  # what no such evidence allows
    few = Graded(Steps(EDGES, right[:60]), 3, units=np.repeat(np.arange(20), 3))
    assert "20 questions with 60 graded turns" in recommend(few, 2).sentence
    units = np.append(np.arange(700), np.full(300, 700))
    found = recommend(Graded(Steps(EDGES, np.ones((1000, 4), bool)), 3, units=units), 1)
    assert (found.finding, found.prompts_needed, found.more) == (Finding.NOT_ENOUGH, 772, 71)
    assert "701 questions with 1000 graded turns, about 71 more" in found.sentence
