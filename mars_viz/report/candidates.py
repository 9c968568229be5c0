"""Candidates' tokens in few bytes: as places in lists that the page keeps as well. `lean.js` undoes it.

Knows the shape of the explorer's payload; knows no laws and no logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.components.explorer.payload import Payload

MOST_RECENT = 250
"""Tokens that are remembered for each token before them."""
NEW = 0
"""Place of a token that is none of the remembered; the others count from 1."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Where the texts beside the first begin, and how their nodes and rows hang together."""

    nodes: int
    """First node of theirs."""
    rows: int
    """First row of theirs."""
    judge: np.ndarray
    """int64 [n]; the row that judges each of their nodes, counted from `rows`."""
    before: np.ndarray
    """int64 [m]; the node, counted from `nodes`, whose token is before each of their rows; -1 at a round's start."""

    @classmethod
    def of(cls, payload: Payload) -> Rest:
        """Of a payload."""
        counts, first = payload["rounds"]["nodes"].astype(np.int64), len(payload["recorded"])
        nodes = int(counts[:first].sum())
        counts = counts[first:]
        starts = np.cumsum(counts) - counts  # first node of each round
        round_of = np.repeat(np.arange(len(counts)), counts)
        judge = starts[round_of] + round_of + payload["nodes"]["parent"][nodes:] + 1
        before = np.full(int(counts.sum()) + len(counts), -1)
        before[np.arange(len(round_of)) + round_of + 1] = np.arange(len(round_of))
        return cls(nodes, nodes + first, judge, before)


@dataclass(frozen=True, slots=True)
class Places:
    """Candidates' tokens, coded."""

    target: dict[str, Any]
    """The target's."""
    drafter: dict[str, Any]
    """The drafter's."""


class Candidates:
    """Tokens as places in the list of those that were candidates lately, after the same token.

    The target's come first. The drafter's are looked for behind the drafted token and the target's, which are at the
    front by then.
    """

    def __init__(self, rest: Rest, drafted: np.ndarray):
        self._before = np.where(rest.before < 0, -1, drafted[rest.before]).tolist()
        order = np.argsort(rest.judge, kind="stable")
        ends = np.searchsorted(rest.judge[order], np.arange(len(rest.before) + 1))
        self._order, self._ends = order.tolist(), ends.tolist()
        self._drafted = drafted.tolist()

    def of(self, target: np.ndarray, drafter: np.ndarray) -> Places:
        """[rows, candidates] and [nodes, candidates], both coded."""
        ours, theirs = target.tolist(), drafter.tolist()
        found = {"target": _Coded(target.shape), "drafter": _Coded(drafter.shape)}
        recent: dict[int, list[int]] = {}
        for row, before in enumerate(self._before):
            known = recent.setdefault(before, [])
            found["target"].put(row, ours[row], known)
            for node in self._order[self._ends[row] : self._ends[row + 1]]:
                token = self._drafted[node]
                if token in known:
                    known.remove(token)
                known.insert(0, token)
                found["drafter"].put(node, theirs[node], known)
            del known[MOST_RECENT:]
        return Places(found["target"].told, found["drafter"].told)


class _Coded:
    """Rows of tokens, each as its place in a list of which it then stands at the front."""

    def __init__(self, shape: tuple[int, ...]):
        self._places = np.zeros(shape, np.uint8)
        self._new: list[int] = []

    def put(self, row: int, tokens: Sequence[int], known: list[int]) -> None:
        for column, token in enumerate(tokens):
            try:
                place = known.index(token, column, MOST_RECENT)
            except ValueError:
                self._new.append(token)
            else:
                self._places[row, column] = place - column + 1
                del known[place]
            known.insert(column, token)

    @property
    def told(self) -> dict[str, Any]:
        """Column by column."""
        return {"place": list(self._places.T.copy()), "new": np.array(self._new, np.int32)}
