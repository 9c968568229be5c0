"""`mars-viz report`: a recorded run as one HTML file that opens anywhere."""

from __future__ import annotations

import argparse

from mars_viz.figures.words import number
from mars_viz.report import check_place, report_html, write_report
from mars_viz.runfiles import load_run
from mars_viz.terminal import say


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, the place, and where the dials stand."""
    parser.add_argument("path", metavar="RUN", help="folder of a run")
    parser.add_argument("-o", "--out", metavar="FILE", default="report.html", help="the report (default: %(default)s)")
    parser.add_argument("--dial", type=float, help="dial value that it opens at (default: the run's)")
    parser.add_argument("--gamma", type=int, help="draft length that it shows (default: the run's)")
    parser.add_argument("--force", action="store_true", help="replace the file even if it is no report")


def run(options: argparse.Namespace) -> None:
    """Refuse what can be refused before the work; then read, write and tell."""
    check_place(options.out, force=options.force)
    html = report_html(load_run(options.path), dial=options.dial, gamma=options.gamma)
    path = write_report(html, options.out, force=options.force)
    say(f"Wrote {path}, {number(len(html.encode()) / 1e3)} kB. It opens in any browser, without a network.")
