"""A result as a document: blocks that every surface shows in its own way.

A result's sentences and tables are built once. `markdown` and `lines` render them as Markdown and for a terminal;
`ui.documents` draws them on a page. All text is plain: the renderers escape it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mars_viz.escapes import Html, commonmark, html, joined

BASES = {
    "exact": "Exact: counted on the very texts that this setting generates.",
    "block-local": "Block-local: rounds are judged on the recorded text before them, not on a text that would follow.",
    "modelled": "Modelled: counted passes times the measured cost of a pass on this device; not wall clock.",
    "measured": "Measured: wall clock, on this device, in turn.",
}
"""Basis of a number, with its meaning."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One or more sentences."""

    text: str
    basis: str = ""  # one of BASES; empty if it has no number
    small: bool = False  # a remark
    more: str = ""  # shown on hover on pages, in place of the basis's meaning


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under heads."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    key: str = "table"  # name of the widget and of a saved file
    alt: str = ""  # its content in words, for those who do not see it
    help: Mapping[str, str] = field(default_factory=dict)  # explanation of columns, shown on hover


@dataclass(frozen=True, slots=True)
class Facts:
    """Short texts by name."""

    facts: Mapping[str, str]

    @property
    def html(self) -> Html:
        """A description list."""
        rows = (
            Html(f"<div><dt>{html(name)}</dt><dd><bdi>{html(text)}</bdi></dd></div>")
            for name, text in self.facts.items()
        )
        return Html(f'<dl class="facts">{joined(rows)}</dl>\n')


@dataclass(frozen=True, slots=True)
class Code:
    """A command or a file's content."""

    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]


Block = Sentence | Table | Facts | Code | Section


def markdown(blocks: Iterable[Block], level: int = 2) -> str:
    """Return the blocks as Markdown; sections have headings of this level."""
    return "\n\n".join(_markdown(blocks, level))


def _markdown(blocks: Iterable[Block], level: int) -> Iterator[str]:
    for block in blocks:
        match block:
            case Sentence():
                yield commonmark(block.text)
            case Table():
                first, *others = (f"| {' | '.join(map(commonmark, line))} |" for line in [block.heads, *block.rows])
                yield "\n".join([first, f"|{' --- |' * len(block.heads)}", *others])
            case Facts(facts):
                yield "\n".join(f"- {commonmark(name)}: {commonmark(text)}" for name, text in facts.items())
            case Code():
                yield f"```\n{block.text}\n```"
            case Section():
                yield from (f"{'#' * level} {commonmark(block.title)}", *_markdown(block.blocks, level + 1))


def lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the blocks as lines for a terminal; columns of tables are aligned, the first to the left."""
    for block in blocks:
        match block:
            case Sentence():
                yield block.text
            case Table():
                cells = [list(map(str, line)) for line in [block.heads, *block.rows]]
                widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
                for first, *others in cells:
                    aligned = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
                    yield "  ".join([f"{first:<{widths[0]}}", *aligned]).rstrip()
            case Facts(facts):
                yield from (f"    {name}: {text}" for name, text in facts.items())
            case Code():
                yield from block.text.splitlines()
            case Section():
                yield from ("", block.title, *lines(block.blocks))
