"""Every rule on one run, a row of numbers each: of its own walk where that is known, else judged on recorded prefixes.

Knows rulings and walks; knows no figures and no browser. A row says which of the two it is, and never mixes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.flat_positions import FlatPositions, drafted
from mars_viz.analysis.judgements import Ruling
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.settled_text import first_to_differ
from mars_viz.multi_rule_walk import RuleWalk
from mars_viz.records import first_difference
from mars_viz.rules import Rule
from mars_viz.run import Run


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule at one dial value."""

    rule: Rule
    """Which."""
    dial: float | None
    """Where; None for a rule without a dial."""
    basis: Basis
    """Exact: on the text that the rule itself writes at this setting. Block-local: on the recorded text."""
    rounds: int
    """Passes of the target; on a recorded text, those of the run."""
    tau: float
    """Tokens emitted per round, correction or bonus included. NaN without rounds."""
    kept: int
    """Drafted tokens that reach the text."""
    rolled_back: int
    """Drafted tokens that do not."""
    relaxed: int
    """Kept tokens that the rule's own strict end rejects."""
    first_difference: int | None
    """Exact: index of the first token that is not that of the strict end's text. Block-local: index in the recorded
    text of the first that its strict end, on the same prefix, writes otherwise. None if there is none."""
    lowest_rank: int | None
    """The target's rank of the least likely token that reaches the text; None if none does."""
    lowest_share: float
    """The smallest p(x)/p1 of a drafted token that reaches the text. NaN if none does."""


def rule_row(ruling: Ruling, drafted: FlatPositions) -> RuleRow:
    """The ruling in numbers: exact if it changes no decision and all is known, else block-local."""
    parted = first_to_differ(ruling.opinion.run, ruling.text, ruling.opinion.strict)
    exact = ruling.basis is Basis.EXACT and (parted is None or parted.sure)
    basis, place = Basis.EXACT if exact else Basis.BLOCK_LOCAL, None if parted is None else parted.index
    strictly = ruling.opinion.verdicts.keep_strict
    return _row(ruling.rule, ruling.dial, ruling.text.lengths, ruling.kept, strictly, drafted, basis, place)


def walked_row(run: Run, walk: RuleWalk, strict: RuleWalk) -> RuleRow:
    """A rule's own walk from the run's prompt in numbers, and where its text leaves that of the rule's strict end."""
    own = replace(run, rounds=walk.rounds, dial_map=None)
    text = own.trace.recorded_text
    kept = own.trace.in_text(text)
    place = first_difference(walk.token_ids, strict.token_ids)
    strictly = own.trace.verdicts.keep_strict
    return _row(walk.stand.rule, walk.stand.dial, text.lengths, kept, strictly, drafted(own), Basis.EXACT, place)


def _row(
    rule: Rule,
    dial: float | None,
    lengths: np.ndarray,
    kept: np.ndarray,
    strictly: np.ndarray,
    drafted: FlatPositions,
    basis: Basis,
    place: int | None,
) -> RuleRow:
    """`lengths` are the tokens of each round, int64 [R]; of each position, bool [P], `kept` says whether it reaches the
    text, and `strictly` whether the strict end keeps it."""
    some = bool(kept.any())
    return RuleRow(
        rule=rule,
        dial=dial,
        basis=basis,
        rounds=len(lengths),
        tau=int(lengths.sum()) / len(lengths) if len(lengths) else math.nan,
        kept=int(np.count_nonzero(kept)),
        rolled_back=int(np.count_nonzero(~kept)),
        relaxed=int(np.count_nonzero(kept & ~strictly)),
        first_difference=place,
        lowest_rank=int(drafted.rank[kept].max()) if some else None,
        lowest_share=float(drafted.share[kept].min()) if some else math.nan,
    )
