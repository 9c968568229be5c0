"""Rules by hand, and the laws that they write. T = 0 and a uniform q unless given; laws are given as shares."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from factories import make_speculation, processed
from rule_cases import chain, coin, decided, logits, one, unlike

from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.records import Emission, Speculation
from mars_viz.rules import RULES, rule_named
from mars_viz.rules.lossless import BlockVerification, Strict, block_keeps, block_weights
from mars_viz.run import Settings
from mars_viz.speculators.draft import DraftBatch
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.sampling import draw as torch_draw

NEAR = [10.0, 9.0, 1.0, 0.0]
TIE = [7.0, 7.0, 1.0]
CALL = [10.0, 9.5, 8.0, 2.0]
"""z2/z1 = .95; p(2) = .0776 is .31 of the uniform drafter's q = .25."""
P2 = float(processed(np.array(CALL), 1.0)[2]) / 0.25
FIVE = logits(0.4, 0.3, 0.2, 0.1, 0.0)
"""Entropy 1.2799 nats, exp(-H) = 0.2781; p(2) exp(H) = .719; token 4 is impossible."""
CUT = coin([10.0, 9.9, 9.8], 1, 0.5, top_k=1)
"""Top-k leaves v1 alone, and x is not v1."""
POINT = {"sampled": False}
UNSURE, SURE = logits(0.4, 0.3, 0.2, 0.1), logits(0.97, 0.01, 0.01, 0.01)
"""The three best: .3665 + .3612 + .3219 = 1.0496 nats, and .1217."""


def fly_block(tokens: list[int], unsure: int = 0, law: list[float] = UNSURE) -> Speculation:
    return chain([law if row == unsure else SURE for row in range(len(tokens) + 1)], tokens)


CASES: list[tuple[str, Speculation, dict[float | None, int]]] = [  # the number of kept tokens by dial value
    ("mars", one(NEAR, 1), {0.89: 1, 0.9: 0}),  # the ratio must exceed θ
    ("mars", one(NEAR, 0), {1.0: 1}),  # the best token always
    ("mars", one([10.0, 9.9, 9.8, 0.0], 2), {0.0: 0}),  # the third never
    ("mars", one([0.0, -0.01, -9.0], 1), {0.0: 0}),  # strict without a positive best logit
    ("mars", one([-0.5, -0.51, -9.0], 1), {0.0: 0}),
    ("mars", one(TIE, 1), {0.999: 1, 1.0: 0}),  # a tie goes to the lower id, and is a ratio of 1
    ("strict", one(TIE, 0), {None: 1}),
    ("strict", one(TIE, 1), {None: 0}),
    # the released code: greedy ignores θ
    *(("mars-code", one([10.0, 9.9, 1.0], x), {dial: int(x == 0) for dial in (0.0, 0.5, 1.0)}) for x in (0, 1)),
    ("mars-code", coin(CALL, 1, 0.999999), {0.9: 1}),  # a close call keeps either of two, whatever the coin
    ("mars-code", coin(CALL, 2, 0.0), {0.9: 0}),  # and rejects others
    ("mars-code", coin(CALL, 2, P2 - 1e-6), {0.96: 1}),  # a clear call tosses the coin
    ("mars-code", coin(CALL, 2, P2 + 1e-6), {0.96: 0}),
    ("mars-code", coin([-1.0, -1.5, -3.0, -9.0], 1, 0.999999), {1.0: 1}),  # a negative z1 always relaxes
    ("mars-code", coin([1.0, -0.5, -3.0, -9.0], 1, 0.999999), {0.0: 0}),
    ("mars-sampling", coin(CALL, 0, 0.999), {1.0: 1}),  # p(0) > q
    ("mars-sampling", coin(CALL, 2, 0.30), {0.96: 1, 0.90: 1}),  # unlike in the released code, the coin still counts
    ("mars-sampling", coin(CALL, 2, 0.32), {0.96: 0}),
    ("mars-sampling", coin(CALL, 3, 0.90), {0.0: 0}),
    *(("mars-sampling", coin([z, z - 0.01, -9.0], 1, 1.0, [0.0, 30.0, 0.0]), {0.0: 0}) for z in (0.0, -0.5)),
    ("rejection-sampling", coin([0.0, 0.0], 0, 0.5, [60.0, 0.0]), {None: 1}),  # p = .5, q = 1: at the ratio
    ("rejection-sampling", coin([50.0, -np.inf], 1, 0.0, [0.0, 50.0]), {None: 0}),
    # one token left
    *((rule, coin([10.0, 9.9, 1.0], 1, 0.5, top_k=1, **POINT), {0.0: 0}) for rule in ("mars-sampling", "mars-code")),
    *((rule, CUT, {0.0: 0}) for rule in ("mars", "mars-odds", "typical", "vllm-thinking", "min-p-set")),
    *((rule, CUT, {RULES[rule].dial.high: 0})
      for rule in ("mars-margin", "tensorrt-llm", "bild", "top-k-set", "nucleus-set", "regret-budget")),
    ("mars-margin", one([10.0, 8.5, 1.0], 1), {1.5: 0}),  # strictly below
    ("typical:c=2", one(FIVE, 2), {0.19: 1, 0.21: 0}),  # (.719 / 2)² < p
    ("tensorrt-llm:k=3", one(FIVE, 2), {0.21: 1, 0.19: 0}),
    ("vllm-thinking:k=4", one(FIVE, 3), {0.24: 1, 0.26: 0}),
    ("vllm-thinking:k=5", one(FIVE, 4), {0.0: 0}),  # impossible
    ("fly", fly_block([3, 0, 0, 0, 0, 0, 0]), {1.049: 7, 1.050: 0}),  # a window of six; entropy is not renormalised
    ("vllm-fly", fly_block([1, 0, 0, 0, 0, 0]), {0.3: 6}),  # its window of five needs five tokens
    ("vllm-fly", fly_block([1, 0, 0, 0, 0]), {0.3: 0}),
    # regrets 1, 0, 2, 1: together 1, 1, 3, 4
    ("regret-budget", chain([[5.0, 4.0, 3.0, 1.0]] * 5, [1, 0, 2, 1]),
     {0.0: 0, 0.9: 0, 1.0: 2, 2.9: 2, 3.0: 3, 3.9: 3, 4.0: 4}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "speculation", "expected"), CASES)
def test_by_hand(rule: str, speculation: Speculation, expected: dict[float | None, int]) -> None:
    for dial, kept in expected.items():
        decision = decided(rule, speculation, dial)
        assert len(decision.kept) == kept, dial
        if not kept and rule != "mars-code":
            assert decision.emitted == speculation.emissions[0, rule_named(rule).on_rejection]


def test_breakpoints_and_what_the_released_code_emits() -> None:
    """3,000 corrections; false-alarm probability one in a million."""
    verdicts = RULES["mars"].judge(one([8.0, 6.0, 1.0], 1))
    assert (verdicts.breakpoints.tolist(), verdicts.keep_below.tolist()) == ([0.75], [True])
    close = coin(CALL, 2, 0.0)
    assert decided("mars-code", close, 0.9).emitted == close.emissions[0, Emission.SAMPLE]
    corrected = [decided("mars-code", coin(CALL, 2, 1.0, seed=seed), 0.96).emitted for seed in range(3000)]
    law = processed(np.array(CALL), 1.0)
    law[2] = 0.0  # p(2) - q(2) is below 0, and no other entry is lowered
    seen = np.bincount(corrected, minlength=4)
    assert seen[2] == 0 and not unlike(seen[law > 0], (law / law.sum())[law > 0])


def test_bad_dials_are_refused() -> None:
    for value in (1.5, -0.01, float("nan"), True, "0.5"):
        with pytest.raises(BadInput, match="θ is"):
            RULES["mars"].checked_dial(value)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no dial"):
        RULES["strict"].checked_dial(0.9)


TOTAL = 50_000
P, Q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])


@cache
def block(needs: tuple[str, ...]) -> Speculation:
    """Return a block of 50,000 positions with the laws P and Q."""
    settings = Settings(temperature=1.0, seed=11)
    uniforms = torch.from_numpy(round_uniforms(settings.seed, 4, Purpose.DRAFT, TOTAL))
    tokens = torch_draw(torch.from_numpy(Q).expand(TOTAL, 3), uniforms)
    p_rows, q_rows = (torch.from_numpy(np.log(law)).float().expand(1, TOTAL + 1, 3) for law in (P, Q))
    blocks = DraftBatch((4,), tokens[None], q_rows[:, 1:], p_rows, sampled=True)
    (speculation,) = gather_evidence(blocks, settings, needs)
    return speculation


def written(rule: str, dial: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the drafted and the written token, a kept draft or a correction, at each position."""
    speculation = block(RULES[rule].needs)
    verdicts = RULES[rule].judge(speculation)
    keeps, emits = verdicts.keeps(dial), verdicts.emits(dial)
    return speculation.tokens, np.where(keeps, speculation.tokens, emits[:-1])


def looks_like(observed: np.ndarray, law: np.ndarray) -> bool:
    """Return False if the law rules a token out, or a chi-square test does."""
    counts, possible = np.bincount(observed, minlength=3), law > 1e-12
    return not counts[~possible].any() and (possible.sum() == 1 or not unlike(counts[possible], law[possible]))


@pytest.mark.parametrize("t", [0.5, 0.2])
def test_sglang_keeps_with_probability_p_over_t_and_else_samples_p_without_x(t: float) -> None:
    """Given each draft; false-alarm probability three in a million per case."""
    drafts, tokens = written("sglang-acc", t)
    for x in range(3):
        accepts = min(1.0, P[x] / t)
        law = np.where(np.arange(3) == x, accepts, (1 - accepts) * P / (1 - P[x]))
        assert looks_like(tokens[drafts == x], law)


def test_the_ensemble_writes_the_mixture() -> None:
    """False-alarm probability one in a million."""
    assert looks_like(written("ensemble", 0.3)[1], 0.3 * P + 0.7 * Q)


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.on_rejection is Emission.RESIDUAL])
def test_at_the_strict_end_the_law_is_kept(rule: str) -> None:
    """False-alarm probability one in a million per case."""
    dial = RULES[rule].dial
    assert looks_like(written(rule, dial.strict if dial else np.nan)[1], P)


TARGET, DRAFT = logits(0.5, 0.3, 0.2), logits(0.25, 0.25, 0.5)
"""Ratios 2, 1.2, 0.4."""


def three(tokens: list[int], coins: list[float]) -> Speculation:
    n = len(tokens)
    return make_speculation(np.array([TARGET] * (n + 1)), np.array([DRAFT] * n), tokens, temperature=1.0, coins=coins)


@pytest.mark.parametrize(
    ("tokens", "coins", "kept"),
    [
        # token 2 first: w = .4, S = Σ(.4 p - q)+ = 0, h = 0; then token 0: w = .8, the last, h = .8
        ([2, 0], [0.0001, 0.81], 0),
        ([2, 0], [0.9999, 0.79], 2),  # the first coin fails, but the block is kept
        # token 0 first: w = 1, S = .25 + .05 = .3, h = 1; then token 2: w = .4, the last, h = .4
        ([0, 2], [0.9999, 0.41], 1),
        ([0, 2], [0.9999, 0.39], 2),
        # tokens 2, 0 and 2: w = .4, .8, .32; after the second S = .4 - .25 = .15, h = .15 / .35 = .4286
        ([2, 0, 2], [0.9999, 0.42, 0.33], 2),
        ([2, 0, 2], [0.9999, 0.44, 0.33], 0),
        ([2, 0, 2], [0.9999, 0.9999, 0.31], 3),
        ([1], [0.9999], 1),  # a block of one is rejection sampling
        ([2], [0.41], 0),
    ],
)
def test_verdicts_by_hand(tokens: list[int], coins: list[float], kept: int) -> None:
    assert block_keeps(three(tokens, coins)).tolist() == [True] * kept + [False] * (len(tokens) - kept)


def test_weights_and_edges() -> None:
    assert block_weights(three([2, 0, 2, 1], [0.5] * 4)) == pytest.approx([0.4, 0.8, 0.32, 0.384])
    assert block_weights(three([0, 0], [0.5] * 2)).tolist() == [1.0, 1.0]  # a clamped running product
    impossible = make_speculation(
        np.array([logits(1.0, 0.0)] * 3), np.array([[0.0, 0.0]] * 2), [1, 0], temperature=1.0, coins=[0.0, 0.0]
    )
    assert not block_keeps(impossible).any()  # p = 0 ends it, even for a coin of 0
    same = make_speculation(np.array([TARGET] * 3), np.array([TARGET] * 2), [2, 1], temperature=1.0, coins=[0.99, 0.99])
    assert block_keeps(same).all()  # S = 0 and w = 1
    point = make_speculation(
        np.array([TARGET] * 3), np.array([DRAFT] * 2), [0, 1], temperature=1.0, sampled=False, coins=[0.99, 0.14]
    )
    assert block_weights(point) == pytest.approx([0.5, 0.15])
    assert block_keeps(point).all()


def test_at_temperature_0_it_is_the_strict_rule_also_on_trees() -> None:
    branches = {"parents": np.array([-1, -1], np.int32), "siblings": np.array([0, 1], np.int32)}
    tree = three([0, 1], [0.5, 0.5]).with_columns(branches)
    with pytest.raises(BadInput, match="does not judge draft trees above temperature 0"):
        BlockVerification().judge(tree)
    assert BlockVerification().lacks(replace(tree, temperature=0.0)) is None
    rng = np.random.default_rng(0)
    for _ in range(50):
        tokens = rng.integers(6, size=4).tolist()
        speculation = make_speculation(rng.normal(size=(5, 6)), rng.normal(size=(4, 6)), tokens)
        ours, theirs = BlockVerification().judge(speculation), Strict().judge(speculation)
        assert ours.keeps(np.nan).tolist() == theirs.keeps(np.nan).tolist()
        assert ours.emits(np.nan).tolist() == theirs.emits(np.nan).tolist()
