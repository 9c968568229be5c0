"""Tables and cells of the evidence's Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mars_viz.escapes import commonmark
from mars_viz.sweep.figure_words import told
from mars_viz.words import number


def unknown(value: float | None) -> bool:
    """Return True for an unknown or undefined value."""
    return value is None or math.isnan(value)


def figure_cell(name: str, found: dict[str, Any]) -> str:
    """Return a figure with its interval, '12.3 (10.1 to 14.0)', if it has one."""
    return told(name, [math.nan if found[key] is None else found[key] for key in ("estimate", "low", "high")])


def with_ends(found: Sequence[float | None]) -> str:
    """Return an estimate with the ends of its interval, if it has any."""
    if len(found) == 1 or any(map(unknown, found)):
        return plain_number(found[0])
    return figure_cell("ratio", dict(zip(("estimate", "low", "high"), found, strict=True)))


def plain_number(value: float | None) -> str:
    """Return a number with three digits, or a dash if it is unknown."""
    return "–" if value is None else number(value)


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values."""
    return table(["", ""], [[name, text] for name, text in rows])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; every cell is escaped text."""
    first, *others = (f"| {' | '.join(commonmark(str(text)) for text in line)} |" for line in [heads, *rows])
    return "\n".join([first, f"|{' --- |' * len(heads)}", *others])
