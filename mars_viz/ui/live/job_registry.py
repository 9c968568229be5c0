"""Jobs of this server by the name that their result will have, so that a tab which was loaded anew finds its own again.

Knows jobs and keeps none: a job is found for as long as the worker or some tab holds it.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakValueDictionary

import streamlit as st

from mars_viz.ui.jobs.job import Job


class JobRegistry:
    """Names and the jobs that bear them."""

    def __init__(self) -> None:
        """None yet."""
        self._jobs: WeakValueDictionary[str, Job[Any]] = WeakValueDictionary()
        self._lock = threading.Lock()

    def add(self, name: str, job: Job[Any]) -> None:
        """From now on the job is found by this name."""
        with self._lock:
            self._jobs[name] = job

    def remove(self, name: str) -> None:
        """What it made is deleted: no tab finds it any more."""
        with self._lock:
            self._jobs.pop(name, None)

    def find(self, name: str) -> Job[Any] | None:
        """The job of that name, or None where it is another server's, or over and nobody's any more."""
        with self._lock:
            return self._jobs.get(name)


@st.cache_resource(show_spinner=False)
def roster() -> JobRegistry:
    """The server's."""
    return JobRegistry()
