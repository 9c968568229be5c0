"""Escape untrusted text for HTML, Plotly, Markdown and SVG. All output of untrusted text uses these functions.

Invisible characters that affect surrounding text (controls, directional marks) are replaced by their code points.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from html import escape

JOINERS = "\u200c\u200d"  # format characters used in words and emoji
_ISOLATED = re.compile("(\u2068)([^\u2066-\u2069]*)(\u2069)")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_WORD_JOINER = "\u2060"  # zero width, prevents line breaks


class Html(str):
    """Trusted markup, in which all other text was passed through `html`."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def codepoint(char: str) -> str:
    """Return the code point, such as 'U+202E'."""
    return f"U+{ord(char):04X}"


def visible(text: str) -> str:
    """Replace invisible control characters by code points; line breaks, tabs, joiners and closed isolates stay.

    >>> visible("a\\u202eb\\x1b[2J")
    'aU+202EbU+001B[2J'
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    parts = _ISOLATED.split(text)  # text, then opening, content, closing and text again
    return "".join(part if place % 4 in (1, 3) else "".join(map(_seen, part)) for place, part in enumerate(parts))


def unseen(char: str) -> bool:
    """True for an invisible character: control or joiner."""
    return unicodedata.category(char) in _UNSEEN


def undrawn(char: str) -> bool:
    """True for characters without a glyph: invisible, private-use, unassigned, or invalid in XML."""
    return unseen(char) or unicodedata.category(char).startswith("C")


def steers(char: str) -> bool:
    """True for an invisible character with an effect: control, line separator or directional mark, but not a joiner."""
    return unseen(char) and char not in JOINERS


def _seen(char: str) -> str:
    return codepoint(char) if steers(char) and char not in "\n\t" else char


def isolated(text: str) -> str:
    """Return the text for use inside a sentence; right-to-left letters do not reorder surrounding words."""
    return f"\u2068{''.join(map(_seen, text))}\u2069"


def html(text: str) -> Html:
    """Escape for HTML and SVG text and quoted attributes; `Html` is returned unchanged."""
    return text if isinstance(text, Html) else Html(escape(visible(text)))


def marked_up(text: Html, marks: Mapping[str, str | Callable[[re.Match[str]], str]]) -> Html:
    """Return escaped text in which patterns are replaced by markup, which must be the product's own."""
    for pattern, markup in marks.items():
        text = Html(re.sub(pattern, markup, text))
    return text


def joined(parts: Iterable[Html]) -> Html:
    """Concatenate markup."""
    return Html("".join(map(html, parts)))


def figure(text: str) -> str:
    """Escape for Plotly's titles, labels and hovers, which interpret some tags and entities and '%{…}'."""
    return escape(visible(text), quote=False).replace("%{", f"%{_WORD_JOINER}{{")


# Markdown syntax: anywhere, or at the start of a line.
_MARKS = re.compile(r"[\\`*_\[\]<>~$|&]|^[-+](?=[\s-]|$)|^[#=]|^\d+(?=[.)](?:\s|$))")
_DRAWN = re.compile(r"(?<=[-<>=~])(?=[-<>=])")  # arrows and signs that Streamlit replaces
_LINKED = re.compile(r":(?=[^\s\d])|@|www(?=\.)", re.IGNORECASE)  # URLs, icons and coloured text


def commonmark(text: str) -> str:
    """Escape for Markdown files, as one paragraph or table cell."""
    return _one_line(visible(text))


def markdown(text: str) -> str:
    """Escape for Streamlit's Markdown: captions, labels, help, errors.

    As `commonmark`, with zero-width characters inside Streamlit's own syntax (URLs, `:icons:`, arrows).
    """
    broken = _LINKED.sub(lambda found: found[0] + _WORD_JOINER, visible(text))
    return _one_line(_DRAWN.sub(_WORD_JOINER, broken))


def _one_line(text: str) -> str:
    line = re.sub(r"[ \t\n]+", " ", text).strip(" ")  # other spaces stay, such as those in numbers
    return _MARKS.sub(lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", line)
