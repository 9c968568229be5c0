"""Asking about every prefix that a dial leads to: all open branches together, and no prefix twice.

Knows branches and speculators; what the answers come to is the map's to say. Knows no models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from mars_viz.dialmap.branches import Judged, Prefix
from mars_viz.dialmap.spans import Span
from mars_viz.errors import BadInput
from mars_viz.rules import Rule
from mars_viz.walk import Answer, Ending, Speculator


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop early; what is finished by then is exact."""

    branches: int = 256
    """That go on at once, at most; those farthest from the strict end wait until there is room."""
    passes: int = 100_000
    """Batched target passes at most."""
    seconds: float = math.inf
    """Wall-clock time at most, looked at between passes."""

    def __post_init__(self) -> None:
        """Raise BadInput for a budget that could never be kept."""
        if self.branches < 1 or self.passes < 0 or not self.seconds >= 0:  # NaN fails too
            raise BadInput("A map's budget needs at least 1 branch, and no fewer than 0 passes and 0 seconds.")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a map has come."""

    passes: int
    """Batched target passes so far."""
    speculations: int
    """Distinct prefixes that were asked about."""
    open: int
    """Branches that go on."""
    exact: float
    """Share of the span, all block lengths together, whose text is complete."""


def explore(
    speculator: Speculator,
    rule: Rule,
    span: Span,
    prompt: Prefix,
    ending: Ending,
    answers: dict[Prefix, Answer],
    budget: Budget | None = None,
) -> Iterator[Progress]:
    """Ask about every prefix that a dial value of the span leads to, a batch of them at a time, into `answers`."""
    budget = budget or Budget()
    began, passes = time.perf_counter(), 0
    known = Judged(rule, answers, prompt, ending)
    branches = known.roots(span)
    while going := [branch for branch in branches if not branch.finished]:
        going.sort(key=lambda branch: -branch.high if rule.strict_is_high else branch.low)
        wanted = list(dict.fromkeys(branch.prefix for branch in going[: budget.branches]))
        if missing := [prefix for prefix in wanted if prefix not in answers]:
            if passes >= budget.passes or time.perf_counter() - began >= budget.seconds:
                return
            answers.update(zip(missing, speculator.speculate(missing), strict=True))
            passes += 1
        branches = known.advanced(branches)
        exact = sum(branch.high - branch.low for branch in branches if branch.finished)
        share = exact / (len(span.gammas) * (span.top - span.low))
        yield Progress(passes, len(answers), sum(not branch.finished for branch in branches), share)
