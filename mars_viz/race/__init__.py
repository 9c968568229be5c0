"""Races: one prompt decoded by the target alone, strictly and relaxed, one after the other, with timings.

Recorded races are replayed without models. Only `making` loads them.
"""

from mars_viz.race.files import RaceEntry, list_races, load_race, save_race
from mars_viz.race.records import Race, Solo

__all__ = ["Race", "RaceEntry", "Solo", "list_races", "load_race", "save_race"]
