"""Every rule on one run, a row of numbers each: of its own walk where that is known, else judged on recorded prefixes.

Knows rulings and walks; knows no figures and no browser. A row says which of the two it is, and never mixes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from mars_viz.analysis.branching import MOST_CHILDREN, Branching, branching_by, node_laws
from mars_viz.analysis.flat_positions import FlatPositions, drafted
from mars_viz.analysis.judgements import Judgement, Ruling, opinion, ruling
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.rulings import Equivalent, Shifted, compared, equivalent, moved
from mars_viz.analysis.settled_text import first_to_differ
from mars_viz.multi_rule_walk import Prefix, RuleWalk, Stand, ahead
from mars_viz.records import first_difference
from mars_viz.replay import ending_of
from mars_viz.rules import Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.run_with_map import known_answers
from mars_viz.walk import Answer


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
    own = replace(run.unmapped, rounds=walk.rounds)
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


_REMEMBERED = 64
"""Rulings, rows and the like of each kind: those of every rule where it stands are asked for at each move.
On a long run each takes megabytes, so not all that a dial has passed are kept."""


@dataclass(frozen=True, slots=True)
class AgainstStrict:
    """A rule's row beside that of its own strict end, both exact or both on the recorded prefixes."""

    row: RuleRow
    """At the dial value asked for."""
    strict: RuleRow
    """At the strict end; the same row for a rule without a dial."""
    walked: bool
    """True if both are of the rule's own walks."""


class AllRules:
    """Every rule of the registry and the run's own, and what each says of the run."""

    def __init__(self, run: Run, answers: Mapping[Prefix, Answer] | None = None):
        """`answers` are known besides those of the run and its map, from the same models and settings."""
        self.run = run
        self.drafted = drafted(run)
        self.rules: Mapping[str, Rule] = rules_and(rule_named(run.settings.rule))
        """By name; those that cannot judge the run too."""
        self.opinions: Mapping[str, Judgement] = {name: opinion(rule, run) for name, rule in self.rules.items()}
        self._answers = {**(answers or {}), **known_answers(run)}
        self.ruling = lru_cache(_REMEMBERED)(self._ruling)
        self.local_row = lru_cache(_REMEMBERED)(self._local_row)
        self.walk = lru_cache(_REMEMBERED)(self._walk)
        self.row = lru_cache(_REMEMBERED)(self._row)
        self.shifted = lru_cache(_REMEMBERED)(self._shifted)
        self.branching = lru_cache(MOST_CHILDREN)(self._branching)
        self._node_laws = lru_cache(1)(partial(node_laws, run))
        self._moved = lru_cache(1)(partial(moved, run))

    @property
    def able(self) -> tuple[str, ...]:
        """Names of the rules that can judge the run."""
        return tuple(name for name, found in self.opinions.items() if not found.lacks)

    def equivalents(self, name: str, dial: float | None) -> dict[str, Equivalent]:
        """The nearest setting of every other rule that can judge, to this rule at this dial value."""
        like = self.ruling(name, dial)
        return {other: equivalent(self.opinions[other], like) for other in self.able if other != name}

    def stands(self, dials: Mapping[str, float | None]) -> tuple[Stand, ...]:
        """Every rule at its dial value, and at its strict end: what must be walked for rows that are all exact."""
        own = [Stand(self.rules[name], dial) for name, dial in dials.items()]
        ends = [Stand(stand.rule, self._strict(stand.rule.name)) for stand in own]
        return tuple(dict.fromkeys([*own, *ends]))

    def against_strict(self, name: str, dial: float | None) -> AgainstStrict:
        """The rule's row and that of its strict end, both standing on the same."""
        end = self._strict(name)
        walked = self.walk(name, dial) is not None and self.walk(name, end) is not None
        row = self.row if walked else self.local_row
        return AgainstStrict(row(name, dial), row(name, end), walked)

    def _strict(self, name: str) -> float | None:
        dial = self.rules[name].dial
        return None if dial is None else dial.strict

    def _walk(self, name: str, dial: float | None) -> RuleWalk | None:
        """The rule's own walk at this dial value, where the answers lead to its end."""
        start = RuleWalk(Stand(self.rules[name], dial), self.run.prompt_ids)
        found = ahead(start, self._answers, len(self.run.prompt_ids), ending_of(self.run))
        return found if found.finished else None

    def _ruling(self, name: str, dial: float | None) -> Ruling:
        return ruling(self.opinions[name], dial)

    def _local_row(self, name: str, dial: float | None) -> RuleRow:
        return rule_row(self.ruling(name, dial), self.drafted)

    def _row(self, name: str, dial: float | None) -> RuleRow:
        """Exact where the rule's walk and that of its strict end are known, else on the recorded prefixes."""
        walk, strict = self.walk(name, dial), self.walk(name, self._strict(name))
        if walk is None or strict is None:
            return self.local_row(name, dial)
        return walked_row(self.run, walk, strict)

    def _branching(self, children: int) -> Branching:
        """See `branching`; the laws are read once for all numbers of children."""
        return branching_by(self._node_laws(), children)

    def _shifted(self, name: str, dial: float | None, c: float) -> Shifted:
        return compared(self.ruling(name, dial), c, self._moved(c))
