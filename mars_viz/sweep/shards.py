"""A Parquet data set in parts: a file for each prompt, of which complete batches are merged.

A file is renamed when complete, and prompts' files are removed only when their batch exists. After an interruption
every prompt exists at least once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.errors import RunFileError
from mars_viz.writer import make_folder, to_read, write_file

BATCH = 64  # prompts in a merged file; part of the format
MAX_BYTES = 1 << 30  # limit of unpacked bytes of a file; far above any sweep
_NAME = re.compile(r"(prompt|batch)-(\d{6})\.parquet")
prompt_file, batch_file = "prompt-{:06}.parquet".format, "batch-{:06}.parquet".format


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


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set in a folder of its own."""

    folder: Path
    schema: pa.Schema
    remedy: str  # ends the message about a damaged file
    options: Mapping[str, Any] = field(default_factory=dict)  # for Parquet

    @property
    def files(self) -> Shards:
        """The present files. Raises BadInput if they cannot be listed."""
        try:
            names = [_NAME.fullmatch(path.name) for path in to_read(self.folder).iterdir()]
        except OSError as error:
            reason = f"{self.folder} cannot be listed ({error.strerror}). Choose a sweep's folder."
            raise RunFileError(reason) from error
        kinds: dict[str, set[int]] = {"batch": set(), "prompt": set()}
        for match in filter(None, names):
            kinds[match[1]].add(int(match[2]))
        return Shards(frozenset(kinds["batch"]), frozenset(kinds["prompt"]))

    def write(self, index: int, lines: Mapping[str, Sequence[Any]]) -> None:
        """Write a prompt's lines, completely or not at all, and wait for the disk. Raises OSError."""
        make_folder(self.folder)
        arrays = [pa.array(lines[column.name], column.type) for column in self.schema]
        self._put(prompt_file(index), pa.Table.from_arrays(arrays, schema=self.schema))

    def merge(self) -> None:
        """Merge complete batches, and remove the separate files of merged prompts. Raises OSError, and BadInput for
        damaged files."""
        files = self.files
        for batch in {single // BATCH for single in files.singles} - files.batches:
            members = range(batch * BATCH, (batch + 1) * BATCH)
            if files.singles.issuperset(members):
                self._put(batch_file(batch), pa.concat_tables([self.read(prompt_file(each)) for each in members]))
        files = self.files
        for single in files.singles:
            if single // BATCH in files.batches:
                (self.folder / prompt_file(single)).unlink(missing_ok=True)

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return these columns (None: all) of a file. Raises BadInput if it is damaged or of another data set."""
        columns = columns or self.schema.names
        texts = [column.name for column in self.schema if column.type == pa.string()]
        words = pa.dictionary(pa.int32(), pa.string())  # few distinct values repeat
        try:
            source = pq.ParquetFile(to_read(self.folder, name), read_dictionary=texts, page_checksum_verification=True)
            groups = map(source.metadata.row_group, range(source.metadata.num_row_groups))
            if sum(group.total_byte_size for group in groups) > MAX_BYTES:
                raise ValueError("more than any prompt has")
            table = source.read(columns=columns, use_threads=False)
            if source.schema_arrow.names != self.schema.names or any(column.null_count for column in table.columns):
                raise ValueError("other columns")
            fields = map(self.schema.field, columns)
            table = table.cast(pa.schema([each.with_type(words) if each.name in texts else each for each in fields]))
            table.validate(full=True)
            return table
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
            raise self.damaged(name) from error

    def damaged(self, name: str) -> RunFileError:
        return RunFileError(f"{self.folder / name} is damaged or is not of this sweep{self.remedy}")

    def _put(self, name: str, table: pa.Table) -> None:
        """Write a table as a file. The sweep removes leftovers of interruptions when it starts."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True, **self.options)
        write_file(self.folder / name, bytes(sink.getvalue()), synced=True)
