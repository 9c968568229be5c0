"""The tables of a run: their columns, and one table as a Parquet file.

Columns have the names of the records' columns and fields in records.py, which documents them. Files may be untrusted:
the size is limited before unpacking, columns must match `TABLES`, and every failure is a BadInput that names the file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.bounds import LONGEST_DRAFT, LONGEST_PIECE, SECONDS, TEMPERATURE, TOKENS, VOCABULARY, WIDEST, shortened
from mars_viz.errors import RunFileError
from mars_viz.evidence import Check, Decides, Per, within
from mars_viz.records import COLUMNS, Timing

Table: TypeAlias = dict[str, np.ndarray]
"""Columns by name: [rows], or [rows, length] for lists of one length; other lists and bytes as objects."""

MAX_VALUES = 50_000_000  # rows; far above any run, and far below the memory of a machine
MAX_BYTES = 1 << 30  # size of an unpacked table
MAX_FOOTER = 1 << 20  # bytes; a long run has a few thousand
MOST_EXTRAS = 32  # maximum number of unknown columns in a table
_END = 8  # bytes after the footer: its length and the magic number
_NAME = re.compile("[a-z][a-z0-9_]{0,39}")  # names that unknown columns may have
_UNREADABLE = (pa.ArrowException, OSError, MemoryError, ValueError, TypeError, KeyError, IndexError, OverflowError)
"""Errors that pyarrow raises on damaged bytes, depending on the location of the damage."""


class ValueShape(Enum):
    """Values of a column per row, in words for messages."""

    ONE = ""
    WIDE = "equally long lists of "
    MANY = "lists of "  # of any length


@dataclass(frozen=True, slots=True)
class FileColumn:
    """Type, shape and valid values of a column."""

    type: pa.DataType  # type of a single value
    holds: Check = lambda values: np.ones(values.shape, bool)  # True for each valid value
    shape: ValueShape = ValueShape.ONE
    optional: bool = False

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type."""
        dtype: np.dtype = np.dtype(self.type.to_pandas_dtype())
        return dtype

    def fits(self, type_: pa.DataType) -> bool:
        """True if a file's column has the type and shape."""
        if self.shape is ValueShape.ONE:
            return bool(type_ == self.type)
        if self.shape is ValueShape.MANY:
            return bool(pa.types.is_list(type_) and type_.value_type == self.type)
        is_wide = pa.types.is_fixed_size_list(type_) and type_.list_size <= WIDEST
        return bool(is_wide and type_.value_type == self.type)


def _evidence(per: Per) -> dict[str, FileColumn]:
    return {
        name: FileColumn(
            pa.from_numpy_dtype(column.dtype),
            column.holds,
            ValueShape.ONE if column.width == 1 else ValueShape.WIDE,
            column.decides is not Decides.ALWAYS,
        )
        for name, column in COLUMNS.items()
        if column.per is per
    }


_FLAG, _DOUBLE = FileColumn(pa.bool_()), FileColumn(pa.float64())
_TOKEN = FileColumn(pa.int32(), within(0, VOCABULARY - 1))
_TOKENS = FileColumn(pa.int32(), within(0, VOCABULARY - 1), ValueShape.MANY)
_INDEX = FileColumn(pa.int32(), within(0, TOKENS - 1))
_PIECE = FileColumn(pa.binary(), lambda values: np.array([len(data) <= LONGEST_PIECE for data in values], bool))

NODE_FIELDS = _evidence(Per.NODE)  # arrays of `Speculation` with a value per drafted token
ROW_FIELDS = _evidence(Per.ROW)  # arrays of `Speculation` with a value per row
NODE_VERDICTS = {"breakpoints": _DOUBLE, "keep_below": _FLAG, "keep_above": _FLAG, "keep_strict": _FLAG}
"""Arrays of `Verdicts` with a value per drafted token."""
ROW_VERDICTS = {"row_breakpoints": _DOUBLE, "emit_below": _TOKEN, "emit_above": _TOKEN}
"""Arrays of `Verdicts` with a value per row."""
SCALAR_FIELDS = {
    "start": FileColumn(pa.int64(), within(0, 2 * TOKENS)),
    "temperature": FileColumn(pa.float64(), within(TEMPERATURE.low, TEMPERATURE.high)),
    "sampled": _FLAG,
}
"""Single values of `Speculation`."""
TIMING_FIELDS = {field.name: FileColumn(pa.float64(), within(0, SECONDS)) for field in fields(Timing)}  # seconds

RUN_TABLES: dict[str, dict[str, FileColumn]] = {
    "nodes": {
        "round": _INDEX,
        **NODE_FIELDS,
        **NODE_VERDICTS,
        "gap_from": FileColumn(pa.float64(), optional=True),  # only for rules that have gaps
        "kept": _FLAG,
    },
    "rows": {"round": _INDEX} | ROW_FIELDS | ROW_VERDICTS,
    "rounds": {
        **SCALAR_FIELDS,
        "row": FileColumn(pa.int32(), within(0, LONGEST_DRAFT)),
        "emitted": _TOKEN,
        "token_ids": _TOKENS,
        **TIMING_FIELDS,
    },
    "pieces": {"id": _TOKEN, "bytes": _PIECE, "special": _FLAG},
}
"""Tables of every run. A row of `nodes` is a drafted token, of `rows` a target distribution, of `rounds` a draft-verify
cycle, of `pieces` a vocabulary entry."""

MAP_TABLES: dict[str, dict[str, FileColumn]] = {
    "map_nodes": {"answer": _INDEX} | NODE_FIELDS,
    "map_rows": {"answer": _INDEX} | ROW_FIELDS,
    "map_answers": {**SCALAR_FIELDS, "prefix": _TOKENS, **TIMING_FIELDS},
}
"""Tables of a dial map. `map_nodes` and `map_rows` are as above; a row of `map_answers` is a prefix without the prompt.
"""

EVIDENCE_TABLES = ("nodes", "rows", "map_nodes", "map_rows")  # tables that may have columns unknown to this version
TABLES = RUN_TABLES | MAP_TABLES


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
    """A table before reading; its number of rows is within bounds."""

    name: str
    described: Mapping[str, FileColumn]  # the columns in the file
    lines: int  # number of rows
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
    with _damaged(name):
        if len(data) < _END or int.from_bytes(data[-_END:][:4], "little") > min(len(data), MAX_FOOTER):
            raise ValueError("no footer")
        source = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        about, schema = source.metadata, source.schema_arrow
        size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        if about.num_rows > MAX_VALUES or size > MAX_BYTES:
            raise RunFileError(f"{file} is far larger than any run. Choose a folder written by MARS Viz.")
        if len(set(schema.names)) < len(schema.names):
            raise ValueError("a column twice")
        described = _described(name, dict(zip(schema.names, schema.types, strict=True)))
        for key, column in described.items():
            if not column.fits(type_ := schema.field(key).type):
                expected = f"{column.shape.value}{column.type}"
                raise RunFileError(f"{file} holds {type_} in the column {key}; a run holds {expected} there.")
        return UnreadTable(name, described, about.num_rows, source)


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
    extras = {key: evidence for key in named if (evidence := _extra(types[key])) is not None}
    strange = next((key for key in unknown if key not in extras), None)
    if strange is not None or len(extras) > MOST_EXTRAS:
        problem = f"more than {MOST_EXTRAS} unknown columns" if strange is None else f"the column {shortened(strange)}"
        raise RunFileError(
            f"{file} has {problem}, and evidence cannot be that. Take it out, or choose a folder written by MARS Viz."
        )
    return described | extras


def _extra(type_: pa.DataType) -> FileColumn | None:
    """Return the column for unknown evidence of this type; None if evidence cannot have the type."""
    wide = pa.types.is_fixed_size_list(type_)
    each = type_.value_type if wide else type_
    if not (pa.types.is_integer(each) or pa.types.is_floating(each) or pa.types.is_boolean(each)):
        return None
    return FileColumn(each, shape=ValueShape.WIDE if wide else ValueShape.ONE)


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
    flat = array if column.shape is ValueShape.ONE else array.flatten()
    if array.null_count or flat.null_count:
        raise ValueError("a value is missing")
    if column.shape is ValueShape.MANY:
        listed, ends = _to_numpy(flat).tolist(), np.cumsum(_to_numpy(array.value_lengths())).tolist()
        return objects(listed[start:end] for start, end in itertools.pairwise([0, *ends]))
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
