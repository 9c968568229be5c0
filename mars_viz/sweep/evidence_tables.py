"""Tables and cells of the evidence's Markdown. Knows figures' names and Markdown; knows nothing of a sweep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mars_viz.escapes import commonmark
from mars_viz.sweep.figure_words import told
from mars_viz.words import number


def unknown(value: float | None) -> bool:
    """True for what is not known or not defined."""
    return value is None or math.isnan(value)


def figure_cell(name: str, found: dict[str, Any]) -> str:
    """A figure with its interval, '12.3 (10.1 to 14.0)', where it is defined."""
    return told(name, [math.nan if found[key] is None else found[key] for key in ("estimate", "low", "high")])


def with_ends(found: Sequence[float | None]) -> str:
    """An estimate with the ends of its interval, where there are any."""
    if len(found) == 1 or any(map(unknown, found)):
        return plain_number(found[0])
    return figure_cell("ratio", dict(zip(("estimate", "low", "high"), found, strict=True)))


def plain_number(value: float | None) -> str:
    """Three digits; a dash for what is not known."""
    return "–" if value is None else number(value)


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they are."""
    return table(["", ""], [[name, text] for name, text in rows])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every cell is text, escaped."""
    first, *others = (f"| {' | '.join(commonmark(str(text)) for text in line)} |" for line in [heads, *rows])
    return "\n".join([first, f"|{' --- |' * len(heads)}", *others])
