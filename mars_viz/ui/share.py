"""Downloads and citations for pages: tables, and on Explore also a report. Each file is created when its button is
pressed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import streamlit as st

from mars_viz.analysis.engine_counts import acceptance_records
from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.analysis.metrics import basis, judged_rounds
from mars_viz.escapes import markdown
from mars_viz.exploration import checked_gamma, shown
from mars_viz.report import bibtex, file_name, report_html
from mars_viz.report.page import csv_table, parquet_table
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.ui import theme
from mars_viz.ui.theme import FORMAT, FORMATS
from mars_viz.words import exact_setting


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    name: str  # file name without extension: letters, digits and hyphens
    make: Callable[[], pd.DataFrame]  # returns the numbers; called when a button is pressed


def tables(shown: Sequence[Table], rules: Iterable[str], key: str) -> None:
    """Draw the popover with downloads of tables as CSV and Parquet, and BibTeX entries of the rules. `key` is unique on
    the page."""
    with st.popover("Share", help="Take these tables away, and what to cite"):
        for table in shown:
            st.caption(markdown(table.title))
            with st.container(horizontal=True):
                _table_buttons(table.make, ("CSV", "Parquet"), "", table.name, f"{key}-{table.name}")
        st.caption("To cite")
        st.code(bibtex(*rules), language="bibtex", wrap_lines=True)


def _table_buttons(make: Callable[[], pd.DataFrame], labels: tuple[str, str], rows: str, name: str, key: str) -> None:
    csv, parquet = labels
    _button(csv, "csv", lambda: csv_table(make()), f"For a spreadsheet. {rows}", name, key)
    _button(parquet, "parquet", lambda: parquet_table(make()), f"With the columns' types. {rows}", name, key)


def _button(label: str, ending: str, make: Callable[[], bytes | str], says: str, name: str, key: str) -> None:
    """Draw the button that downloads the file that `make` returns, with `says` as its tooltip."""
    file, key = f"{name}.{ending}", f"{key}-{ending}"
    st.download_button(markdown(label), make, file, MIME[ending], on_click="ignore", help=markdown(says), key=key)


MIME = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "html": "text/html"}
MIME |= {"jsonl": "application/jsonl"}


def offer(run: Run, dial: float | None, gamma: int | None, overlay: str) -> None:
    """Draw Explore's popover. All files are of the run at its current setting."""
    with st.popover("Share"):
        rule, at = rule_named(run.settings.rule), shown(run, dial, gamma)[1]
        parts = [] if rule.dial is None or at is None else [exact_setting(rule.dial.symbol, at)]
        parts.append(run.settings.draft_of(checked_gamma(run, gamma)))
        st.caption(markdown(f"All of {', '.join(parts)}, as shown."))
        name = file_name(run, dial, gamma)
        whole = "Dial, text, inspector and figures; opens anywhere, without a network. Takes some seconds to make."
        report = partial(report_html, run, dial=dial, gamma=gamma, overlay=overlay)
        _button("Report, one HTML file", "html", report, whole, name, "share")
        rows = "One row per drafted position, correction and bonus, at the present dial value."
        labels = ("Table of tokens, CSV", "Table of tokens, Parquet")
        _table_buttons(partial(token_table, run, dial, gamma), labels, rows, name, "share")
        records = partial(acceptance_record, run, dial, gamma, name)
        about = "Accepted and drafted tokens of each round, as in AIPerf's profile_export.jsonl."
        _button("Acceptance record, AIPerf's JSON", "jsonl", records, about, name, "share")
        how = "The button appears over a figure under the pointer."
        theme.choice("A figure's camera button saves", FORMATS, FORMAT, help=how)
        with st.expander("To cite"):
            st.code(bibtex(run.settings.rule), language="bibtex", wrap_lines=True)


def token_table(run: Run, dial: float | None, gamma: int | None) -> pd.DataFrame:
    """Return `Run.to_frame` at a setting as in `exploration.shown`, with columns for the setting and its basis."""
    run_at, dial_at = shown(run, dial, gamma)
    frame = replace(run_at, rounds=judged_rounds(run_at, dial_at)).to_frame()
    frame.insert(0, "dial", math.nan if dial_at is None else dial_at)
    frame.insert(1, "gamma", checked_gamma(run, gamma))
    frame.insert(2, "basis", basis(run_at.trace, run_at.trace.settled(dial_at)).value)
    return frame


def acceptance_record(run: Run, dial: float | None, gamma: int | None, name: str) -> str:
    """Return the run's acceptance at a setting as a line of AIPerf's; see `token_table`."""
    rounds = list(judged_rounds(*shown(run, dial, gamma)))
    count = sum(len(each.token_ids) for each in rounds)
    return acceptance_records([AcceptanceCounts.of_rounds(name, rounds, checked_gamma(run, gamma), count)])
