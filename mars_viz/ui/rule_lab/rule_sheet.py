"""How the rules page shows a rule and the table of all rules. All text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd
import streamlit as st

from mars_viz.analysis.equivalents import Equivalent
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.panel import Panel
from mars_viz.analysis.shift import Shifted
from mars_viz.figures import Theme
from mars_viz.figures.words import setting
from mars_viz.rules import Rule, rule_named
from mars_viz.ui.rule_lab.rule_words import declarations
from mars_viz.ui.theme import basis_words

_STYLE = """
.mv-lead { margin: 0; font-size: 1.08rem; line-height: 1.55; }
.mv-lead small { opacity: .8; }
.mv-tag { font-size: .78rem; padding: .05rem .45rem; border-radius: 1rem; border: 1px solid currentColor; opacity: .75;
  white-space: nowrap; cursor: help; vertical-align: .1em; }
.mv-rule { margin: 0; line-height: 1.6; }
.mv-rule code { font-size: .95em; }
.mv-rule .source { opacity: .75; font-size: .9em; }
"""
ROW_HEIGHT = 30
"""Pixels."""
_HELP = {
    "dial": "The chosen rule at the dial above, the run's own rule where it was recorded, others as chosen above",
    "stands on": "Exact: counted on the text that the rule itself writes after this prompt. Block-local: each round is "
    "judged anew on the recorded text before it",
    "τ": "Acceptance length: tokens emitted per round, correction or bonus included",
    "rolled back": "Drafted tokens that are not kept",
    "relaxed": "Kept tokens that the rule's own strict end rejects",
    "first differs": "Exact: the first token, from 1, that is not that of the text at the rule's strict end. "
    "Block-local: the first that the strict end, on the same recorded prefix, would write otherwise",
    "lowest rank": "The target's rank of the least likely drafted token that was kept; 1 is its best",
    "lowest p(x)/p1": "The smallest probability that was kept, relative to the best token's",
    "alike at": "The dial value whose verdicts differ least from those of the chosen rule",
    "still differ": "Verdicts that differ from the chosen rule's even there",
    "shift changes": "Verdicts that change when the constant above is added to every logit",
    "why not": "What the run lacks for the rule",
}


def style() -> None:
    """The page's own style, beside that of `theme.title`."""
    st.html(f"<style>{_STYLE}</style>")


def lead(sentence: str, basis: Basis, more: str) -> None:
    """The finding, what it stands on, and a second sentence."""
    tag = f'<span class="mv-tag" title="{escape(basis_words(basis))}">{basis.value}</span>'
    st.html(f'<p class="mv-lead">{escape(sentence)} {tag}<br><small>{escape(more)}</small></p>')


def sentence(words: str) -> None:
    """A sentence as it is."""
    st.html(f'<p class="mv-rule">{escape(words)}</p>')


def card(rule: Rule) -> None:
    """A rule in words: formula, summary, what it declares, source."""
    said = " ".join(escape(sentence) for sentence in declarations(rule))
    st.html(
        f'<p class="mv-rule"><b>{escape(rule.title)}</b> keeps a drafted token x where '
        f"<code>{escape(rule.formula)}</code>. {escape(rule.summary)} {said} "
        f'<span class="source">Source: {escape(rule.source)}.</span></p>'
    )


def rule_frame(panel: Panel, dials: Mapping[str, float | None]) -> pd.DataFrame:
    """A row a rule, in the registry's order; empty where the rule cannot judge the run, with the reason."""
    table = pd.DataFrame([_line(panel, name, dials) for name in panel.rules], index=list(panel.rules))
    return table if table["why not"].any() else table.drop(columns="why not")


def _line(panel: Panel, name: str, dials: Mapping[str, float | None]) -> dict[str, object]:
    rule = panel.rules[name]
    if lacks := panel.opinions[name].lacks:
        return {"rule": rule.title, "dial": "cannot judge", "why not": lacks}
    row = panel.row(name, dials[name])
    return {
        "rule": rule.title,
        "dial": _setting(rule, row.dial),
        "stands on": row.basis.value,
        "why not": "",
        "τ": row.tau,
        "rolled back": row.rolled_back,
        "relaxed": row.relaxed,
        "first differs": None if row.first_difference is None else row.first_difference + 1,
        "lowest rank": row.lowest_rank,
        "lowest p(x)/p1": row.lowest_share,
    }


def likeness_frame(
    dials: Mapping[str, float | None], alike: Mapping[str, Equivalent], shifted: Mapping[str, Shifted]
) -> pd.DataFrame:
    """How the rules' verdicts on the recorded positions compare: a row for each rule that can judge them."""
    lines = [
        {
            "rule": rule_named(name).title,
            "dial": _setting(rule_named(name), dials[name]),
            "alike at": _setting(rule_named(name), alike[name].dial) if name in alike else "",
            "still differ": alike[name].differing if name in alike else None,
            "shift changes": changed.count,
        }
        for name, changed in shifted.items()
    ]
    return pd.DataFrame(lines, index=list(shifted))


def table(frame: pd.DataFrame, chosen: str, colours: Theme, key: str, alt: str) -> None:
    """A frame with the chosen rule marked; rows that are not exact, or cannot judge, are grey."""
    pale = set(frame.index[frame["stands on"] != Basis.EXACT.value]) if "stands on" in frame else set()

    def look(rows: pd.DataFrame) -> pd.DataFrame:
        mark = f"; background-color: {colours.dial}33; font-weight: 600"
        style = [
            f"color: {colours.muted if name in pale else colours.ink}{mark if name == chosen else ''}"
            for name in rows.index
        ]
        return pd.DataFrame(dict.fromkeys(rows.columns, style), index=rows.index)

    kinds = {
        name: st.column_config.NumberColumn(help=_HELP[name], format=form, width=_WIDTHS.get(name))
        for name, form in _FORMATS.items()
    }
    words = {
        name: st.column_config.TextColumn(help=_HELP[name], width=_WIDTHS.get(name))
        for name in ("dial", "alike at", "stands on")
    }
    reasons = st.column_config.TextColumn(help=_HELP["why not"], width="large")
    columns = {
        "rule": st.column_config.TextColumn(width=_WIDTHS["rule"]),  # pinned, the names of exact rows would be pale
        **words,
        **kinds,
        "why not": reasons,
    }
    st.dataframe(
        frame.style.apply(look, axis=None),  # at once: row by row it takes three times as long
        hide_index=True,
        height="content",
        row_height=ROW_HEIGHT,
        key=key,
        placeholder="",
        alt=alt,
        column_config={name: column for name, column in columns.items() if name in frame},
    )


_FORMATS = {
    **dict.fromkeys(("rolled back", "relaxed", "first differs", "lowest rank", "still differ", "shift changes"), "%d"),
    "τ": "%.2f",
    "lowest p(x)/p1": "%.3g",
}


_WIDTHS = {
    "rule": 205,
    "dial": 84,
    "stands on": 90,
    "τ": 56,
    "rolled back": 86,
    "relaxed": 70,
    "first differs": 86,
    "lowest rank": 88,
    "lowest p(x)/p1": 104,
}
"""Pixels, so that no title or number is cut; a wide page shares out what is left."""


def _setting(rule: Rule, dial: float | None) -> str:
    return "" if rule.dial is None or dial is None else setting(rule.dial.symbol, dial)
