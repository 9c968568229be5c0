"""Work discarded by strict verification, for every block length on a run's map. Exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.errors import BadInput, EvidenceError
from mars_viz.rules import rule_named
from mars_viz.run import Run


@dataclass(frozen=True, slots=True)
class Price:
    """The complete text at the rule's strict end, at one block length."""

    gamma: int  # tokens drafted per block
    tokens: int  # tokens of the text
    passes: int  # target passes
    kept: int  # number of drafted tokens in the text
    rolled_back: int  # number of drafted tokens that are not in the text

    @property
    def wasted(self) -> float:
        """Share of the drafted tokens that was rolled back. NaN if none was drafted."""
        drafted = self.kept + self.rolled_back
        return self.rolled_back / drafted if drafted else float("nan")


def strict_run(run: Run, gamma: int | None = None) -> Run:
    """Return the run at its rule's strict end, at this block length (None: its own). Raises BadInput if neither the run
    nor its map contains that text."""
    gamma, dial = run.settings.gamma if gamma is None else gamma, rule_named(run.settings.rule).dial
    strict = None if dial is None else dial.strict
    if gamma == run.settings.gamma and run.settings.dial == strict:
        return run
    if strict is None or run.dial_map is None:
        raise EvidenceError(
            "This run carries no dial map with the strict text. Choose another, or map it: mars-viz map."
        )
    return run.dial_map.at(strict, gamma)


def prices(run: Run) -> tuple[Price, ...]:
    """Return the price for each block length with a known strict text, ascending."""
    gammas = {run.settings.gamma, *(run.dial_map.span.gammas if run.dial_map is not None else ())}
    known_prices = []
    for gamma in sorted(gammas):
        try:
            strict = strict_run(run, gamma)
        except BadInput:
            continue
        kept, lost = (int(np.sum([getattr(r, name) for r in strict.rounds])) for name in ("kept", "rolled_back"))
        known_prices.append(Price(gamma, len(strict.token_ids), len(strict.rounds), kept, lost))
    return tuple(known_prices)
