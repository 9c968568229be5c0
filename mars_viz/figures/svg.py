"""Small SVG pictures without text for cards.

A picture stretches to its box and is described by nearby text. Outcomes are never shown by colour alone: bars of
rolled-back tokens are below the line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from mars_viz.records import Outcome
from mars_viz.run import Run

_WIDE, _HIGH = 320.0, 44.0  # view box in SVG units; the picture is stretched to its box


BARS = {
    Outcome.MATCHED: ("#94A3B8", 0.55),
    Outcome.RELAXED: ("#E69F00", 1.0),
    Outcome.REJECTED: ("#D55E00", -1.0),
    Outcome.DISCARDED: ("#CBD5E1", -0.5),
    Outcome.CORRECTED: ("#0072B2", 0.8),
    Outcome.BONUS: ("#009E73", 0.8),
}
"""Colour of each outcome's bar on any background, and its height as a share of the space above the line, or below it if
negative."""


def token_bars(run: Run, *, most: int = 96) -> str:
    outcomes = list(islice(_outcomes(run), most))
    step, middle = _WIDE / max(len(outcomes), 1), _HIGH * 0.62
    box = f'viewBox="0 0 {_WIDE:g} {_HIGH:g}" preserveAspectRatio="none"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
    for index, outcome in enumerate(outcomes):
        colour, height = BARS[outcome]
        tall = height * (middle if height > 0 else _HIGH - middle)
        place = f'x="{index * step:.2f}" y="{middle - max(tall, 0):.2f}" width="{0.8 * step:.2f}"'
        parts.append(f'<rect {place} height="{abs(tall):.2f}" fill="{colour}"/>')
    return "".join([*parts, "</svg>"])


def _outcomes(run: Run) -> Iterator[Outcome]:
    """Yield the outcome of each token in reading order: the draft, then the target's token. For a tree, only the path
    and the tokens rejected at its end."""
    for round_ in run.rounds:
        path = [*round_.decision.kept[: round_.kept], *round_.stopped_by]
        nodes = path if round_.speculation.is_tree else range(len(round_.speculation))
        yield from (round_.outcomes[node] for node in nodes)
        if round_.emission is not None:
            yield round_.emission
