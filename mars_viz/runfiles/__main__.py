"""Sandbox process: read an upload from standard input with limited memory; exit with 0 if it is valid, otherwise with 2
and a sentence.

`uploaded` checks zips here first, because a malicious table can make the Parquet library abort the process or
allocate all its memory.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.compute  # noqa: F401  imported before the memory is limited

from mars_viz.errors import BadInput
from mars_viz.runfiles import unpacked
from mars_viz.runfiles.codec import decode

SMALL = 160 << 20  # memory in bytes allowed for any upload; a run of 100,000 tokens takes about 130 MiB
GROWTH = 5  # memory allowed per byte of a larger upload; tables of measured logits and Python objects take up to 3
_BESIDE = 128 << 20  # bytes for reading, in addition to twice the size of the result
_ANY = 4 << 30  # address space in bytes to assume if the system does not report it


def main() -> int:
    """Decode the bytes of standard input; return 0 on success, and 2 with a sentence on BadInput."""
    data = sys.stdin.buffer.read()
    try:
        files = unpacked(data)
        _limit_memory(2 * max(SMALL, GROWTH * len(data)) + _BESIDE)
        decode(files)
    except BadInput as error:
        sys.stderr.buffer.write(str(error).encode())
        return BadInput.exit_code
    except MemoryError:
        sys.stderr.buffer.write(b"it unpacks to far more than a run. Choose the zip of a single run.")
        return BadInput.exit_code
    return 0


def _limit_memory(more: int) -> None:
    """Limit the process to so many bytes more than its current memory, if the system supports it."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        try:
            space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        except OSError:
            space = _ANY
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = space + more if most == resource.RLIM_INFINITY else min(space + more, most)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


if __name__ == "__main__":
    sys.exit(main())
