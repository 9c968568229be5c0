"""Walks of all open branches of dial maps; prefixes are requested in batches and only once."""

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
    """Limits of an exploration; texts that are complete when it stops are exact."""

    branches: int = 256
    """Maximum number of active branches. Branches farthest from the strict end (from the longest drafts for a
    controller) wait for a slot."""
    passes: int = 100_000
    """Maximum number of batched target passes."""
    seconds: float = math.inf
    """Maximum wall-clock time, checked between passes."""

    def __post_init__(self) -> None:
        """Raise BadInput for a negative or unusable limit."""
        if self.branches < 1 or self.passes < 0 or not self.seconds >= 0:  # NaN fails too
            raise SettingError("A map's budget needs at least 1 branch, and no fewer than 0 passes and 0 seconds.")


@dataclass(frozen=True, slots=True)
class MapProgress:
    """Progress of a map."""

    passes: int
    """Batched target passes so far."""
    speculations: int
    """Distinct prefixes requested."""
    open: int
    """Unfinished branches."""
    exact: float
    """Share of the span, over all block lengths, with a complete text."""


class Exploration:
    """The walk of one prompt for every dial value of a span, driven by answers from outside."""

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
        """Start at the prompt. New answers are added to `answers`; `dial` is the rule's if a controller's threshold is
        mapped."""
        self._rule, self._span, self._budget = rule, span, budget or Budget()
        self.answers = answers
        self._known = Judged(rule, answers, prompt, ending, span.controller, dial)
        self._first_is_high = span.refers_high(rule)
        self._began = time.perf_counter()
        self.passes = 0
        """Batched target passes that it took part in."""
        self._advance(self._known.roots(span))

    @property
    def missing(self) -> tuple[Prefix, ...]:
        """The prefixes that need answers before the next round; empty if all are known."""
        return self._missing

    @property
    def going(self) -> bool:
        """False if every text is complete or the budget is spent."""
        within = self.passes < self._budget.passes and time.perf_counter() - self._began < self._budget.seconds
        return bool(self._open) and (within or not self._missing)

    def grow(self, found: Mapping[Prefix, Answer]) -> MapProgress:
        """Extend every branch by one round, using the answers to `missing`."""
        self.answers.update((prefix, found[prefix]) for prefix in self._missing)
        self.passes += bool(self._missing)
        self._advance(self._known.advanced(self._branches))
        exact = sum(branch.high - branch.low for branch in self._branches if branch.finished)
        share = exact / (len(self._span.gammas) * (self._span.top - self._span.low))
        return MapProgress(self.passes, len(self.answers), self._open, share)

    def _advance(self, branches: list[Branch]) -> None:
        going = [branch for branch in branches if not branch.finished]
        going.sort(key=lambda branch: -branch.high if self._first_is_high else branch.low)
        prefixes = dict.fromkeys(branch.prefix for branch in going[: self._budget.branches])
        self._branches, self._open = branches, len(going)
        self._missing = tuple(prefix for prefix in prefixes if prefix not in self.answers)


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
    """Explore every prefix that a dial value of the span leads to, in batches; adds to `answers`."""
    exploration = Exploration(rule, span, prompt, ending, answers, budget, dial)
    while exploration.going:
        (progress,) = step(speculator, [exploration])
        yield progress


def step(speculator: Speculator, explorations: Sequence[Exploration]) -> list[MapProgress]:
    """Extend each exploration by one round; the missing prefixes form one batch without repeats."""
    missing = list(dict.fromkeys(prefix for exploration in explorations for prefix in exploration.missing))
    answers = dict(zip(missing, speculator.speculate(missing), strict=True)) if missing else {}
    return [exploration.grow(answers) for exploration in explorations]
