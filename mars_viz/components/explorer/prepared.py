"""A run as it is sent to the browser, made once: its payload in bytes, and its evidence where that is asked for later.

Knows payloads and Arrow, which is how Streamlit takes bytes beside JSON; knows no Streamlit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mars_viz.components.explorer.packing import packed
from mars_viz.components.explorer.payload import WINDOW, Payload, pool_payload, window
from mars_viz.components.explorer.pool import Pool, pool_of
from mars_viz.run import Run

WHOLE = 40_000
"""Slots of a run that is sent with all its evidence, five megabytes of it; a longer one is sent without."""


@dataclass(frozen=True, slots=True, eq=False)
class Shipment:
    """A payload, ready to go."""

    id: str
    """The payload's."""
    head: Any
    """All of it but its arrays, as `packed` leaves it."""
    columns: pa.Table
    """Those, as one column of bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What is sent of a run at one block length."""

    run: Run
    """The run."""
    gamma: int | None
    """The block length; None for the run's own."""
    pool: Pool
    """Its rounds."""
    whole: Shipment
    """What is sent at once."""
    windows: int
    """Parts in which its evidence can be asked for; 0 where that is sent at once."""

    @classmethod
    def of(cls, run: Run, gamma: int | None) -> Prepared:
        """Raises BadInput for a block length that the run's map does not hold."""
        pool = pool_of(run, gamma)
        long = pool.slots > WHOLE
        payload = pool_payload(run, gamma, pool, evidence=not long)
        return cls(run, gamma, pool, _shipment(payload), -(-len(pool.rounds) // WINDOW) if long else 0)

    @property
    def id(self) -> str:
        """The payload's."""
        return self.whole.id

    def window(self, index: int) -> Shipment:
        """The evidence of a window of rounds."""
        return _shipment(window(self.run, self.gamma, self.pool, index))


def _shipment(payload: Payload) -> Shipment:
    sent = packed(payload)
    return Shipment(payload["id"], sent.head, pa.table({"bytes": pa.array(sent.data)}))
