"""How much a report says of the texts beside its first one, and what it says so.

Knows the explorer's payload; knows no HTML. The first text, which the run was recorded with, is always whole: every
number exact, every candidate, every rule. What the other texts of the dial map say can be made leaner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.components.explorer.columns import TOP, Columns
from mars_viz.components.explorer.payload import Payload
from mars_viz.report.lean import lean

UNSAID = 8
"""Bit of a rule's `keep` at a node of which the report does not say what the rule makes of it."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What is kept of the texts beside the first."""

    rounded: bool = False
    """True: numbers have the digits that are shown, no more."""
    target: int = TOP
    """Candidates of the target at each place."""
    drafter: int = TOP
    """Candidates of the drafter at each place."""
    rules: bool = True
    """True: what every rule says of each drafted token; False: the run's own rule only."""

    @property
    def words(self) -> str:
        """What is left out, in a sentence; empty where nothing is."""
        if self == Detail(rounded=True):
            return "Away from the recorded text numbers are rounded to the digits shown."
        kept = [f"the {whose} {count} best candidates" for count, whose in self._candidates if 0 < count < TOP]
        gone = [f"the {whose} candidates" for count, whose in self._candidates if not count]
        if not self.rules:
            gone.append("the other rules' verdicts")
        parts = [f"has only {' and '.join(kept)}"] * bool(kept) + [f"leaves out {' and '.join(gone)}"] * bool(gone)
        if self.rounded:
            parts.append("rounds numbers to the digits shown")
        *most, last = parts or [""]
        said = f"{', '.join(most)} and {last}" if most else last
        return f"To stay small, away from the recorded text this report {said}." if said else ""

    @property
    def _candidates(self) -> tuple[tuple[int, str], ...]:
        return (self.target, "target's"), (self.drafter, "drafter's")


LEVELS = (
    Detail(),
    *(Detail(rounded=True, target=count, drafter=count) for count in (TOP, 9, 8, 7, 6, 5, 4, 3, 2)),
    Detail(rounded=True, target=3, drafter=0, rules=False),
    Detail(rounded=True, target=2, drafter=0, rules=False),
    Detail(rounded=True, target=0, drafter=0, rules=False),
)
"""From everything to the least that every view can be drawn from."""


def detailed(payload: Payload, detail: Detail) -> Payload:
    """The payload with no more of the texts beside the first than `detail` says; `lean.js` makes columns of it.

    What the rules keep is told once for each pattern that occurs, `together`.
    """
    counts, first = payload["rounds"]["nodes"], len(payload["recorded"])
    own, nodes = payload["rule"]["name"], int(counts[:first].sum())
    rules = [rule if detail.rules or rule["name"] == own else _unsaid(rule, nodes) for rule in payload["rules"]]
    payload = payload | _together(rules)
    return payload if not detail.rounded or first == len(counts) else lean(payload, detail.target, detail.drafter)


def _unsaid(rule: Columns, first: int) -> Columns:
    said = dict(rule)
    for name, blank in (("breakpoint", np.nan), ("gap", np.nan), ("keep", UNSAID)):
        if rule[name] is not None:
            said[name] = rule[name].copy()
            said[name][first:] = blank
    return said


def _together(rules: list[Columns]) -> Payload:
    """Rules agree mostly, so there are few patterns of what all of them keep."""
    if not rules:
        return {"rules": rules}
    keeps = np.stack([rule["keep"] for rule in rules], axis=1)  # [nodes, rules]
    patterns, which = np.unique(keeps, axis=0, return_inverse=True)
    which = which.ravel().astype(np.uint16 if len(patterns) <= 1 << 16 else np.int32)
    bare = [{name: column for name, column in rule.items() if name != "keep"} for rule in rules]
    return {"rules": bare, "together": {"patterns": patterns.ravel(), "of": which}}
