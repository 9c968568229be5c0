"""Chains whose evidence is worked on later, those of several rounds together, in place of a round's few at a time.

Knows chains and the order of things; what is computed is `standing`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from mars_viz.records import Speculation
from mars_viz.run import Settings
from mars_viz.speculators.build_records import complete
from mars_viz.speculators.draft_batch import Seen
from mars_viz.speculators.logit_stats import standing
from mars_viz.speculators.sampling import to_host

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

    def take(self, seen: Seen, made: Sequence[Speculation]) -> None:
        """Take chains and their records, to be completed in place."""
        if self._seen and self._seen[0].blocks.tokens.shape[1] != seen.blocks.tokens.shape[1]:
            self.complete()
        self._seen.append(seen)
        self._records += made
        if len(self._records) >= TURNS * seen.blocks.seats:
            self.complete()

    def complete(self) -> None:
        """Complete all that wait."""
        while self._seen:
            count, chains = 0, 0
            while count < len(self._seen) and chains < self._seen[0].blocks.seats:
                chains += len(self._seen[count].blocks.starts)
                count += 1
            self._complete(self._seen[:count], self._records[:chains])
            self._seen, self._records = self._seen[count:], self._records[chains:]

    def _complete(self, together: Sequence[Seen], unfinished: Sequence[Speculation]) -> None:
        complete(unfinished, self._settings, to_host(standing(together, self._settings, apart=True)))
