"""Sandbox process: read the zip of a run from standard input; exit with 0 if it is valid, otherwise with 2 and a
sentence.

`zips` checks uploads here first, because a malicious table can make the Parquet library abort the process or allocate
all its memory.
"""

from __future__ import annotations

import sys

from mars_viz.runfiles.codec import decode, room
from mars_viz.runfiles.sandbox_check import vetted
from mars_viz.runfiles.zips import RUN, unpacked

if __name__ == "__main__":
    sys.exit(vetted(RUN.noun, unpacked, room, decode))
