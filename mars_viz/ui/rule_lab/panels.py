"""What all rules say of a run, shared by the tabs that look at it; those that come while the rules are first asked ask
them as well.

Knows runs and panels; keeps none: a panel is there for as long as some tab holds it.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

import streamlit as st

from mars_viz.analysis.all_rules import AllRules
from mars_viz.run import Run


class Panels:
    """Panels that some tab holds, by their run."""

    def __init__(self) -> None:
        """None yet."""
        self._alive: WeakValueDictionary[int, AllRules] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, run: Run) -> AllRules:
        """The run's, with no answers but its own. It holds the run, so nothing else has that run's id meanwhile."""
        with self._lock:
            found = self._alive.get(id(run))
        if found is not None:
            return found
        made = AllRules(run)  # not under the lock: of a long run it takes seconds
        with self._lock:
            return self._alive.setdefault(id(run), made)


@st.cache_resource(show_spinner=False)
def panels() -> Panels:
    """The server's."""
    return Panels()
