"""Form fields for prompts, models and decoding settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import streamlit as st

from mars_viz.backend_choice import BackendChoice
from mars_viz.controllers import NONE
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput, SettingError
from mars_viz.escapes import markdown, visible
from mars_viz.rules import RULES, Fixed, Rule, rule_named
from mars_viz.run import Run, Settings
from mars_viz.shapes import CHAIN, drafted_tokens, shape_named, with_nodes
from mars_viz.speculators.names import NO_SERVER, check_id, drafter_for, models_named, server_named
from mars_viz.ui import draft_fields, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.session import current_session

START = Settings()
STOP_HELP = "Texts that end decoding, one on each line, blanks included; the token that completes one stays whole."
EXAMPLE = "Once upon a time, there was a little fox who"
ONE_AT_A_TIME = "One thing at a time: cancel what is under way, or wait until it has ended."


LIMITS = {
    "gamma": (1, 64),
    "temperature": (0.0, 5.0),
    "seed": (0, 2**53 - 1),
    "max_new_tokens": (1, 100_000),
    "top_p": (0.01, 1.0),
    "top_k": (0, 1_000_000),
}
"""Accepted ranges by field of `Settings`."""
LONGEST_SYSTEM = 4000  # maximum length of a system prompt
LONGEST_STOPS = 4000  # maximum length of all stop strings together


def prompt_box(*, pair: str = "", start: str = EXAMPLE, follows: bool = False) -> str:
    """Draw the prompt field and return its exact text. `pair` names the models if they are not built in. With
    `follows`, the field shows each new `start` until the user types."""
    if follows and st.session_state.get("prompt") == st.session_state.get("prompt-put"):
        st.session_state["prompt"] = st.session_state["prompt-put"] = start
    return st.text_area(
        "Prompt",
        "" if follows else start,  # the session state has the value
        key="prompt",
        height=68,
        label_visibility="collapsed",
        placeholder=visible(f"Write a prompt for {pair or 'the built-in pair'} to continue"),
        help=f"{markdown(pair)} writes on from here."
        if pair
        else "The built-in pair writes on from here: short simple stories, additions, sorted lists, short answers.",
    )


def chat_fields(template: bool | None, on: bool = True, system: str = "", prefix: str = "") -> tuple[bool | None, str]:
    """Draw the chat template switch and the system prompt. `template` is None if it is unknown whether the target has
    one.

    Returns (chat, system prompt). `chat` is None to apply the template if there is one, or False.
    """
    if template is False:
        return None, ""
    if not st.toggle("Chat template", on, key=f"{prefix}chat", help="Formats the prompt as a message to a chat model"):
        return False, ""
    with st.expander("System prompt", expanded=bool(system)):
        written = st.text_area(
            "System prompt",
            system,
            key=f"{prefix}system",
            height=68,
            max_chars=LONGEST_SYSTEM,
            label_visibility="collapsed",
            placeholder="Such as: Answer in one sentence.",
        )
    return None, written if written.strip() else ""


def settings_fields(start: Settings = START, shown: Run | None = None) -> Callable[[], Settings]:
    """Draw the settings, initially `start`. Static trees may use the chances of the run `shown`. Returns a function
    that builds the Settings and raises BadInput for values out of range."""
    first = rule_named(start.rule)
    family = st.selectbox(
        "Rule", list(RULES), list(RULES).index(first.family), format_func=lambda name: RULES[name].title, key="rule"
    )
    words = st.empty()  # above the fields that determine it
    rule = fixed_inputs(RULES[str(family)], "fixed", start=first)
    words.caption(markdown(f"{rule.summary} Keeps a draft x where {rule.formula}."))
    dial = dial_slider(rule, f"dial-{rule.family}", start=start.dial if rule.family == first.family else None)
    tree = draft_fields.tree_name("", start, shown)
    if tree != CHAIN:
        policy = draft_fields.among_siblings([rule], "", first.policy if first.family == rule.family else None)
        rule = draft_fields.choosing(rule, policy)
    controller = draft_fields.controller_name(tree, "", start)
    left, right = st.columns(2)
    count = draft_fields.drafted(left, tree, "", start)
    with left:
        temperature = st.number_input(
            "Temperature",
            *LIMITS["temperature"],
            start.temperature,
            0.1,
            key="temperature",
            help="0 takes the most likely token every time",
        )
        seed = st.number_input("Seed", *LIMITS["seed"], start.seed, key="seed", help="Same seed, same draws")
    with right:
        least, most = LIMITS["max_new_tokens"]
        most = most if (limits := rights.limits()) is None else limits.tokens
        note = "" if limits is None else f"; in this classroom at most {most}"
        limit = st.number_input(
            "Max new tokens",
            least,
            most,
            min(start.max_new_tokens, most),
            key="limit",
            help=markdown(f"Length limit of the text, the prompt not counted{note}"),
        )
        top_p = st.number_input("Top-p", *LIMITS["top_p"], start.top_p, 0.05, key="top_p", help="1 is off")
        top_k = st.number_input("Top-k", *LIMITS["top_k"], start.top_k, key="top_k", help="0 is off")
    lines = "\n".join(start.stop)
    stop = st.text_area("Stop strings", lines, key="stop", height=68, max_chars=LONGEST_STOPS, help=STOP_HELP)
    return lambda: Settings(
        rule=rule.name,
        dial=dial,
        gamma=count,
        temperature=float(temperature),
        top_p=float(top_p),
        top_k=int(top_k),
        seed=int(seed),
        max_new_tokens=int(limit),
        stop=stop_lines(stop),
        tree=draft_fields.sized(tree, count),
        controller=controller,
    )


def stop_lines(text: str) -> tuple[str, ...]:
    """Return the stop strings of a text with one per line."""
    return tuple(line for line in text.split("\n") if line)


def checked(notices: list[str], prompt: str, settings: Callable[[], Settings], *, under_way: bool) -> Settings | None:
    """Return valid settings, or None after replacing the tab's `notices` with the problem.

    The form stays enabled while a job runs, because on a busy server the rerun that would enable it may be lost.
    """
    notices.clear()
    if under_way:
        notices.append(ONE_AT_A_TIME)
        return None
    if not prompt.strip():
        notices.append("Write a prompt first; the model continues it.")
        return None
    try:
        chosen = settings()
        rule_named(chosen.rule).checked_dial(chosen.dial)
        rights.check_tokens(chosen.max_new_tokens)
    except BadInput as error:
        notices.append(str(error))
        return None
    return chosen


def drafting(start: Settings, tree: str) -> Settings:
    """Return the settings with drafts of another shape, unless they already have it."""
    shape = shape_named(tree)
    if shape.shape.name == start.tree or (tree == CHAIN and not start.drafts_trees):
        return start
    return replace(start, tree=tree, gamma=drafted_tokens(None, tree), controller=NONE)


def keep_shape(settings: Callable[[], Settings]) -> None:
    """Use this form's draft shape as the default of the other forms, if its settings are valid."""
    with suppress(BadInput):
        values, session = settings(), current_session()
        tree = with_nodes(values.tree, values.gamma) if values.drafts_trees else CHAIN
        session.models = replace(session.models, tree=tree)


def named_models(target: str, drafter: str, device: str = "auto", dtype: str = "auto") -> BackendChoice:
    """Return the models with these names; an empty name means the default. Raises BadInput for names that visitors may
    not use."""
    drafting = drafter_for(target.strip() or None, drafter.strip() or None)
    models = models_named(target.strip() or None, drafter.strip() or None)
    server = server_named(target.strip())
    folders = bool(set(models) - {SMOLLM2} or server) and visitors.may_name_paths()
    if server and not folders:
        raise SettingError(NO_SERVER)
    for name in () if folders else models:
        check_id(name)
    drafted_by = drafting if isinstance(drafting, str) else drafting.name
    return BackendChoice(target.strip(), drafted_by, device, dtype, folders)


def fixed_inputs(rule: Rule, key: str, start: Rule | None = None) -> Rule:
    """Draw the rule's fixed settings, initially those of `start` if it is of the same family, and return the rule with
    them."""
    initial = start if start is not None and start.family == rule.family else rule
    values = {each.key: _fixed_input(each, initial.values[each.key], f"{key}-{rule.family}") for each in rule.fixed}
    return rule.varied(values) if values else rule


def _fixed_input(setting: Fixed, start: float, key: str) -> float:
    kind = int if setting.whole else float
    value = st.number_input(
        markdown(f"{setting.name[0].upper()}{setting.name[1:]} {setting.symbol}"),
        kind(setting.low),
        kind(setting.high),
        kind(start),
        kind(setting.step),
        format="%d" if setting.whole else "%.3g",
        key=f"{key}-{setting.key}",
        help=markdown(
            f"{setting.meaning[0].upper()}{setting.meaning[1:]}. {setting.written(setting.default)} unless said; "
            "fixed while the dial moves."
        ),
    )
    return float(value)


def dial_slider(rule: Rule, key: str, disabled: bool = False, start: float | None = None) -> float | None:
    """Draw the rule's dial, initially at `start` or its default. Returns None if the rule has no dial."""
    dial = rule.dial
    if dial is None:
        return None
    return st.slider(
        markdown(f"{dial.name.capitalize()} {dial.symbol}"),
        dial.low,
        dial.high,
        dial.default if start is None else start,
        dial.step,
        key=key,
        help=f"{dial.strict:g} is strict",
        format="%.3f",
        disabled=disabled,
    )
