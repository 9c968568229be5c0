"""What every benchmark here shares: spreads, and the way results leave it."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def show(label: str, values: dict[str, float], unit: str = "", digits: int = 2) -> None:
    """One line of the table: median (min to max)."""
    low, middle, high = (f"{values[key]:.{digits}f}" for key in ("min", "median", "max"))
    print(f"{label:<44} {middle:>9} ({low} to {high}) {unit}")


def json_option(parser: argparse.ArgumentParser) -> None:
    """--json FILE."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as one JSON object")


def write_json(path: Path | None, figures: dict[str, object]) -> None:
    """Write the figures where asked."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
