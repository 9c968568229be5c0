"""A data set in parts: a file for each prompt, put together in batches. Knows names and bytes, not what they say.

A file gets its name in one step, and what a batch holds is removed only once the batch is there. So whatever is killed,
every prompt is there at least once.
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

BATCH = 64
"""Prompts in a file that holds more than one; part of the format."""
DAMAGED = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError)
"""What pyarrow raises on damaged files."""
_NAME = re.compile(r"(prompt|batch)-(\d{6})\.parquet")


@dataclass(frozen=True, slots=True)
class Shards:
    """The files of a data set."""

    batches: frozenset[int]
    """Those that hold several prompts, by number."""
    singles: frozenset[int]
    """Prompts with a file of their own, by place in the set."""

    @property
    def names(self) -> list[str]:
        """The files that hold the prompts, in order; a prompt beside its batch counts once."""
        alone = sorted(each for each in self.singles if each // BATCH not in self.batches)
        return [batch_file(batch) for batch in sorted(self.batches)] + [prompt_file(one) for one in alone]

    def holding(self, index: int) -> str | None:
        """The file that holds a prompt, its own before that of its batch, if any does."""
        if index in self.singles:
            return prompt_file(index)
        return batch_file(index // BATCH) if index // BATCH in self.batches else None


def parts_of(folder: Path) -> Shards:
    """What is there. Raises BadInput where it cannot be listed."""
    try:
        names = [_NAME.fullmatch(path.name) for path in to_read(folder).iterdir()]
    except OSError as error:
        raise RunFileError(f"{folder} cannot be listed ({error.strerror}). Choose a sweep's folder.") from error
    kinds: dict[str, set[int]] = {"batch": set(), "prompt": set()}
    for found in filter(None, names):
        kinds[found[1]].add(int(found[2]))
    return Shards(frozenset(kinds["batch"]), frozenset(kinds["prompt"]))


def prompt_file(index: int) -> str:
    """The name of a prompt's own file."""
    return f"prompt-{index:06}.parquet"


def batch_file(batch: int) -> str:
    """The name of a batch's file."""
    return f"batch-{batch:06}.parquet"


def members(batch: int) -> range:
    """The prompts of a batch."""
    return range(batch * BATCH, (batch + 1) * BATCH)


def remove_batched(folder: Path, batches: Iterable[int]) -> None:
    """Remove prompts' own files that lie in one of these batches. Raises OSError."""
    held = frozenset(batches)
    for single in parts_of(folder).singles:
        if single // BATCH in held:
            (folder / prompt_file(single)).unlink(missing_ok=True)


def write(path: Path, table: pa.Table, **options: object) -> None:
    """Write the Parquet file of a table, whole or not at all, and wait until the disk has it. What a kill left of it is
    the sweep's to remove, all at once when it begins. Raises OSError."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True, **options)
    write_file(path, bytes(sink.getvalue()), synced=True, looks=False)
