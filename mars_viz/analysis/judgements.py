"""What a rule, of the run's own making or not, has to say of a recorded run.

Knows records and rules; knows no figures and no browser. A rule is asked on the prefixes that were recorded: its
verdict within a block is exact, and what it makes of the run as a whole is block-local, unless no decision changes.
R is the number of rounds, P that of their drafted positions, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.metrics import Basis, basis
from mars_viz.analysis.settled_text import settled_text
from mars_viz.records import Verdicts
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run
from mars_viz.trace import Settled, SettledText, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """A rule's verdicts on a run, for every dial value at once."""

    rule: Rule
    """That was asked."""
    lacks: str
    """Why it cannot judge this run, as a sentence; empty where it can."""
    run: Run
    """The run as it was recorded; without rounds where the rule lacks."""
    trace: Trace
    """The rounds of the run, judged by this rule; what was decided in them is the recorded."""
    strict: SettledText
    """At the rule's strict end."""

    @property
    def verdicts(self) -> Verdicts:
        """On all nodes and rows of the run, end to end."""
        return self.trace.verdicts


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


def opinion(rule: Rule, run: Run) -> Judgement:
    """What the rule says of every block of the run."""
    lacks = rule.lacks_for(run.trace.speculations) or ""
    asked = run.without_rounds if lacks else run
    trace = asked.trace if lacks else run.trace.judged_as(rule.judge_all(run.trace.speculations))
    strict = settled_text(asked, trace, None if rule.dial is None else rule.dial.strict)
    return Judgement(rule, lacks, asked, trace, strict)


def ruling(opinion: Judgement, dial: float | None = None) -> Ruling:
    """The opinion at this dial value; None takes the rule's default. Raises BadInput for a value out of range."""
    rule, trace = opinion.rule, opinion.trace
    at = rule.checked_dial(dial)
    text = settled_text(opinion.run, trace, at)
    return Ruling(
        opinion=opinion,
        dial=at,
        text=text,
        basis=basis(trace, text.settled),
        keeps=opinion.verdicts.keeps(np.nan if at is None else at),
        reached=_reached(trace, text.settled),
        kept=trace.in_text(text),
    )


def _reached(trace: Trace, settled: Settled) -> np.ndarray:
    """bool [P]; the parent of each position is kept, or is the prefix."""
    parents = np.repeat(trace.firsts, trace.lengths) + trace.parents
    found: np.ndarray = (trace.parents < 0) | settled.kept[parents]
    return found


def own_dial(run: Run, rule: Rule) -> float | None:
    """Where a rule stands on a run until someone moves it: the run's own rule as recorded, others at their default."""
    return run.settings.dial if rule == rule_named(run.settings.rule) else rule.checked_dial(None)
