"""Rules that verify siblings, against the same rules written a second way, on every tree and by draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import PROMPT, ToySpeculator, draw, processed, softmax, tables, toy_run
from test_drawn_trees import (
    IID,
    Case,
    Ends,
    Judged,
    Solver,
    by_size,
    cases,
    drafter_law,
    exactly,
    target_law,
    top_down,
)
from test_trees import TREE

from mars_viz import load_run, trees
from mars_viz.analysis.branching import SOLVERS
from mars_viz.components.stepper.narration import judge
from mars_viz.evidence import Of
from mars_viz.recording import Recording
from mars_viz.records import Emission, Speculation
from mars_viz.rules import RULES, settle
from mars_viz.run import Settings
from mars_viz.speculators.draft_batch import DraftBatch, Trees
from mars_viz.speculators.speculator import DraftAndScore, Limits
from mars_viz.speculators.tree_laws import OWN_Q, TREE_COLUMNS, k_sequentially, tree_residuals, with_replacement
from mars_viz.words import number
from tests.tables import TableDrafter, TableTarget, table_backend

OF_DRAWS: dict[str, tuple[Solver, str]] = {
    "recursive-rejection": (with_replacement, "recursive_keep"),
    "k-seq": (k_sequentially, "k_seq_keep"),
}
"""Rules for which a token counts as often as it was drawn: their solver and their column of chances."""


def judged(rule: str, paths: int, depth: int, trunk: int = 0) -> Callable[[Case], Judged]:
    """Return the product's columns for every tree of `paths` paths."""
    (solver, column), found = OF_DRAWS[rule], {}
    for some, blocks in by_size(list(cases(paths, depth, trunk))):
        ps, qs = (torch.from_numpy(np.stack([getattr(case, name) for case in some])) for name in ("ps", "qs"))
        laws, columns = solver(blocks, ps, qs)
        for i, case in enumerate(some):
            found[_key(case)] = Judged(columns[column][i].numpy(), laws[i].numpy())
    return lambda case: found[_key(case)]


def _key(case: Case) -> tuple[tuple[int, ...], ...]:
    return tuple(case.tree.parents), tuple(case.tree.tokens), tuple(case.tree.draws)


def draws_after(case: Case, node: int) -> list[int]:
    """Return a node's children path by path, each as often as it was drawn."""
    below = [child for child, parent in enumerate(case.tree.parents) if parent == node]
    drawn = [(path, child) for child in below for path in range(8) if case.tree.draws[child] >> path & 1]
    return [child for _, child in sorted(drawn)]


def draw_by_draw(rule: str) -> Callable[[Case], Ends]:
    """Return how a walk can end if every draw has a coin of its own, as the papers write the rules."""

    def endings(case: Case, node: int = -1, mass: float = 1.0) -> Ends:
        law, q = case.ps[node + 1], drafter_law(case.contexts[node + 1])
        tried = draws_after(case, node)
        k, left, p = len(tried), mass, law
        low, high = 1.0, float(max(k, 1))
        for _ in range(60):
            middle = (low + high) / 2
            beta = np.minimum(p / middle, q).sum()
            low, high = (low, middle) if 1 - (1 - beta) ** k <= middle * beta else (middle, high)
        beta = np.minimum(p / high, q).sum()
        for child in tried:
            x = case.tree.tokens[child]
            accepts = min(1.0, p[x] / q[x]) if rule == "recursive-rejection" else min(1.0, law[x] / (high * q[x]))
            yield from endings(case, child, left * accepts)
            left *= 1 - accepts
            if rule == "recursive-rejection":
                rest = np.maximum(p - q, 0)
                p = rest / rest.sum() if rest.sum() > 1e-12 else p
        if rule == "k-seq" and k:
            rest = np.maximum(law - np.minimum(law / high, q) * (1 - (1 - beta) ** k) / beta, 0)
            p = rest / rest.sum() if rest.sum() > 1e-12 else law
        yield left, trees.path_to(case.tree.parents, node), p

    return endings


ORACLES = {"recursive-rejection": (0.7, 0.76, 0.808), "k-seq": (0.7, 0.791355287, 0.858518606)}
FORMS = {"recursive-rejection": "recursive, i.i.d.", "k-seq": "k-SEQ, i.i.d."}


@pytest.mark.parametrize("children", [1, 2, 3])
@pytest.mark.parametrize("rule", OF_DRAWS)
def test_one_of_k_children_is_kept_with_the_known_probability(rule: str, children: int) -> None:
    known = judged(rule, children, 1)
    off, kept = exactly(children, 1, lambda case: top_down(case, known(case)))
    assert off < 1e-12 and kept == pytest.approx(ORACLES[rule][children - 1], abs=1e-9)
    p, q = target_law(()), drafter_law(())
    assert kept == pytest.approx(float(SOLVERS[FORMS[rule]](p, q, children)), abs=1e-12)
    rng = np.random.default_rng(children)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("test_drawn_trees.P", p)
            patched.setattr("test_drawn_trees.Q", q)
            known = judged(rule, children, 1)
            off, kept = exactly(children, 1, lambda case: top_down(case, known(case)))  # noqa: B023
        assert off < 1e-12
        assert kept == pytest.approx(float(SOLVERS[FORMS[rule]](p, q, children)), abs=1e-11)


@pytest.mark.parametrize(("paths", "trunk"), [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("rule", OF_DRAWS)
def test_every_tree_is_judged_exactly_and_as_draw_by_draw(
    rule: str, paths: int, trunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_drawn_trees.P", np.array([0.45, 0.1, 0.45]))
    monkeypatch.setattr("test_drawn_trees.Q", np.array([0.3, 0.6, 0.1]))
    known = judged(rule, paths, 2, trunk)
    off, kept = exactly(paths, 2, lambda case: top_down(case, known(case)), trunk)
    assert off < 1e-12
    off, again = exactly(paths, 2, draw_by_draw(rule), trunk)
    assert off < 1e-12 and kept == pytest.approx(again, abs=1e-12)
    for case in cases(paths, 2, trunk):
        ends = dict.fromkeys([(), *(tuple(trees.path_to(case.tree.parents, n)) for n in range(len(case.tree.parents)))])
        totals = [{**dict.fromkeys(ends, 0.0)} for _ in range(2)]
        for total, found in zip(totals, (top_down(case, known(case)), draw_by_draw(rule)(case)), strict=True):
            for mass, path, _ in found:
                total[tuple(path)] += mass
        assert totals[0] == pytest.approx(totals[1], abs=1e-12)


def released(own: Speculation, speculator: ToySpeculator, last: int, theta: float) -> tuple[list[int], int]:
    """Return the path and the next token of `evaluate_posterior` (5SSjw/MARS, mars/model/utils.py) with our coins."""
    s, before = speculator.settings, [last, *own.tokens.tolist()]
    trees_of = Trees((tuple(own.parents.tolist()),), (own.budgets,), None)
    blocks = DraftBatch(
        (own.start,), torch.from_numpy(own.tokens)[None], torch.zeros(1, 1, 1), sampled=False, trees=trees_of
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


def asked(needs: Sequence[str] | None, tree: str = IID) -> Speculation:
    """Return one toy speculation with the needed columns only."""
    target, drafter = tables()
    settings = Settings(temperature=0.9, tree=tree)
    parts = TableTarget(target), TableDrafter(drafter, settings)
    return DraftAndScore(*parts, Limits(32, 1 << 20), settings, needs).speculate([PROMPT])[0].speculation


def test_only_the_columns_that_a_rule_needs_are_computed() -> None:
    whole = asked(None)
    assert whole.columns.keys() >= TREE_COLUMNS - {OWN_Q}
    for name in ("strict", "rejection-sampling", "mars-code", "sglang-acc"):
        assert TREE_COLUMNS.isdisjoint(asked(RULES[name].needs).columns), name
    for name in (*OF_DRAWS, "traversal", "greedy-multi-path"):
        found = asked(RULES[name].needs)
        assert TREE_COLUMNS & found.columns.keys() == TREE_COLUMNS & set(RULES[name].needs), name
        assert "z" not in found.columns and "block_mass" not in found.columns
        for column in found.columns:
            np.testing.assert_array_equal(found.columns[column], whole.columns[column], err_msg=column)
        others = [other for other in (*OF_DRAWS, "traversal", "greedy-multi-path") if other != name]
        for other in others:
            assert "needs what was not computed here" in (RULES[other].lacks(found) or "")
    assert OWN_Q in asked(RULES["mars-code"].needs, TREE).columns
    assert OWN_Q not in asked(RULES["strict"].needs, TREE).columns


@pytest.mark.parametrize("tree", [IID, TREE])
def test_a_finished_run_has_the_columns_of_all_rules(tmp_path: Path, tree: str) -> None:
    backend, settings = table_backend(), Settings(temperature=0.9, tree=tree, max_new_tokens=24)
    first = backend.speculator(settings).speculate([Recording(backend, "a tree", settings).finish().prompt_ids])[0]
    for rule in ("strict", "mars-code"):
        run = Recording(backend, "a tree", replace(settings, rule=rule)).finish()
        wanted = {OWN_Q} if tree == TREE else TREE_COLUMNS - {OWN_Q}
        assert TREE_COLUMNS & run.trace.speculations.columns.keys() == wanted
        for name, column in first.speculation.columns.items():
            np.testing.assert_array_equal(run.rounds[0].speculation.columns[name], column, err_msg=name)
        read = load_run(run.save(tmp_path / rule))
        assert read.token_ids == run.token_ids and len(read.to_frame()) == len(run.to_frame())
        able = [rule for rule in RULES.values() if not rule.refuses_trees(0.9, drawn=tree == IID)]
        assert not any(rule.lacks_for(read.trace.speculations) for rule in able)
        assert (tree == IID) == (RULES["k-seq"] in able)


def test_the_stepper_shows_what_the_released_code_left_of_p() -> None:
    run, shown = toy_run(rule="mars-code", tree=IID, temperature=0.9, max_new_tokens=20), 0
    for round_ in run.rounds:
        own = round_.speculation
        for node in np.flatnonzero(own.siblings).tolist():
            before = (own.parents == own.parents[node]) & (own.siblings < own.siblings[node])
            left = float(own.p[node]) / (1 - own.p[before].astype(np.float64).sum())
            words = judge(run, RULES["mars-code"], round_, node, False, None)
            numbers = f"p = {number(left)} and q = {number(float(own.q[node]))}"
            assert any(numbers in part for part in words if isinstance(part, str))
            shown += 1
    assert shown > 5
