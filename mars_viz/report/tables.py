"""A run's table of tokens as bytes, for spreadsheets and data frames. Knows formats; the table is `frames`'."""

from __future__ import annotations

import io

from mars_viz.run import Run


def csv_table(run: Run) -> bytes:
    """UTF-8 CSV with a line of names."""
    return bytes(run.to_frame().to_csv(index=False).encode("utf-8"))


def parquet_table(run: Run) -> bytes:
    """Parquet, with the types of the columns."""
    buffer = io.BytesIO()
    run.to_frame().to_parquet(buffer, index=False)
    return buffer.getvalue()
