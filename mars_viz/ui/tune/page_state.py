"""What the Tune page remembers of one browser tab. Sweeps themselves are on disk and on the server's board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import streamlit as st

from mars_viz import default_folders
from mars_viz.sweep import Plan
from mars_viz.ui.session import Session
from mars_viz.ui.tune.view import TuneView, fitted, from_parameters

_KEY = "mars_viz_tune"
REFRESH = 2.0
"""Seconds between two drawings of a sweep that grows, at the least."""
RESTS = 5.0
"""Times as long as a drawing took that the next one waits: the more there is to draw, the less often."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The results that a tab shows."""

    sweep: str
    """Of which sweep."""
    finished: int
    """Prompts that they stand on; where there is nothing to show, those that were finished all the same."""
    began: float
    """When the page began to draw them, monotonic seconds."""
    ended: float
    """When it had."""

    def outdated(self, sweep: str, finished: int, now: float) -> bool:
        """True if more prompts have finished, and drawing them keeps the server from little."""
        waits = max(REFRESH, RESTS * (self.ended - self.began))
        return self.sweep == sweep and finished > self.finished and now - self.ended >= waits


@dataclass(slots=True)
class TunePageState:
    """The memory of one tab's Tune page."""

    view: TuneView = field(default_factory=TuneView)
    """The sweep, the setting, what it is compared with."""
    notices: list[str] = field(default_factory=list)
    """Sentences to show until the next thing is asked for."""
    folder: Path = field(default_factory=default_folders.sweeps)
    """Where results are."""
    drawn: Drawn = Drawn("", 0, 0.0, 0.0)
    """What the page drew last."""
    begun: int = 0
    """Sweeps that were begun in its form, which then closes."""

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if not session.arrives():
            return
        opened = from_parameters(parameters)
        self.view = opened.view
        self.notices[:] = opened.complaints

    def fit(self, plan: Plan) -> None:
        """Set back what of the view this sweep does not have, and note it."""
        opened = fitted(self.view, plan)
        self.view = opened.view
        self.notices.extend(opened.complaints)

    def open(self, sweep: str) -> None:
        """Look at another sweep, at the setting that it speaks for."""
        self.notices.clear()
        self.view = replace(self.view, sweep=sweep, dial=None, others=())

    def turn(self, dial: float) -> None:
        """Choose another setting."""
        self.notices.clear()
        self.view = replace(self.view, dial=dial)


def current_tuning() -> TunePageState:
    """This tab's memory of the page."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = TunePageState()
    bench: TunePageState = st.session_state[_KEY]
    return bench
