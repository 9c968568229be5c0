"""The token cascade, the only rule whose verdicts have gaps; rules with other fixed settings and their names."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from factories import toy_map, toy_run
from rule_cases import coin, decided, logits, one
from test_runfiles import difference, edited

from mars_viz.analysis.rulings import AllRules, opinion, own_dial
from mars_viz.components.explorer.payload import run_payload
from mars_viz.controllers import CONTROLLERS
from mars_viz.errors import BadInput
from mars_viz.records import Emission, Speculation
from mars_viz.registry import Fixed, Registry, Words
from mars_viz.rules import RULES, rule_named, rules_and, settle
from mars_viz.run import Run, Settings
from mars_viz.runfiles import codec, load_run, read_zip, write_zip
from mars_viz.shapes import SHAPES, shape_named
from mars_viz.speculators.drafters import DRAFTERS, drafter_named
from mars_viz.sweep.document import EngineSetting, engine_settings
from mars_viz.ui.links import from_parameters, to_parameters
from mars_viz.ui.live import LiveView
from mars_viz.ui.rules_page import RulesPageState, RuleView
from mars_viz.ui.rules_page import fitted as rule_fitted

CASCADE = "cascade-token-acceptance"
RULE = RULES[CASCADE]
NEVER = float("nan")

ABC, THEIRS = logits(0.5, 0.3, 0.2), logits(0.6, 0.1, 0.3)
"""The target's law and the drafter's over a, b and c; they join A at 0, .4 and .6, and leave .4, .3 and 0."""
MASKED = logits(0.6, 0.3, 0.1, 0.0)
"""Over a uniform q; they join at 0, .5, .8333 and, since p = 0, at 1."""

FLIPS: list[tuple[Speculation, float, float]] = [  # where the gap begins, where the breakpoint is
    (coin(ABC, 2, 0.50, THEIRS), 0.0, 0.6),  # u q = .15: within .2, above .4 · .2
    (coin(ABC, 2, 0.25, THEIRS), 0.4, 0.6),  # .075: within .4 · .2, above .3 · .2
    (coin(ABC, 2, 0.10, THEIRS), NEVER, NEVER),  # .03: within all of them
    (coin(ABC, 2, 0.90, THEIRS), NEVER, 0.6),  # .27: above .2, so it is only ever kept in A
    (coin(MASKED, 3, 0.00), NEVER, 1.0),  # p = 0: A is everything at 1
    (coin(MASKED, 2, 0.29, top_k=2), NEVER, 1.0),  # ruled out: p = 0
    (one(logits(0.5, 0.5), 1), NEVER, 0.0),  # a tie: off, and then in A
]


@pytest.mark.parametrize(("speculation", "begins", "ends"), FLIPS)
def test_by_hand(speculation: Speculation, begins: float, ends: float) -> None:
    verdicts = RULE.judge(speculation)
    assert verdicts.gaps[0] == pytest.approx(begins, abs=1e-6, nan_ok=True)
    assert verdicts.breakpoints[0] == pytest.approx(ends, abs=1e-6, nan_ok=True)
    assert (verdicts.gap_from is None) == math.isnan(begins)
    strict = bool(verdicts.keep_strict[0])
    flips = [flip for flip in (*verdicts.gaps, *verdicts.breakpoints) if 0 < flip < 1]  # which belong to what follows
    dials = [-0.01, *np.linspace(0.005, 0.995, 100), 1.0, *flips, *(math.nextafter(flip, -1) for flip in flips)]
    for dial in dials:
        expected = dial >= verdicts.breakpoints[0] or (strict and not dial >= verdicts.gaps[0])
        decision = decided(CASCADE, speculation, dial)
        assert bool(decision.kept) == expected, dial
        if not expected:
            assert decision.emitted == speculation.emissions[0, Emission.RESIDUAL]
    assert decided(CASCADE, speculation, -0.01) == decided("rejection-sampling", speculation, None)


def test_files_hold_gaps_and_the_drafters_law(tmp_path: Path) -> None:
    run, other = (toy_run(rule=rule, temperature=1.0, max_new_tokens=120) for rule in (CASCADE, "mars-sampling"))
    assert difference(run, load_run(run.save(tmp_path / "run"))) == ""
    files, others = codec.encode(run), codec.encode(other)
    for made, gaps in ((files, True), (others, False)):
        assert ("gap_from" in pq.read_schema(BytesIO(made["nodes.parquet"])).names) is gaps
    with pytest.raises(BadInput, match="drafter for each"):
        codec.decode(edited(files, "nodes", lambda columns: columns.update(best_q=columns["best_q"][:, 1:])))
    older = edited(others, "nodes", lambda columns: columns.pop("best_q"))
    run = codec.decode(older)
    first = run.rounds[0].speculation
    assert "best_q" not in first.columns and first.best_q.shape == (len(first), 0)
    assert opinion(RULE, run).lacks == str(RULE.lacks(first)) and opinion(RULES["cascade-opt"], run).lacks == ""
    with pytest.raises(BadInput, match="probabilities of the target's best tokens"):
        RULE.judge(first)
    assert codec.encode(run)["nodes.parquet"] == older["nodes.parquet"]


def test_a_map_splits_where_a_gap_begins_and_where_it_ends() -> None:
    settings = Settings(rule=CASCADE, temperature=1.0, gamma=4, max_new_tokens=24)
    made, _ = toy_map(settings)
    edges = {segment.low for segment in made.segments}
    verdicts = [round_.verdicts for segment in made.segments for round_ in segment.rounds]
    assert edges & {gap for found in verdicts for gap in found.gaps.tolist()}
    assert edges & {flip for found in verdicts for flip in found.breakpoints[~np.isnan(found.gaps)].tolist()}


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


def test_impossible_names_are_refused() -> None:
    for written, message in (("vllm:k=5", "Choose one of strict"), ("fly:w=64", "from 1 to 63")):
        with pytest.raises(BadInput, match=message):
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
        assert rule_fitted(RulesPageState().opened({"rule": text}).view, run).view.rule == NAME
    assert rule_fitted(RulesPageState().opened({"rule": "vllm-thinking:k=3"}).view, run).view.rule == "vllm-thinking"
    for other in ("vllm-thinking:k=7", "vllm-thinking:k=<img>"):
        opened = rule_fitted(RulesPageState().opened({"rule": other}).view, run)
        assert opened.view.rule == "" and opened.complaints
    view = LiveView(settings=replace(Settings(), rule=NAME, dial=0.3))
    written = to_parameters(view)
    assert written["rule"] == NAME and from_parameters(LiveView, written).view.settings == view.settings
    refused = from_parameters(LiveView, {"rule": "vllm-thinking:k=99"})
    assert refused.view.settings.rule == Settings().rule and refused.complaints


def test_engines_get_the_fixed_settings() -> None:
    def written(rule: str, dial: float, **more: object) -> EngineSetting:
        made = engine_settings(Settings(rule=rule, **more), dial)  # type: ignore[arg-type]
        return next(each for each in made if each.has_rule)

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
        assert not found[0].text and "window" in found[0].note


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
    (tmp_path / "mars.md").write_text(pages["mars"].replace("| default | 0.9 |", "| 7 |") + "\nA word.\n", "utf-8")
    assert maker.stale(tmp_path)[tmp_path / "mars.md"] == pages["mars"] + "\nA word.\n"


COUNT = Fixed("k", "K", "tokens", 1, 16, 3, "how many")
RATE = Fixed("rate", "ρ", "rate", 0, 1, 0.5, "how much", whole=False)
THINGS: Registry[tuple[Any, ...]] = Registry("thing", lambda settings: settings, also=("none",))
THINGS |= {
    "plain": (),
    "counted": (COUNT, RATE),
    "whole": (Words("", "0.5", "a number", float),),
    "filed": (COUNT, Words("of", "plain", runs_on=True), Words("text", "FILE", runs_on=True)),
}


PARSED: list[tuple[object, dict[str, Any] | str]] = [
    ("counted", {}),
    ("counted: K = 5.0 , Rate=0.25,", {"k": 5, "rate": 0.25}),
    ("counted:k=5,k=5.0", {"k": 5}),
    ("whole:0.25", {"": 0.25}),
    ("filed:of=plain:a,b=c,text=/x,y=z", {"of": "plain:a,b=c", "text": "/x,y=z"}),
    ("filed:k=2, TEXT=a,of=b", {"k": 2, "text": "a,of=b"}),
    ("filed:of=a,text=", {"of": "a", "text": ""}),
    (3, "There is no thing 3. Choose one of none, plain, counted, whole, filed."),
    ("plain:k=1", "The thing plain has no setting 'k'. Leave it out."),
    ("counted:k", "The thing counted has no setting 'k'. Write counted:k=3 or counted:rate=0.5, for instance."),
    ("counted:k=1.5", "K is 1.5; it must be a whole number from 1 to 16."),
    ("counted:rate=nan", "ρ is nan; it must be a number from 0 to 1."),
    ("counted:k=1,k=2", "k is set twice in 'counted:k=1,k=2', to different values; set it once."),
    ("whole:x", "The value after the colon is 'x'; it must be a number."),
    ("whole:", "The thing whole has no setting ':'. Write whole:0.5, for instance."),
]


@pytest.mark.parametrize(("name", "expected"), PARSED)
def test_names_give_a_thing_and_its_settings_or_are_refused(name: Any, expected: dict[str, Any] | str) -> None:
    if isinstance(expected, dict):
        assert THINGS.parse(name) == (THINGS[name.partition(":")[0]], expected)
        return
    with pytest.raises(BadInput) as caught:
        THINGS.parse(name)
    assert str(caught.value) == expected and caught.value.exit_code == 2


@pytest.mark.parametrize(
    "registry", [RULES, CONTROLLERS, SHAPES, DRAFTERS], ids=["rule", "controller", "shape", "drafter"]
)
def test_every_registered_thing_refuses_unknown_settings(registry: Registry[Any]) -> None:
    for name in registry:
        registry.parse(name)
        for wrong in ("unknown=1", ""):
            if not (wrong and hasattr(registry[name], "head")):  # whose setting is any path
                with pytest.raises(BadInput, match=r"has no setting|must be a number"):
                    registry.parse(f"{name}:{wrong}")


def test_examples_of_messages_are_valid() -> None:
    for registry, named in ((SHAPES, shape_named), (DRAFTERS, drafter_named)):
        for name in registry:
            for each in registry.settings(registry[name]):
                chances = "accept=0.6-0.2," * (name == "static" and each.key != "accept")
                assert named(f"{name}:{chances}{each.key}{'=' * bool(each.key)}{each.example}")
