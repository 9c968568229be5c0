"""What a rule, of the run's own making or not, has to say of a recorded run.

Knows records and rules; knows no figures and no browser. A rule is asked on the prefixes that were recorded: its
verdict within a block is exact, and what it makes of the run as a whole is block-local, unless no decision changes.
P is the number of drafted positions of the run, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.metrics import Basis, basis, judged_rounds, strict_rounds
from mars_viz.records import Round, Verdicts
from mars_viz.rules import Rule, rule_named
from mars_viz.rules.joined import Joined
from mars_viz.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Opinion:
    """A rule's verdicts on a run, for every dial value at once."""

    rule: Rule
    """That was asked."""
    lacks: str
    """Why it cannot judge this run, as a sentence; empty where it can."""
    run: Run
    """The run as if this rule had judged it: its verdicts, the recorded decisions. Without rounds where it lacks."""
    strict: tuple[Round, ...]
    """The recorded rounds, settled anew at the rule's strict end."""
    verdicts: Verdicts
    """On all nodes and rows of the run, end to end."""


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """An opinion at one dial value."""

    opinion: Opinion
    """Whose."""
    dial: float | None
    """The value; None for a rule without a dial."""
    rounds: tuple[Round, ...]
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


def opinion(rule: Rule, run: Run, blocks: Joined | None = None) -> Opinion:
    """What the rule says of every block of the run. Who asks several rules joins the `blocks` once for all of them."""
    lacks = next(filter(None, (rule.lacks(round_.speculation) for round_ in run.rounds)), "")
    blocks = blocks or Joined([round_.speculation for round_ in run.rounds])
    judged = [] if lacks else [blocks.judge(rule)]
    rounds = tuple(map(_judged, run.rounds, blocks.parts(judged[0]))) if judged else ()
    settings = replace(run.settings, rule=rule.name, dial=rule.checked_dial(None))
    asked = replace(run, settings=settings, rounds=rounds, dial_map=None)
    return Opinion(rule, lacks, asked, strict_rounds(asked), Verdicts.end_to_end(judged))


def _judged(round_: Round, verdicts: Verdicts) -> Round:
    return replace(round_, verdicts=verdicts)


def ruling(opinion: Opinion, dial: float | None = None) -> Ruling:
    """The opinion at this dial value; None takes the rule's default. Raises BadInput for a value out of range."""
    rule, run = opinion.rule, opinion.run
    at = rule.checked_dial(dial)
    rounds = judged_rounds(run, at)
    return Ruling(
        opinion=opinion,
        dial=at,
        rounds=rounds,
        basis=basis(run, rounds),
        keeps=opinion.verdicts.keeps(np.nan if at is None else at),
        reached=_flags([_reached(round_) for round_ in rounds]),
        kept=kept_nodes(rounds),
    )


def own_dial(run: Run, rule: Rule) -> float | None:
    """Where a rule stands on a run until someone moves it: the run's own rule as recorded, others at their default."""
    return run.settings.dial if rule == rule_named(run.settings.rule) else rule.checked_dial(None)


def kept_nodes(rounds: Sequence[Round]) -> np.ndarray:
    """bool [P]; the drafted tokens that reach the text."""
    return _flags([_kept(round_) for round_ in rounds])


def _reached(round_: Round) -> np.ndarray:
    rows = np.zeros(len(round_.speculation) + 1, np.bool_)
    rows[[0, *(node + 1 for node in round_.decision.kept)]] = True
    return rows[round_.speculation.judging_rows]


def _kept(round_: Round) -> np.ndarray:
    nodes = np.zeros(len(round_.speculation), np.bool_)
    nodes[list(round_.decision.kept[: round_.kept])] = True
    return nodes


def _flags(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.bool_), *parts]).astype(np.bool_, copy=False)
