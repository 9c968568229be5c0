"""The columns of a run's tables, from which writing, reading and validation follow.

Names are those of the records' columns and fields in records.py, where each is documented.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

import numpy as np
import pyarrow as pa

from mars_viz.bounds import LONGEST_DRAFT, LONGEST_PIECE, SECONDS, TEMPERATURE, TOKENS, VOCABULARY
from mars_viz.evidence import Check, Decides, Per, within
from mars_viz.records import COLUMNS, Timing


class ValueShape(Enum):
    """Number of values of a column per row."""

    ONE = "one"
    WIDE = "wide"  # a list of the same length in every row
    MANY = "many"  # a list of any length


@dataclass(frozen=True, slots=True)
class FileColumn:
    """Type, shape and valid values of a column."""

    type: pa.DataType  # type of a single value
    holds: Check  # True for each valid value
    shape: ValueShape = ValueShape.ONE
    optional: bool = False

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type."""
        dtype: np.dtype = np.dtype(self.type.to_pandas_dtype())
        return dtype


def _anything(values: np.ndarray) -> np.ndarray:
    return np.ones(values.shape, bool)


def _piece(values: np.ndarray) -> np.ndarray:
    return np.array([len(data) <= LONGEST_PIECE for data in values], bool)


_token = within(0, VOCABULARY - 1)


def _columns(names: str, type_: pa.DataType, holds: Check, shape: ValueShape = ValueShape.ONE) -> dict[str, FileColumn]:
    return {name: FileColumn(type_, holds, shape) for name in names.split()}


def _evidence(per: Per) -> dict[str, FileColumn]:
    columns = {}
    for name, column in COLUMNS.items():
        if column.per is per:
            shape = ValueShape.ONE if column.width == 1 else ValueShape.WIDE
            optional = column.decides is not Decides.ALWAYS
            columns[name] = FileColumn(pa.from_numpy_dtype(column.dtype), column.holds, shape, optional)
    return columns


def extra(type_: pa.DataType) -> FileColumn | None:
    """Return the column for unknown evidence of this type; None if evidence cannot have the type."""
    wide = pa.types.is_fixed_size_list(type_)
    each = type_.value_type if wide else type_
    if not (pa.types.is_integer(each) or pa.types.is_floating(each) or pa.types.is_boolean(each)):
        return None
    return FileColumn(each, _anything, ValueShape.WIDE if wide else ValueShape.ONE)


MOST_EXTRAS = 32  # maximum number of unknown columns in a table
_BOOL, _INT, _LONG, _DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float64()

NODE_FIELDS = _evidence(Per.NODE)  # arrays of `Speculation` with a value per drafted token
ROW_FIELDS = _evidence(Per.ROW)  # arrays of `Speculation` with a value per row

NODE_VERDICTS: dict[str, FileColumn] = {
    **_columns("breakpoints", _DOUBLE, _anything),
    **_columns("keep_below keep_above keep_strict", _BOOL, _anything),
}
"""Arrays of `Verdicts` with a value per drafted token."""

GAPS = {"gap_from": FileColumn(_DOUBLE, _anything, optional=True)}  # another one, only for rules that have gaps

ROW_VERDICTS: dict[str, FileColumn] = {
    **_columns("row_breakpoints", _DOUBLE, _anything),
    **_columns("emit_below emit_above", _INT, _token),
}
"""Arrays of `Verdicts` with a value per row."""

SCALAR_FIELDS: dict[str, FileColumn] = {
    **_columns("start", _LONG, within(0, 2 * TOKENS)),
    **_columns("temperature", _DOUBLE, within(TEMPERATURE.low, TEMPERATURE.high)),
    **_columns("sampled", _BOOL, _anything),
}
"""Single values of `Speculation`."""

TIMING_FIELDS = {field.name: FileColumn(_DOUBLE, within(0, SECONDS)) for field in fields(Timing)}  # seconds of a round

_ROUND, _ANSWER = (_columns(owner, _INT, within(0, TOKENS - 1)) for owner in ("round", "answer"))

RUN_TABLES: dict[str, dict[str, FileColumn]] = {
    "nodes": _ROUND | NODE_FIELDS | NODE_VERDICTS | GAPS | _columns("kept", _BOOL, _anything),
    "rows": _ROUND | ROW_FIELDS | ROW_VERDICTS,
    "rounds": {
        **SCALAR_FIELDS,
        **_columns("row", _INT, within(0, LONGEST_DRAFT)),
        **_columns("emitted", _INT, _token),
        **_columns("token_ids", _INT, _token, ValueShape.MANY),
        **TIMING_FIELDS,
    },
    "pieces": {
        **_columns("id", _INT, _token),
        "bytes": FileColumn(pa.binary(), _piece),
        **_columns("special", _BOOL, _anything),
    },
}
"""Tables of every run. A row of `nodes` is a drafted token, of `rows` a target distribution, of `rounds` a draft-verify
cycle, of `pieces` a vocabulary entry."""

MAP_TABLES: dict[str, dict[str, FileColumn]] = {
    "map_nodes": _ANSWER | NODE_FIELDS,
    "map_rows": _ANSWER | ROW_FIELDS,
    "map_answers": {**SCALAR_FIELDS, **_columns("prefix", _INT, _token, ValueShape.MANY), **TIMING_FIELDS},
}
"""Tables of a dial map. `map_nodes` and `map_rows` are as above; a row of `map_answers` is a prefix without the prompt.
"""

EVIDENCE_TABLES = ("nodes", "rows", "map_nodes", "map_rows")  # tables that may have columns unknown to this version
TABLES = RUN_TABLES | MAP_TABLES
