"""The frames of a playback: they are the run, the caches are those that decoding keeps, and jumps go where they say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mars_viz.components import stepper
from mars_viz.components.stepper import Mark, Stage, playback, playback_payload
from mars_viz.records import Decision, Outcome, Round
from mars_viz.rules import rule_named, settle
from tests.factories import make_speculation, toy_run

RUNS = (
    {},
    {"rule": "strict"},
    {"rule": "mars-code", "temperature": 0.9, "dial": 0.8},
    {"gamma": 1},
    {"max_new_tokens": 17, "gamma": 9, "dial": 0.3},
    {"rule": "block-verification", "temperature": 1.0},
)
AFTER = {
    Stage.START: {Stage.DRAFT, Stage.END},
    Stage.DRAFT: {Stage.VERIFY},
    Stage.VERIFY: {Stage.JUDGE, Stage.COMMIT},
    Stage.JUDGE: {Stage.JUDGE, Stage.ROLL_BACK, Stage.COMMIT},
    Stage.ROLL_BACK: {Stage.COMMIT},
    Stage.COMMIT: {Stage.DRAFT, Stage.END},
}


def words(frame):
    return "".join(part if isinstance(part, str) else f"<{part}>" for part in frame.words)


def path(round_, dial):
    decision = settle(round_.speculation, round_.verdicts, dial)
    return decision.kept, decision.emitted


@pytest.mark.parametrize("settings", RUNS)
def test_the_frames_are_those_of_decoding_and_jumps_lead_to_them(settings):
    run = toy_run(**settings)
    played = playback(run)
    assert (played.rounds, played.frames[0].stage, played.frames[-1].stage) == (len(run.rounds), Stage.START, Stage.END)
    assert played.frames[-1].written == len(run.token_ids)
    commits = [frame for frame in played.frames if frame.stage is Stage.COMMIT]
    assert [frame.round for frame in commits] == list(range(len(run.rounds)))
    names = {mark.name: mark for mark in Mark}
    for frame, round_ in zip(commits, run.rounds, strict=True):
        assert frame.emission is round_.emission
        assert frame.marks == tuple(names[outcome.name] for outcome in round_.outcomes)
    payload = playback_payload(played)
    assert json.loads(json.dumps(payload)) == payload
    text = [payload["pieces"][piece] for round_ in payload["rounds"] for piece in round_["text"]]
    assert text == [run.pieces[token].text for token in run.token_ids]
    for frame, following in zip(played.frames, played.frames[1:], strict=False):
        assert following.stage in AFTER[frame.stage]
        grows = following.written > frame.written
        assert following.written >= frame.written and (following.stage is Stage.COMMIT or not grows)
        assert words(frame).strip() and len(words(frame)) < 400
        if frame.judged is not None:
            assert int(run.rounds[frame.round].speculation.tokens[frame.judged]) == frame.words[0]
        if following.stage is Stage.ROLL_BACK:
            assert following.target_cache < frame.target_cache
            assert ("both caches" in words(following).lower()) is (following.drafter_cache < frame.drafter_cache)
    outcomes, at = [outcome for r in run.rounds for outcome in r.outcomes], rule_named(run.settings.rule).dial
    counts = [len(played.places(jump)) for jump in ("rejection", "relaxed", "round")]
    assert counts == [outcomes.count(Outcome.REJECTED), outcomes.count(Outcome.RELAXED), len(run.rounds)]
    complete = [index for index, r in enumerate(run.rounds) if r.emission is not None]
    paths = {i: [path(run.rounds[i], dial) for dial in (at.strict, run.settings.dial)] for i in complete if at}
    diverging = [played.frames[place] for place in played.places("divergence")]
    assert [f.round for f in diverging if f.round in complete] == [i for i, (one, two) in paths.items() if one != two]
    # before a round the last certain token is unread; the drafter reads all drafts but the last, the target all
    for frame in played.frames[1:-1]:
        drafted, kept = len(run.rounds[frame.round].speculation), run.rounds[frame.round].kept
        target, drafter = frame.certain + kept, frame.certain + min(kept, drafted - 1)
        if frame.stage is Stage.DRAFT:
            target, drafter = frame.certain - 1, frame.certain - 1 + drafted
        elif frame.stage in (Stage.VERIFY, Stage.JUDGE):
            target, drafter = frame.certain + drafted, frame.certain - 1 + drafted
        assert (frame.target_cache, frame.drafter_cache) == (target, drafter)


def one_round(laws, tokens, parents, *, rule="strict", dial=None):
    """A run of one tree, by the target's laws [N + 1, V]; siblings share the row of their parent."""
    laws, depths, siblings = np.array(laws, np.float32), [], []
    for node, parent in enumerate(parents):
        depths.append(1 if parent < 0 else depths[parent] + 1)
        siblings.append(parents[:node].count(parent))
    columns = {"parents": parents, "depths": depths, "siblings": siblings}
    tree = make_speculation(laws, laws[:-1], tokens, start=3)
    tree = tree.with_columns({name: np.array(values, np.int32) for name, values in columns.items()})
    verdicts = rule_named(rule).judge(tree)
    decision = settle(tree, verdicts, dial)
    text = (*(int(tree.tokens[node]) for node in decision.kept), decision.emitted)
    return replace(toy_run(rule=rule, dial=dial), rounds=(Round(tree, verdicts, decision, text),), prompt_ids=(1, 2, 3))


def test_trees_are_judged_branch_by_branch():
    run = one_round([[10.0, 9.8, 0, 0], [0, 0, 10, 0], [0, 0, 0, 10]], [1, 2], [-1, 0], rule="mars", dial=0.9)
    played = playback(run)
    (place,) = played.places("relaxed")
    assert (place,) == played.places("divergence")
    said = words(played.frames[place])
    assert said.startswith("<1>") and "strict stops here and writes <0>" in said
    assert "z2/z1 = 0.980 is above θ = 0.90" in said
    assert "3 tokens in 1 pass of the target, τ = 3" in words(played.frames[-1])
    laws = [[0, 10, 9, 0], [0, 10, 9, 0], [0, 0, 10, 0], [0, 0, 0, 10]]
    run = one_round(laws, [0, 1, 2], [-1, -1, 1])
    assert run.rounds[0].decision == Decision((1, 2), 3, 3)
    shown = playback(run).frames
    assert [frame.judged for frame in shown if frame.stage is Stage.JUDGE] == [0, 1, 2]
    draft, commit = shown[1], next(frame for frame in shown if frame.stage is Stage.COMMIT)
    assert draft.drafter_cache == 3 - 1 + 2  # the last certain token and the one inner node
    assert commit.target_cache == 3 and commit.drafter_cache == 3  # nothing of the first path was kept
    for drafted, parts in (
        ([1], ("<1> is rejected", "target's cache drops it", "drafter's did not hold it")),
        ([1, 2], ("its siblings are rejected", "2 drafted tokens discarded", "target's cache keeps the path")),
    ):
        frames = playback(one_round([[0, 1, 2, 9]] * (len(drafted) + 1), drafted, [-1] * len(drafted))).frames
        (text,) = (words(frame) for frame in frames if frame.stage is Stage.ROLL_BACK)
        assert all(part in text for part in parts)
    for policy, marks in (("strict-first", [Mark.DISCARDED, Mark.MATCHED]), ("longest", [Mark.RELAXED])):
        run = one_round(laws[:3], [2, 1], [-1, -1], rule=f"mars:siblings={policy}", dial=0.5)
        judging = [frame for frame in playback(run).frames if frame.stage is Stage.JUDGE]
        assert [frame.marks[frame.judged] for frame in judging] == marks, "one that is passed over is not rejected"
        assert len(marks) == 1 or "<2> would be kept" in words(judging[0])


def test_payloads_of_odd_runs(monkeypatch):
    hostile = dict.fromkeys(range(1, 16), b"<img onerror=>") | dict.fromkeys(range(16, 32), "\u202eevil".encode())
    payload, again, other = (playback_payload(playback(toy_run(pieces=each))) for each in (hostile, hostile, None))
    assert payload == again and payload["id"] != other["id"]
    said = [part for frame in payload["frames"] for part in frame["words"] if isinstance(part, str)]
    assert not any("onerror" in part or "\u202e" in part for part in said), "tokens stand beside the sentence"
    run = toy_run(rule="mars", gamma=3)
    lookup = replace(run, provenance=replace(run.provenance, drafter="ngram:n=3"))
    frames = playback(lookup).frames
    assert {frame.drafter_cache for frame in frames} == {None} and Stage.ROLL_BACK in {frame.stage for frame in frames}
    said = " ".join(part for frame in frames for part in frame.words if isinstance(part, str))
    assert not any(each in said.lower() for each in ("both caches", "the drafter's", "one after the other"))
    theirs = [replace(frame, words=(), drafter_cache=None) for frame in playback(run).frames]
    assert [replace(frame, words=()) for frame in frames] == theirs
    block = playback(replace(run, provenance=replace(run.provenance, drafter="dflash"))).frames
    drafts = [frame for frame in block if frame.stage is Stage.DRAFT]
    assert all(frame.drafter_cache == frame.certain - 1 and "in one pass" in words(frame) for frame in drafts)
    empty = playback(replace(toy_run(), rounds=()))
    assert [frame.stage for frame in empty.frames] == [Stage.START, Stage.END]
    assert "no rounds" in words(empty.frames[-1])
    monkeypatch.setattr(stepper, "MOST_ROUNDS", 3)
    cut = playback(run := toy_run())
    assert cut.rounds == 3 < len(run.rounds) and "goes on" in words(cut.frames[-1])
    assert cut.frames[-1].written == sum(len(round_.token_ids) for round_ in run.rounds[:3])
