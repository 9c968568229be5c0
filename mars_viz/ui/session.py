"""State of one browser tab between reruns: its runs, its decode and its view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar
from uuid import uuid4

import streamlit as st

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.run import Run
from mars_viz.ui.jobs.models import Job
from mars_viz.ui.jobs.tasks import Decoded
from mars_viz.ui.links import Opened, View, from_parameters
from mars_viz.words import clipped

M = TypeVar("M")
KEY = "mars_viz"  # key of the session in `st.session_state`
MOST = 24  # maximum number of a tab's own runs in memory; saved runs don't count


@dataclass(slots=True)
class Session:
    runs: dict[str, Run] = field(default_factory=dict)  # runs decoded or uploaded in this tab, by id, oldest first
    job: Job[Decoded] | None = None
    filling: tuple[str, Job[Decoded]] | None = None  # id of the run whose dial map is being made, and its job
    view: View = field(default_factory=View)
    arrived: bool = False  # True after the first link of the tab was read
    notices: list[str] = field(default_factory=list)  # sentences shown until the next action
    asked: int = 0
    """Number of requested decodes and maps. It is part of a popover's key, so that a browser that has not yet closed
    the old popover cannot reopen it."""
    closed: list[str] = field(default_factory=list)  # sentences about closed runs, shown when the next run is opened
    uploaded: str = ""  # id of the last upload read, so that a rerun does not read it again
    page: str = ""  # Streamlit's hash of the page drawn last
    models: BackendChoice = BUILT_IN  # models of all pages of this tab
    begun: BackendChoice = BUILT_IN  # default models of this server
    chose: bool = False  # True after the models of the tab's first link were read
    models_job: Job[Any] | None = None  # the last job that loads or drops models
    models_notices: list[str] = field(default_factory=list)  # shown until the choice of models is opened

    def arrive(self, parameters: Mapping[str, str]) -> None:
        """Read Explore's link when the tab opens."""
        if self.arrives():
            opened = from_parameters(View, parameters)
            self.view, self.notices[:] = opened.view, opened.complaints

    def arrives(self) -> bool:
        """Return True on the first call, which the first page of the tab makes. Later links are written and not read: a
        rerun may carry outdated parameters, which would move the dial back."""
        first, self.arrived = not self.arrived, True
        return first

    def keep(self, run: Run, kind: str) -> str:
        """Store a run and return its id. Ids are random, so that links of other tabs cannot open it.

        If the tab has too many runs, the oldest is closed, with a notice when the next run is opened.
        """
        existing = next((run_id for run_id, kept in self.runs.items() if kept is run), "")
        run_id = existing or f"{kind}-{uuid4().hex[:8]}"
        self.runs[run_id] = run
        while len(self.runs) > MOST:
            closed_run = self.runs.pop(next(other for other in self.runs if other not in (run_id, self.view.run)))
            name = clipped(closed_run.title or closed_run.prompt)
            self.closed.append(f"A tab holds {MOST} runs of its own, so the oldest, “{name}”, is closed.")
        return run_id

    def open(self, run_id: str) -> None:
        """Open another run at its own dial value."""
        self.notices[:], self.closed = self.closed, []
        if run_id != self.view.run and (self.view.pin_token or self.view.pin_dial):
            self.notices.append("The pinned token or setting was of another run and is unpinned.")
        self.view = View(run=run_id, overlay=self.view.overlay)

    def land(self, run_id: str) -> None:
        """Open a run on Explore from another page."""
        self.arrived = True
        self.open(run_id)


def current_session() -> Session:
    return remembered(KEY, Session)


def remembered(key: str, begin: Callable[[], M]) -> M:
    """Return this tab's object under `key`, created by `begin` if it is missing."""
    if key not in st.session_state:
        st.session_state[key] = begin()
    memory: M = st.session_state[key]
    return memory


def bound(
    widget: Callable[..., Any], label: str, key: str, value: object, changed: Callable[[Any], object], **how: Any
) -> Any:
    """Draw a widget that shows `value`, and return its value. `changed` is called with a new value; Streamlit holds it
    forever."""
    st.session_state[key] = value
    return widget(label, key=key, on_change=lambda: changed(st.session_state[key]), **how)


@dataclass(slots=True)
class PageState:
    view: Any = None  # view of the page's own class
    notices: list[str] = field(default_factory=list)  # sentences shown until the next action

    @classmethod
    def of_tab(cls) -> Self:
        return remembered(f"mars_viz_{cls.__name__}", cls)

    names_run: ClassVar[bool] = True  # True if the link's run is the one that the tab shows on all pages

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> bool:
        """Open the link and return True if this page is the first of the tab; see `Session.arrives`."""
        if not session.arrives():
            return False
        if self.names_run:
            session.view = View(run=parameters.get("run", ""))
        opened = self.opened(parameters)
        self.view, self.notices[:] = opened.view, opened.complaints
        return True

    def opened(self, parameters: Mapping[str, str]) -> Opened[Any]:
        """Return the view of a link. Unreadable parts take their default and add a complaint."""
        return from_parameters(type(self.view), parameters)

    def settle_on(self, opened: Opened[Any]) -> None:
        """Show the valid part of a view, and add the complaints to the notices."""
        self.view = opened.view
        self.notices.extend(opened.complaints)

    def change(self, **parts: object) -> None:
        self.view = replace(self.view, **parts)

    def look(self, **parts: object) -> None:
        """Change parts of the view, and clear the notices."""
        self.notices.clear()
        self.change(**parts)
