"""Two sweeps in pairs: what they share, what differs, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mars_viz.costs import Cost
from mars_viz.errors import BadInput
from mars_viz.sweep import difference_at, load_sweep, measures, value_at
from mars_viz.sweep.pairing import SweepSetting, compared, divergence, pair, turned
from mars_viz.sweep.plan import Plan, same_answers
from mars_viz.sweep.result import Failure
from mars_viz.ui.compare import sweep_pair
from tests.factories import toy_run
from tests.sweep_cases import COSTS, SETTINGS, conversations, first_turns, sweep_over, toy_prompts


def swept(place: Path, prompts=None, **asked: object) -> SweepSetting:
    sweep_over(place, toy_prompts(8) if prompts is None else prompts, replace(SETTINGS, **asked))
    result = load_sweep(place)
    return SweepSetting(result, result.plan.rule.dial.default)


def again(one: SweepSetting) -> SweepSetting:
    """The same setting of another sweep that says the same."""
    return SweepSetting(load_sweep(one.result.folder), one.dial)


def test_a_sweep_beside_itself_is_what_it_says_of_two_of_its_settings(tmp_path) -> None:
    one = swept(tmp_path / "one")
    both = pair(SweepSetting(one.result, 1.0), SweepSetting(one.result, 0.6))
    known = measures(one.result)
    for found in compared(both, ("tau", "tokens", "acceptance", "speed_up_strict")):
        alone = difference_at(one.result, known[found.measure.name], 0.6, 1.0)
        assert (found.change.estimate, found.change.low) == pytest.approx((alone.estimate, alone.low))
        assert found.right.estimate - found.left.estimate == pytest.approx(found.change.estimate)


def test_an_accuracy_that_no_prompt_changes_is_not_called_certain(tmp_path) -> None:
    one = swept(tmp_path / "one").result
    accuracy = measures(one)["accuracy"]
    looser = np.nextafter(one.plan.strict, 0)
    change = difference_at(one, accuracy, float(looser), one.plan.strict)
    assert change.estimate == 0 and change.low < 0 < change.high
    same = difference_at(one, accuracy, one.plan.strict, one.plan.strict)
    assert (same.low, same.high) == (0, 0)
    twice = SweepSetting(one, one.plan.strict)
    (paired,) = compared(pair(twice, replace(twice)), ("accuracy",))
    assert paired.change == same, "one setting beside itself is certain"


def test_prompts_are_paired_by_id_whatever_their_order(tmp_path) -> None:
    prompts = toy_prompts(8)
    turned_about = replace(prompts, items=tuple(reversed(prompts.items[2:])))
    one, other = swept(tmp_path / "one"), swept(tmp_path / "other", turned_about)
    both = pair(one, other)
    assert both.ids == tuple(f"p{i}" for i in range(2, 8)) and both.texts[0] == "prompt 2"
    left, right = both.at("tokens")
    np.testing.assert_array_equal(left, right)
    assert all(found.change.estimate == 0 for found in compared(both, ("tau", "tokens", "same", "accuracy")))
    assert "share 6 prompts of 8 and 6" in both.coverage


def test_one_id_with_another_text_is_no_pair(tmp_path) -> None:
    prompts = toy_prompts(4)
    changed = replace(prompts, items=(replace(prompts.items[0], prompt="something else"), *prompts.items[1:]))
    both = pair(swept(tmp_path / "one", prompts), swept(tmp_path / "other", changed))
    assert both.ids == ("p1", "p2", "p3") and both.otherwise == 1 and "different texts" in both.coverage


def test_sweeps_that_share_no_prompt_are_refused(tmp_path) -> None:
    prompts = toy_prompts(3)
    strange = replace(prompts, name="others", items=tuple(replace(item, id=f"x{item.id}") for item in prompts.items))
    with pytest.raises(BadInput, match="share no prompt: one is over “toys”, the other over “others”"):
        pair(swept(tmp_path / "one", prompts), swept(tmp_path / "other", strange))


def test_a_sweep_that_failed_throughout_is_no_sweep_of_another_set(tmp_path) -> None:
    """It has lines, which say why, but no results to pair."""
    prompts = toy_prompts(2)
    out = tmp_path / "failed"
    sweep_over(out, prompts)
    result = load_sweep(out)
    nothing = replace(
        result,
        failures=(Failure("p0", "The prompt is too long."),),
        prompts={name: column[:0] for name, column in result.prompts.items()},
        starts=result.starts[:1],
        lines={name: column[:0] for name, column in result.lines.items()},
    )
    empty = SweepSetting(nothing, 0.5)
    for left, right in ((empty, empty), (SweepSetting(result, 0.5), empty)):
        with pytest.raises(BadInput, match="No prompt of the sweep failed could be swept. The prompt is too long."):
            pair(left, right)


def test_a_dial_value_that_was_not_swept_is_refused(tmp_path) -> None:
    one = swept(tmp_path / "one")
    with pytest.raises(BadInput, match="goes from"):
        pair(one, SweepSetting(one.result, 7.0))


def test_where_texts_part_is_where_the_first_of_them_leaves_strict(tmp_path) -> None:
    one, other = swept(tmp_path / "one"), swept(tmp_path / "other", rule="mars-margin")
    both = pair(SweepSetting(one.result, 0.5), SweepSetting(other.result, other.result.plan.strict))
    found = divergence(both)
    assert found is not None and found.exact.all()
    np.testing.assert_array_equal(found.first, both.at("first_divergence")[0])
    assert (found.first >= 0).any()
    alike = divergence(pair(SweepSetting(one.result, 0.5), SweepSetting(one.result, 0.5)))
    assert alike is not None and not alike.exact[alike.first >= 0].any()


def test_of_other_seeds_it_is_not_known_where_texts_part(tmp_path) -> None:
    one, other = swept(tmp_path / "one"), swept(tmp_path / "other", max_new_tokens=12)
    assert divergence(pair(one, other)) is None


def test_answers_that_turn_are_counted_both_ways(tmp_path) -> None:
    one = swept(tmp_path / "one")
    both = pair(SweepSetting(one.result, 1.0), SweepSetting(one.result, 0.5))
    right = one.result.at("right", np.array([1.0, 0.5]))
    worse, better = turned(both)
    np.testing.assert_array_equal(worse, right[:, 0] > right[:, 1])
    np.testing.assert_array_equal(better, right[:, 0] < right[:, 1])


def test_accuracy_that_no_prompt_changes_is_not_called_certain(tmp_path) -> None:
    one = swept(tmp_path / "one")
    accuracy = next(iter(compared(pair(one, again(one)), ("accuracy",))))
    assert accuracy.change.estimate == 0 and accuracy.change.low < 0 < accuracy.change.high


def test_turns_of_a_question_are_drawn_together(tmp_path) -> None:
    """As in the sweep itself; that drawing each turn for itself would say something else is seen as well."""
    one = swept(tmp_path / "one", conversations(6, 3))
    both, known = pair(SweepSetting(one.result, 1.0), SweepSetting(one.result, 0.5)), measures(one.result)
    assert both.units is not None and len(np.unique(both.units)) == 6
    for found in compared(both, ("tau", "tokens", "acceptance", "same", "accuracy")):
        measure = known[found.measure.name]
        assert (found.left, found.right) == (value_at(one.result, measure, 1.0), value_at(one.result, measure, 0.5))
        if found.measure.name != "accuracy":
            assert found.change == difference_at(one.result, measure, 0.5, 1.0)
    singly = {name: values for name, values in one.result.prompts.items() if name != "question"}
    assert (
        difference_at(replace(one.result, prompts=singly), known["tau"], 0.5, 1.0) != compared(both, ("tau",))[0].change
    )


def test_accuracy_that_no_turn_changes_is_as_sure_as_so_many_questions_make_it(tmp_path) -> None:
    one = swept(tmp_path / "one", conversations(6, 3))
    change = compared(pair(one, again(one)), ("accuracy",))[0].change
    low, high = measures(one.result)["accuracy_change"].agreed(0.0, 6, 0.95)
    assert (change.estimate, change.low, change.high) == (0, low, high)


@pytest.mark.parametrize(
    ("rule", "gamma", "beside", "other", "alike"),
    [
        ("mars", 3, "mars-margin", 3, True),
        ("mars", 3, "typical", 3, True),
        ("mars", 3, "mars", 2, False),
        ("mars", 3, "mars-sampling", 3, False),
        ("sglang-single", 3, "sglang-acc", 2, True),
        ("sglang-single", 3, "mars", 3, False),
    ],
)
def test_above_temperature_0_texts_part_only_from_one_strict_text(
    rule: str, gamma: int, beside: str, other: int, alike: bool, tmp_path
) -> None:
    """The strict ends themselves say whether theirs is one text."""
    warm = {"temperature": 0.8, "seed": 3}
    one = swept(tmp_path / "one", toy_prompts(3), rule=rule, gamma=gamma, **warm)
    two = swept(tmp_path / "two", toy_prompts(3), rule=beside, gamma=other, **warm)
    texts = [
        [
            toy_run(rule=name, gamma=block, dial=side.result.plan.strict, temperature=0.8, seed=seed).token_ids
            for seed in range(4)
        ]
        for name, block, side in ((rule, gamma, one), (beside, other, two))
    ]
    assert (texts[0] == texts[1]) is alike
    both = pair(one, two)
    found = divergence(both)
    assert (found is not None) is alike
    assert ("known of one prompt at a time" in sweep_pair.parting(both, found)) is not alike


def test_at_temperature_0_every_strict_text_is_one(tmp_path) -> None:
    one = swept(tmp_path / "one", toy_prompts(3))
    assert divergence(pair(one, swept(tmp_path / "two", toy_prompts(3), rule="mars-sampling", gamma=2))) is not None


def test_later_turns_after_the_same_answers_are_pairs(tmp_path) -> None:
    talks = conversations(3, 2)
    one, other = swept(tmp_path / "one", talks), swept(tmp_path / "other", talks, rule="mars-margin", gamma=2)
    both = pair(one, other)
    assert both.ids == tuple(item.id for item in talks.items) and both.apart == 0
    assert "Both sweeps hold the same 6 prompts" in both.coverage
    assert divergence(both) is not None


def test_later_turns_after_other_answers_are_none(tmp_path) -> None:
    talks = conversations(3, 2)
    both = pair(swept(tmp_path / "one", talks), swept(tmp_path / "other", talks, max_new_tokens=12))
    assert both.ids == ("q0/1", "q1/1", "q2/1") and both.apart == 3
    assert "share 3 prompts of 6 and 6" in both.coverage
    assert "3 later turns that both hold follow other turns or other answers and are left out" in both.coverage


def test_a_later_turn_after_another_turn_is_none(tmp_path) -> None:
    talks = conversations(2, 3)
    changed = list(talks.items)
    changed[1] = replace(changed[1], prompt="something else")
    both = pair(swept(tmp_path / "one", talks), swept(tmp_path / "other", replace(talks, items=tuple(changed))))
    assert both.ids == ("q0/1", "q1/1", "q1/2", "q1/3") and (both.otherwise, both.apart) == (1, 1)
    assert "1 later turn that both hold follows other turns or other answers and is left out" in both.coverage


def test_first_turns_are_paired_with_those_of_whole_conversations(tmp_path) -> None:
    talks = conversations(4, 2)
    every, first = swept(tmp_path / "every", talks), swept(tmp_path / "first", first_turns(talks))
    both = pair(first, every)
    assert both.ids == ("q0", "q1", "q2", "q3") and both.texts[1] == "question 1, turn 1"
    assert (both.units, both.apart) == (None, 0) and "share 4 prompts of 4 and 8" in both.coverage
    np.testing.assert_array_equal(*both.at("tokens"))
    assert divergence(both) is not None
    assert pair(every, first).ids == ("q0/1", "q1/1", "q2/1", "q3/1")


@pytest.mark.parametrize(
    ("settings", "made", "same"),
    [
        ({"rule": "mars-margin", "gamma": 2, "seed": 4}, {"drafter": "another"}, True),
        ({"max_new_tokens": 12}, {}, False),
        ({"stop": ("w3",)}, {}, False),
        ({"temperature": 0.8}, {}, False),
        ({}, {"target": "another"}, False),
        ({}, {"dtype": "float16"}, False),
    ],
)
def test_what_decides_the_targets_own_answers(settings: dict, made: dict, same: bool, tmp_path) -> None:
    plan = swept(tmp_path / "one", toy_prompts(1)).result.plan

    def changed(plan: Plan, **settings: object) -> Plan:
        return replace(plan, settings=replace(plan.settings, **settings))

    other = replace(changed(plan, **settings), provenance=replace(plan.provenance, **made))
    assert same_answers(plan, other) is same and same_answers(other, plan) is same
    warm = changed(plan, temperature=0.8)
    assert not same_answers(warm, changed(warm, seed=4)) and same_answers(warm, changed(warm, gamma=2))


def costing(one: SweepSetting, **changed: object) -> SweepSetting:
    """The same with other measured costs."""
    return replace(one, result=replace(one.result, costs=replace(one.result.costs, **changed)))


def test_costs_of_one_pair_measured_twice_are_no_difference_of_settings(tmp_path) -> None:
    one = swept(tmp_path / "one")
    again = costing(one, drafter_step=Cost(0.003, 0.003, 0.003))
    both = pair(one, again)
    found = compared(both, ("speed_up",))[0]
    assert (found.change.estimate, found.left) == (0, found.right)
    assert found.left == value_at(one.result, measures(one.result)["speed_up"], one.dial)
    assert "with the costs of passes that the reference measured" in sweep_pair.costs(both)
    assert sweep_pair.costs(pair(one, one)) == ""


def test_the_costs_of_the_longer_blocks_serve_both(tmp_path) -> None:
    short, long = swept(tmp_path / "short", gamma=2), swept(tmp_path / "long")
    both = pair(short, long)
    assert both.costs == (COSTS, COSTS) and "that the other sweep measured" in sweep_pair.costs(both)
    assert len(compared(both, ("speed_up",))) == 1


@pytest.mark.parametrize("other", ["device", "dtype", "target", "drafter"])
def test_costs_of_something_else_stay_apart_and_are_said_to_be(other: str, tmp_path) -> None:
    one = swept(tmp_path / "one", toy_prompts(3))
    both = pair(one, costing(one, drafter_step=Cost(0.003, 0.003, 0.003), **{other: "another"}))
    assert compared(both, ("speed_up",))[0].change.estimate < 0
    assert "each sweep measured for itself" in sweep_pair.costs(both)
