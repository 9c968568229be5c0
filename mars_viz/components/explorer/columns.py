"""Many rounds as columns: an array for each quantity, all rounds end to end.

Knows records; knows no runs, no rules and no browser. Nodes and rows of all rounds stand one after the other; a round
of N nodes has N + 1 rows. Columns named `top_` have `TOP` entries a line, or fewer where fewer were recorded. Tokens
are indices into a vocabulary. A column is None where it says nothing: no breakpoints, or both sides of them the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mars_viz.records import Round, Speculation, Verdicts

TOP = 10
"""Candidates per row that the inspector shows."""

Columns = dict[str, Any]
"""Arrays by name, and what is said of them."""
Read = Callable[[Round], np.ndarray]


class Rounds:
    """The columns of these rounds; with `evidence` all that the inspector shows, else what text and overlays need."""

    def __init__(self, rounds: Sequence[Round], evidence: bool):
        self._all = rounds
        self._evidence = evidence
        self._of = [round_.speculation for round_ in rounds]
        self._tokens = self._column(lambda s: s.tokens)
        self._emitted = {side: self._joined(_emits(side)) for side in ("below", "above")}
        self._tops: dict[str, np.ndarray] = {}
        if evidence:
            self._tops = {
                "rows": self._column(lambda s: s.top_ids[:, :TOP].ravel()),
                "nodes": self._column(lambda s: s.draft_ids[:, :TOP].ravel()),
            }
        mentioned = (self._tokens, *self._emitted.values(), *self._tops.values())
        self.vocabulary = np.unique(np.concatenate(mentioned).astype(np.int64))
        """int64 [P]; every token id that the columns mention, ascending."""

    def nodes(self) -> Columns:
        """What there is to know of every drafted token."""
        columns = verdict_columns([round_.verdicts for round_ in self._all]) | {
            "token": self._indices(self._tokens),
            "parent": self._column(lambda s: s.parents).astype(np.int16),
            "depth": self._column(lambda s: s.depths).astype(np.uint8),
            "p": self._column(lambda s: s.p),
            "top": self._width(lambda s: s.draft_ids),
        }
        if not self._evidence:
            return columns
        return columns | {
            "z": self._column(lambda s: s.z),
            "q": self._column(lambda s: s.q),
            "rank": self._column(lambda s: s.ranks),
            "coin": self._column(lambda s: s.coins).astype(np.float32),
            "logsumexp": self._column(lambda s: s.draft_logsumexp),
            "top_token": self._indices(self._tops["nodes"]),
            "top_logit": self._column(lambda s: s.draft_logits[:, :TOP].ravel()),
        }

    def rows(self) -> Columns:
        """What there is to know of every law of the target, and of what is emitted there."""
        best = self._column(lambda s: s.top_logits[:, :2]).astype(np.float64).reshape(-1, 2)
        z1, z2 = best[:, 0], best[:, 1]
        breakpoints = _or_none(self._joined(lambda round_: round_.verdicts.row_breakpoints))
        columns: Columns = {
            "breakpoint": breakpoints,
            "ratio": np.divide(z2, z1, out=np.full_like(z1, np.nan), where=z1 != 0).astype(np.float32),
            "margin": (z1 - z2).astype(np.float32),
            "entropy": self._column(lambda s: s.entropy),
            "top": self._width(lambda s: s.top_ids),
        }
        emissions, p = self._column(lambda s: s.emissions), self._column(lambda s: s.emission_p)
        for side, emitted in self._emitted.items():
            says = side == "above" or breakpoints is not None
            columns[f"emit_{side}"] = self._indices(emitted) if says else None
            columns[f"p_{side}"] = _chance(emissions, p, emitted) if says else None
        if not self._evidence:
            return columns
        return columns | {
            "logsumexp": self._column(lambda s: s.logsumexp),
            "top_token": self._indices(self._tops["rows"]),
            "top_logit": self._column(lambda s: s.top_logits[:, :TOP].ravel()),
        }

    def _column(self, read: Callable[[Speculation], np.ndarray]) -> np.ndarray:
        return _end_to_end(map(read, self._of))

    def _joined(self, read: Read) -> np.ndarray:
        return _end_to_end(map(read, self._all))

    def _indices(self, tokens: np.ndarray) -> np.ndarray:
        """Token ids as indices of the vocabulary; uint16 or int32."""
        kind = np.uint16 if len(self.vocabulary) <= 1 << 16 else np.int32
        return np.searchsorted(self.vocabulary, tokens).astype(kind)

    def _width(self, read: Callable[[Speculation], np.ndarray]) -> int:
        return min(TOP, read(self._of[0]).shape[1]) if self._of else 0


def verdict_columns(verdicts: Sequence[Verdicts]) -> Columns:
    """Breakpoints, where gaps begin, and as bits of one number: 1 kept below, 2 above, 4 at the strict end."""
    below, above, strict = (
        _end_to_end(getattr(found, f"keep_{name}") for found in verdicts).astype(np.uint8)
        for name in ("below", "above", "strict")
    )
    gapless = all(found.gap_from is None for found in verdicts)
    return {
        "breakpoint": _or_none(_end_to_end(found.breakpoints for found in verdicts)),
        "gap": None if gapless else _end_to_end(found.gaps for found in verdicts),
        "keep": below | above << 1 | strict << 2,
    }


def _emits(side: str) -> Read:
    def read(round_: Round) -> np.ndarray:
        found: np.ndarray = getattr(round_.verdicts, f"emit_{side}")
        return found

    return read


def _chance(emissions: np.ndarray, p: np.ndarray, emitted: np.ndarray) -> np.ndarray:
    """float32 [rows]; the target's probability of each row's emitted token; NaN if it is none of the candidates."""
    if not len(emitted):
        return np.zeros(0, np.float32)
    hits = emissions == emitted[:, None]  # [rows, 5]
    found = p[np.arange(len(emitted)), hits.argmax(axis=1)]
    return np.where(hits.any(axis=1), found, np.nan).astype(np.float32)


def _or_none(breakpoints: np.ndarray) -> np.ndarray | None:
    return breakpoints if np.isfinite(breakpoints).any() else None


def _end_to_end(parts: Iterable[np.ndarray]) -> np.ndarray:
    found = list(parts)
    return np.concatenate(found) if found else np.zeros(0)
