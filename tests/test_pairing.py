"""Two sweeps in pairs: what they share, what differs, and how sure that is."""

from dataclasses import replace

import numpy as np
import pytest

from mars_viz.costs import Cost
from mars_viz.errors import BadInput
from mars_viz.sweep import difference_at, load_sweep, measures, value_at
from mars_viz.sweep.pairing import SweepSetting, compared, divergence, pair, turned
from mars_viz.sweep.plan import same_answers
from mars_viz.sweep.result import Failure
from mars_viz.ui.compare import sweep_pair
from tests.factories import toy_run
from tests.sweep_cases import COSTS, SETTINGS, conversations, first_turns, sweep_over, toy_prompts


def swept(place, prompts=None, **asked):
    sweep_over(place, toy_prompts(8) if prompts is None else prompts, replace(SETTINGS, **asked))
    result = load_sweep(place)
    return SweepSetting(result, result.plan.rule.dial.default)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return swept(tmp_path_factory.mktemp("pairs") / "one")


def test_a_sweep_beside_itself_is_what_it_says_of_two_of_its_settings(one):
    both = pair(SweepSetting(one.result, 1.0), SweepSetting(one.result, 0.6))
    known = measures(one.result)
    for found in compared(both, ("tau", "tokens", "acceptance", "speed_up_strict")):
        alone = difference_at(one.result, known[found.measure.name], 0.6, 1.0)
        assert (found.change.estimate, found.change.low) == pytest.approx((alone.estimate, alone.low))
        assert found.right.estimate - found.left.estimate == pytest.approx(found.change.estimate)
    right, (worse, better) = one.result.at("right", np.array([1.0, 0.6])), turned(both)
    np.testing.assert_array_equal(worse, right[:, 0] > right[:, 1])
    np.testing.assert_array_equal(better, right[:, 0] < right[:, 1])


def test_an_accuracy_that_no_prompt_changes_is_not_called_certain(one, tmp_path):
    accuracy, strict = measures(one.result)["accuracy"], one.result.plan.strict
    change = difference_at(one.result, accuracy, float(np.nextafter(strict, 0)), strict)
    assert change.estimate == 0 and change.low < 0 < change.high
    twice = SweepSetting(one.result, strict)
    (paired,) = compared(pair(twice, replace(twice)), ("accuracy",))
    assert paired.change == difference_at(one.result, accuracy, strict, strict)
    assert (paired.change.low, paired.change.high) == (0, 0), "one setting beside itself is certain"
    talks = swept(tmp_path / "talks", conversations(6, 3))
    for each, questions in ((one, 8), (talks, 6)):
        again = SweepSetting(load_sweep(each.result.folder), each.dial)
        change = compared(pair(each, again), ("accuracy",))[0].change
        low, high = measures(each.result)["accuracy_change"].agreed(0.0, questions, 0.95)
        assert (change.estimate, change.low, change.high) == (0, low, high) and low < 0 < high


def test_prompts_are_paired_by_id_and_text(one, tmp_path):
    prompts = toy_prompts(8)
    reordered = replace(prompts, items=tuple(reversed(prompts.items[2:])))
    both = pair(one, swept(tmp_path / "other", reordered))
    assert both.ids == tuple(f"p{i}" for i in range(2, 8)) and both.texts[0] == "prompt 2"
    np.testing.assert_array_equal(*both.at("tokens"))
    assert all(found.change.estimate == 0 for found in compared(both, ("tau", "tokens", "same", "accuracy")))
    assert "6 prompts of 8 and 6" in both.coverage
    changed = replace(prompts, items=(replace(prompts.items[0], prompt="something else"), *prompts.items[1:4]))
    both = pair(one, swept(tmp_path / "changed", changed))
    assert both.ids == ("p1", "p2", "p3") and both.otherwise == 1
    strange = replace(prompts, name="others", items=tuple(replace(item, id=f"x{item.id}") for item in prompts.items))
    with pytest.raises(BadInput, match="“toys”.*“others”"):
        pair(one, swept(tmp_path / "strange", strange))
    with pytest.raises(BadInput, match="goes from"):
        pair(one, SweepSetting(one.result, 7.0))


def test_a_sweep_that_failed_throughout_is_no_sweep_of_another_set(one):
    nothing = replace(
        one.result,
        failures=(Failure("p0", "The prompt is too long."),),
        prompts={name: column[:0] for name, column in one.result.prompts.items()},
        starts=one.result.starts[:1],
        lines={name: column[:0] for name, column in one.result.lines.items()},
    )
    for left in (one, empty := SweepSetting(nothing, 0.5)):
        with pytest.raises(BadInput, match="The prompt is too long."):
            pair(left, empty)


def test_where_texts_part_is_where_the_first_of_them_leaves_strict(one, tmp_path):
    other = swept(tmp_path / "other", rule="mars-margin")
    both = pair(SweepSetting(one.result, 0.5), SweepSetting(other.result, other.result.plan.strict))
    found = divergence(both)
    assert found is not None and found.exact.all()
    np.testing.assert_array_equal(found.first, both.at("first_divergence")[0])
    assert (found.first >= 0).any()
    alike = divergence(pair(SweepSetting(one.result, 0.5), SweepSetting(one.result, 0.5)))
    assert alike is not None and not alike.exact[alike.first >= 0].any()
    assert divergence(pair(one, swept(tmp_path / "shorter", max_new_tokens=12))) is None
    assert divergence(pair(one, swept(tmp_path / "two", toy_prompts(3), rule="mars-sampling", gamma=2))) is not None


def test_turns_of_a_question_are_drawn_together(tmp_path):
    one = swept(tmp_path / "one", conversations(6, 3))
    both, known = pair(SweepSetting(one.result, 1.0), SweepSetting(one.result, 0.5)), measures(one.result)
    assert both.units is not None and len(np.unique(both.units)) == 6
    for found in compared(both, ("tau", "tokens", "acceptance", "same", "accuracy")):
        measure = known[found.measure.name]
        assert (found.left, found.right) == (value_at(one.result, measure, 1.0), value_at(one.result, measure, 0.5))
        if found.measure.name != "accuracy":
            assert found.change == difference_at(one.result, measure, 0.5, 1.0)
    singly = {name: values for name, values in one.result.prompts.items() if name != "question"}
    alone = difference_at(replace(one.result, prompts=singly), known["tau"], 0.5, 1.0)
    assert alone != compared(both, ("tau",))[0].change


@pytest.mark.parametrize(
    ("rule", "gamma", "beside", "other", "alike"),
    [
        ("mars", 3, "mars-margin", 3, True),
        ("mars", 3, "mars", 2, False),
        ("mars", 3, "mars-sampling", 3, False),
        ("sglang-single", 3, "sglang-acc", 2, True),
        ("sglang-single", 3, "mars", 3, False),
    ],
)
def test_above_temperature_0_texts_part_only_from_one_strict_text(rule, gamma, beside, other, alike, tmp_path):
    warm = {"temperature": 0.8, "seed": 3}
    one = swept(tmp_path / "one", toy_prompts(3), rule=rule, gamma=gamma, **warm)
    two = swept(tmp_path / "two", toy_prompts(3), rule=beside, gamma=other, **warm)
    texts = []
    for name, block, side in ((rule, gamma, one), (beside, other, two)):
        how = {"rule": name, "gamma": block, "dial": side.result.plan.strict, "temperature": 0.8}
        texts.append([toy_run(seed=seed, **how).token_ids for seed in range(4)])
    assert (texts[0] == texts[1]) is alike
    assert (divergence(pair(one, two)) is not None) is alike


def test_later_turns_after_the_same_answers_are_pairs(tmp_path):
    talks = conversations(3, 2)
    one, other = swept(tmp_path / "one", talks), swept(tmp_path / "other", talks, rule="mars-margin", gamma=2)
    both = pair(one, other)
    assert both.ids == tuple(item.id for item in talks.items) and both.apart == 0
    assert "same 6 prompts" in both.coverage and divergence(both) is not None
    both = pair(one, swept(tmp_path / "shorter", talks, max_new_tokens=12))
    assert both.ids == ("q0/1", "q1/1", "q2/1") and both.apart == 3
    assert "3 prompts of 6 and 6" in both.coverage and "3 later turns" in both.coverage
    talks = conversations(2, 3)
    changed = list(talks.items)
    changed[1] = replace(changed[1], prompt="something else")
    both = pair(swept(tmp_path / "one2", talks), swept(tmp_path / "other2", replace(talks, items=tuple(changed))))
    assert both.ids == ("q0/1", "q1/1", "q1/2", "q1/3") and (both.otherwise, both.apart) == (1, 1)
    talks = conversations(4, 2)
    every, first = swept(tmp_path / "every3", talks), swept(tmp_path / "first3", first_turns(talks))
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
def test_what_decides_the_targets_own_answers(settings, made, same, tmp_path):
    plan = swept(tmp_path / "one", toy_prompts(1)).result.plan

    def changed(plan, **settings):
        return replace(plan, settings=replace(plan.settings, **settings))

    other = replace(changed(plan, **settings), provenance=replace(plan.provenance, **made))
    assert same_answers(plan, other) is same and same_answers(other, plan) is same
    warm = changed(plan, temperature=0.8)
    assert not same_answers(warm, changed(warm, seed=4)) and same_answers(warm, changed(warm, gamma=2))


def costing(one, **changed):
    return replace(one, result=replace(one.result, costs=replace(one.result.costs, **changed)))


def test_costs_of_one_pair_measured_twice_are_no_difference_of_settings(one, tmp_path):
    again = costing(one, drafter_step=Cost(0.003, 0.003, 0.003))
    both = pair(one, again)
    found = compared(both, ("speed_up",))[0]
    assert (found.change.estimate, found.left) == (0, found.right)
    assert found.left == value_at(one.result, measures(one.result)["speed_up"], one.dial)
    assert "the reference measured" in sweep_pair.costs(both) and sweep_pair.costs(pair(one, one)) == ""
    longer = pair(swept(tmp_path / "short", gamma=2), one)  # whose costs cover both
    assert longer.costs == (COSTS, COSTS) and "the other sweep measured" in sweep_pair.costs(longer)
    assert len(compared(longer, ("speed_up",))) == 1
    for other in ("device", "dtype", "target", "drafter"):
        both = pair(one, costing(one, drafter_step=Cost(0.003, 0.003, 0.003), **{other: "another"}))
        assert compared(both, ("speed_up",))[0].change.estimate < 0
        assert "for itself" in sweep_pair.costs(both)
