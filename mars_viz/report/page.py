"""Build the self-contained HTML report of a run, with the explorer and the figures of the app.

Text from models is sent compressed and inserted as text nodes; text in the HTML is escaped. A content security policy
allows only the embedded scripts, identified by their digests, and no network access.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from html import escape

from mars_viz import __version__
from mars_viz.components.explorer.payload import run_payload
from mars_viz.escapes import html
from mars_viz.report.citations import bibtex
from mars_viz.report.detail import Detail, detailed, levels
from mars_viz.report.facts import heading, run_facts
from mars_viz.report.prerendered_figures import MOST_STEPS, prerendered_figures
from mars_viz.report.scripts import PLOTLY, run_view_script, text_of
from mars_viz.report.sending import in_base64, sent
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import checked_gamma
from mars_viz.words import exactly

MAX_BYTES = 3_000_000  # largest report; above it, texts other than the recorded one have less evidence
MARK = '<meta name="generator" content="MARS Viz'  # marks a file as a report


def report_html(
    run: Run,
    *,
    dial: float | None = None,
    gamma: int | None = None,
    overlay: str = "outcome",
    most_steps: int = MOST_STEPS,
) -> str:
    """Return the run as HTML that opens from disk without a network.

    It starts at `dial` with the texts of block length `gamma`; None is the run's own value. Figures are drawn for each
    segment of the map and for `most_steps` further dial values. Raises BadInput for a dial value out of range, and for
    a block length that the run's map does not contain.
    """
    gamma = checked_gamma(run, gamma)
    at = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    where = {
        "position": {"dial": at, "overlay": overlay, "selected": None},
        "name": {"stem": file_stem(run), "gamma": _length(run, gamma)},
    }
    payload = run_payload(run, gamma)
    drawn = sent(prerendered_figures(run, gamma, payload["rows"], most_steps))

    for detail in levels(payload):
        shown = sent({**where, "payload": detailed(payload, detail)})
        page = "".join(_page(run, gamma, detail, shown, drawn))
        if len(page.encode()) <= MAX_BYTES:
            break
    return page


def file_name(run: Run, dial: float | None = None, gamma: int | None = None) -> str:
    """Return a name for files of a run at a setting: letters, digits and hyphens.

    It contains the exact dial value, and the draft length unless it is the run's own. None is the run's own value.

    >>> file_name(run, 0.9853, 4)  # of 'A story, MARS at θ = 0.9, greedy'
    'a-story-mars-greedy-at-0-9853-gamma-4'
    """
    dial = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    at = "" if dial is None else "-at-" + exactly(dial).replace("-", "minus-").replace(".", "-")
    return f"{file_stem(run)}{at}{_length(run, gamma)}"


def file_stem(run: Run) -> str:
    """Return a file name from the title without the recorded setting, or from the prompt."""
    dial = rule_named(run.settings.rule).dial
    title = re.sub(rf"\s(at )?{re.escape(dial.symbol)} = [\d.]*\d", "", run.title) if dial else run.title
    words = "".join(char if char.isascii() and char.isalnum() else " " for char in (title or run.prompt).lower())
    return "-".join(words.split()[:8])[:60] or "run"


def _length(run: Run, gamma: int | None) -> str:
    return "" if gamma in (None, run.settings.gamma) else f"-gamma-{gamma}"


def _page(run: Run, gamma: int, detail: Detail, shown: str, drawn: str) -> Iterator[str]:
    title = html(heading(run))
    scripts = " ".join(map(_digest, (_opening(), _code(), gzip.decompress(_plotly()).decode())))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    yield f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{MARK} {html(__version__)}">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{title} · MARS Viz</title>\n<style>{text_of('report.css')}</style>\n"
    yield "</head>\n<body>\n"
    yield f"<header><h1><bdi>{title}</bdi></h1>\n{run_facts(run, gamma)}</header>\n"
    yield '<main>\n<p class="note" id="failed" role="alert" hidden></p>\n'
    yield '<noscript><p class="note">This report draws itself: allow scripts for this file to see it.</p></noscript>\n'
    yield '<p class="quiet" id="waiting">Unpacking the run …</p>\n<div id="explorer"></div>\n'
    yield f'<p class="quiet">{html(detail.words)}</p>\n' if detail.words else ""
    yield '<h2>Figures</h2>\n<p class="quiet" id="basis"></p>\n<div id="figures"></div>\n'
    yield '<section id="maps" hidden><h2>All settings by <span id="quantities"></span></h2>'
    yield '<div class="figure" id="heat_map"></div></section>\n'
    yield f"<h2>To cite</h2>\n<pre>{html(bibtex(run.settings.rule))}</pre>\n</main>\n"
    yield f"<footer>Made by MARS Viz {html(__version__)}. Figures follow the dial.</footer>\n"
    for name, data in (("run", shown), ("drawn", drawn), ("plotly", in_base64(_plotly()))):
        yield f'<script type="application/octet-stream" id="{name}">{data}</script>\n'
    yield f'<script>{_opening()}</script>\n<script type="module">{_code()}</script>\n</body>\n</html>\n'


def _digest(code: str) -> str:
    return f"'sha256-{in_base64(sha256(code.encode()).digest())}'"


def _opening() -> str:
    """Return the script that reports if the page cannot be shown."""
    return text_of("opening.js")


@cache
def _code() -> str:
    return "\n".join([run_view_script(), text_of("host.js")])


@cache
def _plotly() -> bytes:
    return PLOTLY.read_bytes()


HEIGHT = 1250
"""Pixels of the notebook's iframe."""


def framed(run: Run) -> str:
    """Return the report as a sandboxed iframe for notebooks, with figures for the map's segments only."""
    html = escape(report_html(run, most_steps=0), quote=True)
    return (
        f'<iframe srcdoc="{html}" sandbox="allow-scripts allow-downloads" title="MARS Viz" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )
