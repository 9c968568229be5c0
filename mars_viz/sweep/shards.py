"""A data set in parts: a file for each prompt, merged in batches. Handles names and bytes only.

A file is renamed when complete, and prompts' files are removed only when their batch exists. After an interruption
every prompt exists at least once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.errors import RunFileError
from mars_viz.writer import to_read, write_file

BATCH = 64  # prompts in a merged file; part of the format
DAMAGED = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError)
"""Errors raised by pyarrow for damaged files."""
_NAME = re.compile(r"(prompt|batch)-(\d{6})\.parquet")


@dataclass(frozen=True, slots=True)
class Shards:
    """The files of a data set."""

    batches: frozenset[int]  # numbers of merged files
    singles: frozenset[int]  # indices of prompts with separate files

    @property
    def names(self) -> list[str]:
        """The files of all prompts, in order; a prompt that is also in a batch counts once."""
        alone = sorted(each for each in self.singles if each // BATCH not in self.batches)
        return [batch_file(batch) for batch in sorted(self.batches)] + [prompt_file(one) for one in alone]

    def holding(self, index: int) -> str | None:
        """Return the file of a prompt, its separate one first, if any."""
        if index in self.singles:
            return prompt_file(index)
        return batch_file(index // BATCH) if index // BATCH in self.batches else None


def parts_of(folder: Path) -> Shards:
    """Return the files in a folder. Raises BadInput if it cannot be listed."""
    try:
        names = [_NAME.fullmatch(path.name) for path in to_read(folder).iterdir()]
    except OSError as error:
        raise RunFileError(f"{folder} cannot be listed ({error.strerror}). Choose a sweep's folder.") from error
    kinds: dict[str, set[int]] = {"batch": set(), "prompt": set()}
    for match in filter(None, names):
        kinds[match[1]].add(int(match[2]))
    return Shards(frozenset(kinds["batch"]), frozenset(kinds["prompt"]))


def prompt_file(index: int) -> str:
    """Return the name of a prompt's separate file."""
    return f"prompt-{index:06}.parquet"


def batch_file(batch: int) -> str:
    """Return the name of a batch's file."""
    return f"batch-{batch:06}.parquet"


def members(batch: int) -> range:
    """Return the indices of a batch's prompts."""
    return range(batch * BATCH, (batch + 1) * BATCH)


def remove_batched(folder: Path, batches: Iterable[int]) -> None:
    """Remove separate files of prompts in these batches. Raises OSError."""
    merged = frozenset(batches)
    for single in parts_of(folder).singles:
        if single // BATCH in merged:
            (folder / prompt_file(single)).unlink(missing_ok=True)


def write(path: Path, table: pa.Table, **options: object) -> None:
    """Write a table as a Parquet file, completely or not at all, and wait for the disk. Raises OSError. The sweep
    removes leftovers of interruptions when it starts."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True, **options)
    write_file(path, bytes(sink.getvalue()), synced=True, looks=False)
