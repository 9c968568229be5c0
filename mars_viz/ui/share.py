"""What a reader can take away from Explore: a report, tables, pictures, and what to cite.

Knows Streamlit and what makes each; everything is made when its button is pressed, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from mars_viz.figures.token_strip import token_strip
from mars_viz.report import bibtex, file_name, report_html
from mars_viz.report.tables import csv_table, parquet_table
from mars_viz.run import Run
from mars_viz.ui.charts import FORMAT, FORMATS


@dataclass(frozen=True, slots=True)
class _Download:
    label: str
    ending: str
    mime: str
    make: Callable[[], bytes | str]
    says: str


def offer(run: Run, dial: float | None, gamma: int | None, overlay: str) -> None:
    """The popover; reports and pictures show the run as it is looked at."""
    name = file_name(run)
    with st.popover("Share", help="Take this run away: a report, tables, pictures, what to cite"):
        for one in _downloads(run, dial, gamma, overlay):
            file = f"{name}.{one.ending}"
            st.download_button(
                one.label, one.make, file, one.mime, on_click="ignore", help=one.says, key=f"share-{one.ending}"
            )
        st.segmented_control(
            "A figure's camera button saves",
            FORMATS,
            default=FORMATS[0],
            key=FORMAT,
            required=True,
            help="The button appears over a figure under the pointer.",
        )
        st.caption("To cite")
        st.code(bibtex(run.settings.rule), language="bibtex", wrap_lines=True)


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
            lambda: csv_table(run),
            "One row a drafted position and one a correction or bonus, as recorded.",
        ),
        _Download(
            "Table of tokens, Parquet",
            "parquet",
            "application/vnd.apache.parquet",
            lambda: parquet_table(run),
            "The same table with the types of its columns.",
        ),
    )
