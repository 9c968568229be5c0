"""Something to find out with the loaded models, besides decoding a prompt: how far it is, and a way to stop it.

Knows threads; knows no models and no Streamlit. A `Worker` runs it in its turn, on the thread that owns the models.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from mars_viz.errors import MarsVizError

FAULT = "It stopped because of a fault in the program; try again, and see the server's log if it comes back."

_log = logging.getLogger(__name__)


class ErrandState(Enum):
    """How far an errand is."""

    QUEUED = "queued"
    """Waiting for others' jobs, or for the models."""
    RUNNING = "running"
    """Under way."""
    DONE = "done"
    """`result` is there."""
    STOPPED = "stopped"
    """Stopped on request; what was found so far is the `result`."""
    FAILED = "failed"
    """Stopped by an error; `error` says which."""

    @property
    def finished(self) -> bool:
        """True if nothing more will happen."""
        return self not in (ErrandState.QUEUED, ErrandState.RUNNING)


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of an errand at one moment."""

    state: ErrandState = ErrandState.QUEUED
    """How far it is."""
    share: float = 0.0
    """Of the work that is done, from 0 to 1."""
    result: Any = None
    """What was found so far; None before anything was."""
    error: str = ""
    """A sentence for the person who asked, where it failed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A step of an errand."""

    share: float
    """Of the work that is done, from 0 to 1."""
    result: Any
    """What was found so far."""


class Errand:
    """One thing to find out, for one asker."""

    def __init__(self, find: Callable[[Any], Iterator[Finding]]) -> None:
        """`find` takes the loaded pair and yields what it has found so far; the last finding is the result."""
        self._find = find
        self._stop = threading.Event()
        self._report = Report()

    @property
    def report(self) -> Report:
        """The latest snapshot."""
        return self._report

    @property
    def stopping(self) -> bool:
        """True once somebody has stopped it."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Stop it after the step that is being made."""
        self._stop.set()

    def serve(self, pair: Callable[[], Any]) -> None:
        """Find it out, on the thread that owns the models; nothing escapes, for that thread serves others too."""
        try:
            self._tell(state=ErrandState.RUNNING)
            for finding in () if self.stopping else self._find(pair()):
                self._tell(share=finding.share, result=finding.result)
                if self.stopping:
                    break
            self._tell(state=ErrandState.STOPPED if self.stopping else ErrandState.DONE)
        except MarsVizError as error:
            self._tell(state=ErrandState.FAILED, error=str(error))
        except Exception:
            _log.exception("An errand failed.")
            self._tell(state=ErrandState.FAILED, error=FAULT)

    def _tell(self, **news: object) -> None:
        self._report = replace(self._report, **news)  # type: ignore[arg-type]
