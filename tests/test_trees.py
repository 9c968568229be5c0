"""Draft trees: shapes, scores along each path, verification of siblings, and exact maps."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from factories import PROMPT, ToySpeculator, tables, toy_run, toy_tree
from rule_cases import unlike
from test_networks import llama, networks
from transformers import AutoModelForCausalLM, BloomConfig, MistralConfig

from mars_viz import load_run, trees
from mars_viz.analysis.lesson_sums import gain
from mars_viz.analysis.map_grid import map_grid, round_times
from mars_viz.analysis.metrics import summary
from mars_viz.axis import RuleDial
from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, round_uniforms, tree_uniforms
from mars_viz.recording import Mapping, Recording, record
from mars_viz.records import Emission, Outcome, Policy, Speculation, Timing, chain
from mars_viz.rules import RULES, OnTrees, rule_named, settle
from mars_viz.run import Run, Settings
from mars_viz.runfiles import save_run
from mars_viz.shapes import Shape, best_paths, shape_named
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft import Draft, DraftBatch, Trees, scored_by
from mars_viz.speculators.drafters.token_trees import grown
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.targets import ModelTarget
from mars_viz.trace import Trace
from mars_viz.walk import shortened
from tests.tables import TableTarget, TopTarget, by_paths, random_tree, table_backend

TREE = "dynamic:depth=5,topk=3,nodes=12"
JUDGE = sorted(name for name, rule in RULES.items() if rule.on_trees is not OnTrees.REFUSED)
EVERYWHERE = sorted(name for name, rule in RULES.items() if rule.on_trees is OnTrees.JUDGED)
VARIANTS = [rule.choosing(policy).name for name in JUDGE for rule in [RULES[name]] for policy in rule.policies]


def test_properties_of_parent_arrays() -> None:
    parents = [-1, 0, 1, 1, 0, -1, 5]
    assert trees.depths_of(parents).tolist() == [1, 2, 3, 3, 2, 1, 2]
    assert trees.siblings_of(parents).tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert trees.first_path(parents) == 3
    assert trees.leaves(parents) == [2, 3, 4, 6]
    assert trees.path_to(parents, 3) == [0, 1, 3]
    assert [[node for node, seen in enumerate(row) if seen] for row in trees.sees(parents)] == [
        [0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 4], [5], [5, 6],
    ]  # fmt: skip


def test_every_path_has_its_own_uniforms_and_a_chain_those_of_its_round() -> None:
    paths: dict[tuple[int, ...], float] = {}
    for ranks in itertools.product(range(4), repeat=4):
        parents, at = [], -1
        for rank in ranks:
            parents += [at] * (rank + 1)
            at = len(parents) - 1
        coins = tree_uniforms(7, 30, Purpose.COIN, parents)
        paths[ranks] = coins[at]
    assert len(set(paths.values())) == len(paths) == 256
    np.testing.assert_array_equal(
        tree_uniforms(7, 30, Purpose.COIN, chain(9).tolist()), round_uniforms(7, 30, Purpose.COIN, 9)
    )
    after = tree_uniforms(7, 30, Purpose.RESIDUAL, chain(9).tolist(), after=True)
    np.testing.assert_array_equal(after, round_uniforms(7, 30, Purpose.RESIDUAL, 10)[1:])


@pytest.mark.parametrize("which", [0, 1], ids=["transformers", "ragged"])
def test_every_node_of_every_tree_of_a_batch_scores_as_a_plain_pass_over_its_path(which: int) -> None:
    rng, model = np.random.default_rng(which), llama(num_key_value_heads=2)
    target = ModelTarget(networks(model)[which])
    prefixes = [rng.integers(0, 97, n).tolist() for n in (3, 17, 60)]
    with torch.inference_mode():
        target.prefill([tuple(prefix[:-1]) for prefix in prefixes])
        for _ in range(6):
            branches = [random_tree(rng, int(rng.integers(1, 14))) for _ in prefixes]
            drafted = [rng.integers(0, 97, len(parents)).tolist() for parents in branches]
            most = max(map(len, drafted))
            ids = torch.tensor([own + [0] * (most - len(own)) for own in drafted])
            found = target.score_trees([tuple(prefix) for prefix in prefixes], ids, branches)
            target.observe([own[: trees.first_path(p)] for own, p in zip(drafted, branches, strict=True)])
            for i, (prefix, own, parents) in enumerate(zip(prefixes, drafted, branches, strict=True)):
                expected = by_paths(model, prefix, own, parents)
                assert (found[i, : len(own) + 1] - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
                end = int(rng.integers(-1, len(own)))
                prefix += [own[node] for node in trees.path_to(parents, end)] + [int(rng.integers(0, 97))]


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(sliding_window=8, num_hidden_layers=2, hidden_size=64, intermediate_size=48, vocab_size=97,
                      num_attention_heads=4, num_key_value_heads=2),
        BloomConfig(n_layer=2, hidden_size=64, n_head=4, vocab_size=97),
    ],
    ids=["sliding window", "no positions"],
)  # fmt: skip
def test_a_model_that_takes_no_mask_scores_a_tree_path_by_path(config: object) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    target, prefix = ModelTarget(PlainNetwork(model, 97)), list(range(1, 15))
    rng = np.random.default_rng(0)
    with torch.inference_mode():
        target.prefill([tuple(prefix[:-1])])
        for _ in range(3):
            parents = random_tree(rng, 9)
            tokens = rng.integers(0, 97, 9).tolist()
            found = target.score_trees([tuple(prefix)], torch.tensor([tokens]), [parents])[0]
            target.observe([tokens[: trees.first_path(parents)]])
            torch.testing.assert_close(found, by_paths(model, prefix, tokens, parents), atol=1e-5, rtol=1e-4)
            prefix += [tokens[node] for node in trees.path_to(parents, 5)] + [3]


def slowly_grown(table: np.ndarray, last: int, shape: Shape, nodes: int) -> list[tuple[int, ...]]:
    """Return EAGLE-2's tree as paths of tokens, the likeliest first; written from the paper's description."""
    laws = {token: np.log(np.exp(row - row.max()) / np.exp(row - row.max()).sum()) for token, row in enumerate(table)}

    def children(path: tuple[int, ...], score: float) -> list[tuple[float, tuple[int, ...]]]:
        law = laws[path[-1] if path else last]
        return [(score + law[token], (*path, token)) for token in np.argsort(-law, kind="stable")[: shape.children]]

    beam = met = children((), 0.0)
    for _ in range(shape.depth - 1):
        level = [child for score, path in beam for child in children(path, score)]
        met = met + level
        beam = sorted(level, reverse=True)[: shape.children]
    return [path for _, path in sorted(met, reverse=True)[:nodes]]


@pytest.mark.parametrize("nodes", [1, 13, 30])
def test_a_dynamic_tree_is_that_of_eagle_2(nodes: int) -> None:
    _, table = tables(vocabulary=20, model_seed=nodes)
    shape = Shape(4, 3)
    first = torch.from_numpy(table[[5, 11]])
    draft = grown(first, lambda level: torch.from_numpy(table)[level.ids], shape, nodes)
    assert draft.trees is not None and draft.logits is not None
    for i, last in enumerate((5, 11)):
        tokens, parents = draft.tokens[i].tolist(), draft.trees.parents[i]
        paths = [tuple(tokens[node] for node in trees.path_to(parents, n)) for n in range(len(parents))]
        expected = slowly_grown(table.astype(np.float64), last, shape, nodes)
        assert sorted(paths) == sorted(expected)
        assert [paths[n] for n in np.argsort(draft.trees.budgets[i])] == expected
        after = [path[-2] if len(path) > 1 else last for path in paths]
        np.testing.assert_array_equal(draft.logits[i], table[after])
        above = [trees.path_to(parents, node) for node in range(len(parents))]
        assert all(parent == -1 or parent in above[node - 1] for node, parent in enumerate(parents))  # preorder


def test_the_tree_of_fewer_nodes_is_cut_from_the_larger_one() -> None:
    long = ToySpeculator(Settings(tree=TREE)).speculate([PROMPT])[0].speculation
    assert shortened(long, 12) is long
    for nodes in (1, 3, 8):
        short = ToySpeculator(Settings(tree="dynamic:depth=5,topk=3", gamma=nodes)).speculate([PROMPT])[0].speculation
        cut = shortened(long, nodes)
        assert len(cut) == nodes and cut.columns.keys() == short.columns.keys()
        for name in cut.columns:
            np.testing.assert_array_equal(getattr(cut, name), getattr(short, name), err_msg=name)


def test_each_policy_follows_its_path() -> None:
    rule, differ = RULES["top-k-set"], set()
    for seed in range(6):
        for answer in ToySpeculator(Settings(tree=TREE), model_seed=seed).speculate([(1, t) for t in range(1, 9)]):
            own = answer.speculation
            taken = {policy: settle(own, rule.choosing(policy).judge(own), 3.0).kept for policy in Policy}
            keeps, strict, parents = rule.judge(own).keeps(3.0), own.ranks == 1, own.parents.tolist()
            paths = [trees.path_to(parents, node) for node in range(len(own))]
            assert len(taken[Policy.LONGEST]) == max((len(path) for path in paths if keeps[path].all()), default=0)
            for policy in (Policy.DRAFT_ORDER, Policy.STRICT_FIRST):
                at = -1
                for node in (*taken[policy], None):
                    kept = [int(i) for i in np.flatnonzero((own.parents == at) & keeps)]
                    if policy is Policy.STRICT_FIRST:
                        kept.sort(key=lambda i: not strict[i])
                    assert (kept or [None])[0] == node
                    at = -1 if node is None else node
            differ |= {taken[one] != taken[other] for one, other in itertools.combinations(Policy, 2)}
    assert True in differ


@pytest.mark.parametrize(
    ("tree", "temperature"),
    [(TREE, 0.0), (TREE, 0.9), ("iid:paths=3,depth=4", 0.9), ("delayed:trunk=1,paths=3,depth=3", 0.9)],
)
def test_at_the_strict_end_a_rule_writes_what_its_strict_rule_writes(tree: str, temperature: float) -> None:
    """Argmax matching and the released code at θ = 1 equal no lossless rule above temperature 0."""
    drawn, compared = tree != TREE, 0
    for rule in map(rule_named, VARIANTS):
        own = rule.on_rejection not in (Emission.ARGMAX, Emission.LOWERED)
        if rule.refuses_trees(temperature, drawn=drawn) or (temperature > 0 and not own):
            continue
        if drawn and RULES[rule.family].on_trees is OnTrees.DRAWN:
            continue  # no dial, and laws of their own
        strictest = "rejection-sampling" if rule.on_rejection is Emission.RESIDUAL else "strict"
        how = {"tree": tree, "temperature": temperature, "model_seed": 1, "max_new_tokens": 40}
        ours = toy_run(rule=rule.name, dial=None if rule.dial is None else rule.dial.strict, **how)
        theirs = toy_run(rule=strictest, **how)
        assert [(r.token_ids, r.kept) for r in ours.rounds] == [(r.token_ids, r.kept) for r in theirs.rounds], rule.name
        compared += 1
    assert compared > 3


PARENTS, TOKENS = (-1, 0, 0, -1, -1, 4, 4), (1, 0, 3, 4, 2, 2, 1)
LOGITS, DRAFTER = torch.from_numpy(np.random.default_rng(5).normal(0, 1.2, (15, 5)).astype(np.float32)).split([8, 7])
LAWS = LOGITS.softmax(-1).double().numpy()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "no shape"),
        ("dynamic:nodes=65", "nodes is 65"),
        ("dynamic:depth=6,topk=4,nodes=4", "4 nodes .* 6 tokens"),
        ("static", "at most 16 chances"),
        ("static:accept=0.2-0.6", "do not rise"),
        ("static:accept=0.6-0", "do not rise"),
        ("static:accept=1.1-0.6", "do not rise"),
    ],
)
def test_an_impossible_tree_is_refused(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Settings(tree=name)


def test_a_target_without_trees_scores_their_paths() -> None:
    table = tables()[0]
    parents, tokens = [-1, 0, 1, 0, -1, 4, 4], torch.tensor([[4, 9, 2, 7, 30, 1, 5]])
    draft = Draft(tokens, trees=Trees((parents,), (np.arange(1, 8),)))
    expected = table[[3, *tokens[0].tolist()]]
    np.testing.assert_array_equal(scored_by(TableTarget(table), [(1, 3)], draft)[0], expected)
    top = scored_by(TopTarget(table, 4), [(1, 3)], draft)
    np.testing.assert_array_equal(top.logits[0], np.sort(expected)[:, :-5:-1])
    np.testing.assert_array_equal(top.drafted[0], expected[np.array(parents) + 1, tokens[0]])


@pytest.mark.parametrize(
    ("tree", "temperature"), [("dynamic:depth=8,topk=6,nodes=40", 0.0), ("iid:paths=4,depth=8", 1.0)]
)
def test_near_the_end_of_the_context_no_path_goes_beyond_it(pair: Backend, tree: str, temperature: float) -> None:
    prompt = [5 + i % 900 for i in range(pair.context - 12)]
    settings = Settings(rule="strict", tree=tree, temperature=temperature, max_new_tokens=12)
    run = Recording(pair, prompt, settings).finish()
    assert run.token_ids == Recording(pair, prompt, replace(settings, tree="chain", gamma=6)).finish().token_ids
    for own in (each.speculation for each in run.rounds):
        assert own.start + int(own.depths.max(initial=0)) <= pair.context
        assert not temperature or own.start + len(own) <= pair.context


@pytest.mark.parametrize(("tree", "temperature"), [(TREE, 0.0), (TREE, 1.0), ("delayed:trunk=2,paths=4,depth=3", 1.0)])
def test_strict_on_trees_writes_the_targets_own_text(pair: Backend, tree: str, temperature: float) -> None:
    chain = Settings(rule="strict", temperature=temperature, max_new_tokens=32)
    run, again = (Recording(pair, [5, 6, 7], each).finish() for each in (chain, replace(chain, tree=tree)))
    assert run.token_ids == again.token_ids and again.trace.speculations.whole.is_tree


@lru_cache
def tree_rounds() -> list[Speculation]:
    """Return 10,000 rounds of one tree, each with the uniforms of its place."""
    settings, found, step = Settings(temperature=1.0, seed=3), [], 2500
    tokens, *laws = (each.expand(step, *each.shape) for each in (torch.tensor(TOKENS), DRAFTER, LOGITS))
    shape = Trees((PARENTS,) * step, (np.arange(1, 8),) * step)
    for at in range(0, 10_000, step):
        blocks = DraftBatch(tuple(range(at, at + step)), tokens, *laws, sampled=False, trees=shape)
        found += gather_evidence(blocks, settings, ())
    return found


@pytest.mark.parametrize(
    ("rule", "t"), [("strict", None), ("rejection-sampling", None), ("sglang-acc", 0.7), ("sglang-single", 0.2)]
)
def test_rules_write_their_law_on_a_tree(rule: str, t: float | None) -> None:
    """The target's, or that of SGLang's kernel in closed form; false-alarm probability at most 4e-6 per rule."""
    counts = np.zeros((5, 6), np.int64)  # pairs of first tokens; column 5 if the first is the last
    for found in tree_rounds():
        decision = settle(found, RULES[rule].judge(found), t)
        text = [*(TOKENS[node] for node in decision.kept), decision.emitted]
        counts[text[0], text[1] if len(text) > 1 else 5] += 1
    if t is None:
        assert not unlike(counts.sum(1), LAWS[0])
        for token, row in ((1, 1), (4, 4), (2, 5)):  # nodes 0, 3 and 4 follow the prefix
            assert not unlike(counts[token, :5], LAWS[row])
        return
    children, expected, so_far, left = (1, 4, 2), np.zeros((2, 5)), 0.0, 1.0
    for x in children:  # one coin for all
        so_far += LAWS[0, x]
        beyond = 1 - min(1.0, so_far / t if rule == "sglang-acc" else so_far)
        beyond = 0.0 if rule == "sglang-single" and LAWS[0, x] >= t else beyond
        expected[0, x], left = max(left - beyond, 0.0), min(left, beyond)
    rest = np.where(np.isin(np.arange(5), children), 0, LAWS[0])
    expected[1] = left * rest / rest.sum()
    seen, possible = np.stack([counts[:, :5].sum(1), counts[:, 5]]), expected > 1e-12  # kept, and emitted, first tokens
    assert not seen[~possible].any()
    assert not unlike(seen[possible], expected[possible])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("siblings", lambda values: values * 0),
        ("budgets", lambda values: values[::-1].copy()),
        ("budgets", lambda values: values * 0 + 3),
        ("parents", lambda values: values * 0 - 1),
    ],
)
def test_trees_that_contradict_themselves_are_not_saved(tmp_path: Path, name: str, change: Any) -> None:
    run = toy_run(rule="mars:siblings=longest", tree=TREE, max_new_tokens=20)
    assert load_run(save_run(run, tmp_path / "run")).settings == run.settings
    first, *rounds = run.rounds
    changed = first.speculation.with_columns({name: change(getattr(first.speculation, name))})
    wrong = replace(first, speculation=changed)
    with pytest.raises(BadInput):
        save_run(replace(run, rounds=(wrong, *rounds)), tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_what_does_not_go_with_trees_is_refused() -> None:
    own = ToySpeculator(Settings(rule="strict", tree=TREE, temperature=1.0)).speculate([PROMPT])[0].speculation
    for rule in sorted(set(RULES) - set(EVERYWHERE)):
        with pytest.raises(BadInput, match="does not judge draft trees"):
            Recording(table_backend(), "a tree", Settings(rule=rule, tree=TREE, temperature=1.0))
        assert "does not judge draft trees" in (RULES[rule].lacks(own) or "")
    for tree in (TREE, "iid:paths=3,depth=4"):
        settings = Settings(rule="mars", tree=tree, temperature=1.0)
        with pytest.raises(BadInput, match="at one size"):
            Mapping(table_backend(), "a tree", settings, RuleDial(rule_named("mars")).span(0.5, 1.0, (3, 12)))
    for drafter in ("ngram", "suffix", "trigram"):
        with pytest.raises(BadInput, match="drafts chains"):
            record("Once upon a time", drafter=drafter, rule="strict", tree=TREE, max_new_tokens=8)
    for name, message in (("mars:siblings=eldest", "'eldest'"), ("strict:siblings=longest", "draft-order")):
        with pytest.raises(BadInput, match=message):
            rule_named(name)


def test_the_number_of_nodes_is_gamma() -> None:
    assert Settings(tree="dynamic:nodes=9").gamma == 9 and Settings(tree="dynamic", gamma=20).gamma == 20
    assert replace(Settings(tree="dynamic:nodes=9"), gamma=4).gamma == 4
    assert Settings(tree="dynamic:depth=3").tree == "dynamic:depth=3,topk=4"
    static = Settings(tree="static:accept=0.7-0.15-.05,depth=5,nodes=12")
    assert static.tree == "static:accept=0.7-0.15-0.05,depth=5" and static.gamma == 12
    assert shape_named("chain").shape == Shape()


SEQUOIA = (0.6, 0.2, 0.1)


@pytest.mark.parametrize(
    ("depth", "kept"),
    [(20, (1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456)), (2, (1, 1.6, 1.96, 2.16, 2.28, 2.4, 2.5, 2.56))],
)
def test_the_best_static_tree_is_that_of_sequoia(depth: int, kept: tuple[float, ...]) -> None:
    """The means are those of its recursion over 1 to 8 nodes, root included."""
    for nodes, expected in enumerate(kept):
        paths = best_paths(SEQUOIA, depth, nodes)
        assert 1 + sum(math.prod(SEQUOIA[rank] for rank in path) for path in paths) == pytest.approx(
            expected, abs=1e-12
        )


@pytest.fixture(scope="module")
def tree() -> Run:
    return toy_tree()


def test_numbers_of_a_tree_count_its_nodes_and_its_path(tree: Run) -> None:
    sums = summary(tree)
    assert sums.drafted == sum(len(round_.speculation) for round_ in tree.rounds)
    assert sums.kept == sum(round_.kept for round_ in tree.rounds) and sums.rolled_back == sums.drafted - sums.kept
    assert sums.tokens == sums.kept + sum(round_.emission is not None for round_ in tree.rounds)
    for round_ in tree.rounds:
        expected = np.flatnonzero(round_.speculation.parents + 1 == round_.decision.row).tolist()
        assert round_.stopped_by == (expected if round_.emission is Outcome.CORRECTED else [])
    assert any(len(round_.stopped_by) > 1 for round_ in tree.rounds)


def test_a_tree_s_timings_are_those_of_drafting_to_its_depth_and_of_no_other_size(tree: Run) -> None:
    timing = Timing(draft=0.04, verify=0.03, total=0.08)
    timed = replace(tree, rounds=Trace([replace(round_, timing=timing) for round_ in tree.rounds]))
    grid = map_grid(timed.dial_map)
    assert grid.gammas == (5, 10) and round_times(grid, timed)[0] is None
    one = round_times(replace(grid, gammas=(10,)), timed)
    assert [round(cost.seconds, 6) for cost in one[0] or ()] == [0.08]
    depths, letters = [int(round_.speculation.depths.max()) for round_ in tree.rounds], gain(timed)
    assert letters.gamma == 4 and letters.draft_step == pytest.approx(np.median([0.04 / depth for depth in depths]))
