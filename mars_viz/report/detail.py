"""How much a report says of the texts beside its first one.

Knows the explorer's payload; knows no HTML. The first text, which the run was recorded with, is always whole: every
candidate, every rule. Of the other texts of the dial map a report can say less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.components.explorer.columns import TOP, Columns
from mars_viz.components.explorer.payload import Payload

UNSAID = 8
"""Bit of a rule's `keep` at a node of which the report does not say what the rule makes of it."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What is kept of the texts beside the first."""

    target: int = TOP
    """Candidates of the target at each place."""
    drafter: int = TOP
    """Candidates of the drafter at each place."""
    rules: bool = True
    """True: what every rule says of each drafted token; False: the run's own rule only."""

    @property
    def words(self) -> str:
        """What is left out, in a sentence; empty where nothing is."""
        kept = [f"the {whose} {count} best candidates" for count, whose in self._candidates if 0 < count < TOP]
        gone = [f"the {whose} candidates" for count, whose in self._candidates if not count]
        if not self.rules:
            gone.append("the other rules' verdicts")
        parts = [f"has only {' and '.join(kept)}"] * bool(kept) + [f"leaves out {' and '.join(gone)}"] * bool(gone)
        said = " and ".join(parts)
        return f"To stay small, away from the recorded text this report {said}." if said else ""

    @property
    def _candidates(self) -> tuple[tuple[int, str], ...]:
        return (self.target, "target's"), (self.drafter, "drafter's")


LEVELS = (
    *(Detail(count, count) for count in range(TOP, 1, -1)),
    Detail(2, 0),
    Detail(2, 0, rules=False),
)
"""From everything to the least that every view can be drawn from: figures need the target's two best."""


def levels(payload: Payload) -> tuple[Detail, ...]:
    """What can be left out of a payload, step by step; nothing where it holds no text beside the first."""
    return LEVELS if len(payload["rounds"]["nodes"]) > len(payload["recorded"]) else LEVELS[:1]


def detailed(payload: Payload, detail: Detail) -> Payload:
    """The payload with no more of the texts beside the first than `detail` says."""
    first = payload["rounds"]["nodes"][: len(payload["recorded"])]
    nodes = int(first.sum())
    own = payload["rule"]["name"]
    return payload | {
        "nodes": _cut(payload["nodes"], nodes, detail.drafter),
        "rows": _cut(payload["rows"], nodes + len(first), detail.target),
        "rules": [rule if detail.rules or rule["name"] == own else _unsaid(rule, nodes) for rule in payload["rules"]],
    }


def _cut(columns: Columns, start: int, count: int) -> Columns:
    """The columns with only so many candidates from a line on; of the others the logit is NaN."""
    return columns | {
        name: _blank(columns[name], np.s_[start:, count:], blank, columns["top"])
        for name, blank in (("top_token", 0), ("top_logit", np.nan))
    }


def _unsaid(rule: Columns, start: int) -> Columns:
    """What a rule says up to a node."""
    return rule | {
        name: _blank(rule[name], np.s_[start:], blank)
        for name, blank in (("breakpoint", np.nan), ("gap", np.nan), ("keep", UNSAID))
        if rule[name] is not None
    }


def _blank(column: np.ndarray, where: Any, blank: float, width: int = 1) -> np.ndarray:
    """A copy that says nothing there; a line has `width` numbers."""
    told = column.copy()
    told.reshape(-1, max(width, 1))[where] = blank
    return told
