"""Several rules walked side by side: no prefix is requested twice, and known answers are used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars_viz.errors import BadInput
from mars_viz.multi_rule_walk import RuleWalk, Stand, ahead, answers_along, walk_together
from mars_viz.recording import Walking
from mars_viz.replay import ending_of
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.run_with_map import known_answers, mapped
from mars_viz.walk import Ending
from tests.factories import PROMPT, Counting, ToySpeculator, toy_map, toy_run
from tests.tables import table_backend

ENDING = Ending(frozenset({0}), 40)


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
    assert not {prefix for batch in rest.batches for prefix in batch} & {
        prefix for batch in speculator.batches[:3] for prefix in batch
    }


def test_a_rule_that_cannot_judge_stops_and_the_others_continue():
    class Blind(ToySpeculator):
        def speculate(self, prefixes):
            answers = super().speculate(prefixes)
            known = [{k: v for k, v in one.speculation.columns.items() if k != "js"} for one in answers]
            pairs = zip(answers, known, strict=True)
            return [replace(one, speculation=replace(one.speculation, columns=columns)) for one, columns in pairs]

    wanted = [Stand(RULES["fuzzy"], None), Stand(RULES["mars"], 0.9)]
    last = list(walk_together(Blind(Settings(temperature=1.0)), wanted, PROMPT, ENDING, {}))[-1]
    assert "full evidence" in last.walks[0].lacks and not last.walks[0].finished
    assert last.walks[1].finished and last.finished == 2


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


def test_other_weights_than_the_runs_are_refused():
    backend = table_backend()
    other = replace(backend, target=replace(backend.target, revision="another"))
    with pytest.raises(BadInput, match="other weights"):
        Walking(other, toy_run(), [])
