"""The widgets in which a person says what to decode, and how."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.rules import RULES, Rule
from mars_viz.run import Settings

START = Settings()
EXAMPLE = "Once upon a time, there was a little fox who"


LONGEST = 20_000
"""Letters of a prompt."""
LIMITS = {
    "gamma": (1, 64),
    "temperature": (0.0, 5.0),
    "seed": (0, 2**53 - 1),
    "max_new_tokens": (1, 100_000),
    "top_p": (0.01, 1.0),
    "top_k": (0, 1_000_000),
}
"""What the form takes, by the name in `Settings`."""


def prompt_box(disabled: bool = False, *, pair: str = "", start: str = EXAMPLE) -> str:
    """The prompt; what is typed is used as it is, line breaks and all. `pair` names the models where they are not the
    built-in ones."""
    code = f"`{pair.replace('`', '')}`"  # help is Markdown, and a name may come from a link
    return st.text_area(
        "Prompt",
        start,
        key="prompt",
        height=68,
        label_visibility="collapsed",
        placeholder=f"Write a prompt for {pair or 'the built-in pair'} to continue",
        disabled=disabled,
        max_chars=LONGEST,
        help=f"{code} writes on from here."
        if pair
        else "The built-in pair writes on from here: short simple stories, additions, sorted lists, short answers.",
    )


def settings_area(disabled: bool = False, start: Settings = START) -> Callable[[], Settings]:
    """The folded settings, which begin at `start`. Returns what makes `Settings` of them, which raises BadInput for a
    value out of range."""
    with st.popover("Settings", disabled=disabled, width="stretch"):
        rule = RULES[
            str(st.selectbox("Rule", list(RULES), list(RULES).index(start.rule), format_func=_title, key="rule"))
        ]
        st.caption(f"{rule.summary} Keeps a draft x where {rule.formula}.")
        dial = dial_slider(rule, f"dial-{rule.name}", start=start.dial if rule.name == start.rule else None)
        left, right = st.columns(2)
        with left:
            gamma = st.number_input(
                "Draft length γ", *LIMITS["gamma"], start.gamma, key="gamma", help="Tokens drafted per round"
            )
            temperature = st.number_input(
                "Temperature",
                *LIMITS["temperature"],
                start.temperature,
                0.1,
                key="temperature",
                help="0 takes the most likely token every time",
            )
            seed = st.number_input("Seed", *LIMITS["seed"], start.seed, key="seed", help="Same seed, same luck")
        with right:
            limit = st.number_input(
                "At most tokens",
                *LIMITS["max_new_tokens"],
                start.max_new_tokens,
                key="limit",
                help="Length limit of the text",
            )
            top_p = st.number_input("Top-p", *LIMITS["top_p"], start.top_p, 0.05, key="top_p", help="1 is off")
            top_k = st.number_input("Top-k", *LIMITS["top_k"], start.top_k, key="top_k", help="0 is off")
    return lambda: Settings(
        rule=rule.name,
        dial=dial,
        gamma=int(gamma),
        temperature=float(temperature),
        top_p=float(top_p),
        top_k=int(top_k),
        seed=int(seed),
        max_new_tokens=int(limit),
    )


def dial_slider(rule: Rule, key: str, disabled: bool = False, start: float | None = None) -> float | None:
    """The rule's dial, at `start` or its default at first; None for a rule without one."""
    dial = rule.dial
    if dial is None:
        return None
    return st.slider(
        f"{dial.name.capitalize()} {dial.symbol}",
        dial.low,
        dial.high,
        dial.default if start is None else start,
        dial.step,
        key=key,
        help=f"{dial.strict:g} is strict",
        format="%.3f",
        disabled=disabled,
    )


def _title(name: str) -> str:
    return RULES[name].title
