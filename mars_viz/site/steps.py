"""The stepper on a page of a site, and its data."""

from __future__ import annotations

from mars_viz.components.stepper import playback, playback_payload
from mars_viz.escapes import Html, html
from mars_viz.report.sending import sent
from mars_viz.run import Run
from mars_viz.site.shell import SiteFile, data_file

STEPPER = "assets/stepper"  # script of pages with the stepper


def steps_file(name: str, run: Run) -> SiteFile:
    """Return the playback of a run as a data file."""
    return data_file(f"{name}.steps", sent(playback_payload(playback(run))))


def steps_place(name: str, own: bool = True) -> Html:
    """Return the collapsed stepper, for the run itself or for its strict text."""
    words = "Watch this run step by step" if own else "Watch the strict text step by step"
    return Html(
        f'<details id="steps"><summary>{html(words)}</summary>'
        f'<div id="stepper" aria-busy="true" data-name="{html(name)}">'
        '<p class="quiet">Loading the steps …</p></div></details>\n'
    )
