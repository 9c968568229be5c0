"""Acceptance of one and several drafted children by depth, for the rules that verify siblings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.branching import Branching
from mars_viz.figures.style import HEIGHT, Entry, Theme, add_note, blank, key_words, set_wide_title
from mars_viz.words import number

NAMED = "recursive, distinct"  # the rule in the title; used for the default trees
LINE = 17  # height of a line of the key in pixels
TITLE_WIDTH = 56  # characters per title line that fit on a phone
COUNTS = {2: "Two", 3: "Three", 4: "Four"}


@dataclass(frozen=True, slots=True)
class _Look:
    mark: str
    symbol: str  # Plotly's name
    dash: str
    colour: str


def branch_acceptance(found: Branching, theme: Theme) -> go.Figure:
    """Return the chance that a child is accepted, by depth; one line per rule, and one for a single child."""
    looks = {
        "one child": _Look("○", "circle-open", "solid", theme.muted),
        "naive, i.i.d.": _Look("×", "x", "dot", theme.muted),
        "recursive, i.i.d.": _Look("■", "square", "dashdot", theme.rejected),
        "k-SEQ, i.i.d.": _Look("◆", "diamond", "dash", theme.relaxed),
        NAMED: _Look("●", "circle", "solid", theme.dial),
        "best possible, i.i.d.": _Look("▲", "triangle-up", "longdash", theme.ink),
    }
    figure = blank("", theme, "depth in the block", "chance that a child is kept")
    entries = [Entry(look.mark, look.colour, name) for name, look in looks.items()]
    lines = [key_words(entries[at : at + 2]) for at in range(0, len(entries), 2)]
    add_note(figure, "<br>".join(lines), markup=True)
    values = {"one child": found.alone, **found.acceptance}
    for name, look in looks.items():
        figure.add_scatter(
            x=found.depths,
            y=values[name],
            customdata=np.stack([values[name] - found.alone, 100 * found.reached], axis=1),
            mode="lines+markers",
            line={"color": look.colour, "dash": look.dash, "width": 2},
            marker={"symbol": look.symbol, "size": 8, "color": look.colour},
            hovertemplate=f"{name}, depth %{{x}}: %{{y:.3f}}<br>over one child %{{customdata[0]:+.3f}}; "
            "%{customdata[1]:.0f} % of the blocks get here<extra></extra>",
            name=name,
        )
    lowest = min(float(each.min()) for each in values.values())
    figure.update_xaxes(dtick=max(1, round(len(found.depths) / 12)), range=[0.7, float(found.depths[-1]) + 0.3])
    figure.update_yaxes(range=[max(0.0, np.floor(10 * lowest - 0.2) / 10), 1.02])
    height = HEIGHT + LINE * len(lines)
    set_wide_title(figure, _title(found), height, TITLE_WIDTH)
    figure.update_layout(margin={"t": figure.layout.margin.t + LINE * (len(lines) - 1) + 8})
    return figure


def _title(found: Branching) -> str:
    gains, count = found.gains(NAMED), COUNTS[found.children]
    most = int(gains.argmax())
    if gains[most] < 0.0005:
        return f"{count} children keep nothing more than one at any depth (modelled)"
    several, single = (number(float(each[most])) for each in (found.acceptance[NAMED], found.alone))
    return (
        f"{count} distinct children pay most at depth {found.depths[most]}: one is kept with a chance of {several}, a "
        f"single child with {single} (modelled)"
    )
