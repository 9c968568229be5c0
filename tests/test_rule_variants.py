"""Rules with other fixed settings: their names, and where their names appear; the pages about the rules."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from factories import toy_map, toy_run

from mars_viz.analysis.all_rules import AllRules
from mars_viz.analysis.judgements import own_dial
from mars_viz.components.explorer.payload import run_payload
from mars_viz.errors import BadInput
from mars_viz.rules import RULES, rule_named, rules_and, settle
from mars_viz.run import Run, Settings
from mars_viz.runfiles import load_run, read_zip, write_zip
from mars_viz.sweep.engine_settings import EngineSetting, engine_settings
from mars_viz.ui.links import from_parameters, to_parameters
from mars_viz.ui.live.page_state import LiveView
from mars_viz.ui.rule_lab.page_state import RuleView
from mars_viz.ui.rule_lab.page_state import fitted as rule_fitted
from mars_viz.ui.rule_lab.page_state import from_parameters as rule_link


@pytest.mark.parametrize(
    ("written", "name", "title"),
    [
        ("vllm-thinking:k=5", "vllm-thinking:k=5", "vLLM relaxed thinking, k = 5"),
        ("tensorrt-llm: K = 4.0", "tensorrt-llm:k=4", "TensorRT-LLM relaxed, k = 4"),
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
        ("vllm-thinking:n=5", "'n'"),
        ("vllm-thinking:k=17", "k is 17; .* from 1 to 16"),
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


NAME = "vllm-thinking:k=5"
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def run() -> Run:
    return toy_run(rule=NAME, dial=0.02, gamma=3, max_new_tokens=40)


def test_runs_maps_and_rule_lists_of_a_variant_are_its_own(run: Run, tmp_path: Path) -> None:
    of_rule = replace(run.settings, rule="vllm-thinking", dial=None)
    for back in (load_run(run.save(tmp_path / "run")), read_zip(write_zip(run), tmp_path / "unpacked")):
        assert (back.settings.rule, back.token_ids) == (NAME, run.token_ids)
        assert own_dial(back, rule_named(NAME)) == back.settings.dial == 0.02
    made, usual = toy_map(replace(of_rule, rule=NAME))[0], toy_map(of_rule)[0]
    assert len(made.segments) > len(usual.segments) and made.at(0.02).token_ids == run.token_ids
    names, panel = list(rules_and(rule_named(NAME))), AllRules(run)
    assert names.index(NAME) == names.index("vllm-thinking") + 1 and set(names) == {*RULES, NAME}
    assert list(panel.opinions) == names and panel.row(NAME, 0.02).rounds == len(run.rounds)
    assert [each["name"] for each in run_payload(run)["rules"]] == [name for name in names if name in panel.able]


def test_links_may_name_the_runs_variant_only(run: Run) -> None:
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

    assert "r = 0.4 and the 5 best tokens its constants must" in written(NAME, 0.4).note
    text = written("vllm-fly:w=3,k=2", 0.4).text
    fly = {"fly_window_size": 3, "fly_entropy_threshold": 0.4, "fly_entropy_top_k": 2}
    assert json.loads(text.removeprefix("--speculative-config '").removesuffix("'")) == {
        **{"num_speculative_tokens": 6, "rejection_sample_method": "fly"},
        **fly,
    }
    assert "relaxed_topk=4, relaxed_delta=0.3" in written("tensorrt-llm:k=4", 0.3).text
    paper = written("fly:w=3", 0.3, temperature=0.8)
    assert '"fly_window_size": 2' in paper.text and '"draft_sample_method": "probabilistic"' in paper.text
    assert "not the same rule" in paper.note and "vllm-fly:w=2" in paper.note
    for rule in ("vllm-fly:w=6", "fly:w=1", "fly:w=8"):  # windows that vLLM refuses
        found = engine_settings(Settings(rule=rule, gamma=6), 0.3)
        assert not any(each.text for each in found) and "window" in found[0].note


def test_the_pages_of_the_rules_are_up_to_date_and_their_example_is_what_it_says(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("rule_pages", ROOT / "docs" / "rule_pages.py")
    assert spec and spec.loader
    maker = sys.modules["rule_pages"] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(maker)
    assert [path.name for path in maker.stale()] == [], f"Run `{maker.COMMAND}` and read what it changed."
    pages = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs" / "rules").glob("*.md")}
    assert pages.keys() - {"README"} == set(RULES)
    block = maker.example()
    assert np.allclose(block.p, [0.40, 0.88, 0.71, 0.42, 0.93, 0.90, 0.16, 0.82])
    kept = {name: len(settle(block, rule.judge(block), rule.checked_dial(None)).kept) for name, rule in RULES.items()}
    assert len(set(kept.values())) >= 4, "it should tell rules apart"
    assert kept["rejection-sampling"] == 0 and kept["block-verification"] == 3, "the coin of the first place fails"
    pages["mars"] = pages["mars"].replace("| default | 0.9 |", "| default | 7 |") + "\nA last word.\n"
    for name, text in pages.items():
        (tmp_path / f"{name}.md").write_text(text, "utf-8")
    fresh = (ROOT / "docs" / "rules" / "mars.md").read_text("utf-8")
    assert maker.stale(tmp_path) == {tmp_path / "mars.md": fresh + "\nA last word.\n"}
