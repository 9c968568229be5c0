"""Axes: everything that maps, sweeps, grids, the explorer and Tune can turn.

A rule's dial moves verdicts. A draft-length controller's threshold moves the end of each draft, at one value of the
rule's dial; the draft length itself is the threshold of the controller `length`. A fixed setting makes another rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.controllers import CONTROLLERS, Control, Controller
from mars_viz.errors import SettingError
from mars_viz.records import Speculation
from mars_viz.rules import Dial, Fixed, Rule, rule_named
from mars_viz.run import Settings

THRESHOLD, GAMMA = "threshold", "gamma"
"""Keys of a grid's setting for a controller's threshold, and for the draft length."""


@dataclass(frozen=True, slots=True)
class Span:
    """A closed range of an axis, and the block lengths to map."""

    low: float
    high: float
    gammas: tuple[int, ...]  # block lengths; each has its own trajectories
    over: str = ""  # name of the axis, as in `Axis.over`

    @property
    def top(self) -> float:
        """End of the half-open interval that covers the span."""
        return math.nextafter(self.high, math.inf)


class Axis:
    """A quantity that is turned while all other settings stay."""

    over: str = ""  # name in files: the controller whose threshold is turned; empty for the rule's dial
    dial: Dial  # symbol, name, range, step and default
    title: str
    reference: float  # the value that all others are compared with
    reference_is_high: bool
    against = "strict"  # the reference in words
    ends = ("looser", "strict")  # directions away from the reference and towards it
    needs: tuple[str, ...] = ()  # columns of `Speculation` that it reads

    @property
    def symbol(self) -> str:
        return self.dial.symbol

    def span(self, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
        """Return a range of this axis; None is its end. Raises BadInput for values that it does not have."""
        low = self.dial.checked(self.dial.low if low is None else low)
        high = self.dial.checked(self.dial.high if high is None else high)
        lengths = tuple(sorted(set(gammas)))
        if low > high:
            raise SettingError(f"The dial's range goes from {low:g} to {high:g}; give the smaller value first.")
        if not lengths or lengths[0] < 1:
            raise SettingError("A map needs block lengths of at least 1.")
        return Span(low, high, lengths, self.over)

    def end(self, span: Span, *, away: bool = False) -> float:
        """Return the end of the span at the reference, or the one `away` from it."""
        return span.high if self.reference_is_high != away else span.low

    def apply(self, settings: Settings, value: float) -> Settings:
        """Return the settings with this value of the axis."""
        raise NotImplementedError

    def value_of(self, settings: Settings) -> float:
        raise NotImplementedError

    def stops(self, speculation: Speculation) -> np.ndarray | None:
        """Return the value at which each token leaves a draft, float64 [N]; None if drafts stay whole."""
        return None

    def drafted(self, stops: np.ndarray, value: float) -> int:
        """Return the number of tokens that stay in a draft at this value."""
        return int((stops <= value if self.reference_is_high else value < stops).sum())


class RuleDial(Axis):
    """The dial of a rule."""

    def __init__(self, rule: Rule) -> None:
        """Raise SettingError for a rule without a dial."""
        if rule.dial is None:
            raise SettingError(f"The rule {rule.name} has no dial, so there is nothing to map; choose one that has.")
        self.dial, self.title = rule.dial, rule.title
        self.reference, self.reference_is_high = rule.dial.strict, rule.dial.strict_is_high

    def apply(self, settings: Settings, value: float) -> Settings:
        return replace(settings, dial=value)

    def value_of(self, settings: Settings) -> float:
        return self.dial.checked(settings.dial)


class Threshold(Axis):
    """The threshold of a draft-length controller, compared with drafts of all `gamma` tokens."""

    against, ends = "fixed γ", ("shorter drafts", "full drafts")

    def __init__(self, controller: Controller, gamma: int) -> None:
        self.controller, self.over, self.title = controller, controller.name, controller.title
        self.dial, self.needs = controller.dial, controller.needs
        self.reference, self.reference_is_high = controller.full(gamma), not controller.shorter_is_high

    def span(self, low: float | None, high: float | None, gammas: Iterable[int]) -> Span:
        """Return a range of thresholds; a number of tokens goes no further than the drafts."""
        return super().span(low, self.reference if high is None and self.controller.counts else high, gammas)

    def apply(self, settings: Settings, value: float) -> Settings:
        return replace(settings, controller=Control(self.controller, float(value)).name)

    def value_of(self, settings: Settings) -> float:
        """Return the threshold that cuts drafts with these settings; the reference if none does."""
        return self.reference if settings.control is None else settings.control.threshold

    def stops(self, speculation: Speculation) -> np.ndarray:
        return self.controller.breakpoints(speculation)

    @property
    def setting(self) -> Fixed:
        """The threshold as the setting of a grid."""
        dial, counts, key = self.dial, self.controller.counts, GAMMA if self.controller.counts else THRESHOLD
        return Fixed(key, dial.symbol, dial.name, dial.low, dial.high, dial.default, self.controller.formula, counts)


class FixedSetting(Axis):
    """A setting that makes another rule, which a grid turns."""

    def __init__(self, rule: Rule, setting: Fixed) -> None:
        self.rule, self.setting, self.title = rule, setting, rule.title
        self.dial = Dial(
            setting.symbol, setting.name, setting.low, setting.high, setting.step, setting.default, strict_is_high=False
        )
        self.reference, self.reference_is_high = setting.default, False

    def apply(self, settings: Settings, value: float) -> Settings:
        return replace(settings, rule=self.rule.varied({self.setting.key: value}).name)

    def value_of(self, settings: Settings) -> float:
        return rule_named(settings.rule).values[self.setting.key]


def axis_of(rule: Rule, gamma: int, over: str = "") -> Axis:
    """Return the axis of this name: the rule's dial, or the threshold of the controller `over` with drafts of `gamma`
    tokens. Raises SettingError for an unknown controller, and for a rule without a dial."""
    return Threshold(CONTROLLERS.named(over), gamma) if over else RuleDial(rule)


def check_span(settings: Settings, span: Span) -> None:
    """Raise BadInput unless a run with these settings can be mapped over the span."""
    axis = axis_of(rule_named(settings.rule), settings.gamma, span.over)
    alone = span.gammas == (settings.gamma,)
    if span.over and not (alone and settings.drafts_plainly):
        why = "is mapped from chains of the run's own γ tokens that no controller cuts"
        raise SettingError(f"A controller's threshold {why}; leave trees, controllers and other lengths out.")
    if max(span.gammas, default=0) > settings.gamma:
        draft = settings.draft_of(max(span.gammas))
        raise SettingError(f"{draft} is to be mapped, but --gamma or --tree drafts only {settings.gamma} tokens.")
    if settings.drafts_trees and settings.temperature > 0 and not alone:
        raise SettingError("Above temperature 0 trees are mapped at one size; leave the others out.")
    if axis.span(span.low, span.high, span.gammas) != span:
        raise SettingError("A map's block lengths rise, and none is there twice.")
