"""Decoding for a tab: the server's worker, job submission, progress and stop buttons, and handling of finished jobs.

The models are in another process, so this module imports no model libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import ref

import streamlit as st
from streamlit import runtime

from mars_viz import default_folders
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.chat import CUT_OFF
from mars_viz.costs import Costs
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput
from mars_viz.escapes import Html, html, markdown
from mars_viz.recording import Recording
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStore, Store, new_name
from mars_viz.speculators import names
from mars_viz.speculators.names import pair_named
from mars_viz.ui import decode_form, faults, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import DecodeRequest
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import Job, JobState, Progress, Report, background_task, models_that_made, nothing
from mars_viz.ui.jobs.tasks import Ways, decode_job, map_job
from mars_viz.ui.jobs.worker import ModelProcess, Visitor, Worker
from mars_viz.ui.session import Session
from mars_viz.words import counted, number

S = TypeVar("S", bound=Store)


@st.cache_resource(show_spinner=False)
def shared_worker() -> Worker:
    return Worker(ModelProcess(tasks.models), visitor=visitor, admit=rights.why_no_job)


def visitor() -> Visitor:
    """Return the mark of the script's browser, and a function that checks whether its session is connected.

    After a lost connection a tab can rejoin its session within two minutes, by Streamlit's default.
    """
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    context = get_script_run_ctx(suppress_warning=True)
    if context is None or not runtime.exists():
        return visitors.mark(), lambda: True
    session, server = context.session_id, runtime.get_instance()
    return visitors.mark(), lambda: server.is_active_session(session)


def pace() -> float:
    """Return the polling interval of a job in seconds, which grows with the number of jobs: all tabs together poll ten
    times per second."""
    return max(0.3, len(shared_worker().unfinished) / 10)


def saved_ways(request: DecodeRequest, *, maps: bool = True, name: str = "") -> Ways:
    """Return how a requested decode is recorded, saved and, with `maps`, mapped. `name` is the saved run's; empty for a
    new one."""
    record, store = (
        partial(Recording, chat=request.chat, history=request.history),
        opened(RunStore, default_folders.runs()),
    )
    return Ways(record, tasks.chart if maps else None, store, name or new_name(), visitors.mark())


def run_store() -> RunStore:
    """Return the server's store of runs, restricted to those that this browser may see."""
    return opened(RunStore, default_folders.runs()).seen_by(rights.sees())


@st.cache_resource(show_spinner=False)
def opened(kind: type[S], folder: Path) -> S:
    """Return the server's store of that kind."""
    return kind(folder)


def start(session: Session, request: DecodeRequest) -> None:
    """Submit a decode and the map of its dial. Invalid settings or a second decode give a notice."""
    is_decoding = session.job is not None and not session.job.progress.state.readable
    if (chosen := decode_form.checked(session.notices, request, under_way=is_decoding)) is None:
        return
    if session.filling is not None:
        session.filling[1].cancel()
    session.job = decode_job(request.prompt, chosen, saved_ways(request), request.choice)
    shared_worker().submit(session.job)


def models_for(session: Session, run: Run) -> BackendChoice | None:
    """Return models that can decode a run's prompt again: this tab's choice or built-in models, if they made the run,
    otherwise None."""
    return models_that_made(run.provenance, session.models, shared_worker().models.status)


def has_template(choice: BackendChoice) -> bool | None:
    """Return whether the target has a chat template; None if unknown before loading."""
    status = shared_worker().models.status
    if status.device is not None and status.choice == choice.models and status.device.template is not None:
        return status.device.template
    may_read = choice.folders or choice.target in ("", SMOLLM2)  # other targets must not name a folder here
    return names.has_template(choice.target) if may_read else None


def follow_up(session: Session, run: Run) -> DecodeRequest | None:
    """Draw the field for the next turn of the run's conversation, if possible. Returns the request that was written."""
    models = models_for(session, run)
    if models is None or not run.provenance.chat or not run.prompt or not run.rounds:
        return None
    place = st.container()  # otherwise Streamlit pins the field to the window
    if not run.ended:
        place.caption(CUT_OFF)
    text = place.chat_input("Continue the conversation", key="follow-up")
    return DecodeRequest(text, lambda: run.settings, models, True, run.conversation) if text else None


def map_of(run_id: str) -> tuple[str, ...]:
    """Return the name of the job that maps a run. Students don't share these jobs."""
    return "map", run_id, *((visitors.mark(),) if rights.is_student() else ())


def known(share: float, run: Run | None) -> str:
    """Return a sentence about the known share of the run's map, or of the map of its dial if it has none."""
    mapped = None if run is None else run.map
    if mapped is not None and mapped.span.over:
        return f"Map of {mapped.axis.symbol}: {number(100 * share)} % of all settings known. The slider waits for all."
    return f"Dial map: {number(100 * share)} % of all settings known. Elsewhere blocks are judged on the recorded text."


def go_on_mapping(session: Session, run: Run) -> None:
    """Submit a job that makes the map of the shown run's dial, or resumes its map."""
    run_id, store = session.view.run, run_store()
    is_saved = run_id not in session.runs and (store.folder / run_id).is_dir()
    saved = run_id if is_saved and rights.owns(store.makers.of(run_id)) else ""
    request = again(session, run)
    job = map_job(run, saved, saved_ways(request), request.choice)
    session.filling = run_id, job
    shared_worker().submit(job, map_of(run_id))


def start_again(session: Session, run: Run, dial: float, gamma: int, *, cuts: bool) -> None:
    """Decode the run's prompt again at this dial value and draft length. With `cuts`, `dial` is the threshold of the
    mapped controller. If that is impossible, give a notice."""
    if reason := why_not_again(session, run):
        session.notices[:] = [reason]
    elif cuts and run.map is not None:
        start(session, again(session, run, run.map.axis.apply(run.settings, dial)))
    else:
        start(session, again(session, run, replace(run.settings, dial=dial, gamma=gamma)))


def again(session: Session, run: Run, settings: Settings | None = None) -> DecodeRequest:
    """Return the request to decode the run's prompt with these settings, by default its own."""
    models, chosen = models_for(session, run) or BUILT_IN, settings or run.settings
    return DecodeRequest(run.prompt, lambda: chosen, models, bool(run.provenance.chat), run.history)


def why_not_again(session: Session, run: Run) -> str:
    """Return why the run's prompt cannot be decoded again here; empty if it can."""
    made_with = run.provenance
    if models_for(session, run) is not None:
        return "" if run.prompt else "This run does not hold its prompt, so it cannot be decoded again."
    return (
        f"This run was made with {made_with.target or 'an unnamed target'} and "
        f"{made_with.drafter or 'an unnamed drafter'}, and other models are chosen here. Choose those under Models, or "
        "record it again with `mars-viz record` and open its folder's zip."
    )


def settle(session: Session) -> None:
    """Open the text of this tab's job when it is complete, and report how it ended. Its map may still be in
    progress."""
    fill_in(session)
    if session.job is None or not session.job.progress.state.readable:
        return
    job, session.job = session.job, None
    progress = job.progress
    if progress.run is not None:
        run_id = progress.saved or session.keep(progress.run, "live")
        session.open(run_id)
        session.filling = None
        if not progress.state.finished:
            shared_worker().name(job, map_of(run_id))
            session.filling = run_id, job
    error = "" if session.filling and session.filling[1] is job else progress.error  # `fill_in` reports a map's
    session.notices[:] = filter(None, [progress.ending, error, progress.unsaved])
    fill_in(session)


def fill_in(session: Session) -> None:
    if session.filling is None or not session.filling[1].progress.state.finished:
        return
    (run_id, job), session.filling = session.filling, None
    progress = job.progress
    mapped_run = progress.run if progress.state is JobState.DONE else None
    if mapped_run is not None and (progress.error or not progress.saved):  # otherwise it is read from the store
        session.runs[run_id] = mapped_run
    session.notices.extend(filter(None, [progress.error]))


def get_ready() -> None:
    """Import the model libraries in the model process before they are needed, if no job is running."""
    if not shared_worker().unfinished:
        shared_worker().begin(Job(Progress(), tasks.prepare, None))


def going(job: Job[Any], share: float, doing: str) -> tuple[float, str]:
    """Return the progress of a job, from 0 to 1, and a sentence about it; those of the running job are given."""
    state, ahead, status = job.progress.state, shared_worker().ahead(job), shared_worker().models.status
    if job.stopping and not state.finished:
        return share, "Stopping after this step …"
    if state is JobState.QUEUED and ahead:
        return share, f"Waiting for {counted(ahead, 'other job')} on this server …"
    if state in (JobState.QUEUED, JobState.LOADING):
        return status.share, f"{status.doing or 'Loading the models'} …"
    return share, doing


Doing = Callable[[], tuple[float, str]]  # returns the share of a running job, from 0 to 1, and a sentence about it


def watch(job: Job[Any], doing: Doing, stop: str = "Stop", keeps: str = "", key: str | None = None) -> None:
    """Draw the progress of a job in a fragment; see `progress`."""
    faults.fragment(progress, run_every=pace())(job, doing, stop, keeps, key)


def progress(job: Job[Any], doing: Doing, stop: str = "Stop", keeps: str = "", key: str | None = None) -> None:
    """Draw the progress of a job with a button that stops it, in a fragment, and rerun the page at its end. `keeps`
    describes the results that are kept.

    The button holds only a weak reference: Streamlit never forgets a widget's callback, and a job holds all its
    results.
    """
    if job.progress.state.finished:
        st.rerun(scope="app")
    reference, off = ref(job), job.stopping

    def cancel() -> None:
        if (running := reference()) is not None:
            running.cancel()

    bar, button = st.columns([6, 1], vertical_alignment="center")
    share, sentence = going(job, *doing())
    bar.progress(min(1.0, share), markdown(sentence))
    button.button(markdown(stop), key=key, on_click=cancel, disabled=off, width="stretch", help=markdown(keeps) or None)


def decoding(session: Session) -> None:
    job = session.job
    if job is None or job.progress.state.readable:
        st.rerun()
    now = job.progress
    tau = f", τ = {number(now.tau)}" if now.rounds else ""
    words = f"Decoding: {number(now.tokens)} of at most {counted(job.new_tokens, 'token')}{tau}"
    progress(job, lambda: (now.tokens / job.new_tokens, words), "Cancel", keeps="Keeps the decoded tokens")
    prompt = Html(f'<bdi class="prompt">{html(now.prompt)}</bdi>')
    theme.show(Html(f'<p class="mv-live" dir="auto">{html(prompt)}{html(now.text)}</p>'))


def background(
    key: str, why: str, labels: tuple[str, str], help: str, make: Callable[[], Job[Report]], doing: str, name: str = ""
) -> None:
    """Draw the button that starts a background task of this tab, with the reason for it if any, or the task's progress.

    `labels` are those of the first start and of others. `make` makes the job and may raise BadInput. `key` is unique on
    the page, and `name` that of the task, if it is another.
    """
    name = f"task-{name or key}"
    job: Job[Report] | None = st.session_state.get(name)
    if job is not None and not job.progress.state.finished:
        running = job
        watch(running, lambda: (running.progress.share, doing), key=f"stop-{key}")
        return

    def start() -> None:
        try:
            st.session_state[name] = new_job = make()
        except BadInput as error:
            st.session_state[name] = Job(Report(JobState.FAILED, str(error)), nothing)
        else:
            shared_worker().submit(new_job)

    words, button = st.columns([6, 1.4], vertical_alignment="center") if why else (st.container(), st.container())
    with words:
        if why:
            theme.small(why)
        theme.note("" if job is None else job.progress.error)
    button.button(markdown(labels[job is not None]), key=key, on_click=start, width="stretch", help=markdown(help))


def measure_costs(
    why: str,
    settings: Callable[[], Settings],
    choice: BackendChoice,
    keep: Callable[[Costs], object] | None = None,
    name: str = "",
) -> None:
    """Draw the reason for measuring costs and the button that starts it with these models and settings. `keep` stores
    the costs. `settings` may raise BadInput. `name` is that of the task, if there are several on the page."""

    def job() -> Job[Report]:
        chosen = settings()
        pair_named(choice.target, choice.drafter).check(chosen)
        return background_task(partial(tasks.measure, chosen), choice, keep)

    labels, tip = (
        ("Measure costs", "Measure again"),
        "Some seconds: what a pass costs here, until its interval is small",
    )
    background("measure-costs", why, labels, tip, job, "Measuring what a pass costs …", name=name)
