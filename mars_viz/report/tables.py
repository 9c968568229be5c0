"""Tables as bytes, for spreadsheets and data frames. Knows formats; what is in a table is others' business."""

from __future__ import annotations

import io

import pandas as pd

from mars_viz.strict_csv import csv_of


def csv_table(frame: pd.DataFrame) -> bytes:
    """UTF-8 CSV with a line of names; see `strict_csv` for text that could be a formula."""
    columns = (frame.iloc[:, place] for place in range(frame.shape[1]))
    cells = ([None if gone else cell for cell, gone in zip(c.to_numpy(), c.isna(), strict=True)] for c in columns)
    return csv_of(frame.columns, zip(*cells, strict=True)).encode("utf-8")


def parquet_table(frame: pd.DataFrame) -> bytes:
    """Parquet, with the types of the columns; one that holds numbers and words is words."""
    plain = frame.copy()
    for place, name in enumerate(plain.columns):
        column = plain.iloc[:, place]
        if column.dtype == object and column.map(type).nunique() > 1:
            plain[name] = [None if pd.isna(value) else str(value) for value in column]
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    return buffer.getvalue()
