"""The registry of verification rules, and their variants with other fixed settings."""

from functools import lru_cache

from mars_viz.bounds import shortened
from mars_viz.errors import SettingError
from mars_viz.records import Policy
from mars_viz.rules.base import SIBLINGS, Dial, OnTrees, Rule, Scale, settle
from mars_viz.rules.drawn_trees import GreedyMultiPath, KSeq, RecursiveRejection, Traversal
from mars_viz.rules.engines import (
    Ensemble,
    Lenience,
    SglangAccumulated,
    SglangSingle,
    TensorRtLlm,
    Typical,
    VllmThinking,
)
from mars_viz.rules.fixed import Fixed, values_in
from mars_viz.rules.fly import Fly, VllmFly
from mars_viz.rules.lossless import BlockVerification, RejectionSampling, Strict
from mars_viz.rules.mars import Mars, MarsCode, MarsMargin, MarsOdds, MarsSampling
from mars_viz.rules.papers import Bild, CactusAcceptance, CascadeOpt, CascadeTokenAcceptance, Ears, Fuzzy, RegretBudget
from mars_viz.rules.sets import MinPSet, NucleusSet, TopKSet

__all__ = ["RULES", "Dial", "Fixed", "OnTrees", "Rule", "Scale", "rule_named", "rules_and", "settle"]

_OF_DRAWN_TREES = (RecursiveRejection(), KSeq(), Traversal(), GreedyMultiPath())
_LOSSLESS = (Strict(), RejectionSampling(), BlockVerification(), *_OF_DRAWN_TREES)
_MARS = (Mars(), MarsCode(), MarsSampling(), MarsMargin(), MarsOdds())
_SGLANG, _VLLM = (SglangAccumulated(), SglangSingle()), (VllmThinking(), VllmFly())
_OF_ENGINES = (Lenience(), Typical(), *_SGLANG, TensorRtLlm(), *_VLLM, Ensemble())
_CASCADES = (CascadeOpt(), CascadeTokenAcceptance())
_OF_PAPERS = (Fuzzy(), CactusAcceptance(), *_CASCADES, Bild(), Fly(), Ears(), RegretBudget())
_OF_SAMPLERS = (TopKSet(), NucleusSet(), MinPSet())

RULES: dict[str, Rule] = {rule.name: rule for rule in (*_LOSSLESS, *_MARS, *_OF_ENGINES, *_OF_PAPERS, *_OF_SAMPLERS)}
"""Every rule by name: lossless rules first, then MARS, engines, papers and samplers' sets."""

LONGEST_NAME = 500  # maximum number of characters of a rule's name with its settings


def rule_named(name: str) -> Rule:
    """Return the rule with this name, or the variant named like 'vllm-thinking:k=5'. Raises BadInput with a remedy. A
    variant's `name` is unique: settings at their defaults are omitted, the others keep their order."""
    return RULES[name] if name in RULES else _variant(name)


def rules_and(own: Rule) -> dict[str, Rule]:
    """Return every rule by name; a variant that is not in the registry follows its family."""
    rules: dict[str, Rule] = {}
    for name, rule in RULES.items():
        rules[name] = rule
        if name == own.family:
            rules[own.name] = own
    return rules


@lru_cache(maxsize=1024)
def _variant(name: str) -> Rule:
    family, colon, settings = name.partition(":")
    if family not in RULES or len(name) > LONGEST_NAME:
        raise SettingError(f"There is no rule {shortened(family)}. Choose one of {', '.join(RULES)}.")
    rule, parts = RULES[family], [part.strip() for part in settings.split(",")]
    chosen = [part for part in parts if part.lower().startswith(f"{SIBLINGS}=")]
    others = ",".join(part for part in parts if part not in chosen)
    varied = rule.varied(values_in(others, family, rule.fixed)) if others or not chosen else rule
    policies = {policy.value: policy for policy in Policy}
    for part in chosen:
        value = part.partition("=")[2].strip().lower()
        if value not in policies:
            example = f"write {SIBLINGS}=longest, for instance"
            raise SettingError(f"There is no choice among siblings {shortened(value)}; {example}.")
        varied = varied.choosing(policies[value])
    return varied
