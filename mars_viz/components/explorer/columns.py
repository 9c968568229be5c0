"""Convert the columns of a trace to the browser's format.

Nodes and rows of all rounds are concatenated; a round of N nodes has N + 1 rows. Columns named `top_` have up to `TOP`
entries per line. Tokens are indices into a vocabulary. A column is None if it adds no information, because there are no
breakpoints.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mars_viz.records import Verdicts
from mars_viz.trace import Trace

TOP = 10  # candidates per row that the inspector shows

Columns = dict[str, Any]  # arrays and their descriptions by name


class Rounds:
    """The columns of a trace: with `evidence` all that the inspector shows, otherwise those for text and overlays."""

    def __init__(self, trace: Trace, evidence: bool):
        self._verdicts, self._all, self._evidence = trace.verdicts, trace.speculations.whole, evidence
        self._parents = trace.parents
        self._emitted = {"below": self._verdicts.emit_below, "above": self._verdicts.emit_above}
        self._tops: dict[str, np.ndarray] = {}
        if evidence:
            self._tops = {"rows": self._all.top_ids[:, :TOP].ravel(), "nodes": self._all.draft_ids[:, :TOP].ravel()}
        mentioned = (self._all.tokens, *self._emitted.values(), *self._tops.values())
        self.vocabulary = np.unique(np.concatenate(mentioned).astype(np.int64))
        """int64 [V]; every token id that occurs in the columns, ascending."""

    def nodes(self) -> Columns:
        """Return the columns of all drafted tokens."""
        drafts = self._all
        columns = verdict_columns(self._verdicts) | {
            "token": self._indices(drafts.tokens),
            "parent": self._parents.astype(np.int16),
            "depth": drafts.depths.astype(np.uint8),
            "p": drafts.p,
            "top": self._width(drafts.draft_ids),
        }
        if not self._evidence:
            return columns
        return columns | {
            "z": drafts.z,
            "q": drafts.q,
            "rank": drafts.ranks,
            "coin": drafts.coins.astype(np.float32),
            "logsumexp": drafts.draft_logsumexp,
            "top_token": self._indices(self._tops["nodes"]),
            "top_logit": drafts.draft_logits[:, :TOP].ravel(),
            "extras": self._extras(len(drafts)),
        }

    def rows(self) -> Columns:
        """Return the columns of all target distributions and of the tokens emitted there."""
        drafts, breakpoints = self._all, _or_none(self._verdicts.row_breakpoints)
        columns: Columns = {
            "breakpoint": breakpoints,
            "ratio": drafts.ratio.astype(np.float32),
            "margin": drafts.margin.astype(np.float32),
            "entropy": drafts.entropy,
            "top": self._width(drafts.top_ids),
        }
        for side, emitted in self._emitted.items():
            informative = side == "above" or breakpoints is not None
            columns[f"emit_{side}"] = self._indices(emitted) if informative else None
            columns[f"p_{side}"] = drafts.emitted_chances(emitted) if informative else None
        if not self._evidence:
            return columns
        return columns | {
            "logsumexp": drafts.logsumexp,
            "top_token": self._indices(self._tops["rows"]),
            "top_logit": drafts.top_logits[:, :TOP].ravel(),
            "extras": self._extras(len(drafts.top_ids)),
        }

    def _extras(self, count: int) -> list[Columns]:
        """Return the columns of length `count` in the run's file that this version does not know."""
        return [
            {"name": name, "values": values.astype(np.float64)}
            for name, values in self._all.extras.items()
            if len(values) == count
        ]

    def _indices(self, tokens: np.ndarray) -> np.ndarray:
        """Map token ids to indices of the vocabulary; uint16 or int32."""
        kind = np.uint16 if len(self.vocabulary) <= 1 << 16 else np.int32
        return np.searchsorted(self.vocabulary, tokens).astype(kind)

    def _width(self, lists: np.ndarray) -> int:
        return min(TOP, lists.shape[1]) if len(self._all.top_ids) else 0


def verdict_columns(verdicts: Verdicts) -> Columns:
    """Return breakpoints, starts of gaps, and a bit mask: 1 kept below, 2 kept above, 4 kept at the strict end."""
    bits = (verdicts.keep_below, verdicts.keep_above, verdicts.keep_strict)
    below, above, strict = (keep.astype(np.uint8) for keep in bits)
    return {
        "breakpoint": _or_none(verdicts.breakpoints),
        "gap": verdicts.gap_from,
        "keep": below | above << 1 | strict << 2,
    }


def _or_none(breakpoints: np.ndarray) -> np.ndarray | None:
    return breakpoints if np.isfinite(breakpoints).any() else None
