"""Chains whose evidence is worked on later, those of several rounds together, in place of a round's few at a time.

Knows chains and the order of things; what is computed is `standing`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mars_viz.records import Speculation
from mars_viz.run import Settings
from mars_viz.speculators.build_records import completed
from mars_viz.speculators.draft_batch import Seen
from mars_viz.speculators.logit_stats import standing
from mars_viz.speculators.sampling import to_host
from mars_viz.speculators.tree_columns import TREE_COLUMNS, tree_columns

TURNS = 4
"""How often as many as are worked on at once are worked on when the time has come: the first turn finds neither code
nor memory in the processor's caches, which the models' weights have gone through."""


class Waiting:
    """Holds what was only decided, until there is enough to work on, or somebody asks for all that there is."""

    def __init__(self, settings: Settings) -> None:
        """None so far."""
        self._settings = settings
        self._seen: list[Seen] = []
        self._records: list[Speculation] = []
        self._completed: dict[Speculation, Speculation] = {}

    def take(self, seen: Seen, made: Sequence[Speculation]) -> None:
        """Take chains and their records, to be completed."""
        if self._seen and self._seen[0].blocks.tokens.shape[1] != seen.blocks.tokens.shape[1]:
            self._work()
        self._seen.append(seen)
        self._records += made
        if len(self._records) >= TURNS * seen.blocks.seats:
            self._work()

    def complete(self, speculations: Sequence[Speculation]) -> list[Speculation]:
        """Of each of them the record with all columns, which is handed out once; itself where it has them already."""
        self._work()
        return [self._completed.pop(speculation, speculation) for speculation in speculations]

    def _of_trees(self, seen: Sequence[Seen]) -> dict[str, Tensor]:
        """The columns that rules for trees alone read, where no decision asked for them."""
        found: list[dict[str, Tensor]] = []
        for one in seen:
            if one.drawn is None or one.blocks.trees is None:
                return {}
            found.append(tree_columns(one.blocks, self._settings, one.drawn, TREE_COLUMNS.difference(one.found)))
        return {name: torch.cat([columns[name] for columns in found]) for name in found[0]}

    def _work(self) -> None:
        """Complete all that wait."""
        while self._seen:
            count, chains = 0, 0
            while count < len(self._seen) and chains < self._seen[0].blocks.seats:
                chains += len(self._seen[count].blocks.starts)
                count += 1
            together, unfinished = self._seen[:count], self._records[:chains]
            found = to_host(standing(together, self._settings, apart=True) | self._of_trees(together))
            self._completed |= zip(unfinished, completed(unfinished, self._settings, found), strict=True)
            self._seen, self._records = self._seen[count:], self._records[chains:]
