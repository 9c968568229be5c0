"""Chains whose evidence is worked on later, those of several rounds together, in place of a round's few at a time.

Knows chains and the order of things; what is computed is `standing`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from mars_viz.records import Speculation
from mars_viz.run import Settings
from mars_viz.speculators.assembly import Origin, complete, records
from mars_viz.speculators.blocks import Blocks, Seen
from mars_viz.speculators.laws import to_host
from mars_viz.speculators.standing import standing


class Waiting:
    """Holds what was only decided, until there is enough to work on, or somebody asks for all that there is."""

    def __init__(self, settings: Settings) -> None:
        """None so far."""
        self._settings = settings
        self._seen: list[Seen] = []
        self._records: list[Speculation] = []

    def has_seats(self, blocks: Blocks) -> bool:
        """True unless these chains are enough by themselves."""
        return len(blocks.starts) < blocks.seats

    def take(self, seen: Seen, made: Sequence[Speculation]) -> None:
        """Take chains that it has seats for, and their records, to be completed in place."""
        if self._seen and self._seen[0].blocks.tokens.shape[1] != seen.blocks.tokens.shape[1]:
            self.complete()
        self._seen.append(seen)
        self._records += made
        if len(self._records) >= seen.blocks.seats:
            self.complete()

    def complete(self) -> None:
        """Complete all that wait."""
        if not self._seen:
            return
        blocks = self._seen[0].blocks
        found = to_host(standing(self._seen, self._settings, apart=True))
        origin = Origin(
            tuple(start for seen in self._seen for start in seen.blocks.starts),
            blocks.sampled,
            blocks.target.shape[-1],
        )
        for record, whole in zip(self._records, records(origin, self._settings, found), strict=True):
            complete(record, whole)
        self._seen, self._records = [], []
