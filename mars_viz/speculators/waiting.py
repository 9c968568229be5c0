"""Chains whose remaining evidence is computed later, several rounds together instead of a few chains per round."""

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
"""Multiple of the chains processed at once to wait for: the first batch finds neither code nor data in the processor's
caches, because the models' weights have passed through them."""


class Waiting:
    """Holds chains with only decision columns until there is enough work, or all evidence is requested."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: list[Seen] = []
        self._records: list[Speculation] = []
        self._completed: dict[Speculation, Speculation] = {}

    def take(self, seen: Seen, made: Sequence[Speculation]) -> None:
        """Accept chains and their records for later completion."""
        if self._seen and self._seen[0].blocks.tokens.shape[1] != seen.blocks.tokens.shape[1]:
            self._work()
        self._seen.append(seen)
        self._records += made
        if len(self._records) >= TURNS * seen.blocks.seats:
            self._work()

    def complete(self, speculations: Sequence[Speculation]) -> list[Speculation]:
        """Return the record with all columns for each of them, once each; unchanged if it is complete."""
        self._work()
        return [self._completed.pop(speculation, speculation) for speculation in speculations]

    def _of_trees(self, seen: Sequence[Seen]) -> dict[str, Tensor]:
        """Return the columns that only rules for trees read, if no decision needed them."""
        parts: list[dict[str, Tensor]] = []
        for each in seen:
            if each.drawn is None or each.blocks.trees is None:
                return {}
            parts.append(tree_columns(each.blocks, self._settings, each.drawn, TREE_COLUMNS.difference(each.found)))
        return {name: torch.cat([columns[name] for columns in parts]) for name in parts[0]}

    def _work(self) -> None:
        """Complete all waiting chains."""
        while self._seen:
            count, chains = 0, 0
            while count < len(self._seen) and chains < self._seen[0].blocks.seats:
                chains += len(self._seen[count].blocks.starts)
                count += 1
            together, unfinished = self._seen[:count], self._records[:chains]
            columns = to_host(standing(together, self._settings, apart=True) | self._of_trees(together))
            self._completed |= zip(unfinished, completed(unfinished, self._settings, columns), strict=True)
            self._seen, self._records = self._seen[count:], self._records[chains:]
