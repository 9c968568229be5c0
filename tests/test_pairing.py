"""Two sweeps in pairs: what they share, what differs, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mars_viz.errors import BadInput
from mars_viz.sweep import difference_at, load_sweep, measures
from mars_viz.sweep.pairing import Setting, compared, divergence, pair, turned
from tests.sweep_cases import SETTINGS, sweep_over, toy_prompts


def swept(place: Path, prompts=None, **asked: object) -> Setting:
    sweep_over(place, toy_prompts(8) if prompts is None else prompts, replace(SETTINGS, **asked))
    result = load_sweep(place)
    return Setting(result, result.plan.rule.dial.default)


def test_a_sweep_beside_itself_is_what_it_says_of_two_of_its_settings(tmp_path) -> None:
    one = swept(tmp_path / "one")
    both = pair(Setting(one.result, 1.0), Setting(one.result, 0.6))
    known = measures(one.result)
    for found in compared(both, ("tau", "tokens", "acceptance", "speed_up_strict")):
        alone = difference_at(one.result, known[found.measure.name], 0.6, 1.0)
        assert (found.change.estimate, found.change.low) == pytest.approx((alone.estimate, alone.low))
        assert found.right.estimate - found.left.estimate == pytest.approx(found.change.estimate)


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


def test_a_dial_value_that_was_not_swept_is_refused(tmp_path) -> None:
    one = swept(tmp_path / "one")
    with pytest.raises(BadInput, match="goes from"):
        pair(one, Setting(one.result, 7.0))


def test_where_texts_part_is_where_the_first_of_them_leaves_strict(tmp_path) -> None:
    one, other = swept(tmp_path / "one"), swept(tmp_path / "other", rule="mars-margin")
    both = pair(Setting(one.result, 0.5), Setting(other.result, other.result.plan.strict))
    found = divergence(both)
    assert found is not None and found.exact.all()
    np.testing.assert_array_equal(found.first, both.at("first_divergence")[0])
    assert (found.first >= 0).any()
    alike = divergence(pair(Setting(one.result, 0.5), Setting(one.result, 0.5)))
    assert alike is not None and not alike.exact[alike.first >= 0].any()


def test_of_other_seeds_it_is_not_known_where_texts_part(tmp_path) -> None:
    one, other = swept(tmp_path / "one"), swept(tmp_path / "other", max_new_tokens=12)
    assert divergence(pair(one, other)) is None


def test_answers_that_turn_are_counted_both_ways(tmp_path) -> None:
    one = swept(tmp_path / "one")
    both = pair(Setting(one.result, 1.0), Setting(one.result, 0.5))
    right = one.result.at("right", np.array([1.0, 0.5]))
    worse, better = turned(both)
    np.testing.assert_array_equal(worse, right[:, 0] > right[:, 1])
    np.testing.assert_array_equal(better, right[:, 0] < right[:, 1])


def test_accuracy_that_no_prompt_changes_is_not_called_certain(tmp_path) -> None:
    one = swept(tmp_path / "one")
    accuracy = next(iter(compared(pair(one, one), ("accuracy",))))
    assert accuracy.change.estimate == 0 and accuracy.change.low < 0 < accuracy.change.high
