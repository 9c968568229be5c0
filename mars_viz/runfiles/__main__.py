"""A process that reads the zip of a run from standard input and ends: 0 where it is a run, 2 with a sentence if not.

`zips` sends uploads here first, because the Parquet library can abort the whole process, or ask for all its memory, on
a table made to do so. It can do that here.
"""

from __future__ import annotations

import sys

from mars_viz.runfiles.codec import decode, room
from mars_viz.runfiles.sandbox_check import vetted
from mars_viz.runfiles.zips import RUN, unpacked

if __name__ == "__main__":
    sys.exit(vetted(RUN.noun, unpacked, room, decode))
