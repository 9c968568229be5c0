"""One row of numbers for every rule on one run: exact from its own walk if known, otherwise from recorded prefixes.

A row states which of the two it is and never mixes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from mars_viz.analysis.branching import MOST_CHILDREN, branching_by, node_laws
from mars_viz.analysis.judgements import Judgement, Ruling, opinion, ruling
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.positions import FlatPositions, drafted
from mars_viz.analysis.rulings import Equivalent, compared, equivalent, moved
from mars_viz.analysis.settled_text import first_to_differ
from mars_viz.dialmap import known_answers
from mars_viz.exploration import RuleWalk, Stand
from mars_viz.records import first_difference
from mars_viz.replay import ending_of
from mars_viz.rules import Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.walk import Answer, Prefix


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule at one dial value."""

    rule: Rule
    dial: float | None  # None for a rule without a dial
    basis: Basis  # exact: on the text that the rule itself writes at this setting. Block-local: on the recorded text.
    rounds: int  # target passes; on a recorded text, those of the run
    tau: float  # tokens emitted per round, including correction or bonus. NaN without rounds.
    kept: int  # number of drafted tokens in the text
    rolled_back: int  # number of drafted tokens that are not in the text
    relaxed: int  # number of accepted tokens that the rule's strict end rejects
    first_difference: int | None
    """Exact: index of the first token that differs from the strict end's text. Block-local: index in the recorded text
    of the first token that the strict end replaces, given the same prefix. None if no token differs."""
    lowest_rank: int | None  # lowest target's rank of a drafted token in the text; None if the text has none
    lowest_share: float  # smallest p(x)/p1 of a drafted token in the text; NaN if the text has none


def rule_row(ruling: Ruling, drafted: FlatPositions) -> RuleRow:
    """Return a ruling's row: exact if it changes no decision and every decision is known, otherwise block-local."""
    parted = first_to_differ(ruling.opinion.run, ruling.text, ruling.opinion.strict)
    exact = ruling.basis is Basis.EXACT and (parted is None or parted.sure)
    basis, place = Basis.EXACT if exact else Basis.BLOCK_LOCAL, None if parted is None else parted.index
    strictly = ruling.opinion.verdicts.keep_strict
    return _row(ruling.rule, ruling.dial, ruling.text.lengths, ruling.kept, strictly, drafted, basis, place)


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
    """Build a row from tokens per round `lengths`, int64 [R]. `kept` marks positions in the text and `strictly` those
    that the strict end keeps, bool [P]."""
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
"""Cached rulings, rows and so on of each kind. Each takes megabytes on a long run, so old dial values are dropped."""


@dataclass(frozen=True, slots=True)
class AgainstStrict:
    """A rule's row and that of its strict end, both exact or both on recorded prefixes."""

    row: RuleRow  # at the requested dial value
    strict: RuleRow  # at the strict end; the same row for a rule without a dial
    walked: bool  # True if both come from the rule's own walks


class AllRules:
    """Every rule of the registry, and the run's own, applied to one run."""

    def __init__(self, run: Run, answers: Mapping[Prefix, Answer] | None = None):
        """`answers` are additional ones from the same models and settings."""
        self.run = run
        self.drafted = drafted(run)
        self.rules: Mapping[str, Rule] = rules_and(rule_named(run.settings.rule))
        """By name, including rules that cannot judge the run."""
        self.opinions: Mapping[str, Judgement] = {name: opinion(rule, run) for name, rule in self.rules.items()}
        self._answers = {**(answers or {}), **known_answers(run)}
        after = lru_cache(1)(partial(moved, run))
        laws = lru_cache(1)(partial(node_laws, run))  # the same for all numbers of children
        self.ruling = lru_cache(_REMEMBERED)(lambda name, dial: ruling(self.opinions[name], dial))
        self.local_row = lru_cache(_REMEMBERED)(lambda name, dial: rule_row(self.ruling(name, dial), self.drafted))
        self.walk = lru_cache(_REMEMBERED)(self._walk)
        self.row = lru_cache(_REMEMBERED)(self._row)
        self.shifted = lru_cache(_REMEMBERED)(lambda name, dial, c: compared(self.ruling(name, dial), c, after(c)))
        self.branching = lru_cache(MOST_CHILDREN)(lambda children: branching_by(laws(), children))

    @property
    def able(self) -> tuple[str, ...]:
        """Names of the rules that can judge the run."""
        return tuple(name for name, judgement in self.opinions.items() if not judgement.lacks)

    def equivalents(self, name: str, dial: float | None) -> dict[str, Equivalent]:
        """Return, for every other able rule, the setting nearest to this rule at this dial value."""
        like = self.ruling(name, dial)
        return {other: equivalent(self.opinions[other], like) for other in self.able if other != name}

    def stands(self, dials: Mapping[str, float | None]) -> tuple[Stand, ...]:
        """Return every rule at its dial value and at its strict end: the walks needed for exact rows."""
        stands = [Stand(self.rules[name], dial) for name, dial in dials.items()]
        ends = [Stand(stand.rule, self._strict(stand.rule.name)) for stand in stands]
        return tuple(dict.fromkeys([*stands, *ends]))

    def against_strict(self, name: str, dial: float | None) -> AgainstStrict:
        """Return the rows of the rule and of its strict end on the same basis."""
        end = self._strict(name)
        walked = self.walk(name, dial) is not None and self.walk(name, end) is not None
        row = self.row if walked else self.local_row
        return AgainstStrict(row(name, dial), row(name, end), walked)

    def _strict(self, name: str) -> float | None:
        dial = self.rules[name].dial
        return None if dial is None else dial.strict

    def _walk(self, name: str, dial: float | None) -> RuleWalk | None:
        """Return the rule's complete walk at this dial value, or None if an answer is missing."""
        run, stand = self.run, Stand(self.rules[name], dial)
        walk = RuleWalk.along(stand, run.prompt_ids, ending_of(run), self._answers)
        return walk if walk.finished else None

    def _row(self, name: str, dial: float | None) -> RuleRow:
        """Return an exact row if the walks of the rule and its strict end are known, otherwise a block-local one."""
        walk, strict = self.walk(name, dial), self.walk(name, self._strict(name))
        if walk is None or strict is None:
            return self.local_row(name, dial)
        walked = replace(self.run.unmapped, rounds=walk.rounds)
        text = walked.trace.recorded_text
        kept = walked.trace.in_text(text)
        place = first_difference(walk.token_ids, strict.token_ids)
        strictly = walked.trace.verdicts.keep_strict
        return _row(walk.stand.rule, dial, text.lengths, kept, strictly, drafted(walked), Basis.EXACT, place)
