"""Waiting for what another thread, process or browser does: on conditions, with a generous limit."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds; only a hanging test waits as long."""


def until(holds: Callable[[], object], pause: float = 0.002) -> None:
    """Return once it holds, asked again after each `pause`, seconds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(pause)
