"""The decoding loop by one rule and by several: committed tokens, ends, requests, and walks of recorded runs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from factories import make_speculation

from mars_viz.errors import BadInput
from mars_viz.multi_rule_walk import RuleWalk, Stand, ahead, answers_along, walk_together
from mars_viz.recording import Walking
from mars_viz.records import Outcome, Round, first_difference
from mars_viz.replay import RecordedSpeculator, answers_of, ending_of
from mars_viz.rules import RULES, rule_named, settle
from mars_viz.run import Settings
from mars_viz.run_with_map import known_answers, mapped
from mars_viz.walk import Ending, walk
from tests.factories import PROMPT, Counting, ToySpeculator, toy_map, toy_run
from tests.tables import table_backend

ENDING = Ending(frozenset({0}), 40)


def test_a_recorded_run_walks_as_far_as_its_text_is_the_same() -> None:
    run = toy_run(rule="mars-sampling", temperature=0.8, seed=4)

    def again(dial: float | None) -> list[tuple[int, ...]]:
        speculator, rule = RecordedSpeculator(answers_of(run)), rule_named("mars-sampling")
        return [r.token_ids for r in walk(speculator, rule, dial, run.prompt_ids, ending_of(run))]

    assert again(run.settings.dial) == [r.token_ids for r in run.rounds]
    with pytest.raises(BadInput, match="decode the prompt again"):
        for dial in np.linspace(0, 1, 21).tolist():
            again(dial)


def test_an_end_of_text_and_the_limit_cut_a_block_and_discard_the_rest() -> None:
    for tokens, written, expected in (
        ([5, 6, 7], 0, (5, 6, 7)),
        ([5, 6, 7], 38, (5, 6)),
        ([5, 6, 7], 40, ()),
        ([5, 0, 7], 0, (5, 0)),
        ([5, 6, 0], 38, (5, 6)),
        ([], 0, ()),
    ):
        assert ENDING.cut(tokens, written) == expected
    laws = np.full((4, 8), 1.0, np.float32)
    laws[[0, 1, 2, 3], [3, 0, 5, 6]] = 9.0
    speculation = make_speculation(laws, laws[:3], [3, 0, 5])
    verdicts = RULES["strict"].judge(speculation)
    decision = settle(speculation, verdicts, None)
    round_ = Round(speculation, verdicts, decision, ENDING.cut([3, 0, 5, decision.emitted], 0))
    assert round_.token_ids == (3, 0) and decision.kept == (0, 1, 2)
    assert round_.outcomes == (Outcome.MATCHED, Outcome.MATCHED, Outcome.DISCARDED)
    assert (round_.emission, round_.kept, round_.rolled_back) == (None, 2, 1)


def test_the_first_difference_of_two_texts() -> None:
    assert first_difference((1, 2, 3), (1, 5, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == first_difference("abc", "ab") == 2
    assert first_difference((), (4,)) == 0
    assert first_difference((1, 2), (1, 2)) is None and first_difference("", "") is None


def stands() -> list[Stand]:
    """Every rule at its default and at its strict end."""
    found = [Stand(rule, rule.checked_dial(None)) for rule in RULES.values()]
    return found + [Stand(rule, rule.dial.strict) for rule in RULES.values() if rule.dial is not None]


@pytest.mark.parametrize("settings", [Settings(gamma=4), Settings(gamma=5, temperature=0.9, seed=3, top_p=0.95)])
def test_walks_advance_in_lockstep_and_no_prefix_is_requested_twice(settings):
    speculator = Counting(settings)
    states = list(walk_together(speculator, stands(), PROMPT, ENDING, {}))
    asked = [prefix for batch in speculator.batches for prefix in batch]
    assert len(asked) == len(set(asked))
    walks = states[-1].walks
    assert all(one.finished and one.prefix == PROMPT + one.token_ids for one in walks)
    assert len({one.token_ids for one in walks}) > 3
    rounds = [len(one.rounds) for one in walks]
    assert len(speculator.batches) == states[-1].passes == max(rounds)  # in lockstep, as one batch
    assert len(asked) < sum(rounds) / 2
    assert [state.finished for state in states] == sorted(state.finished for state in states)
    assert states[0].passes == 0 and states[-1].finished == len(states[-1].walks) == len(set(stands()))


def test_known_answers_are_used_also_after_an_interruption():
    settings = Settings(gamma=4)
    speculator = Counting(settings)
    whole = list(walk_together(speculator, stands(), PROMPT, ENDING, {}))
    answers = answers_along(whole[-1].walks, PROMPT)
    again = Counting(settings)
    (state,) = walk_together(again, stands(), PROMPT, ENDING, answers)
    assert again.batches == [] and state.passes == 0
    assert [one.token_ids for one in state.walks] == [one.token_ids for one in whole[-1].walks]
    half = answers_along(whole[3].walks, PROMPT)
    assert len(half) == sum(map(len, speculator.batches[:3]))
    rest = Counting(settings)
    resumed = list(walk_together(rest, stands(), PROMPT, ENDING, half))[-1]
    assert [one.token_ids for one in resumed.walks] == [one.token_ids for one in whole[-1].walks]
    assert not {*itertools.chain(*rest.batches)} & {*itertools.chain(*speculator.batches[:3])}


def test_rules_that_cannot_judge_stop_the_others_continue_and_other_weights_are_refused():
    class Blind(ToySpeculator):
        def speculate(self, prefixes):
            for answer in super().speculate(prefixes):
                known = {name: each for name, each in answer.speculation.columns.items() if name != "js"}
                yield replace(answer, speculation=replace(answer.speculation, columns=known))

    wanted = [Stand(RULES["fuzzy"], None), Stand(RULES["mars"], 0.9)]
    last = list(walk_together(Blind(Settings(temperature=1.0)), wanted, PROMPT, ENDING, {}))[-1]
    assert "full evidence" in last.walks[0].lacks and not last.walks[0].finished
    assert last.walks[1].finished and last.finished == 2
    backend = table_backend()
    with pytest.raises(BadInput, match="other weights"):
        Walking(replace(backend, target=replace(backend.target, revision="another")), toy_run(), [])


def test_only_complete_blocks_of_a_map_are_known_answers():
    run = toy_run(rule="mars", gamma=4, seed=1)
    made, _ = toy_map(replace(run.settings, dial=None), 0.3, 1.0, (1, 2, 4))
    run = mapped(run, made)
    known = known_answers(run)
    assert len(known_answers(toy_run(rule="mars", gamma=4, seed=1))) < len(known) < len(run.dial_map.answers)
    assert {len(answer.speculation) for answer in known.values()} == {4}
    for dial in (0.3, 0.62, 0.9, 1.0):
        found = ahead(RuleWalk(Stand(RULES["mars"], dial), run.prompt_ids), known, len(PROMPT), ending_of(run))
        assert found.finished and found.token_ids == run.dial_map.at(dial).token_ids
