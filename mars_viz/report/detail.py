"""How much a report says of the texts beside its first one, and what it says so.

Knows the columns of the explorer's payload; knows no HTML. The first text, which the run was recorded with, is always
whole: every number exact, every candidate, every rule. What the other texts of the dial map say can be made leaner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.components.explorer.columns import TOP, Columns
from mars_viz.components.explorer.payload import Payload
from mars_viz.report.parcel import Decimals, as_shown, to_decimals

UNSAID = 8
"""Bit of a rule's `keep` at a node of which the report does not say what the rule makes of it."""
LOGIT_DECIMALS = 3
"""Of rounded logits, so that a probability made from them has three digits."""


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
        parts = [f"has only {' and '.join(kept)}"] * bool(kept) + [f"leaves out {', '.join(gone)}"] * bool(gone)
        return f"To stay small, away from the recorded text this report {' and '.join(parts)}." if parts else ""

    @property
    def _candidates(self) -> tuple[tuple[int, str], ...]:
        return (self.target, "target's"), (self.drafter, "drafter's")


LEVELS = (
    Detail(),
    Detail(rounded=True),
    Detail(rounded=True, target=5, drafter=5),
    Detail(rounded=True, target=5, drafter=5, rules=False),
    Detail(rounded=True, target=3, drafter=2, rules=False),
    Detail(rounded=True, target=3, drafter=0, rules=False),
    Detail(rounded=True, target=2, drafter=0, rules=False),
    Detail(rounded=True, target=0, drafter=0, rules=False),
)
"""From everything to the least that every view can be drawn from."""


def detailed(payload: Payload, detail: Detail) -> Payload:
    """The payload with no more of the texts beside the first than `detail` says.

    An array that is rounded is `{"type": numpy dtype, "parts": [the first text's, the others']}`.
    """
    counts, first = payload["rounds"]["nodes"], len(payload["recorded"])
    nodes = int(counts[:first].sum())
    if detail == Detail() or first == len(counts):
        return payload
    own = payload["rule"]["name"]
    return payload | {
        "nodes": _lean(payload["nodes"], nodes, detail.drafter),
        "rows": _lean(payload["rows"], nodes + first, detail.target),
        "rules": [rule if detail.rules or rule["name"] == own else _unsaid(rule, nodes) for rule in payload["rules"]],
    }


def _lean(columns: Columns, first: int, candidates: int) -> Columns:
    """Round what follows the first text, and cut its lists of candidates."""
    width, lean = columns["top"], dict(columns)
    for name, values in columns.items():
        if not isinstance(values, np.ndarray) or values.dtype.name not in ("float32", "uint16", "int32"):
            continue
        lists = name.startswith("top_")
        start = first * width if lists else first
        whole, rest = values[:start], values[start:]
        if lists:
            rest = rest.reshape(-1, width).copy()
            rest[:, candidates:] = np.nan if name == "top_logit" else 0
            rest = rest.ravel()
        if name in ("z", "logsumexp") and not candidates:
            rest = np.full_like(rest, np.nan)  # only needed beside candidates
        told: np.ndarray | Decimals = rest
        if rest.dtype == np.float32:
            fine = name in ("top_logit", "z", "logsumexp")
            told = to_decimals(rest, LOGIT_DECIMALS) if fine else as_shown(rest)
        lean[name] = {"type": values.dtype.name, "parts": [whole, told]}
    return lean


def _unsaid(rule: Columns, first: int) -> Columns:
    said = dict(rule)
    for name, blank in (("breakpoint", np.nan), ("gap", np.nan), ("keep", UNSAID)):
        if rule[name] is not None:
            said[name] = rule[name].copy()
            said[name][first:] = blank
    return said
