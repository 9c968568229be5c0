"""Every rule on one run, a row of numbers each, all judged on the prefixes that were recorded.

Knows rulings; knows no figures and no browser. The numbers are block-local, except in a row that says it is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.drafted import Drafted
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.opinions import Ruling
from mars_viz.rules import Rule


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule at one dial value."""

    rule: Rule
    """Which."""
    dial: float | None
    """Where; None for a rule without a dial."""
    basis: Basis
    """Exact if the rule would have written the recorded text itself, else block-local."""
    tau: float
    """Tokens emitted per round, correction or bonus included. NaN without rounds."""
    kept: int
    """Drafted tokens that reach the text."""
    rolled_back: int
    """Drafted tokens that do not."""
    relaxed: int
    """Kept tokens that the rule's own strict end rejects."""
    first_difference: int | None
    """Index in the recorded text of the first token that its strict end, on the same prefix, writes otherwise; None
    if there is none."""
    lowest_rank: int | None
    """The target's rank of the least likely token that reaches the text; None if none does."""
    lowest_share: float
    """The smallest p(x)/p1 of a drafted token that reaches the text. NaN if none does."""


def rule_row(ruling: Ruling, drafted: Drafted) -> RuleRow:
    """The ruling in numbers."""
    tokens, rounds = sum(len(round_.token_ids) for round_ in ruling.rounds), len(ruling.rounds)
    kept = int(np.count_nonzero(ruling.kept))
    return RuleRow(
        rule=ruling.rule,
        dial=ruling.dial,
        basis=ruling.basis,
        tau=tokens / rounds if rounds else math.nan,
        kept=kept,
        rolled_back=len(ruling.kept) - kept,
        relaxed=int(np.count_nonzero(ruling.kept & ruling.relaxes)),
        first_difference=_first_difference(ruling),
        lowest_rank=int(drafted.rank[ruling.kept].max()) if kept else None,
        lowest_share=float(drafted.share[ruling.kept].min()) if kept else math.nan,
    )


def _first_difference(ruling: Ruling) -> int | None:
    written = 0
    recorded = ruling.opinion.run.rounds
    for old, ours, strict in zip(recorded, ruling.rounds, ruling.opinion.strict, strict=True):
        if ours.token_ids != strict.token_ids:
            pairs = zip(ours.token_ids, strict.token_ids, strict=False)
            shorter = min(len(ours.token_ids), len(strict.token_ids))
            return written + next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
        written += len(old.token_ids)
    return None
