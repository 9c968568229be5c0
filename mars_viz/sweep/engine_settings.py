"""Settings for engines that correspond to a rule at a dial value: the length of drafts everywhere, and the threshold in
engines that have the rule.

Read: vLLM 0.33.0 and its pull request 45229, SGLang's server arguments as in its pull request 7702, TensorRT-LLM's
`MTPDecodingConfig` (its API reference, 1.3 and 1.4), llama.cpp's options `--spec-draft-*`, MAX's `SpeculativeConfig`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from mars_viz.rules import Rule, rule_named
from mars_viz.run import Settings
from mars_viz.shapes import shape_named
from mars_viz.words import exactly

ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "MAX")


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """One engine's configuration for a rule."""

    engine: str
    text: str  # configuration; empty if the engine cannot draft like this
    note: str  # differences from the sweep, or a statement that the engine lacks the rule


def engine_settings(settings: Settings, dial: float) -> tuple[EngineSetting, ...]:
    """Return the settings of each engine for the rule at this dial value, in the order of `ENGINES`."""
    rule = rule_named(settings.rule)
    found = {each.engine: each for build in _KNOWN.get(rule.family, ()) if (each := build(rule, dial, settings))}
    alone = f"The rule {rule.title} does not exist there; this sets the draft alone."
    if rule.lossless:
        alone = f"{rule.title} keeps the target's law, as the engine does; this sets the draft."
    made = [found.get(engine) or EngineSetting(engine, _DRAFTS[engine](settings), alone) for engine in ENGINES]
    if not settings.drafts_trees:
        return tuple(made)
    chains = f"It drafts chains, so there is nothing to set; swept was a {settings.draft}."
    return tuple(each if each.engine == "SGLang" else replace(each, text="", note=chains) for each in made)


def _llama_cpp(settings: Settings) -> str:
    """Return llama.cpp's options: it stops a draft after a token with less than p-min, as 'confidence' does."""
    control = settings.control
    least = f" --spec-draft-p-min {exactly(control.threshold)}" if control and control.controller.name == LEAST else ""
    return f"--spec-draft-n-max {settings.gamma}{least}"


def _sglang_draft(settings: Settings) -> str:
    """Return SGLang's options. Its draft tokens include the text's last token, the root of the verified tree."""
    shape = shape_named(settings.tree).shape.within(settings.gamma)
    return (
        f"--speculative-num-steps {shape.depth or settings.gamma} --speculative-eagle-topk {shape.children} "
        f"--speculative-num-draft-tokens {settings.gamma + 1}"
    )


LEAST = "confidence"  # name of the controller that llama.cpp has
_DRAFTS: dict[str, Callable[[Settings], str]] = {
    "vLLM": lambda settings: _vllm(settings, "").text,
    "SGLang": _sglang_draft,
    "TensorRT-LLM": lambda settings: f"MTPDecodingConfig(max_draft_len={settings.gamma})",
    "llama.cpp": _llama_cpp,
    "MAX": lambda settings: f"SpeculativeConfig(num_speculative_tokens={settings.gamma})",
}
"""The draft's length in each engine's configuration."""


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
    single, acc = (exactly(dial), "1") if rule.family == "sglang-single" else ("1", exactly(dial))
    thresholds = f"--speculative-accept-threshold-single {single} --speculative-accept-threshold-acc {acc}"
    return EngineSetting("SGLang", f"{_sglang_draft(settings)} {thresholds}", "Without effect on greedy requests.")


def _relaxed(rule: Rule, dial: float) -> str:
    best = int(rule.values["k"])
    return f"use_relaxed_acceptance_for_thinking=True, relaxed_topk={best}, relaxed_delta={exactly(dial)}"


def _tensorrt_llm(rule: Rule, dial: float, settings: Settings) -> EngineSetting:
    text = f"MTPDecodingConfig(max_draft_len={settings.gamma}, {_relaxed(rule, dial)})"
    note = (
        "Relaxes only while the model thinks (set begin_thinking_phase_token and end_thinking_phase_token), greedily, "
        "and with its MTP drafter. Here the rule applied to the whole text."
    )
    return EngineSetting("TensorRT-LLM", text, note)


def _max(rule: Rule, dial: float, settings: Settings) -> EngineSetting:
    text = f"SpeculativeConfig(num_speculative_tokens={settings.gamma}, {_relaxed(rule, dial)})"
    return EngineSetting("MAX", text, "Relaxes only while the model thinks. Here the rule applied to the whole text.")


_KNOWN: dict[str, tuple[Callable[[Rule, float, Settings], EngineSetting], ...]] = {
    "vllm-thinking": (_vllm_thinking,),
    "vllm-fly": (_vllm_fly,),
    "fly": (_papers_fly,),
    "sglang-single": (_sglang,),
    "sglang-acc": (_sglang,),
    "tensorrt-llm": (_tensorrt_llm, _max),
}
"""Builders of the settings of engines that have a rule."""
