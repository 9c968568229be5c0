"""A run frame by frame on a page of a site: where the stepper opens, and its data. Knows the stepper's playback."""

from __future__ import annotations

from mars_viz.components.stepper import playback, playback_payload
from mars_viz.escapes import Html, html
from mars_viz.report.sending import sent
from mars_viz.run import Run
from mars_viz.site.shell import SiteFile, data_file

STEPPER = "assets/stepper"
"""The script of a page with such a place."""


def steps_file(name: str, run: Run) -> SiteFile:
    """A run frame by frame, under a name."""
    return data_file(f"{name}.steps", sent(playback_payload(playback(run))))


def steps_place(name: str, own: bool = True) -> Html:
    """Where the stepper opens when it is asked for: on the run itself, or on its strict text."""
    words = "Watch this run step by step" if own else "Watch the strict text step by step"
    return Html(
        f'<details id="steps"><summary>{html(words)}</summary>'
        f'<div id="stepper" aria-busy="true" data-name="{html(name)}">'
        '<p class="quiet">Loading the steps …</p></div></details>\n'
    )
