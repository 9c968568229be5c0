"""A budget of regret for each block, spent on tokens other than the target's best."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, Dial, OnTrees, Rule, among_best, drafted_p


class RegretBudget(Rule):
    """Keep x iff x = v1, or the regrets z1 - z_x from the block's start to x add up to at most B; else emit v1. ASD
    grants B to a whole request, which needs state across rounds; this rule grants B to every block."""

    name = "regret-budget"
    title = "Regret budget per block"
    summary = "Lets a block deviate from the target's best tokens until the logits given up add up to B."
    formula = "x = v1, or Σ(z1 − z_x) ≤ B over the block so far"
    source = "after ASD (summary read), whose budget is per request; per block, and the default, are ours"
    dial = Dial(symbol="B", name="regret budget", low=0.0, high=20.0, step=0.1, default=2.0, strict_is_high=False)
    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE
    needs = ("z", "logsumexp")
    spans_positions = True

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from B = the regret of x and of all tokens before it."""
        z1 = speculation.z1[speculation.judging_rows].astype(np.float64)
        spent = np.where(drafted_p(speculation) > 0, z1 - speculation.z, np.inf)
        for node, parent in enumerate(speculation.parents):  # parents come before their children
            if parent >= 0:
                spent[node] += spent[parent]
        return self._relaxed(speculation, among_best(speculation, 1), spent)
