"""Lanes of tokens in the browser: a recorded race that is replayed by its clock, and a decode that grows.

Knows races and runs; what is sent is made by `payload`. Nothing comes back: where a replay stands is the browser's to
know.
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
    """Show a race as it ended, to be played, slowed and stopped by the reader; with `play` it plays once by itself
    unless the browser asks for reduced motion."""
    mount(ELEMENT, [race_payload(race) | {"play": play}], key=key)


def growing(run: Run | None, prompt: str, *, job: str, key: str) -> None:
    """Show the rounds so far; call it again, with the same `job`, when there are more."""
    mount(ELEMENT, [live_payload(run, prompt, job)], key=key)


def racing(texts: RaceTexts, prompt: str, settings: Settings, *, job: str, key: str) -> None:
    """Show the lanes of a race that is being run, as far as they go; call it again as `growing`."""
    mount(ELEMENT, [racing_payload(texts, prompt, settings, job)], key=key)
