"""The texts of a sweep, token by token: a Parquet data set, `texts/`, beside the results; no other module touches it.

A file and a line a prompt: its text on every stretch of the dial, in the order of the results' lines, and what its
tokens read. They are written before its results, so whatever is finished has them. No figure needs them: sweeps that
were made before there were texts are read as ever, and opening a sweep does not read them. `pack` puts those of several
prompts into one file, as results are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.analysis.alignment import Written
from mars_viz.dialmap import DialMap
from mars_viz.errors import BadInput, RunFileError
from mars_viz.run import Piece
from mars_viz.sweep import shards
from mars_viz.writer import make_folder, remove_leftovers, to_read

FOLDER = "texts"
"""Its name in a sweep's folder."""
MAX_BYTES = 1 << 30
"""Of what is read at once, unpacked; far above any sweep."""


def _each(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_COLUMNS: dict[str, pa.DataType] = {
    "prompt": pa.int32(),
    "lengths": _each(pa.int32()),
    "token_ids": _each(pa.int32()),
    "piece_ids": _each(pa.int32()),
    "pieces": _each(pa.binary()),
    "special": _each(pa.bool_()),
}
"""Place in the set; tokens of each text; all texts, one after the other; and of every token that occurs its id, its
bytes and whether it is a control token."""
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])
_PLAIN = {"use_dictionary": False, "write_statistics": False}
"""Equal stretches of texts are equal bytes, which pack well."""


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """S texts of one prompt, one for each stretch of the dial."""

    lengths: np.ndarray
    """int32 [S]; tokens of each."""
    token_ids: np.ndarray
    """int32 [sum of lengths]; one text after the other."""
    pieces: Mapping[int, Piece]
    """Of every token that occurs, by rising id."""

    def text(self, stretch: int) -> Written:
        """The text of a stretch, without its rounds."""
        end = int(self.lengths[: stretch + 1].sum(dtype=np.int64))
        tokens = tuple(self.token_ids[end - int(self.lengths[stretch]) : end].tolist())
        return Written(tokens, tuple(self.pieces[token] for token in tokens), ())


def texts_of(made: DialMap) -> PromptTexts:
    """The texts of a prompt's dial map."""
    texts = [segment.token_ids for segment in made.segments]
    token_ids = np.array([token for text in texts for token in text], np.int32)
    lengths = np.array([len(text) for text in texts], np.int32)
    return PromptTexts(lengths, token_ids, {token: made.frame.pieces[token] for token in np.unique(token_ids).tolist()})


def write(sweep: Path, index: int, texts: PromptTexts) -> None:
    """Add those of a prompt, whole or not at all. Raises OSError."""
    folder = sweep / FOLDER
    make_folder(folder)
    line = {
        "prompt": index,
        "lengths": texts.lengths,
        "token_ids": texts.token_ids,
        "piece_ids": list(texts.pieces),
        "pieces": [piece.data for piece in texts.pieces.values()],
        "special": [piece.special for piece in texts.pieces.values()],
    }
    arrays = [pa.array([line[field.name]], field.type) for field in _SCHEMA]
    shards.write(folder / shards.prompt_file(index), pa.Table.from_arrays(arrays, schema=_SCHEMA), **_PLAIN)


def pack(sweep: Path) -> None:
    """Put those of each whole batch of prompts together, which takes a third of the place: for a sweep that is shipped.
    Raises OSError; BadInput where some are damaged."""
    folder = sweep / FOLDER
    singles = shards.parts_of(folder).singles
    for batch in sorted({single // shards.BATCH for single in singles}):
        members = shards.members(batch)
        if not singles.issuperset(members):
            continue
        try:
            tables = [pq.read_table(to_read(folder / shards.prompt_file(each))) for each in members]
            together = pa.concat_tables([table.cast(_SCHEMA) for table in tables])
        except shards.DAMAGED as error:
            raise spoiled(folder) from error
        shards.write(folder / shards.batch_file(batch), together, **_PLAIN)
        shards.remove_batched(folder, [batch])


def tidy(sweep: Path, results: shards.Shards) -> None:
    """Remove what a kill left behind, and what has no results any more, as after damaged ones were taken away: it will
    be written anew. Raises OSError. Only the sweep itself may."""
    folder = sweep / FOLDER
    if not folder.is_dir():
        return
    make_folder(folder)
    remove_leftovers(folder, age=0)
    there = shards.parts_of(folder)
    singles = (single for single in there.singles if results.holding(single) is None)
    for name in [*map(shards.batch_file, there.batches - results.batches), *map(shards.prompt_file, singles)]:
        (folder / name).unlink(missing_ok=True)


def read(sweep: Path, index: int) -> PromptTexts | None:
    """Those of the prompt at this place of the set; None where the sweep kept none of it, as before there were texts.
    Raises BadInput where they are damaged."""
    folder = sweep / FOLDER
    name = shards.parts_of(folder).holding(index) if folder.is_dir() else None
    return None if name is None else _read(folder / name, index)


def _read(path: Path, index: int) -> PromptTexts | None:
    """A prompt's line; None where the file has none of it."""
    try:
        source = pq.ParquetFile(to_read(path), page_checksum_verification=True)
        rows = np.flatnonzero(source.read(columns=["prompt"], use_threads=False).column("prompt").to_numpy() == index)
        if not len(rows):
            return None
        group, row = _whereabouts(source, int(rows[0]))
        if source.metadata.row_group(group).total_byte_size > MAX_BYTES:
            raise ValueError("more than any prompt has")
        table = source.read_row_group(group, use_threads=False).cast(_SCHEMA)
        table.validate(full=True)
        return _texts(table.slice(row, 1).to_pylist()[0])
    except shards.DAMAGED as error:
        raise spoiled(path) from error


def _whereabouts(source: pq.ParquetFile, row: int) -> tuple[int, int]:
    """The row group of a row, and its place in there."""
    group = 0
    while row >= (rows := source.metadata.row_group(group).num_rows):
        group, row = group + 1, row - rows
    return group, row


def _texts(line: Mapping[str, Any]) -> PromptTexts:
    """Raises ValueError, TypeError or KeyError where it is none."""
    lengths, token_ids = (np.array(line[name], np.int32) for name in ("lengths", "token_ids"))
    named = zip(line["piece_ids"], line["pieces"], line["special"], strict=True)
    pieces = {token: Piece(data, special) for token, data, special in named}
    if (lengths < 0).any() or lengths.sum(dtype=np.int64) != len(token_ids):
        raise ValueError("other lengths")
    if not pieces.keys() >= set(np.unique(token_ids).tolist()):
        raise KeyError("a token without a piece")
    return PromptTexts(lengths, token_ids, pieces)


def spoiled(path: Path) -> BadInput:
    """What is said of a file that is not as it was written."""
    return RunFileError(
        f"{path} is damaged or holds no texts of this sweep; its figures do not need it. Take a fresh copy, or sweep "
        "again into a new folder to read the texts."
    )
