"""What the lessons compute: formulas against hand-computed values, areas against full laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mars_viz.analysis.lesson_sums import (
    OTHERS,
    Place,
    close_calls,
    expected_speed_up,
    expected_tokens,
    gain,
    overlap,
    places,
)
from mars_viz.analysis.rollback import Price, prices, strict_run
from mars_viz.errors import BadInput
from mars_viz.records import Timing
from mars_viz.rules import rule_named
from mars_viz.run_with_map import mapped
from mars_viz.ui.lessons import lossless
from mars_viz.ui.lessons.rollback import heading
from mars_viz.walk import Ending, walk
from tests.factories import PROMPT, ToySpeculator, make_speculation, processed, toy_map, toy_run


def test_the_formulas_by_hand():
    assert expected_tokens(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
    assert expected_tokens(0.8, 4) == pytest.approx((1 - 0.8**5) / 0.2)
    assert expected_tokens(1.0, 6) == 7 and expected_tokens(0.0, 6) == 1
    assert expected_speed_up(0.8, 5, 0.02) == pytest.approx((1 - 0.8**6) / (0.2 * (5 * 0.02 + 1)))
    assert expected_speed_up(1.0, 3, 1.0) == 1.0  # a drafter as dear as the target gains nothing
    assert expected_tokens(np.array([0.0, 0.5]), 1).tolist() == [1.0, 1.5]


def test_a_runs_own_letters_by_hand():
    run = toy_run()
    timing = Timing(draft=0.006, verify=0.002, evidence=1.0, total=2.0)
    timed = replace(run, rounds=tuple(replace(r, timing=timing) for r in run.rounds))
    found = gain(timed)
    kept = sum(round_.kept for round_ in run.rounds)
    rejected = sum(outcome.value == "rejected" for round_ in run.rounds for outcome in round_.outcomes)
    assert found.alpha == kept / (kept + rejected) and found.gamma == 6 and found.tau == run.tau
    assert found.draft_step == pytest.approx(0.001) and found.c == pytest.approx(0.5)
    assert found.speed_up == pytest.approx(run.tau * 0.002 / 0.008)
    assert not gain(run).timed, "a run without timings has no c"
    assert np.isnan(gain(replace(run, rounds=())).alpha)


def test_measured_tokens_per_pass_follow_the_formula_where_its_assumption_holds():
    """Every judged token is kept with chance α, independently; 6 standard errors: a false alarm once in 500 million."""
    alpha, gamma, trials = 0.7, 4, 20_000
    kept = (np.random.default_rng(0).random((trials, gamma)) < alpha).cumprod(1).sum(1)
    tokens = kept + 1
    off = abs(tokens.mean() - float(expected_tokens(alpha, gamma)))
    assert off < 6 * tokens.std() / np.sqrt(trials)


def with_map(**settings: object):
    run = toy_run(**{"dial": 0.9, **settings})
    return mapped(run, toy_map(replace(run.settings, dial=None), 0.5, None, (1, 3, 6))[0])


def test_prices_are_those_of_decoding_at_the_strict_end():
    run = with_map()
    found = prices(run)
    assert [price.gamma for price in found] == [1, 3, 6]
    for price in found:
        settings = replace(run.settings, gamma=price.gamma)
        ending = Ending(frozenset({0}), settings.max_new_tokens)
        rounds = list(walk(ToySpeculator(settings), rule_named("strict"), None, PROMPT, ending))
        assert price.passes == len(rounds) and price.tokens == sum(len(r.token_ids) for r in rounds)
        assert price.kept == sum(r.kept for r in rounds)
        assert price.kept + price.rolled_back == sum(len(r.speculation) for r in rounds)
        assert 0 <= price.wasted <= 1
        assert strict_run(run, price.gamma).token_ids == tuple(t for r in rounds for t in r.token_ids)


@pytest.mark.parametrize(("lost", "of", "share"), [(1, 300, "0.333"), (7, 100, "7"), (0, 5, "0"), (0, 0, "0")])
def test_a_small_share_of_wasted_drafts_is_not_told_as_none(lost, of, share):
    assert heading(Price(3, 9, 4, of - lost, lost)).endswith(f", {share} % of drafted tokens rolled back (exact)")


def test_a_run_that_does_not_know_its_strict_text_has_no_price():
    assert prices(toy_run(dial=0.7)) == ()
    with pytest.raises(BadInput, match="no dial map"):
        strict_run(toy_run(dial=0.7))
    strict = toy_run(rule="strict")
    assert strict_run(strict) is strict and len(prices(strict)) == 1


def test_the_areas_are_those_of_the_full_laws():
    rng = np.random.default_rng(3)
    for temperature in (0.7, 1.0, 1.6):
        target, drafter = rng.normal(0, 2, (4, 40)), rng.normal(0, 2, (3, 40))
        tokens = [int(np.argmax(z)) for z in drafter]
        spec = make_speculation(target, drafter, tokens, temperature=temperature)
        run = toy_run(rule="rejection-sampling", temperature=temperature)
        run = replace(run, rounds=(replace(run.rounds[0], speculation=spec),))
        for node in range(3):
            laws = overlap(run, Place(0, node))
            p, q = (processed(z[node].astype(np.float32), temperature) for z in (target, drafter))
            shown = list(laws.tokens[:-1])
            rest = np.setdiff1d(np.arange(40), shown)
            for group, full in ((laws.p, p), (laws.q, q), (laws.shared, np.minimum(p, q))):
                assert group[:-1] == pytest.approx(full[shown], abs=1e-5)
                assert group[-1] == pytest.approx(full[rest].sum(), abs=1e-4)
            assert laws.acceptance == pytest.approx(1 - np.abs(p - q).sum() / 2, abs=1e-5)
            assert laws.p.sum() == pytest.approx(1) and laws.q.sum() == pytest.approx(1)
            assert laws.tokens[-1] == OTHERS


def test_places_are_those_whose_laws_are_known_and_the_lesson_says_what_is_missing():
    run = toy_run(rule="rejection-sampling", temperature=1.0)
    lacks = lossless.LESSON.lacks
    assert places(run) and lacks(run) == ""
    assert all(place.node < len(run.rounds[place.round].speculation) for place in places(run))
    assert "greedy" in lacks(toy_run())
    assert "top-k" in lacks(toy_run(rule="rejection-sampling", temperature=1.0, top_p=0.9))
    assert "recorded both distributions" in lacks(replace(run, rounds=()))


def test_close_calls_and_their_ratios_by_hand():
    target = np.array([[20.0, 17, 0], [3, 2.9, 0], [0, 0, 5]])
    spec = make_speculation(target, target[:2], [1, 1])
    run = toy_run()
    calls = close_calls(replace(run, rounds=(replace(run.rounds[0], speculation=spec),)))
    assert calls.z1.tolist() == pytest.approx([3, 20]) and calls.tokens.tolist() == [1, 1]
    assert calls.ratio(0.0) == pytest.approx([2.9 / 3, 0.85]) and calls.ratio(10.0)[1] == pytest.approx(0.9)
    assert calls.odds == pytest.approx([np.exp(-0.1), np.exp(-3)])
    low = calls.ratio(np.array([-3.0, -25.0]))
    assert np.isnan(low[0, 0]) and low[0, 1] == pytest.approx(14 / 17) and np.isnan(low[1]).all()
