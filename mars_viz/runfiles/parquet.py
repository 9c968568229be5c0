"""Read and write one table as a Parquet file.

Files may be untrusted. Size is read from the footer and limited before unpacking, columns must match `TABLES`, and
every failure is a BadInput that names the file.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.bounds import WIDEST, shortened
from mars_viz.errors import RunFileError
from mars_viz.runfiles.columns import EVIDENCE_TABLES, MOST_EXTRAS, TABLES, FileColumn, ValueShape, extra
from mars_viz.runfiles.directory import END, chunks_of

Table: TypeAlias = dict[str, np.ndarray]
"""Columns by name: [rows], or [rows, length] for lists of one length; other lists and bytes as objects."""

MAX_VALUES = 50_000_000  # values per column; far above any run, and far below the memory of a machine
MAX_BYTES = 1 << 30  # size of an unpacked table
MAX_DIRECTORY = 1 << 20  # bytes of a footer; a long run has a few thousand
_NAME = re.compile("[a-z][a-z0-9_]{0,39}")  # names that unknown columns may have
_PLAIN = {0, 3}  # allowed encodings: plain, and run length for lengths and booleans. Others could hide a table's size.
_UNREADABLE = (pa.ArrowException, OSError, MemoryError, ValueError, TypeError, KeyError, IndexError, OverflowError)
"""Errors that pyarrow raises on damaged bytes, depending on the location of the damage."""


def to_bytes(name: str, columns: Table) -> bytes:
    """Return the Parquet file of a table. Raises BadInput for a column that does not match its description."""
    types = {}
    for key, values in columns.items():
        each = pa.null() if values.dtype == object else pa.from_numpy_dtype(values.dtype)
        types[key] = each if values.ndim == 1 else pa.list_(each, values.shape[1])
    described = _described(name, types)
    arrays = [_to_arrow(f"{name}.{key}", column, columns[key]) for key, column in described.items()]
    schema = pa.schema(
        [pa.field(key, array.type, nullable=False) for key, array in zip(described, arrays, strict=True)]
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(arrays, schema=schema), sink, compression="zstd", use_dictionary=False, write_page_checksum=True
    )
    return bytes(sink.getvalue())


@dataclass(frozen=True, slots=True)
class UnreadTable:
    """A table before reading; its size is known and within bounds."""

    name: str
    described: Mapping[str, FileColumn]  # the columns in the file
    lines: int  # number of rows
    values: Mapping[str, int]  # number of values in each column
    _file: pq.ParquetFile

    def read(self) -> Table:
        """Return the columns. Raises BadInput if they contradict the footer or contain invalid values."""
        return {key: self._column(key, column) for key, column in self.described.items()}

    def _column(self, key: str, column: FileColumn) -> np.ndarray:
        """Read one column at a time, to release its buffers before the next."""
        with _damaged(self.name):
            table = self._file.read(columns=[key], use_threads=False)
            table.validate(full=True)
            if len(table) != self.lines:
                raise ValueError("other lines")
            values = _from_arrow(column, table.column(key))
            many = column.shape is ValueShape.MANY
            flat = np.fromiter(itertools.chain.from_iterable(values), column.dtype) if many else values
            if flat.size > self.values[key]:
                raise ValueError("more values")
        with np.errstate(invalid="ignore"):  # comparing a signalling NaN
            holds = column.holds(flat).all()
        if not holds:
            raise RunFileError(
                f"{self.name}.parquet holds an impossible value in the column {key}. Record the run again."
            )
        return values


def opened(name: str, data: bytes) -> UnreadTable:
    """Open a table with its present optional and unknown columns, without unpacking.

    Raises BadInput if `data` is not that table, or is far larger than any run's.
    """
    file = f"{name}.parquet"
    if len(data) < END or int.from_bytes(data[-END:][:4], "little") > min(len(data), MAX_DIRECTORY):
        raise RunFileError(f"{file} is damaged or is no Parquet file. Take a fresh copy, or record the run again.")
    with _damaged(name):
        source = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        lines, chunks, values = source.metadata.num_rows, chunks_of(data), Counter[str]()
        if max((lines, *(chunk.values for chunk in chunks))) > MAX_VALUES or sum(c.bytes for c in chunks) > MAX_BYTES:
            raise RunFileError(f"{file} is far larger than any run. Choose a folder written by MARS Viz.")
        if any(not _PLAIN.issuperset(chunk.encodings) for chunk in chunks):
            raise RunFileError(f"{file} is encoded in another way than a run's. Choose a folder written by MARS Viz.")
        for chunk in chunks:
            values[chunk.path[0]] += chunk.values
        schema = source.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise ValueError("a column twice")
        described = _described(name, dict(zip(schema.names, schema.types, strict=True)))
        for key, column in described.items():
            if not _fits(column, schema.field(key).type):
                words = {ValueShape.ONE: "", ValueShape.WIDE: "equally long lists of ", ValueShape.MANY: "lists of "}
                raise RunFileError(
                    f"{file} holds {schema.field(key).type} in the column {key}; a run holds {words[column.shape]}"
                    f"{column.type} there."
                )
        of_each = {key: values[key] for key in described}
        if any(of_each[key] != lines for key, each in described.items() if each.shape is ValueShape.ONE):
            raise ValueError("other lines in a column")
        return UnreadTable(name, described, lines, of_each, source)


@contextmanager
def _damaged(name: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise RunFileError(
            f"{name}.parquet is damaged or is no Parquet file. Take a fresh copy, or record the run again."
        ) from error


def objects(values: Iterable[Any]) -> np.ndarray:
    """Return object [rows] with one value per row."""
    listed = list(values)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array


def _described(name: str, types: Mapping[str, pa.DataType]) -> dict[str, FileColumn]:
    """Return the present columns in their documented order, followed by unknown evidence columns. Raises BadInput for a
    missing column, and for one that cannot be evidence."""
    file, columns = f"{name}.parquet", TABLES[name]
    lacking = next((key for key, column in columns.items() if not column.optional and key not in types), None)
    if lacking is not None:
        raise RunFileError(f"{file} lacks the column {lacking}. Take a fresh copy, or record the run again.")
    described = {key: column for key, column in columns.items() if key in types}
    unknown = [key for key in types if key not in columns]
    known = {key for table in EVIDENCE_TABLES for key in TABLES[table]}
    named = [key for key in unknown if name in EVIDENCE_TABLES and key not in known and _NAME.fullmatch(key)]
    extras = {key: evidence for key in named if (evidence := extra(types[key])) is not None}
    strange = next((key for key in unknown if key not in extras), None)
    if strange is not None or len(extras) > MOST_EXTRAS:
        problem = f"more than {MOST_EXTRAS} unknown columns" if strange is None else f"the column {shortened(strange)}"
        raise RunFileError(
            f"{file} has {problem}, and evidence cannot be that. Take it out, or choose a folder written by MARS Viz."
        )
    return described | extras


def _to_arrow(label: str, column: FileColumn, values: np.ndarray) -> pa.Array:
    if column.shape is ValueShape.MANY:
        return pa.array(values.tolist(), pa.list_(column.type))
    dimensions = 2 if column.shape is ValueShape.WIDE else 1
    if values.dtype != column.dtype or values.ndim != dimensions:
        raise RunFileError(
            f"The column {label} is {values.dtype} with {values.ndim} dimensions; "
            f"a run holds {column.dtype} with {dimensions} there."
        )
    flat = pa.array(values.reshape(-1), column.type)
    return flat if dimensions == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _from_arrow(column: FileColumn, chunks: pa.ChunkedArray) -> np.ndarray:
    array = chunks.combine_chunks()
    if array.null_count:
        raise ValueError("a value is missing")
    if column.shape is ValueShape.MANY and array.flatten().null_count:
        raise ValueError("a value is missing within a list")
    if column.shape is ValueShape.MANY:
        values, ends = _to_numpy(array.flatten()).tolist(), np.cumsum(_to_numpy(array.value_lengths())).tolist()
        return objects(values[start:end] for start, end in itertools.pairwise([0, *ends]))
    if column.type == pa.binary():
        return objects(array.to_pylist())
    flat = array.flatten() if column.shape is ValueShape.WIDE else array
    if flat.null_count:
        raise ValueError("a value is missing")
    values = _to_numpy(flat)
    if column.shape is ValueShape.WIDE:
        values = values.reshape(len(array), array.type.list_size)
    values.flags.writeable = False
    return values


def _to_numpy(flat: pa.Array) -> np.ndarray:
    """Convert as `to_numpy` does, but without importing pandas, which takes a third of a second."""
    if pa.types.is_boolean(flat.type):
        return np.from_dlpack(flat.cast(pa.uint8())).astype(bool)
    if pa.types.is_primitive(flat.type):
        return np.from_dlpack(flat)
    return objects(flat.to_pylist())


def _fits(column: FileColumn, found: pa.DataType) -> bool:
    if column.shape is ValueShape.ONE:
        return bool(found == column.type)
    is_list = pa.types.is_fixed_size_list if column.shape is ValueShape.WIDE else pa.types.is_list
    if column.shape is ValueShape.WIDE and is_list(found) and found.list_size > WIDEST:
        return False
    return bool(is_list(found) and found.value_type == column.type)
