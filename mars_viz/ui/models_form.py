"""The choice of models at the top of every page, with the loaded models, their memory use and buttons that load and
unload; its parameters in a link; and the recently loaded models of this and earlier servers, in a small file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import streamlit as st

from mars_viz import default_folders, demo
from mars_viz.backend_choice import BUILT_IN, BackendChoice, backend_toml, checked_choice, first_choice
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput, SettingError
from mars_viz.escapes import visible
from mars_viz.options import changed, declared
from mars_viz.speculators.drafter_names import Model, ReadsTarget, drafter_named
from mars_viz.speculators.names import NO_SERVER, check_id, pair_named, server_named
from mars_viz.ui import faults, links, tab_jobs, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import option_field
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import CHAT, OTHER_DRAFTERS, Job, Progress, Rank, Status, nothing
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.tab_jobs import progress_bar
from mars_viz.ui.theme import Tile
from mars_viz.words import THIN_SPACE, clipped, number, short_device
from mars_viz.writer import make_folder, write_file

NAMES, _WHERE = ("target", "drafter"), ("device", "dtype")
LONGEST_NAME = 300  # maximum length of a model's name in a link


def models_written(choice: BackendChoice, begun: BackendChoice) -> dict[str, str]:
    """Return the parameters of a choice, as far as it differs from the server's default `begun`. Folders and server
    addresses are never written."""
    others = {name: value for name, value in changed(choice, begun).items() if name not in NAMES}
    parameters = links.written(BackendChoice, others)
    hidden = choice.folders and choice.in_short != choice.names or "://" in choice.target
    if hidden or choice.names == begun.names:
        return parameters
    default_target = demo.BUILT_IN if begun.target or not choice.drafter else ""
    names = {"target": choice.target or default_target, "drafter": choice.drafter}
    return {name: value for name, value in names.items() if value} | parameters


def models_in_link(parameters: Mapping[str, str], begun: BackendChoice, complaints: list[str]) -> BackendChoice:
    """Return the choice in a link, based on the server's default `begun`. Problems are added to `complaints`."""
    values = links.values_in(BackendChoice, parameters, complaints)
    target, drafter = (values.pop(name, "").strip() for name in NAMES)
    models = _linked_models(target, drafter, complaints) if target or drafter else None
    if models is not None:
        values |= {"target": models.target, "drafter": models.drafter, "folders": models.folders}
    return replace(begun, **values)


def _linked_models(target: str, drafter: str, complaints: list[str]) -> BackendChoice | None:
    target = "" if target == demo.BUILT_IN else target
    try:
        if any(len(name) > LONGEST_NAME or not name.isprintable() for name in (target, drafter)):
            raise SettingError("The link does not name a target and its drafter, so the models stay as they were.")
        if server_named(target):
            raise SettingError(
                "The link names a server as the target. Links choose none, since prompts and a key would be sent "
                "there; type its address under Models if you trust it."
            )
        pair = pair_named(target, drafter)
        if drafter and not target and isinstance(pair.drafter, Model):
            raise SettingError("The link names no target of its drafter, so the models stay as they were.")
        choice = permitted(BackendChoice(target, drafter))
    except BadInput as error:
        complaints.append(str(error))
        return None
    if set(pair.models) - {SMOLLM2} or (
        isinstance(pair.drafter, ReadsTarget) and pair.drafter.head
    ):  # possibly on the hub
        complaints.append(
            f"The link chooses the models {' and '.join(filter(None, choice.names))}. Decode would download "
            "the missing ones from the hub; choose others under Models if you do not want that."
        )
    return choice


def permitted(choice: BackendChoice) -> BackendChoice:
    """Return the choice with the permission to name folders, if it needs it. Raises BadInput for names that visitors
    may not use."""
    pair = pair_named(choice.target, choice.drafter)
    folders = bool(set(pair.models) - {SMOLLM2} or pair.server) and visitors.may_name_paths()
    if pair.server and not folders:
        raise SettingError(NO_SERVER)
    for name in () if folders else pair.models:
        check_id(name)
    return replace(choice, drafter=pair.drafter.name, folders=folders)


RECENT = 6  # number of remembered choices
RECENT_FILE = ".recent-models.json"
LONGEST_STORED = 4096  # maximum length of a name; longer names are not from this program


def recent_models(loaded: BackendChoice | None) -> tuple[BackendChoice, ...]:
    """Return the recently loaded models of this and earlier servers, newest first. Adds the loaded ones, also to the
    file."""
    path = default_folders.runs() / RECENT_FILE
    remembered = _remembered(path)
    listed_anyway = (BUILT_IN, CHAT, *OTHER_DRAFTERS.values(), *remembered[:1])
    if loaded is not None and loaded not in listed_anyway:
        remembered[:] = [loaded, *(choice for choice in remembered if choice != loaded)][:RECENT]
        with suppress(OSError, BadInput):  # without a writable disk, only this server remembers them
            make_folder(path.parent)
            write_file(path, json.dumps([asdict(choice) for choice in remembered]).encode())
    return tuple(remembered)


@st.cache_resource(show_spinner=False)
def _remembered(path: Path) -> list[BackendChoice]:
    """Return the choices in the file, in a list that `recent_models` updates."""
    return list(read_recent(path))


def read_recent(path: Path) -> tuple[BackendChoice, ...]:
    """Return the valid choices in the file; empty if there is no such file."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    choices = (_read_choice(each) for each in values[:RECENT]) if isinstance(values, list) else ()
    return tuple(choice for choice in choices if choice is not None)


def _read_choice(fields: object) -> BackendChoice | None:
    if not isinstance(fields, dict) or fields.keys() != asdict(BUILT_IN).keys():
        return None
    folders, texts = fields.pop("folders"), fields.values()
    if not isinstance(folders, bool) or not all(isinstance(each, str) and each.isprintable() for each in texts):
        return None
    with suppress(BadInput):
        values = {name: each.read(fields[name]) for name, each in declared(BackendChoice).items()}
        if None not in values.values() and max(map(len, texts)) <= LONGEST_STORED:
            return BackendChoice(**values, folders=folders)
    return None


SAVE_HELP = (
    "backend.toml, which `mars-viz app`, `record`, `map` and `sweep` take as --backend, and "
    "`mars_viz.backend` in Python"
)
OTHER = "Another pair …"
DRAFTER = "a smaller model, or ngram:n=3, suffix, trigram, layers:exit=4, mtp, eagle3:HEADDIR, dflash:DIR"
OPEN = "models-open"
LONGEST = 44  # maximum length of the label next to the button


def draw() -> None:
    """Draw the choice. A new tab begins with the models of its link, or with the server's default."""
    session = current_session()
    _arrive(session)
    recent = recent_models(tab_jobs.shared_worker().models.status.choice)
    parameters = models_written(session.models, session.begun)
    for name in (*NAMES, *_WHERE):  # also on pages that write nothing else
        if st.query_params.get(name) != parameters.get(name):
            st.query_params.pop(name, None)
            if name in parameters:
                st.query_params[name] = parameters[name]
    with st.container(key="models", horizontal=True, vertical_alignment="center", gap="small"):
        # not the button's label, because a popover closes when its label changes
        theme.small(clipped(in_words(session.models), LONGEST))
        area = st.popover("Models", key=OPEN, on_change="rerun")
    if area.open:
        session.models_notices.clear()
        with area:
            if not rights.is_student():
                _choose(session, recent)
            loading = session.models_job is not None and not session.models_job.progress.state.finished
            faults.fragment(_loaded, run_every=tab_jobs.pace() if loading else None)(session, loading)
    theme.note(*session.models_notices)


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
        session.models = models_in_link(st.query_params.to_dict(), initial, session.models_notices)


def _choose(session: Session, recent: Iterable[BackendChoice]) -> None:
    """Draw the fields. A valid choice takes effect at once; the models are loaded when needed."""
    paths, now = visitors.may_name_paths(), session.models
    recent = [choice for choice in recent if paths or not choice.folders]
    pairs = (session.begun, BUILT_IN, CHAT, *OTHER_DRAFTERS.values(), now, *recent)
    choices = {in_words(each): each for each in pairs}
    selected = str(
        st.selectbox("Pair", [*choices, OTHER], list(choices).index(in_words(now)), key="pair", persist_state="page")
    )
    chosen = choices.get(selected, BUILT_IN)
    if selected == OTHER:
        other_sources = ", a folder or GGUF file of the server, or http://HOST:PORT of vLLM"
        placeholder = "org/name or org/name:FILE.gguf on Hugging Face" + other_sources * paths
        target = st.text_input("Target", key="target", placeholder=placeholder, persist_state="page").strip()
        drafter = st.text_input("Drafter", key="drafter", placeholder=DRAFTER, persist_state="page").strip()
        chosen = BackendChoice(target, drafter)
        st.caption(
            "Safetensors and GGUF files, which are dequantised; no code from a model's repository is run. A drafter "
            "with another tokenizer than the target's drafts by text, at temperature 0."
        )
    device, dtype = (
        option_field(place, BackendChoice, name, now) for place, name in zip(st.columns(2), _WHERE, strict=True)
    )
    chosen = replace(chosen, device=device, dtype=dtype, tree=now.tree)
    try:
        if selected == OTHER and not chosen.target and drafter_named(chosen.drafter) is None:
            raise SettingError("Name a target, and its drafter if it is to have one, or choose the built-in pair.")
        if not chosen.folders:  # otherwise already known to the server, and named by a user with permission
            chosen = permitted(chosen)
            chosen = checked_choice(chosen) if chosen.folders else chosen
    except BadInput as error:
        theme.note(str(error))
        return
    if chosen != now:
        session.models = chosen
        st.rerun()


def _loaded(session: Session, loading: bool) -> None:
    """Draw the status of the models, the progress of loading, and the buttons. `loading` is True if the models were
    being loaded or dropped when the page was drawn."""
    worker = tab_jobs.shared_worker()
    job, status = session.models_job, worker.models.status
    if job is not None and not job.progress.state.finished:
        if job.choice is None:
            st.caption("Unloading the models, once the jobs before it are done …")
            return
        share, words = tab_jobs.going(job, status.share, f"{status.doing or 'Loading'} …")
        progress_bar(job, share, words, "Stop", key="stop-loading")
        return
    if loading:
        st.rerun(scope="app")
    if job is not None:
        theme.note(job.progress.error)
    _status(session, status)
    if rights.is_student():
        st.caption("In a class the models are the server's: other ones would be loaded in place of everybody's.")
        return
    load, unload, save = st.columns(3)
    loaded = status.choice == session.models.models
    new_job: Job[Progress] | None = None
    if load.button(
        "Load", key="load-models", width="stretch", disabled=loaded, help="Loads them now; a decode loads them too"
    ):
        new_job = Job(Progress(), nothing, session.models)
    none = status.choice is None
    if unload.button("Unload", key="unload-models", width="stretch", disabled=none, help="Frees their memory"):
        new_job = Job(Progress(), tasks.unload, None, Rank.LONG)  # sweeps finish first
    toml = (lambda: backend_toml(session.models), "backend.toml", "application/toml")
    save.download_button("Save", *toml, on_click="ignore", key="save-models", width="stretch", help=SAVE_HELP)
    if new_job is not None:
        session.models_job = new_job
        worker.begin(new_job)
        st.rerun(scope="app")


def _status(session: Session, status: Status) -> None:
    """Draw the loaded models, their device and memory, and whether they are this tab's choice."""
    if status.choice is None or status.device is None:
        st.caption("No models are loaded; the first decode loads them.")
        return
    is_chosen = status.choice == session.models.models
    theme.small(f"Loaded: {in_words(status.choice)}." + ("" if is_chosen else " Yours are loaded by your next decode."))
    device = status.device
    used, free = _bytes(device.used), _bytes(device.free)
    theme.numbers(
        [
            Tile("Device", short_device(device.name), f"The models run on {device.name}"),
            Tile("Dtype", device.dtype, "Of weights and computation"),
            Tile("Memory used, measured", used, "On a GPU by the models, on a CPU by the whole process"),
            Tile("Memory free, measured", free, "Still available to this server"),
        ]
    )
    theme.note(*device.notes)


def _bytes(count: int | None) -> str:
    if count is None:
        return "–"
    return f"{number(count / 1e9)}{THIN_SPACE}GB" if count >= 1e9 else f"{number(round(count / 1e6))}{THIN_SPACE}MB"


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
