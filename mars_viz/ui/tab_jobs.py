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
from mars_viz.chat import CUT_OFF, NO_HISTORY, History
from mars_viz.controllers import CONTROLLERS, NONE
from mars_viz.demo import SMOLLM2
from mars_viz.escapes import markdown
from mars_viz.recording import Recording
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStore, new_name
from mars_viz.speculators import names
from mars_viz.speculators.names import pair_named
from mars_viz.ui import decode_form, faults, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.decode_job import MAPPING_SECONDS, Decoded, DecodeJob, Ways
from mars_viz.ui.jobs.model_process import ModelProcess
from mars_viz.ui.jobs.models import CostsJob, Job, JobState, models_that_made
from mars_viz.ui.jobs.worker import LEFT, Wanted, Worker
from mars_viz.ui.links import View
from mars_viz.ui.session import Filling, Session
from mars_viz.words import counted, number

OFTEN = 0.3  # minimum seconds between two polls of a job
LOOKS = 10.0  # maximum polls per second of all tabs together


@st.cache_resource(show_spinner=False)
def shared_worker() -> Worker:
    """Return the server's worker."""
    return Worker(ModelProcess(tasks.models), asker=asker, admit=rights.why_no_job)


def asker() -> Wanted:
    """Return a function that checks whether the script's session is connected.

    After a lost connection a tab can rejoin its session within two minutes, by Streamlit's default.
    """
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    context = get_script_run_ctx(suppress_warning=True)
    if context is None or not runtime.exists():
        return lambda: True
    session, server = context.session_id, runtime.get_instance()
    return lambda: server.is_active_session(session)


def pace() -> float:
    """Return the polling interval in seconds, which grows with the number of jobs to limit the load."""
    return max(OFTEN, shared_worker().jobs / LOOKS)


def explored() -> Ways:
    """Return how Explore decodes: every run is saved, and its dial is mapped."""
    return Ways(Recording, tasks.chart, _store(default_folders.runs()), new_name(), visitors.mark())


def mapped_over(over: str) -> Ways:
    """Return `explored` with the map of the named controller's threshold, or of the dial if `over` is empty."""
    ways = explored()
    return replace(ways, chart=partial(tasks.chart_threshold, over), over=over) if over else ways


def streamed(chat: bool | None, history: History, name: str) -> Ways:
    """Return how Live decodes: every run is saved under `name`, and nothing is mapped, to keep the queue short.

    `chat` and `history` are as in `mars_viz.record`.
    """
    record = partial(Recording, chat=chat, history=history)
    return Ways(record, store=_store(default_folders.runs()), name=name, maker=visitors.mark())


def run_store() -> RunStore:
    """Return the server's store of runs, restricted to those that this browser may see."""
    return _store(default_folders.runs()).seen_by(rights.sees())


@st.cache_resource(show_spinner=False)
def _store(folder: Path) -> RunStore:
    return RunStore(folder)


def start(
    session: Session,
    prompt: str,
    settings: Callable[[], Settings],
    choice: BackendChoice = BUILT_IN,
    *,
    over: str = "",
    then: View | None = None,
    chat: bool | None = None,
    history: History = NO_HISTORY,
) -> None:
    """Submit a decode with the models of `choice`, mapped as in `mapped_over`. Invalid settings or a second decode give
    a notice.

    `then` is the view to open when the map is complete. `chat` and `history` are as in `mars_viz.record`.
    """
    is_decoding = session.job is not None and not session.job.progress.state.readable
    chosen = decode_form.checked(session.notices, prompt, settings, choice, under_way=is_decoding)
    if chosen is None:
        return
    if session.filling is not None:
        session.filling.job.cancel()
    ways = mapped_over(over)
    ways = replace(ways, record=partial(ways.record, chat=chat, history=history))
    session.job, session.then = DecodeJob(prompt, chosen, ways, choice), then
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


def follow_up(session: Session, run: Run) -> tuple[str, BackendChoice]:
    """Draw the field for the next turn of the run's conversation, if possible. Returns the written text, which may be
    empty, and the models for it."""
    models = models_for(session, run)
    if models is None or not run.provenance.chat or not run.prompt or not run.rounds:
        return "", BUILT_IN
    place = st.container()  # otherwise Streamlit pins the field to the window
    if not run.ended:
        place.caption(CUT_OFF)
    return place.chat_input("Continue the conversation", key="follow-up") or "", models


def _map_of(run_id: str) -> tuple[str, ...]:
    return "map", run_id, *rights.apart()


def find_map(session: Session) -> None:
    """Join the job that maps the shown run, if there is one."""
    run_id = session.view.run
    job = shared_worker().find(_map_of(run_id))
    if not isinstance(job, DecodeJob) or job.progress.state.finished:
        return
    if session.filling is not None and session.filling.job is job:
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
    over = over if run.map is None else run.map.span.over or over
    job = DecodeJob.mapping(run, saved, mapped_over(over), models_for(session, run) or BUILT_IN)
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
    _decode_again(session, run, settings, over=name, then=then)


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
    _decode_again(session, run, chosen)


def _decode_again(session: Session, run: Run, settings: Settings, **how: Any) -> None:
    models, chat = models_for(session, run) or BUILT_IN, bool(run.provenance.chat)
    start(session, run.prompt, lambda: settings, models, chat=chat, history=run.history, **how)


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
    session.notices[:] = filter(None, [how_it_ended(progress), progress.unsaved])
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


def how_it_ended(progress: Decoded) -> str:
    """Return a sentence about an ended job; empty if it succeeded."""
    if progress.state is JobState.FAILED:
        return f"{progress.error} The tokens decoded before are shown below." if progress.run else progress.error
    if progress.state is JobState.CANCELLED:
        kept = f"after {counted(progress.tokens, 'token')}; they are kept below" if progress.run else "before a token"
        return f"{LEFT if progress.abandoned else 'You stopped the decode'} {kept}."
    return ""


def what_is_mapped(job: DecodeJob) -> str:
    """Return a sentence about an unfinished map of the dial, or of the threshold of the job's controller."""
    progress, over, ahead = job.progress, job.over, shared_worker().ahead(job)
    if job.stopping:
        return "Stopping the map after this pass …"
    if progress.state is JobState.QUEUED and ahead:
        return f"Dial map: waiting for {counted(ahead, 'other job')} on this server …"
    still = f" {counted(progress.open, 'text')} still open." if progress.open else ""
    if over:
        return f"{_share(progress.exact, CONTROLLERS[over].dial.symbol)}{still} Its slider waits for all of it."
    return f"{_share(progress.exact)}{still} Elsewhere blocks are judged on the recorded text."


def _share(share: float, symbol: str = "") -> str:
    label = f"Map of {symbol}" if symbol else "Dial map"
    return f"{label}: {number(100 * share)} % of all settings known."


POLL = 0.5  # seconds between polls of a measurement
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
    theme.live_text(job.prompt, progress.text)


def measure_again(
    key: str,
    why: str,
    settings: Settings,
    choice: BackendChoice,
    keep: Callable[[Any], object] | None = None,
    most: int = 0,
) -> None:
    """Draw the reason for measuring costs and the button that starts it with these models and settings, for passes or
    for rounds of up to `most` texts. `keep` stores the costs. `key` is unique on the page."""
    name = f"costs-job-{key}"
    job: CostsJob | None = st.session_state.get(name)
    if job is not None and not job.progress.state.finished:
        faults.fragment(watch, run_every=POLL)(
            job, lambda: (job.progress.share, "Measuring what a pass costs …"), key=f"stop-{key}"
        )
        return

    def start() -> None:
        new_job = CostsJob(partial(tasks.measure, settings, most=most), choice, keep)
        st.session_state[name] = new_job
        shared_worker().submit(new_job)

    words, button = st.columns([6, 1.4], vertical_alignment="center")
    with words:
        theme.small(why)
        if job is not None and job.progress.error:
            theme.note(job.progress.error)
    first = job is None or job.progress.state is JobState.DONE
    button.button(
        f"Measure {'batches' if most else 'costs'}" if first else "Measure again",
        key=f"measure-{key}",
        on_click=start,
        width="stretch",
        help="Some seconds, or minutes for many texts: what it costs here, until the interval is small",
    )


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
