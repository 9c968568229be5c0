"""Check of an EAGLE-3 head on the Live page: the button, the progress and the results."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.analysis.head_agreement import NOTHING, HeadCheck
from mars_viz.analysis.intervals import Interval
from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput
from mars_viz.figures.engines import head_agreement
from mars_viz.run import Settings
from mars_viz.speculators.drafter_names import Eagle3
from mars_viz.speculators.names import drafter_for
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.jobs.background_task import BackgroundTask
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.models import OTHER_DRAFTERS
from mars_viz.ui.live import live_words
from mars_viz.ui.live.page_state import LivePageState, Wanted
from mars_viz.ui.models_form import in_words
from mars_viz.ui.under_way import progress_bar
from mars_viz.words import THIN_SPACE, counted, number

WHAT = "Is an EAGLE-3 head accepted less than hoped? A check says at which depth, and why."


def area(page_state: LivePageState, settings: Callable[[], Settings], wanted: Wanted) -> None:
    """Draw the check of the chosen head, or how to choose one."""
    choice = _chosen(wanted)
    job = page_state.checking
    if job is not None and not job.progress.state.finished:
        faults.fragment(_under_way, run_every=tab_jobs.pace())(page_state)
        return
    if choice is None:
        built_in = in_words(OTHER_DRAFTERS["its EAGLE-3 head"])
        theme.small(
            f"{WHAT} Choose “{built_in}” under Models at the top, or name a drafter such as eagle3:HEADDIR there."
        )
        return
    done = job if job is not None and job.choice == choice else None
    words, button = st.columns([6, 1.6], vertical_alignment="center")
    with words:
        theme.small(WHAT)
    if button.button(
        "Check the head" if done is None else "Check again",
        key="check-head",
        help="Drafts after every token of twelve texts of the target's own; some seconds with the built-in pair",
        width="stretch",
    ):
        page_state.check_head(settings, wanted)
        st.rerun()
    if done is not None:
        _ended(done)


def _chosen(wanted: Wanted) -> BackendChoice | None:
    """Return the chosen models if an EAGLE-3 head drafts, otherwise None."""
    choice = wanted.choice
    try:
        drafting = drafter_for(choice.target or None, choice.drafter or None)
    except BadInput:  # the buttons above report it
        return None
    return choice if isinstance(drafting, Eagle3) else None


def _under_way(page_state: LivePageState) -> None:
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


def _ended(job: BackgroundTask) -> None:
    progress = job.progress
    if progress.error:
        theme.note(progress.error)
    elif progress.state is JobState.CANCELLED and progress.result is None:
        theme.note("You stopped the check before it could tell anything; three texts are the least.")
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
            theme.small(
                f"{share(trial.first)} agree at depth 1, {number(trial.accepted.estimate)} tokens kept: {trial.reads}."
            )
        theme.small(
            f"{counted(check.drafts, 'draft')} of {check.head} along {counted(check.texts, 'text')} that "
            f"{check.target} wrote by itself. True features say what the head has learnt, its own states what becomes "
            "of that while it drafts."
        )
        theme.small(
            f"Its vocabulary holds {share(check.coverage)} of the target's probability there, and the target's best "
            f"token at {share(check.best_held)} of the positions. Measured; 95{THIN_SPACE}% intervals, drawn by text."
        )


def share(interval: Interval) -> str:
    """Return a percentage with its interval, like '98.2 % (97.0 to 98.7)'."""
    low, high = number(100 * interval.low), number(100 * interval.high)
    return f"{number(100 * interval.estimate)}{THIN_SPACE}% ({low} to {high})"
