"""Draws the result and the tables of the Compare page. All text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mars_viz.analysis.differences import Difference
from mars_viz.escapes import Html, html, joined
from mars_viz.ui import theme
from mars_viz.ui.compare.compare_words import MEANING, Names, change, short_names, written
from mars_viz.ui.compare.sweep_pair import SweepRow, words

_STYLE = """
.mv-lead { margin: 0; font-size: 1.12rem; line-height: 1.55; unicode-bidi: plaintext; overflow-wrap: anywhere; }
.mv-tag { font-size: .78rem; padding: .05rem .45rem; border-radius: 1rem; border: 1px solid currentColor; opacity: .75;
  white-space: nowrap; cursor: help; vertical-align: .1em; }
.mv-scroll { overflow-x: auto; }
.mv-table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }
.mv-table :is(th, td) { padding: .28rem .7rem; text-align: right; font-weight: 400; border: 0;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); }
.mv-table :is(th, td):first-child { text-align: left; padding-left: 0; }
.mv-table thead th { opacity: .75; font-size: .85rem; vertical-align: bottom; overflow-wrap: anywhere; }
.mv-table tbody th { cursor: help; white-space: nowrap; }
.mv-table td { white-space: nowrap; }
.mv-table .change { font-weight: 600; }
@media (max-width: 1000px) { /* intervals are wide: names take two lines before a column is lost */
  .mv-table tbody th { white-space: normal; }
  .mv-table :is(th, td) { padding-left: .3rem; padding-right: .3rem; }
  .mv-table :is(th, td):last-child { padding-right: 0; }
}
@media (max-width: 700px) {
  .mv-table, .mv-table tbody { display: block; }
  .mv-table thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .mv-table tr { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 1rem; padding: .35rem 0;
    border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); }
  .mv-table tbody :is(th, td) { border: 0; padding: .05rem 0; text-align: left; white-space: normal; }
  .mv-table tbody th { font-weight: 600; }
  .mv-table tbody td:last-child { grid-row: 1; grid-column: 2; text-align: right; }
  .mv-table tbody .change { grid-column: 1 / -1; }
  .mv-table td[data-name]::before { content: attr(data-name) ": "; opacity: .75; font-weight: 400; }
  .mv-table.intervals td[data-name]:not(.change)::before { content: attr(data-name); display: block;
    font-size: .85rem; }
}
"""


def style() -> None:
    """Draw the page's style sheet."""
    theme.show(Html(f"<style>{_STYLE}</style>"))


def tag(stands: str) -> Html:
    """Return the basis of a number as HTML."""
    return Html(f'<span class="mv-tag" title="{html(MEANING[stands])}">{html(stands)}</span>')


def lead(sentence: str, stands: str = "exact") -> None:
    """Draw the main result and its basis."""
    theme.show(Html(f'<p class="mv-lead" role="status">{html(sentence)} {html(tag(stands))}</p>'))


def table(rows: Sequence[Difference], names: Names) -> None:
    """Draw the numbers of both texts."""
    _table(
        "Both texts in numbers",
        names,
        [
            _TableLine(
                row.name,
                row.meaning,
                written(row.left, row.scale),
                written(row.right, row.scale),
                change(row),
                row.stands.value,
            )
            for row in rows
        ],
    )


def frame(rows: Sequence[Difference], names: Names) -> pd.DataFrame:
    """Return the same numbers for a file; shares are fractions."""
    return pd.DataFrame(
        [
            {
                "number": row.name,
                names.left: row.left,
                names.right: row.right,
                "difference": row.change,
                "stands on": row.stands.value,
            }
            for row in rows
        ]
    )


def sweep_table(rows: Sequence[SweepRow], names: Names) -> None:
    """Draw the numbers of both dial values with intervals."""
    _table(
        "Both dial values over all prompts",
        names,
        [
            _TableLine(
                row.title,
                "",
                words(row.reference, percent=row.percent),
                words(row.other, percent=row.percent),
                words(row.change, signed=True, percent=row.percent),
                "modelled" if row.modelled else "exact",
            )
            for row in rows
        ],
        "intervals",
    )


@dataclass(frozen=True, slots=True)
class _TableLine:
    name: str
    meaning: str
    left: str
    right: str
    change: str
    stands: str


def _table(label: str, names: Names, lines: Sequence[_TableLine], kind: str = "") -> None:
    left, right = short_names(names)
    body = joined(
        Html(
            f'<tr><th scope="row" title="{html(line.meaning)}">{html(line.name)}</th>'
            f'<td data-name="{html(left)}">{html(line.left)}</td>'
            f'<td data-name="{html(right)}">{html(line.right)}</td>'
            f'<td class="change" data-name="difference">{html(line.change)}</td><td>{html(tag(line.stands))}</td></tr>'
        )
        for line in lines
    )
    heads = joined(Html(f'<th scope="col">{html(name)}</th>') for name in (names.left, names.right))
    theme.show(
        Html(
            f'<div class="mv-scroll"><table class="mv-table {html(kind)}" aria-label="{html(label)}"><thead><tr>'
            f'<th scope="col">number</th>{html(heads)}<th scope="col">difference</th><th scope="col">basis</th></tr>'
            f"</thead><tbody>{html(body)}</tbody></table></div>"
        )
    )
