"""All rules before one run: each is asked once, and settled once for a dial value.

Knows rules, rulings and walks; knows no figures and no browser. It remembers what it was asked, since a page asks again
and again while one dial of many moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from mars_viz.analysis.equivalents import Equivalent, equivalent
from mars_viz.analysis.flat_positions import drafted
from mars_viz.analysis.judgements import Judgement, Ruling, opinion, ruling
from mars_viz.analysis.rule_table import RuleRow, rule_row, walked_row
from mars_viz.analysis.shift import Shifted, compared, moved
from mars_viz.multi_rule_walk import Prefix, RuleWalk, Stand, ahead
from mars_viz.replay import ending_of
from mars_viz.rules import Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.run_with_map import known_answers
from mars_viz.walk import Answer

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

    def _shifted(self, name: str, dial: float | None, c: float) -> Shifted:
        return compared(self.ruling(name, dial), c, self._moved(c))
