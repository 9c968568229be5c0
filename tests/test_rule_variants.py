"""Rules with other fixed settings: their names, their verdicts, and where their names appear."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from factories import make_speculation, toy_map, toy_run
from rule_cases import chain, logits, one

from mars_viz.analysis.all_rules import AllRules
from mars_viz.analysis.judgements import own_dial
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.records import CANDIDATES, Emission, Speculation
from mars_viz.rules import RULES, Rule, rule_named, rules_and, settle
from mars_viz.run import Run, Settings
from mars_viz.runfiles import load_run, read_zip, write_zip
from mars_viz.sweep.engine_settings import EngineSetting, engine_settings
from mars_viz.ui.links import from_parameters, to_parameters
from mars_viz.ui.live.page_state import LiveView
from mars_viz.ui.rule_lab.page_state import RuleView
from mars_viz.ui.rule_lab.page_state import fitted as rule_fitted
from mars_viz.ui.rule_lab.page_state import from_parameters as rule_link
from mars_viz.ui.rule_lab.rule_words import declarations

ADJUSTABLE = [rule for rule in RULES.values() if rule.fixed]


def variants(rule: Rule) -> list[Rule]:
    """Return the rule with each setting at its ends and near its default."""
    return [
        rule.varied({each.key: value})
        for each in rule.fixed
        for value in dict.fromkeys((each.low, each.default + each.step, each.default - each.step, each.high))
    ]


@pytest.mark.parametrize(
    ("written", "name", "title"),
    [
        ("vllm-thinking:k=5", "vllm-thinking:k=5", "vLLM relaxed thinking, k = 5"),
        ("tensorrt-llm:k=4", "tensorrt-llm:k=4", "TensorRT-LLM relaxed, k = 4"),
        ("tensorrt-llm: K = 4.0", "tensorrt-llm:k=4", "TensorRT-LLM relaxed, k = 4"),
        ("fly:w=4", "fly:w=4", "FLy, W = 4"),
        ("fly:w=4,w=4", "fly:w=4", "FLy, W = 4"),
        ("vllm-fly:k=5,w=2", "vllm-fly:w=2,k=5", "vLLM FLy, W = 2, k = 5"),
        ("typical:c=0.50", "typical:c=0.5", "Typical acceptance, c = 0.5"),
        ("vllm-thinking:k=3", "vllm-thinking", "vLLM relaxed thinking"),
        ("tensorrt-llm:k=1e1,k=10", "tensorrt-llm", "TensorRT-LLM relaxed"),
    ],
)
def test_a_variant_has_one_name(written: str, name: str, title: str) -> None:
    rule = rule_named(written)
    assert (rule.name, rule.title) == (name, title)
    assert rule == rule_named(name) and hash(rule) == hash(rule_named(name))
    assert Settings(rule=written).rule == name
    assert rule.family == name.partition(":")[0]
    assert not set(rule.slug) & set(":=, ")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("vllm:k=5", "Choose one of strict"),
        ("vllm-thinking:", "write vllm-thinking:k=3"),
        ("vllm-thinking:k", "sets nothing"),
        ("vllm-thinking:k=5,", "sets nothing"),
        ("vllm-thinking:n=5", "'n'"),
        ("vllm-thinking:k=17", "k is 17; .* from 1 to 16"),
        ("vllm-thinking:k=0", "from 1 to 16"),
        ("vllm-thinking:k=2.5", "whole number"),
        ("vllm-thinking:k=nan", "whole number"),
        ("vllm-thinking:k=five", "'five'"),
        ("vllm-thinking:k=2,k=5", "twice"),
        ("fly:w=64", "from 1 to 63"),
        ("vllm-fly:w=0", "from 1 to 63"),
        ("vllm-fly:k=6", "from 1 to 5"),
        ("typical:c=0", "from 0.1 to 10"),
        ("mars:k=2", "no settings"),
        ("strict:", "no settings"),
    ],
)
def test_impossible_names_are_refused(written: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        rule_named(written)
    with pytest.raises(BadInput):
        Settings(rule=written)


def test_defaults_and_ends_are_in_range_and_recorded() -> None:
    for rule in ADJUSTABLE:
        for each in rule.fixed:
            assert each.low <= each.default <= each.high and rule.values[each.key] == each.default
            assert each.key != "k" or each.high <= CANDIDATES
            assert each.checked(each.low) == each.low and each.checked(each.high) == each.high
    assert {rule.name for rule in ADJUSTABLE} == {"vllm-thinking", "vllm-fly", "tensorrt-llm", "fly", "typical"}


FIVE = logits(0.4, 0.3, 0.2, 0.1, 0.0)


@pytest.mark.parametrize(
    ("rule", "x", "dial", "kept"),
    [
        ("vllm-thinking:k=2", 1, 0.74, 1),  # p(x)/p1 >= r: 3/4, 1/2, 1/4
        ("vllm-thinking:k=2", 2, 0.1, 0),
        ("vllm-thinking:k=4", 3, 0.24, 1),
        ("vllm-thinking:k=4", 3, 0.26, 0),
        ("vllm-thinking:k=5", 4, 0.0, 0),  # impossible
        ("vllm-thinking:k=1", 1, 0.0, 0),
        ("tensorrt-llm:k=2", 2, 0.9, 0),
        ("tensorrt-llm:k=3", 2, 0.21, 1),  # p(x) >= p1 - δ
        ("tensorrt-llm:k=3", 2, 0.19, 0),
        ("tensorrt-llm:k=1", 1, 1.0, 0),
        ("typical:c=2", 2, 0.19, 1),  # p > min(ε, c √ε exp(-H)), p exp(H) = .719; (.719 / 2)² < p
        ("typical:c=2", 2, 0.21, 0),
        ("typical:c=0.8", 2, 0.80, 1),  # (.719 / .8)² = .808
        ("typical:c=0.8", 2, 0.82, 0),
    ],
)
def test_by_hand(rule: str, x: int, dial: float, kept: int) -> None:
    speculation = one(FIVE, x)
    assert len(settle(speculation, rule_named(rule).judge(speculation), dial).kept) == kept


@pytest.mark.parametrize(("window", "kept"), [(1, 4), (2, 4), (3, 4), (4, 0)])
def test_the_window_of_fly_counts_the_tokens_that_must_follow(window: int, kept: int) -> None:
    unsure, sure = logits(0.4, 0.35, 0.25), logits(0.1, 0.8, 0.1)
    block = chain([unsure, sure, sure, sure, sure], [1, 1, 1, 1])
    assert len(settle(block, rule_named(f"fly:w={window}").judge(block), 0.3).kept) == kept
    last = chain([unsure, unsure, sure], [1, 2])  # one token follows, and it does not match
    assert len(settle(last, rule_named(f"fly:w={window}").judge(last), 0.3).kept) == (window == 1)


def blocks(count: int = 60) -> list[Speculation]:
    rng, found = np.random.default_rng(7), []
    for seed in range(count):
        target, drafter = rng.normal(10, 2, (8, 24)), rng.normal(10, 2, (7, 24))
        tokens = [int(row.argsort()[-1 - rng.integers(0, 4)]) for row in target[:7]]
        found.append(make_speculation(target, drafter, tokens, temperature=float(seed % 2), seed=seed))
    return found


@pytest.mark.parametrize("rule", [each for rule in ADJUSTABLE for each in variants(rule)], ids=lambda rule: rule.name)
def test_off_equals_strict_and_a_looser_dial_keeps_no_less(rule: Rule) -> None:
    dial = rule.dial
    assert dial is not None and rule.monotone
    ladder = np.linspace(dial.high, dial.low, 41) if dial.strict_is_high else np.linspace(dial.low, dial.high, 41)
    for speculation in blocks():
        verdicts = rule.judge(speculation)
        reference = "rejection-sampling" if rule.on_rejection is Emission.RESIDUAL else "mars"
        assert np.array_equal(verdicts.keeps(dial.strict), RULES[reference].judge(speculation).keep_strict)
        kept = [len(settle(speculation, verdicts, float(value)).kept) for value in ladder]
        assert kept == sorted(kept)


NAME = "vllm-thinking:k=5"
VARIANT = Settings(rule=NAME, dial=0.02, gamma=3, max_new_tokens=40)


def walked(settings: Settings) -> Run:
    return toy_run(**{name: getattr(settings, name) for name in Settings.__slots__})


def test_runs_and_maps_of_a_variant_are_its_own(tmp_path: Path) -> None:
    run = walked(VARIANT)
    assert run.token_ids != walked(replace(VARIANT, rule="vllm-thinking")).token_ids
    for back in (load_run(run.save(tmp_path / "run")), read_zip(write_zip(run), tmp_path / "unpacked")):
        assert (back.settings.rule, back.token_ids) == (NAME, run.token_ids)
        assert own_dial(back, rule_named(NAME)) == back.settings.dial == 0.02
    made, _ = toy_map(replace(VARIANT, dial=None))
    of_rule, _ = toy_map(replace(VARIANT, dial=None, rule="vllm-thinking"))
    assert len(made.segments) > len(of_rule.segments) and made.at(0.02).token_ids == run.token_ids


def test_rule_lists_contain_the_runs_variant_after_its_rule() -> None:
    run, names = walked(VARIANT), list(rules_and(rule_named(NAME)))
    assert names.index(NAME) == names.index("vllm-thinking") + 1 and set(names) == {*RULES, NAME}
    assert list(rules_and(RULES["mars"])) == list(RULES)
    panel, sent = AllRules(run), run_payload(run)
    assert list(panel.opinions) == names and panel.row(NAME, 0.02).rounds == len(run.rounds)
    assert [each["name"] for each in sent["rules"]] == [name for name in names if name in panel.able]
    assert any("k = 5" in text for text in declarations(rule_named(NAME)))


def test_links_may_name_the_runs_variant_only() -> None:
    run = walked(VARIANT)
    assert RuleView().rule_on(run).name == NAME
    for text in (NAME, "vllm-thinking:k=5.0", "vllm-thinking: K = 5"):
        assert rule_fitted(rule_link({"rule": text}).view, run).view.rule == NAME
    assert rule_fitted(rule_link({"rule": "vllm-thinking:k=3"}).view, run).view.rule == "vllm-thinking"
    for other in ("vllm-thinking:k=7", "vllm-thinking:k=<img>"):
        opened = rule_fitted(rule_link({"rule": other}).view, run)
        assert opened.view.rule == "" and opened.complaints
    view = LiveView(settings=replace(Settings(), rule=NAME, dial=0.3))
    written = to_parameters(view)
    assert written["rule"] == NAME and from_parameters(LiveView, written).view.settings == view.settings
    refused = from_parameters(LiveView, {"rule": "vllm-thinking:k=99"})
    assert refused.view.settings.rule == Settings().rule and refused.complaints


def test_engines_get_the_fixed_settings() -> None:
    def written(rule: str, dial: float, **more: object) -> EngineSetting:
        (found,) = (each for each in engine_settings(Settings(rule=rule, **more), dial) if each.text)  # type: ignore[arg-type]
        return found

    assert "5 best tokens its constant must" in written(NAME, 0.5).note
    assert "r = 0.4 and the 5 best tokens its constants must" in written(NAME, 0.4).note
    text = written("vllm-fly:w=3,k=2", 0.4).text
    assert json.loads(text.removeprefix("--speculative-config '").removesuffix("'")) == {
        "num_speculative_tokens": 6,
        "rejection_sample_method": "fly",
        "fly_window_size": 3,
        "fly_entropy_threshold": 0.4,
        "fly_entropy_top_k": 2,
    }
    assert "relaxed_topk=4, relaxed_delta=0.3" in written("tensorrt-llm:k=4", 0.3).text
    paper = written("fly", 0.3, temperature=0.8)
    assert '"fly_window_size": 5' in paper.text and '"draft_sample_method": "probabilistic"' in paper.text
    assert "not the same rule" in paper.note and "vllm-fly" in paper.note
    paper = written("fly:w=3", 0.3)
    assert '"fly_window_size": 2' in paper.text and "vllm-fly:w=2" in paper.note
    for rule in ("vllm-fly:w=6", "fly:w=1", "fly:w=8"):  # windows that vLLM refuses
        found = engine_settings(Settings(rule=rule, gamma=6), 0.3)
        assert not any(each.text for each in found) and "window" in found[0].note
