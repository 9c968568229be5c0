"""Sweeps of a draft-length controller's threshold: every line against decodes that stop, times, words and files."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from sweep_cases import COSTS, toy_prompts

from mars_viz import cli
from mars_viz.analysis.recommendation import Finding
from mars_viz.commands import decoding
from mars_viz.controllers import CONTROLLERS
from mars_viz.costs import Cost, at_ends, drafts_seconds, length_costs
from mars_viz.dialmap import controller_span, span_of
from mars_viz.errors import BadInput
from mars_viz.recording import Recording
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep import Sweep, frontier, load_sweep, measures, value_at
from mars_viz.sweep.evidence_pack import evidence_files
from mars_viz.sweep.grid import Advised, best_of, grid_of, grid_table
from mars_viz.sweep.grid_sweep import GridSweep
from mars_viz.sweep.measures import pace_over
from mars_viz.sweep.report import summary_lines
from mars_viz.sweep.threshold import advised, fastest, stopping, with_pair
from tests.tables import table_backend
from tests.test_controllers import alone

GREEDY = Settings(rule="mars", dial=0.8, gamma=3, max_new_tokens=16)
DEAR = replace(COSTS, drafter_step=Cost(0.004, 0.0039, 0.0041))
"""Costs by which a drafted token is far from free."""


def threshold_sweep(out, name="confidence", settings=GREEDY, *, costs=DEAR, count=6, graded=True):
    span = controller_span(CONTROLLERS[name], None, None, (settings.gamma,))
    return Sweep(table_backend(), toy_prompts(count, graded), settings, span, out, costs=costs).finish()


def independent(prompt, settings, name, threshold):
    tokens = table_backend().tokenizer.encode(prompt)
    return alone(settings, name, threshold, prompt=tokens)


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
@pytest.mark.parametrize(
    "settings",
    [GREEDY, Settings(rule="rejection-sampling", temperature=0.9, seed=2, gamma=3, max_new_tokens=16)],
    ids=lambda settings: settings.rule,
)
def test_every_line_is_what_a_decode_by_a_drafter_that_stops_says(tmp_path, name, settings):
    result, controller = threshold_sweep(tmp_path / "sweep", name, settings, count=3), CONTROLLERS[name]
    drawn = np.random.default_rng(4).uniform(result.plan.low, result.plan.high, 6)
    edges = result.edges[:-1]
    dials = np.concatenate([drawn, edges, np.nextafter(edges[1:], -math.inf)])
    for place, item in enumerate(toy_prompts(3).items):
        whole = tuple(t for ids, _, _ in independent(item.prompt, settings, name, controller.longest) for t in ids)
        for dial, row in zip(dials.tolist(), result.rows(dials)[place], strict=True):
            rounds = independent(item.prompt, settings, name, dial)
            text, lines = tuple(t for ids, _, _ in rounds for t in ids), {n: v[row] for n, v in result.lines.items()}
            drafted = [each for _, each, _ in rounds]
            assert (lines["tokens"], lines["rounds"], lines["drafted"]) == (len(text), len(rounds), sum(drafted))
            assert lines["lengths"].tolist() == [drafted.count(n) for n in range(settings.gamma + 1)]
            assert lines["same"] == (text == whole) and lines["kept"] == sum(kept for _, _, kept in rounds)
            steps = [controller.steps(each, settings.gamma) for each in drafted]
            assert math.isclose(lines["modelled"], drafts_seconds(DEAR, drafted, steps))
    assert result.prompts["off_is_strict"].all()


def test_the_dial_of_a_rule_is_swept_by_drafts_that_a_controller_cuts(tmp_path):
    settings = replace(GREEDY, dial=None, controller="confidence:0.4")
    span = span_of(rule_named("mars"), None, None, (3,))
    result = Sweep(table_backend(), toy_prompts(4), settings, span, tmp_path / "sweep", costs=DEAR).finish()
    for dial in (0.0, 0.3, 0.77, 0.9, 1.0):
        for place, row in enumerate(result.rows(np.array([dial]))[:, 0]):
            rounds = independent(f"prompt {place}", replace(GREEDY, dial=dial), "confidence", 0.4)
            assert result.lines["drafted"][row] == sum(each for _, each, _ in rounds)
            assert result.lines["tokens"][row] == sum(len(ids) for ids, _, _ in rounds)
    known = measures(result)
    assert value_at(result, known["speed_up_strict"], 1.0).estimate == 1 and "strict" in known["same"].title
    assert load_sweep(tmp_path / "sweep").plan == result.plan


def test_speed_ups_are_of_modelled_seconds_and_their_intervals_hold_the_costs(tmp_path):
    result = threshold_sweep(tmp_path / "sweep")
    known, dial = measures(result), 0.5
    rows = [result.rows(np.array([at]))[:, 0] for at in (dial, 0.0)]
    tokens, seconds = ([result.lines[name][each].sum() for each in rows] for name in ("tokens", "modelled"))
    over = value_at(result, known["speed_up_strict"], dial)
    assert math.isclose(over.estimate, tokens[0] / seconds[0] / (tokens[1] / seconds[1]))
    alone_too = value_at(result, known["speed_up"], dial)
    assert math.isclose(alone_too.estimate, tokens[0] * 0.010 / seconds[0])
    assert known["speed_up_strict"].title == "modelled speed-up over fixed γ"
    sure = replace(result, costs=replace(DEAR, drafter_step=Cost(0.004, 0.004, 0.004)))
    narrow = value_at(sure, measures(sure)["speed_up_strict"], dial)
    assert over.low < narrow.low < narrow.high < over.high and narrow.estimate == over.estimate
    at_full = value_at(result, known["speed_up_strict"], 0.0)
    assert (at_full.low, at_full.estimate, at_full.high) == (1, 1, 1)
    for low, high in at_ends(DEAR):
        assert sum(length_costs(low, [0, 1, 2, 3])) <= sum(length_costs(high, [0, 1, 2, 3]))
    assert "speed_up" not in measures(threshold_sweep(tmp_path / "bare", costs=None))


def test_the_fastest_threshold_is_recommended_where_it_is_shown_to_be_faster(tmp_path):
    result = threshold_sweep(tmp_path / "sweep", count=24)
    found, known = advised(result, 100.0, 0.95), measures(result)
    assert found is not None and found.finding is Finding.RECOMMENDED and found.dial is not None
    speeds = [value_at(result, known["speed_up_strict"], dial).estimate for dial in (*result.edges[:-1], found.dial)]
    assert max(speeds) == speeds[-1]
    fewer = round(100 * (1 - value_at(result, known["drafted_share"], found.dial).estimate))
    for part in (f"q(x) < {found.dial:g} (Confidence): {fewer} %", "fixed γ", "24 graded prompts"):
        assert part in found.sentence
    careful = fastest(result, 0.001, 0.95)
    assert careful.finding is Finding.NOT_ENOUGH and careful.dial is None and "0.001" in careful.sentence
    free = threshold_sweep(tmp_path / "free", costs=replace(COSTS, drafter_step=Cost(1e-9, 1e-9, 1e-9)), count=24)
    none = fastest(free, 100.0, 0.95)
    assert none.finding is Finding.NO_GAIN and none.dial is None and "No threshold" in none.sentence
    bare = threshold_sweep(tmp_path / "bare", costs=None)
    assert "not known" in fastest(bare, 1.0, 0.95).sentence
    with pytest.raises(BadInput, match="no speed-up to plot"):
        frontier(bare)
    settings = Settings(rule="rejection-sampling", temperature=0.9, gamma=3, max_new_tokens=16)
    found = advised(threshold_sweep(tmp_path / "ungraded", "svip", settings, count=24, graded=False), 1.0, 0.95)
    assert found is not None and (found.finding is Finding.NO_GAIN or "lossless at every" in found.sentence)


def test_the_sentence_on_stopping_has_the_value_in_place_of_the_symbol():
    for controller in CONTROLLERS.values():
        text = stopping(controller, 0.25)
        assert "0.25" in text and text.endswith(f"({controller.title})")
        assert controller.dial.symbol not in text.split(" (")[0]


def test_the_files_hold_what_was_swept(tmp_path):
    result = threshold_sweep(tmp_path / "sweep", count=8)
    path = tmp_path / "sweep" / "sweep.json"
    plan, sheet = load_sweep(tmp_path / "sweep").plan, json.loads(path.read_text())
    assert plan == result.plan and plan.title == "Confidence with MARS at θ = 0.80"
    assert (plan.over, plan.settings.dial, plan.strict, plan.loosest) == ("confidence", 0.8, 0, 1)
    assert sheet["schema"] == 8 and sheet["plan"]["over"] == "confidence"
    text = "\n".join(summary_lines(result, 0.4))
    assert plan.title in text and "λ from 0 to 1" in text and "fixed γ" in text and "strict" not in text
    files = evidence_files(result, dial=0.4, recommendation=advised(result, 1.0, 0.95))
    facts = json.loads(files["evidence.json"])
    assert files["evidence.md"].decode().startswith(f"# {plan.title} at λ = 0.4, against fixed γ")
    assert facts["rule"]["controller"]["name"] == "confidence" and facts["rule"]["at"] == 0.8
    assert {row["figure"] for row in facts["figures"]} >= {"drafted", "drafted_share", "passes", "speed_up_strict"}
    for wrong in ({"over": "nobody's"}, {"low": 0.2}):
        path.write_text(json.dumps({**sheet, "plan": {**sheet["plan"], **wrong}}))
        with pytest.raises(BadInput, match="sweep.json"):
            load_sweep(tmp_path / "sweep")


def test_what_cannot_be_swept_is_refused(tmp_path):
    span = controller_span(CONTROLLERS["svip"], 0.0, 1.0, (3,))
    with pytest.raises(BadInput, match="let the range reach λ = 1.5"):
        Sweep(table_backend(), toy_prompts(2), GREEDY, span, tmp_path / "a")
    whole = controller_span(CONTROLLERS["svip"], None, None, (3,))
    with pytest.raises(BadInput, match="no controller cuts"):
        Sweep(table_backend(), toy_prompts(2), replace(GREEDY, controller="svip"), whole, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_the_command_refuses_what_does_not_go_together(tmp_path, capsys):
    for options, why in (
        ("--over controller", "no controller"),
        ("--over controller --controller svip --tree dynamic:depth=4,topk=3,nodes=8", "cuts chains"),
        ("--over controller --controller svip --drafter ngram:n=3", "without probabilities"),
        ("--over controller --controller svip --high 1", "full length"),
        ("--controller svip --grid k=1", "grid is one of its thresholds"),
        ("--controller svip:0.3 --grid threshold=0.2", "leave :0.3 out"),
        ("--controller svip --grid threshold=2", "from 0 to 1.5"),
        ("--controller svip --grid threshold=0.2 --over controller", "leave --over or --grid out"),
    ):
        assert cli.main(["sweep", "--limit", "1", "--out", str(tmp_path / "a"), *options.split()]) == 2
        assert why in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_command_sweeps_a_threshold_as_separate_runs_say(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pair)
    asked = ["sweep", "--limit", "1", "--over", "controller", "--controller", "svip:0.3", "--dial", "0.8"]
    asked += ["--max-new-tokens", "10", "--out", str(tmp_path / "a"), "--evidence", str(tmp_path / "e")]
    assert cli.main(asked) == 0
    assert "SVIP with MARS at θ = 0.80" in capsys.readouterr().out
    result = load_sweep(tmp_path / "a")
    drawn = np.random.default_rng(8).uniform(0, 1.5, 2).tolist()
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "a" / "prompts.jsonl").read_text().splitlines()]
    plain = Settings(dial=0.8, max_new_tokens=10)
    for threshold in drawn:
        for place, row in enumerate(result.rows(np.array([threshold]))[:3, 0]):
            run = Recording(pair, prompts[place], replace(plain, controller=f"svip:{threshold!r}")).finish()
            lengths = [len(each.speculation) for each in run.rounds]
            assert result.lines["lengths"][row].tolist() == [lengths.count(n) for n in range(7)]
            assert result.lines["tokens"][row] == len(run.token_ids)
    assert (tmp_path / "e" / "evidence.md").read_text().startswith("# SVIP with MARS at θ = 0.80 at λ = 0.3")


def pair_grid(folder, count=12, costs=DEAR):
    base, controller = replace(GREEDY, dial=None), CONTROLLERS["confidence"]
    grid = grid_of(rule_named("mars"), "threshold=0.3,0.6", controller)
    span = span_of(rule_named("mars"), None, None, (3,))
    sweeps = GridSweep(
        table_backend(), toy_prompts(count), grid.settings(base), list(grid.folders(folder)), span, costs=lambda: costs
    )
    for _ in sweeps:
        pass
    assert grid.values == (0.0, 0.3, 0.6) and grid.folders(folder)[1].name == "mars-confidence0.3"
    return [Advised.of(sweep.result(), 100.0, 0.95, 3) for sweep in sweeps.sweeps]


def test_a_grid_of_thresholds_and_dial_values_is_what_decodes_say_and_names_the_best_pair(tmp_path):
    variants = pair_grid(tmp_path)
    for each, threshold in zip(variants, (0.0, 0.3, 0.6), strict=True):
        for dial in np.random.default_rng(6).uniform(0, 1, 4).tolist():
            for place, row in enumerate(each.result.rows(np.array([dial]))[:, 0]):
                rounds = independent(f"prompt {place}", replace(GREEDY, dial=dial), "confidence", threshold)
                drafted = [count for _, count, _ in rounds]
                assert each.result.lines["lengths"][row].tolist() == [drafted.count(n) for n in range(4)]
                assert each.result.lines["tokens"][row] == sum(len(ids) for ids, _, _ in rounds)
    best = best_of(variants)
    found = with_pair(best, variants)
    assert best.found is not None and best.found.dial is not None and found is not None
    control, plan = best.result.plan.settings.control, best.result.plan
    assert control is not None and control.threshold > 0  # drafted tokens are dear
    assert f"q(x) < {control.threshold:g} (Confidence) and take θ = " in found.sentence
    over = pace_over((best.result, best.found.dial), (variants[0].result, plan.strict))
    assert f"modelled {over.estimate:.3g}"[:13] in found.sentence and "fixed γ = 3" in found.sentence
    parts = [
        (each.lines["tokens"][rows].sum(), each.lines["modelled"][rows].sum())
        for each, dial in ((best.result, best.found.dial), (variants[0].result, 1.0))
        for rows in [each.rows(np.array([dial]))[:, 0]]
    ]
    (tokens, seconds), (others, longer) = parts
    assert math.isclose(over.estimate, tokens / seconds / (others / longer)) and over.low < over.estimate < over.high
    table = grid_table(variants, np.array([0.5, 1.0]))
    assert table.values == (0.0, 0.3, 0.6) and table.setting.symbol == "λ" and "speed_up" in table.titles
    bare = pair_grid(tmp_path / "bare", 3, None)
    assert with_pair(bare[0], bare) == bare[0].found
