"""The judgement of any rule on a recorded run.

A rule judges the recorded prefixes: its verdict within a block is exact, and its numbers for the whole run are
block-local unless no decision changes. R is the number of rounds, P the number of drafted positions, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.metrics import Basis, basis
from mars_viz.analysis.settled_text import settled_text
from mars_viz.records import Verdicts
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run
from mars_viz.trace import SettledText, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """A rule's verdicts on a run, for every dial value at once."""

    rule: Rule
    lacks: str  # a sentence if the rule cannot judge this run; otherwise empty
    run: Run  # the recorded run; without rounds if the rule cannot judge it
    trace: Trace  # the rounds with this rule's verdicts and the recorded decisions
    strict: SettledText  # decisions at the rule's strict end

    @property
    def verdicts(self) -> Verdicts:
        """Verdicts on all nodes and rows of the run, concatenated."""
        return self.trace.verdicts


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """A judgement at one dial value."""

    opinion: Judgement
    dial: float | None  # None for a rule without a dial
    text: SettledText  # the recorded rounds with this ruling's decisions
    basis: Basis  # exact if no recorded decision changes: the rule would have written this text
    keeps: np.ndarray  # bool [P]; its verdict on each position, whether or not its own walk reaches it
    reached: np.ndarray  # bool [P]; True if its walk reaches the position, because all before it in the block are kept
    kept: np.ndarray  # bool [P]; reached, kept, and not cut off by the end of the text

    @property
    def rule(self) -> Rule:
        """The rule that judged."""
        return self.opinion.rule

    @property
    def relaxes(self) -> np.ndarray:
        """bool [P]; kept although its strict end rejects."""
        return self.keeps & ~self.opinion.verdicts.keep_strict


def opinion(rule: Rule, run: Run) -> Judgement:
    """Return the rule's judgement of every block of the run."""
    lacks = rule.lacks_for(run.trace.speculations) or ""
    judged = run.without_rounds if lacks else run
    trace = judged.trace if lacks else run.trace.judged_as(rule.judge_all(run.trace.speculations))
    strict = settled_text(judged, trace, None if rule.dial is None else rule.dial.strict)
    return Judgement(rule, lacks, judged, trace, strict)


def ruling(opinion: Judgement, dial: float | None = None) -> Ruling:
    """Return the judgement at this dial value; None is the rule's default. Raises BadInput for a value out of range."""
    rule, trace = opinion.rule, opinion.trace
    at = rule.checked_dial(dial)
    text = settled_text(opinion.run, trace, at)
    parents = np.repeat(trace.firsts, trace.lengths) + trace.parents
    return Ruling(
        opinion=opinion,
        dial=at,
        text=text,
        basis=basis(trace, text.settled),
        keeps=opinion.verdicts.keeps(np.nan if at is None else at),
        reached=(trace.parents < 0) | text.settled.kept[parents],  # the parent is the prefix, or kept
        kept=trace.in_text(text),
    )


def own_dial(run: Run, rule: Rule) -> float | None:
    """Return a rule's initial dial value for a run: the recorded one for the run's rule, otherwise the default."""
    return run.settings.dial if rule == rule_named(run.settings.rule) else rule.checked_dial(None)
