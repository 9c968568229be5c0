"""The pinned run on Explore, which is shown next to the opened run with its own dials."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.components.explorer.element import explorer, recorded_at
from mars_viz.components.explorer.pins import Choice
from mars_viz.escapes import markdown
from mars_viz.run import Run
from mars_viz.ui import faults, links, tab_jobs
from mars_viz.ui.compare.page_state import Across, Comparison
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.navigation import leave_for
from mars_viz.ui.session import Session

Beside = tuple[Run, str]  # run shown next to the opened one, and its label


def offer(place: DeltaGenerator, session: Session) -> None:
    """Draw the button that pins or unpins the opened run."""
    view = session.view
    pinned = view.pin_run is not None and view.pin_run.run == view.run
    place.button(
        "Unpin this run" if pinned else "Pin this run",
        key="pin-run",
        width="stretch",
        on_click=_unpin if pinned else _pin,
        args=(session,),
        help="A pinned run is shown next to the one that you open after it, each with its own dials",
    )
    if pinned:
        place.caption("Pinned: open another run, and this one is shown next to it.")


def _pin(session: Session) -> None:
    view = session.view
    session.view = replace(view, pin_run=Choice(view.run, view.dial, view.gamma))


def _unpin(session: Session) -> None:
    session.view = replace(session.view, pin_run=None)


def beside(session: Session, catalog: RunCatalogue) -> Beside | None:
    """Return the pinned run if another run is open. A run that cannot be shown is unpinned, with a notice."""
    pinned = session.view.pin_run
    if pinned is None or pinned.run == session.view.run:
        return None
    if not catalog.has(pinned.run):
        session.notices.append("The pinned run is not here any more, so it is unpinned; pin another one.")
        _unpin(session)
        return None
    run, problem = catalog.tried(pinned.run)
    if run is None:
        session.notices.append(f"The pinned run is unpinned, for it cannot be read: {problem}")
        _unpin(session)
        return None
    fitting = links.fitted(links.View(pinned.run, pinned.dial, gamma=pinned.gamma), run)
    session.notices.extend(f"The pinned run: {complaint}" for complaint in fitting.complaints)
    session.view = replace(session.view, pin_run=replace(pinned, dial=fitting.view.dial, gamma=fitting.view.gamma))
    return run, catalog.labels[pinned.run]


def columns(session: Session, pair: Beside) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Draw a row with the pinned run's name and buttons; return the columns for both runs."""
    row = st.container(horizontal=True, vertical_alignment="center", key="pinned-head")
    row.markdown(f"Pinned: **{markdown(pair[1])}**", width="content")
    if row.button("Compare the texts", key="pinned-compare", help="Opens both texts on Compare, with every difference"):
        _compare(session)
    if row.button("Unpin the run", key="pinned-unpin", help="Show the other run alone again"):
        _unpin(session)
        st.rerun()
    left, right = st.columns(2, gap="medium")
    return left, right


@faults.drawn
def draw(session: Session, pair: Beside) -> None:
    """Draw the pinned run with its own dials and the overlay of the opened run."""
    pinned = session.view.pin_run
    if pinned is None:
        return
    run, overlay, key = pair[0], session.view.overlay, f"pinned-{pinned.run}"
    state = explorer(run, dial=pinned.dial, overlay=overlay, selected=None, key=key, gamma=pinned.gamma)
    moved = None if state.dial == recorded_at(run, cuts=False) else state.dial
    session.view = replace(session.view, pin_run=replace(pinned, dial=moved, gamma=state.gamma))
    if state.decode is not None:
        tab_jobs.start_again(session, run, *state.decode, cuts=False)
        st.rerun()


def _compare(session: Session) -> None:
    view, pinned, memory = session.view, session.view.pin_run, Comparison.of_tab()
    if pinned is None:
        return
    memory.run, shown = view.run, Choice(view.run, None if view.cuts else view.dial, view.gamma)
    memory.look(across=Across.RUNS, reference=pinned, shown=shown)
    leave_for("pages/compare.py")
