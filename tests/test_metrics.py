"""The numbers of a run: a small one worked out by hand, and agreement with what real walks recorded."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from mars_viz.analysis.branching import chances, child_chances, choices, tree_tokens
from mars_viz.analysis.metrics import Basis, judged_rounds, positions, speed, summary
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped, shown
from mars_viz.records import Outcome, Round, Timing
from mars_viz.rules import rule_named, settle
from mars_viz.run import Piece, Provenance, Run, Settings
from mars_viz.ui.lessons.seven import TREES, branching_dials
from mars_viz.walk import Ending
from tests.factories import make_speculation, toy_map, toy_run

EOS, LIMIT = 7, 7


def row(best, z1, second=6, z2=1.0):
    z = [-20.0] * 8
    z[best], z[second] = z1, z2
    return z


ROUNDS = (
    ([1, 2, 3], [row(1, 10), row(4, 10, 2, 9.5), row(3, 10), row(5, 10)]),
    ([1, EOS, 3], [row(2, 10, 1, 8), row(EOS, 10), row(5, -1, 3, -2), row(5, 10)]),
    ([1, 2, 3], [row(2, 10, 1, 9.2), row(2, 10), row(3, 10), row(5, 10)]),
)
"""Drafts and target rows. Round 1 hangs on z2/z1 = .95, round 2 on .8 and an end of text, round 3 on .92."""


def small_run(dial=0.9):
    rule, rounds, written = rule_named("mars"), [], 0
    for drafts, rows in ROUNDS:
        speculation = make_speculation(np.array(rows), np.zeros((3, 8)), drafts, start=4 + written)
        verdicts = rule.judge(speculation)
        decision = settle(speculation, verdicts, dial)
        block = [*(int(speculation.tokens[node]) for node in decision.kept), decision.emitted]
        tokens = Ending(frozenset({EOS}), LIMIT).cut(block, written)
        written += len(tokens)
        rounds.append(Round(speculation, verdicts, decision, tokens, Timing(draft=0.1, verify=0.3, total=0.5)))
    return Run(
        settings=Settings(rule="mars", dial=dial, gamma=3, max_new_tokens=LIMIT),
        provenance=Provenance(eos_ids=(EOS,), seconds=2.0, prefill_seconds=0.5, device="a processor"),
        prompt_ids=(1,),
        rounds=tuple(rounds),
        pieces={i: Piece(f" w{i}".encode()) for i in range(8)},
    )


def test_the_small_run_by_hand():
    run = small_run()
    assert run.token_ids == (1, 2, 3, 5, 2, 1, 2)  # the limit cuts the last block at two
    found = summary(run)
    assert (found.dial, found.basis, found.first_difference) == (0.9, Basis.EXACT, None)
    assert (found.tokens, found.rounds, found.drafted, found.kept, found.relaxed) == (7, 3, 9, 5, 2)
    assert (found.rolled_back, found.forced_strict, found.passes_saved_autoregressive) == (4, 1, 4)
    assert (found.tau, found.acceptance_rate) == pytest.approx((7 / 3, 5 / 9))
    # strict emits 4 tokens there, and rolls back 8 of 9
    assert (found.strict_basis, found.strict_tokens) == (Basis.BLOCK_LOCAL, 4)
    assert (found.strict_tau, found.strict_passes) == pytest.approx((4 / 3, 7 * 3 / 4))
    assert found.passes_saved_strict == pytest.approx(7 / (4 / 3) - 3)
    assert found.drafts_spared_strict == pytest.approx(7 * 8 / 4 - 4)
    judged, found = judged_rounds(run, 0.7), summary(run, 0.7)
    assert [round_.token_ids for round_ in judged] == [(1, 2, 3, 5), (1, EOS), (1, 2)]
    assert judged[1].outcomes == (Outcome.RELAXED, Outcome.MATCHED, Outcome.DISCARDED)
    assert judged[1].emission is None
    assert (found.basis, found.first_difference) == (Basis.BLOCK_LOCAL, 4)
    assert (found.tokens, found.kept, found.relaxed, found.rolled_back) == (8, 7, 3, 2)
    assert found.strict_tau == pytest.approx(4 / 3)
    assert [round_.token_ids for round_ in judged_rounds(run, 1.0)] == [(1, 4), (2,), (2,)]
    found = summary(run, 1.0)
    assert (found.tokens, found.kept, found.relaxed, found.first_difference) == (4, 1, 0, 1)
    assert found.basis is Basis.BLOCK_LOCAL and found.passes_saved_strict == pytest.approx(0)
    run = small_run(dial=1.0)  # records [1 4] [2] [2], so three tokens stand before the last block
    run = replace(run, settings=replace(run.settings, max_new_tokens=4))
    assert [len(round_.token_ids) for round_ in judged_rounds(run, 0.5)] == [4, 2, 1]
    found = summary(toy_run(rule="strict"))
    assert (found.dial, found.strict_tau, found.passes_saved_strict) == (None, found.tau, 0)
    for refused, dial, why in ((toy_run(rule="strict"), 0.5, "no dial"), (run, 1.5, "from 0 to 1")):
        with pytest.raises(BadInput, match=why):
            summary(refused, dial)
    found = summary(empty := replace(run, rounds=()))
    assert (found.tokens, found.rounds, found.passes_saved_strict, found.first_difference) == (0, 0, 0, None)
    assert math.isnan(found.tau) and math.isnan(found.acceptance_rate) and math.isnan(speed(empty).draft_share)
    assert len(positions(empty)) == 0


def test_nothing_is_forced_by_a_rule_that_reads_a_ratio_below_zero_or_none():
    for rule, forced in (("mars", 1), ("mars-sampling", 1), ("mars-code", 0), ("top-k-set", 0)):
        run, dial = small_run(), rule_named(rule).dial.default
        judged = tuple(replace(r, verdicts=rule_named(rule).judge(r.speculation)) for r in run.rounds)
        other = replace(run, rounds=judged, settings=replace(run.settings, rule=rule, dial=dial))
        assert summary(other).forced_strict == forced


def test_on_a_map_strict_is_its_own_text_however_long():
    run = toy_run(rule="mars", gamma=4, seed=1, max_new_tokens=40, model_seed=4)
    made = toy_map(replace(run.settings, dial=None), 0.3, 1.0, (4,), model_seed=4)[0]
    run, short, strict = mapped(run, made), made.segments[1], made.segments[-1]
    assert len(short.token_ids) < len(strict.token_ids)
    found = summary(*shown(run, short.low, 4))
    assert (found.strict_basis, found.strict_tau) == (Basis.EXACT, strict.tau)
    assert found.strict_tokens == len(strict.token_ids)
    assert found.passes_saved_strict == len(strict.rounds) - len(short.rounds)
    assert found.drafts_spared_strict == sum(r.rolled_back for r in strict.rounds) - found.rolled_back
    off = summary(run, short.low)  # judged on the recorded blocks; strict is what it is all the same
    assert (off.basis, off.strict_basis) == (Basis.BLOCK_LOCAL, Basis.EXACT)
    assert (off.strict_passes, off.strict_rolled_back) == (found.strict_passes, found.strict_rolled_back)
    part = toy_map(replace(run.settings, dial=None), 0.3, 0.95, (4,), model_seed=4)[0]  # not to the strict end
    assert summary(mapped(replace(run, map=None), part)).strict_basis is Basis.BLOCK_LOCAL


def test_speed_and_positions_by_hand():
    found, flat = speed(small_run()), positions(small_run())
    assert (found.seconds, found.prefill_seconds, found.device) == (2.0, 0.5, "a processor")
    times = found.tokens_per_second, found.milliseconds_per_round, found.draft_share
    assert times == pytest.approx((3.5, 2000 / 3, 0.2))
    assert flat.round_index.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert np.flatnonzero(flat.are(Outcome.RELAXED)).tolist() == [1, 6]
    assert np.flatnonzero(flat.strictly(Outcome.REJECTED)).tolist() == [1, 3, 6]
    assert np.flatnonzero(flat.runner_up).tolist() == [1, 3, 5, 6]
    assert np.flatnonzero(flat.movable).tolist() == [1, 3, 6]  # not the one whose best logit is below 0
    assert flat.ratio[1] == pytest.approx(0.95)
    assert flat.per_round(flat.are(Outcome.RELAXED)).tolist() == [1, 0, 1]


@pytest.mark.parametrize(("alpha", "rescued"), [(0.6, 0.5), (0.3, 0.9), (0.5, 0.0)])
def test_no_tree_of_as_many_nodes_yields_more(alpha, rescued):
    accept = (alpha, (1 - alpha) * rescued)
    every = [tuple(map(int, np.base_repr(i, 2)[1:])) for i in range(2, 32)]
    found = tree_tokens(alpha, rescued, 4)
    for nodes in range(1, 5):
        whole = (
            tree
            for tree in combinations(every, nodes)
            if all(len(path) == 1 or path[:-1] in tree for path in tree) and all(len(path) <= nodes for path in tree)
        )
        most = max(sum(np.prod([accept[rank] for rank in path]) for path in tree) for tree in whole)
        assert found[nodes - 1] == pytest.approx(1 + most)


def test_the_lesson_of_trees_begins_at_the_runs_own_choices():
    run = toy_run()
    assert "no drafter's second choice" not in TREES.lacks(run)
    assert "3" in TREES.lacks(toy_run(rule="rejection-sampling", temperature=1.0))
    assert [knob.start for knob in branching_dials(Counter({0: 62, 1: 19, -1: 19}))][:2] == [0.6, 0.5]
    assert branching_dials(Counter({0: 4}))[1].start == 0.0 and chances(choices(replace(run, rounds=()))) == (0, 0)


LONG_TREES = {"tree": "dynamic:depth=4,topk=3", "gamma": 10, "dial": 0.9, "vocabulary": 300, "model_seed": 15}


@pytest.mark.parametrize("how", [{"dial": 0.9}, LONG_TREES], ids=["chains", "trees"])
def test_a_runs_choices_and_chances_of_children_by_hand(how):
    run, ranks, places = toy_run(max_new_tokens=60, **how), [0] * 11, 0
    for round_ in run.rounds:
        spec = round_.speculation
        for row in (0, *(node + 1 for node in round_.decision.kept[: round_.kept])):
            children = [node for node in range(len(spec)) if spec.judging_rows[node] == row]
            if children:
                places += 1
                listed = spec.draft_ids[children[0]].tolist()
                best = int(spec.top_ids[row, 0])
                ranks[listed.index(best) if best in listed else 10] += 1
    found = choices(run)
    assert (found.total(), found[0], found[1]) == (places, ranks[0], ranks[1]) and found[1] > 0
    assert chances(found) == (ranks[0] / places, ranks[1] / (places - ranks[0]))
    shares = sorted((count / places for count in ranks[:10] if count >= 0.01 * places), reverse=True)
    accept, used = child_chances(run)
    assert used == places >= 20 and accept == pytest.approx(tuple(shares), abs=5.1e-4)
    short = replace(run, rounds=run.rounds[:3])
    assert child_chances(short) == ((), choices(short).total())
    assert not child_chances(toy_run(temperature=0.8, max_new_tokens=60))[0]
