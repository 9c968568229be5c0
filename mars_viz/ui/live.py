"""Decoding for this tab with the built-in pair: the server's one worker, and what becomes of a job when it ends.

The model libraries are imported by the worker's thread, at the first decode, and never by a page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.figures.words import counted, number
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.ui.session import Session
from mars_viz.ui.worker import JobState, Progress, Recorder, Worker

BUILT_IN = "built-in/"
"""How the names of the built-in models begin in a run's provenance."""


@st.cache_resource(show_spinner=False)
def shared_worker() -> Worker[Any]:
    """The server's worker, which owns the built-in pair once it is loaded."""
    return Worker(_load, _record)


def _load() -> Any:
    try:
        from mars_viz.speculators.loading import load_pair
    except ImportError as error:
        raise BadInput(
            f"Decoding needs PyTorch and transformers, and {error.name} is missing; install requirements.txt. "
            "Recorded runs open without them."
        ) from error
    return load_pair()


def _record(pair: Any, prompt: str, settings: Settings, title: str) -> Recorder:
    from mars_viz.recording import Recording

    return Recording(pair, prompt, settings, title=title)


def start(session: Session, prompt: str, settings: Callable[[], Settings]) -> None:
    """Ask the worker to decode for this tab; a bad setting or an empty prompt becomes a notice."""
    session.notices.clear()
    if not prompt.strip():
        session.notices.append("Write a prompt first; the model continues it.")
        return
    try:
        chosen = settings()
        rule_named(chosen.rule).checked_dial(chosen.dial)
    except BadInput as error:
        session.notices.append(str(error))
        return
    session.job = shared_worker().submit(prompt, chosen)


def start_again(session: Session, run: Run, dial: float | None) -> None:
    """Decode the run's prompt anew at this dial value, with its other settings; where that cannot be, say why."""
    reason = why_not_again(run)
    if reason:
        session.notices[:] = [reason]
        return
    start(session, run.prompt, lambda: replace(run.settings, dial=dial))


def why_not_again(run: Run) -> str:
    """Why the run's prompt cannot be decoded anew here; empty if it can."""
    made_with = run.provenance
    if made_with.target.startswith(BUILT_IN) and made_with.drafter.startswith(BUILT_IN):
        return "" if run.prompt else "This run does not say what its prompt was, so it cannot be decoded anew."
    return (
        f"This run was made with {made_with.target or 'an unnamed target'} and "
        f"{made_with.drafter or 'an unnamed drafter'}, and only the built-in pair is at hand here. "
        "Record it again at that dial with `mars-viz record`, then upload the folder."
    )


def settle(session: Session) -> None:
    """If this tab's job has ended, open what it made and say how it ended."""
    if session.job is None or not session.job.progress.state.finished:
        return
    progress, session.job = session.job.progress, None
    if progress.run is not None:
        session.open(session.keep(progress.run, "live"))
    session.notices[:] = filter(None, [how_it_ended(progress)])


def how_it_ended(progress: Progress) -> str:
    """A sentence about a finished job; empty where the result speaks for itself."""
    if progress.state is JobState.FAILED:
        return progress.error
    if progress.state is JobState.CANCELLED:
        kept = f"after {counted(progress.tokens, 'token')}; they are kept below" if progress.run else "before a token"
        return f"You stopped the decode {kept}."
    return ""


def what_goes_on(progress: Progress, limit: int, ahead: int, stopping: bool) -> str:
    """A sentence about a job that is under way."""
    if stopping:
        return "Stopping after this round …"
    if progress.state is JobState.QUEUED:
        return f"Waiting for {counted(ahead, 'other decode')} on this server …"
    if progress.state is JobState.LOADING:
        return "Loading the built-in models; only the first decode waits for this …"
    tau = f", τ = {number(progress.tau)}" if progress.rounds else ""
    return f"Decoding: {number(progress.tokens)} of at most {counted(limit, 'token')}{tau}"
