"""Draws the result and the tables of the Compare page. All text is escaped."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from mars_viz.analysis.alignment import Difference
from mars_viz.escapes import Html, html, joined
from mars_viz.sweep.measures import PERCENT
from mars_viz.sweep.pairing import Paired
from mars_viz.ui import theme
from mars_viz.ui.compare.compare_words import MEANING, Names, change, short_names, written
from mars_viz.ui.compare.sweep_pair import words

_STYLE = """
.mv-lead { margin: 0; font-size: 1.12rem; line-height: 1.55; unicode-bidi: plaintext; overflow-wrap: anywhere; }
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


def lead(sentence: str, stands: str = "exact") -> None:
    """Draw the main result and its basis."""
    theme.show(
        Html(f'<p class="mv-lead" role="status">{html(sentence)} {html(theme.tag(stands, MEANING[stands]))}</p>')
    )


def table(rows: Sequence[Difference], names: Names) -> None:
    """Draw the numbers of both texts."""
    lines = [
        (
            row.name,
            row.meaning,
            written(row.left, row.is_share),
            written(row.right, row.is_share),
            change(row),
            row.stands,
        )
        for row in rows
    ]
    _table("Both texts in numbers", names, lines)


def frame(rows: Sequence[Difference], names: Names) -> pd.DataFrame:
    """Return the same numbers for a file; shares are fractions."""
    columns = ("number", names.left, names.right, "difference", "stands on")
    lines = [(row.name, row.left, row.right, row.change, row.stands) for row in rows]
    return pd.DataFrame([dict(zip(columns, line, strict=True)) for line in lines])


def sweep_table(rows: Sequence[Paired], names: Names) -> None:
    """Draw the numbers of both dial values with intervals."""
    lines = []
    for row in rows:
        percent, kind = row.measure.name in PERCENT, "modelled" if row.measure.modelled else "exact"
        cells = (words(row.left, percent=percent), words(row.right, percent=percent))
        lines.append((row.measure.title, "", *cells, words(row.change, signed=True, percent=percent), kind))
    _table("Both dial values over all prompts", names, lines, "intervals")


def _table(label: str, names: Names, lines: Sequence[tuple[str, str, str, str, str, str]], kind: str = "") -> None:
    """Draw lines of name, meaning, both values, their change and its basis."""
    left, right = short_names(names)
    body = joined(
        Html(
            f'<tr><th scope="row" title="{html(meaning)}">{html(name)}</th>'
            f'<td data-name="{html(left)}">{html(left_value)}</td>'
            f'<td data-name="{html(right)}">{html(right_value)}</td>'
            f'<td class="change" data-name="difference">{html(difference)}</td>'
            f"<td>{html(theme.tag(stands, MEANING[stands]))}</td></tr>"
        )
        for name, meaning, left_value, right_value, difference, stands in lines
    )
    heads = joined(Html(f'<th scope="col">{html(name)}</th>') for name in (names.left, names.right))
    theme.show(
        Html(
            f'<div class="mv-scroll"><table class="mv-table {html(kind)}" aria-label="{html(label)}"><thead><tr>'
            f'<th scope="col">number</th>{html(heads)}<th scope="col">difference</th><th scope="col">basis</th></tr>'
            f"</thead><tbody>{html(body)}</tbody></table></div>"
        )
    )
