"""What a rule, of the run's own making or not, has to say of a recorded run.

Knows records and rules; knows no figures and no browser. A rule is asked on the prefixes that were recorded: its
verdict within a block is exact, and what it makes of the run as a whole is block-local, unless no decision changes.
R is the number of rounds, P that of their drafted positions, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.metrics import Basis, basis
from mars_viz.analysis.settled_text import SettledText, in_text, settled_text
from mars_viz.blocks import Blocks, Settled
from mars_viz.records import Verdicts
from mars_viz.rules import Rule, rule_named
from mars_viz.rules.joined import Joined
from mars_viz.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """A rule's verdicts on a run, for every dial value at once."""

    rule: Rule
    """That was asked."""
    lacks: str
    """Why it cannot judge this run, as a sentence; empty where it can."""
    run: Run
    """The run as it was recorded; without rounds where the rule lacks."""
    blocks: Blocks
    """Those of the run, judged by this rule; what was decided in them is the recorded."""
    strict: SettledText
    """At the rule's strict end."""

    @property
    def verdicts(self) -> Verdicts:
        """On all nodes and rows of the run, end to end."""
        return self.blocks.verdicts


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """An opinion at one dial value."""

    opinion: Judgement
    """Whose."""
    dial: float | None
    """The value; None for a rule without a dial."""
    text: SettledText
    """The recorded rounds, settled anew."""
    basis: Basis
    """Exact if no recorded decision changes: the rule would have written this very text."""
    keeps: np.ndarray
    """bool [P]; its verdict on each position, whether or not its own walk gets there."""
    reached: np.ndarray
    """bool [P]; its walk gets there: all before it in the block are kept."""
    kept: np.ndarray
    """bool [P]; reached, kept, and not cut off by the text's end."""

    @property
    def rule(self) -> Rule:
        """Whose ruling it is."""
        return self.opinion.rule

    @property
    def relaxes(self) -> np.ndarray:
        """bool [P]; keeps what its strict end rejects."""
        return self.keeps & ~self.opinion.verdicts.keep_strict


def opinion(rule: Rule, run: Run, joined: Joined | None = None) -> Judgement:
    """What the rule says of every block of the run. Who asks several rules joins the blocks once for all of them."""
    joined = joined or Joined([round_.speculation for round_ in run.rounds])
    lacks = ""
    if not joined.can_judge(rule):
        lacks = next(filter(None, (rule.lacks(round_.speculation) for round_ in run.rounds)), "")
    asked = replace(run, rounds=(), dial_map=None) if lacks else run
    blocks = asked.blocks if lacks else replace(run.blocks, verdicts=joined.judge(rule))
    strict = settled_text(asked, blocks, None if rule.dial is None else rule.dial.strict)
    return Judgement(rule, lacks, asked, blocks, strict)


def ruling(opinion: Judgement, dial: float | None = None) -> Ruling:
    """The opinion at this dial value; None takes the rule's default. Raises BadInput for a value out of range."""
    rule, blocks = opinion.rule, opinion.blocks
    at = rule.checked_dial(dial)
    text = settled_text(opinion.run, blocks, at)
    return Ruling(
        opinion=opinion,
        dial=at,
        text=text,
        basis=basis(blocks, text.settled),
        keeps=opinion.verdicts.keeps(np.nan if at is None else at),
        reached=_reached(blocks, text.settled),
        kept=in_text(blocks, text),
    )


def _reached(blocks: Blocks, settled: Settled) -> np.ndarray:
    """bool [P]; the parent of each position is kept, or is the prefix."""
    parents = np.repeat(blocks.firsts, blocks.lengths) + blocks.parents
    found: np.ndarray = (blocks.parents < 0) | settled.kept[parents]
    return found


def own_dial(run: Run, rule: Rule) -> float | None:
    """Where a rule stands on a run until someone moves it: the run's own rule as recorded, others at their default."""
    return run.settings.dial if rule == rule_named(run.settings.rule) else rule.checked_dial(None)
