"""The choice of models at the top of every page, with the loaded models, their memory use and buttons that load and
unload."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from mars_viz.backend_choice import BUILT_IN, BackendChoice, backend_toml, checked_choice, first_choice
from mars_viz.errors import BadInput, SettingError
from mars_viz.escapes import visible
from mars_viz.speculators.drafter_names import drafter_named
from mars_viz.speculators.names import DEVICES, DTYPES
from mars_viz.ui import faults, links, models_link, recent_models, tab_jobs, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import named_models
from mars_viz.ui.jobs.job import Job
from mars_viz.ui.jobs.models import CHAT, OTHER_DRAFTERS, Status
from mars_viz.ui.jobs.worker import LoadJob, UnloadJob
from mars_viz.ui.live import live_words
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.under_way import progress_bar
from mars_viz.words import counted

AUTO = (
    "auto: on a GPU the dtype of the weights; on a CPU float32, or bfloat16 for a large pair of that dtype where the "
    "CPU supports it"
)
OTHER = "Another pair …"
DRAFTER = "a smaller model, or ngram:n=3, suffix, trigram, layers:exit=4, eagle3:HEADDIR"
OPEN = "models-open"
LONGEST = 44  # maximum length of the label next to the button


def draw() -> None:
    """Draw the choice. A new tab begins with the models of its link, or with the server's default."""
    session = current_session()
    _arrive(session)
    _write(session)
    with st.container(key="models", horizontal=True, vertical_alignment="center", gap="small"):
        # not the button's label, because a popover closes when its label changes
        theme.small(links.clipped(in_words(session.models), LONGEST))
        area = st.popover("Models", key=OPEN, on_change="rerun")
    if area.open:
        session.models_notices.clear()
        with area:
            if not rights.is_student():
                _choose(session)
            faults.fragment(_loaded, run_every=tab_jobs.pace() if _is_loading(session) else None)(session)
    for sentence in session.models_notices:
        theme.note(sentence)


def _arrive(session: Session) -> None:
    if session.chose:
        return
    session.chose = True
    try:
        initial = first_choice()
    except BadInput as error:
        session.models_notices.append(visitors.told(str(error)))
        initial = BUILT_IN
    session.begun = session.models = initial
    if not rights.is_student():
        session.models = models_link.read(st.query_params.to_dict(), initial, session.models_notices)


def _write(session: Session) -> None:
    """Write the models to the address, also on pages that write nothing else."""
    parameters = models_link.written(session.models, session.begun)
    for name in ("target", "drafter", "device", "dtype"):
        if st.query_params.get(name) != parameters.get(name):
            st.query_params.pop(name, None)
            if name in parameters:
                st.query_params[name] = parameters[name]


def _choose(session: Session) -> None:
    """Draw the fields. A valid choice takes effect at once; the models are loaded when needed."""
    worker, paths = tab_jobs.shared_worker(), visitors.may_name_paths()
    now = session.models
    recent = [choice for choice in recent_models.known(worker.models.recent) if paths or not choice.folders]
    pairs = (session.begun, BUILT_IN, CHAT, *OTHER_DRAFTERS.values(), now, *recent)
    choices = {in_words(each): each for each in pairs}
    selected = str(
        st.selectbox("Pair", [*choices, OTHER], list(choices).index(in_words(now)), key="pair", persist_state="page")
    )
    preset = choices.get(selected, BUILT_IN)
    target, drafter, folders = preset.target, preset.drafter, preset.folders
    if selected == OTHER:
        other_sources = ", a folder or GGUF file of the server, or http://HOST:PORT of vLLM"
        placeholder = "org/name or org/name:FILE.gguf on Hugging Face" + other_sources * paths
        target = st.text_input("Target", key="target", placeholder=placeholder, persist_state="page").strip()
        drafter = st.text_input("Drafter", key="drafter", placeholder=DRAFTER, persist_state="page").strip()
        st.caption(
            "Safetensors and GGUF files, which are dequantised; no code from a model's repository is run. A drafter "
            "with another tokenizer than the target's drafts by text, at temperature 0."
        )
    left, right = st.columns(2)
    device = left.selectbox(
        "Device", DEVICES, DEVICES.index(now.device), key="device", help="auto: a GPU if there is one"
    )
    dtype = right.selectbox("Dtype", DTYPES, DTYPES.index(now.dtype), key="dtype", help=AUTO)
    try:
        chosen = _checked(target, drafter, str(device), str(dtype), now.tree, selected, folders)
    except BadInput as error:
        theme.note(visitors.told(str(error)))
        return
    if chosen != now:
        session.models = chosen
        st.rerun()


def _checked(target: str, drafter: str, device: str, dtype: str, tree: str, named: str, folders: bool) -> BackendChoice:
    if named == OTHER and not target and drafter_named(drafter) is None:
        raise SettingError("Name a target, and its drafter if it is to have one, or choose the built-in pair.")
    if folders:  # already known to the server, and named by a user with permission
        return BackendChoice(target, drafter, device, dtype, True, tree)
    chosen = replace(named_models(target, drafter, device, dtype), tree=tree)
    return checked_choice(chosen) if chosen.folders else chosen


def _is_loading(session: Session) -> bool:
    return session.models_job is not None and not session.models_job.progress.state.finished


def _loaded(session: Session) -> None:
    """Draw the status of the models, the progress of loading, and the buttons."""
    worker = tab_jobs.shared_worker()
    job, status = session.models_job, worker.models.status
    if job is not None and not job.progress.state.finished:
        _under_way(job, status, worker.ahead(job))
        return
    if job is not None:
        session.models_job = None
        session.models_error = job.progress.error
        st.rerun(scope="app")
    if session.models_error:
        theme.note(visitors.told(session.models_error))
    _status(session, status)
    if rights.is_student():
        st.caption("In a class the models are the server's: other ones would be loaded in place of everybody's.")
        return
    load, unload, save = st.columns(3)
    if load.button(
        "Load",
        key="load-models",
        width="stretch",
        disabled=status.choice == session.models.models,
        help="Loads them now; a decode loads them too",
    ):
        _submit(session, LoadJob(session.models))
    if unload.button(
        "Unload", key="unload-models", width="stretch", disabled=status.choice is None, help="Frees their memory"
    ):
        _submit(session, UnloadJob())
    save.download_button(
        "Save",
        lambda: backend_toml(session.models),
        "backend.toml",
        "application/toml",
        on_click="ignore",
        key="save-models",
        width="stretch",
        help="backend.toml, which `mars-viz app`, `record`, `map` and `sweep` take as --backend, and "
        "`mars_viz.backend` in Python",
    )


def _submit(session: Session, job: LoadJob | UnloadJob) -> None:
    session.models_job, session.models_error = job, ""
    tab_jobs.shared_worker().submit(job)
    st.rerun(scope="app")


def _under_way(job: Job[Any], status: Status, ahead: int) -> None:
    if isinstance(job, UnloadJob):
        st.caption("Unloading the models, once the jobs before it are done …")
        return
    words = f"Waiting for {counted(ahead, 'other job')} on this server …" if ahead else f"{status.doing or 'Loading'} …"
    progress_bar(job, status.share, words, "Stop", key="stop-loading")


def _status(session: Session, status: Status) -> None:
    """Draw the loaded models, their device and memory, and whether they are this tab's choice."""
    if status.choice is None or status.device is None:
        st.caption("No models are loaded; the first decode loads them.")
        return
    is_chosen = status.choice == session.models.models
    theme.small(f"Loaded: {in_words(status.choice)}." + ("" if is_chosen else " Yours are loaded by your next decode."))
    theme.numbers(live_words.device_tiles(status.device))
    for sentence in status.device.notes:
        theme.note(sentence)


def in_words(choice: BackendChoice) -> str:
    """Return a label for the models of a choice."""
    if not choice.target and not choice.drafter:
        return "Built-in pair"
    if choice.names == CHAT.names:
        return "SmolLM2-135M-Instruct, a real chat model"
    target, drafter = choice.names if visitors.may_name_paths() else choice.in_short
    called = {other.drafter: words for words, other in OTHER_DRAFTERS.items() if not target}
    return visible(f"{target or 'Built-in target'} with {called.get(drafter, drafter) or 'the built-in drafter'}")


def not_built_in(choice: BackendChoice) -> str:
    """Return a label for the models; empty for the built-in pair."""
    return "" if choice.names == BUILT_IN.names else in_words(choice)
