"""Text that came from a file, a prompt, a model or a link, escaped for the place that shows it. The only way there.

Everywhere, characters that cannot be seen and could steer what is around them (controls, marks of direction) are shown
by their code points. Knows no page and no figure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from html import escape

JOINERS = "\u200c\u200d"
"""Format characters that words and emoji are written with."""
_ISOLATED = re.compile("(\u2068)([^\u2066-\u2069]*)(\u2069)")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_WORD_JOINER = "\u2060"  # no width, and no line is broken at it


class Html(str):
    """Markup of our own, in which all other text went through `html`."""

    __slots__ = ()


def codepoint(char: str) -> str:
    """'U+202E'."""
    return f"U+{ord(char):04X}"


def visible(text: str) -> str:
    """The text, with what would act unseen spelled out; line breaks, tabs, joiners, and isolates that are closed stay.

    >>> visible("a\\u202eb\\x1b[2J")
    'aU+202EbU+001B[2J'
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    parts = _ISOLATED.split(text)  # text, then opening, inside, closing and text again
    return "".join(part if place % 4 in (1, 3) else "".join(map(_seen, part)) for place, part in enumerate(parts))


def unseen(char: str) -> bool:
    """True of a character that nobody sees: one that steers, or a joiner."""
    return unicodedata.category(char) in _UNSEEN


def undrawn(char: str) -> bool:
    """True of what no font draws: unseen, private, or no character at all, which XML does not hold."""
    return unseen(char) or unicodedata.category(char).startswith("C")


def steers(char: str) -> bool:
    """True of a character that is not seen and acts: a control, a line's end, a mark of direction; not of a joiner."""
    return unseen(char) and char not in JOINERS


def _seen(char: str) -> str:
    return codepoint(char) if steers(char) and char not in "\n\t" else char


def isolated(text: str) -> str:
    """The text for the midst of a sentence: letters that run from right to left do not reorder the words around it."""
    return f"\u2068{''.join(map(_seen, text))}\u2069"


def html(text: str) -> Html:
    """For HTML and SVG, between tags and in quoted attributes. What is `Html` already stays as it is."""
    return text if isinstance(text, Html) else Html(escape(visible(text)))


def joined(parts: Iterable[Html]) -> Html:
    """Markup one after the other."""
    return Html("".join(map(html, parts)))


def figure(text: str) -> str:
    """For titles, labels and hovers of Plotly, which knows a few tags and fewer entities, and fills in '%{…}'."""
    return escape(visible(text), quote=False).replace("%{", f"%{_WORD_JOINER}{{")


# What begins something in Markdown: wherever it stands, or where a line begins.
_MARKS = re.compile(r"[\\`*_\[\]<>~$|&]|^[-+](?=[\s-]|$)|^[#=]|^\d+(?=[.)](?:\s|$))")
_DRAWN = re.compile(r"(?<=[-<>=~])(?=[-<>=])")  # arrows and signs that Streamlit draws anew
_LINKED = re.compile(r":(?=[^\s\d])|@|www(?=\.)", re.IGNORECASE)  # addresses, icons and coloured text


def commonmark(text: str) -> str:
    """For Markdown files: one paragraph, or a cell of a table, shown as it is written."""
    return _marked(" ".join(visible(text).split()))


def markdown(text: str) -> str:
    """For whatever Streamlit reads as Markdown: captions, labels, help, errors. As `commonmark`, and what Streamlit
    looks for in the text besides (addresses, `:icons:`, arrows) is broken by a character without width."""
    broken = _LINKED.sub(lambda found: found[0] + _WORD_JOINER, visible(text))
    return _marked(re.sub(r"[ \t\n]+", " ", _DRAWN.sub(_WORD_JOINER, broken)).strip(" "))


def _marked(line: str) -> str:
    return _MARKS.sub(lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", line)
