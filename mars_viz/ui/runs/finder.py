"""Search field, filters and sort order of the list of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.escapes import markdown, visible
from mars_viz.rules import rule_named
from mars_viz.runlist import ListedRun, Order
from mars_viz.runlist.search import (
    CHAINS,
    TREES,
    drafters_among,
    rules_among,
    shapes_among,
    tags_among,
    temperatures_among,
)
from mars_viz.ui.runs.page_state import RunsPageState, RunsView, Whose
from mars_viz.words import exactly, number_in

T = TypeVar("T")
ORDERS = {
    Order.NEWEST: "Newest first",
    Order.OLDEST: "Oldest first",
    Order.TITLE: "By title",
    Order.TAU: "Largest τ first",
    Order.TOKENS: "Longest first",
    Order.RULE: "By rule and dial",
}
WHOSE = {Whose.ALL: "All", Whose.SAMPLES: "Samples", Whose.SAVED: "Saved here", Whose.MINE: "Mine"}
ANY = "Any"
_KEYS = ("search", "sort", "rule", "drafter", "tree", "temperature", "tags", "whose")


def typing(state: RunsPageState) -> bool:
    """Return True while the user types in the search field."""
    return bool(st.session_state.get("runs-search", state.view.words) != state.view.words)


def finder(state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Draw the row above the table, and update the view from it."""
    left, middle, right = st.columns([6, 2.2, 2.6], vertical_alignment="bottom")
    view = state.view
    with left:
        st.session_state.setdefault("runs-search", view.words)
        words = st.text_input(
            "Search", key="runs-search", type="search", live="100ms", placeholder="Words in title, prompt, tags or id",
            label_visibility="collapsed",
        )  # fmt: skip
    with middle.popover("Filter", width="stretch", key="runs-filter"):
        filtered = replace(_filters(view, runs), words=words)
        st.button("Clear all", key="runs-clear", on_click=clear, args=(state,), disabled=filtered == _cleared(filtered))
    with right:
        order = _choice("Sort", "sort", list(Order), view.order, ORDERS.__getitem__, hidden=True)
    state.view = replace(filtered, order=order)


def _filters(view: RunsView, runs: Sequence[ListedRun]) -> RunsView:
    whose = _choice("From", "whose", list(Whose), view.whose, WHOSE.__getitem__)
    rule = _choice("Rule", "rule", ["", *rules_among(runs)], view.rule, _rule)
    drafter = _choice("Drafter", "drafter", ["", *drafters_among(runs)], view.drafter, lambda name: name or ANY)
    tree = _choice("Draft", "tree", ["", *shapes_among(runs)], view.tree, _shape)
    temperatures = ["", *map(exactly, temperatures_among(runs))]
    current = "" if view.temperature is None else exactly(view.temperature)
    temperature = _choice("Temperature", "temperature", temperatures, current, lambda name: name or ANY)
    tags = list(dict.fromkeys([*tags_among(runs), *view.tags]))
    st.session_state.setdefault("runs-tags", list(view.tags))
    chosen = st.multiselect("Tags", tags, key="runs-tags", format_func=visible, placeholder="Any")
    return replace(
        view, whose=whose, rule=rule, drafter=drafter, tree=tree, temperature=number_in(temperature), tags=tuple(chosen)
    )


def _choice(
    label: str, name: str, options: Sequence[T], value: T, words: Callable[[T], str], *, hidden: bool = False
) -> T:
    """Draw a select box. `value` is added to the options if it is missing, because a link may have a value that no run
    has."""
    key = f"runs-{name}"
    offered = options if value in options else [*options, value]
    if st.session_state.get(key, value) not in offered:
        st.session_state[key] = value
    st.session_state.setdefault(key, value)
    chosen: T = st.selectbox(
        markdown(label), offered, key=key, format_func=lambda option: visible(words(option)),
        label_visibility="collapsed" if hidden else "visible",
    )  # fmt: skip
    return chosen


def _cleared(view: RunsView) -> RunsView:
    return RunsView(run=view.run, order=view.order)


def clear(state: RunsPageState) -> None:
    """Reset the search and all filters."""
    state.look()
    state.view = _cleared(state.view)
    for name in _KEYS:
        st.session_state.pop(f"runs-{name}", None)
    st.session_state["runs-search"] = ""


def _rule(name: str) -> str:
    try:
        return rule_named(name).title if name else ANY
    except BadInput:
        return name


def _shape(name: str) -> str:
    return {"": ANY, CHAINS: "Chains", TREES: "Trees"}.get(name, name)
