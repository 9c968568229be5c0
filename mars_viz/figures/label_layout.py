"""Where names stand beside their points so that none lies on another. Knows rectangles in pixels; draws nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTHS = (270, 680, 1160)
"""Pixels of a plot on a phone, on a tablet and on a desk: a figure is drawn before anybody knows which."""
_LETTER, _LINE = 0.53, 1.25
"""Of the font's size: the mean width of a character, and the height of a line."""
_LEVELS = 6
"""Lines above and below its point that a name may stand on."""
_MARK = 9
"""Pixels around a point that a name keeps free."""

Box = tuple[float, float, float, float]
"""Left, right, bottom and top, in pixels from the plot's lower left corner."""


@dataclass(frozen=True, slots=True)
class Label:
    """A name and its point."""

    text: str
    """What it reads, without markup."""
    x: float
    """The point's place from the plot's left, 0 to 1."""
    y: float
    """From its lower end, 0 to 1."""
    size: int = 12
    """Of the font, pixels."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a name stands, as Plotly's annotations say it."""

    xanchor: str
    """'left' puts it right of its point, 'right' left of it."""
    yanchor: str
    """'bottom' puts it above its point, 'top' below it."""
    xshift: int
    """Pixels to the right."""
    yshift: int
    """Pixels upwards."""


def spots(labels: Sequence[Label], height: float, taken: Sequence[Label] = ()) -> list[Spot]:
    """A spot for each label in order, on a plot so many pixels high: the first that neither covers another name, a
    point or what is `taken`, nor leaves the plot, whatever its width; else the one that covers least. What is `taken`
    stands left of its place and above it.
    """
    fixed = Spot("right", "bottom", -3, 0)
    placed = [(each, fixed) for each in taken]
    found: list[Spot] = []
    for label in labels:
        best = min(_candidates(label), key=lambda spot: _covered(label, spot, placed, labels, height))
        placed.append((label, best))
        found.append(best)
    return found


def _candidates(label: Label) -> Iterator[Spot]:
    """The nearest first."""
    step = round(_LINE * label.size)
    for level in range(_LEVELS):
        for yanchor, yshift in (("bottom", 3 + step * level), ("top", -3 - step * level)):
            yield Spot("left", yanchor, _MARK, yshift)
            yield Spot("right", yanchor, -_MARK, yshift)
            yield Spot("center", yanchor, 0, yshift + (_MARK if yshift > 0 else -_MARK))


def _covered(
    label: Label, spot: Spot, placed: Sequence[tuple[Label, Spot]], points: Sequence[Label], height: float
) -> float:
    """Pixels that lie on others or outside, over all widths."""
    area = 0.0
    for width in WIDTHS:
        own = _box(label, spot, width, height)
        others = [_box(each, there, width, height) for each, there in placed]
        for each in points:
            x, y = each.x * width, each.y * height
            others.append((x - _MARK, x + _MARK, y - _MARK, y + _MARK))
        inside = _overlap(own, (0, width, 0, height))
        area += (own[1] - own[0]) * (own[3] - own[2]) - inside + sum(_overlap(own, other) for other in others)
    return area


def _box(label: Label, spot: Spot, width: float, height: float) -> Box:
    wide, high = _LETTER * label.size * len(label.text), _LINE * label.size
    x, y = label.x * width + spot.xshift, label.y * height + spot.yshift
    left = x - {"left": 0.0, "center": wide / 2, "right": wide}[spot.xanchor]
    bottom = y - (0.0 if spot.yanchor == "bottom" else high)
    return left, left + wide, bottom, bottom + high


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[1], other[1]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[2], other[2])
    return max(0.0, wide) * max(0.0, high)
