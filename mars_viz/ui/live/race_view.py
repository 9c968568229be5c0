"""Races on the Live page: one under way, or a kept one, and what can be done with it. Knows the desk."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.components.race import racing as lanes_so_far
from mars_viz.components.race import replay
from mars_viz.errors import BadInput
from mars_viz.race import Race, RaceEntry
from mars_viz.race.table import race_frame
from mars_viz.runfiles import MAX_ZIP
from mars_viz.ui import faults, share, tab_jobs, theme
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.live import changing, live_words, races
from mars_viz.ui.live.page_state import LivePageState
from mars_viz.ui.live.text_view import explore
from mars_viz.ui.under_way import progress_bar


def race(desk: LivePageState) -> None:
    """A race under way, or a recorded one."""
    if desk.race is not None:
        faults.fragment(racing, run_every=tab_jobs.pace())(desk)
        return
    course = races.course()
    name = course.landed(desk.shown)
    if desk.shown and name != desk.shown:
        theme.note("There is no race of that name here; " + ("another is shown." if name else "run one first."))
    desk.shown = name
    left, right = st.columns([5.3, 4.7], vertical_alignment="center")
    deeds = right.container(horizontal=True, horizontal_alignment="right", gap="xsmall")  # one row, on a phone as well
    with deeds.popover("Open"):
        open_race(desk)
    gone(desk)
    if not name:
        theme.note("No race was run here yet. Choose a relaxed rule in Settings and press Race now.")
        return
    st.session_state["race"] = name
    recorded = "" if course.own(name) else "This race comes with MARS Viz, and stays as it is."
    changing.popover(deeds, desk, item(course.entries[name]), recorded)
    left.selectbox(
        "Race", list(course.entries), key="race", format_func=course.label, label_visibility="collapsed",
        on_change=lambda: setattr(desk, "shown", st.session_state["race"]),
    )  # fmt: skip
    try:
        opened = course.opened(name)
    except BadInput as error:
        theme.note(str(error))
        return
    raced(opened, name, deeds, course)


@faults.drawn
def raced(opened: Race, name: str, deeds: DeltaGenerator, course: races.Replay) -> None:
    """A recorded race, and what can be done with it."""
    deeds.download_button("Download", lambda: course.zipped(name), f"{name}.zip", "application/zip", on_click="ignore")
    if deeds.button("Explore", help="Open the relaxed lane in Explore"):
        explore("", opened.relaxed)
    replay(opened, key="race-replay")
    board = share.Table("What each lane took", f"{name}-race", lambda: race_frame(opened))
    share.tables([board], [run.settings.rule for run in (opened.strict, opened.relaxed)], "race-board")


def open_race(desk: LivePageState) -> None:
    """Bring in the zip of a race, from this page of another server or of this one."""
    upload = st.file_uploader("Open a race's zip", type="zip", max_upload_size=MAX_ZIP >> 20, key="race-zip")
    if upload is not None and desk.bring_race(upload.file_id, upload.getvalue(), upload.name.removesuffix(".zip")):
        st.rerun()


def item(entry: RaceEntry) -> changing.Item:
    """A race, as something to rename and to delete."""
    title = "" if entry.manifest is None else " ".join(entry.manifest.title.split())
    return changing.Item(races.race_store(), entry.path.name, entry.title, title, "race", entry.manifest is not None)


def gone(desk: LivePageState) -> None:
    """The races that were deleted here, and the bin."""
    store = races.race_store()
    items = [item(entry) for entry in reversed(store.deleted())]
    changing.lost(desk, "race", [*items, *(item(entry) for entry in store.list())])
    here = [each for each in items if each.key in desk.deleted]
    for each in here:
        changing.deleted(desk, each)
    changing.bin_of(desk, [each for each in items if each not in here])


def racing(desk: LivePageState) -> None:
    """How far a race is, and a way to stop it."""
    job = desk.race
    if job is None or job.progress.state.finished:
        st.rerun(scope="app")
    progress, worker = job.progress, tab_jobs.shared_worker()
    if progress.state is JobState.DECODING:
        share, words = live_words.raced(progress), live_words.racing(progress, job.stopping)
    else:
        status = worker.models.status
        share, words = status.share, live_words.waiting(progress, status, worker.ahead(job))
    progress_bar(job, share, words, key="cancel-race")
    lanes_so_far(progress.texts, job.prompt, job.settings, job=desk.racing, key="race-lanes")
