"""The widgets in which a person chooses the pair of models, the device and the chat template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.errors import SettingError
from mars_viz.escapes import visible
from mars_viz.speculators.drafter_names import drafter_named
from mars_viz.speculators.names import DEVICES, DTYPES
from mars_viz.ui import visitors
from mars_viz.ui.decode_form import named_models
from mars_viz.ui.jobs.models import OTHER_DRAFTERS

AUTO = (
    "auto: on a GPU the dtype of the weights; on a CPU float32, or bfloat16 for a large pair of that dtype where the "
    "CPU supports it"
)
OTHER = "Another pair …"
DRAFTER = "a smaller model, or ngram:n=3, suffix, trigram, layers:exit=4"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the form says."""

    choice: BackendChoice
    """The models."""
    chat: bool
    """True if the prompt goes through the target's chat template."""


def chosen_pair(start: BackendChoice = BUILT_IN) -> str:
    """The pair that the form stands at, in words for another place of the page; empty for the built-in one.

    It may be asked before the form is drawn, which begins at `start`.
    """
    state = st.session_state
    named = str(state.get("pair") or in_words(start))
    if named == OTHER:
        typed = BackendChoice(str(state.get("target") or "").strip(), str(state.get("drafter") or "").strip())
        return in_words(typed) if typed.target else "the models that you name"
    return "" if named == in_words(BUILT_IN) else named


def pair_area(
    recent: tuple[BackendChoice, ...], start: BackendChoice = BUILT_IN, chat: bool = False
) -> Callable[[], Wanted]:
    """The folded form, which begins at the pair `start`. Returns what makes of it what is wanted, which raises BadInput
    where one name is missing."""
    with st.popover("Models", width="stretch"):
        paths = visitors.may_name_paths()
        shown = [choice for choice in recent if paths or not choice.folders]
        known = {in_words(choice): choice for choice in (BUILT_IN, *OTHER_DRAFTERS.values(), start, *shown)}
        named = str(st.selectbox("Pair", [*known, OTHER], list(known).index(in_words(start)), key="pair"))
        target = drafter = ""
        if named == OTHER:
            where = "org/name on Hugging Face" + ", a folder of the server, or http://HOST:PORT of vLLM" * paths
            target = st.text_input("Target", key="target", placeholder=where)
            drafter = st.text_input("Drafter", key="drafter", placeholder=DRAFTER)
            st.caption(
                "Safetensors only; no code from a model's repository is run. A drafter with another tokenizer than the "
                "target's drafts by text, at temperature 0."
            )
        else:
            target, drafter = known[named].target, known[named].drafter
        left, right = st.columns(2)
        device = str(left.selectbox("Device", DEVICES, key="device", help="auto: a GPU if there is one"))
        dtype = str(right.selectbox("Dtype", DTYPES, key="dtype", help=AUTO))
        chat = st.toggle("Chat template", chat, key="chat", help="Formats the prompt with the target's chat template")
    return lambda: Wanted(_checked(named_models(target, drafter, device, dtype), named), chat)


def in_words(choice: BackendChoice) -> str:
    """A line for a choice."""
    if not choice.target and not choice.drafter:
        return "Built-in pair"
    target, drafter = choice.names if visitors.may_name_paths() else choice.in_short
    return visible(f"{target or 'Built-in target'} with {drafter or 'the built-in drafter'}")


def _checked(choice: BackendChoice, named: str) -> BackendChoice:
    if named == OTHER and not choice.target and drafter_named(choice.drafter) is None:
        raise SettingError("Name a target, and its drafter if it is to have one, or choose the built-in pair.")
    return choice
