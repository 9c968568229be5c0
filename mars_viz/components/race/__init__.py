"""Lanes of tokens in the browser: a replay of a recorded race, and a growing decode.

`payload` builds the data. The browser reports nothing back.
"""

from __future__ import annotations

from mars_viz.components.mount import Element, mount
from mars_viz.components.race.payload import live_payload, race_payload, racing_payload
from mars_viz.race import Race
from mars_viz.race.making import RaceTexts
from mars_viz.run import Run, Settings

__all__ = ["growing", "racing", "replay"]

SHARED = ("mount", "explorer/elements", "explorer/numbers")
OWN = ("race/listed", "race/clock", "race/track", "race/controls", "race/race")
ELEMENT = Element("mars_viz_race", (*SHARED, *OWN), ("explorer/explorer", "race/race"))


def replay(race: Race, *, key: str, play: bool = False) -> None:
    """Show a finished race with play, speed and stop controls.

    With `play` it plays once automatically, unless the browser asks for reduced motion.
    """
    mount(ELEMENT, [race_payload(race) | {"play": play}], key=key)


def growing(run: Run | None, prompt: str, *, job: str, key: str) -> None:
    """Show the rounds so far; call again with the same `job` when there are more."""
    mount(ELEMENT, [live_payload(run, prompt, job)], key=key)


def racing(texts: RaceTexts, prompt: str, settings: Settings, *, job: str, key: str) -> None:
    """Show the lanes of a running race; call again with the same `job` when there are more."""
    mount(ELEMENT, [racing_payload(texts, prompt, settings, job)], key=key)
