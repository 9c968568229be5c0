"""SVG pictures: small ones without text for cards, and a run's tokens as bars or as a strip of text.

A card's picture stretches to its box and is described by nearby text. Token text is escaped, and characters invalid in
SVG are spelled out. Outcomes are never shown by colour alone: bars of rolled-back tokens are below the line, and tokens
in the strip have the page's marks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mars_viz.analysis.metrics import judged_rounds
from mars_viz.escapes import html
from mars_viz.exploration import checked_gamma, shown
from mars_viz.records import Outcome, Round
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.shapes import length_name
from mars_viz.words import shown_token

_WIDE, _HIGH = 320.0, 44.0  # view box in SVG units; the picture is stretched to its box
QUIET, BLUE, AMBER, RED = "#94A3B8", "#0072B2", "#E69F00", "#D55E00"
"""Colours without emphasis, of the reader or target, of relaxed tokens, and of losses."""


Part = tuple[float, str]  # size of a part of a bar, in the unit of the whole picture, and its colour


def lanes(bars: Sequence[Part]) -> str:
    """Return horizontal bars, one below the other."""
    longest = max((size for size, _ in bars), default=0.0) or 1.0
    step = _HIGH / max(len(bars), 1)
    drawn = enumerate(bars)
    return _svg([_box(0.0, at * step, _WIDE * size / longest, 0.72 * step, colour) for at, (size, colour) in drawn])


def _box(x: float, y: float, wide: float, tall: float, colour: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}" fill="{colour}"/>'


def _svg(parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:g} {_HIGH:g}" preserveAspectRatio="none">'
        f"{''.join(parts)}</svg>"
    )


FONT = "ui-monospace, 'Source Code Pro', 'DejaVu Sans Mono', monospace"
WIDTH = 720  # width of the strip in SVG units, pixels on a screen
CELL, SIZE, LINE = 7.8, 13, 26  # character width, font size and line distance
LONGEST = 24  # displayed characters per token


@dataclass(frozen=True, slots=True)
class _TokenLook:
    ink: str
    ground: str | None
    mark: str
    line: str  # SVG's text-decoration
    bar: str
    height: float  # height of a bar as a share of the space above the line, or below it if negative


LOOKS = {
    Outcome.MATCHED: _TokenLook("#1F2937", None, "", "none", "#94A3B8", 0.55),
    Outcome.RELAXED: _TokenLook("#5C3B00", "#FFE3A3", "◆", "underline", "#E69F00", 1.0),
    Outcome.REJECTED: _TokenLook("#8A1C00", "#FFE0D6", "×", "line-through", "#D55E00", -1.0),
    Outcome.DISCARDED: _TokenLook("#6B7280", None, "", "line-through", "#CBD5E1", -0.5),
    Outcome.CORRECTED: _TokenLook("#0B4A78", "#D6ECFA", "↺", "underline", "#0072B2", 0.8),
    Outcome.BONUS: _TokenLook("#0A5A45", "#D3F1E7", "+", "underline", "#009E73", 0.8),
}
"""Style of each outcome: as text on white, and as a bar on any background."""


def token_bars(run: Run, *, most: int = 96) -> str:
    """Return the first `most` tokens of the recorded text as bars."""
    tokens = list(islice(_tokens(run, run.rounds), most))
    step, middle = _WIDE / max(len(tokens), 1), _HIGH * 0.62
    bars = []
    for index, (_, outcome, _) in enumerate(tokens):
        look = LOOKS[outcome]
        tall = look.height * (middle if look.height > 0 else _HIGH - middle)
        bars.append(_box(index * step, middle - max(tall, 0), 0.8 * step, abs(tall), look.bar))
    return _svg(bars)


def token_strip(run: Run, dial: float | None = None, gamma: int | None = None) -> str:
    """Return the text at a setting, every token with its outcome, as a standalone SVG on white.

    The setting is as in `exploration.shown`. The caption names recorded blocks that are judged at it.
    """
    rule, gamma, (at_setting, at) = rule_named(run.settings.rule), checked_gamma(run, gamma), shown(run, dial, gamma)
    body, height = _laid_out(_tokens(run, judged_rounds(at_setting, at)))
    exact = at_setting is not run or at == rule.checked_dial(run.settings.dial)
    length = f"{length_name(run.settings.tree)} = {gamma if exact else run.settings.gamma}"
    caption = f"{rule.titled(at)}, {length}{'' if exact else ' (block-local)'}"
    legend = "".join(
        f'<tspan dx="14" fill="{look.ink}" text-decoration="{look.line}">{look.mark} {outcome.value}</tspan>'
        for outcome, look in LOOKS.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height + 30}" '
        f'viewBox="0 0 {WIDTH} {height + 30}" font-family="{FONT}" font-size="{SIZE}">\n'
        f"<title>{html(caption)}</title>\n"
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>\n{body}'
        f'<text x="6" y="{height + 18}" font-size="11" fill="#4B5563">{html(caption)}{legend}</text>\n</svg>\n'
    )


def _tokens(run: Run, rounds: Iterable[Round]) -> Iterator[tuple[str, Outcome, bool]]:
    """Yield text and outcome of each token in reading order, with True at the start of a round: the draft, then the
    target's token. For a tree, only the path and the tokens rejected at its end."""
    for round_ in rounds:
        tokens, outcomes = round_.speculation.tokens.tolist(), round_.outcomes
        path = [*round_.decision.kept[: round_.kept], *round_.stopped_by]
        for place, node in enumerate(path if round_.speculation.is_tree else range(len(tokens))):
            yield run.pieces[tokens[node]].text, outcomes[node], place == 0
        if round_.emission is not None:
            yield run.pieces[round_.decision.emitted].text, round_.emission, not len(round_.speculation)


def _laid_out(tokens: Iterable[tuple[str, Outcome, bool]]) -> tuple[str, int]:
    """Return the tokens as SVG, and the height in SVG units."""
    parts, x, y = [], 6.0, LINE
    for text, outcome, first in tokens:
        look, label = LOOKS[outcome], shown_token(text, LONGEST)
        columns = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in label)
        wide = CELL * (columns + len(look.mark))
        if x + wide > WIDTH - 6 and x > 6:
            x, y = 6.0, y + LINE
        if look.ground:
            parts.append(
                f'<rect x="{x:.1f}" y="{y - 14}" width="{wide:.1f}" height="19" rx="3" fill="{look.ground}"/>\n'
            )
        if first:
            parts.append(f'<path d="M{x - 1:.1f} {y + 9}v-4" stroke="#94A3B8"/>\n')
        parts.append(
            f'<text x="{x:.1f}" y="{y}" fill="{look.ink}" text-decoration="{look.line}" textLength="{wide:.1f}" '
            f'lengthAdjust="spacingAndGlyphs" unicode-bidi="isolate" '
            f'xml:space="preserve">{html(label)}{look.mark}</text>\n'
        )
        x += wide + 2
    return "".join(parts), y + 14
