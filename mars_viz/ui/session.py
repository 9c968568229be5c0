"""What one browser tab remembers between reruns: its own runs, its decode, what it looks at. Nobody else sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import streamlit as st

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.run import Run
from mars_viz.ui.jobs.decode_job import DecodeJob
from mars_viz.ui.jobs.job import Job
from mars_viz.ui.links import Opened, View, clipped, fitted, from_parameters

M = TypeVar("M")
KEY = "mars_viz"
"""Of the memory in Streamlit's state of a tab."""
MOST = 24
"""Runs of its own that a tab may hold in the server's memory; what is kept on disk does not count."""


@dataclass(frozen=True, slots=True)
class Filling:
    """A run of this tab whose dial map is being made."""

    run_id: str
    """The run's."""
    job: DecodeJob
    """Of which the text is complete."""
    then: View | None = None
    """What is looked at once the map is whole, unless the tab looks at another run by then; None to leave that."""


@dataclass(slots=True)
class Session:
    """The memory of one tab."""

    runs: dict[str, Run] = field(default_factory=dict)
    """Decoded or uploaded here, by id, oldest first."""
    job: DecodeJob | None = None
    """The decode that this tab waits for."""
    then: View | None = None
    """What is looked at of the run that is decoded once its map is whole; None to leave it as it is opened."""
    filling: Filling | None = None
    """The dial map that fills in behind a run that is open already."""
    view: View = field(default_factory=View)
    """What is being looked at."""
    arrived: bool = False
    """True once the link that opened the tab has been read."""
    notices: list[str] = field(default_factory=list)
    """Sentences to show until the next thing is asked for."""
    asked: int = 0
    """How often a prompt or a map was asked for here: what opens for the next one is new, so that a browser that had
    not heard yet that it closes cannot open it again."""
    closed: list[str] = field(default_factory=list)
    """Sentences about runs that made room, for when the next one is opened."""
    uploaded: str = ""
    """The last upload that was read, so that a rerun does not read it again."""
    models: BackendChoice = BUILT_IN
    """What every page of this tab decodes with."""
    begun: BackendChoice = BUILT_IN
    """What tabs of this server begin with."""
    chose: bool = False
    """True once the link that opened the tab has said which models."""
    models_job: Job[Any] | None = None
    """The loading or unloading that this tab waits for."""
    models_error: str = ""
    """Why the last loading came to nothing; empty where it did not."""
    models_notices: list[str] = field(default_factory=list)
    """Sentences about the link's models, until the choice is opened."""
    shows_text: bool = False
    """True once the browser has shown a run's text; until then its figures wait."""

    def arrive(self, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when the tab opens. Later the tab writes the link and never reads it.

        A rerun may carry parameters from before the last ones that were written; reading them would move the dial back.
        """
        if not self.arrives():
            return
        opened = from_parameters(View, parameters)
        self.view = opened.view
        self.notices[:] = opened.complaints

    def arrives(self) -> bool:
        """True the one time that a page asks first, and so is the page whose link opened the tab."""
        first, self.arrived = not self.arrived, True
        return first

    def arrives_at_run(self, parameters: Mapping[str, str]) -> bool:
        """`arrives`, of a page that writes its own link but for the run, which is taken over."""
        if first := self.arrives():
            self.view = View(run=parameters.get("run", ""))
        return first

    def fit(self, run: Run) -> tuple[str, ...]:
        """Set back what of the view this run does not have, and return a complaint for each."""
        opened = fitted(self.view, run)
        self.view = opened.view
        return opened.complaints

    def keep(self, run: Run, kind: str) -> str:
        """Remember a run, and return its id. Ids are random: another tab's link must not open this tab's run.

        Of more than a tab may hold the oldest goes, and the next run that is opened comes with a sentence about it.
        """
        known = next((run_id for run_id, kept in self.runs.items() if kept is run), "")
        run_id = known or f"{kind}-{uuid4().hex[:8]}"
        self.runs[run_id] = run
        while len(self.runs) > MOST:
            gone = self.runs.pop(next(other for other in self.runs if other not in (run_id, self.view.run)))
            name = clipped(gone.title or gone.prompt)
            self.closed.append(f"A tab holds {MOST} runs of its own, so the oldest, “{name}”, is closed.")
        return run_id

    def open(self, run_id: str) -> None:
        """Look at another run, from its own dial value."""
        self.notices[:], self.closed = self.closed, []
        if run_id != self.view.run and (self.view.pin_token or self.view.pin_dial):
            self.notices.append("What was pinned was of another run, so it is unpinned. A pinned run stays.")
        self.view = View(run=run_id, overlay=self.view.overlay, pin_run=self.view.pin_run)

    def land(self, run_id: str) -> None:
        """Open a run from another page, on Explore, which the tab may not have seen yet."""
        self.arrived = True
        self.open(run_id)


def current_session() -> Session:
    """This tab's memory."""
    return remembered(KEY, Session)


def remembered(key: str, begin: Callable[[], M]) -> M:
    """What this tab remembers under that key, which begins as `begin` makes it."""
    if key not in st.session_state:
        st.session_state[key] = begin()
    memory: M = st.session_state[key]
    return memory


@dataclass(slots=True)
class PageState:
    """The memory of one tab's page: what it looks at, and sentences about that."""

    view: Any
    """What is looked at, as its link says it; each page has a kind of its own."""
    notices: list[str] = field(default_factory=list)
    """Sentences to show until another thing is asked for."""

    def open_link(self, opened: Opened[Any]) -> None:
        """Look at what a link asks for."""
        self.view = opened.view
        self.notices[:] = opened.complaints

    def settle_on(self, opened: Opened[Any]) -> None:
        """Look at what there is of the view, and note what there is not."""
        self.view = opened.view
        self.notices.extend(opened.complaints)
