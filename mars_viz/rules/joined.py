"""Many speculations judged at once: end to end they are one, and a rule's array arithmetic is paid for once.

Knows speculations and rules; knows no runs. What comes out is what `Rule.judge` says of each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from mars_viz.records import Speculation, Verdicts
from mars_viz.rules.base import Rule

_PER_ROW = (
    "top_ids",
    "top_logits",
    "logsumexp",
    "logsumexp_t",
    "entropy",
    "support",
    "emissions",
    "emission_z",
    "emission_p",
    "emission_ranks",
)
_PER_NODE = tuple(
    field.name
    for field in fields(Speculation)
    if field.name not in (*_PER_ROW, "start", "temperature", "sampled", "parents")
)
_CERTAIN = ("p", "q", "q_max", "ranks")


class Joined:
    """Speculations, to be judged by several rules one after the other."""

    def __init__(self, speculations: Sequence[Speculation]):
        self._all = tuple(speculations)

    def judge(self, rule: Rule) -> Verdicts:
        """The verdicts on all nodes and the emissions of all rows, end to end. Raises BadInput where the rule lacks."""
        whole = self._whole
        if whole is None or not self._suits(rule, whole):
            return Verdicts.end_to_end([rule.judge(speculation) for speculation in self._all])
        found = rule.judge_whole(whole)
        nodes = self._nodes
        return replace(
            found,
            breakpoints=found.breakpoints[nodes],
            keep_below=found.keep_below[nodes],
            keep_above=found.keep_above[nodes],
            keep_strict=found.keep_strict[nodes],
            gap_from=None if found.gap_from is None else found.gap_from[nodes],
        )

    def can_judge(self, rule: Rule) -> bool:
        """True if the rule lacks nothing that it needs to judge each of them."""
        if self._whole is not None and self._suits(rule, self._whole):
            return True
        return all(rule.lacks(speculation) is None for speculation in self._all)

    def _suits(self, rule: Rule, whole: Speculation) -> bool:
        """True if the rule can judge all of them as one; chains end to end are chains one after the other."""
        if rule.chains_only and self._chains:
            return rule.lacks_evidence(whole) is None
        return rule.lacks(whole) is None

    @cached_property
    def _chains(self) -> bool:
        """True if none of them is a tree."""
        places = np.arange(int(self._counts.sum())) - np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        return bool((np.concatenate([one.parents for one in self._all]) == places - 1).all())

    @cached_property
    def _counts(self) -> np.ndarray:
        """int64 [R]; nodes of each."""
        return np.array([len(speculation) for speculation in self._all], np.int64)

    @cached_property
    def _nodes(self) -> np.ndarray:
        """bool; False for the nodes between the speculations."""
        real = np.ones(int((self._counts + 1).sum()) - 1, bool)
        real[np.cumsum(self._counts + 1)[:-1] - 1] = False
        return real

    @cached_property
    def _whole(self) -> Speculation | None:
        """All as one; None where they do not go together.

        Row by row they stand one after the other. The row that judges a node is its parent + 1, so before the first
        row of each but the first there must be a node: one that is certain, costs nothing and is nobody's child.
        """
        first = self._all[0] if self._all else None
        if first is None or not len(first) or any(_kind(other) != _kind(first) for other in self._all):
            return None
        starts = np.cumsum([0, *(self._counts[:-1] + 1)])  # [R]; the first row of each
        parents = [one.parents + start for one, start in zip(self._all, starts.tolist(), strict=True)]
        columns: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in self._all]) for name in _PER_ROW}
        columns |= {name: self._spread(name) for name in _PER_NODE}
        whole = np.full(len(self._nodes), -1, np.int32)
        whole[self._nodes] = np.concatenate(parents)
        return replace(first, parents=whole, **columns)

    def _spread(self, name: str) -> np.ndarray:
        """A column of the nodes with room for those between."""
        given = np.concatenate([getattr(one, name) for one in self._all])
        column = np.full((len(self._nodes), *given.shape[1:]), 1 if name in _CERTAIN else 0, given.dtype)
        if name == "z":
            column[:] = self._all[0].z1[0]
        column[self._nodes] = given
        return column


def _kind(speculation: Speculation) -> tuple[object, ...]:
    return speculation.temperature, speculation.sampled, speculation.top_ids.shape[1], speculation.draft_ids.shape[1]
