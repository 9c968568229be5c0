from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import toy_run

from mars_viz.errors import BadInput
from mars_viz.runfiles import codec
from mars_viz.runfiles.directory import END, chunks_of
from mars_viz.runfiles.parquet import opened, to_bytes

NUMBERS = {"PLAIN": 0, "PLAIN_DICTIONARY": 2, "RLE": 3, "RLE_DICTIONARY": 8, "BYTE_STREAM_SPLIT": 9}
TABLE = pa.table(
    {
        "whole": [1, 2, 3],
        "words": ["x", "y" * 300, None],
        "lists": [[1], [2, 3], []],
        "facts": [True, False, None],
        "halves": pa.array([1.5, 2, 3], pa.float16()),
        "records": pa.array([{"k": 1, "of": {"l": [True]}}, {"k": 2, "of": None}, None]),
        "maps": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int8())),
    }
)
MANNERS: list[dict[str, Any]] = [
    {},
    {"row_group_size": 1},
    {"compression": "zstd", "data_page_version": "2.0", "write_page_index": True},
    {"use_dictionary": False, "use_byte_stream_split": ["halves"]},
    {"use_dictionary": False, "write_statistics": False, "store_schema": False},
]


def test_chunks_are_as_pyarrow_reads_them():
    for manner in MANNERS:
        sink = io.BytesIO()
        pq.write_table(TABLE, sink, **manner)
        metadata = pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        for chunk, found in zip(chunks, chunks_of(sink.getvalue()), strict=True):
            assert (chunk.path_in_schema, chunk.num_values) == (".".join(found.path), found.values)
            assert chunk.total_uncompressed_size == found.bytes
            assert {NUMBERS[name] for name in chunk.encodings} == found.encodings


def test_a_damaged_directory_ends_no_process():
    data = codec.encode(toy_run(max_new_tokens=4))["rounds.parquet"]
    for place in range(len(data) - END - int.from_bytes(data[-END:][:4], "little"), len(data) - END):
        spoiled = bytearray(data)
        spoiled[place] ^= 0x10
        with suppress(BadInput):
            opened("rounds", bytes(spoiled))


def test_a_nan_that_signals_is_refused_like_any_other():
    nodes = opened("nodes", codec.encode(toy_run(max_new_tokens=4))["nodes.parquet"]).read()
    entropy = nodes["q_entropy"].copy()
    entropy.view(np.uint32)[0] = 0x7FA00000
    with pytest.raises(BadInput, match="impossible value"):
        opened("nodes", to_bytes("nodes", {**nodes, "q_entropy": entropy})).read()
