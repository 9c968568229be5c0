"""All rules before one run: each is asked once, and settled once for a dial value.

Knows rules and rulings; knows no figures and no browser. It remembers what it was asked, since a page asks again and
again while one dial of many moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mars_viz.analysis.drafted import drafted
from mars_viz.analysis.equivalents import Equivalent, equivalent
from mars_viz.analysis.opinions import Opinion, Ruling, opinion, ruling
from mars_viz.analysis.rule_table import RuleRow, rule_row
from mars_viz.analysis.shift import Shifted, compared
from mars_viz.rules import RULES
from mars_viz.run import Run

_REMEMBERED = 256


class Panel:
    """Every rule of the registry, and what each says of a run."""

    def __init__(self, run: Run):
        self.run = run
        self.drafted = drafted(run)
        self.opinions: Mapping[str, Opinion] = {name: opinion(rule, run) for name, rule in RULES.items()}
        self.ruling = lru_cache(_REMEMBERED)(self._ruling)
        self.row = lru_cache(_REMEMBERED)(self._row)
        self.shifted = lru_cache(_REMEMBERED)(self._shifted)

    @property
    def able(self) -> tuple[str, ...]:
        """Names of the rules that can judge the run."""
        return tuple(name for name, found in self.opinions.items() if not found.lacks)

    def equivalents(self, name: str, dial: float | None) -> dict[str, Equivalent]:
        """The nearest setting of every other rule that can judge, to this rule at this dial value."""
        like = self.ruling(name, dial)
        return {other: equivalent(self.opinions[other], like) for other in self.able if other != name}

    def _ruling(self, name: str, dial: float | None) -> Ruling:
        return ruling(self.opinions[name], dial)

    def _row(self, name: str, dial: float | None) -> RuleRow:
        return rule_row(self.ruling(name, dial), self.drafted)

    def _shifted(self, name: str, dial: float | None, c: float) -> Shifted:
        return compared(self.ruling(name, dial), c)
