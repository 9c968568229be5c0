"""The class on Explore: the teacher's buttons, a student's switch, and the element that keeps the explorers together.

Knows the tab's memory, the server's class and the explorer's key; where there is no class it draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.components.class_view import class_view
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.run import Run
from mars_viz.runstore import RunStore
from mars_viz.ui import visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.classroom.server_class import ServerClass, server_class
from mars_viz.ui.classroom.shown import ShownRun
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.session import Session, remembered

SWITCH = "class-follow"  # key of the switch
MOVED = "You moved the dial, so this page no longer follows the teacher. Switch it on to go back."
OPENED = "You opened another run, so this page no longer follows the teacher. Switch it on to go back."
NOTHING_SHOWN = "You are the teacher. Students see the samples and their own runs, until you show them one."
IN_STEP = "The class sees this run, and its dial moves as yours does."


@dataclass(slots=True)
class Following:
    """What a student's tab remembers of the class."""

    on: bool = True
    """True where the page goes where the teacher's is."""
    run: str | None = None
    """Id of the run that was shown when the page was drawn last, empty for none; None before the first time."""
    said: str = ""
    """Why it was switched off by itself; empty where it was not."""
    due: bool = False
    """True where the page has to be drawn anew: the server shows something else."""

    def settle(self, session: Session, shown: ShownRun | None) -> None:
        """Go where the class is, or take note that this tab is on its own: by a link, or since it chose another run."""
        run = "" if shown is None else shown.view.run
        before, self.run = self.run, run
        if shown is None:
            return
        if before is None:
            self.on = session.view.run in ("", run)
        elif before == run and self.on and session.view.run not in ("", run):
            self.on, self.said = False, OPENED
        if self.on and (before != run or session.view.cuts != shown.view.cuts):
            session.view = replace(shown.view, pin_run=session.view.pin_run)
            session.notices.clear()

    def switch(self, on: bool) -> None:
        """Follow from now on, or no more, as the switch says."""
        self.on, self.said = on, ""
        if on:
            self.run, self.due = "", True

    def leave(self) -> None:
        """The hand has moved the dial."""
        self.on, self.said = False, MOVED

    def renew(self) -> None:
        """The server shows something else than this page knows."""
        self.due = True


def following() -> Following:
    """This tab's memory."""
    return remembered("mars_viz_following", Following)


def shown_in(its: ServerClass, shelf: RunCatalogue) -> ShownRun | None:
    """What the class is shown; None where that is not there any more."""
    shown = its.board.shown
    return shown if shown is not None and shelf.has(shown.view.run) else None


def arrive(session: Session, shelf: RunCatalogue) -> None:
    """Before a run is chosen: a student who follows looks at what the class is shown."""
    its = server_class()
    if its is not None and rights.is_student():
        following().settle(session, shown_in(its, shelf))


def draw(place: DeltaGenerator, session: Session, run: Run, shelf: RunCatalogue, store: RunStore) -> None:
    """In that place what the class sees, and the buttons or the switch; then the element. `store` keeps a run of this
    tab that is to be shown."""
    its = server_class()
    if its is None:
        return
    memory, shown = following(), shown_in(its, shelf)
    if memory.due:
        memory.due = False
        st.rerun()
    view, teaches = session.view, rights.is_teacher()
    here = shown is not None and shown.view.run == view.run
    if teaches and here:
        its.board.renew(run, view.cuts)
    row = place.container(horizontal=True, vertical_alignment="center", key="class-bar")
    if teaches:
        _teach(row, its, shown, here, partial(_show, its, session, run, shelf, store))
    elif shown is not None:
        _follow(row, memory, shown)
    class_view(
        f"explorer-{view.run}{'-cuts' * view.cuts}",
        "" if shown is None or (teaches and not here) else shown.view.run,
        cuts=view.cuts,
        teaches=teaches,
        following=memory.on and here,
        changed=memory.renew,
        left=memory.leave,
    )


def _teach(row: DeltaGenerator, its: ServerClass, shown: ShownRun | None, here: bool, show: Callable[[], None]) -> None:
    """The teacher's buttons, and what the class sees now."""
    if not here:
        row.button("Show to the class", key="class-show", on_click=show, help="Every student who follows sees this run")
    if shown is not None:
        row.button("Stop showing", key="class-stop", on_click=its.board.stop, help="The class is shown nothing")
    other = f"The class sees “{shown.title}”." if shown is not None else NOTHING_SHOWN
    row.caption(markdown(IN_STEP if here else other))


def _show(its: ServerClass, session: Session, run: Run, shelf: RunCatalogue, store: RunStore) -> None:
    """Put the run before the class; one that this tab alone has is kept first."""
    run_id = session.view.run
    title = shelf.labels.get(run_id, run_id)
    try:
        if run_id in session.runs:
            run_id = store.keep(run, visitors.mark())
            session.view = replace(session.view, run=run_id)
    except BadInput as error:
        session.notices[:] = [str(error)]
    else:
        its.board.show(run, title, session.view)
    following().renew()


def _follow(row: DeltaGenerator, memory: Following, shown: ShownRun) -> None:
    """A student's switch, and what it means now."""
    st.session_state[SWITCH] = memory.on
    row.toggle(
        "Follow the teacher",
        key=SWITCH,
        on_change=lambda: memory.switch(bool(st.session_state[SWITCH])),
        help="The run, its dial and the selected token are where the teacher's are",
    )
    seen = f"You see what the teacher shows: “{shown.title}”."
    row.caption(markdown(seen if memory.on else memory.said or f"The teacher shows “{shown.title}”."))
