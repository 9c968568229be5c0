"""What every benchmark here shares: spreads, and the way results leave it."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def show(label: str, values: dict[str, float], unit: str = "", digits: int = 2) -> None:
    """One line of the table: median (min to max)."""
    low, middle, high = (f"{values[key]:.{digits}f}" for key in ("min", "median", "max"))
    print(f"{label:<44} {middle:>9} ({low} to {high}) {unit}")


def peak() -> float:
    """Largest resident memory of this process so far, MiB. Where Linux tells it of this program alone it is that: what
    `getrusage` gives there begins with the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text(encoding="utf-8").split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def json_option(parser: argparse.ArgumentParser) -> None:
    """--json FILE."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as one JSON object")


def write_json(path: Path | None, figures: dict[str, object]) -> None:
    """Write the figures where asked."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
