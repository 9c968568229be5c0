"""A trace's columns as the browser wants them.

Knows traces; knows no runs, no rules and no browser. Nodes and rows of all rounds stand one after the other; a round
of N nodes has N + 1 rows. Columns named `top_` have `TOP` entries a line, or fewer where fewer were recorded. Tokens
are indices into a vocabulary. A column is None where it says nothing: no breakpoints, or both sides of them the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mars_viz.records import Verdicts
from mars_viz.trace import Trace

TOP = 10
"""Candidates per row that the inspector shows."""

Columns = dict[str, Any]
"""Arrays by name, and what is said of them."""


class Rounds:
    """The columns of a trace; with `evidence` all that the inspector shows, else what text and overlays need."""

    def __init__(self, trace: Trace, evidence: bool):
        self._verdicts, self._all, self._evidence = trace.verdicts, trace.speculations.whole, evidence
        self._parents = trace.parents
        self._emitted = {"below": self._verdicts.emit_below, "above": self._verdicts.emit_above}
        self._tops: dict[str, np.ndarray] = {}
        if evidence:
            self._tops = {"rows": self._all.top_ids[:, :TOP].ravel(), "nodes": self._all.draft_ids[:, :TOP].ravel()}
        mentioned = (self._all.tokens, *self._emitted.values(), *self._tops.values())
        self.vocabulary = np.unique(np.concatenate(mentioned).astype(np.int64))
        """int64 [P]; every token id that the columns mention, ascending."""

    def nodes(self) -> Columns:
        """What there is to know of every drafted token."""
        known = self._all
        columns = verdict_columns(self._verdicts) | {
            "token": self._indices(known.tokens),
            "parent": self._parents.astype(np.int16),
            "depth": known.depths.astype(np.uint8),
            "p": known.p,
            "top": self._width(known.draft_ids),
        }
        if not self._evidence:
            return columns
        return columns | {
            "z": known.z,
            "q": known.q,
            "rank": known.ranks,
            "coin": known.coins.astype(np.float32),
            "logsumexp": known.draft_logsumexp,
            "top_token": self._indices(self._tops["nodes"]),
            "top_logit": known.draft_logits[:, :TOP].ravel(),
            "extras": self._extras(len(known)),
        }

    def rows(self) -> Columns:
        """What there is to know of every law of the target, and of what is emitted there."""
        known, breakpoints = self._all, _or_none(self._verdicts.row_breakpoints)
        columns: Columns = {
            "breakpoint": breakpoints,
            "ratio": known.ratio.astype(np.float32),
            "margin": known.margin.astype(np.float32),
            "entropy": known.entropy,
            "top": self._width(known.top_ids),
        }
        for side, emitted in self._emitted.items():
            says = side == "above" or breakpoints is not None
            columns[f"emit_{side}"] = self._indices(emitted) if says else None
            columns[f"p_{side}"] = known.emitted_chances(emitted) if says else None
        if not self._evidence:
            return columns
        return columns | {
            "logsumexp": known.logsumexp,
            "top_token": self._indices(self._tops["rows"]),
            "top_logit": known.top_logits[:, :TOP].ravel(),
            "extras": self._extras(len(known.top_ids)),
        }

    def _extras(self, count: int) -> list[Columns]:
        """Of so many nodes, or rows, what the run's file holds and this version does not know."""
        return [
            {"name": name, "values": values.astype(np.float64)}
            for name, values in self._all.extras.items()
            if len(values) == count
        ]

    def _indices(self, tokens: np.ndarray) -> np.ndarray:
        """Token ids as indices of the vocabulary; uint16 or int32."""
        kind = np.uint16 if len(self.vocabulary) <= 1 << 16 else np.int32
        return np.searchsorted(self.vocabulary, tokens).astype(kind)

    def _width(self, lists: np.ndarray) -> int:
        return min(TOP, lists.shape[1]) if len(self._all.top_ids) else 0


def verdict_columns(verdicts: Verdicts) -> Columns:
    """Breakpoints, where gaps begin, and as bits of one number: 1 kept below, 2 above, 4 at the strict end."""
    bits = (verdicts.keep_below, verdicts.keep_above, verdicts.keep_strict)
    below, above, strict = (keep.astype(np.uint8) for keep in bits)
    return {
        "breakpoint": _or_none(verdicts.breakpoints),
        "gap": verdicts.gap_from,
        "keep": below | above << 1 | strict << 2,
    }


def _or_none(breakpoints: np.ndarray) -> np.ndarray | None:
    return breakpoints if np.isfinite(breakpoints).any() else None
