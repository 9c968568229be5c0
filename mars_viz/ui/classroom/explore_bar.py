"""Classroom controls on Explore: the teacher's buttons, the students' switch, and the element that synchronizes
explorers.

Draws nothing if the server is not a classroom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.components.mount import Element, mount
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.run import Run
from mars_viz.runstore import RunStore
from mars_viz.ui import visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.classroom.rights import ServerClass, ShownRun, server_class
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.session import Session, remembered

ELEMENT = Element("mars_viz_class_view", ("class_view/class_view",))
"""Keeps an explorer in step with the teacher's; has no visible part. While the teacher drags the dial, the teacher's
element posts its value to the server. A student's element polls the server and moves the student's explorer. Neither
reruns the page while the dial moves."""
SWITCH = "class-follow"  # key of the switch
MOVED = "You moved the dial, so this page no longer follows the teacher. Switch it on to go back."
OPENED = "You opened another run, so this page no longer follows the teacher. Switch it on to go back."
NOTHING_SHOWN = "You are the teacher. Students see the samples and their own runs, until you show them one."
IN_STEP = "The class sees this run, and its dial moves as yours does."


@dataclass(slots=True)
class Following:
    on: bool = True  # True if the page follows the teacher's page
    run: str | None = None
    """Id of the shown run when the page was last drawn, empty if no run was shown; None before the first draw."""
    said: str = ""  # why following was switched off automatically; empty if it was not
    due: bool = False  # True if the page must be redrawn because the shown run has changed

    def settle(self, session: Session, shown: ShownRun | None) -> None:
        """Go to the class's run, or stop following if a link or the user opened another run."""
        run = "" if shown is None else shown.view.run
        previous, self.run = self.run, run
        if shown is None:
            return
        if previous is None:
            self.on = session.view.run in ("", run)
        elif previous == run and self.on and session.view.run not in ("", run):
            self.on, self.said = False, OPENED
        if self.on and (previous != run or session.view.cuts != shown.view.cuts):
            session.view = shown.view
            session.notices.clear()

    def switch(self, on: bool) -> None:
        """Start or stop following."""
        self.on, self.said = on, ""
        if on:
            self.run, self.due = "", True

    def leave(self) -> None:
        """Stop following, because the user moved the dial."""
        self.on, self.said = False, MOVED

    def renew(self) -> None:
        """Request a redraw, because the shown run has changed."""
        self.due = True


def following() -> Following:
    return remembered("mars_viz_following", Following)


def shown_in(classroom: ServerClass, catalog: RunCatalogue) -> ShownRun | None:
    """Return the shown run, or None if it is no longer in the catalog."""
    shown = classroom.shown
    return shown if shown is not None and catalog.has(shown.view.run) else None


def arrive(session: Session, catalog: RunCatalogue) -> None:
    """Open the shown run for a student who follows. Called before a run is chosen."""
    classroom = server_class()
    if classroom is not None and rights.is_student():
        following().settle(session, shown_in(classroom, catalog))


def draw(place: DeltaGenerator, session: Session, run: Run, catalog: RunCatalogue, store: RunStore) -> None:
    """Draw the controls in `place`, and the synchronizing element. `store` saves a run before it is shown."""
    classroom = server_class()
    if classroom is None:
        return
    memory, shown = following(), shown_in(classroom, catalog)
    if memory.due:
        memory.due = False
        st.rerun()
    view, teaches = session.view, rights.is_teacher()
    here = shown is not None and shown.view.run == view.run
    if teaches and here:
        classroom.renew(run, view.cuts)
    row = place.container(horizontal=True, vertical_alignment="center", key="class-bar")
    if teaches:
        if not here:
            show = partial(_show, classroom, session, run, catalog, store)
            row.button(
                "Show to the class", key="class-show", on_click=show, help="Every student who follows sees this run"
            )
        words = NOTHING_SHOWN
        if shown is not None:
            words = IN_STEP if here else f"The class sees “{shown.title}”."
            row.button("Stop showing", key="class-stop", on_click=classroom.stop, help="The class is shown nothing")
        row.caption(markdown(words))
    elif shown is not None:
        st.session_state[SWITCH] = memory.on
        row.toggle(
            "Follow the teacher",
            key=SWITCH,
            on_change=lambda: memory.switch(bool(st.session_state[SWITCH])),
            help="The run, its dial and the selected token are where the teacher's are",
        )
        caption = f"You see what the teacher shows: “{shown.title}”."
        row.caption(markdown(caption if memory.on else memory.said or f"The teacher shows “{shown.title}”."))
    data = {
        "key": f"explorer-{view.run}{'-cuts' * view.cuts}",
        "run": "" if shown is None or (teaches and not here) else shown.view.run,
        "cuts": view.cuts,
        "teaches": teaches,
        "following": memory.on and here,
    }
    mount(ELEMENT, [data], key="class-view", answers={"changed": memory.renew, "left": memory.leave})


def _show(classroom: ServerClass, session: Session, run: Run, catalog: RunCatalogue, store: RunStore) -> None:
    run_id = session.view.run
    title = catalog.labels.get(run_id, run_id)
    try:
        if run_id in session.runs:
            run_id = store.keep(run, visitors.mark())
            session.view = replace(session.view, run=run_id)
    except BadInput as error:
        session.notices[:] = [str(error)]
    else:
        classroom.show(run, title, session.view)
    following().renew()
