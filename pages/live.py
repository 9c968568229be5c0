"""Live: decode now, watch every round, race three ways to decode, keep the runs. Layout and wiring only."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.components.race import growing, replay
from mars_viz.errors import BadInput
from mars_viz.race.table import race_frame
from mars_viz.run import Run, Settings
from mars_viz.runfiles import MAX_ZIP
from mars_viz.runstore import Kept, Standing
from mars_viz.ui import decode_form, live, navigation, share, theme
from mars_viz.ui.jobs.worker import JobState, UnloadJob
from mars_viz.ui.session import current_session
from mars_viz.ui.watching import live_words, races
from mars_viz.ui.watching.desk import NEXT, RACES, SAVED, TEXT, Desk, current_desk
from mars_viz.ui.watching.live_link import Show, to_parameters
from mars_viz.ui.watching.pair_form import Wanted, chosen_pair, in_words, pair_area

LISTED = 30  # saved runs on the page, until all are asked for
VIEWS = {TEXT: Show.DECODE, RACES: Show.RACE, SAVED: Show.SAVED}


def page() -> None:
    """The whole page."""
    navigation.through_app()
    desk = current_desk()
    if desk.arrive(current_session(), st.query_params.to_dict()):
        st.session_state["live-view"] = next(name for name, show in VIEWS.items() if show is desk.link.show)
    desk.settle()
    theme.title("Live", "What does the rule decide, while it decides it?")
    busy = desk.waits_for is not None
    settings, wanted = ask(desk)
    for sentence in desk.notices:
        theme.note(sentence)
    st.session_state.setdefault("live-view", TEXT)
    shown = st.segmented_control(
        "Show", [TEXT, RACES, SAVED], key="live-view", required=True, label_visibility="collapsed"
    )
    if busy and shown != TEXT:
        st.fragment(released, run_every=live.pace())(desk, busy)
    if shown == TEXT:
        st.fragment(stream, run_every=live.pace() if busy else None)(desk, busy)
    elif shown == RACES:
        race(desk)
    else:
        saved(desk)
    device(desk, settings, wanted)
    navigation.write_link(to_parameters(desk.address_of(VIEWS[shown or TEXT])))


def released(desk: Desk, busy: bool) -> None:
    """Draws the page anew once nothing is waited for any more: what ended is told, and nothing polls."""
    if busy and desk.waits_for is None:
        st.rerun(scope="app")


def ask(desk: Desk) -> tuple[Callable[[], Settings], Callable[[], Wanted]]:
    """The prompt, its folded settings, and the two buttons.

    All stay open while something is under way: the page that would open them again may be lost on a busy server.
    """
    left, middle, right = st.columns([6.6, 1.8, 2.0], vertical_alignment="center")
    with left:
        text = decode_form.prompt_box(pair=chosen_pair(desk.link.models), start=desk.opening)
    with middle:
        wanted = pair_area(live.shared_worker().models.recent, desk.link.models, desk.link.chat)
        settings = decode_form.settings_area(start=desk.link.settings)
    desk.remember(text, settings, wanted)
    with right:
        if st.button("Decode now", type="primary", width="stretch", help="Shows every round as it is made"):
            desk.decode(text, settings, wanted)
            st.session_state[NEXT] = TEXT
            st.rerun()
        if st.button("Race now", width="stretch", help="Autoregressive, strict and relaxed, by the clock"):
            desk.run_race(text, settings, wanted)
            st.session_state[NEXT] = RACES
            st.rerun()
    following = st.session_state.pop(NEXT, None)
    if following is not None:
        st.session_state["live-view"] = following
    return settings, wanted


def stream(desk: Desk, busy: bool) -> None:
    """The decode: its numbers, its text, and a way to stop it; `busy` where the page was drawn while one went on."""
    job = desk.job
    if job is None and desk.recalled is not None:
        recalled(desk, desk.recalled)
        return
    if job is None:
        theme.note("Write a prompt and press Decode now: each round appears here as it is made.")
        released(desk, busy)
        return
    progress = job.progress
    state = progress.state
    words, button = st.columns([6, 1], vertical_alignment="center")
    if state in (JobState.QUEUED, JobState.LOADING):
        worker = live.shared_worker()
        sentence = live_words.waiting(progress, worker.models.status, worker.ahead(job))
        words.progress(worker.models.status.share if state is JobState.LOADING else 0.0, sentence)
    else:
        sentence = live_words.decoding(progress, job.settings.max_new_tokens, job.stopping)
        words.progress(min(1.0, progress.tokens / job.settings.max_new_tokens), sentence)
    if not state.finished:
        button.button("Cancel", on_click=job.cancel, disabled=job.stopping, width="stretch", help="Keeps what there is")
    elif progress.run is not None and button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(progress.saved and desk.run, progress.run)
    for problem in filter(None, [progress.error, progress.unsaved]):
        theme.note(problem)
    run = progress.run or progress.so_far
    theme.numbers(live_words.tiles(run))
    growing(run, job.prompt, job=desk.run, key="live-stream")
    released(desk, busy)


def recalled(desk: Desk, run: Run) -> None:
    """A kept run that the link names, as the decode that it was."""
    words, button = st.columns([6, 1], vertical_alignment="center")
    words.caption(live_words.kept(run))
    if button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(desk.run, run)
    theme.numbers(live_words.tiles(run))
    growing(run, run.prompt, job=desk.run, key="live-stream")


def explore(name: str, run: Run) -> None:
    """Go to Explore with a run: the kept one of that name, or else this one."""
    session = current_session()
    session.land(name or session.keep(run, "live"))
    navigation.leave_for("pages/explore.py")


def race(desk: Desk) -> None:
    """A race under way, or a recorded one."""
    if desk.race is not None:
        st.fragment(racing, run_every=live.pace())(desk)
        return
    course = races.course()
    name = course.landed(desk.shown)
    if desk.shown and name != desk.shown:
        theme.note("There is no race of that name here; " + ("another is shown." if name else "run one first."))
    desk.shown = name
    left, right = st.columns([5.6, 4.4], vertical_alignment="center")
    deeds = right.container(horizontal=True, horizontal_alignment="right")
    with deeds.popover("Open"):
        open_race(desk)
    if not name:
        theme.note("No race was run here yet. Choose a relaxed rule in Settings and press Race now.")
        return
    st.session_state["race"] = name
    with deeds.popover("Change", disabled=not course.own(name)):
        st.text_input("Name", name, key=f"race-name-{name}", max_chars=80)
        st.button("Rename", key=f"rename-race-{name}", on_click=rename_race, args=(desk, name))
        st.button("Delete for good", key=f"delete-race-{name}", on_click=delete_race, args=(desk, name))
    left.selectbox(
        "Race", list(course.entries), key="race", format_func=course.label, label_visibility="collapsed",
        on_change=lambda: setattr(desk, "shown", st.session_state["race"]),
    )  # fmt: skip
    try:
        opened = course.opened(name)
    except BadInput as error:
        theme.note(str(error))
        return
    deeds.download_button("Download", lambda: course.zipped(name), f"{name}.zip", "application/zip", on_click="ignore")
    if deeds.button("Explore", help="Open the relaxed lane in Explore"):
        explore("", opened.relaxed)
    replay(opened, key="race-replay")
    board = share.Table("What each lane took", f"{name}-race", lambda: race_frame(opened))
    share.tables([board], [run.settings.rule for run in (opened.strict, opened.relaxed)], "race-board")


def open_race(desk: Desk) -> None:
    """Bring in the zip of a race, from this page of another server or of this one."""
    upload = st.file_uploader("Open a race's zip", type="zip", max_upload_size=MAX_ZIP >> 20, key="race-zip")
    if upload is not None and desk.bring_race(upload.file_id, upload.getvalue(), upload.name.removesuffix(".zip")):
        st.rerun()


def rename_race(desk: Desk, name: str) -> None:
    """Give a race the name that is written beside it; what is wrong becomes a notice."""
    desk.attempt(lambda: setattr(desk, "shown", races.race_store().rename(name, st.session_state[f"race-name-{name}"])))


def delete_race(desk: Desk, name: str) -> None:
    """Delete a race and show another; what is wrong becomes a notice."""

    def gone() -> None:
        races.race_store().delete(name)
        desk.shown = ""

    desk.attempt(gone)


def racing(desk: Desk) -> None:
    """How far a race is, and a way to stop it."""
    job = desk.race
    if job is None or job.progress.state.finished:
        st.rerun(scope="app")
    progress, worker = job.progress, live.shared_worker()
    words, button = st.columns([6, 1], vertical_alignment="center")
    if progress.state is JobState.DECODING:
        words.progress(0.0, live_words.racing(progress, job.stopping))
    else:
        sentence = live_words.waiting(progress, worker.models.status, worker.ahead(job))
        words.progress(worker.models.status.share, sentence)
    button.button("Cancel", on_click=job.cancel, disabled=job.stopping, width="stretch", key="cancel-race")


def saved(desk: Desk) -> None:
    """The runs that were kept, each with what can be done with it."""
    store = live.run_store()
    try:
        kept = store.list()
    except BadInput as error:
        theme.note(str(error))
        return
    st.caption(f"In {store.folder}, for everyone who can open this page; MARS_VIZ_RUNS names another folder.")
    if not kept:
        theme.note("No run is kept yet. Press Decode now: what it makes is kept here.")
    every = st.session_state.get("all-saved", False)
    for entry in kept if every else kept[:LISTED]:
        one_saved(desk, entry)
    if len(kept) > LISTED and not every:
        show_all = {"all-saved": True}
        st.button(f"Show all {len(kept)} runs", on_click=lambda: st.session_state.update(show_all), key="every-saved")


def one_saved(desk: Desk, entry: Kept) -> None:
    """A line of the list."""
    words, first, second, third = st.columns([6, 1.2, 1.2, 1.2], vertical_alignment="center")
    whole = entry.standing in (Standing.WHOLE, Standing.INTERRUPTED) and not entry.error
    with words:
        standing = "" if entry.standing is Standing.WHOLE else f", {entry.standing.value}"
        theme.line(entry.title, entry.error or f"{entry.name}, {entry.tokens} tokens{standing}")
    if first.button("Explore", key=f"open-{entry.name}", disabled=not whole, width="stretch"):
        current_session().land(entry.name)
        navigation.leave_for("pages/explore.py")
    second.download_button(
        "Download", lambda: live.run_store().zipped(entry.name), f"{entry.name}.zip", "application/zip",
        on_click="ignore", key=f"zip-{entry.name}", disabled=not whole, width="stretch",
    )  # fmt: skip
    with third.popover("Change", width="stretch", disabled=entry.standing is Standing.GROWING):
        st.text_input("Name", entry.name, key=f"name-{entry.name}", max_chars=80)
        st.button("Rename", key=f"rename-{entry.name}", on_click=rename, args=(desk, entry.name))
        st.button("Delete for good", key=f"delete-{entry.name}", on_click=delete, args=(desk, entry.name))


def rename(desk: Desk, name: str) -> None:
    """Give a kept run the name that is written beside it; what is wrong becomes a notice."""
    desk.attempt(lambda: desk.renamed(name, live.run_store().rename(name, str(st.session_state[f"name-{name}"]))))


def delete(desk: Desk, name: str) -> None:
    """Delete a kept run; what is wrong becomes a notice."""

    def gone() -> None:
        live.run_store().delete(name)
        desk.renamed(name, "")

    desk.attempt(gone)


def device(desk: Desk, settings: Callable[[], Settings], wanted: Callable[[], Wanted]) -> None:
    """What is loaded, where it runs, what it takes."""
    status = live.shared_worker().models.status
    with st.expander("Models and device", expanded=status.device is not None):
        if status.choice is None or status.device is None:
            st.caption("No models are loaded; the first decode loads them.")
        else:
            theme.small(in_words(status.choice))
            theme.numbers(live_words.device_tiles(status.device))
            for sentence in status.device.notes:
                theme.note(sentence)
        if status.costs is not None:
            theme.numbers(live_words.cost_tiles(status.costs, status.costs.gamma))
        with st.container(horizontal=True):
            if st.button("Measure passes", help="A few seconds: what a pass costs with this pair here"):
                desk.measure(settings, wanted)
                st.rerun()
            if st.button("Unload models", disabled=status.choice is None, help="Gives their memory back"):
                live.shared_worker().submit(UnloadJob())
        if desk.measuring is not None:
            st.fragment(measuring, run_every=live.pace())(desk)


def measuring(desk: Desk) -> None:
    """Waits for a measurement."""
    if desk.measuring is None or desk.measuring.progress.state.finished:
        st.rerun(scope="app")
    st.caption("Measuring what a pass costs …")


page()
