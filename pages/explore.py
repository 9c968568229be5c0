"""Explore: what did the rule decide, and what was it worth? Layout and wiring; the work is done elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import figures
from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.positions import positions
from mars_viz.components.explorer import explorer
from mars_viz.components.painted import painted
from mars_viz.errors import BadInput
from mars_viz.figures.heat_map import QUANTITIES, heat_map
from mars_viz.mapped import shown
from mars_viz.report import file_name
from mars_viz.run import Run
from mars_viz.runfiles import MAX_ZIP, write_zip
from mars_viz.ui import decode_form, library, links, live, navigation, share, theme, under_way
from mars_viz.ui.charts import chart
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.stop_button import stop_button

NARROWEST = 270  # pixels of a figure, below which fewer stand on a row


def page() -> None:
    """The whole page: a run of guards, then the run."""
    navigation.through_app()
    session = current_session()
    live.settle(session)
    session.arrive(st.query_params.to_dict())
    shelf = library.shelf(session)
    session.view, lost = shelf.landed(session.view)
    session.notices.extend(filter(None, [lost]))
    saving = head(session, shelf.labels)
    prompt(session)
    run, problem = None, ""
    try:
        run = shelf.opened(session.view.run)  # a long run is read while the browser draws what is above it
        session.notices.extend(session.fit(run))
        offer_zip(saving, session.view.run, run)
    except BadInput as error:
        problem = str(error)
    for sentence in filter(None, [shelf.error, *session.notices]):
        theme.note(sentence)
    if session.job is not None:
        under_way.decoding(session)
        st.stop()
    if run is None:
        theme.note(problem)
        st.stop()
    if session.filling is not None and session.filling.run_id == session.view.run:
        st.fragment(filling, run_every=live.pace())(session)
    look(session, run)


def head(session: Session, labels: Mapping[str, str]) -> DeltaGenerator:
    """The title, the picker of runs, and run folders as zip; where the run that is shown can be saved as one."""
    st.session_state["run"] = session.view.run if labels else None
    left, middle, right = st.columns([4.8, 4.8, 2.1], vertical_alignment="center")
    with left:
        theme.title("Explore", "What did the rule decide, and what was it worth?")
    library.picker(middle, labels, lambda: session.open(st.session_state["run"]), disabled=session.job is not None)
    zips = right.popover("Open or save", width="stretch")
    upload = zips.file_uploader("Open the zip of a run's folder", type="zip", max_upload_size=MAX_ZIP >> 20, key="zip")
    if upload is not None and library.add_upload(session, upload.getvalue()):
        st.rerun()
    return zips


def offer_zip(place: DeltaGenerator, run_id: str, run: Run) -> None:
    """The button that saves a run's folder."""
    place.download_button(
        "Save this run as a zip", lambda: write_zip(run), f"{run_id}.zip", "application/zip", on_click="ignore"
    )


def prompt(session: Session) -> None:
    """The prompt, its folded settings, and the button; the one primary button is the explorer's."""
    left, middle, right = st.columns([7.8, 1.8, 2.1], vertical_alignment="center")
    with left:
        text = decode_form.prompt_box()
    with middle:
        settings = decode_form.settings_area()
    if right.button(
        "Decode",
        width="stretch",
        help="Decode the prompt and open what it becomes; it is kept on this server, for everyone who opens the app",
    ):
        live.start(session, text, settings)
        st.rerun()


def filling(session: Session) -> None:
    """A dial map that fills in behind the run: how far it is, and a way to stop it."""
    if session.filling is None or session.filling.job.progress.state.finished:
        st.rerun()
    job = session.filling.job
    words, button = st.columns([6, 1], vertical_alignment="center")
    words.caption(live.what_is_mapped(job.progress, job.stopping))
    stop_button(button, "Stop", job, keeps="Keeps what was mapped")


@st.fragment
def look(session: Session, run: Run) -> None:
    """The run itself and the figures that follow its dial."""
    gamma = block_length(session, run)
    view = session.view
    state = explorer(
        run, dial=view.dial, overlay=view.overlay, selected=view.selected, key=f"explorer-{view.run}", gamma=gamma
    )
    moved = None if state.dial == run.settings.dial else state.dial
    session.view = replace(view, dial=moved, overlay=state.overlay, selected=state.selected)
    navigation.write_link(links.to_parameters(session.view))
    if state.decode is not None:
        live.start_again(session, run, state.decode)
        st.rerun()
    share.offer(run, state.dial, gamma, state.overlay)
    folded = st.expander("Figures", expanded=True, key="figures", on_change="rerun")
    if folded.open:
        with folded:
            after_the_text(session, run, state.dial, gamma or run.settings.gamma)


def block_length(session: Session, run: Run) -> int | None:
    """The second dial: γ, where the run carries a map of several. None for the run's own."""
    own, made = run.settings.gamma, run.dial_map
    if made is None or len(made.span.gammas) < 2:
        return None
    st.session_state["gamma-dial"] = session.view.gamma or own
    chosen = st.segmented_control(
        "γ, tokens drafted per block",
        made.span.gammas,
        key="gamma-dial",
        required=True,
        help=f"The run was decoded with γ = {own}; the others are exact too, from the same speculations.",
    )
    gamma = None if chosen in (None, own) else int(chosen)
    session.view = replace(session.view, gamma=gamma)
    return gamma


@st.fragment
def after_the_text(session: Session, run: Run, dial: float | None, gamma: int) -> None:
    """The figures, in a tab that has just been opened once its browser shows the text: see `painted`."""
    if run.rounds and not session.shows_text:
        session.shows_text = painted(".explorer .t", key="text-painted")
    if session.shows_text or not run.rounds:
        draw(run, dial, gamma)


def draw(run: Run, dial: float | None, gamma: int) -> None:
    """The figures at this dial value, as many on a row as fit, and the map of all settings."""
    at, colours = positions(*shown(run, dial, gamma)), theme.figure_theme()
    st.caption(at.words)
    with st.grid(4, min_column_width=NARROWEST, key="figure-row"):
        for make in figures.ALONG_THE_DIAL:
            figure = make(at, colours)
            chart(figure, make.__name__, of=file_name(run))

    if run.dial_map is not None:
        choices = {quantity.label: quantity for quantity in QUANTITIES}
        chosen = st.segmented_control(
            "All settings by", list(choices), default=next(iter(choices)), key="quantity", required=True
        )
        figure = heat_map(
            map_grid(run.dial_map),
            run,
            choices[chosen],
            colours,
            dial=dial,
            gamma=gamma,
            costs=live.shared_worker().models.status.costs,
        )
        chart(figure, "heat-map", of=file_name(run))


page()
