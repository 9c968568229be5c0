"""What a branch is worth: the best tree against all trees of its size, against trials; a run's choices by hand."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from mars_viz.analysis.lesson_sums import expected_tokens
from mars_viz.analysis.tree_gain import ChildChances, Choices, child_chances, choices, tree_tokens
from mars_viz.ui.lessons import trees
from tests.factories import toy_run, toy_tree


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


def test_without_a_second_choice_the_best_tree_is_a_chain_and_never_worse_than_one():
    lengths = range(1, 33)
    for alpha in trees.ALPHAS:
        chain = [float(expected_tokens(alpha, n)) for n in lengths]
        assert tree_tokens(alpha, 0.0, 32).tolist() == pytest.approx(chain)
        for rescued in trees.SECONDS:
            assert np.all(tree_tokens(alpha, rescued, 32) >= np.array(chain) - 1e-12)
    assert tree_tokens(0.0, 0.0, 3).tolist() == [1, 1, 1]


@pytest.mark.parametrize("run", [toy_run(dial=0.9, max_new_tokens=40), toy_tree()], ids=["chains", "trees"])
def test_a_runs_choices_by_hand(run):
    ranks = []
    for round_ in run.rounds:
        spec, row = round_.speculation, 0
        parents = spec.parents.tolist()
        for node in (*round_.decision.kept[: round_.kept], None):
            if row - 1 in parents:
                drafted = spec.draft_ids[parents.index(row - 1)].tolist()
                best = int(spec.top_ids[row, 0])
                ranks.append(drafted.index(best) if best in drafted else None)
            row = 0 if node is None else node + 1
    found = choices(run)
    assert found == Choices(len(ranks), ranks.count(0), ranks.count(1)) and found.second > 0
    assert found.alpha == found.first / found.places
    assert found.rescued == found.second / (found.places - found.first)


LONG_TREES = {"tree": "dynamic:depth=4,topk=3", "gamma": 10, "dial": 0.9, "vocabulary": 300, "model_seed": 15}


@pytest.mark.parametrize(
    "run", [toy_run(dial=0.9, max_new_tokens=60), toy_run(max_new_tokens=60, **LONG_TREES)], ids=["chains", "trees"]
)
def test_chances_of_children_by_hand(run):
    ranks, places = [0] * 11, 0
    for round_ in run.rounds:
        spec = round_.speculation
        for row in (0, *(node + 1 for node in round_.decision.kept[: round_.kept])):
            children = [node for node in range(len(spec)) if spec.judging_rows[node] == row]
            if children:
                places += 1
                listed = spec.draft_ids[children[0]].tolist()
                best = int(spec.top_ids[row, 0])
                ranks[listed.index(best) if best in listed else 10] += 1
    shares = sorted((count / places for count in ranks[:10] if count >= 0.01 * places), reverse=True)
    found = child_chances(run)
    assert found.places == places >= 20 and found.accept == pytest.approx(tuple(shares), abs=5.1e-4)
    assert choices(run).first == ranks[0]


def test_chances_are_not_told_from_few_places_nor_of_a_sampled_run():
    run = toy_run(max_new_tokens=60)
    short = replace(run, rounds=run.rounds[:3])
    assert child_chances(run).accept and child_chances(short) == ChildChances((), choices(short).places)
    assert not child_chances(toy_run(temperature=0.8, max_new_tokens=60)).accept


def test_a_run_without_recorded_candidates_has_no_choices_and_does_not_serve():
    run = toy_run()
    bare = []
    for round_ in run.rounds:
        columns = {name: getattr(round_.speculation, name)[:, :0] for name in ("draft_ids", "draft_logits")}
        bare.append(replace(round_, speculation=round_.speculation.with_columns(columns)))
    none = replace(run, rounds=tuple(bare))
    assert choices(none) == Choices(0, 0, 0) and np.isnan(choices(none).alpha)
    assert "no drafter's second choice" in trees.LESSON.lacks(none) and not trees.LESSON.lacks(run)
    assert "3" in trees.LESSON.lacks(toy_run(rule="rejection-sampling", temperature=1.0))
    assert trees.dials(Choices(4, 4, 0))[1].start == 0.0
    assert [knob.start for knob in trees.dials(Choices(100, 62, 19))][:2] == [0.6, 0.5]
