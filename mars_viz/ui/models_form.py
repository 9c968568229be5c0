"""The choice of models at the top of every page, with the loaded models, their memory use and buttons that load and
unload, and its parameters in a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import streamlit as st

from mars_viz import demo
from mars_viz.backend_choice import BUILT_IN, BackendChoice, backend_toml, checked_choice, first_choice
from mars_viz.demo import SMOLLM2
from mars_viz.documents import Facts
from mars_viz.errors import BadInput, SettingError
from mars_viz.escapes import visible
from mars_viz.options import changed
from mars_viz.speculators.drafters import Model
from mars_viz.speculators.names import NO_SERVER, check_id, pair_named, server_named
from mars_viz.ui import links, tab_jobs, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import option_field
from mars_viz.ui.documents import draw as draw_blocks
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import CHAT, OTHER_DRAFTERS, Job, Progress, Rank, Status, nothing
from mars_viz.ui.session import Session, current_session
from mars_viz.words import THIN_SPACE, clipped, number

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
    if not target and not drafter:
        return replace(begun, **values)
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
        return replace(begun, **values)
    if set(pair.models) - {SMOLLM2}:  # possibly on the hub
        complaints.append(
            f"The link chooses the models {' and '.join(filter(None, choice.names))}. Decode would download "
            "the missing ones from the hub; choose others under Models if you do not want that."
        )
    models = {"target": choice.target, "drafter": choice.drafter, "folders": choice.folders}
    return replace(begun, **values | models)


def permitted(choice: BackendChoice) -> BackendChoice:
    """Return the choice with the permission to name folders, if it needs it. Raises BadInput for names that visitors
    may not use."""
    pair = pair_named(choice.target, choice.drafter)
    privileged = pair.server or any(part.text for part in pair.drafter.parts) or set(pair.models) - {SMOLLM2}
    folders = bool(privileged) and visitors.may_name_paths()
    if pair.server and not folders:
        raise SettingError(NO_SERVER)
    for name in () if folders else pair.models:
        check_id(name)
    return replace(choice, drafter=pair.drafter.typed(), folders=folders)


OTHER = "Another pair …"
OPEN = "models-open"
LONGEST = 44  # maximum length of the label next to the button


def draw() -> None:
    """Draw the choice. A new tab begins with the models of its link, or with the server's default."""
    session = current_session()
    if not session.chose:
        session.chose = True
        try:
            session.begun = session.models = first_choice()
        except BadInput as error:
            session.models_notices.append(visitors.told(str(error)))
        if not rights.is_student():
            session.models = models_in_link(st.query_params.to_dict(), session.begun, session.models_notices)
    with st.container(key="models", horizontal=True, vertical_alignment="center", gap="small"):
        # not the button's label, because a popover closes when its label changes
        theme.small(clipped(in_words(session.models), LONGEST))
        area = st.popover("Models", key=OPEN, on_change="rerun")
    if area.open:
        session.models_notices.clear()
        with area:
            if not rights.is_student():
                _choose(session)
            if (job := session.models_job) is not None and not job.progress.state.finished:
                tab_jobs.watch(job, lambda: (0.0, "Loading the models …"), key="stop-loading")
            else:
                _loaded(session)
    theme.note(*session.models_notices)


def _choose(session: Session) -> None:
    """Draw the fields. A valid choice takes effect at once; the models are loaded when needed."""
    paths, now = visitors.may_name_paths(), session.models
    choices = {in_words(each): each for each in (session.begun, BUILT_IN, CHAT, *OTHER_DRAFTERS.values(), now)}
    selected = str(
        st.selectbox("Pair", [*choices, OTHER], list(choices).index(in_words(now)), key="pair", persist_state="page")
    )
    chosen = choices.get(selected, BUILT_IN)
    if selected == OTHER:
        other_sources = ", a folder or GGUF file of the server, or http://HOST:PORT of vLLM"
        placeholder = "org/name or org/name:FILE.gguf on Hugging Face" + other_sources * paths
        target = st.text_input("Target", key="target", placeholder=placeholder, persist_state="page").strip()
        some = "a smaller model, or ngram:n=3, suffix, trigram, layers:exit=4, mtp, eagle3:HEADDIR, dflash:DIR"
        drafter = st.text_input("Drafter", key="drafter", placeholder=some, persist_state="page").strip()
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
        if selected == OTHER and not chosen.target and isinstance(pair_named("", chosen.drafter).drafter, Model):
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


def _loaded(session: Session) -> None:
    """Draw the status of the models, and the buttons."""
    worker = tab_jobs.shared_worker()
    job, status = session.models_job, worker.models.status
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
    save.download_button(
        "Save", lambda: backend_toml(session.models), "backend.toml", "application/toml", on_click="ignore",
        key="save-models", width="stretch",
        help="backend.toml, which the commands take as --backend, and `mars_viz.backend` in Python",
    )  # fmt: skip
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
    memory = f"{_bytes(device.used)} used, {_bytes(device.free)} free (measured)"
    draw_blocks([Facts({"Device": device.name, "Dtype": device.dtype, "Memory": memory})])
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
