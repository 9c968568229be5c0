"""Draws the Live page: the decode, the races, the measurements of the models and the check of an EAGLE-3 head."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.analysis.head_agreement import NOTHING, HeadCheck
from mars_viz.analysis.intervals import Interval
from mars_viz.backend_choice import BackendChoice
from mars_viz.components.race import growing, replay
from mars_viz.components.race import racing as lanes_so_far
from mars_viz.costs import disturbance
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.figures.engines import head_agreement
from mars_viz.race import Race, RaceEntry
from mars_viz.race.records import race_frame
from mars_viz.run import Run, Settings
from mars_viz.runfiles import MAX_ZIP
from mars_viz.speculators.drafter_names import Eagle3
from mars_viz.speculators.names import drafter_for
from mars_viz.ui import faults, navigation, share, tab_jobs, theme
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.models import OTHER_DRAFTERS
from mars_viz.ui.live import changing, live_words
from mars_viz.ui.live.page_state import LivePageState, Replay, Wanted, course, race_store
from mars_viz.ui.models_form import in_words
from mars_viz.ui.session import current_session
from mars_viz.ui.tab_jobs import progress_bar, stop_button
from mars_viz.words import THIN_SPACE, counted, number

EXAMPLE = "**A recorded example**: one prompt, decoded three ways. *Race now* does the same with yours."


def stream(page_state: LivePageState, busy: bool) -> None:
    """Draw the decode with its numbers, text and cancel button. `busy` is True if a job was running when the page was
    drawn."""
    job = page_state.job
    if job is None:
        if page_state.recalled is not None:
            recalled(page_state, page_state.recalled)
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
        is_done = state is JobState.DONE  # the text may end before the limit
        words.progress(1.0 if is_done else min(1.0, progress.tokens / job.settings.max_new_tokens), markdown(sentence))
    if not state.finished:
        stop_button(button, "Cancel", job, keeps="Saves the rounds so far")
    elif progress.run is not None and button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(progress.saved and page_state.run, progress.run)
    for problem in filter(None, [progress.error, progress.unsaved]):
        theme.note(problem)
    run = progress.so_far
    if run is not None or not state.finished:
        theme.numbers(live_words.tiles(run))
        growing(run, job.prompt, job=page_state.run, key="live-stream")
    if progress.run is not None:
        follow_up(page_state, progress.run)
    released(page_state, busy)


def follow_up(page_state: LivePageState, run: Run) -> None:
    """Decode the next turn of the run's conversation, if the user wrote one."""
    text, models = tab_jobs.follow_up(current_session(), run)
    if text:
        page_state.decode(text, lambda: run.settings, Wanted(models, run.provenance.chat, run.conversation))
        st.rerun(scope="app")


def recalled(page_state: LivePageState, run: Run) -> None:
    """Draw a saved run from the link."""
    words, button = st.columns([6, 1], vertical_alignment="center")
    words.caption(markdown(live_words.kept(run)))
    if button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(page_state.run, run)
    theme.numbers(live_words.tiles(run))
    growing(run, run.prompt, job=page_state.run, key="live-stream")
    follow_up(page_state, run)


def released(page_state: LivePageState, busy: bool) -> None:
    """Rerun the page after its last job has ended, which also stops polling."""
    if busy and page_state.waits_for is None:
        st.rerun(scope="app")


def explore(name: str, run: Run) -> None:
    """Open Explore with the saved run of that name, or with `run` if the name is empty."""
    session = current_session()
    session.land(name or session.keep(run, "live"))
    navigation.leave_for("pages/explore.py")


def race(page_state: LivePageState) -> None:
    """Draw the unfinished race, or a recorded one."""
    if page_state.race is not None:
        faults.fragment(racing, run_every=tab_jobs.pace())(page_state)
        return
    replays = course()
    name = replays.landed(page_state.shown)
    if page_state.shown and name != page_state.shown:
        theme.note("There is no race of that name here; " + ("another is shown." if name else "run one first."))
        page_state.shown = ""
    if name and not page_state.shown:
        st.caption(EXAMPLE)
    above = st.container()
    left, right = st.columns([5.3, 4.7], vertical_alignment="center")
    # in one row, also on a phone
    actions = right.container(horizontal=True, horizontal_alignment="right", gap="xsmall")
    with actions.popover("Open"):
        upload = st.file_uploader("Open a race's zip", type="zip", max_upload_size=MAX_ZIP >> 20, key="race-zip")
    if upload is not None:
        name_of_zip = upload.name.removesuffix(".zip")
        if page_state.bring_race(upload.file_id, upload.getvalue(), name_of_zip):
            st.rerun()
    gone(page_state)
    if not name:
        theme.note("No race was run here yet. Choose a relaxed rule in Settings and press Race now.")
        return
    st.session_state["race"] = name
    if replays.own(name):
        changing.popover(actions, page_state, race_item(replays.entries[name]))
    left.selectbox(
        "Race", list(replays.entries), key="race", format_func=replays.label, label_visibility="collapsed",
        on_change=lambda: setattr(page_state, "shown", st.session_state["race"]),
    )  # fmt: skip
    with above:
        try:
            opened = replays.opened(name)
        except BadInput as error:
            theme.note(str(error))
            return
        raced(opened, name, actions, replays, play=not page_state.shown)


@faults.drawn
def raced(opened: Race, name: str, deeds: DeltaGenerator, replays: Replay, *, play: bool) -> None:
    """Draw a recorded race with its actions."""
    deeds.download_button("Download", lambda: replays.zipped(name), f"{name}.zip", "application/zip", on_click="ignore")
    if deeds.button("Explore", help="Open the relaxed lane in Explore"):
        explore("", opened.relaxed)
    replay(opened, key="race-replay", play=play)
    board = share.Table("What each lane took", f"{name}-race", lambda: race_frame(opened))
    share.tables([board], [run.settings.rule for run in (opened.strict, opened.relaxed)], "race-board")


def race_item(entry: RaceEntry) -> changing.Item:
    """Return the race as an item that can be renamed and deleted."""
    title = "" if entry.manifest is None else " ".join(entry.manifest.title.split())
    return changing.Item(race_store(), entry.path.name, entry.title, title, "race", entry.manifest is not None)


def gone(page_state: LivePageState) -> None:
    """Draw deleted races and the bin."""
    store = race_store()
    items = [race_item(entry) for entry in reversed(store.deleted())]
    changing.lost(page_state, "race", [*items, *(race_item(entry) for entry in store.list())])
    deleted_in_tab = [each for each in items if each.key in page_state.deleted]
    for each in deleted_in_tab:
        changing.deleted(page_state, each)
    changing.bin_of(page_state, [each for each in items if each not in deleted_in_tab])


def racing(page_state: LivePageState) -> None:
    """Draw the progress of a race and its cancel button."""
    job = page_state.race
    if job is None or job.progress.state.finished:
        st.rerun(scope="app")
    progress, worker = job.progress, tab_jobs.shared_worker()
    if progress.state is JobState.DECODING:
        share, words = live_words.raced(progress), live_words.racing(progress, job.stopping)
    else:
        status = worker.models.status
        share, words = status.share, live_words.waiting(progress, status, worker.ahead(job))
    progress_bar(job, share, words, key="cancel-race")
    lanes_so_far(progress.texts, job.prompt, job.settings, job=page_state.racing, key="race-lanes")


def device(page_state: LivePageState, settings: Callable[[], Settings], wanted: Wanted) -> None:
    """Draw the costs of passes, and the check of a head."""
    status = tab_jobs.shared_worker().models.status
    with st.expander("Measure these models", expanded=status.device is not None):
        if status.costs is not None:
            theme.numbers(live_words.cost_tiles(status.costs, status.costs.gamma))
            if warning := disturbance(status.costs):
                theme.note(warning)
        again = status.costs is not None or page_state.measured
        if st.button(
            "Measure again" if again else "Measure passes",
            help="Times the passes of the models here; takes a few seconds",
            key="measure-passes",
        ):
            page_state.measure(settings, wanted)
            st.rerun()
        if page_state.measuring is not None:
            faults.fragment(measuring, run_every=tab_jobs.pace())(page_state)
        check_area(page_state, settings, wanted)


def measuring(page_state: LivePageState) -> None:
    """Draw the progress of a measurement."""
    if page_state.measuring is None or page_state.measuring.progress.state.finished:
        st.rerun(scope="app")
    job, words = page_state.measuring, "Measuring what a pass costs, until its interval is small …"
    progress_bar(job, job.progress.share, words, "Stop", key="stop-measuring")


HEAD_CHECK = "Is an EAGLE-3 head accepted less than hoped? A check says at which depth, and why."


def check_area(page_state: LivePageState, settings: Callable[[], Settings], wanted: Wanted) -> None:
    """Draw the check of the chosen head, or how to choose one."""
    choice = _chosen(wanted)
    job = page_state.checking
    if job is not None and not job.progress.state.finished:
        faults.fragment(_checking, run_every=tab_jobs.pace())(page_state)
        return
    if choice is None:
        built_in = in_words(OTHER_DRAFTERS["its EAGLE-3 head"])
        theme.small(
            f"{HEAD_CHECK} Choose “{built_in}” under Models at the top, or name a drafter such as eagle3:HEADDIR there."
        )
        return
    done = job if job is not None and job.choice == choice else None
    words, button = st.columns([6, 1.6], vertical_alignment="center")
    with words:
        theme.small(HEAD_CHECK)
    if button.button(
        "Check the head" if done is None else "Check again",
        key="check-head",
        help="Drafts after every token of twelve texts of the target's own; some seconds with the built-in pair",
        width="stretch",
    ):
        page_state.check_head(settings, wanted)
        st.rerun()
    if done is None:
        return
    progress = done.progress
    if progress.error:
        theme.note(progress.error)
    elif progress.state is JobState.CANCELLED and progress.result is None:
        theme.note("You stopped the check before it could tell anything; three texts are the least.")
    if progress.result is not None:
        _results(progress.result)


def _chosen(wanted: Wanted) -> BackendChoice | None:
    """Return the chosen models if an EAGLE-3 head drafts, otherwise None."""
    choice = wanted.choice
    try:
        drafting = drafter_for(choice.target or None, choice.drafter or None)
    except BadInput:  # the buttons above report it
        return None
    return choice if isinstance(drafting, Eagle3) else None


def _checking(page_state: LivePageState) -> None:
    job = page_state.checking
    if job is None or job.progress.state.finished:
        st.rerun(scope="app")
    progress, worker = job.progress, tab_jobs.shared_worker()
    if job.stopping:
        words = "Stopping after this text …"
    elif progress.state is JobState.DECODING:
        words = "Checking the head along texts of the target's own …"
    else:
        words = live_words.waiting(progress, worker.models.status, worker.ahead(job))
    progress_bar(job, progress.share, words, "Stop", keeps="Keeps what the texts so far tell", key="stop-check")
    if progress.result is not None:
        _results(progress.result)


def _results(check: HeadCheck) -> None:
    left, right = st.columns([6, 4], vertical_alignment="center")
    with left:
        theme.chart(head_agreement(check, theme.figure_theme()), "head-agreement")
    with right:
        for sentence in check.findings:
            theme.small(sentence) if sentence == NOTHING else theme.note(sentence)
        for trial in check.tried:
            kept = number(trial.accepted.estimate)
            theme.small(f"{percent(trial.first)} agree at depth 1, {kept} tokens kept: {trial.reads}.")
        theme.small(
            f"{counted(check.drafts, 'draft')} of {check.head} along {counted(check.texts, 'text')} that "
            f"{check.target} wrote by itself. True features say what the head has learnt, its own states what becomes "
            "of that while it drafts."
        )
        theme.small(
            f"Its vocabulary holds {percent(check.coverage)} of the target's probability there, and the target's best "
            f"token at {percent(check.best_held)} of the positions. Measured; 95{THIN_SPACE}% intervals, drawn by text."
        )


def percent(interval: Interval) -> str:
    """Return a percentage with its interval, like '98.2 % (97.0 to 98.7)'."""
    low, high = number(100 * interval.low), number(100 * interval.high)
    return f"{number(100 * interval.estimate)}{THIN_SPACE}% ({low} to {high})"
