"""A grid: one fixed setting of a rule at several values, each with the rule's whole dial. Knows rules and folders'
names; sweeps nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mars_viz.errors import SettingError
from mars_viz.rules import Fixed, Rule
from mars_viz.sweep.plan import Plan, comparable

MOST = 16
"""Values of a grid at most."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A rule, the setting that is varied, and what it is set to."""

    rule: Rule
    """With its other settings; the varied one is as it likes."""
    setting: Fixed
    """Which one is varied."""
    values: tuple[float, ...]
    """Ascending, none of them twice."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """A variant for each value."""
        return tuple(self.rule.varied({self.setting.key: value}) for value in self.values)

    def folders(self, out: Path) -> tuple[Path, ...]:
        """Where the sweep of each variant lies: 'vllm-thinking-k5', its own default spelt out too."""
        others = self.rule.varied({self.setting.key: self.setting.default})
        name = f"{others.slug}-{self.setting.key}"
        return tuple(out / f"{name}{self.setting.written(value)}" for value in self.values)


def grid_of(rule: Rule, text: str) -> Grid:
    """Of what is typed, 'k=1,2,5'. Raises BadInput with the remedy."""
    key, equals, listed = text.partition("=")
    setting = setting_named(rule, key.strip().lower())
    example = f"write {setting.key}={','.join(setting.written(each) for each in neighbours(setting))}"
    if not equals or not listed.strip():
        raise SettingError(f"The grid {text!r} names no values; {example}, for instance.")
    return Grid(_free(rule, setting), setting, grid_values(setting, listed))


def grid_values(setting: Fixed, listed: str) -> tuple[float, ...]:
    """The values of '1, 2, 5', ascending. Raises BadInput with the remedy."""
    example = ", ".join(setting.written(each) for each in neighbours(setting))
    found = set()
    for part in listed.split(","):
        try:
            value = float(part)
        except ValueError:
            said = f"{part.strip()!r} is no number" if part.strip() else "a value is missing between commas"
            raise SettingError(f"{setting.symbol}: {said}; list values such as {example}.") from None
        found.add(setting.checked(value))
    if len(found) > MOST:
        raise SettingError(f"A grid of {len(found)} values of {setting.symbol} is too large; list at most {MOST}.")
    return tuple(sorted(found))


def setting_named(rule: Rule, key: str) -> Fixed:
    """One of the rule's fixed settings. Raises BadInput with those that there are."""
    known = {each.key: each for each in rule.fixed}
    if not known:
        raise SettingError(
            f"The rule {rule.family} has no settings besides its dial, so there is no grid; leave it out."
        )
    if key not in known:
        raise SettingError(f"The rule {rule.family} has no setting {key!r} for a grid; it has {', '.join(known)}.")
    return known[key]


def varied_setting(plans: Sequence[Plan]) -> Fixed:
    """The one setting in which the rules of these sweeps differ. Raises BadInput where they are no grid."""
    first = plans[0]
    for plan in plans[1:]:
        if plan.rule.family != first.rule.family or plan.settings.gamma != first.settings.gamma:
            raise SettingError("The sweeps of a grid have one rule and one draft length; choose such sweeps.")
        if not comparable(first, plan):
            raise SettingError("The sweeps of a grid have the same prompts, models and sampling; choose such sweeps.")
    varied = [
        each for each in first.rule.fixed if len({plan.rule.values[each.key] for plan in plans}) == len(plans) > 1
    ]
    others = [each for each in first.rule.fixed if len({plan.rule.values[each.key] for plan in plans}) > 1]
    if len(varied) != 1 or varied != others:
        raise SettingError("The sweeps of a grid differ in one fixed setting, each with a value of its own.")
    return varied[0]


def _free(rule: Rule, setting: Fixed) -> Rule:
    """Raises BadInput where the rule's name already says what the grid is to vary."""
    if rule.values[setting.key] != setting.default:
        raise SettingError(
            f"The rule {rule.name} sets {setting.symbol}, and so does the grid; leave it out of the rule's name."
        )
    return rule


def neighbours(setting: Fixed) -> tuple[float, ...]:
    """Values to give as an example."""
    return (max(setting.low, setting.default - setting.step), setting.default, setting.default + setting.step)
