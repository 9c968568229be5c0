"""A run in a notebook: its report in a frame of its own. Knows HTML; knows no notebook."""

from __future__ import annotations

from html import escape

from mars_viz.report.page import report_html
from mars_viz.run import Run

HEIGHT = 1250
"""Pixels of the frame."""


def framed(run: Run) -> str:
    """The report as an iframe that can do nothing to the notebook around it; figures for the map's segments only."""
    html = escape(report_html(run, most_steps=0), quote=True)
    return (
        f'<iframe srcdoc="{html}" sandbox="allow-scripts allow-downloads" title="MARS Viz" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )
