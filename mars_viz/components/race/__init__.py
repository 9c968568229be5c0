"""Lanes of tokens in the browser: a recorded race that is replayed by its clock, and a decode that grows.

Knows races, runs and Streamlit's components; what is sent is made by `payload`, what is shown by the JavaScript that
`script` joins. Nothing comes back: where a replay stands is the browser's to know.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from mars_viz.components.race.payload import Payload, live_payload, race_payload, racing_payload, settings_words
from mars_viz.components.race.script import script, style
from mars_viz.race import Race
from mars_viz.race.making import Texts
from mars_viz.run import Run, Settings

__all__ = ["excerpt", "growing", "racing", "replay"]


def replay(race: Race, *, key: str) -> None:
    """Show a race as it ended, to be played, slowed and stopped by the reader."""
    _mount(race_payload(race), key)


def growing(run: Run | None, prompt: str, *, job: str, key: str) -> None:
    """Show the rounds so far; call it again, with the same `job`, when there are more."""
    _mount(live_payload(run, prompt, job), key)


def racing(texts: Texts, prompt: str, settings: Settings, *, job: str, key: str) -> None:
    """Show the lanes of a race that is being run, as far as they go; call it again as `growing`."""
    _mount(racing_payload(texts, prompt, settings_words(settings), job), key)


def excerpt(run: Run, *, key: str) -> None:
    """Show the rounds of a run, all of them at once, in as little room as they need."""
    _mount(live_payload(run, run.prompt, key) | {"close": True}, key)


def _mount(payload: Payload, key: str) -> None:
    """In a list, because Streamlit looks for tables among the values of a dict, and imports pandas to know them."""
    _component()(key=key, data=[payload])


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_race", js=script(), css=style())
