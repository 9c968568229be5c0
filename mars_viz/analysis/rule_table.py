"""Every rule on one run, a row of numbers each: of its own walk where that is known, else judged on recorded prefixes.

Knows rulings and walks; knows no figures and no browser. A row says which of the two it is, and never mixes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.drafted import Drafted, drafted
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.opinions import Ruling, kept_nodes
from mars_viz.records import Round, parting
from mars_viz.rules import Rule
from mars_viz.run import Run
from mars_viz.together import RuleWalk


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


@dataclass(frozen=True, slots=True)
class _Parting:
    """Where a text leaves that of the strict end."""

    index: int | None
    """None if it does not."""
    sure: bool
    """False where one of two rounds only goes on longer, so that what the other writes next is not known."""


def rule_row(ruling: Ruling, drafted: Drafted) -> RuleRow:
    """The ruling in numbers: exact if it changes no decision and all is known, else block-local."""
    place = _leaves(ruling)
    exact = ruling.basis is Basis.EXACT and place.sure
    basis = Basis.EXACT if exact else Basis.BLOCK_LOCAL
    return _row(ruling.rule, ruling.dial, ruling.rounds, drafted, basis, place.index)


def walked_row(run: Run, walk: RuleWalk, strict: RuleWalk) -> RuleRow:
    """A rule's own walk from the run's prompt in numbers, and where its text leaves that of the rule's strict end."""
    thought = drafted(replace(run, rounds=walk.rounds, dial_map=None))
    place = parting(walk.token_ids, strict.token_ids)
    return _row(walk.stand.rule, walk.stand.dial, walk.rounds, thought, Basis.EXACT, place)


def _row(
    rule: Rule, dial: float | None, rounds: Sequence[Round], drafted: Drafted, basis: Basis, place: int | None
) -> RuleRow:
    nodes = kept_nodes(rounds)
    kept = int(np.count_nonzero(nodes))
    return RuleRow(
        rule=rule,
        dial=dial,
        basis=basis,
        rounds=len(rounds),
        tau=sum(len(round_.token_ids) for round_ in rounds) / len(rounds) if rounds else math.nan,
        kept=kept,
        rolled_back=len(nodes) - kept,
        relaxed=sum(not r.verdicts.keep_strict[node] for r in rounds for node in r.decision.kept[: r.kept]),
        first_difference=place,
        lowest_rank=int(drafted.rank[nodes].max()) if kept else None,
        lowest_share=float(drafted.share[nodes].min()) if kept else math.nan,
    )


def _leaves(ruling: Ruling) -> _Parting:
    written = 0
    recorded = ruling.opinion.run.rounds
    for old, ours, strict in zip(recorded, ruling.rounds, ruling.opinion.strict, strict=True):
        if (place := parting(ours.token_ids, strict.token_ids)) is not None:
            return _Parting(written + place, place < min(len(ours.token_ids), len(strict.token_ids)))
        written += len(old.token_ids)
    return _Parting(None, True)
