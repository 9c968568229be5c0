"""The relaxed rules that emit the target's best token, by hand. Laws are given as shares; T = 0 unless said."""

from __future__ import annotations

import numpy as np
import pytest
from rule_cases import chain, coin, decided, kept, logits, one

from mars_viz.records import Speculation
from mars_viz.rules import RULES, rule_named, settle

FIVE = logits(0.4, 0.3, 0.2, 0.1, 0.0)
"""Entropy 1.2799 nats, exp(-H) = 0.2781; token 4 is impossible."""
EVEN = logits(0.5, 0.5, 0.0)
TIE = logits(0.4, 0.4, 0.2)
CUT = coin([10.0, 9.9, 9.8], 1, 0.5, top_k=1)
"""Top-k leaves v1 alone, and x is not v1."""

CASES: list[tuple[str, Speculation, float, int]] = [
    # z1 - z2 < m
    ("mars-margin", one([10.0, 8.5, 1.0], 1), 1.51, 1),
    ("mars-margin", one([10.0, 8.5, 1.0], 1), 1.5, 0),  # strictly below
    ("mars-margin", one([-10.0, -11.5, -20.0], 1), 1.51, 1),  # the sign of z1 does not matter
    ("mars-margin", one([10.0, 9.9, 9.8], 2), 10.0, 0),  # never the third
    ("mars-margin", one([7.0, 7.0, 1.0], 1), 0.01, 1),
    ("mars-margin", one([7.0, 7.0, 1.0], 1), 0.0, 0),  # a tie goes to the lower id
    ("mars-margin", one([7.0, -np.inf, -np.inf], 1), 10.0, 0),
    ("mars-margin", CUT, 10.0, 0),
    # p2/p1 > ρ
    ("mars-odds", one(FIVE, 1), 0.74, 1),
    ("mars-odds", one(FIVE, 1), 0.76, 0),  # .3 / .4 = .75
    ("mars-odds", one(FIVE, 2), 0.0, 0),
    ("mars-odds", one(EVEN, 1), 0.99, 1),
    ("mars-odds", one(EVEN, 1), 1.0, 0),
    ("mars-odds", one(logits(1.0, 0.0, 0.0), 1), 0.0, 0),
    ("mars-odds", coin(FIVE, 1, 0.5, temperature=0.5), 0.57, 0),  # (3/4)² = .5625
    ("mars-odds", coin(FIVE, 1, 0.5, temperature=0.5), 0.56, 1),
    ("mars-odds", CUT, 0.0, 0),
    # p > min(ε, √ε exp(-H)); for x = 2, p exp(H) = .719, squared .517
    ("typical", one(FIVE, 2), 0.51, 1),
    ("typical", one(FIVE, 2), 0.52, 0),
    ("typical", one(FIVE, 3), 0.12, 1),  # p exp(H) = .3596, squared .1293
    ("typical", one(FIVE, 3), 0.14, 0),
    ("typical", one(logits(0.98, 0.02), 1), 0.019, 1),  # .022² is less than p = .02
    ("typical", one(logits(0.98, 0.02), 1), 0.021, 0),
    ("typical", one(FIVE, 1), 0.99, 1),  # p exp(H) = 1.079
    ("typical", one(FIVE, 1), 1.0, 0),  # off
    ("typical", one(FIVE, 0), 1.0, 1),
    ("typical", one(FIVE, 4), 0.0, 0),
    ("typical", CUT, 0.0, 0),
    # among the ten best and p >= p1 - δ
    ("tensorrt-llm", one(FIVE, 1), 0.101, 1),
    ("tensorrt-llm", one(FIVE, 1), 0.099, 0),
    ("tensorrt-llm", one(FIVE, 3), 0.301, 1),
    ("tensorrt-llm", one(FIVE, 3), 0.299, 0),
    ("tensorrt-llm", one([9.0, -30.0, -30.0], 2), 1.0, 1),  # δ >= p1 admits all ten, however unlikely
    ("tensorrt-llm", one(FIVE, 4), 1.0, 0),  # but not an impossible one
    ("tensorrt-llm", one(TIE, 1), 0.01, 1),
    ("tensorrt-llm", one(TIE, 1), 0.0, 0),
    ("tensorrt-llm", one([0.0] * 12, 9), 0.01, 1),  # the tenth
    ("tensorrt-llm", one([0.0] * 12, 10), 1.0, 0),  # the eleventh
    ("tensorrt-llm", CUT, 1.0, 0),
    # among the three best and z >= z1 + ln r
    ("vllm-thinking", one(FIVE, 2), 0.49, 1),
    ("vllm-thinking", one(FIVE, 2), 0.51, 0),
    ("vllm-thinking", one(FIVE, 3), 0.0, 0),  # the fourth
    ("vllm-thinking", one([5.0, 4.0, 0.0], 1), 0.367, 1),  # exp(-1) = .3679
    ("vllm-thinking", one([5.0, 4.0, 0.0], 1), 0.369, 0),
    ("vllm-thinking", one([-5.0, -6.0, -9.0], 1), 0.367, 1),
    ("vllm-thinking", one(TIE, 1), 0.99, 1),
    ("vllm-thinking", one(TIE, 1), 1.0, 0),
    ("vllm-thinking", one([5.0, -np.inf, -np.inf], 2), 0.0, 0),
    ("vllm-thinking", CUT, 0.0, 0),
    # -ln p <= R
    ("bild", one(FIVE, 3), 2.31, 1),  # ln 10 = 2.303
    ("bild", one(FIVE, 3), 2.30, 0),
    ("bild", one(EVEN, 1), 0.7, 1),
    ("bild", one(EVEN, 1), 0.69, 0),
    ("bild", one(FIVE, 4), 20.0, 0),
    ("bild", one(FIVE, 0), 0.0, 1),  # v1 always
    ("bild", coin(FIVE, 1, 0.5, temperature=0.5), 1.2, 0),  # p = .09 / .3 at T = .5
    ("bild", coin(FIVE, 1, 0.5, temperature=0.5), 1.21, 1),
    ("bild", CUT, 20.0, 0),
    # rank
    ("top-k-set", one(FIVE, 1), 2.0, 1),
    ("top-k-set", one(FIVE, 1), 1.0, 0),
    ("top-k-set", one(FIVE, 3), 3.0, 0),
    ("top-k-set", one(FIVE, 3), 4.0, 1),
    ("top-k-set", one(FIVE, 4), 64.0, 0),  # impossible
    ("top-k-set", one(TIE, 1), 1.0, 0),
    ("top-k-set", one([float(-i) for i in range(30)], 19), 20.0, 1),  # beyond the 16 that are kept
    ("top-k-set", CUT, 64.0, 0),
    # mass before x < P
    ("nucleus-set", one(FIVE, 1), 0.41, 1),
    ("nucleus-set", one(FIVE, 1), 0.39, 0),
    ("nucleus-set", one(FIVE, 3), 0.91, 1),
    ("nucleus-set", one(FIVE, 3), 0.89, 0),
    ("nucleus-set", one(FIVE, 4), 1.0, 0),
    ("nucleus-set", one(FIVE, 0), 0.0, 1),
    ("nucleus-set", one([0.0] * 30, 15), 0.51, 1),  # the sixteenth of thirty equals
    ("nucleus-set", one([0.0] * 30, 16), 1.0, 0),  # at most sixteen
    ("nucleus-set", coin(FIVE, 1, 0.5, temperature=0.5), 0.52, 0),  # .16 / .3 before it
    ("nucleus-set", coin(FIVE, 1, 0.5, temperature=0.5), 0.54, 1),
    ("nucleus-set", CUT, 1.0, 0),
    # p >= m p1
    ("min-p-set", one(FIVE, 3), 0.249, 1),
    ("min-p-set", one(FIVE, 3), 0.251, 0),
    ("min-p-set", one(FIVE, 4), 0.0, 0),
    ("min-p-set", one(TIE, 1), 0.99, 1),
    ("min-p-set", one(TIE, 1), 1.0, 0),
    ("min-p-set", one(FIVE, 0), 1.0, 1),
    ("min-p-set", coin(FIVE, 1, 0.5, temperature=0.5), 0.57, 0),  # (3/4)²
    ("min-p-set", CUT, 0.0, 0),
]


@pytest.mark.parametrize(("rule", "speculation", "dial", "expected"), CASES)
def test_by_hand(rule: str, speculation: Speculation, dial: float, expected: int) -> None:
    decision = decided(rule, speculation, dial)
    assert len(decision.kept) == expected
    if not expected:
        assert decision.emitted == speculation.top_ids[0, 0]


UNSURE, SURE = logits(0.4, 0.3, 0.2, 0.1), logits(0.97, 0.01, 0.01, 0.01)
"""The three best: .3665 + .3612 + .3219 = 1.0496 nats, and .1217."""


class TestFly:
    def block(self, tokens: list[int], unsure: int = 0, law: list[float] = UNSURE) -> Speculation:
        return chain([law if row == unsure else SURE for row in range(len(tokens) + 1)], tokens)

    def test_forgives_an_unsure_mismatch_that_five_matches_follow(self) -> None:
        for x in (1, 2, 3):
            assert kept("fly", self.block([x, 0, 0, 0, 0, 0, 0]), 0.3) == 7

    def test_the_gate_is_the_entropy_of_the_three_best_not_renormalised(self) -> None:
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 0]), 1.049) == 7
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 0]), 1.050) == 0
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 0], law=SURE), 0.121) == 7
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 0], law=SURE), 0.3) == 0

    def test_another_mismatch_in_the_window_forbids_it(self) -> None:
        for second in range(1, 6):
            tokens = [1, 0, 0, 0, 0, 0, 0]
            tokens[second] = 1
            assert kept("fly", self.block(tokens), 0.0) == 0, second
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 1]), 0.3) == 6  # after the window

    def test_the_last_six_positions_are_never_relaxed(self) -> None:
        assert kept("fly", self.block([0, 1, 0, 0, 0, 0, 0, 0], unsure=1), 0.3) == 8
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0]), 0.3) == 0  # five follow, but the block ends there
        assert kept("fly", self.block([0, 1, 0, 0, 0, 0, 0], unsure=1), 0.3) == 1

    def test_two_mismatches_a_window_apart_are_both_forgiven(self) -> None:
        law = [UNSURE] * 14
        assert kept("fly", chain(law, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]), 0.3) == 13
        assert kept("fly", chain(law, [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), 0.3) == 0

    def test_edges(self) -> None:
        impossible = logits(0.5, 0.5, 0.0, 0.0)
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 0], law=impossible), 0.69) == 7  # a tie; ln 2 nats
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 0], law=impossible), 0.70) == 0
        assert kept("fly", self.block([1, 0, 0, 0, 0, 0, 0]), 1.1) == 0  # off
        assert decided("fly", self.block([1, 1]), 0.3).emitted == 0


class TestVllmFly:
    """Where vLLM's FLy and the paper's part. The drafter is uniform over the four tokens, so q = .25 everywhere."""

    block = TestFly().block

    @staticmethod
    def kept(name: str, block: Speculation, dial: float = 0.3) -> int:
        return len(settle(block, rule_named(name).judge(block), dial).kept)

    def test_five_tokens_that_follow_are_enough_for_vllms_window_of_five(self) -> None:
        five, six = self.block([1, 0, 0, 0, 0, 0]), self.block([1, 0, 0, 0, 0, 0, 0])
        assert [self.kept("vllm-fly", block) for block in (five, six)] == [6, 7]
        assert [self.kept("fly", block) for block in (five, six)] == [0, 7]

    def test_all_of_vllms_window_must_be_accepted_and_all_but_the_last_of_the_papers(self) -> None:
        sixth = self.block([1, 0, 0, 0, 0, 0, 1])
        assert self.kept("fly", sixth) == 6 and self.kept("vllm-fly:w=6", sixth) == 0
        assert self.kept("vllm-fly:w=5", sixth) == 6

    def test_with_fewer_tokens_to_follow_than_the_window_has_nothing_is_forgiven(self) -> None:
        for window in range(1, 8):
            block = self.block([1, 0, 0, 0, 0])
            assert self.kept(f"vllm-fly:w={window}", block) == (5 if window <= 4 else 0)
        assert self.kept("vllm-fly:w=1", self.block([0, 0, 0, 0, 1], unsure=4)) == 4  # the last one

    def test_the_window_sees_what_the_coins_say_not_what_was_forgiven(self) -> None:
        block = chain([UNSURE] * 5, [1, 1, 0, 0])
        assert self.kept("vllm-fly:w=1", block) == 0  # the second is forgiven, but not accepted
        assert self.kept("vllm-fly:w=1", chain([UNSURE] * 5, [0, 1, 0, 0])) == 4

    def test_the_entropy_is_of_the_k_best_not_renormalised(self) -> None:
        for k, entropy in ((1, 0.3665), (2, 0.7277), (3, 1.0496), (4, 1.2799)):
            name = f"vllm-fly:w=1,k={k}"
            assert self.kept(name, self.block([1, 0]), entropy - 0.001) == 2
            assert self.kept(name, self.block([1, 0]), entropy + 0.001) == 0

    def test_above_temperature_0_coins_accept_and_the_law_is_the_processed_one(self) -> None:
        """p = .4, .3, .2, .1; token 3 is rejected by a coin above .1/.25 = .4, and then the residual is drawn."""
        law = [UNSURE] * 4
        warm = {"temperature": 1.0, "coins": [0.5, 0.9, 0.9]}
        assert self.kept("vllm-fly:w=2", chain(law, [3, 1, 0], **warm)) == 3  # neither is v1, both coins accept
        assert self.kept("vllm-fly:w=2", chain(law, [3, 1, 3], **warm)) == 0  # the third's coin fails
        assert self.kept("vllm-fly:w=1", chain(law, [3, 1, 3], **warm)) == 2
        hot = chain(law, [3, 1, 0], **{**warm, "temperature": 0.5})  # p = .533, .3, .133, .033: .335 + .361 + .269
        assert self.kept("vllm-fly:w=2", hot, 0.96) == 3 and self.kept("vllm-fly:w=2", hot, 0.97) == 0

    def test_what_the_target_cannot_write_is_never_forgiven(self) -> None:
        cut = chain([UNSURE] * 4, [3, 0, 0], temperature=1.0, top_k=2, coins=[0.5, 0.5, 0.5])
        assert cut.p[0] == 0 and self.kept("vllm-fly:w=2", cut, 0.0) == 0
        fond = {"drafters": [[0.0, 3.0, -9.0, -9.0]] * 3}  # of token 1: p/q = .429/.953; .320 + .363 nats
        two = chain([UNSURE] * 4, [1, 0, 0], temperature=1.0, top_k=2, coins=[0.99, 0.5, 0.5], **fond)
        assert self.kept("vllm-fly:w=2", two, 0.68) == 3 and self.kept("vllm-fly:w=2", two, 0.69) == 0

    def test_its_strict_end_is_rejection_sampling(self) -> None:
        block = chain([UNSURE] * 4, [3, 1, 0], temperature=1.0, coins=[0.5, 0.5, 0.5])
        assert settle(block, rule_named("vllm-fly:w=1").judge(block), 1.61) == settle(
            block, RULES["rejection-sampling"].judge(block), None
        )


class TestRegretBudget:
    STEPS = chain([[5.0, 4.0, 3.0, 1.0]] * 5, [1, 0, 2, 1])
    """Regrets 1, 0, 2, 1: in all 1, 1, 3, 4."""

    @pytest.mark.parametrize(
        ("budget", "expected"), [(0.0, 0), (0.9, 0), (1.0, 2), (2.9, 2), (3.0, 3), (3.9, 3), (4.0, 4)]
    )
    def test_spends_up_to_and_including_the_budget(self, budget: float, expected: int) -> None:
        assert kept("regret-budget", self.STEPS, budget) == expected

    def test_breakpoints_are_the_running_sums(self) -> None:
        verdicts = RULES["regret-budget"].judge(self.STEPS)
        assert verdicts.breakpoints[[0, 2, 3]].tolist() == [1.0, 3.0, 4.0]
        assert np.isnan(verdicts.breakpoints[1])  # v1 costs nothing

    def test_edges(self) -> None:
        assert kept("regret-budget", one([-5.0, -6.0], 1), 1.0) == 1  # the sign does not matter
        assert kept("regret-budget", one([5.0, 5.0], 1), 0.0) == 0  # a tie costs nothing, but 0 is off
        assert kept("regret-budget", one([5.0, 5.0], 1), 1e-9) == 1
        assert kept("regret-budget", one([5.0, -np.inf], 1), 20.0) == 0
        assert kept("regret-budget", CUT, 20.0) == 0
        after = chain([[5.0, -np.inf], [5.0, 4.0], [5.0, 4.0]], [1, 1])
        assert not RULES["regret-budget"].judge(after).keep_above.any()  # nothing can follow an infinite regret
        assert decided("regret-budget", self.STEPS, 1.0).emitted == 0
