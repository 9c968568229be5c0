"""Decoding for a tab: the server's worker, job submission, progress and stop buttons, and handling of finished jobs.

The models are in another process, so this module imports no model libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import streamlit as st
from streamlit import runtime
from streamlit.delta_generator import DeltaGenerator

from mars_viz import default_folders
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.chat import CUT_OFF
from mars_viz.controllers import CONTROLLERS, NONE
from mars_viz.costs import Costs
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.recording import Recording
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStore, new_name
from mars_viz.speculators import names
from mars_viz.speculators.names import pair_named
from mars_viz.ui import decode_form, faults, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import DecodeRequest
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.decode_job import MAPPING_SECONDS, Decoded, Ways, decode_job, map_job, unmapped
from mars_viz.ui.jobs.model_process import ModelProcess
from mars_viz.ui.jobs.models import Job, JobState, Report, models_that_made, nothing
from mars_viz.ui.jobs.worker import Visitor, Worker
from mars_viz.ui.links import View
from mars_viz.ui.session import Filling, Session
from mars_viz.words import counted, number

OFTEN = 0.3  # minimum seconds between two polls of a job
LOOKS = 10.0  # maximum polls per second of all tabs together


@st.cache_resource(show_spinner=False)
def shared_worker() -> Worker:
    """Return the server's worker."""
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
    """Return the polling interval in seconds, which grows with the number of jobs to limit the load."""
    return max(OFTEN, shared_worker().jobs / LOOKS)


def saved_ways(request: DecodeRequest, *, over: str = "", maps: bool = True, name: str = "") -> Ways:
    """Return how a requested decode is recorded, saved and mapped. The map is that of the named controller's threshold
    if `over` is given, otherwise of the dial; without `maps` there is none. `name` is that of the saved run, if it is
    not a new one."""
    chart = partial(tasks.chart_threshold, over) if over else tasks.chart if maps else unmapped
    record = partial(Recording, chat=request.chat, history=request.history)
    return Ways(record, chart, _store(default_folders.runs()), name or new_name(), visitors.mark(), over)


def run_store() -> RunStore:
    """Return the server's store of runs, restricted to those that this browser may see."""
    return _store(default_folders.runs()).seen_by(rights.sees())


@st.cache_resource(show_spinner=False)
def _store(folder: Path) -> RunStore:
    return RunStore(folder)


def start(session: Session, request: DecodeRequest, *, over: str = "", then: View | None = None) -> None:
    """Submit a decode, mapped as in `saved_ways`. Invalid settings or a second decode give a notice. `then` is the view
    to open when the map is complete."""
    is_decoding = session.job is not None and not session.job.progress.state.readable
    chosen = decode_form.checked(session.notices, request, under_way=is_decoding)
    if chosen is None:
        return
    if session.filling is not None:
        session.filling.job.cancel()
    ways = saved_ways(request, over=over)
    session.job, session.then = decode_job(request.prompt, chosen, ways, request.choice), then
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


def _map_of(run_id: str) -> tuple[str, ...]:
    return "map", run_id, *rights.apart()


def find_map(session: Session) -> None:
    """Join the job that maps the shown run, if there is one."""
    run_id = session.view.run
    job = shared_worker().find(_map_of(run_id))
    if job is None or job.progress.state.finished or (session.filling is not None and session.filling.job is job):
        return
    shared_worker().join(job)
    session.filling = Filling(run_id, job)


def why_not_mapped(session: Session, run: Run) -> str:
    """Return why the run's map is incomplete, in a sentence; empty if it is complete or cannot be made here."""
    if not run.rounds or why_not_again(session, run):
        return ""
    if (mapped := run.map) is not None and mapped.span.over:  # a map of the rule's dial would replace it
        return "" if mapped.complete else f"{_share(mapped.known, mapped.axis.symbol)} Its slider waits for all of it."
    if rule_named(run.settings.rule).dial is None:
        return ""
    if run.dial_map is None:
        return "This run has no dial map: away from its own setting, blocks are judged on the recorded text."
    if run.dial_map.complete:
        return ""
    return (
        f"{_share(run.dial_map.known)} Elsewhere blocks are judged on the recorded text. Continue maps for "
        f"{MAPPING_SECONDS / 60:g} minutes more, or until all is known."
    )


def go_on_mapping(session: Session, run: Run, over: str = "") -> None:
    """Submit a job that makes or resumes the map of the shown run, over the threshold of the controller `over`, or over
    the dial if it is empty."""
    run_id, store = session.view.run, run_store()
    is_saved = run_id not in session.runs and (store.folder / run_id).is_dir()
    saved = run_id if is_saved and rights.owns(store.makers.of(run_id)) else ""
    over, request = over if run.map is None else run.map.span.over or over, again(session, run)
    job = map_job(run, saved, saved_ways(request, over=over), request.choice)
    session.filling = Filling(run_id, job, View(run_id, cuts=True) if over else None)
    shared_worker().submit(job, _map_of(run_id))


def why_no_threshold(session: Session, run: Run) -> str:
    """Return why no controller's threshold can be mapped for this run, in a sentence; empty if it can."""
    if run.settings.drafts_trees:
        return "This run drafts trees, and draft-length controllers cut chains."
    if not run.rounds:
        return "This run has no rounds, so nothing was drafted."
    if reason := why_not_again(session, run):
        return reason
    models = models_for(session, run) or BUILT_IN
    return pair_named(models.target, models.drafter).never_stopped


def threshold_in_place(run: Run) -> bool:
    """Return True if the run itself can get a threshold map: it has no controller and no map. Otherwise its prompt is
    decoded again."""
    return run.settings.control is None and run.map is None


def map_threshold(session: Session, run: Run, name: str) -> None:
    """Map the named controller's threshold with drafts of full length, decoding the prompt again if necessary. If that
    is impossible, give a notice."""
    if reason := why_no_threshold(session, run):
        session.notices[:] = [reason]
        return
    if threshold_in_place(run):
        go_on_mapping(session, run, name)
        return
    control, settings = run.settings.control, replace(run.settings, controller=NONE)
    is_same = control is not None and control.controller.name == name
    then = View(dial=control.threshold if is_same and control is not None else None, cuts=True)
    start(session, again(session, run, settings), over=name, then=then)


def start_again(session: Session, run: Run, dial: float | None, gamma: int | None, *, cuts: bool = False) -> None:
    """Decode the run's prompt again at this dial value and draft length; None means the run's own. With `cuts`, `dial`
    is the threshold of the mapped controller. If that is impossible, give a notice."""
    if reason := why_not_again(session, run):
        session.notices[:] = [reason]
        return
    if cuts and run.map is not None and dial is not None:
        chosen = run.map.axis.apply(run.settings, dial)
    else:
        chosen = replace(run.settings, dial=dial, gamma=run.settings.gamma if gamma is None else gamma)
    start(session, again(session, run, chosen))


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
    then, session.then = session.then, None
    progress = job.progress
    if progress.run is not None:
        run_id = progress.saved or session.keep(progress.run, "live")
        session.open(run_id)
        session.filling = None
        if not progress.state.finished:
            shared_worker().name(job, _map_of(run_id))
        if not progress.state.finished or (then is not None and progress.state is JobState.DONE):
            session.filling = Filling(run_id, job, then and replace(then, run=run_id))
    error = "" if session.filling and session.filling.job is job else progress.error  # `fill_in` reports a map's
    session.notices[:] = filter(None, [progress.ending, error, progress.unsaved])
    fill_in(session)


def fill_in(session: Session) -> None:
    """Add a finished dial map to its run."""
    if session.filling is None or not session.filling.job.progress.state.finished:
        return
    run_id, job, then = session.filling.run_id, session.filling.job, session.filling.then
    progress, session.filling = job.progress, None
    mapped_run = progress.run if progress.state is JobState.DONE else None
    if mapped_run is not None and (progress.error or not progress.saved):  # otherwise it is read from the store
        session.runs[run_id] = mapped_run
    is_complete = progress.state is JobState.DONE and not (progress.error or progress.open or job.stopping)
    if then is not None and is_complete and session.view.run == run_id:
        session.view = replace(then, overlay=session.view.overlay)
    session.notices.extend(filter(None, [progress.error]))


def mapped_so_far(progress: Decoded) -> str:
    """Return a sentence about an unfinished map of the dial, or of a controller's threshold."""
    still = f" {counted(progress.open, 'text')} still open." if progress.open else ""
    if progress.over:
        return (
            f"{_share(progress.exact, CONTROLLERS[progress.over].dial.symbol)}{still} Its slider waits for all of it."
        )
    return f"{_share(progress.exact)}{still} Elsewhere blocks are judged on the recorded text."


def _share(share: float, symbol: str = "") -> str:
    label = f"Map of {symbol}" if symbol else "Dial map"
    return f"{label}: {number(100 * share)} % of all settings known."


POLL = 0.5  # minimum seconds between polls of a background task
KEEPS = "Keeps the results so far"
FIRST_LOADS = "Loading the models; only the first decode with them waits for this …"


def stop_button(place: DeltaGenerator, words: str, job: Job[Any], *, keeps: str = "", key: str | None = None) -> None:
    """Draw the button that stops a job; `keeps` describes the results that are kept.

    The button holds only a weak reference: Streamlit never forgets a widget's callback, and a job holds all its
    results.
    """
    reference = ref(job)

    def stop() -> None:
        running = reference()
        if running is not None:
            running.cancel()

    place.button(
        markdown(words), key=key, on_click=stop, disabled=job.stopping, width="stretch", help=markdown(keeps) or None
    )


def progress_bar(
    job: Job[Any], share: float, sentence: str, stop: str = "Cancel", *, keeps: str = "", key: str | None = None
) -> None:
    """Draw the progress of a job, from 0 to 1, with a sentence and a stop button."""
    bar, button = st.columns([6, 1], vertical_alignment="center")
    bar.progress(min(1.0, share), markdown(sentence))
    stop_button(button, stop, job, keeps=keeps, key=key)


def decoding(session: Session) -> None:
    """Draw the progress of this tab's decode, with its text."""
    faults.fragment(_decoding, run_every=pace())(session)


def _decoding(session: Session) -> None:
    job = session.job
    if job is None or job.progress.state.readable:
        st.rerun()
    progress, limit = job.progress, job.new_tokens
    tau = f", τ = {number(progress.tau)}" if progress.rounds else ""
    share, words = going(
        job,
        progress.tokens / limit,
        f"Decoding: {number(progress.tokens)} of at most {counted(limit, 'token')}{tau}",
        stopping="Stopping after this round …",
        loading=FIRST_LOADS,
        others="other decode",
    )
    progress_bar(job, share, words, keeps="Keeps what was decoded")
    theme.live_text(progress.prompt, progress.text)


def background(
    key: str,
    why: str,
    labels: tuple[str, str],
    help: str,
    make: Callable[[], Job[Report]],
    doing: str,
    result: Callable[[Any], None] | None = None,
    name: str = "",
) -> None:
    """Draw the button that starts a background task of this tab, with the reason for it if any, or the task's progress.

    `labels` are those of the first start and of others. `make` makes the job and may raise BadInput. `result` draws the
    latest result, also while the task runs. `key` is unique on the page, and `name` that of the task, if it is another.
    """
    name = f"task-{name or key}"
    job: Job[Report] | None = st.session_state.get(name)

    def progress(job: Job[Report]) -> None:
        keeps, stopping = "" if result is None else KEEPS, "Stopping after this step …"
        watch(job, lambda: (job.progress.share, doing), keeps=keeps, key=f"stop-{key}", stopping=stopping)
        if result is not None and job.progress.result is not None:
            result(job.progress.result)

    if job is not None and not job.progress.state.finished:
        faults.fragment(progress, run_every=max(POLL, pace()))(job)
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
        if job is not None:
            stopped = result is not None and job.progress.state is JobState.CANCELLED and job.progress.result is None
            theme.note(job.progress.error, "It was stopped before it had a result." if stopped else "")
    label = labels[job is not None]
    button.button(markdown(label), key=key, on_click=start, width="stretch", help=markdown(help))
    if result is not None and job is not None and job.progress.result is not None:
        result(job.progress.result)


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
        return Job(Report(), partial(tasks.measure_costs, chosen, keep), choice)

    labels, doing = ("Measure costs", "Measure again"), "Measuring what a pass costs …"
    tip = "Some seconds: what a pass costs here, until its interval is small"
    background("measure-costs", why, labels, tip, job, doing, name=name)


def watch(
    job: Job[Any],
    doing: Callable[[], tuple[float, str]],
    stop: str = "Stop",
    *,
    keeps: str = "",
    key: str | None = None,
    **how: Any,
) -> None:
    """Draw the progress of a job in a fragment, with a stop button, and rerun the page at its end. `doing` returns the
    share, from 0 to 1, and a sentence about the running job; `how` has the other arguments of `going`."""
    if job.progress.state.finished:
        st.rerun(scope="app")
    progress_bar(job, *going(job, *doing(), **how), stop, keeps=keeps, key=key)


def going(
    job: Job[Any],
    share: float,
    doing: str,
    *,
    stopping: str = "",
    loading: str | None = None,
    others: str = "other job",
) -> tuple[float, str]:
    """Return the progress of a job, from 0 to 1, and a sentence about it.

    `doing` and `stopping` are about the running and the stopped job. `loading` is about the loading of the models:
    None for `doing`, empty for the step that the models report.
    """
    state, ahead = job.progress.state, shared_worker().ahead(job)
    if job.stopping and stopping:
        return share, stopping
    if state is JobState.QUEUED and ahead:
        return share, f"Waiting for {counted(ahead, others)} on this server …"
    if loading is None or state not in (JobState.QUEUED, JobState.LOADING):
        return share, doing
    status = shared_worker().models.status
    return (share, loading) if loading else (status.share, f"{status.doing or 'Loading the models'} …")
