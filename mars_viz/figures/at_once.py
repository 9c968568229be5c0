"""Figures put together at once. Plotly looks through the whole of a figure at each later update, so that ten of them
cost ten figures: what is drawn anew with every move of a dial is made of one dictionary.

Knows the shared look; knows no runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go

from mars_viz.figures.style import Entry, Theme, blank


def made(plain: Mapping[str, Any], changes: Mapping[str, Any], data: Sequence[Mapping[str, Any]] = ()) -> go.Figure:
    """A figure with these traces; its layout is `plain` but for `changes`, which may name a part of a part only.

    Plotly is not asked to check every property, which takes two thirds of the time; the tests do.
    """
    return go.Figure(data=list(data), layout=_changed(plain, changes), _validate=False)


@lru_cache(16)
def plain_layout(theme: Theme, key: tuple[Entry, ...], x: str = "", y: str = "") -> Mapping[str, Any]:
    """The layout of `blank` without a title, as a dictionary for `made`; its first annotation is the key."""
    found: dict[str, Any] = blank("", theme, x, y, key).to_plotly_json()["layout"]
    found.pop("template", None)  # every figure gets it again
    return found


def _changed(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(plain) | {
        name: _changed(plain.get(name, {}), value) if isinstance(value, Mapping) else value
        for name, value in changes.items()
    }
