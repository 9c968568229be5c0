"""Two settings or sweeps in pairs: shared prompts, differences, and both texts on Compare."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from mars_viz.analysis.alignment import Unit
from mars_viz.components.compare import text_pane, texts_payload
from mars_viz.costs import Cost
from mars_viz.errors import BadInput
from mars_viz.records import emitted
from mars_viz.sweep import load_sweep, measures, pairing, value_at
from mars_viz.sweep.pairing import Change, SweepSetting, compared, pair, turned
from mars_viz.sweep.plan import same_answers
from mars_viz.ui.compare import saved_sweeps
from tests.sweep_cases import COSTS, SETTINGS, alone, conversations, first_turns, sweep_over, toy_prompts, toy_sweep
from tests.test_compare_page import folder, link, opened, recorded  # noqa: F401
from tests.test_rules_page import said

COUNT = 12


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return toy_sweep(tmp_path_factory.mktemp("two") / "mars", COUNT).finish()


def settings(result, left=1.0, right=0.3):
    return pair(SweepSetting(result, left), SweepSetting(result, right))


def test_both_texts_and_their_order(swept, tmp_path):
    both, differing = settings(swept), 0
    entries, (left, right) = pairing.changes(both), both.at("right")
    order = [list(Change).index(change) for change in entries.values()]
    assert sorted(entries) == list(range(COUNT)) and order == sorted(order) and len(set(order)) > 2
    for place, item in enumerate(toy_prompts(COUNT).items):
        (one, other, alignment), change = pairing.kept(both, place), entries[place]
        ours, theirs = (emitted(alone(item.prompt, SETTINGS, dial)) for dial in (1.0, 0.3))
        assert (one.tokens, other.tokens) == (ours, theirs)
        sides = (one, alignment.left), (other, alignment.right)
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        assert sides[0][1].parts == first == sides[1][1].parts or ours == theirs
        differing += ours != theirs
        assert {Change.SAME: False, Change.DIFFERS: True}.get(change, ours != theirs) is (ours != theirs)
        assert (change is Change.WORSE, change is Change.BETTER) == (
            left[place] > right[place],
            left[place] < right[place],
        )
        sent = texts_payload("", *(text_pane("a", "", *side) for side in sides), alignment.unit)
        assert json.loads(json.dumps(sent)) == sent
    assert 0 < differing < COUNT
    margin = replace(SETTINGS, rule="mars-margin")
    other = pair(SweepSetting(swept, 0.3), SweepSetting(toy_sweep(tmp_path / "margin", 3, margin).finish(), 2.0))
    assert pairing.kept(other, 1)[1].tokens == emitted(alone("prompt 1", margin, 2.0))
    assert set(pairing.changes(settings(swept, 0.3, 0.3)).values()) == {Change.SAME}


def test_missing_texts_and_those_of_another_sweep_are_not_shown(swept, tmp_path):
    other = toy_sweep(tmp_path / "other", 3, replace(SETTINGS, max_new_tokens=9)).finish()
    older = load_sweep(shutil.copytree(swept.folder, tmp_path / "older"))
    shutil.rmtree(older.folder / "texts")
    again = load_sweep(older.folder)
    whose = ((older, older, "This"), (swept, older, "The compared"), (older, swept, "The reference"))
    for left, right, start in (*whose, (older, again, "Neither")):
        both = pair(SweepSetting(left, 1.0), SweepSetting(right, 0.5))
        with pytest.raises(BadInput, match=f"^{start} sweep holds"):
            pairing.kept(both, 0)
    shutil.copytree(other.folder / "texts", older.folder / "texts")
    with pytest.raises(BadInput, match="is not of this sweep"):
        pairing.kept(settings(older), 0)


def test_tokens_are_compared_within_one_vocabulary_only(swept, monkeypatch):
    def of_plan(one, **changed):
        return SweepSetting(replace(one, plan=replace(one.plan, **changed)), 0.3)

    made, left = swept.plan.provenance, SweepSetting(swept, 0.3)
    elsewhere, revised = replace(made, target="other"), replace(made, target_revision="another")
    longer = replace(swept, lines={**swept.lines, "tokens": swept.lines["tokens"] + 1})
    for provenance, change in ((made, Change.SAME), (elsewhere, Change.PERHAPS)):
        other = of_plan(longer, provenance=provenance)
        assert set(pairing.changes(pair(left, other)).values()) == {change}
    monkeypatch.setattr(pairing, "same_vocabulary", lambda *_: False)
    others = SweepSetting(swept, 1.0), *(of_plan(swept, provenance=each) for each in (made, elsewhere, revised))
    units = [pairing.kept(pair(left, other), 0)[-1].unit for other in others]
    assert units == [Unit.TOKENS, Unit.TOKENS, Unit.CHARACTERS, Unit.CHARACTERS]


def test_a_link_opens_the_chosen_prompt_and_damaged_texts_are_a_sentence(folder, tmp_path, monkeypatch, swept):  # noqa: F811
    shelf, sent = tmp_path / "sweeps", []
    shutil.copytree(swept.folder, shelf / "tuesday")
    monkeypatch.setenv("MARS_VIZ_SWEEPS", str(shelf))
    monkeypatch.setattr(saved_sweeps, "show", lambda payload, *, key: sent.append(payload))
    tab = opened(across="sweep", sweep="tuesday", to="0.3")
    assert not tab.exception and "prompt" not in link(tab)
    first = tab.selectbox(key="compare-prompt").value
    chosen = next(f"p{place}" for place in range(COUNT) if f"p{place}" != first)
    tab.selectbox(key="compare-prompt").select(chosen).run()
    assert link(tab)["prompt"] == chosen and sent[-1]["prompt"] == f"prompt {chosen[1:]}"
    fresh = opened(**link(tab))
    assert fresh.selectbox(key="compare-prompt").value == chosen and sent[-1] == sent[-2]
    assert link(fresh) == link(tab) and said(fresh) == said(tab)
    assert "“p99” is not among those compared" in said(opened(across="sweep", sweep="tuesday", prompt="p99"))
    sent.clear()
    for path in (shelf / "tuesday" / "texts").iterdir():
        path.write_bytes(b"nonsense")
    tab = opened(across="sweep", sweep="tuesday")
    assert not tab.exception and "is damaged" in said(tab) and not sent


def swept_pairing(place, prompts=None, **asked):
    sweep_over(place, toy_prompts(8) if prompts is None else prompts, replace(SETTINGS, **asked))
    result = load_sweep(place)
    return SweepSetting(result, result.plan.rule.dial.default)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return swept_pairing(tmp_path_factory.mktemp("pairs") / "one")


def test_a_sweep_beside_itself_is_what_it_says_and_an_unchanged_accuracy_is_not_certain(one, tmp_path):
    both = pair(SweepSetting(one.result, 1.0), SweepSetting(one.result, 0.6))
    for found in compared(both, ("tau", "tokens", "acceptance", "speed_up_strict")):
        assert found.right.estimate - found.left.estimate == pytest.approx(found.change.estimate)
    right, (worse, better) = one.result.at("right", np.array([1.0, 0.6])), turned(both)
    np.testing.assert_array_equal((worse, better), (right[:, 0] > right[:, 1], right[:, 0] < right[:, 1]))
    strict = one.result.plan.strict
    twice, beside = (SweepSetting(one.result, at) for at in (strict, float(np.nextafter(strict, 0))))
    (near,) = compared(pair(twice, beside), ("accuracy",))
    assert near.change.estimate == 0 and near.change.low < 0 < near.change.high
    (paired,) = compared(pair(twice, replace(twice)), ("accuracy",))
    assert (paired.change.low, paired.change.high) == (0, 0), "one setting beside itself is certain"
    talks = swept_pairing(tmp_path / "talks", conversations(6, 3))
    for each, questions in ((one, 8), (talks, 6)):
        again = SweepSetting(load_sweep(each.result.folder), each.dial)
        change = compared(pair(each, again), ("accuracy",))[0].change
        low, high = measures(each.result)["accuracy_change"].agreed(0.0, questions, 0.95)
        assert (change.estimate, change.low, change.high) == (0, low, high) and low < 0 < high


def test_prompts_are_paired_by_id_and_text(one, tmp_path):
    prompts = toy_prompts(8)
    reordered = replace(prompts, items=tuple(reversed(prompts.items[2:])))
    both = pair(one, swept_pairing(tmp_path / "other", reordered))
    assert both.ids == tuple(f"p{i}" for i in range(2, 8)) and both.texts[0] == "prompt 2"
    assert all(found.change.estimate == 0 for found in compared(both, ("tau", "tokens", "same", "accuracy")))
    assert "6 prompts of 8 and 6" in both.coverage
    changed = replace(prompts, items=(replace(prompts.items[0], prompt="something else"), *prompts.items[1:4]))
    both = pair(one, swept_pairing(tmp_path / "changed", changed))
    assert both.ids == ("p1", "p2", "p3") and both.otherwise == 1
    strange = replace(prompts, name="others", items=tuple(replace(item, id=f"x{item.id}") for item in prompts.items))
    other = swept_pairing(tmp_path / "strange", strange)
    for each, why in ((other, "“toys”.*“others”"), (SweepSetting(one.result, 7.0), "goes from")):
        with pytest.raises(BadInput, match=why):
            pair(one, each)


def test_where_texts_part_is_known_from_them_of_one_vocabulary(one, tmp_path):
    other = swept_pairing(tmp_path / "other", rule="mars-margin")
    both = pair(SweepSetting(one.result, 0.5), SweepSetting(other.result, other.result.plan.strict))
    assert (both.divergence >= 0).any()
    np.testing.assert_array_equal(both.divergence, both.at("first_divergence")[0])
    assert (pair(SweepSetting(one.result, 0.5), SweepSetting(one.result, 0.5)).divergence < 0).all()
    shorter = pair(one, swept_pairing(tmp_path / "shorter", max_new_tokens=12)).divergence
    assert set(shorter.tolist()) <= {-1, *range(13)}
    shutil.rmtree(other.result.folder / "texts")
    assert pair(one, other).divergence is None


def test_later_turns_after_the_same_answers_are_pairs(tmp_path):
    talks = conversations(4, 2)
    one, first = swept_pairing(tmp_path / "one", talks), swept_pairing(tmp_path / "first", first_turns(talks))
    both = pair(one, swept_pairing(tmp_path / "other", talks, rule="mars-margin", gamma=2))
    assert both.ids == tuple(item.id for item in talks.items) and both.apart == 0
    assert "same 8 prompts" in both.coverage and both.divergence is not None
    both = pair(one, swept_pairing(tmp_path / "shorter", talks, max_new_tokens=12))
    assert both.ids == ("q0/1", "q1/1", "q2/1", "q3/1") and both.apart == 4
    assert "4 prompts of 8 and 8" in both.coverage and "4 later turns" in both.coverage
    both = pair(first, one)
    assert both.ids == ("q0", "q1", "q2", "q3") and both.texts[1] == "question 1, turn 1"
    assert (both.units, both.apart) == (None, 0) and both.divergence is not None
    talks = conversations(2, 3)
    changed = [replace(item, prompt="something else") if item.id == "q0/2" else item for item in talks.items]
    other = swept_pairing(tmp_path / "changed", replace(talks, items=tuple(changed)))
    both = pair(swept_pairing(tmp_path / "long", talks), other)
    assert both.ids == ("q0/1", "q1/1", "q1/2", "q1/3") and (both.otherwise, both.apart) == (1, 1)


def test_what_decides_the_targets_own_answers(one):
    plan = one.result.plan
    warm = replace(plan, settings=replace(plan.settings, temperature=0.8))
    for base, how, made, same in (
        (plan, {"rule": "mars-margin", "gamma": 2, "seed": 4}, {"drafter": "another"}, True),
        (plan, {"max_new_tokens": 12}, {}, False),
        (plan, {"stop": ("w3",)}, {}, False),
        (plan, {"temperature": 0.8}, {}, False),
        (plan, {}, {"target": "another"}, False),
        (plan, {}, {"dtype": "float16"}, False),
        (warm, {"seed": 4}, {}, False),
        (warm, {"gamma": 2}, {}, True),
    ):
        provenance = replace(base.provenance, **made)
        other = replace(base, settings=replace(base.settings, **how), provenance=provenance)
        assert same_answers(base, other) is same is same_answers(other, base)


def test_costs_of_one_pair_measured_twice_are_no_difference_of_settings(one, tmp_path):
    def costing(**changed):
        made = replace(one.result.costs, drafter_step=Cost(0.003, 0.003, 0.003), **changed)
        return pair(one, replace(one, result=replace(one.result, costs=made)))

    (found,) = compared(both := costing(), ("speed_up",))
    assert (found.change.estimate, found.left) == (0, found.right)
    assert found.left == value_at(one.result, measures(one.result)["speed_up"], one.dial)
    assert "the reference measured" in saved_sweeps.costs_basis(both) and saved_sweeps.costs_basis(pair(one, one)) == ""
    longer = pair(swept_pairing(tmp_path / "short", gamma=2), one)  # whose costs cover both
    assert longer.costs == (COSTS, COSTS) and len(compared(longer, ("speed_up",))) == 1
    for other in ("device", "dtype", "target", "drafter"):
        both = costing(**{other: "another"})
        assert compared(both, ("speed_up",))[0].change.estimate < 0 and "for itself" in saved_sweeps.costs_basis(both)
