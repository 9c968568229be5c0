"""Reduce the evidence of a report for texts other than the recorded one.

The recorded text always has all candidates and all rules. The other texts of the dial map may have less evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.components.explorer.payload import TOP, Columns, Payload

UNSAID = 8  # bit of a rule's `keep` for nodes without that rule's verdict


@dataclass(frozen=True, slots=True)
class Detail:
    """The evidence to keep for texts other than the first."""

    target: int = TOP  # target candidates per row
    drafter: int = TOP  # drafter candidates per node
    rules: bool = True  # True for the verdicts of all rules; False for the run's rule only

    @property
    def words(self) -> str:
        """A sentence on the omissions; empty if there are none."""
        kept = [f"the {whose} {count} best candidates" for count, whose in self._candidates if 0 < count < TOP]
        omitted = [f"the {whose} candidates" for count, whose in self._candidates if not count]
        if not self.rules:
            omitted.append("the other rules' verdicts")
        parts = [f"has only {' and '.join(kept)}"] * bool(kept) + [f"leaves out {' and '.join(omitted)}"] * bool(
            omitted
        )
        omissions = " and ".join(parts)
        return f"To stay small, away from the recorded text this report {omissions}." if omissions else ""

    @property
    def _candidates(self) -> tuple[tuple[int, str], ...]:
        return (self.target, "target's"), (self.drafter, "drafter's")


LEVELS = (
    *(Detail(count, count) for count in range(TOP, 1, -1)),
    Detail(2, 0),
    Detail(2, 0, rules=False),
)
"""From full detail to the minimum for all views; figures need the target's two best candidates."""


def levels(payload: Payload) -> tuple[Detail, ...]:
    """Return the levels of detail of a payload, in order; only full detail if it contains no other text."""
    return LEVELS if len(payload["rounds"]["nodes"]) > len(payload["recorded"]) else LEVELS[:1]


def detailed(payload: Payload, detail: Detail) -> Payload:
    """Return the payload with reduced evidence for texts other than the first."""
    first = payload["rounds"]["nodes"][: len(payload["recorded"])]
    nodes = int(first.sum())
    run_rule = payload["rule"]["name"]
    return payload | {
        "nodes": _cut(payload["nodes"], nodes, detail.drafter),
        "rows": _cut(payload["rows"], nodes + len(first), detail.target),
        "rules": [
            rule if detail.rules or rule["name"] == run_rule else _unsaid(rule, nodes) for rule in payload["rules"]
        ],
    }


def _cut(columns: Columns, start: int, count: int) -> Columns:
    """Keep `count` candidates per row from `start` on; the logits of the others become NaN."""
    return columns | {
        name: _blank(columns[name], np.s_[start:, count:], blank, columns["top"])
        for name, blank in (("top_token", 0), ("top_logit", np.nan))
    }


def _unsaid(rule: Columns, start: int) -> Columns:
    """Keep a rule's verdicts up to a node."""
    return rule | {
        name: _blank(rule[name], np.s_[start:], blank)
        for name, blank in (("breakpoint", np.nan), ("gap", np.nan), ("keep", UNSAID))
        if rule[name] is not None
    }


def _blank(column: np.ndarray, where: Any, blank: float, width: int = 1) -> np.ndarray:
    """Return a copy with blanks at `where`; a row has `width` numbers."""
    copy = column.copy()
    copy.reshape(-1, max(width, 1))[where] = blank
    return copy
