"""Which rule is looked at, as query parameters, so that a link opens it again. Knows rules; knows no Streamlit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from mars_viz.analysis.judgements import own_dial
from mars_viz.errors import BadInput
from mars_viz.figures.words import exactly
from mars_viz.rules import RULES, Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.ui.links import clipped, number_in

FIRST = (
    "strict",
    "rejection-sampling",
    "mars",
    "lenience",
    "typical",
    "sglang-acc",
    "tensorrt-llm",
    "vllm-fly",
)
"""The rules to compare first: both ways to be lossless, MARS, and what papers and engines are known for."""
EVERY = "all"
"""What a link says to list every rule."""


@dataclass(frozen=True, slots=True)
class RuleView:
    """What the rules page looks at, besides the run."""

    rule: str = ""
    """Name of the chosen rule; empty for the run's own."""
    dial: float | None = None
    """Its dial's value; None for the run's own where the rule is the run's, else the rule's default."""
    every: bool = False
    """True to list every rule; False for those that are compared first."""

    def rule_on(self, run: Run) -> Rule:
        """The chosen rule."""
        return rule_named(self.rule or run.settings.rule)

    def dial_on(self, run: Run) -> float | None:
        """The value of its dial; None for a rule without one."""
        return own_dial(run, self.rule_on(run)) if self.dial is None else self.dial

    def listed(self, rules: Iterable[str], run: Run) -> tuple[str, ...]:
        """Which of the rules the page lists: every one, or those compared first, the run's own and the chosen one."""
        first = {*FIRST, run.settings.rule, self.rule_on(run).name}
        return tuple(name for name in rules if self.every or name in first)


@dataclass(frozen=True, slots=True)
class OpenedRule:
    """A link, read."""

    view: RuleView
    """What of it can be shown."""
    complaints: tuple[str, ...] = ()
    """A sentence for each part that cannot."""


def to_parameters(run_id: str, view: RuleView) -> dict[str, str]:
    """The query parameters of a view of a run; what is at its default is left out."""
    written = {"run": run_id, "rule": view.rule, "dial": "" if view.dial is None else exactly(view.dial)}
    written["rules"] = EVERY if view.every else ""
    return {name: text for name, text in written.items() if text}


def from_parameters(parameters: Mapping[str, str]) -> OpenedRule:
    """The view that a link asks for; parts that cannot be read take their default, with a complaint."""
    complaints: list[str] = []
    name, dial = parameters.get("rule", ""), parameters.get("dial", "")
    value, every = number_in(dial), parameters.get("rules") == EVERY
    if name and name.partition(":")[0] not in RULES:
        complaints.append(f"There is no rule “{clipped(name)}”; the run's own is shown. Choose another from the list.")
        return OpenedRule(RuleView(every=every), tuple(complaints))
    if dial and value is None:
        complaints.append(f"The link's dial “{clipped(dial)}” is no number, so it stands at its default.")
    with suppress(BadInput):  # what it names is refused by `fitted`
        name = name and rule_named(name).name  # however it is spelt
    return OpenedRule(RuleView(name, value, every), tuple(complaints))


def fitted(view: RuleView, run: Run) -> OpenedRule:
    """The view with a dial value that its rule does not have set back to the default, and a complaint about it."""
    if view.rule and view.rule not in rules_and(rule_named(run.settings.rule)):
        said = f"The link's rule “{clipped(view.rule)}” is not in the list, and the run was made with another; "
        return OpenedRule(RuleView(every=view.every), (said + "the run's own is shown. Choose another from the list.",))
    rule, value, unset = view.rule_on(run), view.dial, replace(view, dial=None)
    if value is None:
        return OpenedRule(view)
    if rule.dial is None:
        return OpenedRule(unset, (f"The link sets a dial, but the rule {rule.title} has none.",))
    if not rule.dial.low <= value <= rule.dial.high:
        said = f"The link's {rule.dial.symbol} = {value:g} lies outside {rule.dial.low:g} to {rule.dial.high:g}, "
        return OpenedRule(unset, (said + "so the dial stands at its default.",))
    return OpenedRule(view)
