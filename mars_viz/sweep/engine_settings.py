"""Settings for vLLM, SGLang and TensorRT-LLM that correspond to a rule at a dial value, or the reason why there are
none.

Read: vLLM 0.33.0 and its pull request 45229, SGLang's server arguments as in its pull request 7702, TensorRT-LLM's
`MTPDecodingConfig` (its API reference, 1.3 and 1.4).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from mars_viz.rules import Rule, rule_named
from mars_viz.run import Settings
from mars_viz.shapes import shape_named
from mars_viz.words import exactly

ENGINES = ("vLLM", "SGLang", "TensorRT-LLM")
_CHAINS_ALONE = {
    "vLLM": "vLLM drafts chains, so there is nothing to set there",
    "TensorRT-LLM": "TensorRT-LLM relaxes with its MTP drafter, which drafts chains, so there is nothing to set there",
}
"""Engines without a setting for these rules on trees, with the reason."""


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """One engine's configuration for a rule."""

    engine: str
    text: str  # configuration; empty if the engine lacks the rule
    note: str  # differences from the sweep, or a statement that the engine lacks the rule


def engine_settings(settings: Settings, dial: float) -> tuple[EngineSetting, ...]:
    """Return the rule's setting at this dial value in each engine."""
    rule = rule_named(settings.rule)
    builder = _KNOWN.get(rule.family)
    setting = None if builder is None else builder(rule, dial, settings)
    if setting and settings.drafts_trees and setting.engine in _CHAINS_ALONE:
        setting = EngineSetting(setting.engine, "", f"{_CHAINS_ALONE[setting.engine]}; swept was a {settings.draft}.")
    absent = f"The rule {rule.title} does not exist there; its source: {rule.source}."
    if rule.lossless:
        absent = f"{rule.title} keeps the target's law, as the engine does when nothing is set."
    return tuple(
        setting if setting and setting.engine == engine else EngineSetting(engine, "", absent) for engine in ENGINES
    )


def _vllm(settings: Settings, note: str, **options: object) -> EngineSetting:
    config = json.dumps({"num_speculative_tokens": settings.gamma, **options})
    return EngineSetting("vLLM", f"--speculative-config '{config}'", note)


def _vllm_thinking(rule: Rule, dial: float, settings: Settings) -> EngineSetting:
    note = (
        "In no release: pull request 45229 (closed) has this one field, with r = 0.5 and the 3 best tokens fixed, and "
        "relaxes only while the model thinks, greedily. Here the rule applied to the whole text."
    )
    best = int(rule.values["k"])
    changes = [f"r = {exactly(dial)}"] * (dial != 0.5) + [f"the {best} best tokens"] * (best != 3)
    if changes:
        note += f" For {' and '.join(changes)} its constant{'s' * (len(changes) > 1)} must be changed."
    return _vllm(settings, note, relaxed_thinking=True)


def _vllm_fly(rule: Rule, dial: float, settings: Settings) -> EngineSetting:
    window = int(rule.values["w"])
    if window >= settings.gamma:
        note = (
            f"vLLM refuses a window of {window} with {settings.gamma} drafted tokens: it must be smaller. The rule "
            "relaxes nothing then, as the engine does when nothing is set."
        )
        return EngineSetting("vLLM", "", note)
    return _fly(window, dial, int(rule.values["k"]), settings, "vLLM 0.33.0 or later.")


def _papers_fly(rule: Rule, dial: float, settings: Settings) -> EngineSetting:
    """Return vLLM's setting for the paper's rule. vLLM's window excludes the mismatch, the paper's includes it."""
    window = int(rule.values["w"]) - 1
    if not 0 < window < settings.gamma:
        note = f"vLLM's window is from 1 to γ − 1; W = {window + 1} with γ = {settings.gamma} would need {window}."
        return EngineSetting("vLLM", "", note)
    swept = rule_named(f"vllm-fly:w={window}").name
    note = (
        "The nearest setting of vLLM 0.33.0 or later, not the same rule: it also forgives a rejection that exactly "
        f"{window} drafted tokens follow, and above temperature 0 it verifies by rejection sampling and takes the "
        f"entropy after temperature, top-k and top-p. The rule {swept} is vLLM's; sweep that one."
    )
    return _fly(window, dial, 3, settings, note)


def _fly(window: int, dial: float, best: int, settings: Settings, note: str) -> EngineSetting:
    options = {"fly_window_size": window, "fly_entropy_threshold": dial, "fly_entropy_top_k": best}
    drawn = {"draft_sample_method": "probabilistic"} if settings.temperature > 0 else {}
    return _vllm(settings, note, rejection_sample_method="fly", **options, **drawn)


def _sglang(rule: Rule, dial: float, settings: Settings) -> EngineSetting:
    """Return SGLang's options. Its draft tokens include the text's last token, the root of the verified tree."""
    shape = shape_named(settings.tree).shape.within(settings.gamma)
    single, acc = (exactly(dial), "1") if rule.family == "sglang-single" else ("1", exactly(dial))
    flags = (
        f"--speculative-num-steps {shape.depth or settings.gamma} --speculative-eagle-topk {shape.children} "
        f"--speculative-num-draft-tokens {settings.gamma + 1} "
        f"--speculative-accept-threshold-single {single} --speculative-accept-threshold-acc {acc}"
    )
    return EngineSetting("SGLang", flags, "Without effect on greedy requests.")


def _tensorrt_llm(rule: Rule, dial: float, settings: Settings) -> EngineSetting:
    text = (
        f"MTPDecodingConfig(max_draft_len={settings.gamma}, use_relaxed_acceptance_for_thinking=True, "
        f"relaxed_topk={int(rule.values['k'])}, relaxed_delta={exactly(dial)})"
    )
    note = (
        "Relaxes only while the model thinks (set begin_thinking_phase_token and end_thinking_phase_token), greedily, "
        "and with its MTP drafter. Here the rule applied to the whole text."
    )
    return EngineSetting("TensorRT-LLM", text, note)


_KNOWN: dict[str, Callable[[Rule, float, Settings], EngineSetting]] = {
    "vllm-thinking": _vllm_thinking,
    "vllm-fly": _vllm_fly,
    "fly": _papers_fly,
    "sglang-single": _sglang,
    "sglang-acc": _sglang,
    "tensorrt-llm": _tensorrt_llm,
}
