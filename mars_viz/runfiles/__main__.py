"""A process that reads the zip of a run from standard input and ends: 0 where it is a run, 2 with a sentence if not.

`zips` sends uploads here first, because the Parquet library can abort the whole process, or ask for all its memory, on
a table made to do so. It can do that here.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from mars_viz.errors import BadInput
from mars_viz.runfiles.contents import decode
from mars_viz.runfiles.zips import unpacked

MAX_MEMORY = 4 << 30
"""Bytes of address space, where the system can limit it."""


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def _main() -> int:
    _limit_memory()
    try:
        decode(unpacked(sys.stdin.buffer.read()))
    except BadInput as error:
        sys.stderr.buffer.write(str(error).encode())
        return BadInput.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
