"""The evidence as CSV: a line a dial value, and a line a prompt. Knows csv and a sweep; knows no files."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from mars_viz.sweep.result import SweepResult

_PROMPT = ("id", "category", "prompt_tokens", "off_is_strict", "target_right")
_SETTING = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "right")
_AGAINST = ("first_divergence", "edit_distance")


def grid_csv(rows: list[dict[str, Any]]) -> str:
    """A line a dial value; each figure with the ends of its interval, empty where it is not defined."""
    names = [name for name in rows[0] if name != "dial"]
    heads = ["dial", *(f"{name}{end}" for name in names for end in ("", "_low", "_high"))]
    lines = [[row["dial"], *(row[name][key] for name in names for key in ("estimate", "low", "high"))] for row in rows]
    return _csv(heads, lines)


def prompts_csv(result: SweepResult, dial: float) -> str:
    """A line a prompt: its counts at the strict end and at the setting, side by side."""
    heads: list[str] = list(_PROMPT)
    columns = [result.prompts[name].tolist() for name in _PROMPT]
    for label, at in (("strict", result.plan.strict), ("chosen", dial)):
        rows = result.rows(np.array([at]))[:, 0]
        for name in _SETTING + (_AGAINST if label == "chosen" else ()):
            heads.append(f"{label}_{name}")
            columns.append(result.lines[name][rows].tolist())
    return _csv(heads, list(zip(*columns, strict=True)))


def _csv(heads: list[str], lines: list[Any]) -> str:
    """A text that would be a formula in a spreadsheet is quoted."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([[_harmless(value) for value in line] for line in lines])
    return sink.getvalue()


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
