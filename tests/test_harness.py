"""lm-evaluation-harness: its tasks in a sweep, and a verification rule as its model."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
from harness_tasks import FLEXIBLE, STRICT, Blank, evaluated, graded, gsm8k_form, written
from lm_eval.api.instance import Instance

from mars_viz import cli
from mars_viz.axis import RuleDial
from mars_viz.commands import decoding
from mars_viz.demo.tasks import Task
from mars_viz.errors import BadInput, PromptError, SettingError
from mars_viz.harness_model import MarsVizLM
from mars_viz.prompts import grader_named, harness, load_prompts, load_task, to_jsonl
from mars_viz.recording import Recording
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep import Sweep, load_sweep
from mars_viz.sweep.measures import measures, value_at
from mars_viz.sweep.store import open_store

RELAXED = 0.3


@pytest.fixture(autouse=True)
def without_environment_report(monkeypatch):
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


def begun(pair, task, out, resume=False):
    settings = task.settings(Settings(rule="mars"), 80)
    span = RuleDial(rule_named("mars")).span(RELAXED, None, (settings.gamma,))
    return Sweep(pair, task.prompts, settings, span, out, resume=resume)


def at(result, column, dial=1.0):
    return [float(each) for each in result.at(column, np.array([dial]))[:, 0]]


def test_examples_before_a_prompt_are_those_that_the_harness_draws(tmp_path):
    path = gsm8k_form(tmp_path, 5, num_fewshot=2, description="Add.\n", generation_kwargs=None)
    for fewshot, count in ((None, 3), (0, 1), (3, 4)):
        evaluated(theirs := Blank(), path, num_fewshot=fewshot, limit=4)
        task = load_task(str(path), fewshot=fewshot, limit=4)
        assert [item.prompt for item in task.prompts.items] == theirs.asked and len(theirs.asked) == 4
        assert theirs.asked[0].count("Add ") == count and task.stop == ("\n\n",)
    assert load_task(str(path)).prompts.items[:4] == load_task(str(path), limit=4).prompts.items  # so more can be added


def test_the_score_that_decides_can_be_chosen(tmp_path):
    path = gsm8k_form(tmp_path, 4)
    for metric, decides, other in (("exact_match", STRICT, FLEXIBLE), (FLEXIBLE, FLEXIBLE, STRICT)):
        task = load_task(str(path), metric=metric)
        assert task.prompts.scores == (other,) and task.prompts.items[0].grader == f"lm-eval:{path}:{decides}"
    assert task.stop == ("carry 1.\n6", "</s>") and task.max_new_tokens == 256 and task.temperature == 0
    answer = task.prompts.items[0].answer or ""
    total, grader = json.loads(answer)["answer"], grader_named(task.prompts.items[0].grader)
    assert grader.grade(answer, f"It is {total}") and not grader.grade(answer, f"{total}, or 5")
    assert grader.scores is not None and grader.scores(answer, f"It is {total}") == {STRICT: 0.0, FLEXIBLE: 1.0}
    assert grader.grade(answer, f"It is {total}, carry 1.\n6, so 5")  # what stands after a stop string does not count
    docs = [{"question": "Sort.", "answer": ["ten", "forty"]}]
    files = {"test": written(tmp_path, "many.jsonl", docs)}
    told = {"dataset_kwargs": {"data_files": files}, "training_split": None, "fewshot_split": None}
    path = gsm8k_form(tmp_path, 1, **told, doc_to_target="answer", filter_list=None)
    item = load_task(str(path)).prompts.items[0]
    grader = grader_named(item.grader)
    assert grader.grade(item.answer or "", "forty") and not grader.grade(item.answer or "", "fifty")


def test_a_sweep_is_resumed_and_opens_where_there_is_no_harness(pair, tmp_path, monkeypatch):
    task = load_task(str(gsm8k_form(tmp_path, 3)))
    whole = begun(pair, task, tmp_path / "whole").finish()
    next(progress for progress in begun(pair, task, tmp_path / "sweep") if progress.finished == 1)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "lm_eval", None)
        harness.scores.cache_clear()
        half, kept = load_sweep(tmp_path / "sweep"), open_store(tmp_path / "sweep").prompts()
        assert half.finished == 1 and at(half, FLEXIBLE) == at(whole, FLEXIBLE)[:1] and kept == task.prompts
        with pytest.raises(PromptError, match=r"pip install mars-viz\[eval\]"):
            begun(pair, dataclasses.replace(task, prompts=kept), tmp_path / "sweep", resume=True).finish()
    result = begun(pair, dataclasses.replace(task, prompts=kept), tmp_path / "sweep", resume=True).finish()
    assert result.complete and result.plan.scores == (FLEXIBLE,)
    assert all(np.array_equal(result.lines[name], whole.lines[name]) for name in ("low", "right", FLEXIBLE))
    sheet = tmp_path / "sweep" / "sweep.json"
    found = json.loads(sheet.read_text())
    for scores in (["right"], ["<b>,x"], [FLEXIBLE, FLEXIBLE], [f"a,{n}" for n in range(101)]):
        sheet.write_text(json.dumps(found | {"plan": found["plan"] | {"scores": scores}}))
        with pytest.raises(BadInput, match="sweep.json is damaged"):
            load_sweep(tmp_path / "sweep")


def test_what_cannot_be_swept_is_refused(tmp_path):
    metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": False}
    for changes, why in (
        ({"output_type": "loglikelihood"}, "generate_until"),
        ({"group": "some", "task": ["additions"]}, "group"),
        ({"repeats": 4}, "4 texts"),
        ({"unsafe_code": True}, "runs the code"),
        ({"doc_to_image": "image"}, "models here read texts"),
        ({"task": None}, "has no 'task'"),
        ({"dataset_kwargs": {"data_files": {"test": "/none.jsonl"}}}, "data is there"),
        ({"doc_to_text": "{{ fail() }}"}, "UndefinedError"),
        ({"doc_to_text": "{{ '' }} "}, "is blank"),
        ({"metric_list": [metric]}, "no metric"),
        ({"metric_list": [metric | {"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]}, "no metric"),
    ):
        with pytest.raises(PromptError, match=why):
            load_task(str(gsm8k_form(tmp_path, 2, **changes)))
    path, file = gsm8k_form(tmp_path, 2), tmp_path / "prompts.jsonl"
    (tmp_path / "task.json").write_text(path.read_text())
    (tmp_path / "bad.yaml").write_text("task: [")
    for name, asked, why in (
        (path.name, {"metric": "acc"}, "'acc'. Choose one of exact_match,strict-match; exact_match,flexible"),
        (path.name, {"fewshot": 2}, "num_fewshot: 0"),
        (path.name, {"fewshot": -1}, "0 or more"),
        (path.name, {"limit": 0}, "at least 1"),
        ("none.yaml", {}, "cannot be read"),
        ("task.json", {}, ".yaml or .yml"),
        ("bad.yaml", {}, "ParserError"),
    ):
        with pytest.raises(PromptError, match=why):
            load_task(str(tmp_path / name), **asked)
    task = load_task(str(path))
    file.write_bytes(to_jsonl(task.prompts))
    assert load_prompts(file, own=True).items == task.prompts.items
    for how, why in (({}, "line 1: 'grader'"), ({"grader": "lm-eval:x:y"}, "--grader")):
        with pytest.raises(PromptError, match=why):
            load_prompts(file, **how)
    for doc in ({"at": object()}, {1: "a"}, ["a"], {"a": (1,)}):
        with pytest.raises(PromptError, match="cannot be kept as JSON"):
            harness.document(doc)
    until = {"until": [f"{n}" for n in range(17)]}
    with pytest.raises(SettingError, match="17 stop strings"):
        load_task(str(gsm8k_form(tmp_path, 1, generation_kwargs=until))).settings(Settings())


def test_a_score_between_right_and_wrong_stops_the_sweep_with_a_sentence(pair, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def graded(doc, results):\n    return {'half': 0.5, 'whole': 1}\n")
    metrics = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("half", "whole")]
    path = gsm8k_form(tmp_path, 1, metric_list=metrics, filter_list=None)
    path.write_text(path.read_text() + "process_results: !function own.graded\n")
    with pytest.raises(PromptError, match="half,none = 0.5, but right is 1 and wrong is 0. Choose a score"):
        begun(pair, load_task(str(path)), tmp_path / "half").finish()
    result = begun(pair, load_task(str(path), metric="whole"), tmp_path / "whole").finish()
    assert at(result, "right") == [1] and at(result, "half,none") == [0.5]
    own.write_text("def graded(doc, results):\n    return 1 / 0\n")
    path.write_text(path.read_text() + "\n")
    harness.scores.cache_clear()
    with pytest.raises(PromptError, match="cannot grade a text: ZeroDivisionError"):
        begun(pair, load_task(str(path), metric="whole"), tmp_path / "broken").finish()


def test_the_command_refuses_options_that_do_not_go_together(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pytest.fail("it began to load the models"))
    out, path = tmp_path / "out", gsm8k_form(tmp_path, 1)
    for options in ("--set builtin", "--grader exact", "--turns all", "--stop x", "--metric acc"):
        assert cli.main(["sweep", "--task", str(path), *options.split(), "--out", str(out)]) == 2
        printed = capsys.readouterr().err
        named = "'acc'" if "metric" in options else f"Leave {options.split()[0]} or --task out"
        assert named in printed and len(printed.splitlines()) == 1 and not out.exists()
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    for arguments in (["sweep", "--task", "gsm8k", "--out", str(tmp_path / "out2")], ["eval", "--tasks", "gsm8k"]):
        assert cli.main(arguments) == 2
        assert capsys.readouterr().err.endswith("not installed. Run: pip install mars-viz[eval]\n")
    assert cli.main(["sweep", "--fewshot", "2", "--out", str(tmp_path / "out2")]) == 2
    assert "Name one (--task)" in capsys.readouterr().err


def test_the_command_sweeps_a_task_and_adds_to_it(pair, tmp_path, capsys, monkeypatch, unmeasured):
    monkeypatch.setattr(decoding, "opened_backend", lambda *_: pair)
    path = gsm8k_form(tmp_path, 3, generation_kwargs={"until": [], "max_gen_toks": 40, "temperature": 0.5})
    asked = ["sweep", "--task", str(path), "--low", "0.9", "--out", str(tmp_path / "out")]
    assert cli.main([*asked, "--limit", "1"]) == 0
    told = capsys.readouterr()
    assert "The task asks for temperature 0.5; this is decoded at 0." in told.err
    assert f"1 prompt of additions, 0 examples in front, {STRICT}, lm_eval" in told.out
    assert f"\n{FLEXIBLE} " in told.out and "a larger --limit adds" in told.out
    assert cli.main([*asked, "--limit", "2", "--resume", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompts"] == 2 and found["plan"]["settings"]["max_new_tokens"] == 40
    assert FLEXIBLE in [row["figure"] for row in found["table"]]


@pytest.fixture
def loaded(pair, monkeypatch):
    monkeypatch.setattr("mars_viz.speculators.loading.load_backend", lambda *_, **__: pair)


@pytest.mark.usefixtures("loaded")
def test_scores_and_tau_are_those_of_a_sweep_at_that_dial(pair, tmp_path):
    path = gsm8k_form(tmp_path, 4, kind=Task.COUNTING, flexible=0)
    task, taus = load_task(str(path)), []
    settings = task.settings(Settings(rule="mars"), 80)
    span = RuleDial(rule_named("mars")).span(RELAXED, None, (settings.gamma,))
    result = Sweep(pair, task.prompts, settings, span, tmp_path / "sweep").finish()
    for dial in (1.0, RELAXED):
        found = evaluated(MarsVizLM(rule="mars", dial=dial), path, gen_kwargs={"max_gen_toks": 80})
        for score, column in ((STRICT, "right"), (FLEXIBLE, FLEXIBLE)):
            assert graded(found, score) == at(result, column, dial)
            measure = measures(result)[column.replace("right", "accuracy")]
            assert value_at(result, measure, dial).estimate == found["results"]["additions"][score]
        decoded = found["config"]["mars_viz"]["decoded"]
        tokens, rounds = (sum(at(result, name, dial)) for name in ("tokens", "rounds"))
        assert (decoded["prompts"], decoded["tokens"], decoded["rounds"]) == (4, tokens, rounds)
        assert decoded["tau"] == tokens / rounds and decoded["tokens_per_second"] > 0
        json.dumps(found["config"]["mars_viz"])
        taus.append(tokens / rounds)
    assert taus[1] > taus[0]


@pytest.mark.usefixtures("loaded")
def test_requests_are_decoded_as_they_and_the_arguments_say(pair):
    def request(prompt, **about):
        return Instance("generate_until", {}, (prompt, about), 0)

    prompt = "Add 12 and 345.\n"
    whole = Recording(pair, prompt, Settings(rule="strict", max_new_tokens=30)).finish().text
    model, stop = MarsVizLM(rule="strict", max_new_tokens=30), whole[8:11]
    asked = {"until": []}, {"until": stop}, {"until": ["", stop], "max_gen_toks": 4}
    texts = model.generate_until([request(prompt, **about) for about in asked])
    short = Recording(pair, prompt, Settings(rule="strict", max_new_tokens=4)).finish().text
    assert texts == [whole, whole.partition(stop)[0], short]
    sampled = {"do_sample": True, "temperature": 0.7, "until": []}
    found = model._asked(sampled | {"top_p": 0.5})
    assert (found.temperature, found.top_p) == (0.7, 0.5)
    assert model._asked(sampled | {"do_sample": False}).temperature == 0
    assert MarsVizLM(rule="strict", temperature=0.3)._asked(sampled).temperature == 0.3  # the model's stands above
    with pytest.raises(SettingError, match="asks for num_beams, which is not done here"):
        model.generate_until([request(prompt, until=[], num_beams=4)])
    asked = [request(f"Add {n} and {n + 7}.\n", until=[], max_gen_toks=8 if n != 14 else 5) for n in range(12, 17)]
    model = MarsVizLM(rule="mars", dial=0.5, batch_size="3")  # neighbours go together and keep their order
    together = model.generate_until(asked)
    assert together == [MarsVizLM(rule="mars", dial=0.5).generate_until([each])[0] for each in asked]


@pytest.mark.usefixtures("loaded")
def test_bad_arguments_and_requests_are_refused(tmp_path):
    for arguments, why in (
        ("dail=0.9", "no dail. There are target, drafter, rule, dial"),
        ("rule=luck", "'luck'"),
        ("rule=mars,dial=7", "θ is 7; it must be a number from 0 to 1"),
        ("gamma=0", "gamma is 0"),
        ("tree=oak", "oak"),
        ("device=gpu", "'gpu'"),
        ("chat=perhaps", "chat is 'perhaps'"),
    ):
        with pytest.raises(BadInput, match=why):
            MarsVizLM.create_from_arg_string(arguments, {"batch_size": 1, "device": "cuda:0"})
    model = MarsVizLM()
    for refused, why in ((model.loglikelihood, "changes nothing"), (model.apply_chat_template, "chat=True")):
        with pytest.raises(SettingError, match=why):
            refused([])
    path = gsm8k_form(tmp_path, 1, output_type="loglikelihood", generation_kwargs=None, metric_list=None)
    with pytest.raises(SettingError, match="generate_until"):
        evaluated("mars-viz", path, model_args="rule=mars,dial=0.9")


def test_the_command_hands_on_what_it_is_given(capsys, monkeypatch):
    seen, argv = [], list(sys.argv)
    monkeypatch.setattr("lm_eval._cli.HarnessCLI.execute", lambda self, asked: seen.append(asked))
    tree = '{"tree": "dynamic:depth=3,topk=2"}'  # a value with commas is JSON
    for given in (["--model_args", "rule=mars,dial=0.9", "--limit", "3"], ["--model_args", tree], ["--model", "dummy"]):
        assert cli.main(["eval", "--tasks", "a,b", *given]) == 0
    assert [(each.model, each.limit) for each in seen] == [("mars-viz", 3.0), ("mars-viz", None), ("dummy", None)]
    assert [each.model_args for each in seen[:2]] == [{"rule": "mars", "dial": 0.9}, json.loads(tree)]
    monkeypatch.setattr("lm_eval._cli.HarnessCLI.execute", lambda *_: {}["Tasks not found: a"])
    assert cli.main(["eval", "--tasks", "a"]) == 2 and sys.argv == argv
    assert "KeyError: Tasks not found: a" in capsys.readouterr().err
