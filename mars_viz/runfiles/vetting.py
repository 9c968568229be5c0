"""What a process does that reads an upload first: it tries, with little memory, and says how that ended.

Knows processes; what is tried is an argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from mars_viz.errors import BadInput

MAX_MEMORY = 4 << 30
"""Bytes of address space, where the system can limit it."""


def vetted(check: Callable[[bytes], object]) -> int:
    """Try this on the bytes of standard input: 0 where it succeeds, 2 with a sentence where it raises BadInput."""
    _limit_memory()
    try:
        check(sys.stdin.buffer.read())
    except BadInput as error:
        sys.stderr.buffer.write(str(error).encode())
        return BadInput.exit_code
    return 0


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
