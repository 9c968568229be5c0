"""The Explore page: the decisions of the rule and their effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import figures
from mars_viz.analysis.map_grid import map_grid
from mars_viz.analysis.metrics import positions
from mars_viz.chat import History
from mars_viz.components.explorer.element import ExplorerState, explorer, recorded_at
from mars_viz.costs import disturbance
from mars_viz.escapes import markdown
from mars_viz.exploration import shown, whole_threshold_map
from mars_viz.figures.along_the_dial import QUANTITIES, heat_map
from mars_viz.report import file_name
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.runfiles import MAX_ZIP, write_zip
from mars_viz.ui import decode_form, faults, imported, library, links, models_form, navigation, share, tab_jobs, theme
from mars_viz.ui.classroom import explore_bar, rights
from mars_viz.ui.decode_form import DecodeRequest
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.tab_jobs import measure_costs
from mars_viz.ui.theme import chart


@faults.drawn
def page() -> None:
    session = current_session()
    tab_jobs.settle(session)
    session.arrive(st.query_params.to_dict())
    catalog = library.shelf(session)
    explore_bar.arrive(session, catalog)
    session.view, lost = catalog.landed(session.view)
    session.notices.extend(filter(None, [lost]))
    asking, saving = head(session, catalog.labels)
    library.second_line(catalog, session.view.run)
    # a long run is read while the browser draws the part above
    run, problem = catalog.tried(session.view.run, partial(fit, session))
    if run is not None:
        zipped = (partial(write_zip, run), f"{session.view.run}.zip", "application/zip")
        tip = "The whole run as recorded, with its dial map, whatever the present dial value"
        saving.download_button("Save this run as a zip", *zipped, on_click="ignore", help=markdown(tip))
    with asking:
        prompt(session, run)
    theme.note(catalog.error, *session.notices)
    if session.job is not None:
        imported.close()
        faults.fragment(tab_jobs.decoding, run_every=tab_jobs.pace())(session)
        st.stop()
    if (engine_file := imported.opened()) is not None:
        imported.draw(*engine_file)
        st.stop()
    if run is None:
        theme.note(problem)
        st.stop()
    mapping(session, run)
    look(session, run, catalog)


def fit(session: Session, run: Run) -> None:
    opened = links.fitted(session.view, run)
    session.view = opened.view
    session.notices.extend(opened.complaints)


def head(session: Session, labels: Mapping[str, str]) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Draw the title and the picker of runs; return the popovers for a new prompt and for zips."""
    row = st.container(horizontal=True, vertical_alignment="center", key="explore-head")
    with row.container(width="content"):
        theme.title("Explore", "")
    library.picker(row, labels, session.view.run, partial(chosen, session), disabled=session.job is not None)
    key = f"new-prompt-{session.asked}"  # a new one closes it
    asking = row.popover("New prompt", key=key, on_change=tab_jobs.get_ready)
    zips = row.popover("Open or save")
    upload = zips.file_uploader(
        "Open the zip of a run's folder, or an engine's responses or metrics",
        type=["zip", "json", "jsonl", "txt", "log", "prom", "sse"],
        max_upload_size=MAX_ZIP >> 20,
        key="zip",
    )
    if upload is not None and imported.add_upload(session, upload):
        st.rerun()
    return asking, zips


def chosen(session: Session, run_id: str) -> None:
    imported.close()
    session.open(run_id)


def prompt(session: Session, run: Run | None) -> None:
    models = session.models
    start, template = run.prompt if run else "", tab_jobs.has_template(models)
    text = decode_form.prompt_box(start, pair=models_form.not_built_in(models), chats=template, follows=True)
    chat, system = decode_form.chat_fields(template)
    act = st.container()  # above the settings, which are long
    with st.expander("Settings"):
        settings = decode_form.settings_fields(shown=run)
    tip = f"Decode this prompt and open what it becomes; it is kept on this server, for {rights.who_sees()}"
    if act.button("Decode", width="stretch", on_click=_close, args=(session,), help=markdown(tip)):
        tab_jobs.start(session, DecodeRequest(text, settings, models, chat, History(system)))
        st.rerun()


def _close(session: Session) -> None:
    session.asked += 1


@faults.drawn
def mapping(session: Session, run: Run) -> None:
    """Draw the progress of the run's incomplete dial map, with buttons to stop or continue it."""
    run_id, worker, mapped = session.view.run, tab_jobs.shared_worker(), run.map
    shared = worker.find(tab_jobs.map_of(run_id))
    if shared is not None and not shared.progress.state.finished and session.filling != (run_id, shared):
        worker.join(shared)  # of another tab
        session.filling = run_id, shared
    if session.filling is not None and session.filling[0] == run_id:
        job = session.filling[1]
        tab_jobs.watch(
            job,
            lambda: (job.progress.exact, tab_jobs.known(job.progress.exact, job.progress.so_far)),
            keeps="Keeps what was mapped; it can go on later",
        )
        return
    has_dial = mapped is not None or rule_named(run.settings.rule).dial is not None
    if has_dial and run.rounds and not (mapped and mapped.complete) and not tab_jobs.why_not_again(session, run):
        missing = "This run has no dial map: away from its own setting, blocks are judged on the recorded text."
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.caption(markdown(tab_jobs.known(mapped.known, run) if mapped else missing))
        if button.button(
            "Continue" if mapped else "Map the dial",
            width="stretch",
            key="map-on",
            help="Finds out what every other setting writes, for two minutes; other visitors' decodes go first",
        ):
            tab_jobs.go_on_mapping(session, run)
            st.rerun()


@faults.fragment
def look(session: Session, run: Run, catalog: library.RunCatalogue) -> None:
    place = st.container()
    state = followed(session, run)
    explore_bar.draw(place, session, run, catalog, tab_jobs.run_store())
    view = session.view
    navigation.write_link(links.to_parameters(view))
    if state.decode is not None:
        tab_jobs.start_again(session, run, *state.decode, cuts=view.cuts)
        st.rerun()
    dial, gamma, threshold_map = state.dial, state.gamma, whole_threshold_map(run)
    if view.cuts and dial is not None and threshold_map is not None:
        run, dial, gamma = threshold_map.at(dial), run.settings.dial, None
    on_screen, _ = shown(run, dial, gamma)
    request = tab_jobs.follow_up(session, on_screen)
    if request is not None:
        tab_jobs.start(session, request)
        st.rerun()
    share.offer(run, dial, gamma, state.overlay)
    folded = st.expander("Figures", expanded=True, key="figures", on_change="rerun")
    if folded.open:
        with folded:
            draw(session, run, dial, gamma or run.settings.gamma)


def followed(session: Session, run: Run) -> ExplorerState:
    which_dial(session, run)
    view, own = session.view, ("dial", "overlay", "selected", "gamma", "pin_token", "pin_dial")
    place: dict[str, Any] = {name: getattr(view, name) for name in own}
    state = explorer(run, key=f"explorer-{view.run}{'-cuts' * view.cuts}", cuts=view.cuts, **place)
    moved = {name: getattr(state, name) for name in own}
    session.view = replace(view, **moved | {"dial": None if state.dial == recorded_at(run, view.cuts) else state.dial})
    return state


def which_dial(session: Session, run: Run) -> None:
    """Draw the choice of the slider's dial, if the run has a map of a controller's threshold."""
    threshold_map, rule_dial = whole_threshold_map(run), rule_named(run.settings.rule).dial
    if threshold_map is None:
        return
    turned = {
        False: "Rule" if rule_dial is None else f"Rule: {rule_dial.symbol}",
        True: f"Draft length: {threshold_map.axis.symbol} of {threshold_map.axis.title}",
    }
    key, how = f"turned-{session.view.run}", "The rule's dial, or the threshold at which drafting stops"
    cuts = theme.choice("The slider turns", turned, key, turned.__getitem__, default=session.view.cuts, help=how)
    if cuts != session.view.cuts:
        view = session.view
        session.view = links.View(view.run, overlay=view.overlay, cuts=cuts)


@faults.fragment
def draw(session: Session, run: Run, dial: float | None, gamma: int) -> None:
    at, colours, name = positions(*shown(run, dial, gamma)), theme.figure_theme(), file_name(run, dial, gamma)
    st.caption(markdown(at.words))
    with st.grid(4, min_column_width=270, key="figure-row"):  # fewer per row on a narrower page
        for make in figures.ALONG_THE_DIAL:
            figure = make(at, colours)
            chart(figure, make.__name__, of=name)

    if run.dial_map is not None:
        choices = {quantity.label: quantity for quantity in QUANTITIES}
        chosen = theme.choice("All settings by", choices, "quantity")
        grid, costs = map_grid(run.dial_map), tab_jobs.shared_worker().models.status.costs
        figure = heat_map(grid, run, choices[chosen], colours, dial=dial, gamma=gamma, costs=costs)
        chart(figure, "heat-map", of=name)
        if choices[chosen].basis == "modelled" and (models := tab_jobs.models_for(session, run)):
            if costs is not None and run.settings.drafts_trees and costs.tree != run.settings.tree:
                costs = None
            why = disturbance(costs) if costs is not None else "Modelled from this run's own timings."
            if why:
                settings = replace(run.settings, gamma=max(run.dial_map.span.gammas))
                measure_costs(why, lambda: settings, models)
