"""What a reader can take away from a page: its tables, what to cite, and from Explore a report and pictures as well.

Knows Streamlit and what makes each; everything is made when its button is pressed, not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import streamlit as st

from mars_viz.analysis.metrics import basis, judged_rounds
from mars_viz.escapes import markdown
from mars_viz.figures.svg import token_strip
from mars_viz.report import bibtex, file_name, report_html
from mars_viz.report.files import csv_table, parquet_table
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import checked_gamma, shown
from mars_viz.ui.theme import FORMAT, FORMATS
from mars_viz.words import exact_setting


@dataclass(frozen=True, slots=True)
class _Download:
    label: str
    ending: str
    mime: str
    make: Callable[[], bytes | str]
    says: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a page shows."""

    title: str
    """For people: 'Every rule on this run'."""
    name: str
    """The file's, without ending: letters, digits and hyphens."""
    make: Callable[[], pd.DataFrame]
    """The numbers themselves; called when a button is pressed."""


def tables(shown: Sequence[Table], rules: Iterable[str], key: str) -> None:
    """The popover of a page that shows tables: each as CSV and Parquet, and BibTeX for the rules in view.

    `key` tells the popovers of a page apart.
    """
    with st.popover("Share", help="Take these tables away, and what to cite"):
        for table in shown:
            st.caption(markdown(table.title))
            with st.container(horizontal=True):
                for one in _formats(table):
                    _button(one, table.name, f"{key}-{table.name}")
        _to_cite(rules)


def _formats(table: Table) -> tuple[_Download, ...]:
    return (
        _Download("CSV", "csv", "text/csv", partial(_made, csv_table, table), "For a spreadsheet."),
        _Download("Parquet", "parquet", PARQUET, partial(_made, parquet_table, table), "With the columns' types."),
    )


def _made(write: Callable[[pd.DataFrame], bytes], table: Table) -> bytes:
    return write(table.make())


def _button(one: _Download, name: str, key: str) -> None:
    file = f"{name}.{one.ending}"
    st.download_button(
        markdown(one.label),
        one.make,
        file,
        one.mime,
        on_click="ignore",
        help=markdown(one.says),
        key=f"{key}-{one.ending}",
    )


def _to_cite(rules: Iterable[str]) -> None:
    st.caption("To cite")
    st.code(bibtex(*rules), language="bibtex", wrap_lines=True)


PARQUET = "application/vnd.apache.parquet"


def offer(run: Run, dial: float | None, gamma: int | None, overlay: str) -> None:
    """The popover; all of it is of the run as it is looked at, and says so."""
    name = file_name(run, dial, gamma)
    with st.popover("Share"):
        st.caption(markdown(_setting(run, dial, gamma)))
        for one in _downloads(run, dial, gamma, overlay):
            _button(one, name, "share")
        st.segmented_control(
            "A figure's camera button saves",
            FORMATS,
            default=FORMATS[0],
            key=FORMAT,
            required=True,
            help="The button appears over a figure under the pointer.",
        )
        with st.expander("To cite"):
            st.code(bibtex(run.settings.rule), language="bibtex", wrap_lines=True)


def token_table(run: Run, dial: float | None, gamma: int | None) -> pd.DataFrame:
    """`Run.to_frame` at a setting, which its first columns tell, with what the rows stand on; None takes the run's own.

    Where the run's map does not hold the setting, its recorded blocks are judged at it.
    """
    gamma = checked_gamma(run, gamma)
    made, at = shown(
        run, rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial), gamma
    )
    frame = replace(made, rounds=judged_rounds(made, at)).to_frame()
    frame.insert(0, "dial", math.nan if at is None else at)
    frame.insert(1, "gamma", gamma)
    frame.insert(2, "basis", basis(made.trace, made.trace.settled(at)).value)
    return frame


def _setting(run: Run, dial: float | None, gamma: int | None) -> str:
    """Which setting the files are of."""
    rule = rule_named(run.settings.rule)
    at = rule.checked_dial(run.settings.dial if dial is None else dial)
    parts = [] if rule.dial is None or at is None else [exact_setting(rule.dial.symbol, at)]
    return f"All of {', '.join([*parts, run.settings.draft_of(checked_gamma(run, gamma))])}, as shown."


def _downloads(run: Run, dial: float | None, gamma: int | None, overlay: str) -> tuple[_Download, ...]:
    return (
        _Download(
            "Report, one HTML file",
            "html",
            "text/html",
            lambda: report_html(run, dial=dial, gamma=gamma, overlay=overlay),
            "Dial, text, inspector and figures; opens anywhere, without a network. Takes some seconds to make.",
        ),
        _Download(
            "The text with its outcomes, SVG",
            "svg",
            "image/svg+xml",
            lambda: token_strip(run, dial, gamma),
            "Every token as the dial stands, for a paper.",
        ),
        _Download(
            "Table of tokens, CSV",
            "csv",
            "text/csv",
            lambda: csv_table(token_table(run, dial, gamma)),
            "One row a drafted position and one a correction or bonus, as the dial stands.",
        ),
        _Download(
            "Table of tokens, Parquet",
            "parquet",
            PARQUET,
            lambda: parquet_table(token_table(run, dial, gamma)),
            "The same table with the types of its columns.",
        ),
    )
