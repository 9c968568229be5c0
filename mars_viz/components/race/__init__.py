"""Lanes of tokens in the browser: a recorded race that is replayed by its clock, and a decode that grows.

Knows races, runs and Streamlit's components; what is sent is made by `payload`, what is shown by the JavaScript that
`script` joins. Nothing comes back: where a replay stands is the browser's to know.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from mars_viz.components.race.payload import live_payload, race_payload
from mars_viz.components.race.script import script, style
from mars_viz.race import Race
from mars_viz.run import Run

__all__ = ["growing", "replay"]


def replay(race: Race, *, key: str) -> None:
    """Show a race, to be played, slowed and stopped by the reader."""
    _component()(key=key, data=race_payload(race))


def growing(run: Run | None, prompt: str, *, job: str, key: str) -> None:
    """Show the rounds so far; call it again, with the same `job`, when there are more."""
    _component()(key=key, data=live_payload(run, prompt, job))


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_race", js=script(), css=style())
