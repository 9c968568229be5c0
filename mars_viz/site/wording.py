"""Convert the lessons' Markdown to HTML: bold, italics, code, links, and simple TeX formulas.

Other Markdown is not supported. All text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mars_viz.escapes import Html, html, joined

_MARKED = re.compile(
    r"\*\*(?P<bold>.+?)\*\*|\*(?P<italic>[^*]+)\*|`(?P<code>[^`]+)`|\$(?P<formula>[^$]+)\$"
    r"|\[(?P<words>[^\]]+)\]\((?P<address>https://[^)\s\"]+)\)"
)
_ARGUMENT = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION = re.compile(rf"\\dfrac{_ARGUMENT}{_ARGUMENT}")
_RAISED = re.compile(r"\^\{([^{}]*)\}")
_SIGNS = {"\\alpha": "α", "\\gamma": "γ", "-": " − ", "+": " + "}


def worded(text: str) -> Html:
    """Return a paragraph's HTML without the enclosing tags."""
    return joined(_parts(text))


def _parts(text: str) -> Iterator[Html]:
    at = 0
    for match in _MARKED.finditer(text):
        yield html(text[at : match.start()])
        yield _marked(match)
        at = match.end()
    yield html(text[at:])


def _marked(found: re.Match[str]) -> Html:
    match found.lastgroup:
        case "bold":
            return Html(f"<strong>{html(worded(found['bold']))}</strong>")
        case "italic":
            return Html(f"<em>{html(found['italic'])}</em>")
        case "code":
            return Html(f"<code>{html(found['code'])}</code>")
        case "formula":
            return Html(f'<span class="formula">{joined(_formula(found["formula"]))}</span>')
    return Html(f'<a href="{html(found["address"])}" rel="noopener">{html(found["words"])}</a>')


def _formula(tex: str) -> Iterator[Html]:
    """Yield a formula as one line; fractions become quotients."""
    line = _FRACTION.sub(lambda found: f"({found[1]}) / ({found[2]})", tex)
    for name, sign in _SIGNS.items():
        line = line.replace(name, sign)
    for place, part in enumerate(_RAISED.split(line)):
        yield Html(f"<sup>{html(part)}</sup>") if place % 2 else html(part)
