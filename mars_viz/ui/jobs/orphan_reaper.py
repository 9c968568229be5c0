"""Who waits for which job: one whose asker has gone for good keeps others waiting for nothing, and is stopped.

Knows jobs and a clock; what it means that an asker is there, is an argument.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from mars_viz.ui.jobs.job import Job

Wanted = Callable[[], bool]
"""True while the one who asked is there; any thread may ask it."""

GRACE = 60.0
"""Seconds for which an asker may be away: a laptop's lid, a tunnel, a reload that finds the same session again."""
LEFT = "This page was away for more than a minute, so its job was stopped"
"""For one who comes back after all."""
LOOKS = 12
"""How often within the grace it is asked who is there."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asker:
    wanted: tuple[Wanted, ...]
    seen: float


class OrphanReaper:
    """Stops jobs for their askers alone, `GRACE` after these were last seen. Forgets a job with its last holder."""

    def __init__(self, grace: float = GRACE) -> None:
        """Nobody waits for anything yet."""
        self._grace = grace
        self._askers: WeakKeyDictionary[Job[Any], _Asker] = WeakKeyDictionary()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, job: Job[Any], wanted: Wanted) -> None:
        """Mind this job, for as long as it is not finished. Where several wait for it, one who is there is enough."""
        with self._lock:
            before = self._askers.get(job)
            also = () if before is None else before.wanted
            self._askers[job] = _Asker((*also, wanted), time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._mind, name="job-attendance", daemon=True)
                self._thread.start()
            self._lock.notify()

    def look(self) -> None:
        """See who is there, and stop what nobody wants any more."""
        now = time.monotonic()
        with self._lock:
            askers = dict(self._askers)
        for job, asker in askers.items():
            if job.progress.state.finished:
                with self._lock:
                    self._askers.pop(job, None)
            elif any(map(_is_there, asker.wanted)):
                asker.seen = now
            elif now - asker.seen > self._grace:
                job.abandon()

    def _mind(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: bool(self._askers))
            time.sleep(self._grace / LOOKS)
            self.look()


def _is_there(wanted: Wanted) -> bool:
    try:
        return wanted()
    except Exception:  # nobody is stopped without need, and the next look may succeed
        _log.exception("It could not be seen who is there.")
        return True
