"""The frames of a playback: they are the run, the caches are those that decoding keeps, and jumps go where they say."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mars_viz.components.stepper import frames as frames_module
from mars_viz.components.stepper import playback_payload
from mars_viz.components.stepper.frames import Jump, Mark, Stage, playback
from mars_viz.components.stepper.narration import Quoted
from mars_viz.dialmap import Budget
from mars_viz.records import Decision, Emission, Outcome, Policy, Round
from mars_viz.rules import rule_named, settle
from mars_viz.run import Run, Settings
from mars_viz.runfiles import load_run
from mars_viz.shapes import CHAIN
from tests.factories import make_speculation, toy_map, toy_run

SAMPLES = Path(__file__).parents[1] / "sample_runs"
RUNS = {
    "mars": {},
    "strict": {"rule": "strict"},
    "rejection sampling": {"rule": "rejection-sampling", "temperature": 1.0},
    "mars sampling": {"rule": "mars-sampling", "temperature": 0.8, "dial": 0.7},
    "as released": {"rule": "mars-code", "temperature": 0.9, "dial": 0.8},
    "one token a block": {"gamma": 1},
    "long blocks": {"gamma": 20, "dial": 0.5},
    "cut by the limit": {"max_new_tokens": 17, "gamma": 9, "dial": 0.3},
    "block verification": {"rule": "block-verification", "temperature": 1.0},
}


TOYS = [f"{name}, {seed}" for name in RUNS for seed in (0, 1)]
SAMPLED = sorted(manifest.parent.name for manifest in SAMPLES.glob("*/manifest.json"))
CHAINS = [name for name in SAMPLED if "tree" not in name]
"""What discarded nodes of a tree are called is tested with the trees."""


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Made when its test comes, not by every process that looks for tests."""
    if request.param in SAMPLED:
        return load_run(SAMPLES / request.param)
    name, _, seed = request.param.rpartition(", ")
    return toy_run(model_seed=int(seed), **RUNS[name])


def words(frame) -> str:
    return "".join(part if isinstance(part, str) else f"<{part.token}>" for part in frame.words)


@pytest.mark.parametrize("run", [*TOYS, *CHAINS], indirect=True)
def test_a_rollback_says_which_caches_shrink(run):
    played = playback(run)
    for before, frame in zip(played.frames, played.frames[1:], strict=False):
        if frame.stage is Stage.ROLL_BACK:
            assert frame.target_cache < before.target_cache
            both = frame.drafter_cache is not None and frame.drafter_cache < before.drafter_cache
            assert ("both caches" in words(frame)) is both, "as the bars show it"


@pytest.mark.parametrize(
    ("drafted", "told"),
    [
        ([1], "<1> is rejected. The target's cache drops it; the drafter's did not hold it yet."),
        (
            [1, 2],
            "<1> and its siblings are rejected; the 2 tokens off its path are discarded. "
            "The target's cache keeps the path.",
        ),
    ],
)
def test_leaves_of_a_tree_that_are_rolled_back_are_spoken_of_as_many_as_they_are(drafted, told):
    """The drafter reads no leaf; here all of them are siblings after the prefix, and the target would write token 3."""
    laws = np.array([[0, 1, 2, 9]] * (len(drafted) + 1), np.float32)
    tree = make_speculation(laws, laws[:-1], drafted, start=3).with_columns(
        {
            "parents": np.full(len(drafted), -1, np.int32),
            "depths": np.ones(len(drafted), np.int32),
            "siblings": np.arange(len(drafted), dtype=np.int32),
        }
    )
    verdicts = rule_named("strict").judge(tree)
    decision = settle(tree, verdicts, None)
    run = replace(toy_run(rule="strict"), rounds=(Round(tree, verdicts, decision, (3,)),), prompt_ids=(1, 2, 3))
    said = [words(frame) for frame in playback(run).frames if frame.stage is Stage.ROLL_BACK]
    assert said == [f"Roll back: {told}"]


@pytest.mark.parametrize("run", [*TOYS, *CHAINS], indirect=True)
def test_every_playback_ends_with_the_runs_text_and_its_marks_are_the_outcomes(run):
    played = playback(run)
    assert played.whole and played.frames[0].stage is Stage.START and played.frames[-1].stage is Stage.END
    assert played.frames[-1].written == len(run.token_ids)
    commits = [frame for frame in played.frames if frame.stage is Stage.COMMIT]
    assert [frame.round for frame in commits] == list(range(len(run.rounds)))
    names = {mark.name: mark for mark in Mark}
    for frame, round_ in zip(commits, run.rounds, strict=True):
        assert frame.emission is round_.emission
        assert frame.marks == tuple(names[outcome.name] for outcome in round_.outcomes)
    payload = playback_payload(played)
    text = [payload["pieces"][piece] for round_ in payload["rounds"] for piece in round_["text"]]
    assert text == [run.pieces[token].text for token in run.token_ids]
    assert all(len(r["text"]) == len(r["outcomes"]) for r in payload["rounds"])


@pytest.mark.parametrize("run", TOYS, indirect=True)
def test_steps_follow_each_other_as_they_do_in_decoding(run):
    after = {
        Stage.START: {Stage.DRAFT, Stage.END},
        Stage.DRAFT: {Stage.VERIFY},
        Stage.VERIFY: {Stage.JUDGE, Stage.COMMIT},
        Stage.JUDGE: {Stage.JUDGE, Stage.ROLL_BACK, Stage.COMMIT},
        Stage.ROLL_BACK: {Stage.COMMIT},
        Stage.COMMIT: {Stage.DRAFT, Stage.END},
    }
    played = playback(run).frames
    for frame, following in zip(played, played[1:], strict=False):
        assert following.stage in after[frame.stage]
        assert following.written >= frame.written
        if following.stage is not Stage.COMMIT:
            assert following.written == frame.written
        assert words(frame).strip() and len(words(frame)) < 400
        if frame.judged is not None:
            assert Quoted(int(run.rounds[frame.round].speculation.tokens[frame.judged])) == frame.words[0]


@pytest.mark.parametrize("run", TOYS, indirect=True)
def test_caches_grow_with_what_is_read_and_shrink_with_what_is_thrown_away(run):
    """By hand: before a round the last certain token is unread; a chain of N drafts feeds the drafter all but its
    last, and the target all of them."""
    for frame in playback(run).frames[1:-1]:
        drafted = len(run.rounds[frame.round].speculation)
        kept = run.rounds[frame.round].kept
        if frame.stage is Stage.DRAFT:
            assert frame.drafter_cache == frame.certain - 1 + drafted
            assert frame.target_cache == frame.certain - 1
        elif frame.stage in (Stage.VERIFY, Stage.JUDGE):
            assert (frame.target_cache, frame.drafter_cache) == (frame.certain + drafted, frame.certain - 1 + drafted)
        else:
            assert frame.target_cache == frame.certain + kept
            assert frame.drafter_cache == frame.certain + min(kept, drafted - 1)


@pytest.mark.parametrize(
    ("rule", "shape", "kept"),
    [
        ("rejection-sampling", {"temperature": 1.0, "gamma": 2}, {0, 1, 2}),
        ("strict", {"tree": "dynamic:depth=3,topk=3", "gamma": 9}, {1, 2, 3}),
    ],
    ids=["chain", "tree"],
)
def test_the_caches_are_those_that_the_decoder_really_keeps(pair, rule, shape, kept):
    """Against the built-in pair: what each model need not read again before the next round."""
    from mars_viz.walk import Ending, walk

    settings = Settings(rule=rule, max_new_tokens=80, **shape)
    speculator = pair.speculator(settings)
    prompt = (462, 479, 259, 420, 12)
    speculator.prefill(prompt)
    rounds, held, prefix = [], [], prompt
    for round_ in walk(speculator, rule_named(rule), None, prompt, Ending(pair.eos_ids, 80)):
        rounds.append(round_)
        prefix += round_.token_ids
        held.append(
            tuple(model._rows._nearest(prefix)[1] for model in (speculator._target._model, speculator._drafter._model))
        )
    toy = toy_run()
    run = replace(toy, settings=settings, prompt_ids=prompt, rounds=tuple(rounds), pieces={})
    commits = [frame for frame in playback(run).frames if frame.stage is Stage.COMMIT]
    assert {len(round_.decision.kept) for round_ in rounds} == kept, "full blocks and others, or this proves little"
    for frame, round_, (target, drafter) in zip(commits, rounds, held, strict=True):
        if round_.emission is not None:  # else the text is over, and its last token needs no reading
            assert (frame.target_cache, frame.drafter_cache) == (target, drafter)


@pytest.mark.parametrize("run", [*TOYS, *CHAINS], indirect=True)
def test_jumps_go_where_they_say(run):
    played = playback(run)
    rule = rule_named(run.settings.rule)
    outcomes = [outcome for round_ in run.rounds for outcome in round_.outcomes]
    counts = {jump: len(played.places(jump)) for jump in Jump}
    assert counts[Jump.REJECTION] == outcomes.count(Outcome.REJECTED)
    assert counts[Jump.RELAXED] == outcomes.count(Outcome.RELAXED)
    assert counts[Jump.ROUND] == len(run.rounds)
    diverging = [
        index
        for index, r in enumerate(run.rounds)
        if rule.dial is not None and _path(r, rule.dial.strict) != _path(r, run.settings.dial)
    ]
    found = [played.frames[place].round for place in played.places(Jump.DIVERGENCE)]
    cut = {index for index, r in enumerate(run.rounds) if r.emission is None}
    assert [index for index in found if index not in cut] == [index for index in diverging if index not in cut]
    for place in played.places(Jump.DIVERGENCE):
        assert "Divergence: strict" in words(played.frames[place])


def _path(round_: Round, dial: float | None) -> tuple[object, ...]:
    decision = settle(round_.speculation, round_.verdicts, dial)
    return decision.kept, decision.emitted


def test_a_relaxed_keep_says_what_strict_would_have_written():
    target = np.array([[10.0, 9.8, 0, 0], [0, 0, 10, 0], [0, 0, 0, 10]], np.float32)
    spec = make_speculation(target, target[:2], [1, 2], start=3)
    rule = rule_named("mars")
    verdicts = rule.judge(spec)
    round_ = Round(spec, verdicts, settle(spec, verdicts, 0.9), (1, 2, 3))
    run = replace(toy_run(), rounds=(round_,), prompt_ids=(1, 2, 3))
    played = playback(run)
    (place,) = played.places(Jump.RELAXED)
    assert (place,) == played.places(Jump.DIVERGENCE)
    said = words(played.frames[place])
    assert said.startswith("<1> is not what strict") and said.endswith("Divergence: strict stops here and writes <0>.")
    assert "z2/z1 = 0.980 is above θ = 0.90" in said
    assert words(played.frames[-1]).startswith("The text is complete: 3 tokens in 1 pass of the target, τ = 3")


def test_a_tree_is_judged_branch_by_branch_and_the_caches_hold_its_nodes():
    """Two siblings after the prefix, and a child of the second: the first is rejected, the second kept."""
    target = np.array([[0, 10, 9, 0], [9, 0, 0, 0], [0, 0, 10, 0], [0, 0, 0, 10]], np.float32)
    chain = make_speculation(target, target[:3], [0, 1, 2], start=3)
    order = np.array([0, 0, 2, 3])  # rows: siblings share the prefix's law
    tree = make_speculation(target[order], target[order][:3], [0, 1, 2], start=3).with_columns(
        {
            "parents": np.array([-1, -1, 1], np.int32),
            "depths": np.array([1, 1, 2], np.int32),
            "siblings": np.array([0, 1, 0], np.int32),
        }
    )
    assert len(chain) == len(tree)
    verdicts = rule_named("strict").judge(tree)
    decision = settle(tree, verdicts, None)
    round_ = Round(tree, verdicts, decision, (1, 2, 3))
    assert decision == Decision((1, 2), 3, 3)
    run = replace(toy_run(rule="strict"), rounds=(round_,), prompt_ids=(1, 2, 3))
    shown = playback(run).frames
    assert [frame.judged for frame in shown if frame.stage is Stage.JUDGE] == [0, 1, 2]
    draft, commit = shown[1], next(frame for frame in shown if frame.stage is Stage.COMMIT)
    assert draft.drafter_cache == 3 - 1 + 2  # the last certain token and the one inner node
    assert commit.target_cache == 3 and commit.drafter_cache == 3  # nothing of the first path was kept


def test_a_verdict_is_told_by_what_decided_it():
    """Above temperature 0: the target's own sample, its best token, or the coin of a token drafted later."""
    shared = {"temperature": 0.9, "max_new_tokens": 120}
    told = Counter()
    for rule, tree in (
        ("strict", CHAIN),
        ("sglang-single", CHAIN),
        ("mars", CHAIN),
        ("traversal", "iid:paths=3,depth=4"),
    ):
        run = toy_run(rule=rule, tree=tree, **shared)
        for frame in playback(run).frames:
            if frame.stage is not Stage.JUDGE:
                continue
            said, spec = words(frame), run.rounds[frame.round].speculation
            node, kept = frame.judged, frame.marks[frame.judged] in (Mark.MATCHED, Mark.RELAXED)
            row = spec.judging_rows[node]
            if rule in ("strict", "sglang-single"):
                sample = f"<{spec.emissions[row, Emission.SAMPLE]}>"
                assert f"the target's own sample is {sample}" in said and "u =" not in said
                told["own"] += 1
            elif rule == "mars":
                assert "u =" not in said
                told["best"] += spec.ranks[node] == 1 and "is the target's own choice: kept" in said
            elif kept and spec.coins[node] > spec.traversal_stop[node]:
                assert said.endswith("Kept with a token that was drafted after it.")
                assert any(spec.coins[n] <= spec.traversal_stop[n] for n in run.rounds[frame.round].decision.kept)
                told["later"] += 1
            else:
                assert said.endswith("Kept." if kept else "Rejected.")
    assert min(told["own"], told["best"], told["later"]) > 3


@pytest.mark.parametrize("policy", ["strict-first", "longest"])
def test_a_kept_sibling_that_is_passed_over_is_not_told_as_rejected(policy):
    """Both siblings are kept at θ = 0.5: the runner-up, first in draft order, and the target's own choice."""
    target = np.array([[0, 10, 9, 0], [9, 0, 0, 0], [0, 0, 10, 0]], np.float32)[[0, 0, 2]]
    tree = make_speculation(target, target[:2], [2, 1], start=3).with_columns(
        {
            "parents": np.array([-1, -1], np.int32),
            "depths": np.array([1, 1], np.int32),
            "siblings": np.array([0, 1], np.int32),
        }
    )
    rule = rule_named("mars").choosing(Policy(policy))
    verdicts = rule.judge(tree)
    decision = settle(tree, verdicts, 0.5)
    kept = decision.kept[0]
    round_ = Round(tree, verdicts, decision, (int(tree.tokens[kept]), decision.emitted))
    run = replace(toy_run(rule=rule.name, dial=0.5), rounds=(round_,), prompt_ids=(1, 2, 3))
    judging = [frame for frame in playback(run).frames if frame.stage is Stage.JUDGE]
    assert kept == (1 if policy == "strict-first" else 0)
    marks = [frame.marks[frame.judged] for frame in judging]
    assert marks == ([Mark.DISCARDED, Mark.MATCHED] if kept else [Mark.RELAXED])
    if kept:
        assert words(judging[0]).startswith("<2> would be kept as well, but the text goes on with <1>: of siblings one")
    assert words(playback(run).frames[-3]).startswith("Roll back: the one token off its path is discarded.")


def test_a_run_without_rounds_and_one_that_is_very_long(monkeypatch):
    empty = playback(replace(toy_run(), rounds=()))
    assert [frame.stage for frame in empty.frames] == [Stage.START, Stage.END]
    assert "no rounds" in words(empty.frames[-1])
    monkeypatch.setattr(frames_module, "MOST_ROUNDS", 3)
    run = toy_run()
    cut = playback(run)
    assert not cut.whole and cut.rounds == 3 and "goes on" in words(cut.frames[-1])
    assert cut.frames[-1].written == sum(len(round_.token_ids) for round_ in run.rounds[:3])


def test_the_playback_of_a_maps_setting_is_that_settings_text():
    made, _ = toy_map(Settings(max_new_tokens=40), 0.5, 1.0, budget=Budget())
    for segment in made.segments:
        played = playback(made.at(segment.low))
        assert played.frames[-1].written == len(segment.token_ids)


def test_the_payload_is_plain_data_and_the_same_for_the_same_run():
    hostile = {i: b"<img src=x onerror=alert(1)>" for i in range(1, 16)} | {
        i: "\u202eevil".encode() for i in range(16, 32)
    }
    run = toy_run(pieces=hostile)
    payload = playback_payload(playback(run))
    assert json.loads(json.dumps(payload)) == payload
    assert payload == playback_payload(playback(toy_run(pieces=hostile)))
    assert payload["id"] != playback_payload(playback(toy_run()))["id"]
    said = [part for frame in payload["frames"] for part in frame["words"] if isinstance(part, str)]
    assert not any("onerror" in part or "\u202e" in part for part in said), "tokens stand beside the sentence"


def test_a_drafter_without_a_model_has_no_cache_and_nobody_speaks_of_one():
    run = toy_run(rule="mars", gamma=3)
    lookup = replace(run, provenance=replace(run.provenance, drafter="ngram:n=3"))
    frames = playback(lookup).frames
    assert {frame.drafter_cache for frame in frames} == {None} and Stage.ROLL_BACK in {frame.stage for frame in frames}
    said = " ".join(part for frame in frames for part in frame.words if isinstance(part, str))
    assert "both caches" not in said.lower() and "the drafter's" not in said
    assert "one after the other" not in said and "The target's cache holds all but the last one" in said
    theirs = [replace(frame, words=(), drafter_cache=None) for frame in playback(run).frames]
    assert [replace(frame, words=()) for frame in frames] == theirs
