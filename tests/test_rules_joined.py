"""Judging many speculations at once says what judging each by itself says, to the last bit."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from mars_viz.records import Speculation, Verdicts
from mars_viz.rules import RULES
from mars_viz.trace import Speculations
from tests.factories import toy_run
from tests.test_explorer_payload import tree_run


def of_run(**settings: object) -> list[Speculation]:
    return [round_.speculation for round_ in toy_run(max_new_tokens=80, **settings).rounds]


CASES = {
    "greedy": of_run(rule="mars", gamma=8),
    "sampled": of_run(rule="mars-sampling", temperature=1.0, seed=3, gamma=7),
    "top-k": of_run(rule="mars-sampling", temperature=0.7, top_k=3, seed=1),
    "trees": [round_.speculation for round_ in tree_run().rounds],
    "sampled trees": of_run(rule="strict", temperature=0.9, tree="dynamic:depth=4,topk=3,nodes=9"),
    "drawn trees": of_run(rule="strict", temperature=0.9, tree="iid:paths=3,depth=3"),
    "one": of_run(temperature=1.0)[:1],
}


def empty(speculation: Speculation) -> Speculation:
    """The same with nothing drafted."""
    return replace(speculation, columns=speculation.chosen(slice(0), slice(1)))


CASES["with empty ones"] = [*CASES["greedy"][:2], empty(CASES["greedy"][0]), *CASES["greedy"][2:4]]
CASES["an empty one first"] = CASES["with empty ones"][2:]
CASES["of two kinds"] = [CASES["sampled"][0], *(replace(one, sampled=False) for one in CASES["sampled"][1:3])]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", RULES)
def test_together_as_one_by_one(name: str, case: str) -> None:
    rule, speculations = RULES[name], CASES[case]
    if any(rule.lacks(speculation) for speculation in speculations):
        one = speculations[0]
        refused = "trees" in case and rule.refuses_trees(one.temperature, drawn=one.is_drawn_tree)
        assert refused or "kinds" in case, "else this would test nothing"
        return
    found = rule.judge_all(Speculations.of(speculations))
    single = [rule.judge(speculation) for speculation in speculations]
    assert (found.gap_from is None) == all(verdicts.gap_from is None for verdicts in single)
    assert {found.policy} == {verdicts.policy for verdicts in single} or "trees" in case
    for name in [field.name for field in fields(Verdicts) if field.name not in ("gap_from", "policy")] + ["gaps"]:
        wanted = np.concatenate([getattr(verdicts, name) for verdicts in single])
        got = getattr(found, name)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted, name)


def test_nothing_at_all() -> None:
    assert len(RULES["mars"].judge_all(Speculations.of([])).keep_strict) == 0
