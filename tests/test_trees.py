"""Draft trees: what they are, that every node is scored as its path, what is kept of them, and that dials are exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import PROMPT, ToySpeculator, judging_once, tables, toy_run
from scipy.stats import chi2
from test_dialmap import Afresh
from test_networks import llama, networks
from transformers import AutoModelForCausalLM, BloomConfig, MistralConfig

from mars_viz import load_run, trees
from mars_viz.cli import main
from mars_viz.dialmap import span_of
from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, round_uniforms, tree_uniforms
from mars_viz.recording import Mapping, Recording, record
from mars_viz.records import Emission, Policy, Speculation, chain
from mars_viz.replay import shortened
from mars_viz.rules import RULES, OnTrees, rule_named, settle
from mars_viz.run import Run, Settings
from mars_viz.runfiles import save_run
from mars_viz.shapes import Shape, best_paths, shape_named
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft import Draft
from mars_viz.speculators.draft_batch import DraftBatch, Trees
from mars_viz.speculators.drafters.token_trees import grown
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.speculator import scored_by
from mars_viz.speculators.targets.model import ModelTarget
from mars_viz.walk import Ending, walk
from tests.tables import TableTarget, TopTarget, by_paths, random_tree, table_backend

TREE = "dynamic:depth=5,topk=3,nodes=12"
JUDGE = sorted(name for name, rule in RULES.items() if rule.on_trees is not OnTrees.REFUSED)
EVERYWHERE = sorted(name for name, rule in RULES.items() if rule.on_trees is OnTrees.JUDGED)
VARIANTS = [rule.choosing(policy).name for name in JUDGE for rule in [RULES[name]] for policy in rule.policies]


def test_what_follows_from_the_parents_of_a_tree() -> None:
    parents = [-1, 0, 1, 1, 0, -1, 5]
    assert trees.depths_of(parents).tolist() == [1, 2, 3, 3, 2, 1, 2]
    assert trees.siblings_of(parents).tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert trees.first_path(parents) == 3
    assert trees.leaves(parents) == [2, 3, 4, 6]
    assert trees.path_to(parents, 3) == [0, 1, 3]
    assert [[node for node, seen in enumerate(row) if seen] for row in trees.sees(parents)] == [
        [0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 4], [5], [5, 6],
    ]  # fmt: skip


def test_no_two_paths_of_sibling_ranks_share_their_luck_and_a_chain_keeps_its_own() -> None:
    paths: dict[tuple[int, ...], float] = {}
    for ranks in itertools.product(range(4), repeat=4):  # each beside earlier siblings that end at once
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


# ---- one pass over a tree


@pytest.mark.parametrize("which", [0, 1, 2], ids=["packed", "transformers", "ragged"])
def test_every_node_of_every_tree_of_a_batch_scores_as_a_plain_pass_over_its_path(which: int) -> None:
    """Round after round, with caches that follow what was kept; trees of unequal size after texts of unequal length."""
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
def test_a_model_that_heeds_no_mask_of_ours_scores_a_tree_path_by_path(config: object) -> None:
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


def test_a_target_without_trees_is_asked_for_their_paths() -> None:
    table = tables()[0]
    parents, tokens = [-1, 0, 1, 0, -1, 4, 4], torch.tensor([[4, 9, 2, 7, 30, 1, 5]])
    draft = Draft(tokens, branches=(parents,), budgets=(np.arange(1, 8),))
    expected = table[[3, *tokens[0].tolist()]]
    np.testing.assert_array_equal(scored_by(TableTarget(table), [(1, 3)], draft)[0], expected)
    top = scored_by(TopTarget(table, 4), [(1, 3)], draft)
    np.testing.assert_array_equal(top.logits[0], np.sort(expected)[:, :-5:-1])
    drafted = [expected[parent + 1][token] for parent, token in zip(parents, tokens[0].tolist(), strict=True)]
    np.testing.assert_array_equal(top.drafted[0], np.array(drafted))


# ---- shapes


def slowly_grown(table: np.ndarray, last: int, shape: Shape, nodes: int) -> list[tuple[int, ...]]:
    """EAGLE-2's tree of a table of laws, as paths of tokens, the likeliest first: written from its description."""
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


@pytest.mark.parametrize("nodes", [1, 4, 13, 30])
def test_a_dynamic_tree_is_what_eagle_2_says(nodes: int) -> None:
    _, table = tables(vocabulary=20, model_seed=nodes)
    shape = Shape(4, 3)
    first = torch.from_numpy(table[[5, 11]])
    draft = grown(first, lambda level: torch.from_numpy(table)[level.ids], shape, nodes)
    assert draft.branches is not None and draft.budgets is not None and draft.logits is not None
    for i, last in enumerate((5, 11)):
        tokens, parents = draft.tokens[i].tolist(), draft.branches[i]
        paths = [tuple(tokens[node] for node in trees.path_to(parents, n)) for n in range(len(parents))]
        expected = slowly_grown(table.astype(np.float64), last, shape, nodes)
        assert sorted(paths) == sorted(expected)
        assert [paths[n] for n in np.argsort(draft.budgets[i])] == expected  # as likely as it is early
        after = [path[-2] if len(path) > 1 else last for path in paths]
        np.testing.assert_array_equal(draft.logits[i], table[after])
        assert parents == sorted_preorder(parents)


def sorted_preorder(parents: list[int]) -> list[int]:
    """The parents of the same tree, numbered in depth-first preorder."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    order: list[int] = []
    waiting = children.get(-1, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += children.get(order[-1], [])[::-1]
    assert order == sorted(order)
    return parents


def toy(settings: Settings, model_seed: int = 0) -> list[Speculation]:
    """A toy's speculations along its walk."""
    ending = Ending(frozenset({0}), settings.max_new_tokens)
    rule = rule_named(settings.rule)
    rounds = walk(ToySpeculator(settings, model_seed=model_seed), rule, rule.checked_dial(None), PROMPT, ending)
    return [round_.speculation for round_ in rounds]


def test_the_tree_of_fewer_nodes_is_cut_from_the_larger_one_column_by_column() -> None:
    for nodes in (1, 2, 5, 9, 12):
        for own in toy(Settings(rule="strict", tree=TREE, max_new_tokens=20)):
            tree = f"dynamic:depth=5,topk=3,nodes={nodes}" if nodes >= 5 else "dynamic:depth=5,topk=3"
            alone = ToySpeculator(Settings(tree=tree, gamma=nodes)).speculate([(0,) * (own.start - 1) + (1,)])
            if nodes == 12:
                assert shortened(own, 12) is own
            cut = shortened(own, nodes)
            assert len(cut) == nodes == len(alone[0].speculation)
    long = ToySpeculator(Settings(tree=TREE)).speculate([PROMPT])[0].speculation
    for nodes in (1, 3, 8):
        short = ToySpeculator(Settings(tree="dynamic:depth=5,topk=3", gamma=nodes)).speculate([PROMPT])[0].speculation
        cut = shortened(long, nodes)
        assert cut.columns.keys() == short.columns.keys()
        for name in cut.columns:
            np.testing.assert_array_equal(getattr(cut, name), getattr(short, name), err_msg=name)


# ---- what is kept


def kept_paths(speculation: Speculation, keeps: np.ndarray) -> Iterator[list[int]]:
    """Every path that a walk could take, as nodes."""
    for node in range(len(speculation)):
        path = trees.path_to(speculation.parents.tolist(), node)
        if keeps[path].all():
            yield path


def test_each_policy_takes_the_path_that_its_name_says() -> None:
    differ = set()
    for model_seed in range(6):
        settings = Settings(rule="top-k-set", tree=TREE, max_new_tokens=60)
        for own in toy(settings, model_seed):
            taken = {}
            for policy in Policy:
                verdicts = RULES["top-k-set"].choosing(policy).judge(own)
                taken[policy] = settle(own, verdicts, 3.0).kept
            keeps = RULES["top-k-set"].judge(own).keeps(3.0)
            strict, parents = own.ranks == 1, own.parents
            longest = max(map(len, kept_paths(own, keeps)), default=0)
            assert len(taken[Policy.LONGEST]) == longest
            for policy in (Policy.DRAFT_ORDER, Policy.STRICT_FIRST):
                at = -1
                for node in (*taken[policy], None):
                    kept = [int(i) for i in np.flatnonzero((parents == at) & keeps)]
                    if policy is Policy.STRICT_FIRST:
                        kept.sort(key=lambda i: not strict[i])
                    assert (kept or [None])[0] == node
                    at = -1 if node is None else node
            differ |= {taken[one] != taken[other] for one, other in itertools.combinations(Policy, 2)}
    assert True in differ


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_strict_on_trees_writes_what_the_target_writes_alone(temperature: float) -> None:
    gains = []
    for model_seed in range(5):
        settings = {"rule": "strict", "temperature": temperature, "model_seed": model_seed, "max_new_tokens": 60}
        chains, branching = toy_run(gamma=5, **settings), toy_run(tree=TREE, **settings)
        assert chains.token_ids == branching.token_ids
        gains.append(branching.tau / chains.tau)
    assert np.mean(gains) > 1.02


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("rule", VARIANTS)
def test_at_the_strict_end_a_rule_keeps_what_its_strict_rule_keeps(rule: str, temperature: float) -> None:
    own = rule_named(rule)
    if own.refuses_trees(temperature):
        return
    strictest = "rejection-sampling" if own.on_rejection is Emission.RESIDUAL else "strict"
    if temperature > 0 and own.on_rejection in (Emission.ARGMAX, Emission.LOWERED):
        return  # argmax matching, or what the released code does at θ = 1: no rules at that temperature
    dial = None if own.dial is None else own.dial.strict
    ours = toy_run(rule=rule, dial=dial, tree=TREE, temperature=temperature, model_seed=1)
    theirs = toy_run(rule=strictest, tree=TREE, temperature=temperature, model_seed=1)
    assert [r.token_ids for r in ours.rounds] == [r.token_ids for r in theirs.rounds]


def first_tokens(
    rule: str, draws: int, keeps: Callable[[Speculation], np.ndarray] | None = None, dial: float | None = None
) -> np.ndarray:
    """int64 [V, V]; how often a rule writes each pair of first tokens, over so many rounds of one tree with the luck of
    their places. Where the first is emitted, the second counts as the target's own next draw would: not at all."""
    rng = np.random.default_rng(5)
    target, drafter = (torch.from_numpy(rng.normal(0, 1.2, (n, 5)).astype(np.float32)) for n in (8, 7))
    parents, tokens = (-1, 0, 0, -1, -1, 4, 4), (1, 0, 3, 4, 2, 2, 1)
    counts = np.zeros((5, 6), np.int64)
    own, step = rule_named(rule), 2000
    for at in range(0, draws, step):
        blocks = DraftBatch.of(
            tuple(range(at, at + step)),
            torch.tensor([tokens]).expand(step, -1),
            drafter.expand(step, -1, -1),
            target.expand(step, -1, -1),
            sampled=False,
            trees=Trees((parents,) * step, (np.arange(1, 8),) * step),
        )
        for found in gather_evidence(blocks, Settings(temperature=1.0, seed=3), own.needs):
            verdicts = own.judge(found)
            if keeps is not None:
                kept = keeps(found)
                verdicts = replace(verdicts, keep_below=kept, keep_above=kept)
            decision = settle(found, verdicts, dial)
            text = [*(tokens[node] for node in decision.kept), decision.emitted]
            counts[text[0], text[1] if len(text) > 1 else 5] += 1
    return counts


FALSE_ALARM = 1e-6


def off_law(counts: np.ndarray) -> bool:
    """Whether the first token, or the second after a kept first one, is not by the target's law; wrongly with a
    probability of at most 4 x 1e-6."""
    rng = np.random.default_rng(5)
    laws = torch.from_numpy(rng.normal(0, 1.2, (8, 5)).astype(np.float32)).softmax(-1).double().numpy()

    def apart(found: np.ndarray, law: np.ndarray) -> bool:
        expected = law * found.sum()
        return bool(((found - expected) ** 2 / expected).sum() > chi2.isf(FALSE_ALARM, len(law) - 1))

    after = {1: laws[1], 4: laws[4], 2: laws[5]}  # nodes 0, 3 and 4 follow the prefix; the row after node i is i + 1
    return apart(counts.sum(1), laws[0]) or any(apart(counts[token, :5], law) for token, law in after.items())


@pytest.mark.parametrize("rule", ["strict", "rejection-sampling"])
def test_a_lossless_rule_keeps_the_target_s_law_on_trees(rule: str) -> None:
    """15,000 rounds; siblings that were tried are taken out of the law one after the other."""
    assert not off_law(first_tokens(rule, 15_000))


def test_a_sibling_judged_by_the_whole_law_is_found_out() -> None:
    """The mistake of judging each sibling as if none had been tried before it."""
    assert off_law(first_tokens("rejection-sampling", 15_000, keeps=lambda found: found.coins <= found.p))


# ---- dials


@pytest.mark.parametrize(
    ("prompt", "rule", "tree", "budgets"),
    [
        ("Tom and his dog went to the park.", "mars", "dynamic:depth=6,topk=3,nodes=12", (4, 12)),
        ("The frog wanted to", "mars:siblings=longest", "dynamic:depth=4,topk=3,nodes=10", (10,)),
        ("One day, Tom and", "mars-margin:siblings=draft-order", "dynamic:depth=5,topk=2,nodes=8", (8,)),
    ],
)
def test_a_map_of_trees_of_real_models_is_what_walks_of_their_own_are(
    pair: Backend, prompt: str, rule: str, tree: str, budgets: tuple[int, ...]
) -> None:
    """Bit for bit: on every boundary and the floats beside it, whatever else is in the batch; and of whole recordings
    at random dial values."""
    settings, judging = Settings(rule=rule, tree=tree, max_new_tokens=40), judging_once(rule)
    span = span_of(judging, 0.5 if judging.scale.name == "RATIO" else None, None, budgets)
    made = Mapping(pair, prompt, settings, span).finish()
    assert made.complete
    for nodes in budgets:
        smaller = replace(settings, gamma=nodes)
        edges = {segment.low for segment in made.segments_for(nodes)} | {span.high}
        assert len(edges) > 2  # or there was nothing to tell apart
        dials = edges | {math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)}
        speculator, ending = Afresh(pair, smaller), pair.ending(smaller)
        for dial in sorted(each for each in dials if span.low <= each <= span.high):
            rounds = walk(speculator, judging, dial, made.frame.prompt_ids, ending)
            assert [r.token_ids for r in rounds] == [r.token_ids for r in made.segment(dial, nodes).rounds]
        for dial in np.random.default_rng(nodes).uniform(span.low, span.high, 3).tolist():
            run = Recording(pair, prompt, replace(smaller, dial=dial)).finish()
            assert [r.token_ids for r in run.rounds] == [r.token_ids for r in made.segment(dial, nodes).rounds]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_strict_trees_of_real_models_write_the_target_s_own_text(pair: Backend, temperature: float) -> None:
    settings = Settings(rule="strict", temperature=temperature, max_new_tokens=64)
    chains = Recording(pair, "Once upon a time, there was", settings).finish()
    branching = Recording(pair, "Once upon a time, there was", replace(settings, tree=TREE, gamma=12)).finish()
    assert chains.token_ids == branching.token_ids
    assert max(len(round_.speculation) for round_ in branching.rounds) == 12


def test_near_the_end_of_the_context_no_path_goes_beyond_it(pair: Backend) -> None:
    prompt = [5 + i % 900 for i in range(pair.context - 12)]
    settings = Settings(rule="strict", tree="dynamic:depth=8,topk=6,nodes=40", max_new_tokens=12)
    run = Recording(pair, prompt, settings).finish()
    plain = Recording(pair, prompt, Settings(rule="strict", max_new_tokens=12)).finish()
    assert run.token_ids == plain.token_ids
    for round_ in run.rounds:
        own = round_.speculation
        assert int(own.depths.max(initial=0)) + own.start <= pair.context


# ---- files and bad input


@pytest.fixture
def recorded() -> Run:
    backend = table_backend()
    run = Recording(backend, "a tree", Settings(rule="mars:siblings=longest", tree=TREE, max_new_tokens=40)).finish()
    assert run.trace.speculations.whole.is_tree
    return run


def test_a_run_of_trees_is_read_as_it_was_written(tmp_path: Path, recorded: Run) -> None:
    read = load_run(save_run(recorded, tmp_path / "run"))
    assert read.settings == recorded.settings
    assert read.settings.rule == "mars:siblings=longest" and read.settings.tree == "dynamic:depth=5,topk=3"
    assert [r.token_ids for r in read.rounds] == [r.token_ids for r in recorded.rounds]
    for name in ("parents", "siblings", "budgets"):
        np.testing.assert_array_equal(
            getattr(read.trace.speculations.whole, name), getattr(recorded.trace.speculations.whole, name)
        )
    frame = read.to_frame()
    assert {"parent", "sibling", "depth"} <= set(frame.columns)


def spoiled(run: Run, **columns: Callable[[np.ndarray], np.ndarray]) -> Run:
    rounds = list(run.rounds)
    own = rounds[0].speculation
    rounds[0] = rounds[0].with_speculation(
        own.with_columns({name: change(getattr(own, name).copy()) for name, change in columns.items()})
    )
    return replace(run, rounds=tuple(rounds))


@pytest.mark.parametrize(
    "columns",
    [
        {"siblings": lambda values: values * 0},
        {"budgets": lambda values: values[::-1].copy()},
        {"budgets": lambda values: values * 0 + 3},
        {"parents": lambda values: values * 0 - 1},
    ],
)
def test_a_file_of_trees_that_contradict_themselves_is_refused(
    tmp_path: Path, recorded: Run, columns: dict[str, Callable[[np.ndarray], np.ndarray]]
) -> None:
    with pytest.raises(BadInput):
        save_run(spoiled(recorded, **columns), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bush", "There is no shape of drafts 'bush'. Write chain, or a tree such as"),
        ("", "There is no shape of drafts"),
        ("dynamic:nodes=0", "nodes is 0; it must be a whole number from 1 to 64."),
        ("dynamic:nodes=10000", "nodes is 10000; it must be a whole number from 1 to 64."),
        ("dynamic:depth=6,topk=4,nodes=4", "A tree of 4 nodes holds no path of 6 tokens"),
        ("dynamic:leaves=3", "has no setting 'leaves'"),
        ("dynamic:topk=x", "which is no number"),
        (
            "static",
            "A static tree is made of how often a node's first, second, … child is kept; give at most 16 chances",
        ),
        ("static:accept=0.2-0.6", "that do not rise"),
        ("static:accept=0.6-x", "that do not rise"),
        ("static:accept=0.6,topk=3", "has no setting 'topk'"),
    ],
)
def test_a_tree_that_cannot_be_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    with pytest.raises(BadInput) as refused:
        Settings(tree=name)
    assert said in str(refused.value)
    assert main(["record", "--prompt", "Once", "--tree", name, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.parametrize("rule", sorted(set(RULES) - set(EVERYWHERE)))
def test_a_rule_that_does_not_judge_trees_says_so_before_anything_is_decoded(rule: str) -> None:
    settings = Settings(rule=rule, tree=TREE, temperature=1.0)
    with pytest.raises(BadInput, match="does not judge draft trees"):
        Recording(table_backend(), "a tree", settings)
    own = ToySpeculator(replace(settings, rule="strict")).speculate([PROMPT])[0].speculation
    assert "does not judge draft trees" in (RULES[rule].lacks(own) or "")


@pytest.mark.parametrize("drafter", ["ngram", "suffix", "trigram"])
def test_a_drafter_of_chains_refuses_trees(drafter: str) -> None:
    with pytest.raises(BadInput, match="drafts chains"):
        record("Once upon a time", drafter=drafter, rule="strict", tree=TREE, max_new_tokens=8)


def test_sizes_of_trees_above_temperature_0_are_not_told_from_one_another() -> None:
    settings = Settings(rule="mars", tree=TREE, temperature=1.0)
    with pytest.raises(BadInput, match="was not drawn"):
        Mapping(table_backend(), "a tree", settings, span_of(rule_named("mars"), 0.5, 1.0, (3, 12)))


def test_a_tree_s_number_of_nodes_is_gamma() -> None:
    assert Settings(tree="dynamic:nodes=9").gamma == 9
    assert Settings(tree="dynamic", gamma=20).gamma == 20
    assert replace(Settings(tree="dynamic:nodes=9"), gamma=4).gamma == 4
    assert Settings(tree="dynamic:depth=3").tree == "dynamic:depth=3,topk=4"
    assert shape_named("chain").shape == Shape()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mars:siblings=eldest", "There is no choice among siblings 'eldest'"),
        ("strict:siblings=longest", "takes siblings"),
    ],
)
def test_a_choice_among_siblings_that_there_is_not_is_refused(name: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        rule_named(name)


def best_kept(accept: tuple[float, ...], nodes: int, depth: int) -> float:
    """Sequoia's recursion: the most tokens that a tree of so many nodes, the root counted, keeps on average."""

    @lru_cache(None)
    def most(m: int, level: int, children: int) -> float:
        if children == 0:
            return 1.0 if m == 1 else -math.inf
        if level == 0:
            return -math.inf
        return max(
            (
                most(y, level, children - 1) + accept[children - 1] * max(below(m - y, level - 1), -math.inf)
                for y in range(1, m)
            ),
            default=-math.inf,
        )

    @lru_cache(None)
    def below(m: int, level: int) -> float:
        return max(most(m, level, children) for children in range(len(accept) + 1))

    return below(nodes, depth)


SEQUOIA = (0.6, 0.2, 0.1)


@pytest.mark.parametrize(
    ("depth", "kept"),
    [
        (20, (1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456)),
        (2, (1, 1.6, 1.96, 2.16, 2.28, 2.4, 2.5, 2.56)),
    ],
)
def test_the_best_static_tree_is_sequoia_s(depth: int, kept: tuple[float, ...]) -> None:
    """The figures of its table; the heap against the recursion, which grows by subtrees."""
    for nodes, expected in enumerate(kept, start=1):
        paths = best_paths(SEQUOIA, depth, nodes - 1)
        on_average = 1 + sum(math.prod(SEQUOIA[rank] for rank in path) for path in paths)
        assert on_average == pytest.approx(expected, abs=1e-12)
        assert best_kept(SEQUOIA, nodes, depth) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("nodes", [1, 3, 8, 20])
def test_a_static_tree_has_the_form_that_was_planned_and_the_drafter_s_best_tokens(nodes: int) -> None:
    _, table = tables(vocabulary=20, model_seed=3)
    shape = Shape(4, 3, SEQUOIA)
    laws = torch.from_numpy(table)
    draft = grown(laws[[5, 11]], lambda level: laws[level.ids], shape, nodes)
    planned = best_paths(SEQUOIA, 4, nodes)
    assert draft.branches is not None and draft.budgets is not None
    for i, last in enumerate((5, 11)):
        parents, tokens = draft.branches[i], draft.tokens[i].tolist()
        siblings = trees.siblings_of(parents).tolist()
        paths = [tuple(siblings[node] for node in trees.path_to(parents, n)) for n in range(len(parents))]
        assert [paths[n] for n in np.argsort(draft.budgets[i])] == planned
        for node, parent in enumerate(parents):
            law = table[tokens[parent] if parent >= 0 else last]
            assert tokens[node] == np.argsort(-law, kind="stable")[siblings[node]]


def test_a_static_tree_is_drafted_by_the_built_in_pair(pair: Backend) -> None:
    settings = Settings(rule="strict", tree="static:accept=0.7-0.15-.05,depth=5,nodes=12", max_new_tokens=48)
    assert settings.tree == "static:accept=0.7-0.15-0.05,depth=5" and settings.gamma == 12
    run = Recording(pair, "Once upon a time, there was", settings).finish()
    plain = Recording(pair, "Once upon a time, there was", replace(settings, tree="chain")).finish()
    assert run.token_ids == plain.token_ids
    forms = {tuple(round_.speculation.parents.tolist()) for round_ in run.rounds if len(round_.speculation) == 12}
    assert len(forms) == 1
