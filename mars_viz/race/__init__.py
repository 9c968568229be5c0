"""The race: one prompt decoded by the target alone, strictly and relaxed, one after the other, each by its own clock.

Recorded races are replayed without models; only `making` loads them, when it is asked to.
"""

from mars_viz.race.files import RaceEntry, list_races, load_race, save_race
from mars_viz.race.records import Race, Solo

__all__ = ["Race", "RaceEntry", "Solo", "list_races", "load_race", "save_race"]
