"""Selectable table of runs. All text is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256

import pandas as pd
import streamlit as st

from mars_viz.escapes import visible
from mars_viz.runlist import ListedRun, RunOrigin
from mars_viz.runstore import RunStatus
from mars_viz.ui import visitors

ROWS = 12  # number of visible rows
ROW = 35  # height of a row in pixels
LONGEST = 200  # maximum number of characters in a cell
_COLUMNS = {
    "rule": "rule and dial",
    "temperature": "sampling",
    "draft": "draft",
    "models": "models",
    "stop": "stop",
    "device": "device",
}
_FROM = {RunOrigin.SAMPLE: "sample", RunOrigin.SAVED: "saved", RunOrigin.TAB: "this tab"}


def frame(runs: Sequence[ListedRun]) -> pd.DataFrame:
    """Return a table with a row per run. Unknown values are empty, or NaN in columns of numbers."""
    return pd.DataFrame([_row(run) for run in runs])


def _row(run: ListedRun) -> dict[str, object]:
    facts, parts = run.facts, {} if run.facts is None else run.facts.parts
    is_complete = run.standing is RunStatus.WHOLE
    cells = {name: _cell(parts.get(part, "")) for part, name in _COLUMNS.items()}
    first = {name: cells.pop(name) for name in ("rule and dial", "sampling", "draft", "models")}
    return {
        "title": _cell(run.heading),
        "tags": _cell(", ".join(run.tags)),
        **first,
        "tokens": math.nan if facts is None else facts.tokens,
        "τ": math.nan if facts is None else facts.tau,
        "made, UTC": "" if facts is None or not facts.date else _cell(facts.provenance.created[:16].replace("T", " ")),
        "from": _FROM[run.origin] if is_complete else run.standing.value,
        "seed": math.nan if facts is None else facts.settings.seed,
        "limit": math.nan if facts is None else facts.settings.max_new_tokens,
        **cells,
        "prompt": _cell(visitors.told(run.error) if facts is None else " ".join(facts.prompt[: 2 * LONGEST].split())),
        "id": _cell(run.name),
    }


def _cell(text: str) -> str:
    return visible(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def selected(runs: Sequence[ListedRun]) -> list[ListedRun]:
    """Draw the table and return the runs in selected rows. The key depends on the runs, because the browser stores
    selected rows by position."""
    names = sha256("\0".join(run.name for run in runs).encode()).hexdigest()[:12]
    state = st.dataframe(
        frame(runs),
        hide_index=True,
        height=38 + ROW * min(ROWS, len(runs)),
        row_height=ROW,
        key=f"runs-{names}",
        on_select="rerun",
        selection_mode="multi-row",
        column_config={
            "title": st.column_config.TextColumn(width=300),
            "tags": st.column_config.TextColumn(width=110),
            "rule and dial": st.column_config.TextColumn(width=170),
            "draft": st.column_config.TextColumn(width=90),
            "seed": st.column_config.NumberColumn(format="%d"),
            "limit": st.column_config.NumberColumn(format="%d", help="Tokens at most"),
            "models": st.column_config.TextColumn(width=150),
            "tokens": st.column_config.NumberColumn(format="%d"),
            "τ": st.column_config.NumberColumn(format="%.2f", help="Tokens per target pass; exact"),
            "prompt": st.column_config.TextColumn(width=300),
        },
        alt="All runs that are found: a row a run, with what made it",
    )
    return [runs[place] for place in state["selection"]["rows"] if place < len(runs)]
