"""Asking about every prefix that a dial leads to: all open branches together, and no prefix twice.

Knows branches and speculators; what the answers come to is the map's to say. Knows no models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mars_viz.dialmap.branches import Branch, Judged, Prefix
from mars_viz.dialmap.dial_range import Span
from mars_viz.errors import SettingError
from mars_viz.rules import Rule
from mars_viz.walk import Answer, Ending, Speculator


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop early; what is finished by then is exact."""

    branches: int = 256
    """That go on at once, at most; those farthest from the strict end, or of a controller from the longest drafts, wait
    until there is room."""
    passes: int = 100_000
    """Batched target passes at most."""
    seconds: float = math.inf
    """Wall-clock time at most, looked at between passes."""

    def __post_init__(self) -> None:
        """Raise BadInput for a budget that could never be kept."""
        if self.branches < 1 or self.passes < 0 or not self.seconds >= 0:  # NaN fails too
            raise SettingError("A map's budget needs at least 1 branch, and no fewer than 0 passes and 0 seconds.")


@dataclass(frozen=True, slots=True)
class MapProgress:
    """How far a map has come."""

    passes: int
    """Batched target passes so far."""
    speculations: int
    """Distinct prefixes that were asked about."""
    open: int
    """Branches that go on."""
    exact: float
    """Share of the span, all block lengths together, whose text is complete."""


class Exploration:
    """The walk of one prompt for every dial value of a span: what it asks next, and how far the answers have led."""

    def __init__(
        self,
        rule: Rule,
        span: Span,
        prompt: Prefix,
        ending: Ending,
        answers: dict[Prefix, Answer],
        budget: Budget | None = None,
        dial: float | None = None,
    ):
        """Begin at the prompt; `answers` holds what is known already, and gets what is found out. `dial` is the rule's
        where a controller's threshold is mapped."""
        self._rule, self._span, self._budget = rule, span, budget or Budget()
        self.answers = answers
        """By prefix, all that is known."""
        self._known = Judged(rule, answers, prompt, ending, span.controller, dial)
        self._first_is_high = span.refers_high(rule)
        self._began = time.perf_counter()
        self.passes = 0
        """Batched target passes that it took part in."""
        self._advance(self._known.roots(span))

    @property
    def missing(self) -> tuple[Prefix, ...]:
        """The prefixes to be answered before it goes on; none where all that it looks at next is known."""
        return self._missing

    @property
    def going(self) -> bool:
        """True unless every text is complete, or the budget is spent."""
        within = self.passes < self._budget.passes and time.perf_counter() - self._began < self._budget.seconds
        return bool(self._open) and (within or not self._missing)

    def grow(self, found: Mapping[Prefix, Answer]) -> MapProgress:
        """One round further for every branch, by the answers to what is missing."""
        self.answers.update((prefix, found[prefix]) for prefix in self._missing)
        self.passes += bool(self._missing)
        self._advance(self._known.advanced(self._branches))
        exact = sum(branch.high - branch.low for branch in self._branches if branch.finished)
        share = exact / (len(self._span.gammas) * (self._span.top - self._span.low))
        return MapProgress(self.passes, len(self.answers), self._open, share)

    def _advance(self, branches: list[Branch]) -> None:
        going = [branch for branch in branches if not branch.finished]
        going.sort(key=lambda branch: -branch.high if self._first_is_high else branch.low)
        wanted = dict.fromkeys(branch.prefix for branch in going[: self._budget.branches])
        self._branches, self._open = branches, len(going)
        self._missing = tuple(prefix for prefix in wanted if prefix not in self.answers)


def explore(
    speculator: Speculator,
    rule: Rule,
    span: Span,
    prompt: Prefix,
    ending: Ending,
    answers: dict[Prefix, Answer],
    budget: Budget | None = None,
    dial: float | None = None,
) -> Iterator[MapProgress]:
    """Ask about every prefix that a dial value of the span leads to, a batch of them at a time, into `answers`."""
    one = Exploration(rule, span, prompt, ending, answers, budget, dial)
    while one.going:
        (progress,) = step(speculator, [one])
        yield progress


def step(speculator: Speculator, explorations: Sequence[Exploration]) -> list[MapProgress]:
    """One round further for each of them: what they miss is asked as one batch, and no prefix twice."""
    missing = list(dict.fromkeys(prefix for one in explorations for prefix in one.missing))
    found = dict(zip(missing, speculator.speculate(missing), strict=True)) if missing else {}
    return [one.grow(found) for one in explorations]
