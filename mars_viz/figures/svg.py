"""Small SVG pictures without text for cards.

A picture stretches to its box and is described by nearby text. Outcomes are never shown by colour alone: bars of
rolled-back tokens are below the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from mars_viz.records import Outcome
from mars_viz.run import Run

_WIDE, _HIGH = 320.0, 44.0  # view box in SVG units; the picture is stretched to its box
QUIET, BLUE, AMBER, RED = "#94A3B8", "#0072B2", "#E69F00", "#D55E00"
"""Colours without emphasis, of the reader or target, of relaxed tokens, and of losses."""


Part = tuple[float, str]  # size of a part of a bar, in the unit of the whole picture, and its colour


Line = tuple[np.ndarray, np.ndarray, str, bool]
"""x [N], ascending, and y [N], where NaN interrupts the line; colour, and True for a dashed reference line."""


def stacked_bars(bars: Sequence[Sequence[Part]]) -> str:
    """Return bars next to each other, the parts of each stacked from the bottom."""
    top = max((sum(size for size, _ in bar) for bar in bars), default=0.0) or 1.0
    step = _WIDE / max(len(bars), 1)
    drawn = []
    for place, bar in enumerate(bars):
        below = 0.0
        for size, colour in bar:
            tall = _HIGH * size / top
            drawn.append(_box(place * step, _HIGH - below - tall, 0.82 * step, tall, colour))
            below += tall
    return _svg(drawn)


def lines(drawn: Sequence[Line], top: float, bands: Sequence[tuple[float, float, str]] = ()) -> str:
    """Return lines over one range, clipped to 0 to `top`. `bands` are both ends and the colour of coloured ranges."""
    low, high = min(float(x[0]) for x, *_ in drawn), max(float(x[-1]) for x, *_ in drawn)

    def across(x: float) -> float:
        return _WIDE * (x - low) / (high - low)

    parts = [
        _box(across(start), 0.0, across(end) - across(start), _HIGH, colour, opacity=0.35)
        for start, end, colour in bands
    ]
    for x, y, colour, dashed in drawn:
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        inside = np.isfinite(y) & (y <= top) & (y >= 0)
        for piece in np.split(np.arange(len(x)), np.flatnonzero(np.diff(inside)) + 1):
            if len(piece) > 1 and inside[piece[0]]:
                points = " ".join(f"{across(x[i]):.1f},{_HIGH * (1 - y[i] / top):.1f}" for i in piece)
                parts.append(
                    f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
                    f'vector-effect="non-scaling-stroke"{dash}/>'
                )
    return _svg(parts)


def _box(x: float, y: float, wide: float, tall: float, colour: str, opacity: float = 1.0) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}" fill="{colour}" '
        f'fill-opacity="{opacity:g}"/>'
    )


def _svg(parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:g} {_HIGH:g}" preserveAspectRatio="none">'
        f"{''.join(parts)}</svg>"
    )


BARS = {
    Outcome.MATCHED: ("#94A3B8", 0.55),
    Outcome.RELAXED: ("#E69F00", 1.0),
    Outcome.REJECTED: ("#D55E00", -1.0),
    Outcome.DISCARDED: ("#CBD5E1", -0.5),
    Outcome.CORRECTED: ("#0072B2", 0.8),
    Outcome.BONUS: ("#009E73", 0.8),
}
"""Colour of each outcome's bar on any background, and its height as a share of the space above the line, or below it if
negative."""


def token_bars(run: Run, *, most: int = 96) -> str:
    """Return the first `most` tokens of the recorded text as bars."""
    outcomes = list(islice(_outcomes(run), most))
    step, middle = _WIDE / max(len(outcomes), 1), _HIGH * 0.62
    bars = []
    for index, outcome in enumerate(outcomes):
        colour, height = BARS[outcome]
        tall = height * (middle if height > 0 else _HIGH - middle)
        bars.append(_box(index * step, middle - max(tall, 0), 0.8 * step, abs(tall), colour))
    return _svg(bars)


def _outcomes(run: Run) -> Iterator[Outcome]:
    """Yield the outcome of each token in reading order: the draft, then the target's token. For a tree, only the path
    and the tokens rejected at its end."""
    for round_ in run.rounds:
        path = [*round_.decision.kept[: round_.kept], *round_.stopped_by]
        nodes = path if round_.speculation.is_tree else range(len(round_.speculation))
        yield from (round_.outcomes[node] for node in nodes)
        if round_.emission is not None:
            yield round_.emission
