"""What the Live page shows: its decode, its races, each with what can be done with it, and the models that are
loaded. Knows the tab's memory of the page, the stores and the worker."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.components.race import growing, replay
from mars_viz.components.race import racing as lanes_so_far
from mars_viz.costs import disturbance
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.race import Race, RaceEntry
from mars_viz.race.records import race_frame
from mars_viz.run import Run, Settings
from mars_viz.runfiles import MAX_ZIP
from mars_viz.ui import faults, navigation, share, tab_jobs, theme
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.live import changing, head_check, live_words, races
from mars_viz.ui.live.page_state import LivePageState, Wanted
from mars_viz.ui.session import current_session
from mars_viz.ui.under_way import progress_bar, stop_button

EXAMPLE = "**A recorded example**: one prompt, decoded three ways. *Race now* does the same with yours."


def stream(desk: LivePageState, busy: bool) -> None:
    """The decode: its numbers, its text, and a way to stop it; `busy` where the page was drawn while one went on."""
    job = desk.job
    if job is None:
        if desk.recalled is not None:
            recalled(desk, desk.recalled)
        return
    progress = job.progress
    state = progress.state
    words, button = st.columns([6, 1], vertical_alignment="center")
    if state in (JobState.QUEUED, JobState.LOADING):
        worker = tab_jobs.shared_worker()
        sentence = live_words.waiting(progress, worker.models.status, worker.ahead(job))
        words.progress(worker.models.status.share if state is JobState.LOADING else 0.0, markdown(sentence))
    else:
        sentence = live_words.decoding(progress, job.settings.max_new_tokens, job.stopping)
        done = state is JobState.DONE  # which a text may be before its limit
        words.progress(1.0 if done else min(1.0, progress.tokens / job.settings.max_new_tokens), markdown(sentence))
    if not state.finished:
        stop_button(button, "Cancel", job, keeps="Saves the rounds so far")
    elif progress.run is not None and button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(progress.saved and desk.run, progress.run)
    for problem in filter(None, [progress.error, progress.unsaved]):
        theme.note(problem)
    run = progress.so_far
    if run is not None or not state.finished:
        theme.numbers(live_words.tiles(run))
        growing(run, job.prompt, job=desk.run, key="live-stream")
    if progress.run is not None:
        follow_up(desk, progress.run)
    released(desk, busy)


def follow_up(desk: LivePageState, run: Run) -> None:
    """The next turn of the run's conversation."""
    text, models = tab_jobs.follow_up(current_session(), run)
    if text:
        desk.decode(text, lambda: run.settings, Wanted(models, run.provenance.chat, run.conversation))
        st.rerun(scope="app")


def recalled(desk: LivePageState, run: Run) -> None:
    """A kept run that the link names, as the decode that it was."""
    words, button = st.columns([6, 1], vertical_alignment="center")
    words.caption(markdown(live_words.kept(run)))
    if button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(desk.run, run)
    theme.numbers(live_words.tiles(run))
    growing(run, run.prompt, job=desk.run, key="live-stream")
    follow_up(desk, run)


def released(desk: LivePageState, busy: bool) -> None:
    """Draws the page anew once nothing is waited for any more: what ended is told, and nothing polls."""
    if busy and desk.waits_for is None:
        st.rerun(scope="app")


def explore(name: str, run: Run) -> None:
    """Go to Explore with a run: the kept one of that name, or else this one."""
    session = current_session()
    session.land(name or session.keep(run, "live"))
    navigation.leave_for("pages/explore.py")


def race(desk: LivePageState) -> None:
    """A race under way, or a recorded one."""
    if desk.race is not None:
        faults.fragment(racing, run_every=tab_jobs.pace())(desk)
        return
    course = races.course()
    name = course.landed(desk.shown)
    if desk.shown and name != desk.shown:
        theme.note("There is no race of that name here; " + ("another is shown." if name else "run one first."))
        desk.shown = ""
    if name and not desk.shown:
        st.caption(EXAMPLE)
    above = st.container()
    left, right = st.columns([5.3, 4.7], vertical_alignment="center")
    deeds = right.container(horizontal=True, horizontal_alignment="right", gap="xsmall")  # one row, on a phone as well
    with deeds.popover("Open"):
        open_race(desk)
    gone(desk)
    if not name:
        theme.note("No race was run here yet. Choose a relaxed rule in Settings and press Race now.")
        return
    st.session_state["race"] = name
    if course.own(name):
        changing.popover(deeds, desk, race_item(course.entries[name]))
    left.selectbox(
        "Race", list(course.entries), key="race", format_func=course.label, label_visibility="collapsed",
        on_change=lambda: setattr(desk, "shown", st.session_state["race"]),
    )  # fmt: skip
    with above:
        try:
            opened = course.opened(name)
        except BadInput as error:
            theme.note(str(error))
            return
        raced(opened, name, deeds, course, play=not desk.shown)


@faults.drawn
def raced(opened: Race, name: str, deeds: DeltaGenerator, course: races.Replay, *, play: bool) -> None:
    """A recorded race, and what can be done with it."""
    deeds.download_button("Download", lambda: course.zipped(name), f"{name}.zip", "application/zip", on_click="ignore")
    if deeds.button("Explore", help="Open the relaxed lane in Explore"):
        explore("", opened.relaxed)
    replay(opened, key="race-replay", play=play)
    board = share.Table("What each lane took", f"{name}-race", lambda: race_frame(opened))
    share.tables([board], [run.settings.rule for run in (opened.strict, opened.relaxed)], "race-board")


def open_race(desk: LivePageState) -> None:
    """Bring in the zip of a race, from this page of another server or of this one."""
    upload = st.file_uploader("Open a race's zip", type="zip", max_upload_size=MAX_ZIP >> 20, key="race-zip")
    if upload is not None and desk.bring_race(upload.file_id, upload.getvalue(), upload.name.removesuffix(".zip")):
        st.rerun()


def race_item(entry: RaceEntry) -> changing.Item:
    """A race, as something to rename and to delete."""
    title = "" if entry.manifest is None else " ".join(entry.manifest.title.split())
    return changing.Item(races.race_store(), entry.path.name, entry.title, title, "race", entry.manifest is not None)


def gone(desk: LivePageState) -> None:
    """The races that were deleted here, and the bin."""
    store = races.race_store()
    items = [race_item(entry) for entry in reversed(store.deleted())]
    changing.lost(desk, "race", [*items, *(race_item(entry) for entry in store.list())])
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


def device(desk: LivePageState, settings: Callable[[], Settings], wanted: Wanted) -> None:
    """What passes cost with the models, and the check of a head."""
    status = tab_jobs.shared_worker().models.status
    with st.expander("Measure these models", expanded=status.device is not None):
        if status.costs is not None:
            theme.numbers(live_words.cost_tiles(status.costs, status.costs.gamma))
            if said := disturbance(status.costs):
                theme.note(said)
        again = status.costs is not None or desk.measured
        if st.button(
            "Measure again" if again else "Measure passes",
            help="Times the passes of the models here; takes a few seconds",
            key="measure-passes",
        ):
            desk.measure(settings, wanted)
            st.rerun()
        if desk.measuring is not None:
            faults.fragment(measuring, run_every=tab_jobs.pace())(desk)
        head_check.area(desk, settings, wanted)


def measuring(desk: LivePageState) -> None:
    """Waits for a measurement."""
    if desk.measuring is None or desk.measuring.progress.state.finished:
        st.rerun(scope="app")
    job, words = desk.measuring, "Measuring what a pass costs, until its interval is small …"
    progress_bar(job, job.progress.share, words, "Stop", key="stop-measuring")
