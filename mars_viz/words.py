"""Numbers, counts, tokens and devices in words, the same in every figure and sentence. Text is data: escaped."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from mars_viz.escapes import codepoint, figure, undrawn

THIN_SPACE = "\u202f"
"""Between thousands, and between a number and its unit: a thin space that no line is broken at."""


def number(value: float, decimals: int = 3) -> str:
    """Three significant digits of a fraction, with at most so many `decimals` behind its first digit that is no 0;
    every digit of a whole number, thin spaces in thousands."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if float(value).is_integer() or size >= 999.5:
        return f"{round(value):,}".replace(",", THIN_SPACE).replace("-", "−")
    places = max(decimals, min(3, -math.floor(math.log10(size))))
    places = min(places, 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3)
    return f"{round(value, places) + 0.0:.{places}f}".replace("-", "−")


def times(value: float, decimals: int = 3) -> str:
    """A ratio to say '×' after; a digit more where it is so near 1 that three would hide on which side: 1.004."""
    return f"{value:.3f}" if 0.0005 <= abs(value - 1) < 0.0095 and decimals >= 3 else number(value, decimals)


def decimals_within(low: float, high: float) -> int:
    """Return the decimals that an interval supports: two significant digits of half its width. 3 without one."""
    half = (high - low) / 2
    return max(0, 1 - math.floor(math.log10(half))) if 0 < half < math.inf else 3


def ranged(
    values: Sequence[float], unit: str = "", *, words: Callable[[float, int], str] = number, signed: bool = False
) -> str:
    """Return '12.3 points (10.1 to 14.0)' of an estimate and the ends of its interval, with the decimals that the
    interval supports; the estimate alone without one. `signed` marks values above 0."""
    decimals = decimals_within(*values[1:])
    estimate, low, high = ("+" * (signed and value > 0) + words(value, decimals) for value in values)
    return estimate + unit + ("" if math.isnan(values[1] + values[2]) else f" ({low} to {high})")


def counted(count: int, noun: str) -> str:
    """'1 round', '3 rounds'."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def exactly(value: float) -> str:
    """'0.9', '0.98765': the shortest text that reads back as this very number, since rounding could carry a dial value
    over a boundary, to another text than the one spoken of."""
    text = f"{value:.4g}"
    text = text if float(text) == value else repr(float(value))
    return text.removesuffix(".0")


def number_in(text: str) -> float | None:
    """The finite number that a text says, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole_in(text: str, below: int = 10**9) -> int | None:
    """The whole number below that bound which a parameter says, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(below)) else None


def exact_setting(symbol: str, value: float) -> str:
    """'θ = 0.90', 'θ = 0.98765': the very value, with at least two decimals."""
    return setting(symbol, value) if round(value, 4) == value else f"{symbol} = {exactly(value)}"


def setting(symbol: str, value: float) -> str:
    """'θ = 0.90': two decimals, more only where they are needed."""
    text = f"{value:.4f}".rstrip("0")
    whole, _, decimals = text.partition(".")
    return f"{symbol} = {whole}.{decimals.ljust(2, '0')}"


_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
LONGEST = 14
"""Characters of a label."""


def token_label(text: str, longest: int = LONGEST) -> str:
    """`shown_token`, escaped for a figure."""
    return figure(shown_token(text, longest))


def shown_token(text: str, longest: int = LONGEST) -> str:
    """The text with whitespace as marks and control characters as code points, and cut."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(map(_seen, cut)) or "(empty)"


def _seen(char: str) -> str:
    if char in _VISIBLE:
        return _VISIBLE[char]
    return codepoint(char) if undrawn(char) else char


_NOISE = re.compile(
    r"\((?:R|TM|C)\)|[®™©]"  # marks
    r"|@ *\d+(?:\.\d+)? *[GM]Hz"  # the clock at rest, which says nothing of its pace
    r"|\b(?:CPU|Processor|\d+-Core)\b",
    re.IGNORECASE,
)


def short_device(name: str) -> str:
    """'Intel Xeon, 2 threads' for 'Intel(R) Xeon(R) Processor @ 2.00GHz, 2 threads'. What follows a comma, and a name
    that would be left empty, stay as they are; the full one belongs in the tooltip."""
    device, comma, more = name.partition(",")
    plain = " ".join(_NOISE.sub(" ", device).split())
    return f"{plain}{comma}{more}" if plain else name
