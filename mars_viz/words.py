"""Format numbers, counts, tokens and devices for figures and sentences. Untrusted text is escaped."""

import math
import re
from collections.abc import Callable, Sequence

from mars_viz.escapes import codepoint, figure, undrawn

THIN_SPACE = "\u202f"  # narrow no-break space, between thousands and before units


def number(value: float, decimals: int = 3) -> str:
    """Format three significant digits of a fraction and all digits of an integer, with thin spaces between thousands.

    At most `decimals` decimals, or up to three to reach the first nonzero digit.
    """
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if float(value).is_integer() or size >= 999.5:
        return f"{round(value):,}".replace(",", THIN_SPACE).replace("-", "−")
    places = max(decimals, min(3, -math.floor(math.log10(size))))
    places = min(places, 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3)
    return f"{round(value, places) + 0.0:.{places}f}".replace("-", "−")


def times(value: float, decimals: int = 3) -> str:
    """Format a ratio before '×'; near 1 with a digit more, so that the direction stays visible: 1.004."""
    return f"{value:.3f}" if 0.0005 <= abs(value - 1) < 0.0095 and decimals >= 3 else number(value, decimals)


def decimals_within(low: float, high: float) -> int:
    """Return the decimals that an interval supports: two significant digits of half its width. 3 without one."""
    half = (high - low) / 2
    return max(0, 1 - math.floor(math.log10(half))) if 0 < half < math.inf else 3


def ranged(
    values: Sequence[float], unit: str = "", *, words: Callable[[float, int], str] = number, signed: bool = False
) -> str:
    """Format an estimate and its interval as '12.3 points (10.1 to 14.0)', with the decimals that the interval
    supports.

    The estimate alone without an interval. `signed` marks positive values.
    """
    decimals = decimals_within(*values[1:])
    estimate, low, high = ("+" * (signed and value > 0) + words(value, decimals) for value in values)
    return estimate + unit + ("" if math.isnan(values[1] + values[2]) else f" ({low} to {high})")


def counted(count: int, noun: str) -> str:
    """Format a count, such as '1 round' or '3 rounds'."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def exactly(value: float) -> str:
    """Return the shortest text that reads back as this number: '0.9', '0.98765'.

    Rounding could move a dial value across a breakpoint, to another text.
    """
    text = f"{value:.4g}"
    text = text if float(text) == value else repr(float(value))
    return text.removesuffix(".0")


def number_in(text: str) -> float | None:
    """Parse a finite number; None if it is invalid."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole_in(text: str, below: int = 10**9) -> int | None:
    """Parse a nonnegative integer below the bound; None if it is invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(below)) else None


def exact_setting(symbol: str, value: float) -> str:
    """Format the exact value with at least two decimals: 'θ = 0.90', 'θ = 0.98765'."""
    return setting(symbol, value) if round(value, 4) == value else f"{symbol} = {exactly(value)}"


def setting(symbol: str, value: float) -> str:
    """Format with two decimals, and up to four if needed: 'θ = 0.90'. Draft lengths have none: 'γ = 3'."""
    if symbol == "γ":
        return f"γ = {value:g}"
    text = f"{value:.4f}".rstrip("0")
    integer, _, decimals = text.partition(".")
    return f"{symbol} = {integer}.{decimals.ljust(2, '0')}"


_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
LONGEST = 14  # characters of a label


def clipped(text: str, most: int = 20) -> str:
    """Shorten a text for quotation."""
    return text if len(text) <= most else text[: most - 1] + "…"


def token_label(text: str, longest: int = LONGEST) -> str:
    """Return `shown_token`, escaped for a figure."""
    return figure(shown_token(text, longest))


def shown_token(text: str, longest: int = LONGEST) -> str:
    """Return the text with marks for whitespace and code points for control characters, truncated."""
    shown = (_VISIBLE.get(char) or (codepoint(char) if undrawn(char) else char) for char in clipped(text, longest))
    return "".join(shown) or "(empty)"


_NOISE = re.compile(
    r"\((?:R|TM|C)\)|[®™©]"  # marks
    r"|@ *\d+(?:\.\d+)? *[GM]Hz"  # the base clock, which does not indicate speed
    r"|\b(?:CPU|Processor|\d+-Core)\b",
    re.IGNORECASE,
)


def short_device(name: str) -> str:
    """Return 'Intel Xeon, 2 threads' for 'Intel(R) Xeon(R) Processor @ 2.00GHz, 2 threads'.

    Text after a comma, and a name that would become empty, are unchanged. Show the full name in a tooltip.
    """
    device, comma, more = name.partition(",")
    plain = " ".join(_NOISE.sub(" ", device).split())
    return f"{plain}{comma}{more}" if plain else name
