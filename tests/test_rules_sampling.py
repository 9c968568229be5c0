"""The relaxed rules that toss coins, by hand: p from shares, q uniform unless given, temperature 1 unless said."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from rule_cases import coin, decided, logits, one
from scipy import stats

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.records import Emission, Speculation
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.sampling import draw as torch_draw

FOUR = logits(0.6, 0.3, 0.1, 0.0)
"""Over a uniform q of 0.25: ratios 2.4, 1.2, 0.4, 0."""
POINT = {"sampled": False}
"""A draft that was not drawn: q is 1."""

CASES: list[tuple[str, Speculation, float, int]] = [
    # u <= p / (l q)
    ("lenience", coin(FOUR, 2, 0.79), 0.5, 1),  # .1 / (.5 · .25) = .8
    ("lenience", coin(FOUR, 2, 0.81), 0.5, 0),
    ("lenience", coin(FOUR, 2, 0.41), 1.0, 0),
    ("lenience", coin(FOUR, 2, 0.39), 1.0, 1),
    ("lenience", coin(FOUR, 2, 0.0), 1.0, 1),
    ("lenience", coin(FOUR, 3, 0.0), 0.01, 0),  # p = 0
    ("lenience", coin(FOUR, 2, 0.19, **POINT), 0.5, 1),  # .1 / .5
    ("lenience", coin(FOUR, 2, 0.21, **POINT), 0.5, 0),
    ("lenience", one(FOUR, 1), 0.49, 1),  # T = 0: .3 >= l · .6
    ("lenience", one(FOUR, 1), 0.51, 0),
    ("lenience", one(logits(0.5, 0.5), 1), 1.0, 0),  # a tie, and off
    # with probability p / t: y = x, or u <= (p/t - p) / (1 - p); for x = 2 at t = .5, .1 / .9 = .111
    ("sglang-acc", coin(FOUR, 2, 0.110, seed=3), 0.5, 1),
    ("sglang-acc", coin(FOUR, 2, 0.112, seed=3), 0.5, 0),
    ("sglang-acc", coin(FOUR, 2, 0.001, seed=3), 1.0, 0),
    ("sglang-acc", coin(FOUR, 2, 0.99, seed=3), 0.1, 1),  # t <= p keeps always
    ("sglang-acc", coin(FOUR, 3, 0.0, seed=3), 0.01, 0),
    ("sglang-acc", one(FOUR, 1), 0.01, 0),  # greedy ignores it
    ("sglang-acc", coin(FOUR, 2, 0.110, seed=3, **POINT), 0.5, 1),  # q does not matter
    # p >= t
    ("sglang-single", coin(FOUR, 2, 0.99, seed=3), 0.09, 1),
    ("sglang-single", coin(FOUR, 2, 0.0, seed=3), 0.11, 0),
    ("sglang-single", coin(FOUR, 1, 0.99, seed=3), 0.29, 1),
    ("sglang-single", coin(FOUR, 1, 0.99, seed=3), 0.31, 0),
    ("sglang-single", coin(FOUR, 3, 0.0, seed=3), 0.01, 0),
    ("sglang-single", one(FOUR, 1), 0.01, 0),  # greedy ignores it
    # u <= 1 - w + w p/q; for x = 2 at w = .5, .7
    ("ensemble", coin(FOUR, 2, 0.69), 0.5, 1),
    ("ensemble", coin(FOUR, 2, 0.71), 0.5, 0),
    ("ensemble", coin(FOUR, 2, 0.41), 1.0, 0),
    ("ensemble", coin(FOUR, 2, 0.99), 0.0, 1),
    ("ensemble", coin(FOUR, 3, 0.49), 0.5, 1),  # the mixture holds what p rules out
    ("ensemble", coin(FOUR, 3, 0.51), 0.5, 0),
    ("ensemble", coin(FOUR, 2, 0.54, **POINT), 0.5, 1),  # .5 + .05
    ("ensemble", coin(FOUR, 2, 0.56, **POINT), 0.5, 0),
    # T = 0, q = (.2, .5, .3, 0): x = 1 gains .3 on v1 from q and loses .3 to it from p
    ("ensemble", one(FOUR, 1, drafter=logits(0.2, 0.5, 0.3, 0.0)), 0.49, 1),
    ("ensemble", one(FOUR, 1, drafter=logits(0.2, 0.5, 0.3, 0.0)), 0.51, 0),
    ("ensemble", one(FOUR, 2, drafter=logits(0.5, 0.3, 0.2, 0.0)), 0.0, 0),  # v1 is ahead in both
    ("ensemble", one(logits(0.4, 0.4, 0.2), 1, drafter=logits(0.2, 0.5, 0.3)), 0.99, 1),  # tie in p
    # JSD < T; the laws (1, 0) and (.5, .5): .2158 nats
    ("fuzzy", coin(logits(1.0, 0.0), 1, 0.99), 0.216, 1),  # whatever x
    ("fuzzy", coin(logits(1.0, 0.0), 1, 0.99), 0.215, 0),
    ("fuzzy", coin(logits(1.0, 0.0), 0, 0.99), 0.0, 1),
    ("fuzzy", coin(FOUR, 2, 0.41, FOUR), 0.0, 1),  # equal laws: u <= 1
    ("fuzzy", coin(FOUR, 2, 0.41), 0.0, 0),
    ("fuzzy", coin(logits(1.0, 0.0), 1, 0.99, logits(0.0, 1.0)), 0.7, 1),  # ln 2, the largest
    ("fuzzy", coin(logits(1.0, 0.0), 1, 0.99, logits(0.0, 1.0)), 0.69, 0),
    ("fuzzy", one(logits(0.6, 0.4), 1, drafter=logits(0.4, 0.6)), 0.021, 1),  # T = 0: .0201 of the softmaxes
    ("fuzzy", one(logits(0.6, 0.4), 1, drafter=logits(0.4, 0.6)), 0.019, 0),
    # u q <= p + √(2δ p (1 - p)); p = .1, q = 1, δ = .5: .1 + .3 = .4
    ("cactus-acceptance", coin(FOUR, 2, 0.39, **POINT), 0.5, 1),
    ("cactus-acceptance", coin(FOUR, 2, 0.41, **POINT), 0.5, 0),
    ("cactus-acceptance", coin(FOUR, 2, 0.11, **POINT), 0.0, 0),
    ("cactus-acceptance", coin(FOUR, 2, 0.09, **POINT), 0.0, 1),
    ("cactus-acceptance", coin(FOUR, 2, 0.99, **POINT), 4.0, 0),  # .1 + .849
    ("cactus-acceptance", coin(FOUR, 2, 0.94, **POINT), 4.0, 1),
    ("cactus-acceptance", coin(FOUR, 3, 0.0), 4.0, 0),  # p = 0 is not raised
    ("cactus-acceptance", one(FOUR, 1), 4.0, 0),  # T = 0 is strict
    # max q >= max p - α TV; q uniform: max p - max q = .35, TV = .4
    ("cascade-opt", coin(FOUR, 3, 0.99), 0.88, 1),  # .875; whatever x
    ("cascade-opt", coin(FOUR, 3, 0.99), 0.87, 0),
    ("cascade-opt", coin(FOUR, 2, 0.39), 0.0, 1),  # deferred, and the coin keeps
    ("cascade-opt", coin(FOUR, 2, 0.41, FOUR), -0.99, 1),  # equal laws
    ("cascade-opt", coin(FOUR, 2, 0.99, **POINT), -0.4, 1),  # max q = 1, TV = .9: -.4444
    ("cascade-opt", coin(FOUR, 2, 0.99, **POINT), -0.45, 0),
    ("cascade-opt", coin(logits(0.5, 0.5), 0, 0.99, **POINT), -1.0, 0),  # exactly -1, but off
    ("cascade-opt", one(FOUR, 2), 0.88, 1),  # T = 0: by the softmaxes
    ("cascade-opt", one(FOUR, 2), 0.87, 0),
    # u - β (1 - max p) <= p/q; for x = 2: u - .4 β <= .4
    ("ears", coin(FOUR, 2, 0.59), 0.5, 1),
    ("ears", coin(FOUR, 2, 0.61), 0.5, 0),
    ("ears", coin(FOUR, 2, 0.41), 0.0, 0),
    ("ears", coin(FOUR, 2, 0.81), 1.0, 0),
    ("ears", coin(FOUR, 2, 0.79), 1.0, 1),
    ("ears", coin(FOUR, 3, 0.3), 1.0, 0),  # p = 0, although the coin is eased to 0
    ("ears", coin(FOUR, 2, 0.29, **POINT), 0.5, 1),
    ("ears", coin(FOUR, 2, 0.31, **POINT), 0.5, 0),
    ("ears", one(FOUR, 1), 1.0, 0),  # T = 0 is strict
]


@pytest.mark.parametrize(("rule", "speculation", "dial", "expected"), CASES)
def test_by_hand(rule: str, speculation: Speculation, dial: float, expected: int) -> None:
    decision = decided(rule, speculation, dial)
    assert len(decision.kept) == expected
    if not expected:
        assert decision.emitted == speculation.emissions[0, RULES[rule].on_rejection]


def test_the_seed_of_the_hand_cases_has_another_sample_than_the_drafts() -> None:
    assert coin(FOUR, 2, 0.5, seed=3).emissions[0, Emission.SAMPLE] == 0


TOTAL = 50_000
P, Q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])


@cache
def block(needs: tuple[str, ...]) -> Speculation:
    """One of 50,000 positions that all have the laws P and Q, through the real draws and evidence."""
    settings = Settings(temperature=1.0, seed=11)
    uniforms = torch.from_numpy(round_uniforms(settings.seed, 4, Purpose.DRAFT, TOTAL))
    tokens = torch_draw(torch.from_numpy(Q).expand(TOTAL, 3), uniforms)
    p_rows, q_rows = (torch.from_numpy(np.log(law)).float().expand(1, TOTAL + 1, 3) for law in (P, Q))
    blocks = DraftBatch.of((4,), tokens[None], q_rows[:, 1:], p_rows, sampled=True)
    (speculation,) = gather_evidence(blocks, settings, needs)
    return speculation


def written(rule: str, dial: float) -> tuple[np.ndarray, np.ndarray]:
    """What was drafted and what was written at each position of the block: the kept draft or the correction."""
    speculation = block(RULES[rule].needs)
    verdicts = RULES[rule].judge(speculation)
    keeps, emits = verdicts.keeps(dial), verdicts.emits(dial)
    return speculation.tokens, np.where(keeps, speculation.tokens, emits[:-1])


def looks_like(observed: np.ndarray, law: np.ndarray) -> bool:
    """Chi-square at a false-alarm probability of one in a million; what the law rules out must not occur at all."""
    counts, expected = np.bincount(observed, minlength=3), law * len(observed)
    possible = law > 1e-12
    if counts[~possible].any():
        return False
    return possible.sum() == 1 or stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-6


@pytest.mark.parametrize("t", [1.0, 0.5, 0.2])
def test_sglang_keeps_with_probability_p_over_t_and_else_samples_p_without_x(t: float) -> None:
    """Given each draft; false-alarm probability three in a million per case."""
    drafts, tokens = written("sglang-acc", t)
    for x in range(3):
        accepts = min(1.0, P[x] / t)
        law = np.where(np.arange(3) == x, accepts, (1 - accepts) * P / (1 - P[x]))
        assert looks_like(tokens[drafts == x], law)
    if t == 1.0:
        assert looks_like(tokens, P)


@pytest.mark.parametrize("w", [1.0, 0.7, 0.3])
def test_the_ensemble_writes_the_mixture(w: float) -> None:
    """False-alarm probability one in a million per case."""
    assert looks_like(written("ensemble", w)[1], w * P + (1 - w) * Q)


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.on_rejection is Emission.RESIDUAL])
def test_at_the_strict_end_the_law_is_kept(rule: str) -> None:
    """False-alarm probability one in a million per case."""
    dial = RULES[rule].dial
    assert looks_like(written(rule, dial.strict if dial else np.nan)[1], P)


def test_lenience_makes_no_token_more_than_1_over_l_times_as_likely() -> None:
    """The law that a position writes, in closed form from its verdict and residual, for a thousand pairs of laws."""
    rng = np.random.default_rng(2)
    for _ in range(1000):
        p, q = rng.dirichlet(np.full(6, 0.5), 2)
        for lenience in (1.0, 0.5, 0.1):
            accepted = np.minimum(q, p / lenience)
            residual = np.maximum(p - q, 0)
            law = accepted + (1 - accepted.sum()) * residual / residual.sum()
            assert (law <= p / lenience + 1e-9).all()
            if lenience == 1.0:
                np.testing.assert_allclose(law, p, atol=1e-9)
