"""Trees of drawn paths: how they are drawn and merged, and that the rules that judge them keep the target's law."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import PROMPT, ToySpeculator, tables, toy_run
from scipy.stats import chi2

from mars_viz import load_run, trees
from mars_viz.analysis.judgements import opinion
from mars_viz.cli import main
from mars_viz.components.stepper.frames import playback
from mars_viz.dialmap import span_of
from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.recording import Mapping, Recording
from mars_viz.records import Speculation
from mars_viz.report.page import report_html
from mars_viz.rules import RULES, OnTrees, rule_named, settle
from mars_viz.run import Settings
from mars_viz.runfiles import save_run
from mars_viz.shapes import Shape, draft_words, shape_named, with_nodes
from mars_viz.speculators import evidence
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.draft_batch import DraftBatch, Trees
from mars_viz.speculators.drafters.token_trees import TokenTree, drawn
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.tree_laws import OWN_Q, TREE_COLUMNS, greedily, refused_in_turn, traversed
from tests.tables import table_backend

IID = "iid:paths=3,depth=4"
JUDGE = sorted(name for name, rule in RULES.items() if rule.on_trees in (OnTrees.JUDGED, OnTrees.DRAWN))
LOSSLESS = [name for name in JUDGE if RULES[name].lossless]
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
Context = tuple[int, ...]


def target_law(context: Context) -> np.ndarray:
    """float64 [3]; one that hangs on all tokens before it."""
    return np.roll(P, sum(context))


def drafter_law(context: Context) -> np.ndarray:
    """float64 [3]; likewise."""
    return np.roll(Q, 2 * len(context) + sum(context))


@dataclass(frozen=True)
class Case:
    """A tree that can be drawn, and the laws along it."""

    tree: TokenTree
    chance: float
    """That it is drawn."""

    @property
    def contexts(self) -> list[Context]:
        """Of each row."""
        paths = [trees.path_to(self.tree.parents, node) for node in range(-1, len(self.tree.parents))]
        return [tuple(self.tree.tokens[node] for node in path) for path in paths]

    @property
    def ps(self) -> np.ndarray:
        """float64 [N + 1, 3]."""
        return np.array([target_law(context) for context in self.contexts])

    @property
    def qs(self) -> np.ndarray:
        """float64 [N, 3]; what each node was drawn from."""
        return np.array([drafter_law(self.contexts[parent + 1]) for parent in self.tree.parents])


def cases(paths: int, depth: int, trunk: int = 0) -> Iterator[Case]:
    """Every tree of so many paths of so many tokens, the first few of which they share, with its chance."""
    for shared in itertools.product(range(3), repeat=trunk):
        begun = np.prod([drafter_law(shared[:at])[shared[at]] for at in range(trunk)])
        for drawing in itertools.product(itertools.product(range(3), repeat=depth - trunk), repeat=paths):
            after = [drafter_law((*shared, *path[:at]))[path[at]] for path in drawing for at in range(depth - trunk)]
            levels = [*([token] for token in shared), *([path[at] for path in drawing] for at in range(depth - trunk))]
            yield Case(TokenTree.of_paths(levels), float(begun * np.prod(after)))


def batch(made: Sequence[Case]) -> DraftBatch:
    """Trees of one size, in double precision."""
    logits = [np.concatenate([case.ps, case.qs]) for case in made]
    n, tree = len(made[0].tree.parents), [case.tree for case in made]
    return DraftBatch.of(
        tuple(range(len(made))),
        torch.tensor([each.tokens for each in tree]),
        torch.from_numpy(np.log(np.stack(logits)[:, n + 1 :])),
        torch.from_numpy(np.log(np.stack(logits)[:, : n + 1])),
        sampled=True,
        trees=Trees(
            tuple(tuple(each.parents) for each in tree),
            tuple(np.array(each.budgets, np.int32) for each in tree),
            tuple(np.array(each.draws, np.int32) for each in tree),
        ),
    )


def by_size(made: Sequence[Case]) -> Iterator[tuple[list[Case], DraftBatch]]:
    """These cases, those of one size together."""
    for size in sorted({len(case.tree.parents) for case in made}):
        some = [case for case in made if len(case.tree.parents) == size]
        yield some, batch(some)


@dataclass(frozen=True)
class Judged:
    """What a rule makes of a tree, with the luck left open."""

    chances: np.ndarray
    """float64 [N]; that a node is kept, where the rule comes to it."""
    emits: np.ndarray
    """float64 [N + 1, V]; what is emitted at each row."""


def refused(case: Case, *, q_kept: bool = False) -> Judged:
    """Recursive rejection sampling, row by row and child by child; wrong where q is kept as it was."""
    chances, emits = np.zeros(len(case.tree.parents)), case.ps.copy()
    laws = [drafter_law(context) for context in case.contexts]
    for node, (parent, token) in enumerate(zip(case.tree.parents, case.tree.tokens, strict=True)):
        row = parent + 1  # siblings come in their order, and each row's own children alone change its laws
        p, q = emits[row], laws[row]
        chances[node] = min(1.0, p[token] / q[token])
        mass = np.maximum(p - q, 0)
        emits[row] = mass / mass.sum() if mass.sum() > 1e-9 else p
        if not q_kept:
            q = np.where(np.arange(3) == token, 0.0, q)
            laws[row] = q / q.sum() if q.sum() > 0 else q
    return Judged(chances, emits)


def top_down(case: Case, judged: Judged) -> Iterator[tuple[float, list[int], np.ndarray]]:
    """How a walk can end that tries siblings in turn: chance, kept nodes, law of the token after them."""
    waiting: list[tuple[float, list[int]]] = [(1.0, [])]
    while waiting:
        mass, kept = waiting.pop()
        row = kept[-1] + 1 if kept else 0
        for node in np.flatnonzero(np.array(case.tree.parents) == row - 1).tolist():
            waiting.append((mass * judged.chances[node], [*kept, node]))
            mass *= 1 - judged.chances[node]
        yield mass, kept, judged.emits[row]


Ending = Callable[[Case], Iterator[tuple[float, list[int], np.ndarray]]]


def exactly(paths: int, depth: int, endings: Ending, trunk: int = 0) -> tuple[float, float]:
    """How far the law of the next `depth` tokens lies from the target's at most, and the mean number of kept ones; by
    enumeration. What follows the extra token is the target's."""
    found, kept_tokens = np.zeros((3,) * depth), 0.0
    for case in cases(paths, depth, trunk):
        for mass, kept, law in endings(case):
            text = tuple(case.tree.tokens[node] for node in kept)
            kept_tokens += case.chance * mass * len(kept)
            for rest in itertools.product(range(3), repeat=depth - len(text)):
                share = law[rest[0]] if rest else 1.0
                for at in range(1, len(rest)):
                    share *= target_law((*text, *rest[:at]))[rest[at]]
                found[(*text, *rest)] += case.chance * mass * share
    expected = np.array(
        [np.prod([target_law(t[:i])[t[i]] for i in range(depth)]) for t in itertools.product(range(3), repeat=depth)]
    )
    return float(np.abs(found.ravel() - expected).max()), kept_tokens


# ---- how they are drawn


def test_paths_that_begin_alike_are_one_tree_in_preorder() -> None:
    tree = TokenTree.of_paths([[4, 7, 4, 7], [1, 1, 2, 1], [9, 9, 9, 8]])
    assert tree.parents == [-1, 0, 1, 0, 3, -1, 5, 6, 6]
    assert tree.tokens == [4, 1, 9, 2, 9, 7, 1, 9, 8]
    assert tree.draws == [0b0101, 0b0001, 0b0001, 0b0100, 0b0100, 0b1010, 0b1010, 0b0010, 0b1000]
    assert tree.budgets == [1, 2, 3, 7, 8, 4, 5, 6, 9]
    trunk = TokenTree.of_paths([[5], [6], [1, 1, 2]])
    assert (trunk.parents, trunk.tokens) == ([-1, 0, 1, 1], [5, 6, 1, 2])
    assert trunk.draws == [0b001, 0b001, 0b011, 0b100]


@pytest.mark.parametrize("shape", [Shape(4, 5, drawn=True), Shape(5, 4, trunk=2, drawn=True)])
def test_each_path_is_what_its_luck_draws_from_the_drafter_s_law(shape: Shape) -> None:
    _, table = tables(vocabulary=12, model_seed=1)
    laws = torch.from_numpy(table)
    settings = Settings(temperature=1.0, seed=9)
    draft = drawn(laws[[5, 11]], lambda level: laws[level.ids], shape, settings, (30, 41))
    assert draft.branches is not None and draft.draws is not None and draft.logits is not None
    for i, (start, last) in enumerate(((30, 5), (41, 11))):
        met = set()
        parents, tokens = draft.branches[i], draft.tokens[i].tolist()
        for path in range(shape.children):
            at, node = last, -1
            for depth in range(shape.depth):
                whose = path if depth >= shape.trunk else 0
                luck = round_uniforms(9, start, Purpose.DRAFT, shape.depth, whose)[depth]
                law = np.exp(table[at].astype(np.float64))
                at = int(np.searchsorted(np.cumsum(law) / law.sum(), luck, side="right"))
                (node,) = (n for n, parent in enumerate(parents) if parent == node and tokens[n] == at)
                assert bool(draft.draws[i][node] >> path & 1) == (whose == path)
                met.add(node)
        assert met == set(range(len(parents)))
        np.testing.assert_array_equal(
            draft.logits[i, : len(parents)], table[[tokens[parent] if parent >= 0 else last for parent in parents]]
        )
        assert trees.siblings_of(parents).max() > 0


@pytest.mark.parametrize("rule", ["rejection-sampling", "strict", "mars"])
def test_one_drawn_path_is_a_chain(rule: str) -> None:
    settings = {"rule": rule, "temperature": 1.0, "max_new_tokens": 60}
    one, chain = toy_run(tree="iid:paths=1,depth=5", **settings), toy_run(gamma=5, **settings)
    assert [r.token_ids for r in one.rounds] == [r.token_ids for r in chain.rounds]
    assert [r.kept for r in one.rounds] == [r.kept for r in chain.rounds]


def test_the_tree_of_fewer_paths_is_part_of_the_one_of_more() -> None:
    few, many = (
        ToySpeculator(Settings(tree=f"iid:paths={paths},depth=4", temperature=1.0)).speculate([PROMPT])[0].speculation
        for paths in (3, 6)
    )
    texts = [
        {tuple(own.tokens[trees.path_to(own.parents.tolist(), node)].tolist()) for node in range(len(own))}
        for own in (few, many)
    ]
    assert texts[0] < texts[1]


# ---- the target's law


@pytest.mark.parametrize(("children", "kept"), [(1, 0.7), (2, 0.82), (3, 1.0)])
def test_so_many_distinct_draws_are_kept_as_often_as_they_can_be(children: int, kept: float) -> None:
    """One node, p = (.5, .3, .2), q = (.2, .3, .5): the chance that one of k draws without replacement is kept."""
    total = 0.0
    for order in itertools.permutations(range(3), children):
        left, chance = 1.0, 1.0
        for token in order:
            chance, left = chance * Q[token] / left, left - Q[token]
        case = Case(TokenTree.of_paths([order]), chance)
        blocks = batch([case])
        _, found = refused_in_turn(blocks, torch.from_numpy(case.ps)[None], torch.from_numpy(case.qs)[None])
        p, q = found["p_left"][0].numpy(), found["q_left"][0].numpy()
        total += chance * (1 - np.prod(1 - np.minimum(1, p / q)))
    assert total == pytest.approx(kept, abs=1e-12)


@pytest.mark.parametrize("paths", [1, 2, 3])
def test_what_is_left_of_both_laws_is_computed_alike_a_second_way(paths: int) -> None:
    for some, blocks in by_size(list(cases(paths, 2))):
        ps, qs = (torch.from_numpy(np.stack([getattr(case, name) for case in some])) for name in ("ps", "qs"))
        laws, found = refused_in_turn(blocks, ps, qs)
        for i, case in enumerate(some):
            expected = refused(case)
            np.testing.assert_allclose(laws[i].numpy(), expected.emits, atol=1e-12)
            chances = np.minimum(1, found["p_left"][i].numpy() / found["q_left"][i].numpy())
            np.testing.assert_allclose(chances, expected.chances, atol=1e-12)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other laws: those by which a q that is kept shows, which it does not by every two."""
    monkeypatch.setitem(globals(), "P", np.array([0.45, 0.1, 0.45]))
    monkeypatch.setitem(globals(), "Q", np.array([0.3, 0.6, 0.1]))


@pytest.mark.parametrize("paths", [1, 2, 3])
def test_rejection_without_replacement_is_exact_on_merged_paths(paths: int) -> None:
    assert exactly(paths, 2, lambda case: top_down(case, refused(case)))[0] < 1e-12


@pytest.mark.usefixtures("apart")
def test_rejection_that_keeps_q_after_merging_is_not() -> None:
    """The rule of sampling with replacement, on paths of which those that are alike were made one."""
    assert exactly(2, 2, lambda case: top_down(case, refused(case)))[0] < 1e-12
    assert exactly(1, 2, lambda case: top_down(case, refused(case, q_kept=True)))[0] < 1e-12
    assert exactly(2, 2, lambda case: top_down(case, refused(case, q_kept=True)))[0] > 1e-2


# ---- from the leaves upwards


def by_leaves(
    case: Case, *, q_kept: bool = False, by_path: bool = False
) -> Iterator[tuple[float, list[int], np.ndarray]]:
    """Traversal verification as its paper writes it: the first leaf is kept or deleted, again and again, with its
    parent's laws and weight worked out anew. Wrong where q is kept as it was, and where the first leaf is the one that
    was drawn first, so that a subtree is left half done."""
    parents, tokens = case.tree.parents, case.tree.tokens
    law, drawn_from = list(case.ps), [drafter_law(context) for context in case.contexts]
    weight, there, left = {-1: 1.0}, set(range(len(parents))), 1.0

    def weigh(node: int) -> None:
        parent = parents[node]
        q = drawn_from[parent + 1][tokens[node]]
        weight[node] = min(1.0, weight[parent] * law[parent + 1][tokens[node]] / q)

    for node in range(len(parents)):
        weigh(node)
    while there:
        open_ones = [node for node in there if not any(parents[other] == node for other in there)]
        leaf = min(open_ones, key=lambda node: (case.tree.budgets[node] if by_path else 0, node))
        yield left * weight[leaf], trees.path_to(parents, leaf), law[leaf + 1]
        left *= 1 - weight[leaf]
        there.discard(leaf)
        parent = parents[leaf]
        row, w, q = parent + 1, weight[parent], drawn_from[parent + 1]
        mass = np.maximum(w * law[row] - q, 0)
        if (total := mass.sum()) > 1e-9:
            law[row] = mass / total
        if parent >= 0:
            weight[parent] = total / (total + 1 - w) if total > 1e-9 else 0.0
        if not q_kept:
            q = np.where(np.arange(3) == tokens[leaf], 0.0, q)
            drawn_from[row] = q / q.sum() if q.sum() > 0 else q
        for node in sorted(there):
            above = trees.path_to(parents, node)[:-1]
            if (parent in above or parent == -1) and drawn_from[parents[node] + 1][tokens[node]] > 0:
                weigh(node)
    yield left, [], law[0]


def first_of(case: Case, stops: np.ndarray, laws: np.ndarray) -> Iterator[tuple[float, list[int], np.ndarray]]:
    """How a walk can end that takes the first node with its chance, children before their parents."""
    parents, left = case.tree.parents, 1.0
    last = [max(n for n in range(len(parents)) if node in trees.path_to(parents, n)) for node in range(len(parents))]
    for node in sorted(range(len(parents)), key=lambda node: (last[node], -node)):
        yield left * stops[node], trees.path_to(parents, node), laws[node + 1]
        left *= 1 - stops[node]
    yield left, [], laws[0]


Solver = Callable[[DraftBatch, torch.Tensor, torch.Tensor], tuple[torch.Tensor, dict[str, torch.Tensor]]]


def ended_by(solver: Solver, column: str, paths: int, trunk: int = 0) -> Ending:
    """How walks end by what the evidence says of all trees of so many paths of two tokens."""
    found: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
    for some, blocks in by_size(list(cases(paths, 2, trunk))):
        ps, qs = (torch.from_numpy(np.stack([getattr(case, name) for case in some])) for name in ("ps", "qs"))
        laws, columns = solver(blocks, ps, qs)
        for i, case in enumerate(some):
            key = (*case.tree.parents, -9, *case.tree.tokens, -9, *case.tree.draws)
            found[key] = columns[column][i].numpy(), laws[i].numpy()
    return lambda case: first_of(case, *found[(*case.tree.parents, -9, *case.tree.tokens, -9, *case.tree.draws)])


@pytest.mark.parametrize(("paths", "kept"), [(1, 1.3), (2, 1.4158), (3, 1.5101)])
def test_traversal_is_exact_and_keeps_as_much_as_was_worked_out(paths: int, kept: float) -> None:
    off, mean = exactly(paths, 2, ended_by(traversed, "traversal_stop", paths))
    assert off < 1e-12 and mean == pytest.approx(kept, abs=1e-4)
    off, mean = exactly(paths, 2, by_leaves)
    assert off < 1e-12 and mean == pytest.approx(kept, abs=1e-4)


def test_traversal_in_the_order_of_drawing_is_not_exact() -> None:
    off, mean = exactly(3, 2, lambda case: by_leaves(case, by_path=True))
    assert off > 1e-3 and mean == pytest.approx(1.5555, abs=1e-4)


@pytest.mark.usefixtures("apart")
def test_traversal_with_q_kept_is_not_exact() -> None:
    assert exactly(2, 2, ended_by(traversed, "traversal_stop", 2))[0] < 1e-12
    assert exactly(2, 2, lambda case: by_leaves(case, q_kept=True))[0] > 1e-2


# ---- the path of largest p/q


def chosen_path(case: Case, *, clamped: bool = False) -> Iterator[tuple[float, list[int], np.ndarray]]:
    """Greedy multi-path block verification of paths that are drawn from the prefix on, written from its description;
    q' by enumeration of what all K paths can go on with. Wrong where ratios are clamped to 1 before tokens are ranked,
    while the child is chosen by them in the order of drawing."""
    paths = int(np.bitwise_or.reduce(case.tree.draws)).bit_count()
    steps, node, weight, below, mass = [], -1, 1.0, 0.0, 1.0
    while children := [n for n, parent in enumerate(case.tree.parents) if parent == node]:
        p, q = case.ps[node + 1], drafter_law(case.contexts[node + 1])
        ratio = np.minimum(p / q, 1) if clamped else p / q
        order = np.argsort(ratio, kind="stable")
        leaning, reached = np.zeros(3), below
        for token in order:
            leaning[token] = (reached + mass * q[token]) ** paths - reached**paths
            reached += mass * q[token]
        leaning /= (below + mass) ** paths - below**paths
        rank = {int(token): place for place, token in enumerate(order)}
        by_draw = sorted(children, key=case.tree.budgets.__getitem__)
        chosen = max(by_draw, key=lambda n: ratio[case.tree.tokens[n]] if clamped else rank[case.tree.tokens[n]])
        token = case.tree.tokens[chosen]
        steps.append((node, weight, np.maximum(weight * p - leaning, 0)))
        weight = min(1.0, weight * p[token] / leaning[token])
        below, mass = below + mass * q[order[: rank[token]]].sum(), mass * q[token]
        node = chosen
    yield weight, trees.path_to(case.tree.parents, node), case.ps[node + 1]
    left = 1 - weight
    for at, before, residual in reversed(steps):
        total = residual.sum()
        ends = 1.0 if at < 0 or total + 1 - before < 1e-12 else total / (total + 1 - before)
        yield left * ends, trees.path_to(case.tree.parents, at), residual / total if total > 1e-12 else case.ps[at + 1]
        left *= 1 - ends


@pytest.mark.parametrize(("paths", "kept"), [(1, 1.3), (2, 1.6423), (3, 1.7295)])
def test_the_path_of_largest_ratio_is_judged_exactly_and_keeps_as_much_as_was_worked_out(
    paths: int, kept: float
) -> None:
    for endings in (ended_by(greedily, "greedy_stop", paths), chosen_path):
        off, mean = exactly(paths, 2, endings)
        assert off < 1e-12 and mean == pytest.approx(kept, abs=1e-4)


@pytest.mark.parametrize(("paths", "kept"), [(2, 1.4690), (3, 1.3492)])
def test_a_path_chosen_in_another_order_than_its_law_ranks_tokens_is_not_exact(paths: int, kept: float) -> None:
    off, mean = exactly(paths, 2, lambda case: chosen_path(case, clamped=True))
    assert off > 1e-5 and mean == pytest.approx(kept, abs=1e-4)


@pytest.mark.parametrize("paths", [2, 3])
def test_paths_after_a_trunk_are_judged_exactly(paths: int) -> None:
    assert exactly(paths, 2, lambda case: top_down(case, refused(case)), trunk=1)[0] < 1e-12
    assert exactly(paths, 2, ended_by(traversed, "traversal_stop", paths, 1), trunk=1)[0] < 1e-12
    assert exactly(paths, 2, ended_by(greedily, "greedy_stop", paths, 1), trunk=1)[0] < 1e-12


FALSE_ALARM = 1e-6
ROLLED = [[np.roll(law, token) for token in range(3)] for law in ((0.45, 0.1, 0.45), (0.3, 0.6, 0.1))]
"""What the target and the drafter go on with after each token; laws by which a kept q shows."""


def rounds_of(tree: str, rounds: int) -> list[Speculation]:
    """So many rounds after one token, each with its own draws and coins."""
    settings, shape = Settings(temperature=1.0, seed=5, tree=tree), shape_named(tree).shape
    target, drafter = (torch.tensor(np.log(laws), dtype=torch.float32) for laws in ROLLED)
    starts = range(10, 10 + rounds)
    draft = drawn(drafter[[1]].expand(rounds, -1), lambda level: drafter[level.ids], shape, settings, starts)
    assert draft.lengths is not None and draft.logits is not None
    found: list[Speculation] = []
    for size in set(draft.lengths):
        some = [i for i, length in enumerate(draft.lengths) if length == size]
        after = torch.cat([torch.ones(len(some), 1, dtype=torch.int64), draft.tokens[some, :size]], 1)
        blocks = DraftBatch.of(
            tuple(starts[i] for i in some),
            draft.tokens[some, :size],
            draft.logits[some, :size],
            target[after],
            sampled=True,
            trees=Trees.of(draft, some),
        )
        found += gather_evidence(blocks, settings, TREE_COLUMNS)
    return found


def off_law(rule: str, rounds: Sequence[Speculation]) -> bool:
    """Whether the first token of a round, or the second after a kept first one, is not by the target's law; wrongly
    with a probability of at most 4 x 1e-6."""
    counts = np.zeros((3, 4), np.int64)
    for found in rounds:
        decision = settle(found, rule_named(rule).judge(found), None)
        text = [*found.tokens[list(decision.kept)].tolist(), decision.emitted]
        counts[text[0], text[1] if len(text) > 1 else 3] += 1

    def apart(found: np.ndarray, law: np.ndarray) -> bool:
        expected = law * found.sum()
        return bool(((found - expected) ** 2 / expected).sum() > chi2.isf(FALSE_ALARM, len(law) - 1))

    laws = np.array(ROLLED[0])
    return apart(counts.sum(1), laws[1]) or any(apart(counts[x, :3], laws[x]) for x in range(3))


@pytest.mark.parametrize("tree", ["iid:paths=4,depth=2", "delayed:trunk=1,paths=3,depth=1"])
def test_lossless_rules_keep_the_target_s_law_on_drawn_paths(tree: str) -> None:
    """4,000 rounds."""
    rounds = rounds_of(tree, 4_000)
    assert LOSSLESS == [
        "greedy-multi-path", "k-seq", "recursive-rejection", "rejection-sampling", "strict", "traversal",
    ]  # fmt: skip
    assert [rule for rule in LOSSLESS if off_law(rule, rounds)] == []


def test_a_q_that_is_kept_after_merging_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(blocks: DraftBatch, ps: torch.Tensor, qs: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        laws, found = refused_in_turn(blocks, ps, qs)
        p, x = ps.clone(), blocks.tokens
        assert blocks.trees is not None and blocks.judging is not None
        for text, parents in enumerate(blocks.trees.parents):
            for node, parent in enumerate(parents):
                law, own = p[text, parent + 1], qs[text, node]
                found["p_left"][text, node], found["q_left"][text, node] = law[x[text, node]], own[x[text, node]]
                mass = (law - own).clamp(min=0)
                p[text, parent + 1] = mass / mass.sum() if mass.sum() > 1e-9 else law
        return p, found

    monkeypatch.setattr(evidence, "refused_in_turn", kept)
    assert off_law("rejection-sampling", rounds_of("iid:paths=4,depth=2", 4_000))


# ---- runs, maps, files


@pytest.mark.parametrize("rule", JUDGE)
def test_a_run_of_drawn_trees_is_read_as_it_was_written_and_judged_all_at_once(tmp_path: Path, rule: str) -> None:
    run = toy_run(rule=rule, tree=IID, temperature=0.9, model_seed=2, max_new_tokens=60)
    own = rule_named(rule)
    assert run.settings.gamma == 12 and all(len(r.speculation) <= 12 for r in run.rounds)
    read = load_run(save_run(run, tmp_path / "run"))
    assert read.settings == run.settings and read.settings.tree == IID
    for name in ("draws", "p_left", "q_left", "parents", "budgets", *TREE_COLUMNS - {OWN_Q}):
        assert name in run.trace.speculations.columns
        np.testing.assert_array_equal(
            getattr(read.trace.speculations.whole, name), getattr(run.trace.speculations.whole, name)
        )
    whole = own.judge_all(read.trace.speculations)
    dial = run.settings.dial
    settled = read.trace.judged_as(whole).settled(dial)
    for r, round_ in enumerate(run.rounds):
        decision = settle(round_.speculation, own.judge(round_.speculation), dial)
        assert decision == round_.decision
        assert (settled.rows[r], settled.emitted[r]) == (decision.row, decision.emitted)
    assert run.to_frame().shape[0]


def test_every_rule_says_what_it_makes_of_drawn_trees_or_why_not() -> None:
    run = toy_run(rule="rejection-sampling", tree=IID, temperature=0.9, model_seed=2, max_new_tokens=40)
    for name, rule in RULES.items():
        found = opinion(rule, run)
        assert ("does not judge draft trees" in found.lacks) == (name not in JUDGE), name
        assert bool(found.lacks) == (name not in JUDGE), name


@pytest.mark.parametrize("rule", LOSSLESS)
def test_the_stepper_and_the_report_tell_a_run_of_drawn_trees(rule: str) -> None:
    runs = [toy_run(rule=rule, tree=IID, temperature=0.9, model_seed=seed, max_new_tokens=40) for seed in (2, 3, 4)]
    frames = [frame for run in runs for frame in playback(run).frames]
    words = [part for frame in frames for part in frame.words if isinstance(part, str)]
    by = "; its chance here is " if RULES[rule].chances else "without its siblings before, p = "
    if rule == "strict":
        by = ", and the target's own sample is "
    assert any(by in part for part in words)
    assert IID in report_html(runs[0])


@pytest.mark.parametrize("tree", [IID, "delayed:trunk=2,paths=4,depth=3"])
def test_the_built_in_pair_draws_trees_and_strict_writes_the_target_s_own_sample(pair: Backend, tree: str) -> None:
    settings = Settings(rule="strict", temperature=1.0, max_new_tokens=48)
    alone = Recording(pair, "Once upon a time, there was", settings).finish()
    found = Recording(pair, "Once upon a time, there was", replace(settings, tree=tree)).finish()
    assert found.token_ids == alone.token_ids
    assert found.trace.speculations.whole.is_tree
    judged = Recording(pair, "Once upon a time, there was", replace(settings, tree=tree, rule="rejection-sampling"))
    assert judged.finish().tau > 1


def test_an_eagle_head_draws_trees_too_and_after_one_token_none() -> None:
    backend = load_backend(drafter="eagle3", device="cpu", dtype="float32")
    settings = Settings(rule="strict", temperature=1.0, max_new_tokens=24)
    for prompt in ("Once upon a time, there was", [7]):
        alone = Recording(backend, prompt, settings).finish()
        found = Recording(backend, prompt, replace(settings, tree=IID)).finish()
        assert found.token_ids == alone.token_ids
        assert found.trace.speculations.whole.is_tree
    judged = Recording(backend, "Once upon a time, there was", replace(settings, tree=IID, rule="traversal")).finish()
    assert judged.tau > 1


def test_near_the_end_of_the_context_fewer_or_shorter_paths_are_drawn(pair: Backend) -> None:
    prompt = [5 + i % 900 for i in range(pair.context - 12)]
    settings = Settings(rule="strict", temperature=1.0, tree="iid:paths=4,depth=8", max_new_tokens=12)
    run = Recording(pair, prompt, settings).finish()
    assert run.token_ids == Recording(pair, prompt, replace(settings, tree="chain", gamma=6)).finish().token_ids
    for round_ in run.rounds:
        room = pair.context - round_.speculation.start
        assert len(round_.speculation) <= room
    assert Shape(4, 3, trunk=2, drawn=True).separate_paths(8) == [-1, 0, 1, 2, 1, 4, 1, 6]
    assert Shape(2, 2, drawn=True).separate_paths(4) == [-1, 0, -1, 2]
    assert Shape(8, 4, drawn=True).within(12) == Shape(8, 1, drawn=True)
    assert Shape(8, 4, drawn=True).within(3) == Shape(3, 1, drawn=True)
    assert Shape(6, 3, trunk=4, drawn=True).within(8) == Shape(6, 2, trunk=4, drawn=True)
    assert Shape(6, 3, trunk=4, drawn=True).within(4) == Shape(4, 1, trunk=4, drawn=True)


# ---- names and bad input


@pytest.mark.parametrize(
    ("name", "gamma", "words"),
    [
        ("iid", 12, "3 drawn paths of 4, up to 12 nodes"),
        ("iid:paths=2,depth=5", 10, "2 drawn paths of 5, up to 10 nodes"),
        ("delayed:trunk=3,paths=2,depth=2", 7, "2 drawn paths of 2 after 3, up to 7 nodes"),
    ],
)
def test_a_drawn_tree_s_name_says_how_many_nodes_it_has_at_most(name: str, gamma: int, words: str) -> None:
    settings = Settings(tree=name, gamma=5, temperature=1.0)
    assert settings.gamma == gamma and settings.draft == draft_words(gamma, name) == words
    assert with_nodes(name, 3) == settings.tree == Settings(tree=settings.tree).tree
    assert shape_named(settings.tree).shape == shape_named(name).shape


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tree", "iid:paths=0"], "K is 0; it must be a whole number from 1 to 16."),
        (["--tree", "iid:paths=10,depth=10"], "may have 100 nodes, 10 of them in a path; draw fewer or shorter paths"),
        (["--tree", "delayed:trunk=31,depth=31,paths=1"], "may have 62 nodes, 62 of them in a path"),
        (["--tree", "iid:trunk=2"], "has no setting 'trunk'"),
        (["--tree", "iid:nodes=5"], "has no setting 'nodes'"),
        (["--tree", IID, "--temperature", "1", "--gamma", "5"], "have 12 nodes at most, not 5; leave γ out."),
        (["--tree", IID], "At temperature 0 nothing is drawn"),
        (["--tree", IID, "--temperature", "1", "--rule", "block-verification"], "does not judge draft trees"),
        (["--tree", IID, "--temperature", "1", "--drafter", "ngram"], "drafts chains"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    for command in (
        ["record", "--rule", "rejection-sampling", "--prompt", "Once"],
        ["map", "--rule", "mars-sampling", "--prompt", "Once"],
    ):
        assert main([*command, *options, "--out", str(tmp_path / "run")]) == 2
        assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_what_is_not_proven_for_drawn_trees_is_refused_before_anything_is_decoded() -> None:
    for rule in sorted(set(RULES) - set(JUDGE)):
        with pytest.raises(BadInput, match="does not judge draft trees"):
            Recording(table_backend(), "a tree", Settings(rule=rule, tree=IID, temperature=1.0))
    with pytest.raises(BadInput, match="At temperature 0 nothing is drawn"):
        Recording(table_backend(), "a tree", Settings(rule="strict", tree=IID))
    settings = Settings(rule="mars", tree=IID, temperature=1.0)
    with pytest.raises(BadInput, match="was not drawn"):
        Mapping(table_backend(), "a tree", settings, span_of(rule_named("mars"), 0.5, 1.0, (3, 12)))


def test_a_rule_for_one_path_refuses_drawn_paths_even_where_they_came_to_one() -> None:
    alone = Settings(tree="iid:paths=1,depth=4", temperature=1.0)
    own: Speculation = ToySpeculator(alone).speculate([PROMPT])[0].speculation
    assert not own.is_tree and own.is_drawn_tree and own.sampled
    assert "does not judge draft trees" in (RULES["block-verification"].lacks(own) or "")
    assert RULES["traversal"].lacks(own) is RULES["greedy-multi-path"].lacks(own) is None
    assert RULES["rejection-sampling"].lacks(own) is None
