"""Sweeps of a draft-length controller's threshold: lines, speed-ups, pairs and the wall clock."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from mars_viz import cli
from mars_viz.analysis.recommendation import Finding
from mars_viz.axis import RuleDial, Threshold
from mars_viz.chat import EncodedPrompt
from mars_viz.controllers import CONTROLLERS, NONE
from mars_viz.costs import Cost, at_ends, drafts_seconds, per_token
from mars_viz.errors import BadInput
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import DraftAndScore
from mars_viz.sweep import Sweep, frontier, load_sweep, measures, value_at
from mars_viz.sweep.document import lead, timed
from mars_viz.sweep.grid import advised, chosen_dial, fastest, grid_of
from mars_viz.sweep.pairing import SweepSetting, compared, pair
from mars_viz.sweep.report import Advised, CachedSweep, best_of, grid_table
from mars_viz.sweep.wall_clock import TimingCheck, WallClock, clock_options, keep_check, kept_checks
from mars_viz.ui.compare import saved_sweeps
from mars_viz.ui.compare.page_state import Names
from tests.sweep_cases import COSTS, accuracy, evidence_files, summary_of, timing, toy_prompts, toy_sweep
from tests.tables import table_backend
from tests.test_controllers import alone

GREEDY = Settings(rule="mars", dial=0.8, gamma=3, max_new_tokens=16)
SAMPLED = Settings(rule="rejection-sampling", temperature=0.9, seed=2, gamma=3, max_new_tokens=16)
DEAR = replace(COSTS, drafter_step=Cost(0.004, 0.0039, 0.0041))
"""Costs by which a drafted token is far from free."""


def threshold_sweep(out, name="confidence", settings=GREEDY, *, costs=DEAR, count=6, graded=True):
    span = Threshold(CONTROLLERS[name], settings.gamma).span(None, None, (settings.gamma,))
    return Sweep(table_backend(), toy_prompts(count, graded), settings, span, out, costs=costs).finish()


def independent(prompt, settings, name, threshold):
    return alone(settings, name, threshold, prompt=table_backend().tokenizer.encode(prompt))


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_every_line_is_what_a_decode_by_a_drafter_that_stops_says(tmp_path, name):
    for settings in (GREEDY, SAMPLED):
        result = threshold_sweep(tmp_path / settings.rule, name, settings, count=3)
        controller, edges = CONTROLLERS[name], result.edges[:-1]
        drawn = np.random.default_rng(4).uniform(result.plan.low, result.plan.high, 6)
        dials = np.concatenate([drawn, edges, np.nextafter(edges[1:], -math.inf)])
        for place, item in enumerate(toy_prompts(3).items):
            whole = tuple(t for ids, _, _ in independent(item.prompt, settings, name, controller.longest) for t in ids)
            for dial, row in zip(dials.tolist(), result.rows(dials)[place], strict=True):
                rounds = independent(item.prompt, settings, name, dial)
                text = tuple(t for ids, _, _ in rounds for t in ids)
                lines, drafted = {n: v[row] for n, v in result.lines.items()}, [each for _, each, _ in rounds]
                assert (lines["tokens"], lines["rounds"], lines["drafted"]) == (len(text), len(rounds), sum(drafted))
                assert lines["lengths"].tolist() == [drafted.count(n) for n in range(settings.gamma + 1)]
                assert lines["same"] == (text == whole) and lines["kept"] == sum(kept for _, _, kept in rounds)
                steps = [controller.steps(each, settings.gamma) for each in drafted]
                assert math.isclose(lines["modelled"], drafts_seconds(DEAR, drafted, steps))
        assert result.prompts["off_is_strict"].all()


def test_speed_ups_are_of_modelled_seconds_and_their_intervals_hold_the_costs(tmp_path):
    result = threshold_sweep(tmp_path / "sweep")
    known, dial = measures(result), 0.5
    rows = [result.rows(np.array([at]))[:, 0] for at in (dial, 0.0)]
    tokens, seconds = ([result.lines[name][each].sum() for each in rows] for name in ("tokens", "modelled"))
    over = value_at(result, known["speed_up_strict"], dial)
    assert math.isclose(over.estimate, tokens[0] / seconds[0] / (tokens[1] / seconds[1]))
    assert math.isclose(value_at(result, known["speed_up"], dial).estimate, tokens[0] * 0.010 / seconds[0])
    sure = replace(result, costs=replace(DEAR, drafter_step=Cost(0.004, 0.004, 0.004)))
    narrow = value_at(sure, measures(sure)["speed_up_strict"], dial)
    assert over.low < narrow.low < narrow.high < over.high and narrow.estimate == over.estimate
    at_full = value_at(result, known["speed_up_strict"], 0.0)
    assert (at_full.low, at_full.estimate, at_full.high) == (1, 1, 1)
    for low, high in at_ends(DEAR):
        assert drafts_seconds(low, range(4), range(4)) <= drafts_seconds(high, range(4), range(4))


def test_the_fastest_threshold_is_recommended_where_it_is_shown_to_be_faster(tmp_path):
    result = threshold_sweep(tmp_path / "sweep", count=24)
    found, known = advised(result, accuracy(100.0, 0.95)), measures(result)
    assert found is not None and found.finding is Finding.RECOMMENDED and found.dial is not None
    speeds = [value_at(result, known["speed_up_strict"], dial).estimate for dial in (*result.edges[:-1], found.dial)]
    assert max(speeds) == speeds[-1]
    fewer = round(100 * (1 - value_at(result, known["drafted_share"], found.dial).estimate))
    for part in (f"q(x) < {found.dial:g} (Confidence): {fewer} %", "fixed γ", "24 graded prompts"):
        assert part in found.sentence
    careful = fastest(result, accuracy(0.001, 0.95))
    assert careful.finding is Finding.NOT_ENOUGH and careful.dial is None and "0.001" in careful.sentence
    assert chosen_dial(result, careful) == found.dial, "which the page opens at"
    costs = replace(COSTS, drafter_step=Cost(1e-9, 1e-9, 1e-9))
    none = fastest(threshold_sweep(tmp_path / "free", costs=costs, count=24), accuracy(100.0, 0.95))
    whole = fastest(threshold_sweep(tmp_path / "whole", "length", costs=costs, count=24), accuracy(0.001, 0.95))
    assert (whole.finding, whole.dial, whole.bound) == (Finding.RECOMMENDED, 3.0, 0.0), "of itself it changes nothing"
    assert none.finding is Finding.NO_GAIN and none.dial is None and "No threshold" in none.sentence
    bare = threshold_sweep(tmp_path / "bare", costs=None)
    assert "not known" in fastest(bare, accuracy(1.0, 0.95)).sentence and "speed_up" not in measures(bare)
    with pytest.raises(BadInput, match="no speed-up to plot"):
        frontier(bare)
    found = advised(
        threshold_sweep(tmp_path / "ungraded", "svip", SAMPLED, count=24, graded=False), accuracy(1.0, 0.95)
    )
    assert found is not None and (found.finding is Finding.NO_GAIN or "lossless at every" in found.sentence)


def test_the_files_and_sentences_hold_the_threshold(tmp_path):
    result = threshold_sweep(tmp_path / "sweep", count=8)
    path, plan = tmp_path / "sweep" / "sweep.json", result.plan
    sheet = json.loads(path.read_text())
    assert load_sweep(tmp_path / "sweep").plan == plan and plan.title == "Confidence with MARS at θ = 0.80"
    assert (plan.over, plan.settings.dial, plan.strict, plan.loosest) == ("confidence", 0.8, 0, 1)
    assert sheet["schema"] == 9 and sheet["plan"]["over"] == "confidence"
    text = summary_of(result, 0.4)
    assert plan.title in text and "λ from 0 to 1" in text and "fixed γ" in text and "strict" not in text
    files = evidence_files(result, dial=0.4, recommendation=advised(result, accuracy(1.0, 0.95)))
    facts = json.loads(files["evidence.json"])
    assert files["evidence.md"].decode().startswith(f"# {plan.title} at λ = 0.4")
    assert facts["rule"]["controller"]["name"] == "confidence" and facts["rule"]["at"] == 0.8
    assert {row["figure"] for row in facts["figures"]} >= {"drafted", "drafted_share", "passes", "speed_up_strict"}
    for wrong in ({"over": "nobody's"}, {"low": 0.2}):
        path.write_text(json.dumps({**sheet, "plan": {**sheet["plan"], **wrong}}))
        with pytest.raises(BadInput, match="sweep.json"):
            load_sweep(tmp_path / "sweep")


def test_what_cannot_be_swept_or_combined_is_refused(tmp_path, capsys):
    part, whole = (Threshold(CONTROLLERS["svip"], 3).span(*ends, (3,)) for ends in ((0.0, 1.0), (None, None)))
    for each, span, why in ((GREEDY, part, "reach λ = 1.5"), (replace(GREEDY, controller="svip"), whole, "no contr")):
        with pytest.raises(BadInput, match=why):
            Sweep(table_backend(), toy_prompts(2), each, span, tmp_path / "a")
    for options, why in (
        ("--over controller", "no controller"),
        ("--over controller --controller svip --tree dynamic:depth=4,topk=3,nodes=8", "cuts chains"),
        ("--over controller --controller svip --drafter ngram:n=3", "without probabilities"),
        ("--over controller --controller svip --high 1", "full length"),
        ("--controller svip --grid k=1", "write threshold="),
        ("--controller svip:0.3 --grid threshold=0.2", "leave :0.3 out"),
        ("--controller svip --grid threshold=2", "from 0 to 1.5"),
        ("--controller svip --grid threshold=0.2 --over controller", "leave --over or --grid out"),
    ):
        assert cli.main(["sweep", "--limit", "1", "--out", str(tmp_path / "a"), *options.split()]) == 2
        assert why in capsys.readouterr().err and not list(tmp_path.iterdir())


def pair_grid(folder, count=12, costs=DEAR):
    grid, prompts = grid_of(rule_named("mars"), "threshold=0.3,0.6", CONTROLLERS["confidence"]), toy_prompts(count)
    asked, span = grid.settings(replace(GREEDY, dial=None)), RuleDial(rule_named("mars")).span(None, None, (3,))
    sweeps = Sweep(table_backend(), prompts, asked, span, grid.folders(folder), costs=lambda: costs)
    sweeps.finish()
    assert grid.values == (0.0, 0.3, 0.6) and grid.folders(folder)[1].name == "mars-confidence0.3"
    return Advised.each([CachedSweep(each) for each in sweeps.results()], accuracy(100.0, 0.95))


def test_a_grid_of_thresholds_and_dial_values_is_what_decodes_say_and_names_the_best_pair(tmp_path):
    variants = pair_grid(tmp_path)
    for each, threshold in zip(variants, (0.0, 0.3, 0.6), strict=True):
        result = each.sweep.result
        for place, row in enumerate(result.rows(np.array([0.7]))[:, 0]):
            rounds = independent(f"prompt {place}", replace(GREEDY, dial=0.7), "confidence", threshold)
            drafted = [count for _, count, _ in rounds]
            assert result.lines["lengths"][row].tolist() == [drafted.count(n) for n in range(4)]
            assert result.lines["tokens"][row] == sum(len(ids) for ids, _, _ in rounds)
        assert each.sweep.value("speed_up_strict", 1.0).estimate == 1
    best = best_of(variants)
    found, plan = best.found, best.sweep.plan
    control = plan.settings.control
    assert control is not None and control.threshold > 0  # drafted tokens are dear
    assert f"q(x) < {control.threshold:g} (Confidence) and take θ = " in found.sentence
    table = grid_table(variants, np.array([0.5, 1.0]))
    assert table.values == (0.0, 0.3, 0.6) and table.axis.symbol == "λ" and "speed_up" in table.titles
    bare = pair_grid(tmp_path / "bare", 3, None)
    assert best_of(bare) in bare and lead(bare[0].sweep, 0.5)[0].basis == "", "without a speed"


NAMES = ("tau", "accuracy", "speed_up", "drafted", "same")
UNSURE = replace(
    DEAR,
    target_pass=tuple(Cost(each.seconds, 0.97 * each.seconds, 1.05 * each.seconds) for each in DEAR.target_pass),
    drafter_step=Cost(0.004, 0.0037, 0.0042),
)


def settings(one, left, other, right):
    return pair(SweepSetting(one, left), SweepSetting(other, right))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder, names = tmp_path_factory.mktemp("pairs"), ("confidence", "svip")
    made = {name: threshold_sweep(folder / name, name, costs=UNSURE, count=8) for name in names}
    theta = toy_sweep(folder / "theta", 8, replace(GREEDY, dial=None)).finish()
    return made | {"theta": replace(theta, costs=UNSURE)}


def test_two_thresholds_are_compared_as_the_sweep_compares_them(swept):
    confidence, svip, theta = (swept[name] for name in ("confidence", "svip", "theta"))
    both = settings(confidence, 0.0, confidence, 0.6)
    found = {each.measure.name: each for each in compared(both, NAMES)}
    assert set(found) == set(NAMES) and found["drafted"].change.high < 0
    for each in found.values():
        assert each.change.estimate == pytest.approx(each.right.estimate - each.left.estimate)
    found = [each.measure.name for each in compared(settings(theta, 0.8, confidence, 0.6), NAMES)]
    assert found == ["tau", "accuracy", "speed_up", "drafted"]
    assert saved_sweeps.setting_names(both) == Names("fixed γ", "λ = 0.60")
    assert saved_sweeps.setting_names(settings(confidence, 0.6, svip, 1.5)) == Names(
        "Confidence at λ = 0.60", "fixed γ"
    )
    mixed = Names("MARS at θ = 0.90", "SVIP at λ = 0.30, MARS at θ = 0.80")
    assert saved_sweeps.setting_names(settings(theta, 0.9, svip, 0.3)) == mixed


@pytest.mark.parametrize("beside", ["svip", "theta"])
def test_the_difference_of_modelled_speed_ups_holds_the_costs_that_both_stand_on(beside, swept):
    confidence, other = swept["confidence"], swept[beside]
    passes = tuple(Cost(each.seconds, each.seconds, each.seconds) for each in UNSURE.target_pass)
    sure = replace(UNSURE, target_pass=passes, drafter_step=Cost(0.004, 0.004, 0.004))
    (found,) = compared(settings(confidence, 0.6, other, 0.4), ("speed_up",))
    exact = (replace(each, costs=sure) for each in (confidence, other))
    (narrow,) = compared(settings(next(exact), 0.6, next(exact), 0.4), ("speed_up",))

    def speed_up(result, dial, costs):
        rows, gamma = result.rows(np.array([dial]))[:, 0], result.plan.settings.gamma
        tokens, controller = result.lines["tokens"][rows].sum(), result.plan.cut_by
        if controller is None:
            return float(per_token(costs, gamma).estimate * tokens / result.lines["rounds"][rows].sum())
        counts = result.lines["lengths"][rows].sum(axis=0).tolist()
        lengths = [length for length, count in enumerate(counts) for _ in range(count)]
        spent = drafts_seconds(costs, lengths, [controller.steps(each, gamma) for each in lengths])
        return float(tokens * costs.passes[0].seconds / spent)

    def gap(costs):
        return speed_up(other, 0.4, costs) - speed_up(confidence, 0.6, costs)

    assert math.isclose(found.change.estimate, gap(UNSURE)) and narrow.change.estimate == found.change.estimate
    moves = [[gap(end) - gap(UNSURE) for end in ends] for ends in at_ends(UNSURE)]
    below = (narrow.change.estimate - narrow.change.low) ** 2 + sum(min(0.0, *each) ** 2 for each in moves)
    above = (narrow.change.high - narrow.change.estimate) ** 2 + sum(max(0.0, *each) ** 2 for each in moves)
    assert found.change.low == pytest.approx(found.change.estimate - math.sqrt(below))
    assert found.change.high == pytest.approx(found.change.estimate + math.sqrt(above))


PROMPTS = [EncodedPrompt(f"prompt {place}") for place in range(3)]
AT = {"confidence": 0.5, "threshold": 0.5, "svip": 0.3, "adaedl": 0.4, "specdec++": 0.6}


def clocked(settings, *, swept=True):
    over = settings.control.controller.name if swept else ""
    return WallClock(table_backend(), PROMPTS, settings, over=over, repetitions=2).finish()


@pytest.mark.parametrize(("name", "settings"), [*((name, GREEDY) for name in AT), ("svip", SAMPLED)])
def test_by_the_clock_a_drafter_takes_the_passes_that_its_controller_lets_it_take(name, settings, monkeypatch):
    asked: list[tuple[int, int]] = []
    drafted, controller = DraftAndScore.drafted, CONTROLLERS[name]

    def spied(self, prefix, steps, count):
        asked.append((steps, count))
        return drafted(self, prefix, steps, count)

    monkeypatch.setattr(DraftAndScore, "drafted", spied)
    check = clocked(replace(settings, controller=f"{name}:{AT[name]}"))
    lengths = []
    for place in range(3):
        for way, at in ((check.strict, controller.longest), (check.chosen, AT[name])):
            rounds = independent(f"prompt {place}", settings, name, at)
            assert (way.tokens[place], way.rounds[place]) == (sum(len(ids) for ids, _, _ in rounds), len(rounds))
        lengths.append([count for _, count, _ in rounds])
    expected = [(controller.steps(count, 3), count) for text in lengths for count in text]
    warm, timed = asked[: len(lengths[0])], asked[len(lengths[0]) :]
    assert warm == expected[: len(warm)] and timed == 2 * expected
    assert any(steps < 3 for steps, _ in expected), "or nothing was cut"


def test_what_is_modelled_beside_it_is_of_the_rounds_own_lengths(tmp_path):
    cut = replace(GREEDY, controller="confidence:0.5")
    result = threshold_sweep(tmp_path / "sweep", "confidence", count=9)
    check = WallClock(table_backend(), **clock_options(result, 0.5, 5, 1)).finish()
    controller, paces = CONTROLLERS["confidence"], []
    for way, at in ((check.chosen, 0.5), (check.strict, 0.0)):
        rounds = [
            each for place in (0, 4, 8, 3, 7) for each in independent(f"prompt {place}", GREEDY, "confidence", at)
        ]
        drafted = [count for _, count, _ in rounds]
        paces.append(way.tokens.sum() / drafts_seconds(DEAR, drafted, [controller.steps(each, 3) for each in drafted]))
    assert math.isclose(check.modelled_over_strict, paces[0] / paces[1])
    assert math.isclose(check.modelled_over_target, paces[0] * DEAR.passes[0].seconds)
    assert check.modelled_low < check.modelled_over_target < check.modelled_high
    bare = clocked(cut)
    assert math.isnan(bare.modelled_over_strict) and "modelled" not in timed(bare)[0].text
    dialled = clocked(cut, swept=False)
    assert (dialled.dial, dialled.over, dialled.controller) == (0.8, "", "confidence:0.5")
    strict = [independent(f"prompt {place}", replace(GREEDY, dial=1.0), "confidence", 0.5) for place in range(3)]
    assert dialled.strict.rounds.tolist() == [*map(len, strict)]


def test_a_check_is_read_back_and_belongs_to_its_own_sweep(tmp_path):
    result = threshold_sweep(tmp_path / "svip", "svip", count=2)
    check = replace(timing(), dial=0.3, over="svip", at=0.8, created="2026-01-01", modelled_over_target=3.5)
    for other in ({}, {"over": "adaedl"}, {"at": 0.9}, {"at": math.nan}, {"over": "", "at": math.nan}):
        keep_check(result.folder, replace(check, **other))
    kept = kept_checks(result.folder, result.plan)
    assert kept.found == (kept.latest(0.3),) and kept.found[0].to_json() == check.to_json()
    assert len(kept.problems) == 4 and "of another sweep" in kept.problems[0]
    plain = timing().to_json()
    assert '"schema": 3,' in plain and TimingCheck.from_json(plain.encode()).controller == NONE
    cut = toy_sweep(tmp_path / "cut", 2, replace(GREEDY, dial=None, controller="svip:0.3")).finish()
    for controller in (NONE, "svip:0.3", "svip:0.4"):
        keep_check(cut.folder, replace(timing(), controller=controller))
    assert [each.controller for each in kept_checks(cut.folder, cut.plan).found] == ["svip:0.3"]
    strict = replace(GREEDY, rule="strict", dial=None)  # a rule without a dial is timed where drafts are cut alone
    check = clocked(replace(strict, controller="svip:0.3"))
    assert (check.dial, check.over) == (0.3, "svip") and math.isnan(check.at) and check.same_as_target == 3
    with pytest.raises(BadInput, match="a rule with a dial"):
        WallClock(table_backend(), PROMPTS, strict)
