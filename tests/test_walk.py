"""The decoding loop: which tokens it commits, where it ends, and walks of recorded runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from factories import make_speculation, toy_run

from mars_viz.errors import BadInput
from mars_viz.records import Outcome, Round, first_difference
from mars_viz.replay import RecordedSpeculator, answers_of
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Run
from mars_viz.walk import Ending, walk


def replay(run: Run, dial: float | None) -> list[Round]:
    ending = Ending(frozenset(run.provenance.eos_ids), run.settings.max_new_tokens)
    return list(walk(RecordedSpeculator(answers_of(run)), rule_named(run.settings.rule), dial, run.prompt_ids, ending))


def test_a_recorded_run_walks_as_far_as_its_text_is_the_same() -> None:
    run = toy_run(rule="mars-sampling", temperature=0.8, seed=4)
    flips = [b for r in run.rounds for b in r.verdicts.breakpoints if not math.isnan(b)]
    unchanged = [d for d in (0.89, 0.91) if not any(min(d, 0.9) <= b <= max(d, 0.9) for b in flips)]
    for dial in unchanged:
        assert [r.token_ids for r in replay(run, dial)] == [r.token_ids for r in run.rounds]
    with pytest.raises(BadInput, match="anew"):
        for dial in np.linspace(0, 1, 21):
            replay(run, float(dial))


@pytest.mark.parametrize(
    ("tokens", "written", "expected"),
    [
        ([5, 6, 7], 0, (5, 6, 7)),
        ([5, 6, 7], 8, (5, 6)),
        ([5, 6, 7], 10, ()),
        ([5, 0, 7], 0, (5, 0)),
        ([0, 0, 7], 0, (0,)),
        ([5, 6, 0], 8, (5, 6)),
        ([], 0, ()),
    ],
)
def test_a_block_is_cut_at_the_first_end_of_text_and_at_the_limit(
    tokens: list[int], written: int, expected: tuple[int, ...]
) -> None:
    assert Ending(frozenset({0}), 10).cut(tokens, written) == expected


def test_a_kept_end_of_text_discards_the_rest_and_trees_follow_their_parents() -> None:
    laws = np.full((4, 8), 1.0, np.float32)
    laws[[0, 1, 2, 3], [3, 0, 5, 6]] = 9.0
    speculation = make_speculation(laws, laws[:3], [3, 0, 5])
    verdicts = RULES["strict"].judge(speculation)
    decision = settle(speculation, verdicts, None)
    round_ = Round(speculation, verdicts, decision, Ending(frozenset({0}), 100).cut([3, 0, 5, decision.emitted], 0))
    assert round_.token_ids == (3, 0) and decision.kept == (0, 1, 2)
    assert round_.outcomes == (Outcome.MATCHED, Outcome.MATCHED, Outcome.DISCARDED)
    assert (round_.emission, round_.kept, round_.rolled_back) == (None, 2, 1)
    laws = np.full((4, 8), 1.0, np.float32)
    laws[[0, 2, 3], [4, 5, 6]] = 9.0  # the second of two siblings matches, and so does its child
    siblings = {"parents": np.array([-1, -1, 1], np.int32), "siblings": np.array([0, 1, 0], np.int32)}
    tree = make_speculation(laws, laws[:3], [3, 4, 5]).with_columns(siblings)
    decision = settle(tree, RULES["strict"].judge(tree), None)
    assert (decision.kept, decision.row, decision.emitted) == ((1, 2), 3, 6)


def test_the_first_difference_of_two_texts() -> None:
    assert first_difference((1, 2, 3), (1, 5, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == first_difference("abc", "ab") == 2
    assert first_difference((), (4,)) == 0
    assert first_difference((1, 2), (1, 2)) is None and first_difference("", "") is None
