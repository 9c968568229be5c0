"""SGLang's two acceptance thresholds. With both at 1, the engine's default, the target's law is kept.

The engine tries siblings in order with one coin c for all: it keeps x if c falls below S/t, where S is p of x and the
siblings before it, independent of the drafter. If no sibling is kept, it samples p without them. Only the sample y of p
is recorded, so these rules draw the same law in another order. If y is a drafted x, c is between the S before x and
that of x, otherwise beyond the S of all; the coin of the first sibling sets c within that interval. So c is uniform, at
t = 1 the x equal to y is kept, and if none is kept, y is a sample of p without the siblings. On its greedy path the
engine ignores both thresholds.
"""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, OnTrees, Rule, drafted_p, just_above
from mars_viz.rules.rejection_sampling import tried_before
from mars_viz.rules.strict import sample_keeps


class SglangAccumulated(Rule):
    """Keep x iff c <= S/t, S = p(x) plus p of its earlier siblings, c one coin for all; else emit a sample of p without
    them. Strict at temperature 0. In a chain the probability is min(1, p(x)/t)."""

    name = "sglang-acc"
    title = "SGLang, accumulated threshold"
    summary = "Keeps a token with probability p(x)/t, whatever q; at t = 1 this is sample-match."
    formula = "T > 0: with probability p(x)/t; T = 0: x = v1"
    source = "SGLang, tree_speculative_sampling_target_only, speculative_accept_threshold_acc (kernel read)"
    dial = Dial(
        symbol="t", name="accumulated threshold", low=0.01, high=1.0, step=0.01, default=1.0, strict_is_high=True
    )
    on_rejection = Emission.SAMPLE
    on_trees = OnTrees.JUDGED
    tries = "siblings are tried in draft order, by one coin for all against what p gives those tried so far together"

    def _judge(self, speculation: Speculation) -> Verdicts:
        """c <= S/t means t <= S/c. No sibling after the target's own sample is tried."""
        p, sampled, rows = drafted_p(speculation), sample_keeps(speculation), speculation.judging_rows
        ends = np.full(len(speculation.top_ids), len(p))
        ends[rows[sampled]] = speculation.siblings[sampled]
        relaxes = (p > 0) & (speculation.temperature > 0) & (speculation.siblings <= ends[rows])
        before = tried_before(speculation) if speculation.is_tree else np.zeros_like(p)
        coins = _row_coins(speculation, p, before)[rows]
        reach = np.divide(before + p, coins, out=np.full_like(p, np.nan), where=relaxes & (coins > 0))
        return self._relaxed(speculation, sampled, just_above(reach))


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
        """Kept up to t = p(x)."""
        p = drafted_p(speculation)
        relaxes = (p > 0) & (speculation.temperature > 0)
        return self._relaxed(speculation, sample_keeps(speculation), np.where(relaxes, just_above(p), np.nan))


def _row_coins(speculation: Speculation, p: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return each row's c, float64 [N + 1], from the coin of its first token and the target's own sample. `p` is the
    target's probability of each token, `before` that of its earlier siblings together, float64 [N]."""
    rows, sampled = speculation.judging_rows, sample_keeps(speculation)
    tried, place = np.zeros(len(speculation.top_ids)), np.zeros(len(speculation.top_ids))
    np.add.at(tried, rows, p)
    first = speculation.siblings == 0
    place[rows[first]] = speculation.coins[first]
    coins: np.ndarray = tried + place * np.maximum(1 - tried, 0)
    coins[rows[sampled]] = before[sampled] + place[rows[sampled]] * p[sampled]
    return coins
