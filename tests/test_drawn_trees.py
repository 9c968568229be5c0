"""Trees of drawn paths: drawing, merging, and exactness of every rule that judges siblings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import PROMPT, ToySpeculator, draw, processed, softmax, tables, toy_run
from rule_cases import unlike
from test_trees import TREE

from mars_viz import load_run, trees
from mars_viz.cli import main
from mars_viz.errors import BadInput
from mars_viz.recording import Recording, record
from mars_viz.records import Emission, Of, Speculation
from mars_viz.rules import RULES, OnTrees, rule_named, settle
from mars_viz.run import Settings
from mars_viz.shapes import Shape, shape_named, with_nodes
from mars_viz.speculators.backend import DraftAndScore
from mars_viz.speculators.draft import DraftBatch, Trees
from mars_viz.speculators.drafters.token_trees import TokenTree, drawn
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.tree_laws import (
    OWN_Q,
    TREE_COLUMNS,
    greedily,
    k_sequentially,
    refused_in_turn,
    traversed,
    tree_residuals,
    with_replacement,
)
from tests.tables import TableDrafter, TableTarget, table_backend

IID = "iid:paths=3,depth=4"
JUDGE = sorted(name for name, rule in RULES.items() if rule.on_trees in (OnTrees.JUDGED, OnTrees.DRAWN))
LOSSLESS = [name for name in JUDGE if RULES[name].lossless]
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
Context = tuple[int, ...]


def target_law(context: Context) -> np.ndarray:
    """Depends on all tokens before, float64 [3]."""
    return np.roll(P, sum(context))


def drafter_law(context: Context) -> np.ndarray:
    """Depends on all tokens before, float64 [3]."""
    return np.roll(Q, 2 * len(context) + sum(context))


@dataclass(frozen=True)
class Case:
    """A tree that can be drawn, with its probability and the laws along it."""

    tree: TokenTree
    chance: float

    @property
    def contexts(self) -> list[Context]:
        """Tokens before each row."""
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
    """Yield every tree of `paths` paths of `depth` tokens that share the first `trunk`."""
    for shared in itertools.product(range(3), repeat=trunk):
        begun = np.prod([drafter_law(shared[:at])[shared[at]] for at in range(trunk)])
        for drawing in itertools.product(itertools.product(range(3), repeat=depth - trunk), repeat=paths):
            after = [drafter_law((*shared, *path[:at]))[path[at]] for path in drawing for at in range(depth - trunk)]
            levels = [*([token] for token in shared), *([path[at] for path in drawing] for at in range(depth - trunk))]
            yield Case(TokenTree.of_paths(levels), float(begun * np.prod(after)))


def batch(made: Sequence[Case]) -> DraftBatch:
    """Return trees of one size in double precision."""
    tree = [case.tree for case in made]
    return DraftBatch(
        tuple(range(len(made))),
        torch.tensor([each.tokens for each in tree]),
        torch.from_numpy(np.log([case.qs for case in made])),
        torch.from_numpy(np.log([case.ps for case in made])),
        sampled=True,
        trees=Trees(
            tuple(tuple(each.parents) for each in tree),
            tuple(np.array(each.budgets, np.int32) for each in tree),
            tuple(np.array(each.draws, np.int32) for each in tree),
        ),
    )


Solver = Callable[[DraftBatch, torch.Tensor, torch.Tensor], tuple[torch.Tensor, dict[str, torch.Tensor]]]
Judged = dict[str, tuple[np.ndarray, np.ndarray]]
"""By tree: the chance of keeping each node that is tried [N], and the law of the token emitted at each row."""
Ends = Iterator[tuple[float, list[int], np.ndarray]]


def judged(solver: Solver, paths: int, depth: int = 2, trunk: int = 0) -> Judged:
    """Return what the product computes for every tree of `paths` paths."""
    found, made = {}, list(cases(paths, depth, trunk))
    for size in {len(case.tree.parents) for case in made}:
        some = [case for case in made if len(case.tree.parents) == size]
        ps, qs = (torch.from_numpy(np.stack([getattr(case, name) for case in some])) for name in ("ps", "qs"))
        laws, columns = solver(batch(some), ps, qs)
        (chances,) = [columns["p_left"] / columns["q_left"]] if "p_left" in columns else columns.values()
        found |= {str(case.tree): (np.minimum(1, chances[i].numpy()), laws[i].numpy()) for i, case in enumerate(some)}
    return found


def top_down(case: Case, judged: Judged) -> Ends:
    """Yield how a walk that tries siblings in turn can end: chance, kept nodes, law of the next token."""
    chances, emits = judged[str(case.tree)]
    waiting: list[tuple[float, list[int]]] = [(1.0, [])]
    while waiting:
        mass, kept = waiting.pop()
        row = kept[-1] + 1 if kept else 0
        for node in np.flatnonzero(np.array(case.tree.parents) == row - 1).tolist():
            waiting.append((mass * chances[node], [*kept, node]))
            mass *= 1 - chances[node]
        yield mass, kept, emits[row]


def first_of(case: Case, judged: Judged) -> Ends:
    """Yield how a walk that takes the first passing node, children before parents, can end."""
    (chances, emits), parents, left = judged[str(case.tree)], case.tree.parents, 1.0
    last = [max(n for n in range(len(parents)) if node in trees.path_to(parents, n)) for node in range(len(parents))]
    for node in sorted(range(len(parents)), key=lambda node: (last[node], -node)):
        yield left * chances[node], trees.path_to(parents, node), emits[node + 1]
        left *= 1 - chances[node]
    yield left, [], emits[0]


def exactly(paths: int, depth: int, endings: Callable[[Case], Ends], trunk: int = 0) -> tuple[float, float]:
    """Return the largest deviation of the law of the next `depth` tokens from the target's, and the mean number of kept
    tokens, by enumeration. Tokens after the emitted one follow the target's law."""
    found, kept_tokens, expected = np.zeros((3,) * depth), 0.0, np.ones((3,) * depth)
    for case in cases(paths, depth, trunk):
        for mass, kept, law in endings(case):
            text = tuple(case.tree.tokens[node] for node in kept)
            kept_tokens += case.chance * mass * len(kept)
            for rest in itertools.product(range(3), repeat=depth - len(text)):
                share = law[rest[0]] if rest else 1.0
                for at in range(1, len(rest)):
                    share *= target_law((*text, *rest[:at]))[rest[at]]
                found[(*text, *rest)] += case.chance * mass * share
    for text in itertools.product(range(3), repeat=depth):
        expected[text] = np.prod([target_law(text[:at])[text[at]] for at in range(depth)])
    return float(np.abs(found - expected).max()), kept_tokens


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws by which a rule that forgets to change q after a rejection is not exact."""
    monkeypatch.setitem(globals(), "P", np.array([0.45, 0.1, 0.45]))
    monkeypatch.setitem(globals(), "Q", np.array([0.3, 0.6, 0.1]))


WHOLE = [
    (refused_in_turn, top_down, None),
    (traversed, first_of, (1.3, 1.4158, 1.5101)),
    (greedily, first_of, (1.3, 1.6423, 1.7295)),
]
"""With the mean number of kept tokens on one to three paths, computed independently."""


@pytest.mark.parametrize(("solver", "walk", "means"), WHOLE)
@pytest.mark.parametrize("paths", [1, 2, 3])
def test_rules_of_distinct_tokens_and_of_whole_paths_are_exact(
    solver: Solver, walk: Callable[[Case, Judged], Ends], means: tuple[float, ...] | None, paths: int
) -> None:
    chances = judged(solver, paths)
    off, mean = exactly(paths, 2, lambda case: walk(case, chances))
    assert off < 1e-12
    assert means is None or mean == pytest.approx(means[paths - 1], abs=1e-4)


@pytest.mark.parametrize(
    ("solver", "walk"), [*(row[:2] for row in WHOLE), (with_replacement, top_down), (k_sequentially, top_down)]
)
@pytest.mark.parametrize(("paths", "trunk"), [(2, 0), (3, 1)])
def test_all_rules_are_exact_for_laws_apart(
    apart: None, solver: Solver, walk: Callable[[Case, Judged], Ends], paths: int, trunk: int
) -> None:
    chances = judged(solver, paths, trunk=trunk)
    assert exactly(paths, 2, lambda case: walk(case, chances), trunk)[0] < 1e-12


OF_DRAWS = {"recursive-rejection": with_replacement, "k-seq": k_sequentially}
"""Rules for which a token counts as often as it was drawn."""


def known_chance(rule: str, p: np.ndarray, q: np.ndarray, k: int) -> float:
    """The chance that one of k i.i.d. children is kept (SpecInfer, 2305.09781; SpecTr, 2310.15141, algorithm 2)."""
    if rule == "recursive-rejection":
        refused, c = 1.0, 0.0
        for _ in range(k):
            c += refused
            refused = float(np.maximum(p - c * q, 0).sum())
        return 1 - refused
    low, high = 1.0, float(k)
    for _ in range(60):
        middle = (low + high) / 2
        kept = float(np.minimum(p / middle, q).sum())
        low, high = (low, middle) if 1 - (1 - kept) ** k <= middle * kept else (middle, high)
    return 1 - (1 - float(np.minimum(p / high, q).sum())) ** k


@pytest.mark.parametrize("children", [1, 2, 3])
@pytest.mark.parametrize("rule", OF_DRAWS)
def test_one_of_k_children_is_kept_with_the_known_probability(
    rule: str, children: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(children)
    for p, q in [(P, Q), *rng.dirichlet(np.ones(3), (20, 2))]:
        monkeypatch.setitem(globals(), "P", p)
        monkeypatch.setitem(globals(), "Q", q)
        chances = judged(OF_DRAWS[rule], children, 1)
        off, kept = exactly(children, 1, lambda case: top_down(case, chances))  # noqa: B023
        assert off < 1e-12
        assert kept == pytest.approx(known_chance(rule, p, q, children), abs=1e-11)


def test_paths_that_begin_alike_are_one_tree_in_preorder() -> None:
    tree = TokenTree.of_paths([[4, 7, 4, 7], [1, 1, 2, 1], [9, 9, 9, 8]])
    assert tree.parents == [-1, 0, 1, 0, 3, -1, 5, 6, 6]
    assert tree.tokens == [4, 1, 9, 2, 9, 7, 1, 9, 8]
    assert tree.draws == [0b0101, 0b0001, 0b0001, 0b0100, 0b0100, 0b1010, 0b1010, 0b0010, 0b1000]
    assert tree.budgets == [1, 2, 3, 7, 8, 4, 5, 6, 9]
    trunk = TokenTree.of_paths([[5], [6], [1, 1, 2]])
    assert (trunk.parents, trunk.tokens) == ([-1, 0, 1, 1], [5, 6, 1, 2])
    assert trunk.draws == [0b001, 0b001, 0b011, 0b100]


ROLLED = [[np.roll(law, token) for token in range(3)] for law in ((0.45, 0.1, 0.45), (0.3, 0.6, 0.1))]


def rounds_of(tree: str, rounds: int) -> list[Speculation]:
    """Return the evidence of rounds after one token, each with its own draws and coins."""
    settings, shape = Settings(temperature=1.0, seed=5, tree=tree), shape_named(tree).shape
    target, drafter = (torch.tensor(np.log(laws), dtype=torch.float32) for laws in ROLLED)
    starts, found = range(10, 10 + rounds), []
    draft = drawn(drafter[[1]].expand(rounds, -1), lambda level: drafter[level.ids], shape, settings, starts)
    for size in set(draft.lengths or ()):
        some = [i for i, length in enumerate(draft.lengths) if length == size]
        tokens, logits = draft.tokens[some, :size], draft.logits[some, :size]
        after = target[torch.cat([torch.ones(len(some), 1, dtype=torch.int64), tokens], 1)]
        places = tuple(starts[i] for i in some)
        blocks = DraftBatch(places, tokens, logits, after, sampled=True, trees=draft.trees.some(some))
        found += gather_evidence(blocks, settings, TREE_COLUMNS)
    return found


def test_lossless_rules_keep_the_targets_law() -> None:
    """3,000 rounds; false-alarm probability at most 4e-6 per rule."""
    rounds, laws = rounds_of("iid:paths=4,depth=2", 3_000), np.array(ROLLED[0])
    assert len(LOSSLESS) == 6
    for rule in LOSSLESS:
        counts = np.zeros((3, 4), np.int64)
        for found in rounds:
            decision = settle(found, rule_named(rule).judge(found), None)
            text = [*found.tokens[list(decision.kept)].tolist(), decision.emitted]
            counts[text[0], text[1] if len(text) > 1 else 3] += 1
        assert not unlike(counts.sum(1), laws[1]), rule
        assert not any(unlike(counts[x, :3], laws[x]) for x in range(3)), rule


@pytest.mark.parametrize("rule", ["strict", "mars", "rejection-sampling", "recursive-rejection", "k-seq"])
def test_one_drawn_path_is_a_chain(rule: str) -> None:
    settings = {"rule": rule, "temperature": 1.0, "max_new_tokens": 60}
    one, chain = toy_run(tree="iid:paths=1,depth=5", **settings), toy_run(gamma=5, **settings)
    assert [(r.token_ids, r.kept) for r in one.rounds] == [(r.token_ids, r.kept) for r in chain.rounds]
    if rule in ("recursive-rejection", "k-seq"):
        assert chain.token_ids == toy_run(gamma=5, **settings | {"rule": "rejection-sampling"}).token_ids


def test_an_eagle_head_draws_trees_too_also_after_a_single_token() -> None:
    backend = load_backend(drafter="eagle3", device="cpu", dtype="float32")
    settings = Settings(rule="strict", temperature=1.0, max_new_tokens=12)
    alone = Recording(backend, [7], settings).finish()
    found = Recording(backend, [7], replace(settings, tree=IID)).finish()
    assert found.token_ids == alone.token_ids and found.trace.speculations.whole.is_tree


def test_shapes_are_cut_to_the_room() -> None:
    assert Shape(4, 3, trunk=2, drawn=True).separate_paths(8) == [-1, 0, 1, 2, 1, 4, 1, 6]
    assert Shape(2, 2, drawn=True).separate_paths(4) == [-1, 0, -1, 2]
    for shape, room, expected in [
        (Shape(8, 4, drawn=True), 12, Shape(8, 1, drawn=True)),
        (Shape(8, 4, drawn=True), 3, Shape(3, 1, drawn=True)),
        (Shape(6, 3, trunk=4, drawn=True), 8, Shape(6, 2, trunk=4, drawn=True)),
        (Shape(6, 3, trunk=4, drawn=True), 4, Shape(4, 1, trunk=4, drawn=True)),
    ]:
        assert shape.within(room) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree": "iid:paths=0"}, "K is 0"),
        ({"tree": "iid:paths=10,depth=10"}, "100 nodes, 10 of"),
        ({"tree": "iid:trunk=2"}, "'trunk'"),
        ({"temperature": 0.0}, "temperature 0"),
        ({"drafter": "ngram"}, "drafts chains"),
        *(({"rule": rule}, "does not judge draft trees") for rule in sorted(set(RULES) - set(JUDGE))),
    ],
)
def test_a_recording_of_what_cannot_be_drawn_is_refused(options: dict[str, object], message: str) -> None:
    how = {"rule": "rejection-sampling", "tree": IID, "temperature": 1.0} | options
    with pytest.raises(BadInput, match=message):
        record("Once", **how if "drafter" in options else how | {"backend": table_backend()})  # type: ignore[arg-type]


def test_a_rule_for_one_path_refuses_drawn_paths_that_coincide() -> None:
    alone = Settings(tree="iid:paths=1,depth=4", temperature=1.0)
    own = ToySpeculator(alone).speculate([PROMPT])[0].speculation
    assert not own.is_tree and own.is_drawn_tree and own.sampled
    assert "does not judge draft trees" in (RULES["block-verification"].lacks(own) or "")
    assert {RULES[name].lacks(own) for name in ("traversal", "greedy-multi-path", "rejection-sampling")} == {None}


def released(own: Speculation, speculator: ToySpeculator, last: int, theta: float) -> tuple[list[int], int]:
    """Return the path and the next token of `evaluate_posterior` (5SSjw/MARS, mars/model/utils.py) with our coins."""
    s, before = speculator.settings, [last, *own.tokens.tolist()]
    trees_of = Trees((tuple(own.parents.tolist()),), (own.budgets,), None)
    blocks = DraftBatch(
        (own.start,), torch.from_numpy(own.tokens)[None], None, torch.zeros(1, 1, 1), sampled=False, trees=trees_of
    )
    uniforms = tree_residuals(blocks, s)[0]
    row, path = 0, []
    while True:
        z = speculator.target[before[row]].astype(np.float64) / s.temperature
        gtp, adjusted, kept = processed(speculator.target[before[row]], s.temperature), False, None
        order = np.argsort(-z, kind="stable")
        relaxes = z[order[1]] / (z[order[0]] + 1e-10) > theta
        for child in np.flatnonzero(own.parents == row - 1).tolist():
            x = int(own.tokens[child])
            if relaxes:
                if x in order[:2]:
                    kept = child
                    break
                continue
            law = speculator.drafter[before[row]]
            q = processed(law, s.temperature)[x] if own.is_drawn_tree else softmax(law.astype(np.float64))[x]
            if own.coins[child] <= min(1.0, gtp[x] / max(q, 1e-10)):
                kept = child
                break
            gtp[x] = max(0.0, gtp[x] - q)
            gtp, adjusted = gtp / gtp.sum(), True
        if kept is None:
            return path, draw(gtp, uniforms[row]) if adjusted else int(own.emissions[row, Emission.SAMPLE])
        path.append(kept)
        row = kept + 1


@pytest.mark.parametrize("tree", [TREE, IID, "delayed:trunk=1,paths=3,depth=3"])
def test_mars_as_released_follows_its_code(tree: str) -> None:
    rule, relaxed, refused, second = RULES["mars-code"], 0, 0, 0
    for seed in range(40):
        settings = Settings(rule="mars-code", temperature=0.8, tree=tree, seed=seed)
        speculator = ToySpeculator(settings, model_seed=seed)
        own, last = speculator.speculate([PROMPT])[0].speculation, PROMPT[-1]
        verdicts = rule.judge(own)
        flips = np.concatenate([verdicts.breakpoints, verdicts.row_breakpoints])
        flips = np.unique(flips[(flips > 0) & (flips < 1)])
        for theta in {0.0, 0.5, 0.9, 1.0, *(flips - 1e-6), *(flips + 1e-6)}:
            decision = settle(own, verdicts, theta)
            assert (list(decision.kept), decision.emitted) == released(own, speculator, last, theta)
            relaxed += any(not verdicts.keep_strict[node] for node in decision.kept)
            refused += decision.row in own.judging_rows
            second += any(own.siblings[node] for node in decision.kept)
    assert min(relaxed, refused, second) > 20


def test_trees_of_the_likeliest_tokens_record_the_drafters_probability() -> None:
    own = ToySpeculator(Settings(temperature=0.8, tree=TREE)).speculate([PROMPT])[0].speculation
    drafter = ToySpeculator(Settings()).drafter
    before = np.array([PROMPT[-1], *own.tokens.tolist()])[own.judging_rows]
    expected = softmax(drafter[before].astype(np.float64))[np.arange(len(own)), own.tokens]
    np.testing.assert_allclose(own.own_q, expected, rtol=1e-5)
    assert (own.q == 1).all() and own.kind is Of.LIKELIEST
    without = replace(own, columns={name: column for name, column in own.columns.items() if name != OWN_Q})
    assert "own q" in (RULES["mars-code"].lacks(without) or "")
    assert RULES["mars-code"].lacks(replace(without, temperature=0.0)) is None


def test_names_imply_the_number_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, gamma in (("iid", 12), ("delayed:trunk=3,paths=1,depth=1", 4)):
        settings = Settings(tree=name, gamma=5, temperature=1.0)
        assert settings.gamma == gamma and f"up to {gamma} nodes" in settings.draft
        assert with_nodes(name, 3) == settings.tree == Settings(tree=settings.tree).tree
        assert shape_named(settings.tree).shape == shape_named(name).shape
    asked = ["record", "--prompt", "Once", "--rule", "strict", "--tree", IID, "--temperature", "1", "--gamma", "5"]
    assert main([*asked, "--out", str(tmp_path / "run")]) == 2
    assert "12 nodes at most, not 5" in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["strict", "mars-code", *OF_DRAWS, "traversal", "greedy-multi-path"])
def test_only_the_columns_that_a_rule_needs_are_computed(name: str) -> None:
    def asked(needs: Sequence[str] | None, tree: str = IID) -> Speculation:
        target, drafter = tables()
        settings = Settings(temperature=0.9, tree=tree)
        parts = TableTarget(target), TableDrafter(drafter, settings)
        return DraftAndScore(*parts, (32, 1 << 20), settings, needs).speculate([PROMPT])[0].speculation

    found, whole = asked(RULES[name].needs), asked(None)
    assert TREE_COLUMNS & found.columns.keys() == TREE_COLUMNS & set(RULES[name].needs) - {OWN_Q}
    assert "block_mass" not in found.columns
    for column in found.columns:
        np.testing.assert_array_equal(found.columns[column], whole.columns[column], err_msg=column)
    for other in (*OF_DRAWS, "traversal", "greedy-multi-path"):
        assert (other == name) != ("needs evidence not computed here" in (RULES[other].lacks(found) or ""))
    assert (OWN_Q in asked(RULES[name].needs, TREE).columns) == (name == "mars-code")


@pytest.mark.parametrize("tree", [IID, TREE])
def test_a_finished_run_has_the_columns_of_all_rules_also_in_its_file(tmp_path: Path, tree: str) -> None:
    backend, settings = table_backend(), Settings(temperature=0.9, tree=tree, max_new_tokens=24)
    for rule in ("strict", "mars-code"):
        run = Recording(backend, "a tree", replace(settings, rule=rule)).finish()
        first = backend.speculator(settings).speculate([run.prompt_ids])[0].speculation
        read = load_run(run.save(tmp_path / rule))
        columns, again = run.trace.speculations.columns, read.trace.speculations.columns
        assert TREE_COLUMNS & columns.keys() == ({OWN_Q} if tree == TREE else TREE_COLUMNS - {OWN_Q})
        for name, column in columns.items():
            np.testing.assert_array_equal(again[name], column, err_msg=name)
            np.testing.assert_array_equal(run.rounds[0].speculation.columns[name], first.columns[name], err_msg=name)
        able = [rule for rule in RULES.values() if not rule.refuses_trees(0.9, drawn=tree == IID)]
        assert not any(rule.lacks_for(read.trace.speculations) for rule in able)
        assert (tree == IID) == (RULES["k-seq"] in able)
