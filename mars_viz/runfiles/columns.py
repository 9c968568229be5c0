"""The columns of a run's tables: the one description from which writing, reading and checking follow.

Knows names, types, shapes and the values that each column may hold; knows neither files nor what the columns mean
together. The names are those of the records' columns and fields (records.py), where each is explained.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

import numpy as np
import pyarrow as pa

from mars_viz.bounds import LONGEST_DRAFT, LONGEST_PIECE, NUMBERS, SECONDS, TOKENS, VOCABULARY
from mars_viz.evidence import Check, Decides, Per, within
from mars_viz.records import COLUMNS, Timing


class ValueShape(Enum):
    """How many values a column holds in each line of its table."""

    ONE = "one"
    """A number."""
    WIDE = "wide"
    """A list, equally long in every line."""
    MANY = "many"
    """A list of any length."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """What one column may hold."""

    type: pa.DataType
    """Of a single value."""
    holds: Check
    """True for each value that is possible."""
    shape: ValueShape = ValueShape.ONE
    """One value or a list of them."""
    optional: bool = False
    """True if a file may be without it."""

    @property
    def dtype(self) -> np.dtype:
        """The same type in NumPy."""
        dtype: np.dtype = np.dtype(self.type.to_pandas_dtype())
        return dtype


def _anything(values: np.ndarray) -> np.ndarray:
    return np.ones(values.shape, bool)


def _seconds(values: np.ndarray) -> np.ndarray:
    return (values >= 0) & (values <= SECONDS)


def _temperature(values: np.ndarray) -> np.ndarray:
    bounds = NUMBERS["Settings"]["temperature"]
    return (values >= bounds.low) & (values <= bounds.high)


def _piece(values: np.ndarray) -> np.ndarray:
    return np.array([len(data) <= LONGEST_PIECE for data in values], bool)


_token = within(0, VOCABULARY - 1)
_place = within(0, 2 * TOKENS)


def _columns(names: str, type_: pa.DataType, holds: Check, shape: ValueShape = ValueShape.ONE) -> dict[str, FileColumn]:
    return {name: FileColumn(type_, holds, shape) for name in names.split()}


def _evidence(per: Per) -> dict[str, FileColumn]:
    """The arrays of `Speculation` with a value for each of these."""
    return {
        name: FileColumn(
            pa.from_numpy_dtype(known.dtype),
            known.holds,
            ValueShape.ONE if known.width == 1 else ValueShape.WIDE,
            optional=known.decides is not Decides.ALWAYS,
        )
        for name, known in COLUMNS.items()
        if known.per is per
    }


def extra(type_: pa.DataType) -> FileColumn | None:
    """A column of evidence that this version does not know, of such a type; None if no evidence can have it."""
    wide = pa.types.is_fixed_size_list(type_)
    each = type_.value_type if wide else type_
    if not (pa.types.is_integer(each) or pa.types.is_floating(each) or pa.types.is_boolean(each)):
        return None
    return FileColumn(each, _anything, ValueShape.WIDE if wide else ValueShape.ONE)


MOST_EXTRAS = 32
"""Columns of a table that this version does not know, at most."""

_BOOL, _INT, _LONG, _DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float64()

NODE_FIELDS = _evidence(Per.NODE)
"""Arrays of `Speculation` with a value for each drafted token."""

ROW_FIELDS = _evidence(Per.ROW)
"""Arrays of `Speculation` with a value for each row of the target's laws."""

NODE_VERDICTS: dict[str, FileColumn] = {
    **_columns("breakpoints", _DOUBLE, _anything),
    **_columns("keep_below keep_above keep_strict", _BOOL, _anything),
}
"""Arrays of `Verdicts` with a value for each drafted token."""

GAPS: dict[str, FileColumn] = {"gap_from": FileColumn(_DOUBLE, _anything, optional=True)}
"""Likewise, of rules that have gaps."""

ROW_VERDICTS: dict[str, FileColumn] = {
    **_columns("row_breakpoints", _DOUBLE, _anything),
    **_columns("emit_below emit_above", _INT, _token),
}
"""Arrays of `Verdicts` with a value for each row."""

SCALAR_FIELDS: dict[str, FileColumn] = {
    **_columns("start", _LONG, _place),
    **_columns("temperature", _DOUBLE, _temperature),
    **_columns("sampled", _BOOL, _anything),
}
"""Single values of `Speculation`."""

TIMING_FIELDS: dict[str, FileColumn] = _columns(" ".join(field.name for field in fields(Timing)), _DOUBLE, _seconds)
"""Seconds of a round."""

_ROUND = _columns("round", _INT, within(0, TOKENS - 1))
_ANSWER = _columns("answer", _INT, within(0, TOKENS - 1))

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
"""The tables of every run: a line of `nodes` is a drafted token, of `rows` a law of the target, of `rounds` a
draft-verify cycle, of `pieces` a vocabulary entry."""

MAP_TABLES: dict[str, dict[str, FileColumn]] = {
    "map_nodes": _ANSWER | NODE_FIELDS,
    "map_rows": _ANSWER | ROW_FIELDS,
    "map_answers": {
        **SCALAR_FIELDS,
        **_columns("prefix", _INT, _token, ValueShape.MANY),
        **TIMING_FIELDS,
    },
}
"""The tables of a run's dial map, which not every run has: `map_nodes` and `map_rows` are as above, a line of
`map_answers` is a prefix, without the prompt, that was answered."""

EVIDENCE_TABLES = ("nodes", "rows", "map_nodes", "map_rows")
"""Those that may have columns which this version does not know."""

TABLES = RUN_TABLES | MAP_TABLES
"""Every table with its columns."""
