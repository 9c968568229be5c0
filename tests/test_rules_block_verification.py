"""Block verification: weights and verdicts by hand, and the law that it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from factories import make_speculation
from rule_cases import logits

from mars_viz.errors import BadInput
from mars_viz.records import Speculation
from mars_viz.rules.lossless import BlockVerification, Strict, block_keeps, block_weights

P, Q = logits(0.5, 0.3, 0.2), logits(0.25, 0.25, 0.5)
"""Ratios 2, 1.2, 0.4."""


def block(tokens: list[int], coins: list[float]) -> Speculation:
    n = len(tokens)
    return make_speculation(np.array([P] * (n + 1)), np.array([Q] * n), tokens, temperature=1.0, coins=coins)


def test_weights_are_the_clamped_running_product() -> None:
    assert block_weights(block([2, 0, 2, 1], [0.5] * 4)) == pytest.approx([0.4, 0.8, 0.32, 0.384])
    assert block_weights(block([0, 0], [0.5] * 2)).tolist() == [1.0, 1.0]


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
    assert block_keeps(block(tokens, coins)).tolist() == [True] * kept + [False] * (len(tokens) - kept)


def test_edges() -> None:
    impossible = make_speculation(
        np.array([logits(1.0, 0.0)] * 3), np.array([[0.0, 0.0]] * 2), [1, 0], temperature=1.0, coins=[0.0, 0.0]
    )
    assert not block_keeps(impossible).any()  # p = 0 ends it, even for a coin of 0
    same = make_speculation(np.array([P] * 3), np.array([P] * 2), [2, 1], temperature=1.0, coins=[0.99, 0.99])
    assert block_keeps(same).all()  # S = 0 and w = 1
    point = make_speculation(
        np.array([P] * 3), np.array([Q] * 2), [0, 1], temperature=1.0, sampled=False, coins=[0.99, 0.14]
    )
    assert block_weights(point) == pytest.approx([0.5, 0.15])
    assert block_keeps(point).all()


def test_at_temperature_0_it_is_the_strict_rule_also_on_trees() -> None:
    branches = {"parents": np.array([-1, -1], np.int32), "siblings": np.array([0, 1], np.int32)}
    tree = block([0, 1], [0.5, 0.5]).with_columns(branches)
    with pytest.raises(BadInput, match="does not judge draft trees above temperature 0"):
        BlockVerification().judge(tree)
    assert BlockVerification().lacks(replace(tree, temperature=0.0)) is None
    rng = np.random.default_rng(0)
    for _ in range(50):
        speculation = make_speculation(
            rng.normal(size=(5, 6)), rng.normal(size=(4, 6)), rng.integers(6, size=4).tolist()
        )
        ours, theirs = BlockVerification().judge(speculation), Strict().judge(speculation)
        assert ours.keeps(np.nan).tolist() == theirs.keeps(np.nan).tolist()
        assert ours.emits(np.nan).tolist() == theirs.emits(np.nan).tolist()
