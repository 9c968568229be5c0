"""The columns of a run's tables: the one description from which writing, reading and checking follow.

Knows names, types, shapes and the values that each column may hold; knows neither files nor what the columns mean
together. The names are those of the records' fields (records.py), where each is explained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum

import numpy as np
import pyarrow as pa

from mars_viz.bounds import HUGE, LONGEST_DRAFT, LONGEST_PIECE, NUMBERS, SECONDS, TOKENS, VOCABULARY
from mars_viz.records import Timing

Check = Callable[[np.ndarray], np.ndarray]


class Shape(Enum):
    """How many values a column holds in each line of its table."""

    ONE = "one"
    """A number."""
    WIDE = "wide"
    """A list, equally long in every line."""
    MANY = "many"
    """A list of any length."""


@dataclass(frozen=True, slots=True)
class Column:
    """What one column may hold."""

    type: pa.DataType
    """Of a single value."""
    holds: Check
    """True for each value that is possible."""
    shape: Shape = Shape.ONE
    """One value or a list of them."""
    optional: bool = False
    """True if a file leaves it out where it says nothing, that is holds only NaN; older ones do not have it."""

    @property
    def dtype(self) -> np.dtype:
        """The same type in NumPy."""
        dtype: np.dtype = np.dtype(self.type.to_pandas_dtype())
        return dtype


def _anything(values: np.ndarray) -> np.ndarray:
    return np.ones(values.shape, bool)


def _finite(values: np.ndarray) -> np.ndarray:
    return (values >= -HUGE) & (values <= HUGE)  # NaN fails


def _logit(values: np.ndarray) -> np.ndarray:
    return values <= HUGE  # -inf is a masked token; NaN fails


def _divergence(values: np.ndarray) -> np.ndarray:
    return (values >= -HUGE) & ((values <= HUGE) | (values == np.inf))  # inf is missing support; NaN fails


def _entropy(values: np.ndarray) -> np.ndarray:
    return (values >= -0.1) & (values <= np.log(VOCABULARY) + 0.1)  # nats; rounding may pass both ends


def _coin(values: np.ndarray) -> np.ndarray:
    return (values >= 0) & (values < 1)


def _probability(values: np.ndarray) -> np.ndarray:
    return (values >= 0) & (values <= 1.001)  # rounding may pass 1


def _seconds(values: np.ndarray) -> np.ndarray:
    return (values >= 0) & (values <= SECONDS)


def _temperature(values: np.ndarray) -> np.ndarray:
    bounds = NUMBERS["Settings"]["temperature"]
    return (values >= bounds.low) & (values <= bounds.high)


def _piece(values: np.ndarray) -> np.ndarray:
    return np.array([len(data) <= LONGEST_PIECE for data in values], bool)


def _or_unknown(holds: Check) -> Check:
    return lambda values: holds(values) | np.isnan(values)


def _within(low: int, high: int) -> Check:
    return lambda values: (values >= low) & (values <= high)


_token, _rank = _within(0, VOCABULARY - 1), _within(1, VOCABULARY)
_known_rank = _within(0, VOCABULARY)  # 0 where it is not known
_place = _within(0, 2 * TOKENS)


def _columns(names: str, type_: pa.DataType, holds: Check, shape: Shape = Shape.ONE) -> dict[str, Column]:
    return {name: Column(type_, holds, shape) for name in names.split()}


_BOOL, _INT, _LONG, _FLOAT, _DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64()

NODE_FIELDS: dict[str, Column] = {
    **_columns("tokens", _INT, _token),
    **_columns("siblings", _INT, _within(0, VOCABULARY - 1)),
    **_columns("parents", _INT, _within(-1, LONGEST_DRAFT - 1)),
    **_columns("depths", _INT, _within(1, LONGEST_DRAFT)),
    **_columns("ranks", _INT, _known_rank),
    **_columns("q q_max", _FLOAT, _probability),
    **_columns("p total_variation", _FLOAT, _or_unknown(_probability)),
    **_columns("q_entropy", _FLOAT, _entropy),
    **_columns("draft_logsumexp", _FLOAT, _finite),
    **_columns("js", _FLOAT, _or_unknown(_finite)),
    **_columns("kl_pq kl_qp", _FLOAT, _or_unknown(_divergence)),
    **_columns("z", _FLOAT, _logit),
    **_columns("coins", _DOUBLE, _coin),
    **_columns("block_mass", _DOUBLE, _or_unknown(_finite)),
    **_columns("draft_ids", _INT, _token, Shape.WIDE),
    **_columns("draft_logits", _FLOAT, _logit, Shape.WIDE),
    "best_q": Column(_FLOAT, _or_unknown(_probability), Shape.WIDE, optional=True),
}
"""Arrays of `Speculation` with a value for each drafted token."""

ROW_FIELDS: dict[str, Column] = {
    **_columns("logsumexp logsumexp_t", _FLOAT, _or_unknown(_finite)),
    **_columns("entropy", _FLOAT, _or_unknown(_entropy)),
    **_columns("support", _INT, _rank),
    **_columns("top_ids emissions", _INT, _token, Shape.WIDE),
    **_columns("emission_ranks", _INT, _rank, Shape.WIDE),
    **_columns("top_logits emission_z", _FLOAT, _logit, Shape.WIDE),
    **_columns("emission_p", _FLOAT, _or_unknown(_probability), Shape.WIDE),
}
"""Arrays of `Speculation` with a value for each row of the target's laws."""

NODE_VERDICTS: dict[str, Column] = {
    **_columns("breakpoints", _DOUBLE, _anything),
    **_columns("keep_below keep_above keep_strict", _BOOL, _anything),
}
"""Arrays of `Verdicts` with a value for each drafted token."""

GAPS: dict[str, Column] = {"gap_from": Column(_DOUBLE, _anything, optional=True)}
"""Likewise, of rules that have gaps."""

ROW_VERDICTS: dict[str, Column] = {
    **_columns("row_breakpoints", _DOUBLE, _anything),
    **_columns("emit_below emit_above", _INT, _token),
}
"""Arrays of `Verdicts` with a value for each row."""

SCALAR_FIELDS: dict[str, Column] = {
    **_columns("start", _LONG, _place),
    **_columns("temperature", _DOUBLE, _temperature),
    **_columns("sampled", _BOOL, _anything),
}
"""Single values of `Speculation`."""

TIMING_FIELDS: dict[str, Column] = _columns(" ".join(field.name for field in fields(Timing)), _DOUBLE, _seconds)
"""Seconds of a round."""

_ROUND = _columns("round", _INT, _within(0, TOKENS - 1))
_ANSWER = _columns("answer", _INT, _within(0, TOKENS - 1))

RUN_TABLES: dict[str, dict[str, Column]] = {
    "nodes": _ROUND | NODE_FIELDS | NODE_VERDICTS | GAPS | _columns("kept", _BOOL, _anything),
    "rows": _ROUND | ROW_FIELDS | ROW_VERDICTS,
    "rounds": {
        **SCALAR_FIELDS,
        **_columns("row", _INT, _within(0, LONGEST_DRAFT)),
        **_columns("emitted", _INT, _token),
        **_columns("token_ids", _INT, _token, Shape.MANY),
        **TIMING_FIELDS,
    },
    "pieces": {
        **_columns("id", _INT, _token),
        "bytes": Column(pa.binary(), _piece),
        **_columns("special", _BOOL, _anything),
    },
}
"""The tables of every run: a line of `nodes` is a drafted token, of `rows` a law of the target, of `rounds` a
draft-verify cycle, of `pieces` a vocabulary entry."""

MAP_TABLES: dict[str, dict[str, Column]] = {
    "map_nodes": _ANSWER | NODE_FIELDS,
    "map_rows": _ANSWER | ROW_FIELDS,
    "map_answers": {
        **SCALAR_FIELDS,
        **_columns("prefix", _INT, _token, Shape.MANY),
        **TIMING_FIELDS,
    },
}
"""The tables of a run's dial map, which not every run has: `map_nodes` and `map_rows` are as above, a line of
`map_answers` is a prefix, without the prompt, that was answered."""

TABLES = RUN_TABLES | MAP_TABLES
"""Every table with its columns."""
