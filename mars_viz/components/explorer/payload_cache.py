"""What is sent of a run, made once for all tabs: its payload in bytes, and its evidence where that is asked for later.

Knows payloads, Arrow, which is how Streamlit takes bytes beside JSON, and Streamlit's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import streamlit as st

from mars_viz.components.explorer.packing import packed
from mars_viz.components.explorer.payload import WINDOW, Payload, payload_of, window
from mars_viz.components.explorer.round_index import RoundIndex, round_index
from mars_viz.run import Run

WHOLE = 40_000
"""Slots of a run that is sent with all its evidence, five megabytes of it; a longer one is sent without."""
_KEPT = 8  # runs ready to be sent; a new tab on one of them need not wait
_WINDOWS = 16  # windows of evidence, of whatever runs: every move in a tab asks anew for the one that it looks at


@dataclass(frozen=True, slots=True, eq=False)
class PackedPayload:
    """A payload, ready to go."""

    id: str
    """The payload's."""
    head: Any
    """All of it but its arrays, as `packed` leaves it."""
    columns: pa.Table
    """Those, as one column of bytes."""

    @classmethod
    def of(cls, payload: Payload) -> PackedPayload:
        """Of a payload without its id."""
        sent = packed(payload)
        return cls(sent.digest, {"id": sent.digest, **sent.head}, pa.table({"bytes": pa.array(sent.data)}))


@dataclass(frozen=True, slots=True, eq=False)
class RunPayload:
    """What is sent of a run at one block length."""

    run: Run
    """The run."""
    gamma: int | None
    """The block length; None for the run's own."""
    index: RoundIndex
    """Its rounds."""
    whole: PackedPayload
    """What is sent at once."""
    windows: int
    """Parts in which its evidence can be asked for; 0 where that is sent at once."""

    @classmethod
    def of(cls, run: Run, gamma: int | None) -> RunPayload:
        """Raises BadInput for a block length that the run's map does not hold."""
        index = round_index(run, gamma)
        long = index.slots > WHOLE
        whole = PackedPayload.of(payload_of(run, gamma, index, evidence=not long))
        return cls(run, gamma, index, whole, -(-len(index.rounds) // WINDOW) if long else 0)

    @property
    def id(self) -> str:
        """The payload's."""
        return self.whole.id

    def window(self, number: int) -> PackedPayload:
        """The evidence of a window of rounds."""
        return PackedPayload.of(window(self.run, self.gamma, self.index, number))


def cached_payload(run: Run, gamma: int) -> RunPayload:
    """What is sent of a run, made once; what is kept holds the run, so nothing else has its id."""
    return _payload(run, id(run), gamma)


def cached_window(sent: RunPayload, number: int) -> PackedPayload:
    """A window of its evidence, made once as long as it is looked at."""
    return _window(sent, sent.id, number)


@st.cache_resource(max_entries=_KEPT, show_spinner=False)
def _payload(_run: Run, identity: int, gamma: int) -> RunPayload:
    return RunPayload.of(_run, gamma)


@st.cache_resource(max_entries=_WINDOWS, show_spinner=False)
def _window(_sent: RunPayload, payload_id: str, number: int) -> PackedPayload:
    return _sent.window(number)
