"""The widgets in which a person says what to decode, and how."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.rules import RULES, Rule, rule_named
from mars_viz.run import Settings

STOP_HELP = "Texts that end decoding, one on each line, blanks included; the token that completes one stays whole."
EXAMPLE = "Once upon a time, there was a little fox who"
ONE_AT_A_TIME = "One thing at a time: cancel what is under way, or wait until it has ended."


def prompt_box() -> str:
    """The prompt; what is typed is used as it is, line breaks and all."""
    return st.text_area(
        "Prompt",
        EXAMPLE,
        key="prompt",
        height=68,
        label_visibility="collapsed",
        placeholder="Write a prompt for the built-in pair to continue",
        help="The built-in pair writes on from here: short simple stories, additions, sorted lists, short answers.",
    )


def settings_area() -> Callable[[], Settings]:
    """The folded settings. Returns what makes `Settings` of them, which raises BadInput for a value out of range."""
    with st.popover("Settings", width="stretch"):
        rule = RULES[str(st.selectbox("Rule", list(RULES), list(RULES).index("mars"), format_func=_title, key="rule"))]
        st.caption(f"{rule.summary} Keeps a draft x where {rule.formula}.")
        dial = dial_slider(rule, f"dial-{rule.name}")
        left, right = st.columns(2)
        with left:
            gamma = st.number_input("Draft length γ", 1, 64, 6, key="gamma", help="Tokens drafted per round")
            temperature = st.number_input(
                "Temperature", 0.0, 5.0, 0.0, 0.1, key="temperature", help="0 takes the most likely token every time"
            )
            seed = st.number_input("Seed", 0, 2**53 - 1, 0, key="seed", help="Same seed, same luck")
        with right:
            limit = st.number_input("At most tokens", 1, 100_000, 128, key="limit", help="Length limit of the text")
            top_p = st.number_input("Top-p", 0.01, 1.0, 1.0, 0.05, key="top_p", help="1 is off")
            top_k = st.number_input("Top-k", 0, 1_000_000, 0, key="top_k", help="0 is off")
        stop = st.text_area("Stop at", key="stop", height=68, max_chars=4000, help=STOP_HELP)
    return lambda: Settings(
        rule=rule.name,
        dial=dial,
        gamma=int(gamma),
        temperature=float(temperature),
        top_p=float(top_p),
        top_k=int(top_k),
        seed=int(seed),
        max_new_tokens=int(limit),
        stop=tuple(line for line in stop.split("\n") if line),
    )


def checked(notices: list[str], prompt: str, settings: Callable[[], Settings], *, under_way: bool) -> Settings | None:
    """What is asked for, where it can be had now. What is wrong takes the place of the tab's `notices`.

    The form stays open while something is under way: the page that would open it again may be lost on a busy server.
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
    except BadInput as error:
        notices.append(str(error))
        return None
    return chosen


def dial_slider(rule: Rule, key: str, disabled: bool = False) -> float | None:
    """The rule's dial, at its default at first; None for a rule without one."""
    dial = rule.dial
    if dial is None:
        return None
    return st.slider(
        f"{dial.name.capitalize()} {dial.symbol}",
        dial.low,
        dial.high,
        dial.default,
        dial.step,
        key=key,
        help=f"{dial.strict:g} is strict",
        format="%.3f",
        disabled=disabled,
    )


def _title(name: str) -> str:
    return RULES[name].title
