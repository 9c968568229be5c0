"""Small pictures without words, for cards: stacked bars, lines, lanes. Numbers in, an SVG that fills its box out.

Knows numbers and colours; knows no runs, no Plotly and no browser. The colours are those of the tokens' bars, which
show on either ground; what a picture says stands beside it in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 320.0, 44.0
"""SVG's units; the picture is stretched to its box."""
QUIET, BLUE, AMBER, RED = "#94A3B8", "#0072B2", "#E69F00", "#D55E00"
"""What needs no attention, what is the reader's or the target's, what is relaxed, what is lost."""


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar."""

    size: float
    """In the unit of the whole picture."""
    colour: str
    """Of the part."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a picture."""

    x: np.ndarray
    """[N]; ascending."""
    y: np.ndarray
    """[N]; NaN where the line is interrupted."""
    colour: str
    """Of the line."""
    dashed: bool = False
    """True for what the others are measured by."""


@dataclass(frozen=True, slots=True)
class Area:
    """A part of the ground."""

    low: float
    """Its left end."""
    high: float
    """Its right end."""
    colour: str
    """Of the ground."""


def stacked_bars(bars: Sequence[Sequence[BarPart]]) -> str:
    """One bar beside the other, the parts of each from the bottom up."""
    top = max((sum(part.size for part in bar) for bar in bars), default=0.0) or 1.0
    step = WIDTH / max(len(bars), 1)
    drawn = []
    for place, bar in enumerate(bars):
        below = 0.0
        for part in bar:
            tall = HEIGHT * part.size / top
            drawn.append(_box(place * step, HEIGHT - below - tall, 0.82 * step, tall, part.colour))
            below += tall
    return _svg(drawn)


def lanes(bars: Sequence[BarPart]) -> str:
    """Bars that run from left to right, one below the other."""
    longest = max((bar.size for bar in bars), default=0.0) or 1.0
    step = HEIGHT / max(len(bars), 1)
    return _svg(
        [_box(0.0, place * step, WIDTH * bar.size / longest, 0.72 * step, bar.colour) for place, bar in enumerate(bars)]
    )


def lines(drawn: Sequence[Line], top: float, bands: Sequence[Area] = ()) -> str:
    """Lines over one range, from 0 to `top`; what lies above is cut off."""
    low, high = min(float(line.x[0]) for line in drawn), max(float(line.x[-1]) for line in drawn)

    def across(x: float) -> float:
        return WIDTH * (x - low) / (high - low)

    parts = [
        _box(across(band.low), 0.0, across(band.high) - across(band.low), HEIGHT, band.colour, opacity=0.35)
        for band in bands
    ]
    for line in drawn:
        dash = ' stroke-dasharray="4 3"' if line.dashed else ""
        inside = np.isfinite(line.y) & (line.y <= top) & (line.y >= 0)
        for piece in np.split(np.arange(len(line.x)), np.flatnonzero(np.diff(inside)) + 1):
            if len(piece) > 1 and inside[piece[0]]:
                points = " ".join(f"{across(line.x[i]):.1f},{HEIGHT * (1 - line.y[i] / top):.1f}" for i in piece)
                parts.append(
                    f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2" '
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
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none">'
        f"{''.join(parts)}</svg>"
    )
