"""The texts of a sweep by token: the Parquet data set `texts/` in its folder.

One line per prompt: its text on every stretch of the dial, in the order of the results' lines, and its tokens' pieces.
Texts are written before a prompt's results, so every finished prompt has them. Figures do not need them: older sweeps
lack them, and opening a sweep does not read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mars_viz.analysis.alignment import Written
from mars_viz.exploration import DialMap
from mars_viz.run import Piece
from mars_viz.sweep.shards import DataSet

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
