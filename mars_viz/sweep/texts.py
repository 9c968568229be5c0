"""The texts of a sweep by token: the Parquet data set `texts/` in its folder.

One line per prompt: its text on every stretch of the dial, in the order of the results' lines, and its tokens' pieces.
Texts are written before a prompt's results, so every finished prompt has them. Figures do not need them: older sweeps
lack them, and opening a sweep does not read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.analysis.alignment import Written
from mars_viz.errors import RunFileError
from mars_viz.exploration import DialMap
from mars_viz.run import Piece
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
        """Return the error for a damaged file."""
        return RunFileError(f"{self.folder / name} is damaged or is not of this sweep{self.remedy}")

    def _put(self, name: str, table: pa.Table) -> None:
        """Write a table as a file. The sweep removes leftovers of interruptions when it starts."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True, **self.options)
        write_file(self.folder / name, bytes(sink.getvalue()), synced=True)


FOLDER = "texts"  # folder name in a sweep's folder


_LISTS: dict[str, pa.DataType] = {
    "lengths": pa.int32(),
    "token_ids": pa.int32(),
    "piece_ids": pa.int32(),
    "pieces": pa.binary(),
    "special": pa.bool_(),
}
"""Tokens of each text; all texts concatenated; and for every token its id, bytes and whether it is a control token."""
_SCHEMA = pa.schema(
    [pa.field("prompt", pa.int32(), nullable=False)]  # its index in the set
    + [
        pa.field(name, pa.list_(pa.field("element", kind, nullable=False)), nullable=False)
        for name, kind in _LISTS.items()
    ]
)
_PLAIN = {"use_dictionary": False, "write_statistics": False}
"""Equal stretches of texts are equal bytes, which compress well."""
_REMEDY = "; its figures do not need it. Take a fresh copy, or sweep again into a new folder to read the texts."


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """S texts of one prompt, one for each stretch of the dial."""

    lengths: np.ndarray  # int32 [S]; tokens of each
    token_ids: np.ndarray  # int32 [sum of lengths]; the concatenated texts
    pieces: Mapping[int, Piece]  # pieces of every token that occurs, by rising id

    def text(self, stretch: int) -> Written:
        """Return the text of a stretch, without its rounds."""
        end = int(self.lengths[: stretch + 1].sum(dtype=np.int64))
        tokens = tuple(self.token_ids[end - int(self.lengths[stretch]) : end].tolist())
        return Written(tokens, tuple(self.pieces[token] for token in tokens), ())

    def line(self, index: int) -> dict[str, Any]:
        """Return the line of the data set for the prompt with this index."""
        pieces = self.pieces.values()
        named = {"pieces": [each.data for each in pieces], "special": [each.special for each in pieces]}
        contents = {"lengths": self.lengths, "token_ids": self.token_ids, "piece_ids": list(self.pieces)}
        return {"prompt": [index]} | {name: [values] for name, values in (contents | named).items()}


def texts_of(made: DialMap) -> PromptTexts:
    """Return the texts of a prompt's dial map."""
    texts = [segment.token_ids for segment in made.segments]
    token_ids = np.array([token for text in texts for token in text], np.int32)
    lengths = np.array([len(text) for text in texts], np.int32)
    return PromptTexts(lengths, token_ids, {token: made.frame.pieces[token] for token in np.unique(token_ids).tolist()})


def data_set(sweep: Path) -> DataSet:
    """Return the data set of a sweep's texts."""
    return DataSet(sweep / FOLDER, _SCHEMA, _REMEDY, _PLAIN)


def tokens_of(sweep: Path, stretches: Mapping[int, int]) -> list[tuple[int, ...]] | None:
    """Return the tokens of one text of each prompt, chosen by index and stretch; None if the sweep stores none. Raises
    BadInput if they are damaged."""
    texts, tokens = data_set(sweep), dict[int, tuple[int, ...]]()
    for name in texts.files.names if texts.folder.is_dir() else ():
        table = texts.read(name, ["prompt", "lengths", "token_ids"])
        columns = (table.column(each).combine_chunks() for each in table.column_names)
        for index, lengths, token_ids in zip(*columns, strict=True):
            if (stretch := stretches.get(index.as_py())) is not None:
                ends = np.cumsum([0, *lengths.as_py()])[stretch : stretch + 2]
                tokens[index.as_py()] = tuple(token_ids.values[slice(*ends.tolist())].to_pylist())
    return [tokens[index] for index in stretches] if tokens.keys() >= stretches.keys() else None


def read(sweep: Path, index: int) -> PromptTexts | None:
    """Return the texts of a prompt by index; None if the sweep stores none. Raises BadInput if they are damaged."""
    texts = data_set(sweep)
    name = texts.files.holding(index) if texts.folder.is_dir() else None
    if name is None:
        return None
    lines = {line["prompt"]: line for line in texts.read(name).to_pylist()}
    if (line := lines.get(index)) is None:
        return None
    lengths, token_ids = (np.array(line[name], np.int32) for name in ("lengths", "token_ids"))
    named = zip(line["piece_ids"], line["pieces"], line["special"], strict=False)
    pieces = {token: Piece(data, special) for token, data, special in named}
    fits = (lengths >= 0).all() and lengths.sum(dtype=np.int64) == len(token_ids)
    if not fits or not pieces.keys() >= set(np.unique(token_ids).tolist()):
        raise texts.damaged(name)
    return PromptTexts(lengths, token_ids, pieces)
