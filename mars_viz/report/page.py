"""A run as one HTML file that needs nothing else: the explorer and the figures of the app, and what made the run.

Knows the parts and how they are put together. All that a model wrote travels compressed and becomes text nodes in the
page; what stands in the HTML itself is escaped. A content security policy lets the page run the scripts that were put
into it here, known by their digests, and load nothing at all.
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

MAX_BYTES = 3_000_000
"""Of a report; where a run says more, the texts beside the recorded one are told in less detail."""
MARK = '<meta name="generator" content="MARS Viz'
"""By which a file is known to be a report."""


def report_html(
    run: Run,
    *,
    dial: float | None = None,
    gamma: int | None = None,
    overlay: str = "outcome",
    most_steps: int = MOST_STEPS,
) -> str:
    """The run as HTML that opens from disk without a network.

    It begins at `dial` and shows the texts of block length `gamma`; None takes the run's own. `most_steps` figures are
    drawn for steps of the dial, besides those for every segment of its map. Raises BadInput for a dial value that the
    rule does not have, and for a block length that the run's map does not hold.
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
    """A plain name for files made from a run at a setting: letters, digits and hyphens, with the very dial value and,
    where it is not the run's own, the draft length. None takes the run's own.

    >>> file_name(run, 0.9853, 4)  # of 'A story, MARS at θ = 0.9, greedy'
    'a-story-mars-greedy-at-0-9853-gamma-4'
    """
    dial = rule_named(run.settings.rule).checked_dial(run.settings.dial if dial is None else dial)
    at = "" if dial is None else "-at-" + exactly(dial).replace("-", "minus-").replace(".", "-")
    return f"{file_stem(run)}{at}{_length(run, gamma)}"


def file_stem(run: Run) -> str:
    """Of its title without the recorded setting, or of its prompt."""
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
    """What says so where nothing can be shown."""
    return text_of("opening.js")


@cache
def _code() -> str:
    """The explorer's script and style and the page around it, as one module."""
    return "\n".join([run_view_script(), text_of("host.js")])


@cache
def _plotly() -> bytes:
    """Plotly's script, gzipped."""
    return PLOTLY.read_bytes()


HEIGHT = 1250
"""Pixels of the frame."""


def framed(run: Run) -> str:
    """The report as an iframe that can do nothing to the notebook around it; figures for the map's segments only."""
    html = escape(report_html(run, most_steps=0), quote=True)
    return (
        f'<iframe srcdoc="{html}" sandbox="allow-scripts allow-downloads" title="MARS Viz" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )
