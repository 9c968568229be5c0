"""The part of a rule's or controller's dial to map, and the block lengths."""

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
"""A lower θ rejects hardly any runner-up."""


@dataclass(frozen=True, slots=True)
class Span:
    """A closed range of a rule's dial or a controller's threshold, and the block lengths to map."""

    low: float
    high: float
    gammas: tuple[int, ...]
    """Block lengths; each has its own trajectories."""
    over: str = ""
    """Name of the controller whose threshold is mapped; empty for the rule's dial."""

    @property
    def controller(self) -> Controller | None:
        """The controller whose threshold is mapped; None for the rule's dial."""
        return CONTROLLERS[self.over] if self.over else None

    def refers_high(self, rule: Rule) -> bool:
        """Return True if the high end is the reference: the rule's strict end, or the controller's end of longest
        drafts."""
        return rule.strict_is_high if self.controller is None else not self.controller.shorter_is_high

    @property
    def top(self) -> float:
        """End of the half-open interval that covers the span."""
        return math.nextafter(self.high, math.inf)


def span_of(rule: Rule, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    """Return the range of a rule's dial to map; None is the dial's end. Raises BadInput without a dial or such a
    range."""
    if rule.dial is None:
        raise SettingError(f"The rule {rule.name} has no dial, so there is nothing to map; choose one that has.")
    return _span(rule.dial, low, high, gammas)


def controller_span(controller: Controller, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    """Return the range of a controller's threshold to map; None is the dial's end. Raises BadInput without such a
    range."""
    return replace(_span(controller.dial, low, high, gammas), over=controller.name)


def _span(dial: Dial, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
    low = dial.checked(dial.low if low is None else low)
    high = dial.checked(dial.high if high is None else high)
    lengths = tuple(sorted(set(gammas)))
    if low > high:
        raise SettingError(f"The dial's range goes from {low:g} to {high:g}; give the smaller value first.")
    if not lengths or lengths[0] < 1:
        raise SettingError("A map needs block lengths of at least 1.")
    return Span(low, high, lengths)


def useful_span(settings: Settings) -> Span:
    """Return the span to map for a run with these settings.

    It has every block length up to the run's own (a sampled tree's size only), and the whole dial, or for a ratio the
    part above `RATIO_FROM` or the run's own value. Raises BadInput for a rule without a dial.
    """
    rule = rule_named(settings.rule)
    low = min(rule.dial.checked(settings.dial), RATIO_FROM) if rule.dial == THETA else None
    alone = settings.drafts_trees and settings.temperature > 0
    return span_of(rule, low, None, (settings.gamma,) if alone else range(1, settings.gamma + 1))
