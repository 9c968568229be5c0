"""Small SVG pictures without text for cards.

A picture stretches to its box and is described by nearby text. Outcomes are never shown by colour alone: bars of
rolled-back tokens are below the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from mars_viz.records import Outcome
from mars_viz.run import Run

_WIDE, _HIGH = 320.0, 44.0  # view box in SVG units; the picture is stretched to its box


def _box(x: float, y: float, wide: float, tall: float, colour: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}" fill="{colour}"/>'


def _svg(parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:g} {_HIGH:g}" preserveAspectRatio="none">'
        f"{''.join(parts)}</svg>"
    )


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
    bars = []
    for index, outcome in enumerate(outcomes):
        colour, height = BARS[outcome]
        tall = height * (middle if height > 0 else _HIGH - middle)
        bars.append(_box(index * step, middle - max(tall, 0), 0.8 * step, abs(tall), colour))
    return _svg(bars)


def _outcomes(run: Run) -> Iterator[Outcome]:
    """Yield the outcome of each token in reading order: the draft, then the target's token. For a tree, only the path
    and the tokens rejected at its end."""
    for round_ in run.rounds:
        path = [*round_.decision.kept[: round_.kept], *round_.stopped_by]
        nodes = path if round_.speculation.is_tree else range(len(round_.speculation))
        yield from (round_.outcomes[node] for node in nodes)
        if round_.emission is not None:
            yield round_.emission
