"""The registry of verification rules."""

from mars_viz.errors import BadInput
from mars_viz.rules.base import Dial, Rule, settle
from mars_viz.rules.mars import Mars
from mars_viz.rules.mars_code import MarsCode
from mars_viz.rules.mars_sampling import MarsSampling
from mars_viz.rules.rejection_sampling import RejectionSampling
from mars_viz.rules.strict import Strict

__all__ = ["RULES", "Dial", "Rule", "rule_named", "settle"]

RULES: dict[str, Rule] = {
    rule.name: rule for rule in (Strict(), RejectionSampling(), Mars(), MarsCode(), MarsSampling())
}
"""Every rule by its name, strict ones first."""


def rule_named(name: str) -> Rule:
    """The rule of that name. Raises BadInput with the known names."""
    if name not in RULES:
        raise BadInput(f"There is no rule {name!r}. Choose one of {', '.join(RULES)}.")
    return RULES[name]
