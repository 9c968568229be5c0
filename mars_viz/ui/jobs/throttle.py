"""How often what is under way is told of. Knows a clock only."""

from __future__ import annotations

import time

LOOK_EVERY = 0.25
"""Seconds between two looks at what is under way, or two of its writings, at the least."""


class Throttle:
    """Something done between rounds: not too often, and never for more than a tenth of the time."""

    def __init__(self) -> None:
        """Due at once."""
        self._after = self._began = 0.0

    @property
    def due(self) -> bool:
        """True if it is time again."""
        return time.monotonic() >= self._after

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *problem: object) -> None:
        now = time.monotonic()
        self._after = now + max(LOOK_EVERY, 10 * (now - self._began))
