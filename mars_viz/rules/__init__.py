"""Verification rules, their registry, and their variants with other fixed settings.

Every module of this folder is imported, so that its rules register themselves.
"""

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from mars_viz.registry import Fixed
from mars_viz.rules.base import RULES, SIBLINGS, Dial, OnTrees, Rule, Scale, settle

__all__ = ["RULES", "Dial", "Fixed", "OnTrees", "Rule", "Scale", "rule_named", "rules_and", "settle"]

_FAMILIES = ("lossless", "mars", "engines", "papers")  # in the order of lists, others follow
for _module in dict.fromkeys((*_FAMILIES, *(each.name for each in iter_modules(__path__)))):
    import_module(f"{__name__}.{_module}")


@lru_cache(maxsize=1024)
def rule_named(name: str) -> Rule:
    """Return the rule with this name, or the variant named like 'vllm-thinking:k=5'. Raises BadInput with a remedy. A
    variant's `name` is unique: settings at their defaults are omitted, the others keep their order."""
    rule, values = RULES.parse(name)
    policy = values.pop(SIBLINGS, None)
    varied = rule.varied(values) if values else rule
    return varied.choosing(policy) if policy else varied


def rules_and(own: Rule) -> dict[str, Rule]:
    """Return every rule by name; a variant that is not in the registry follows its family."""
    rules: dict[str, Rule] = {}
    for name, rule in RULES.items():
        rules[name] = rule
        if name == own.family:
            rules[own.name] = own
    return rules
