"""Relaxed rules of inference engines."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.registry import Fixed
from mars_viz.rules.base import (
    FREE,
    Dial,
    Near,
    OnTrees,
    Rule,
    among_best,
    best_p,
    best_tokens,
    drafted_p,
    entropy_of,
    following,
    just_above,
    register,
    window,
)
from mars_viz.rules.lossless import Tossed, coin_keeps, drafted_q, sample_keeps, tried_before


@register
class Lenience(Tossed):
    """Keep x iff u <= p(x) / (l q(x)); else emit a sample of norm((p - q)+). At temperature 0: p(x) >= l p(v1).

    No token then becomes more than 1/l times as likely as the target makes it.
    """

    name = "lenience"
    title = "Lenience"
    summary = "Rejection sampling with q scaled by l, so that no token becomes more than 1/l times as likely."
    formula = "u ≤ p(x)/(l·q(x)); at T = 0: p(x) ≥ l·p(v1)"
    source = "Leviathan et al., arXiv 2211.17192, appendix (summary read); the paper tabulates l, the default is ours"
    dial = Dial(symbol="l", name="lenience", low=0.01, high=1.0, step=0.01, default=0.5, strict_is_high=True)
    on_trees = OnTrees.GREEDY
    policies = FREE
    needs = ("z", "logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        p = drafted_p(speculation)
        rival = best_p(speculation) if speculation.temperature == 0 else speculation.coins * drafted_q(speculation)
        reach = np.divide(p, rival, out=np.full_like(p, np.inf), where=rival > 0)
        return np.where(p > 0, just_above(reach), np.nan)


@register
class Typical(Near):
    """Keep x iff x = v1 or p(x) > min(ε, α exp(-H)) with α = c √ε; else emit v1. ε = 1 is off: v1 alone.

    α is tied to ε, so that one dial moves both; c = 1 is Medusa's setting. H is the entropy of the plain softmax.
    Medusa uses the run's temperature, which is the same at temperatures 0 and 1.
    """

    name = "typical"
    title = "Typical acceptance"
    summary = "Keeps a token whose probability exceeds a bound that falls as the target's entropy rises."
    formula = "x = v1, or p(x) > min(ε, α·exp(−H)) with α = {c}·√ε"
    source = "Medusa, arXiv 2401.10774, and vllm-ascend 9772 (entropy verify); summary read"
    dial = Dial(symbol="ε", name="typical threshold", low=0.0, high=1.0, step=0.01, default=0.09, strict_is_high=True)
    needs = ("z", "logsumexp", "entropy")
    fixed = (Fixed("c", "c", "α over √ε", 0.1, 10, 1, "how the entropy's threshold α follows ε, as c·√ε", whole=False),)

    def _reach(self, speculation: Speculation) -> np.ndarray:
        p = drafted_p(speculation)
        entropy = speculation.entropy[speculation.judging_rows].astype(np.float64)
        breakpoints = np.maximum(p, (p * np.exp(entropy) / self.values["c"]) ** 2)  # p > c √ε exp(-H), squared
        return np.where(p > 0, breakpoints, np.nan)


@register
class SglangAccumulated(Rule):
    """Keep x iff c <= S/t, S = p(x) plus p of its earlier siblings, c one coin for all; else emit a sample of p without
    them. Strict at temperature 0. In a chain the probability is min(1, p(x)/t).

    The engine tries siblings in order with one coin c for all: it keeps x if c falls below S/t, where S is p of x and
    the siblings before it, independent of the drafter. If no sibling is kept, it samples p without them. Only the
    sample y of p is recorded, so SGLang's rules here draw the same law in another order. If y is a drafted x, c is
    between the S before x and that of x, otherwise beyond the S of all; the coin of the first sibling sets c within
    that interval. So c is uniform, at t = 1 (the engine's default) the x equal to y is kept, which keeps the target's
    law, and if none is kept, y is a sample of p without the siblings. On its greedy path the engine ignores both
    thresholds.
    """

    name = "sglang-acc"
    title = "SGLang, accumulated threshold"
    summary = "Keeps a token with probability p(x)/t, whatever q; at t = 1 this is sample-match."
    formula = "T > 0: with probability p(x)/t; T = 0: x = v1"
    source = "SGLang, tree_speculative_sampling_target_only, speculative_accept_threshold_acc (kernel read)"
    dial = Dial("t", "accumulated threshold", low=0.01, high=1.0, step=0.01, default=1.0, strict_is_high=True)
    on_rejection = Emission.SAMPLE
    on_trees = OnTrees.JUDGED
    tries = "siblings are tried in draft order, by one coin for all against what p gives those tried so far together"

    def _judge(self, speculation: Speculation) -> Verdicts:
        p, sampled, rows = drafted_p(speculation), sample_keeps(speculation), speculation.judging_rows
        ends = np.full(len(speculation.top_ids), len(p))
        ends[rows[sampled]] = speculation.siblings[sampled]  # no sibling after the target's own sample is tried
        relaxes = (p > 0) & (speculation.temperature > 0) & (speculation.siblings <= ends[rows])
        before = tried_before(speculation) if speculation.is_tree else np.zeros_like(p)
        tried, place = np.zeros(len(ends)), np.zeros(len(ends))
        np.add.at(tried, rows, p)
        first = speculation.siblings == 0
        place[rows[first]] = speculation.coins[first]
        row_coins = tried + place * np.maximum(1 - tried, 0)  # each row's c
        row_coins[rows[sampled]] = before[sampled] + place[rows[sampled]] * p[sampled]
        coins = row_coins[rows]
        reach = np.divide(before + p, coins, out=np.full_like(p, np.nan), where=relaxes & (coins > 0))
        return self._relaxed(speculation, sampled, just_above(reach))


@register
class SglangSingle(Rule):
    """Keep x iff p(x) >= t, or the target's own sample is x; else emit that sample. Strict at temperature 0."""

    name = "sglang-single"
    title = "SGLang, single threshold"
    summary = "Sample-match that also keeps every token to which the target gives at least t."
    formula = "T > 0: x = y ~ p, or p(x) ≥ t; T = 0: x = v1"
    source = "SGLang, tree_speculative_sampling_target_only, speculative_accept_threshold_single (kernel read)"
    dial = Dial(symbol="t", name="single threshold", low=0.01, high=1.0, step=0.01, default=1.0, strict_is_high=True)
    on_rejection = Emission.SAMPLE
    on_trees = OnTrees.JUDGED
    tries = "of siblings the first in draft order is kept that has p(x) ≥ t or is the target's own sample"

    def _judge(self, speculation: Speculation) -> Verdicts:
        p = drafted_p(speculation)
        relaxes = (p > 0) & (speculation.temperature > 0)
        return self._relaxed(speculation, sample_keeps(speculation), np.where(relaxes, just_above(p), np.nan))


@register
class TensorRtLlm(Near):
    """Keep x iff it is among the k best and p(x) >= p(v1) - δ; else emit v1. The engine relaxes only in the thinking
    phase; this rule relaxes everywhere. δ = 0.6 admits all k if p(v1) <= 0.6. ATOM 411 is the same rule."""

    name = "tensorrt-llm"
    title = "TensorRT-LLM relaxed"
    summary = "Keeps any of the {k} best tokens whose probability comes within δ of the best one's."
    formula = "x = v1, or x among the {k} best and p(x) ≥ p(v1) − δ"
    source = "TensorRT-LLM, relaxed acceptance, DeepSeek-R1 preset (k = 10, δ = 0.6); summary read"
    dial = Dial(symbol="δ", name="relaxed delta", low=0.0, high=1.0, step=0.01, default=0.6, strict_is_high=False)
    needs = ("z", "logsumexp")
    fixed = (best_tokens(10),)

    def _reach(self, speculation: Speculation) -> np.ndarray:
        p = drafted_p(speculation)
        relaxes = among_best(speculation, int(self.values["k"])) & (p > 0)
        return np.where(relaxes, best_p(speculation) - p, np.nan)


@register
class VllmThinking(Near):
    """Keep x iff it is among the k best and z_x >= z1 + ln r, raw logits; else emit v1. k = 1 is strict."""

    name = "vllm-thinking"
    title = "vLLM relaxed thinking"
    summary = "Keeps any of the {k} best tokens that is at least r times as likely as the best one."
    formula = "x = v1, or x among the {k} best and z_x ≥ z1 + ln r"
    source = "vLLM pull requests 21506, 22238, 43184, 45229 (closed, in no release); summary read"
    dial = Dial(symbol="r", name="relaxed ratio", low=0.0, high=1.0, step=0.01, default=0.5, strict_is_high=True)
    needs = ("z",)
    fixed = (best_tokens(3),)

    def _reach(self, speculation: Speculation) -> np.ndarray:
        z1 = speculation.z1[speculation.judging_rows].astype(np.float64)
        reach = np.exp(speculation.z - z1)
        relaxes = among_best(speculation, int(self.values["k"])) & (reach > 0)
        return np.where(relaxes, just_above(reach), np.nan)


@register
class VllmFly(Rule):
    """Keep x iff u <= p(x)/q(x), or Hk >= θ, p(x) > 0 and the coins keep each of the next W drafted tokens; else emit a
    sample of norm((p - q)+). At temperature 0 a coin keeps only v1.

    Hk is the entropy of the k best tokens' probabilities after temperature, top-k and top-p, not renormalised; at most
    ln k. W tokens must follow in the block, so its last W positions are never relaxed.
    """

    name = "vllm-fly"
    title = "vLLM FLy"
    summary = (
        "Forgives a rejection if the target was unsure and the next {w} drafted tokens are accepted. Needs γ > {w}."
    )
    formula = "u ≤ p(x)/q(x), or H_{k} ≥ θ and the next {w} drafted tokens have u ≤ p/q"
    source = "vLLM 0.33.0, rejection_sample_method fly, v1/spec_decode/fly.py (summary read)"
    dial = Dial(symbol="θ", name="entropy threshold", low=0.0, high=1.61, step=0.01, default=0.3, strict_is_high=True)
    on_rejection = Emission.RESIDUAL
    needs = ("z", "logsumexp")
    spans_positions = True
    fixed = (
        window(5, "how many drafted tokens after the rejected one must be accepted"),
        Fixed("k", "k", "best tokens", 1, 5, 3, "of how many of the target's best tokens the entropy is taken"),
    )

    def _judge(self, speculation: Speculation) -> Verdicts:
        accepted = coin_keeps(speculation)
        possible = drafted_p(speculation) > 0  # q(x) > 0, vLLM's other condition, holds of all that was drafted
        forgiven = possible & (following(speculation, accepted)[1] >= self.values["w"])
        logits = speculation.at_nodes(speculation.top_logits)[:, : int(self.values["k"])].astype(np.float64)
        shares = best_p(speculation)[:, None] * np.exp((logits - logits[:, :1]) / (speculation.temperature or 1.0))
        if speculation.temperature > 0:  # after top-k and top-p
            shares[np.arange(shares.shape[1]) >= speculation.at_nodes(speculation.support)[:, None]] = 0
        entropy = entropy_of(shares)
        return self._relaxed(speculation, accepted, np.where(forgiven, just_above(entropy), np.nan))


@register
class MarginWindow(Rule):
    """Keep x iff x = v1, or ln p(v1) - ln p(x) <= m and the next W drafted tokens are all the target's best; else v1.

    m = 0 is off: v1 alone. W tokens must follow in the block, so its last W positions are never relaxed.
    """

    name = "margin-window"
    title = "Margin with window"
    summary = "Forgives a token nearly as likely as the target's best if the {w} drafted after it match. Needs γ > {w}."
    formula = "x = v1, or ln p(v1) − ln p(x) ≤ m and the first W = {w} drafted tokens after x match"
    source = (
        "after llama.cpp discussion 24804 (not read) with the window of FLy, arXiv 2511.22972; the defaults are ours"
    )
    dial = Dial("m", "log-probability margin", low=0.0, high=10.0, step=0.05, default=1.0, strict_is_high=False)
    on_rejection = Emission.ARGMAX
    needs = ("z", "logsumexp")
    spans_positions = True
    fixed = (window(1, "how many drafted tokens after the mismatch must match"),)

    def _judge(self, speculation: Speculation) -> Verdicts:
        matches, p = among_best(speculation, 1), drafted_p(speculation)
        forgiven = (p > 0) & (following(speculation, matches)[1] >= self.values["w"])
        odds = np.divide(best_p(speculation), p, out=np.full_like(p, np.nan), where=forgiven)
        return self._relaxed(speculation, matches, np.log(odds))


@register
class Ensemble(Tossed):
    """Keep x iff u <= 1 - w + w p(x)/q(x); else emit a sample of norm((p - q)+), the mixture's residual at every w.

    At temperature 0 transformers takes the mixture's argmax. Only two tokens of the mixture are always recorded, the
    drafted one and v1, so this rule compares these two and emits v1. It differs from transformers if a third token is
    the mixture's best. A v1 outside the drafter's K best counts as its K-th.
    """

    name = "ensemble"
    title = "Ensemble of target and drafter"
    summary = "Verifies against a mixture of both models' distributions; w = 1 is the target alone."
    formula = "u ≤ 1 − w + w·p(x)/q(x); at T = 0: w·p(x) + (1 − w)·q(x) ≥ w·p(v1) + (1 − w)·q(v1)"
    source = "transformers 5, assistant_ensemble_weight (code read); arXiv 2604.07622. No default there; 0.9 is ours"
    dial = Dial(symbol="w", name="target's weight", low=0.0, high=1.0, step=0.01, default=0.9, strict_is_high=True)
    needs = ("z", "logsumexp", "draft_logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        if (
            speculation.temperature == 0
        ):  # kept up to w = a / (a + b): x's gain a by the drafter, its loss b by the target
            best = speculation.top_ids[speculation.judging_rows, 0]
            gain = _listed_q(speculation, speculation.tokens) - _listed_q(speculation, best)
            loss = best_p(speculation) - drafted_p(speculation)
        else:
            q = drafted_q(speculation).astype(np.float64)
            gain = (1 - speculation.coins) * q  # u q <= (1 - w) q + w p is w (q - p) <= (1 - u) q
            loss = speculation.coins * q - drafted_p(speculation)
        reach = np.divide(gain, gain + loss, out=np.full_like(gain, np.nan), where=(gain >= 0) & (gain + loss > 0))
        return just_above(reach)


def _listed_q(speculation: Speculation, tokens: np.ndarray) -> np.ndarray:
    """Return the drafter's plain probability of a token per node, float64 [N]; that of its K-th best if not listed."""
    hits = speculation.draft_ids == tokens[:, None]  # [N, K]
    place = np.where(hits.any(axis=1), hits.argmax(axis=1), hits.shape[1] - 1)
    logits = speculation.draft_logits[np.arange(len(place)), place].astype(np.float64)
    return np.exp(logits - speculation.draft_logsumexp)
