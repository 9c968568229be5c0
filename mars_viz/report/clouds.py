"""Clouds of marks whose places the page has already: the two best logits of rows that the explorer's payload tells.

Knows that payload and Plotly's traces; knows no HTML. A cloud is a mark a drafted token, and the same tokens stand in
the clouds of many settings; so it is told as rows of the payload, or where the page lacks their logits in numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mars_viz.components.explorer.columns import Columns
from mars_viz.report.shown import Scaled, to_decimals

CLOUD, MARK_DECIMALS = 8, 3
"""Numbers from which on a trace of marks is a cloud, and the decimals of its places."""
_COLUMNS = ("x", "y", "customdata")


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """The marks of a trace."""

    rows: np.ndarray
    """int64 [n]; of the payload, the row whose two best logits each mark stands for."""
    rounds: np.ndarray
    """int64 [n]; the round that each is said to be of."""
    columns: dict[str, Scaled]
    """The same in numbers, as Plotly takes them."""

    def told(self, by_row: bool) -> dict[str, Any]:
        """What is sent of it; rows and rounds as steps from one mark to the next."""
        if not by_row:
            return {"columns": self.columns}
        return {"rows": _steps(self.rows), "rounds": _steps(self.rounds)}


def _steps(values: np.ndarray) -> np.ndarray:
    steps = np.diff(values, prepend=0)
    return steps.astype(np.int16 if np.abs(steps).max(initial=0) < 1 << 15 else np.int32)


class Sky:
    """The rows of a payload by their two best logits."""

    def __init__(self, rows: Columns):
        width = rows["top"]
        best = rows["top_logit"].reshape(-1, width)[:, :2] if width > 1 else np.zeros((0, 2), np.float32)
        self._keys, self._rows = np.unique(_keys(best[:, 0], best[:, 1]), return_index=True)

    def cloud(self, trace: dict[str, Any]) -> Cloud | None:
        """The cloud of a trace; None where it has few marks, or stands for something else."""
        x, y, more = (trace.get(name) for name in _COLUMNS)
        if not all(isinstance(column, np.ndarray) and column.size > CLOUD for column in (x, y, more)):
            return None
        assert x is not None and y is not None and more is not None
        keys = _keys(x, y)
        found = np.searchsorted(self._keys, keys)
        if (
            more.ndim != 2
            or more.shape[1] != 2
            or (found == len(self._keys)).any()
            or (self._keys[found] != keys).any()
        ):
            return None
        columns = {name: to_decimals(trace[name], MARK_DECIMALS) for name in _COLUMNS}
        return Cloud(self._rows[found], more[:, 0].astype(np.int64), columns)


def _keys(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """uint64 [n]; two float32 as one number."""
    pair = np.stack([x, y], axis=1).astype("<f4")
    return np.ascontiguousarray(pair).view("<u8").ravel()


def by_row(described: Any, told_by_row: bool) -> Any:
    """What is drawn, with its clouds as rows of the payload or as numbers."""
    if isinstance(described, Cloud):
        return described.told(told_by_row)
    if isinstance(described, dict):
        return {name: by_row(item, told_by_row) for name, item in described.items()}
    if isinstance(described, list):
        return [by_row(item, told_by_row) for item in described]
    return described
