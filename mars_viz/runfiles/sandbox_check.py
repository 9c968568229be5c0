"""What a process does that reads an upload first: it tries, with little memory, and says how that ended.

Knows processes; what is tried is an argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.compute  # noqa: F401  which reading would load once the memory is limited

from mars_viz.errors import BadInput, RunFileError

SMALL = 160 << 20
"""Bytes in memory that whatever is uploaded may take; a run of 100,000 tokens takes some 130 MiB."""
GROWTH = 5
"""Bytes that each byte of a larger upload may take: tables of measured logits take up to 3, and objects of Python."""
_BESIDE = 128 << 20
"""Bytes for reading, beside twice what is read."""
_ANY = 4 << 30
"""Bytes of address space where a process cannot say how much it has."""

Files = Mapping[str, bytes]


def vetted(
    noun: str,
    unpacked: Callable[[bytes], Files],
    room: Callable[[Files], int],
    decode: Callable[[Files], object],
) -> int:
    """Try this on the bytes of standard input: 0 where it succeeds, 2 with a sentence where it raises BadInput.

    `room` is what the files say that they take; with more than that they are not read.
    """
    data = sys.stdin.buffer.read()
    try:
        files = unpacked(data)
        _limit_memory(0)
        taken = room(files)
        if taken > max(SMALL, GROWTH * len(data)):
            raise RunFileError(f"it unpacks to far more than a {noun}. Choose the zip of a single {noun}.")
        _limit_memory(taken)
        decode(files)
    except BadInput as error:
        sys.stderr.buffer.write(str(error).encode())
        return BadInput.exit_code
    except MemoryError:
        sys.stderr.buffer.write(f"it unpacks to far more than it says. Choose the zip of a single {noun}.".encode())
        return BadInput.exit_code
    return 0


def _limit_memory(taken: int) -> None:
    """To what this process has by now, and twice what is taken, where the system can limit it."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = _address_space() + 2 * taken + _BESIDE
        limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _address_space() -> int:
    """Bytes that this process has now."""
    import resource

    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return _ANY
