"""Sandbox process for the zip of a race; see `runfiles.__main__`."""

from __future__ import annotations

import sys
from functools import partial

from mars_viz.race.files import RACE, decode_race, room
from mars_viz.runfiles.sandbox_check import vetted
from mars_viz.runfiles.zips import unpacked

if __name__ == "__main__":
    sys.exit(vetted(RACE.noun, partial(unpacked, layout=RACE), room, decode_race))
