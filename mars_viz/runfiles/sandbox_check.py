"""Decode an upload in a process of its own with limited memory, and report the result as exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.compute  # noqa: F401  imported before the memory is limited

from mars_viz.errors import BadInput, RunFileError

SMALL = 160 << 20  # memory in bytes allowed for any upload; a run of 100,000 tokens takes about 130 MiB
GROWTH = 5  # memory allowed per byte of a larger upload; tables of measured logits and Python objects take up to 3
_BESIDE = 128 << 20  # bytes for reading, in addition to twice the size of the result
_ANY = 4 << 30  # address space in bytes to assume if the system does not report it

Files = Mapping[str, bytes]


def vetted(
    noun: str, unpacked: Callable[[bytes], Files], room: Callable[[Files], int], decode: Callable[[Files], object]
) -> int:
    """Decode the bytes of standard input; return 0 on success, and 2 with a sentence on BadInput.

    `room` estimates the memory from the files' own metadata. Files that need too much are not decoded.
    """
    data = sys.stdin.buffer.read()
    try:
        files = unpacked(data)
        _limit_memory(0)
        needed = room(files)
        if needed > max(SMALL, GROWTH * len(data)):
            raise RunFileError(f"it unpacks to far more than a {noun}. Choose the zip of a single {noun}.")
        _limit_memory(needed)
        decode(files)
    except BadInput as error:
        sys.stderr.buffer.write(str(error).encode())
        return BadInput.exit_code
    except MemoryError:
        sys.stderr.buffer.write(f"it unpacks to far more than it says. Choose the zip of a single {noun}.".encode())
        return BadInput.exit_code
    return 0


def _limit_memory(taken: int) -> None:
    """Limit the process to its current memory plus twice the estimate, if the system supports it."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        try:
            space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        except OSError:
            space = _ANY
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        needed = space + 2 * taken + _BESIDE
        limit = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
