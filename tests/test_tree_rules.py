"""Rules that verify siblings: what they keep and emit against the same written a second way, on every tree there is and
by draws; their strict ends; and that their columns are made where one of them asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import PROMPT, ToySpeculator, draw, processed, softmax, tables, toy_run
from scipy.stats import chi2
from test_drawn_trees import (
    IID,
    Case,
    Judged,
    Solver,
    apart,
    by_size,
    cases,
    drafter_law,
    exactly,
    target_law,
    top_down,
)
from test_trees import JUDGE, TREE, first_tokens

from mars_viz import load_run, trees
from mars_viz.analysis.branching import SOLVERS
from mars_viz.components.stepper.narration import judge
from mars_viz.evidence import Of
from mars_viz.multi_rule_walk import Stand
from mars_viz.recording import Recording, Walking
from mars_viz.records import Emission, Policy, Speculation
from mars_viz.report.page import report_html
from mars_viz.rules import RULES, OnTrees, rule_named, settle
from mars_viz.run import Run, Settings
from mars_viz.speculators.draft_batch import DraftBatch, Trees
from mars_viz.speculators.speculator import DraftAndScore, Limits
from mars_viz.speculators.tree_laws import OWN_Q, TREE_COLUMNS, k_sequentially, tree_residuals, with_replacement
from mars_viz.words import number
from tests.tables import TableDrafter, TableTarget, table_backend

__all__ = ["apart"]

Ends = Iterator[tuple[float, list[int], np.ndarray]]
OF_DRAWS: dict[str, tuple[Solver, str]] = {
    "recursive-rejection": (with_replacement, "recursive_keep"),
    "k-seq": (k_sequentially, "k_seq_keep"),
}
"""The rules for which a token counts as often as it was drawn: what makes their columns, and the one of chances."""
FALSE_ALARM = 1e-6


def judged(rule: str, paths: int, depth: int, trunk: int = 0) -> Callable[[Case], Judged]:
    """What the columns of a rule say of every tree of so many paths."""
    (solver, column), found = OF_DRAWS[rule], {}
    for some, blocks in by_size(list(cases(paths, depth, trunk))):
        ps, qs = (torch.from_numpy(np.stack([getattr(case, name) for case in some])) for name in ("ps", "qs"))
        laws, columns = solver(blocks, ps, qs)
        for i, case in enumerate(some):
            found[_key(case)] = Judged(columns[column][i].numpy(), laws[i].numpy())
    return lambda case: found[_key(case)]


def _key(case: Case) -> tuple[tuple[int, ...], ...]:
    return tuple(case.tree.parents), tuple(case.tree.tokens), tuple(case.tree.draws)


# ---- draw by draw, with a coin for each


def draws_after(case: Case, node: int) -> list[int]:
    """The children of a node, path by path: one as often as it was drawn."""
    below = [child for child, parent in enumerate(case.tree.parents) if parent == node]
    drawn = [(path, child) for child in below for path in range(8) if case.tree.draws[child] >> path & 1]
    return [child for _, child in sorted(drawn)]


def accepted_at(p: np.ndarray, q: np.ndarray, k: int, *, rho: float | None = None) -> tuple[float, float]:
    """k-SEQ's ρ and β, ρ by trying ever closer from above."""
    if rho is None:
        low, high = 1.0, float(k)
        while high - low > 1e-15 * high:
            middle = (low + high) / 2
            beta = np.minimum(p / middle, q).sum()
            low, high = (low, middle) if 1 - (1 - beta) ** k <= middle * beta else (middle, high)
            if middle in (low, high) and high - low <= np.spacing(high):
                break
        rho = high
    return rho, float(np.minimum(p / rho, q).sum())


def draw_by_draw(rule: str, *, merged: bool = False, rho: float | None = None) -> Callable[[Case], Ends]:
    """How a walk can end, as the papers write the rules: every draw has a coin of its own. Wrong where what was drawn
    twice is tried once (`merged`), and with a ρ that does not solve its equation."""

    def endings(case: Case, node: int = -1, mass: float = 1.0) -> Ends:
        law, q = case.ps[node + 1], drafter_law(case.contexts[node + 1])
        tried = draws_after(case, node)
        k = len(tried)
        if merged:
            tried = list(dict.fromkeys(tried))
        left, p = mass, law
        own, beta = accepted_at(law, q, k, rho=rho) if k else (1.0, 1.0)
        for child in tried:
            x = case.tree.tokens[child]
            accepts = min(1.0, p[x] / q[x]) if rule == "recursive-rejection" else min(1.0, law[x] / (own * q[x]))
            yield from endings(case, child, left * accepts)
            left *= 1 - accepts
            if rule == "recursive-rejection":
                rest = np.maximum(p - q, 0)
                p = rest / rest.sum() if rest.sum() > 1e-12 else p
        if rule == "k-seq" and k:
            rest = np.maximum(law - np.minimum(law / own, q) * (1 - (1 - beta) ** k) / beta, 0)
            p = rest / rest.sum() if rest.sum() > 1e-12 else law
        yield left, trees.path_to(case.tree.parents, node), p

    return endings


# ---- the target's law, and how much is kept


ORACLES = {"recursive-rejection": (0.7, 0.76, 0.808), "k-seq": (0.7, 0.791355287, 0.858518606)}
FORMS = {"recursive-rejection": "recursive, i.i.d.", "k-seq": "k-SEQ, i.i.d."}


@pytest.mark.parametrize("children", [1, 2, 3])
@pytest.mark.parametrize("rule", OF_DRAWS)
def test_one_of_so_many_children_is_kept_as_often_as_was_worked_out(rule: str, children: int) -> None:
    """p = (.5, .3, .2), q = (.2, .3, .5), all draws enumerated; and by the closed forms of the charts."""
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


def test_the_rho_of_k_seq_solves_its_equation() -> None:
    p, q = target_law(()), drafter_law(())
    for k, expected in ((2, (1.456776436, 0.543223564)), (3, (1.792593028, None))):
        rho, beta = accepted_at(p, q, k)
        assert rho == pytest.approx(expected[0], abs=1e-9)
        assert expected[1] is None or beta == pytest.approx(expected[1], abs=1e-9)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(("paths", "trunk"), [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("rule", OF_DRAWS)
def test_every_tree_is_judged_exactly_and_as_draw_by_draw(rule: str, paths: int, trunk: int) -> None:
    """Two levels, V = 3: all trees, by the columns and by a coin for every draw."""
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


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("recursive-rejection", {"merged": True}),  # what was drawn twice counts once
        ("k-seq", {"merged": True}),
        ("k-seq", {"rho": 1.0}),  # then more than p allows is kept
    ],
)
def test_wrong_forms_are_found_out(rule: str, wrong: dict[str, float]) -> None:
    assert exactly(2, 2, draw_by_draw(rule))[0] < 1e-12
    assert exactly(2, 2, draw_by_draw(rule, **wrong))[0] > 1e-3


def written(rule: str, known: Callable[[Case], Judged], paths: int, draws: int) -> np.ndarray:
    """int64 [3, 4]; how often the first two tokens are which, over so many drawn trees of two levels, each with its own
    coins; 3 where the second is not the round's."""
    rng, made = np.random.default_rng(8), list(cases(paths, 2))
    counts = np.zeros((3, 4), np.int64)
    often = rng.multinomial(draws, [case.chance for case in made])
    for case, n in zip(made, often.tolist(), strict=True):
        found, parents = known(case), case.tree.parents
        coins, at, open_ = rng.random((n, len(parents))), np.full(n, -1), np.ones((n, len(parents)), bool)
        for node, parent in enumerate(parents):
            at[(at == parent) & (coins[:, node] <= found.chances[node]) & open_[:, node]] = node
        last = (found.emits.cumsum(1)[at + 1] <= rng.random((n, 1)) * found.emits.sum(1)[at + 1, None]).sum(1)
        for node in range(-1, len(parents)):
            text = [case.tree.tokens[each] for each in trees.path_to(parents, node)]
            for token in range(3):
                whole = [*text, token]
                counts[whole[0], whole[1] if len(whole) > 1 else 3] += int(((at == node) & (last == token)).sum())
    return counts


def off_law(counts: np.ndarray) -> bool:
    """Whether the first token, or the second after a kept first one, is not by the target's law; wrongly with a
    probability of at most 4 x 1e-6."""

    def unlike(found: np.ndarray, law: np.ndarray) -> bool:
        expected = law * found.sum()
        return bool(((found - expected) ** 2 / expected).sum() > chi2.isf(FALSE_ALARM, len(law) - 1))

    return unlike(counts.sum(1), target_law(())) or any(unlike(counts[x, :3], target_law((x,))) for x in range(3))


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("rule", OF_DRAWS)
def test_200_000_drawn_trees_are_judged_by_the_target_s_law(rule: str) -> None:
    known = judged(rule, 3, 2)
    assert not off_law(written(rule, known, 3, 200_000))

    def once(case: Case) -> Judged:  # the mistake of trying a node once by what one draw of it is kept with
        own, parents, tokens = known(case), case.tree.parents, case.tree.tokens
        laws = [drafter_law(context) for context in case.contexts]
        each = [
            min(1.0, case.ps[parent + 1][token] / laws[parent + 1][token])
            for parent, token in zip(parents, tokens, strict=True)
        ]
        return replace(own, chances=np.array(each))

    assert off_law(written(rule, once, 3, 200_000))


def test_in_a_chain_and_on_one_path_they_are_rejection_sampling() -> None:
    for tree in ("chain", "iid:paths=1,depth=5"):
        texts = {
            rule: [r.token_ids for r in toy_run(rule=rule, temperature=1.0, tree=tree, gamma=5).rounds]
            for rule in (*OF_DRAWS, "rejection-sampling")
        }
        assert len({tuple(text) for text in texts.values()}) == 1


# ---- the released code of MARS


def rows_of(own: Speculation, last: int) -> list[int]:
    """The token before each row of a toy's laws."""
    return [last, *own.tokens.tolist()]


def released(own: Speculation, speculator: ToySpeculator, last: int, theta: float) -> tuple[list[int], int]:
    """What `evaluate_posterior` does (5SSjw/MARS, mars/model/utils.py), with our coins and draws: the path and the
    token after it."""
    s, before = speculator.settings, rows_of(own, last)
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
def test_mars_as_released_goes_down_a_tree_as_its_code_does(tree: str) -> None:
    """Every breakpoint's two sides, both ends, and values between; at θ = 1 its coins alone decide."""
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


def test_the_stepper_says_what_the_released_code_has_left_of_p() -> None:
    run, told = toy_run(rule="mars-code", tree=IID, temperature=0.9, max_new_tokens=20), 0
    for round_ in run.rounds:
        own = round_.speculation
        for node in np.flatnonzero(own.siblings).tolist():
            before = (own.parents == own.parents[node]) & (own.siblings < own.siblings[node])
            left = float(own.p[node]) / (1 - own.p[before].astype(np.float64).sum())
            said = judge(run, RULES["mars-code"], round_, node, False, None)
            kept = f"without its siblings before, p = {number(left)} and q = {number(float(own.q[node]))} are left"
            assert any(kept in part for part in said if isinstance(part, str))
            told += 1
    assert told > 5


def test_what_the_drafter_gives_the_likeliest_tokens_is_a_column_where_they_are_a_tree() -> None:
    own = ToySpeculator(Settings(temperature=0.8, tree=TREE)).speculate([PROMPT])[0].speculation
    _, drafter = ToySpeculator(Settings()).target, ToySpeculator(Settings()).drafter
    before = np.array(rows_of(own, PROMPT[-1]))[own.judging_rows]
    expected = softmax(drafter[before].astype(np.float64))[np.arange(len(own)), own.tokens]
    np.testing.assert_allclose(own.own_q, expected, rtol=1e-5)
    assert (own.q == 1).all() and own.kind is Of.LIKELIEST
    without = replace(own, columns={name: column for name, column in own.columns.items() if name != OWN_Q})
    assert "own q" in (RULES["mars-code"].lacks(without) or "")
    assert RULES["mars-code"].lacks(replace(without, temperature=0.0)) is None


# ---- SGLang's thresholds


def tried(rule: str, t: float) -> np.ndarray:
    """float64 [3, 6]; of the tree of `first_tokens`, the law of its first token and how often the walk then goes on
    from it, in closed form."""
    rng = np.random.default_rng(5)
    law = torch.from_numpy(rng.normal(0, 1.2, (8, 5)).astype(np.float32)).softmax(-1).double().numpy()[0]
    children, found, so_far, left = (1, 4, 2), np.zeros((2, 5)), 0.0, 1.0
    for x in children:
        so_far += law[x]
        kept = 1 - min(1.0, so_far / t if rule == "sglang-acc" else so_far)
        kept = 0.0 if rule == "sglang-single" and law[x] >= t else kept
        found[0, x], left = max(left - kept, 0.0), min(left, kept)
    rest = np.where(np.isin(np.arange(5), children), 0, law)
    found[1] = left * rest / rest.sum()
    return found


@pytest.mark.parametrize(("rule", "t"), [("sglang-acc", 1.0), ("sglang-acc", 0.7), ("sglang-acc", 0.4),
                                         ("sglang-single", 1.0), ("sglang-single", 0.2)])  # fmt: skip
def test_sglang_keeps_siblings_by_one_coin_for_all(rule: str, t: float) -> None:
    """8,000 rounds; which child is kept, and what is emitted where none is; wrongly found out once in a million."""
    counts = first_tokens(rule, 8_000, dial=t)
    seen = np.stack([counts[:, :5].sum(1), counts[:, 5]])  # with a token after it: kept; else emitted
    expected = tried(rule, t) * 8_000
    possible = expected > 1e-9
    assert not seen[~possible].any()
    off = ((seen - expected)[possible] ** 2 / expected[possible]).sum()
    assert off < chi2.isf(FALSE_ALARM, possible.sum() - 1)


def test_a_coin_for_each_sibling_is_not_what_sglang_does() -> None:
    """The mistake of judging each sibling by p(x)/t with a coin of its own."""
    counts = first_tokens("sglang-acc", 4_000, keeps=lambda found: found.coins <= found.p / 0.7)
    seen = np.stack([counts[:, :5].sum(1), counts[:, 5]])
    expected = tried("sglang-acc", 0.7) * 4_000
    possible = expected > 1e-9
    assert seen[~possible].any() or ((seen - expected)[possible] ** 2 / expected[possible]).sum() > 100


# ---- strict ends


BY_BEST = sorted(name for name, rule in RULES.items() if rule.on_rejection is Emission.ARGMAX)


@pytest.mark.parametrize("tree", [TREE, IID])
@pytest.mark.parametrize("rule", [name for name in BY_BEST if RULES[name].on_trees is OnTrees.JUDGED])
def test_rules_that_emit_the_best_token_match_it_at_their_strict_end(rule: str, tree: str) -> None:
    """Above temperature 0, where that is the strict end of them all and no rule by itself: what MARS does at θ = 1."""
    own = RULES[rule]
    for policy in own.policies:
        for seed in range(3):
            found = ToySpeculator(Settings(temperature=0.9, tree=tree, seed=seed)).speculate([PROMPT])[0].speculation
            decision = settle(found, own.choosing(policy).judge(found), own.dial.strict if own.dial else None)
            strict = settle(found, RULES["mars"].choosing(Policy.DRAFT_ORDER).judge(found), 1.0)
            assert decision == strict
            at = 0
            for node in strict.kept:
                assert found.tokens[node] == found.top_ids[at, 0]
                at = node + 1
            assert strict.emitted == found.top_ids[at, 0]


@pytest.mark.parametrize(
    ("rule", "strict"),
    [("sglang-acc", "strict"), ("sglang-single", "strict"), ("mars-sampling", "rejection-sampling")],
)
@pytest.mark.parametrize("tree", [TREE, IID, "delayed:trunk=1,paths=3,depth=3"])
def test_at_its_strict_end_a_rule_writes_what_its_strict_rule_does(rule: str, strict: str, tree: str) -> None:
    for seed in range(3):
        shared = {"temperature": 0.9, "tree": tree, "seed": seed, "model_seed": seed}
        ours = toy_run(rule=rule, dial=1.0, **shared)
        theirs = toy_run(rule=strict, **shared)
        assert [r.token_ids for r in ours.rounds] == [r.token_ids for r in theirs.rounds]
        assert [r.decision.kept for r in ours.rounds] == [r.decision.kept for r in theirs.rounds]


# ---- dials


# ---- columns where they are asked for


def asked(needs: Sequence[str] | None, tree: str = IID) -> Speculation:
    """One answer of the toys with what is needed alone."""
    target, drafter = tables()
    settings = Settings(temperature=0.9, tree=tree)
    parts = TableTarget(target), TableDrafter(drafter, settings)
    return DraftAndScore(*parts, Limits(32, 1 << 20), settings, needs).speculate([PROMPT])[0].speculation


def test_columns_of_rules_for_trees_are_made_where_such_a_rule_decides() -> None:
    whole = asked(None)
    assert whole.columns.keys() >= TREE_COLUMNS - {OWN_Q}
    for name in ("strict", "rejection-sampling", "mars-code", "sglang-acc"):
        assert TREE_COLUMNS.isdisjoint(asked(RULES[name].needs).columns), name
    for name in (*OF_DRAWS, "traversal", "greedy-multi-path"):
        found = asked(RULES[name].needs)
        assert TREE_COLUMNS & found.columns.keys() == TREE_COLUMNS & set(RULES[name].needs), name
        assert "z" not in found.columns and "block_mass" not in found.columns  # nor is anything else made at once
        for column in found.columns:
            np.testing.assert_array_equal(found.columns[column], whole.columns[column], err_msg=column)
        others = [other for other in (*OF_DRAWS, "traversal", "greedy-multi-path") if other != name]
        for other in others:
            assert "needs what was not computed here" in (RULES[other].lacks(found) or "")
    assert OWN_Q in asked(RULES["mars-code"].needs, TREE).columns
    assert OWN_Q not in asked(RULES["strict"].needs, TREE).columns


def test_what_no_decision_asked_for_is_there_when_the_run_is() -> None:
    for tree in (IID, TREE):
        backend, settings = table_backend(), Settings(temperature=0.9, tree=tree, max_new_tokens=60)
        runs = [Recording(backend, "a tree", replace(settings, rule=rule)).finish() for rule in ("strict", "mars-code")]
        for run in runs:
            wanted = {OWN_Q} if tree == TREE else TREE_COLUMNS - {OWN_Q}
            assert TREE_COLUMNS & run.trace.speculations.columns.keys() == wanted
            for round_ in run.rounds:
                answer = backend.speculator(run.settings).speculate([run.prompt_ids])
                assert answer[0].speculation.columns.keys() == round_.speculation.columns.keys()
        first = backend.speculator(settings).speculate([runs[0].prompt_ids])[0].speculation
        for name, column in first.columns.items():
            np.testing.assert_array_equal(runs[0].rounds[0].speculation.columns[name], column, err_msg=name)


@pytest.mark.parametrize("tree", [IID, TREE])
def test_what_each_rule_records_is_read_again_reported_and_what_a_walk_of_all_of_them_writes(
    tmp_path: Path, tree: str
) -> None:
    backend, drawn = table_backend(), tree == IID
    able = [rule for rule in RULES.values() if not rule.refuses_trees(0.9, drawn=drawn)]
    assert {"mars-code", "sglang-acc"} < {rule.name for rule in able} and drawn == (RULES["k-seq"] in able)
    settings = Settings(temperature=0.9, tree=tree, max_new_tokens=24)
    runs = [Recording(backend, "a tree", replace(settings, rule=rule.name)).finish() for rule in able]
    for run in runs:
        read = load_run(run.save(tmp_path / rule_named(run.settings.rule).slug))
        assert read.token_ids == run.token_ids
        assert len(read.to_frame()) == len(run.to_frame())
        assert not any(rule.lacks_for(read.trace.speculations) for rule in able)
    report_html(runs[-1])
    *_, last = Walking(backend, runs[0], [Stand(rule, rule.checked_dial(None)) for rule in able])
    for found, run in zip(last.walks, runs, strict=True):
        assert found.token_ids == run.token_ids, run.settings.rule


def test_a_token_that_only_such_a_rule_emits_is_told_with_what_is_known_of_it() -> None:
    """Its logit and rank are not recorded, its probability is where it is among the best tokens."""
    for seed in range(20):
        run = toy_run(rule="k-seq", tree=IID, temperature=0.9, seed=seed)
        frame = run.to_frame()
        ends = frame[frame.outcome == "CORRECTED"]
        for _, line in ends.iterrows():
            own = run.rounds[int(line["round"])].speculation
            row = run.rounds[int(line["round"])].decision.row
            law = processed(ToySpeculator(run.settings).target[_before(run, int(line["round"]), row)], 0.9)
            if own.emissions[row].tolist().count(line.token_id) == 0:
                assert np.isnan(line.z_x) and line["rank"] == 0
                listed = line.token_id in own.top_ids[row]
                assert line.p_x == pytest.approx(law[int(line.token_id)], rel=1e-4) if listed else np.isnan(line.p_x)
                return
    raise AssertionError("no such token in 20 runs")


def _before(run: Run, index: int, row: int) -> int:
    """The token before a row of a round."""
    prefix = [*run.prompt_ids, *(token for round_ in run.rounds[:index] for token in round_.token_ids)]
    return int(run.rounds[index].speculation.tokens[row - 1]) if row else prefix[-1]


# ---- how a rule comes to one of siblings, in words


IN_ORDER = "siblings are tried in draft order"
WORDS = {
    "strict": "of siblings only the target's own sample is kept",
    "rejection-sampling": f"{IN_ORDER}, by coins against p/q as those refused before leave it",
    "recursive-rejection": f"{IN_ORDER}, by coins against p/q, where each draw refused before took q off p",
    "k-seq": f"{IN_ORDER}, by coins against p/(ρq) with one ρ for all, and p stays",
    "traversal": "nodes are tried from the leaves upwards, children before parents, and the first kept takes its "
    "whole path",
    "greedy-multi-path": "of siblings the one of largest p/q is followed, and the path so chosen is judged as one "
    "block",
    "mars-code": f"{IN_ORDER}: where z2/z1 > θ the first of the target's two best tokens is kept, elsewhere coins "
    "decide, against p/q without those refused before",
    "sglang-acc": f"{IN_ORDER}, by one coin for all against what p gives those tried so far together",
    "sglang-single": "of siblings the first in draft order is kept that has p(x) ≥ t or is the target's own sample",
}
"""Above temperature 0, of rules that have no choice among kept siblings."""
CHOICES = {
    Policy.DRAFT_ORDER: "of kept siblings the first in draft order is taken",
    Policy.STRICT_FIRST: "of kept siblings one that strict keeps too is taken, else the first in draft order",
    Policy.LONGEST: "of kept siblings the one with the longest kept path is taken",
}


@pytest.mark.parametrize("name", JUDGE)
def test_every_rule_that_judges_trees_says_how_it_comes_to_one_of_siblings(name: str) -> None:
    own = RULES[name]
    if len(own.policies) > 1:
        for policy in own.policies:
            assert {own.choosing(policy).among_siblings(temperature) for temperature in (0.0, 0.7)} == {CHOICES[policy]}
        return
    assert own.among_siblings(0.0) == "of siblings only the target's best token is kept"
    if not own.refuses_trees(0.9, drawn=True):
        assert own.among_siblings(0.9) == WORDS[name]
    best = [found for seed in range(3) for found in speculated(0.0, TREE, seed)]
    for found in best:  # which is true: no two siblings are the same token
        own_best = found.tokens == found.top_ids[found.judging_rows, 0]
        assert (own.judge(found).keeps(own.dial.default if own.dial else math.nan) == own_best).all()
    assert any(found.is_tree for found in best)


def speculated(temperature: float, tree: str, seed: int) -> list[Speculation]:
    settings = Settings(temperature=temperature, tree=tree, seed=seed)
    prefixes = [(*PROMPT, token) for token in range(20)]
    return [answer.speculation for answer in ToySpeculator(settings).speculate(prefixes)]


@pytest.mark.parametrize("tree", [TREE, IID])
def test_what_is_said_of_siblings_is_what_the_verdicts_do(tree: str) -> None:
    refused, followed, climbed = 0, 0, 0
    for found in [each for seed in range(8) for each in speculated(0.9, tree, seed)]:
        rows = found.judging_rows
        kept = {
            name: settle(found, RULES[name].judge(found), dial).kept for name, dial in AT.items() if judges(name, tree)
        }
        assert all(found.tokens[node] == found.emissions[rows[node], Emission.SAMPLE] for node in kept["strict"])
        for node in kept["sglang-single"]:
            fits = (found.p >= 0.2) | (found.tokens == found.emissions[rows, Emission.SAMPLE])
            before = (rows == rows[node]) & (found.siblings < found.siblings[node])
            assert fits[node] and not fits[before].any()
            refused += int(before.any())
        for node in kept["mars-code"]:
            close = found.ratio[rows[node]] > 0.9
            assert not close or found.tokens[node] in found.top_ids[rows[node], :2]
        if tree != IID:
            continue
        ratio = found.p / found.q
        for node in kept["greedy-multi-path"]:
            siblings = np.flatnonzero(rows == rows[node])
            assert ratio[node] == ratio[siblings].max()
            followed += len(siblings) > 1
        passes = [node for node in upwards(found) if found.coins[node] <= found.traversal_stop[node] > 0]
        assert kept["traversal"] == tuple(trees.path_to(found.parents.tolist(), passes[0]) if passes else ())
        climbed += len(passes) > 1
    assert refused > 5 and (tree != IID or (followed > 5 and climbed > 5))


AT = {"strict": None, "sglang-single": 0.2, "mars-code": 0.9, "greedy-multi-path": None, "traversal": None}


def judges(name: str, tree: str) -> bool:
    return not RULES[name].refuses_trees(0.9, drawn=tree == IID)


def upwards(found: Speculation) -> list[int]:
    """The nodes in their order, but children before their parents."""
    parents = found.parents.tolist()

    def below(node: int) -> list[int]:
        children = [child for child, parent in enumerate(parents) if parent == node]
        return [last for child in children for last in [*below(child), child]]

    return below(-1)
