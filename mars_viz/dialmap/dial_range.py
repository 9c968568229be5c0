"""The part of a rule's dial to map, or of a controller's, and its block lengths. Knows dials; knows no speculations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mars_viz.controllers import CONTROLLERS, Controller
from mars_viz.errors import SettingError
from mars_viz.rules import Dial, Rule, rule_named
from mars_viz.rules.mars import THETA
from mars_viz.run import Settings

RATIO_FROM = 0.5
"""Below such a θ hardly a runner-up is rejected."""


@dataclass(frozen=True, slots=True)
class Span:
    """A closed range of a rule's dial or of a controller's threshold, and the block lengths to look at."""

    low: float
    """Smallest dial value."""
    high: float
    """Largest dial value."""
    gammas: tuple[int, ...]
    """Block lengths, each with its own trajectories."""
    over: str = ""
    """The controller whose threshold it is a range of, by name; empty for the rule's dial."""

    @property
    def controller(self) -> Controller | None:
        """Whose threshold it is a range of; None for the rule's dial."""
        return CONTROLLERS[self.over] if self.over else None

    def refers_high(self, rule: Rule) -> bool:
        """True where others are compared with its high end: towards the rule's strict one, or of a controller the one
        where most is drafted."""
        return rule.strict_is_high if self.controller is None else not self.controller.shorter_is_high

    @property
    def top(self) -> float:
        """Where the half-open interval of the whole span ends."""
        return math.nextafter(self.high, math.inf)


def span_of(rule: Rule, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    """The part of a rule's dial to map; None takes its end. Raises BadInput where there is no dial or no such part."""
    if rule.dial is None:
        raise SettingError(f"The rule {rule.name} has no dial, so there is nothing to map; choose one that has.")
    return _span(rule.dial, low, high, gammas)


def controller_span(controller: Controller, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    """The part of a controller's threshold to map; None takes its end. Raises BadInput where there is no such part."""
    return replace(_span(controller.dial, low, high, gammas), over=controller.name)


def _span(dial: Dial, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    low = dial.checked(dial.low if low is None else low)
    high = dial.checked(dial.high if high is None else high)
    found = tuple(sorted(set(gammas)))
    if low > high:
        raise SettingError(f"The dial's range goes from {low:g} to {high:g}; give the smaller value first.")
    if not found or found[0] < 1:
        raise SettingError("A map needs block lengths of at least 1.")
    return Span(low, high, found)


def useful_span(settings: Settings) -> Span:
    """What is worth mapping around a run of these settings: every block length up to its own, or every size of a tree
    that can be told from it, and the whole dial, of a ratio only from `RATIO_FROM` or the run's own value. Raises
    BadInput for a rule without a dial."""
    rule = rule_named(settings.rule)
    low = min(rule.dial.checked(settings.dial), RATIO_FROM) if rule.dial == THETA else None
    alone = settings.drafts_trees and settings.temperature > 0
    return span_of(rule, low, None, (settings.gamma,) if alone else range(1, settings.gamma + 1))
