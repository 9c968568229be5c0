"""The wall-clock check where a draft-length controller cuts drafts: what is drafted by the clock, what is modelled
beside it, the file, and the words."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mars_viz import cli
from mars_viz.chat import EncodedPrompt
from mars_viz.commands import decoding
from mars_viz.controllers import CONTROLLERS, NONE
from mars_viz.costs import drafts_seconds
from mars_viz.errors import BadInput
from mars_viz.recording import Recording
from mars_viz.run import Settings
from mars_viz.speculators.speculator import DraftAndScore
from mars_viz.sweep.report import timing_lines
from mars_viz.sweep.timing import CUT, TimingCheck, keep_check, kept_checks
from mars_viz.sweep.wall_clock import WallClock
from mars_viz.ui.tune import words
from tests.sweep_cases import timing, toy_sweep
from tests.tables import table_backend
from tests.test_threshold_sweep import DEAR, GREEDY, independent, threshold_sweep
from tests.test_tune_page import empty, opened, said, section  # noqa: F401

PROMPTS = [EncodedPrompt(f"prompt {place}") for place in range(3)]
AT = {"confidence": 0.5, "threshold": 0.5, "svip": 0.3, "adaedl": 0.4, "specdec++": 0.6}


def clocked(settings, *, fixed=True, backend=None, **options):
    options = {"prompts": PROMPTS, "repetitions": 2, "costs": DEAR, **options}
    clock = WallClock(backend or table_backend(), options.pop("prompts"), settings, fixed=fixed, **options)
    for _ in clock:
        pass
    return clock


SAMPLED = Settings(rule="rejection-sampling", temperature=0.9, seed=2, gamma=3, max_new_tokens=16)


@pytest.mark.parametrize(("name", "settings"), [*((name, GREEDY) for name in AT), ("svip", SAMPLED)])
def test_by_the_clock_a_drafter_takes_the_passes_that_its_controller_lets_it_take(name, settings, monkeypatch):
    asked: list[tuple[int, int]] = []
    drafted = DraftAndScore.drafted

    def spied(self, prefix, steps, count):
        asked.append((steps, count))
        return drafted(self, prefix, steps, count)

    monkeypatch.setattr(DraftAndScore, "drafted", spied)
    controller = CONTROLLERS[name]
    check = clocked(replace(settings, controller=f"{name}:{AT[name]}")).check()
    lengths = []
    for place in range(3):
        rounds = independent(f"prompt {place}", settings, name, AT[name])
        written = sum(len(ids) for ids, _, _ in rounds)
        assert (check.chosen.tokens[place], check.chosen.rounds[place]) == (written, len(rounds))
        lengths.append([count for _, count, _ in rounds])
        whole = independent(f"prompt {place}", settings, name, controller.longest)
        written = sum(len(ids) for ids, _, _ in whole)
        assert (check.strict.tokens[place], check.strict.rounds[place]) == (written, len(whole))
    expected = [(controller.steps(count, 3), count) for text in lengths for count in text]
    warm, timed = asked[: len(lengths[0])], asked[len(lengths[0]) :]
    assert warm == expected[: len(warm)] and timed == 2 * expected
    assert any(steps < 3 for steps, _ in expected), "or nothing was cut"


def test_what_is_modelled_beside_it_is_of_the_rounds_own_lengths():
    cut = replace(GREEDY, controller="confidence:0.5")
    check, controller = clocked(cut).check(), CONTROLLERS["confidence"]
    seconds = {"chosen": 0.0, "strict": 0.0}
    for place in range(3):
        for way, at in (("chosen", 0.5), ("strict", 0.0)):
            drafted = [count for _, count, _ in independent(f"prompt {place}", GREEDY, "confidence", at)]
            seconds[way] += drafts_seconds(DEAR, drafted, [controller.steps(count, 3) for count in drafted])
    tokens = {way.name: way.tokens.sum() for way in (check.chosen, check.strict)}
    over = tokens["chosen"] / seconds["chosen"] / (tokens["strict"] / seconds["strict"])
    assert math.isclose(check.modelled_over_strict, over)
    assert math.isclose(check.modelled_over_target, tokens["chosen"] * DEAR.passes[0].seconds / seconds["chosen"])
    assert check.modelled_low < check.modelled_over_target < check.modelled_high
    bare = clocked(cut, costs=None).check()
    assert math.isnan(bare.modelled_over_strict) and math.isnan(bare.modelled_over_target)
    assert "modelled" not in words.timed(bare)[0], "what is not known is not told"
    dialled = clocked(replace(GREEDY, controller="confidence:0.5"), fixed=False).check()
    assert (dialled.dial, dialled.over, dialled.controller) == (0.8, "", "confidence:0.5")
    strict = [independent(f"prompt {place}", replace(GREEDY, dial=1.0), "confidence", 0.5) for place in range(3)]
    assert dialled.strict.rounds.tolist() == [*map(len, strict)]


@pytest.mark.parametrize(("temperature", "cut"), [(0.0, "threshold:0.6"), (0.8, "svip:0.15")])
def test_the_built_in_pair_writes_by_the_clock_what_it_writes_when_all_is_drafted(pair, temperature, cut):
    rule = "mars" if temperature == 0 else "rejection-sampling"
    settings = Settings(rule=rule, temperature=temperature, max_new_tokens=40, controller=cut)
    prompt = "Once upon a time, there was a little fox who"
    clock = clocked(settings, backend=pair, prompts=[EncodedPrompt(prompt)], costs=None)
    run = Recording(pair, prompt, settings).finish()
    for found in clock._found["chosen"][0]:
        assert found.token_ids == run.token_ids
        assert found.drafted == tuple(len(each.speculation) for each in run.rounds)
    assert 0 in found.drafted or not cut.startswith("threshold"), "an empty draft is one, too"


def test_a_check_is_read_back_and_belongs_to_its_own_sweep(tmp_path):
    result = threshold_sweep(tmp_path / "svip", "svip", count=2)
    check = replace(timing(), dial=0.3, over="svip", at=0.8, created="2026-01-01", modelled_over_target=3.5)
    keep_check(result.folder, check)
    kept = kept_checks(result.folder, result.plan)
    assert kept.found == (kept.latest(0.3),) and kept.found[0].to_json() == check.to_json() and not kept.problems
    for other in ({"over": "adaedl"}, {"at": 0.9}, {"at": math.nan}, {"over": "", "at": math.nan}):
        keep_check(result.folder, replace(check, **other))
    kept = kept_checks(result.folder, result.plan)
    assert len(kept.found) == 1 and len(kept.problems) == 4 and "of another sweep" in kept.problems[0]
    plain_check = timing()
    assert '"schema": 1,' in plain_check.to_json() and '"over"' not in plain_check.to_json()
    assert TimingCheck.from_json(plain_check.to_json().encode()).controller == NONE
    cut = toy_sweep(tmp_path / "cut", 2, replace(GREEDY, dial=None, controller="svip:0.3")).finish()
    for made in (timing(), replace(timing(), controller="svip:0.3"), replace(timing(), controller="svip:0.4")):
        keep_check(cut.folder, made)
    assert [each.controller for each in kept_checks(cut.folder, cut.plan).found] == ["svip:0.3"]


def test_checks_of_thresholds_are_printed_against_fixed_gamma():
    check = replace(timing(), dial=0.3, over="svip", at=0.8)
    assert "fixed γ (modelled 1.50×)" in words.timed(check)[0] and "fixed γ" in words.timed(check)[1]
    lines = "\n".join(timing_lines(check))
    assert "fixed γ" in lines and "strict" not in lines and CUT in lines
    assert CUT not in "\n".join(timing_lines(timing())) and "strict" in "\n".join(timing_lines(timing()))


def test_the_command_times_a_threshold(pair, tmp_path, capsys, monkeypatch, unmeasured):
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pair)
    asked = ["sweep", "--set", "builtin", "--limit", "1", "--max-new-tokens", "12", "--out", str(tmp_path / "a")]
    asked += ["--controller", "svip:0.2", "--over", "controller", "--wall-clock", "--timed", "1", "--repetitions", "1"]
    assert cli.main(asked) == 0
    assert CUT in capsys.readouterr().out
    (check,) = (tmp_path / "a" / "checks").iterdir()
    assert '"over": "svip"' in check.read_text()


def test_a_rule_without_a_dial_is_timed_where_drafts_are_cut_alone():
    settings = replace(GREEDY, rule="strict", dial=None)
    check = clocked(replace(settings, controller="svip:0.3")).check()
    assert (check.dial, check.over) == (0.3, "svip") and math.isnan(check.at) and check.same_as_target == 3
    with pytest.raises(BadInput, match="a rule with a dial"):
        WallClock(table_backend(), PROMPTS, settings)
