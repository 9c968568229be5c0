"""The strict rule, rejection sampling and MARS against hand-computed cases, and the registry.

What holds of every rule is in test_rule_lab.py; the other rules' cases are in the files beside it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from factories import ToySpeculator, make_speculation, processed
from scipy import stats

from mars_viz.errors import BadInput
from mars_viz.records import Emission, Speculation
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Settings
from mars_viz.walk import Ending, walk


def one(target: list[float], x: int, **kwargs: object) -> Speculation:
    """A block of one drafted token under these target logits; the drafter is uniform unless told otherwise."""
    drafter = kwargs.pop("drafter", [1.0] * len(target))
    laws = np.array([target, target], np.float32)
    return make_speculation(laws, np.array([drafter], np.float32), [x], **kwargs)  # type: ignore[arg-type]


def kept(rule: str, speculation: Speculation, dial: float | None = None) -> bool:
    """Whether the first drafted token is kept at this dial value."""
    return bool(settle(speculation, RULES[rule].judge(speculation), dial).kept)


def test_mars_keeps_the_runner_up_exactly_above_theta() -> None:
    close = one([10.0, 9.0, 1.0, 0.0], 1)
    assert kept("mars", close, 0.89)
    assert not kept("mars", close, 0.9)  # the ratio must exceed θ
    assert not kept("mars", close, 1.0)
    assert kept("mars", one([10.0, 9.0, 1.0, 0.0], 0), 1.0)  # the best token always
    assert not kept("mars", one([10.0, 9.9, 9.8, 0.0], 2), 0.0)  # the third never
    assert settle(close, RULES["mars"].judge(close), 0.9).emitted == 0


def test_mars_breakpoint_is_the_ratio_of_the_raw_logits() -> None:
    verdicts = RULES["mars"].judge(one([8.0, 6.0, 1.0], 1))
    assert verdicts.breakpoints.tolist() == [0.75]
    assert verdicts.keep_below.tolist() == [True]
    assert verdicts.keep_above.tolist() == [False]
    assert np.isnan(RULES["mars"].judge(one([8.0, 6.0, 1.0], 0)).breakpoints).all()


@pytest.mark.parametrize("rule", ["mars", "mars-sampling"])
@pytest.mark.parametrize("best", [0.0, -0.5])
def test_without_a_positive_best_logit_mars_is_strict(rule: str, best: float) -> None:
    temperature = 1.0 if rule == "mars-sampling" else 0.0
    speculation = one([best, best - 0.01, -9.0], 1, temperature=temperature, coins=[1.0], drafter=[0.0, 30.0, 0.0])
    assert not kept(rule, speculation, 0.0)


def test_mars_ties_go_to_the_lower_id_and_count_as_ratio_one() -> None:
    tie = one([7.0, 7.0, 1.0], 1)
    assert kept("mars", tie, 0.999)
    assert not kept("mars", tie, 1.0)
    assert kept("strict", one([7.0, 7.0, 1.0], 0))
    assert not kept("strict", tie)


def test_processors_that_leave_one_token_make_mars_strict() -> None:
    speculation = one([10.0, 9.9, 1.0], 1, temperature=1.0, top_k=1, sampled=False, coins=[0.5])
    for rule in ("mars", "mars-sampling", "mars-code"):
        assert not kept(rule, speculation, 0.0), rule


class TestMarsCode:
    """Each branch of the released code, by hand. p = softmax of the target, q uniform over four tokens (0.25)."""

    def at(self, x: int, coin: float, dial: float, target: list[float] | None = None) -> tuple[bool, int]:
        speculation = one(target or [10.0, 9.5, 8.0, 2.0], x, temperature=1.0, coins=[coin])
        decision = settle(speculation, RULES["mars-code"].judge(speculation), dial)
        return bool(decision.kept), decision.emitted

    def test_greedy_ignores_theta(self) -> None:
        for dial in (0.0, 0.5, 1.0):
            assert not kept("mars-code", one([10.0, 9.9, 1.0], 1), dial)
            assert kept("mars-code", one([10.0, 9.9, 1.0], 0), dial)

    def test_close_call_keeps_either_of_two_whatever_the_coin_says(self) -> None:
        assert self.at(0, 0.999999, 0.9)[0]
        assert self.at(1, 0.999999, 0.9)[0]

    def test_close_call_rejects_anything_else_whatever_the_coin_says(self) -> None:
        assert not self.at(2, 0.0, 0.9)[0]

    def test_close_call_emits_a_sample_of_p(self) -> None:
        speculation = one([10.0, 9.5, 8.0, 2.0], 2, temperature=1.0, coins=[0.0])
        assert self.at(2, 0.0, 0.9)[1] == speculation.emissions[0, Emission.SAMPLE]

    def test_clear_call_tosses_the_coin(self) -> None:
        # ratio .95 <= θ = .96; p(2) = 0.0776..., over q = .25 is 0.310
        p = processed(np.array([10.0, 9.5, 8.0, 2.0]), 1.0)
        assert self.at(2, p[2] / 0.25 - 1e-6, 0.96)[0]
        assert not self.at(2, p[2] / 0.25 + 1e-6, 0.96)[0]

    def test_clear_call_lowers_only_the_rejected_entry(self) -> None:
        seen = Counter()
        for seed in range(3000):
            speculation = one([10.0, 9.5, 8.0, 2.0], 2, temperature=1.0, coins=[1.0], seed=seed)
            seen[settle(speculation, RULES["mars-code"].judge(speculation), 0.96).emitted] += 1
        p = processed(np.array([10.0, 9.5, 8.0, 2.0]), 1.0)
        p[2] = max(0.0, p[2] - 0.25)
        expected = p / p.sum() * 3000
        assert seen[2] == 0
        hit = expected > 0
        # false alarm: one in a million
        assert stats.chisquare([seen[i] for i in np.flatnonzero(hit)], expected[hit]).pvalue > 1e-6

    def test_a_negative_best_logit_always_relaxes(self) -> None:
        assert self.at(1, 0.999999, 1.0, [-1.0, -1.5, -3.0, -9.0])[0]

    def test_a_best_logit_of_zero_is_strict(self) -> None:
        assert not self.at(1, 0.999999, 0.0, [0.0, -2.0, -3.0, -9.0])[0]

    def test_signs_that_differ_are_strict(self) -> None:
        assert not self.at(1, 0.999999, 0.0, [1.0, -0.5, -3.0, -9.0])[0]


def test_mars_sampling_keeps_what_the_coin_keeps_and_the_close_two() -> None:
    target, drafter = [10.0, 9.5, 8.0, 2.0], [1.0, 1.0, 1.0, 1.0]
    for x, coin, dial, expected in [
        (0, 0.999, 1.0, True),  # p(0) = .57 > q
        (1, 0.999, 0.94, True),
        (2, 0.30, 0.96, True),
        (2, 0.32, 0.96, False),
        (2, 0.30, 0.90, True),  # unlike the released code, the coin still counts
        (3, 0.90, 0.0, False),
    ]:
        speculation = one(target, x, temperature=1.0, coins=[coin], drafter=drafter)
        assert kept("mars-sampling", speculation, dial) is expected, (x, coin, dial)


def test_rejection_sampling_keeps_up_to_and_at_the_ratio() -> None:
    speculation = one([0.0, 0.0], 0, temperature=1.0, coins=[0.5], drafter=[60.0, 0.0])
    assert speculation.q[0] == 1.0
    assert speculation.p[0] == 0.5
    assert kept("rejection-sampling", speculation)
    impossible = one([50.0, -np.inf], 1, temperature=1.0, coins=[0.0], drafter=[0.0, 50.0])
    assert not kept("rejection-sampling", impossible)


def test_strict_sampling_writes_what_the_target_alone_would_write() -> None:
    settings = Settings(rule="strict", temperature=0.9, seed=5, max_new_tokens=60)
    speculated = [t for r in _walk(settings, gamma=6) for t in r.token_ids]
    alone = [t for r in _walk(settings, gamma=1) for t in r.token_ids]
    assert speculated == alone


def _walk(settings: Settings, gamma: int) -> list:
    settings = replace(settings, gamma=gamma)
    ending = Ending(frozenset({0}), settings.max_new_tokens)
    return list(walk(ToySpeculator(settings), rule_named(settings.rule), settings.dial, (1, 2, 3), ending))


def test_unknown_names_and_values_out_of_range_say_what_to_do() -> None:
    with pytest.raises(BadInput, match="Choose one of strict"):
        rule_named("nonsense")
    with pytest.raises(BadInput, match="between 0 and 1"):
        RULES["mars"].checked_dial(1.5)
    with pytest.raises(BadInput, match="between 0 and 1"):
        RULES["mars"].checked_dial(float("nan"))
    with pytest.raises(BadInput, match="has no dial"):
        RULES["strict"].checked_dial(0.9)
