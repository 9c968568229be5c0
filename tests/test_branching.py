"""Acceptance of several children: closed forms against enumeration and known numbers, and laws from recordings."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from mars_viz import figures
from mars_viz.analysis import branching as branches
from mars_viz.analysis.branching import SOLVERS, branching, node_laws, why_not
from mars_viz.errors import EvidenceError
from mars_viz.figures.rules import branch_acceptance
from mars_viz.run import Run
from tests.factories import tables, toy_run
from tests.test_rule_figures import valid

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
KNOWN = {
    "naive, i.i.d.": (0.29, 0.483, 0.6161),
    "recursive, i.i.d.": (0.7, 0.76, 0.808),
    "recursive, distinct": (0.7, 0.82, 1.0),
    "k-SEQ, i.i.d.": (0.7, 0.791355287, 0.858518606),
    "best possible, i.i.d.": (0.7, 0.86, 0.988),
}
"""At P and Q for one, two and three children, by full enumeration elsewhere."""


def some_laws(count: int, tokens: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return list(zip(*rng.dirichlet(np.full(tokens, 0.7), (2, count)), strict=True))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_distinct_children_equal_enumeration(k: int) -> None:
    """The other rules' closed forms are held against every tree of drawn paths."""
    for p, q in some_laws(6, 4, 1):
        refused = 0.0
        for children in permutations(range(4), k):
            chance, ours, theirs = 1.0, p, q
            for x in children:
                chance *= theirs[x] * max(0.0, 1 - ours[x] / theirs[x]) if chance else 0.0
                if not chance:
                    break
                rest, left = np.maximum(ours - theirs, 0), np.where(np.arange(4) == x, 0, theirs)
                ours, theirs = rest / rest.sum(), left / left.sum() if left.sum() else left
            refused += chance
        assert float(branches.without_replacement(p, q, k)) == pytest.approx(1 - refused, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_best_possible_is_the_least_of_all_subsets(k: int) -> None:
    for p, q in some_laws(30, 5, 2):
        subsets = [np.array(each, bool) for each in product([0, 1], repeat=5)]
        least = min(p[each].sum() + 1 - q[each].sum() ** k for each in subsets)
        assert float(branches.best_possible(p, q, k)) == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_known_numbers_equal_laws_and_laws_apart(name: str) -> None:
    assert [float(SOLVERS[name](P, Q, k)) for k in (1, 2, 3)] == pytest.approx(KNOWN[name], abs=1e-9)
    p = np.array([0.6, 0.4, 0.0, 0.0])
    apart = np.array([0.0, 0.0, 0.7, 0.3])
    assert float(SOLVERS[name](p, apart, 2)) == pytest.approx(0, abs=1e-12)
    if not name.startswith("naive"):
        assert float(SOLVERS[name](p, p, 2)) == pytest.approx(1, abs=1e-12)
    one_hot = np.array([1.0, 0.0, 0.0, 0.0])  # of which no second child can be drawn
    assert float(SOLVERS[name](p, one_hot, 3)) == pytest.approx(0.6, abs=1e-9)


def laws_of(run: Run, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Return both laws at each drafted position of a toy run."""
    (target, drafter), last, before = tables(vocabulary), [], run.prompt_ids[-1]
    for round_ in run.rounds:
        last += [before, *round_.speculation.tokens.tolist()[:-1]][: len(round_.speculation)]
        before = round_.token_ids[-1]

    def law(logits: np.ndarray) -> np.ndarray:
        scaled = logits[last].astype(np.float64) / run.settings.temperature
        mass = np.exp(scaled - scaled.max(-1, keepdims=True))
        if run.settings.top_k:
            mass[mass < np.sort(mass, -1)[:, -run.settings.top_k, None]] = 0
        return mass / mass.sum(-1, keepdims=True)

    return law(target), law(drafter)


@pytest.mark.parametrize(("vocabulary", "top_k"), [(16, 0), (40, 8), (64, 0)])
def test_laws_within_the_lists_are_exact_and_beyond_them_close(vocabulary: int, top_k: int) -> None:
    run = toy_run(temperature=0.8, top_k=top_k, vocabulary=vocabulary, seed=3)
    (p, q), found = laws_of(run, vocabulary), node_laws(run)
    assert len(found.p) == len(p) <= branches.MOST_NODES * run.settings.gamma
    for name, solver in SOLVERS.items():
        off = solver(found.p, found.q, 2) - solver(p, q, 2)
        if vocabulary == 64:
            assert abs(off.mean()) < 0.03, name
        elif not top_k or name not in ("naive, i.i.d.", "recursive, distinct"):
            assert np.abs(off).max() < 2e-5, name
    assert np.abs(branches.with_replacement(found.p, found.q, 1) - np.minimum(p, q).sum(-1)).max() < 2e-5
    beyond = max(found.left_p, found.left_q)
    assert top_k or (0.01 < beyond < 0.3 if vocabulary == 64 else beyond < 1e-5)


def test_means_are_weighted_by_the_chance_to_reach_the_depth() -> None:
    run = toy_run(temperature=1.0, gamma=3, vocabulary=16)
    found, laws = branching(run, 2), node_laws(run)
    assert found.depths.tolist() == [1, 2, 3] and found.nodes == len(laws.p)
    accepted, arrived = np.zeros(3), np.zeros(3)
    place = 0
    for round_ in run.rounds:
        chance, speculation = 1.0, round_.speculation
        for depth in range(len(speculation)):
            arrived[depth] += chance
            accepted[depth] += chance * (1 - speculation.total_variation[depth])
            assert laws.reached[place] == pytest.approx(chance, rel=1e-5)
            chance *= min(1.0, float(speculation.p[depth]) / float(speculation.q[depth]))
            place += 1
    counts = [sum(len(round_.speculation) > depth for round_ in run.rounds) for depth in range(3)]
    assert found.reached == pytest.approx(arrived / counts, rel=1e-5)
    assert found.alone == pytest.approx(accepted / arrived, rel=1e-4)
    assert found.gains("recursive, distinct") == pytest.approx(
        found.reached * (found.acceptance["recursive, distinct"] - found.alone)
    )


def test_long_runs_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    run = toy_run(temperature=1.0, gamma=2)
    whole = node_laws(run)
    monkeypatch.setattr(branches, "MOST_NODES", 5)
    few = node_laws(run)
    assert np.bincount(few.depths).tolist() == [0, 5, 5] and len(whole.p) > 10
    assert few.p[0] == pytest.approx(whole.p[0])


def test_unsuitable_runs_are_refused() -> None:
    assert why_not(toy_run(temperature=1.0)) == ""
    assert "temperature above 0" in why_not(toy_run())
    sampled = toy_run(temperature=1.0, gamma=2)
    parts = [(r, {n: c for n, c in r.speculation.columns.items() if n != "q_max"}) for r in sampled.rounds]
    rounds = [r.with_speculation(replace(r.speculation, columns=columns)) for r, columns in parts]
    assert "drafting model" in why_not(replace(sampled, rounds=rounds))
    with pytest.raises(EvidenceError, match="greedy"):
        node_laws(toy_run())


def test_the_figure_draws_the_acceptance_by_depth() -> None:
    found = branching(toy_run(temperature=1.0, vocabulary=16), 3)
    figure = valid(branch_acceptance(found, figures.DARK))
    drawn = {trace.name: trace.y for trace in figure.data}
    assert set(drawn) == {"one child", *SOLVERS} and drawn["one child"] == pytest.approx(found.alone)
    for name, values in found.acceptance.items():
        assert drawn[name] == pytest.approx(values)
    most = int(found.gains("recursive, distinct").argmax())
    assert f"at depth {found.depths[most]}" in figures.spoken_title(figure)
