"""The texts of a sweep by token: the Parquet data set `texts/` in its folder, which no other module accesses.

One file and line per prompt: its text on every stretch of the dial, in the order of the results' lines, and its
tokens' pieces. Texts are written before a prompt's results, so every finished prompt has them. Figures do not need
them: older sweeps lack them, and opening a sweep does not read them. `pack` merges several prompts into one file, as
for results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.analysis.alignment import Written
from mars_viz.errors import BadInput, RunFileError
from mars_viz.exploration import DialMap
from mars_viz.run import Piece
from mars_viz.sweep import shards
from mars_viz.writer import make_folder, remove_leftovers, to_read

FOLDER = "texts"  # folder name in a sweep's folder
MAX_BYTES = 1 << 30  # limit of unpacked bytes read at once; far above any sweep


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


def texts_of(made: DialMap) -> PromptTexts:
    """Return the texts of a prompt's dial map."""
    texts = [segment.token_ids for segment in made.segments]
    token_ids = np.array([token for text in texts for token in text], np.int32)
    lengths = np.array([len(text) for text in texts], np.int32)
    return PromptTexts(lengths, token_ids, {token: made.frame.pieces[token] for token in np.unique(token_ids).tolist()})


def write(sweep: Path, index: int, texts: PromptTexts) -> None:
    """Write a prompt's texts, completely or not at all. Raises OSError."""
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
    """Merge the texts of each complete batch, which takes a third of the space; for sweeps that are published. Raises
    OSError, and BadInput for damaged files."""
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
    """Remove leftovers of interruptions, and texts without results, which will be written again. Raises OSError. Only
    for the process that sweeps."""
    folder = sweep / FOLDER
    if not folder.is_dir():
        return
    make_folder(folder)
    remove_leftovers(folder, age=0)
    present = shards.parts_of(folder)
    singles = (single for single in present.singles if results.holding(single) is None)
    for name in [*map(shards.batch_file, present.batches - results.batches), *map(shards.prompt_file, singles)]:
        (folder / name).unlink(missing_ok=True)


def read(sweep: Path, index: int) -> PromptTexts | None:
    """Return the texts of a prompt by index; None if the sweep stores none. Raises BadInput if they are damaged."""
    folder = sweep / FOLDER
    name = shards.parts_of(folder).holding(index) if folder.is_dir() else None
    if name is None:
        return None
    try:
        source = pq.ParquetFile(to_read(folder / name), page_checksum_verification=True)
        rows = np.flatnonzero(source.read(columns=["prompt"], use_threads=False).column("prompt").to_numpy() == index)
        if not len(rows):
            return None
        group, row = 0, int(rows[0])
        while row >= (count := source.metadata.row_group(group).num_rows):
            group, row = group + 1, row - count
        if source.metadata.row_group(group).total_byte_size > MAX_BYTES:
            raise ValueError("more than any prompt has")
        table = source.read_row_group(group, use_threads=False).cast(_SCHEMA)
        table.validate(full=True)
        line = table.slice(row, 1).to_pylist()[0]
        lengths, token_ids = (np.array(line[name], np.int32) for name in ("lengths", "token_ids"))
        named = zip(line["piece_ids"], line["pieces"], line["special"], strict=True)
        pieces = {token: Piece(data, special) for token, data, special in named}
        if (lengths < 0).any() or lengths.sum(dtype=np.int64) != len(token_ids):
            raise ValueError("other lengths")
        if not pieces.keys() >= set(np.unique(token_ids).tolist()):
            raise KeyError("a token without a piece")
        return PromptTexts(lengths, token_ids, pieces)
    except shards.DAMAGED as error:
        raise spoiled(folder / name) from error


def spoiled(path: Path) -> BadInput:
    """Return the error for a damaged file of texts."""
    return RunFileError(
        f"{path} is damaged or holds no texts of this sweep; its figures do not need it. Take a fresh copy, or sweep "
        "again into a new folder to read the texts."
    )
