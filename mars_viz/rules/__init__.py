"""The registry of verification rules, and their variants with other fixed settings."""

from functools import lru_cache

from mars_viz.bounds import shortened
from mars_viz.errors import SettingError
from mars_viz.records import Policy
from mars_viz.rules.base import SIBLINGS, Dial, OnTrees, Rule, Scale, settle
from mars_viz.rules.bild import Bild
from mars_viz.rules.block_verification import BlockVerification
from mars_viz.rules.cactus import CactusAcceptance
from mars_viz.rules.cascade import CascadeOpt, CascadeTokenAcceptance
from mars_viz.rules.ears import Ears
from mars_viz.rules.ensemble import Ensemble
from mars_viz.rules.fixed import Fixed, values_in
from mars_viz.rules.fly import Fly, VllmFly
from mars_viz.rules.fuzzy import Fuzzy
from mars_viz.rules.greedy_multi_path import GreedyMultiPath
from mars_viz.rules.k_seq import KSeq
from mars_viz.rules.lenience import Lenience
from mars_viz.rules.mars import Mars
from mars_viz.rules.mars_code import MarsCode
from mars_viz.rules.mars_invariant import MarsMargin, MarsOdds
from mars_viz.rules.mars_sampling import MarsSampling
from mars_viz.rules.recursive_rejection import RecursiveRejection
from mars_viz.rules.regret_budget import RegretBudget
from mars_viz.rules.rejection_sampling import RejectionSampling
from mars_viz.rules.sets import MinPSet, NucleusSet, TopKSet
from mars_viz.rules.sglang import SglangAccumulated, SglangSingle
from mars_viz.rules.strict import Strict
from mars_viz.rules.tensorrt_llm import TensorRtLlm
from mars_viz.rules.traversal import Traversal
from mars_viz.rules.typical import Typical
from mars_viz.rules.vllm_thinking import VllmThinking

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

LONGEST_NAME = 500
"""Maximum number of characters of a rule's name with its settings."""


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
    for part in chosen:
        varied = varied.choosing(_policy(part.partition("=")[2].strip().lower()))
    return varied


def _policy(name: str) -> Policy:
    for policy in Policy:
        if policy.value == name:
            return policy
    raise SettingError(f"There is no choice among siblings {shortened(name)}; write {SIBLINGS}=longest, for instance.")
