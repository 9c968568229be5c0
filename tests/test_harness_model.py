"""Decoding by a rule as a model of lm-evaluation-harness: the same texts and scores as a sweep at that dial."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness_tasks import FLEXIBLE, STRICT, evaluated, graded, gsm8k_form
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from mars_viz import cli
from mars_viz.demo.tasks import Task
from mars_viz.dialmap import span_of
from mars_viz.errors import BadInput, SettingError
from mars_viz.harness_model import MarsVizLM
from mars_viz.prompts import load_task
from mars_viz.recording import Recording
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.sweep import Sweep

RELAXED = 0.3


@pytest.fixture(autouse=True)
def without_environment_report(monkeypatch):
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


@pytest.fixture
def loaded(pair, monkeypatch):
    monkeypatch.setattr("mars_viz.speculators.loading.load_backend", lambda *_, **__: pair)


def request_of(prompt, **about):
    return Instance("generate_until", {}, (prompt, about), 0)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("dial", [1.0, RELAXED])
def test_scores_and_tau_are_those_of_a_sweep_at_that_dial(pair, tmp_path, dial):
    path = gsm8k_form(tmp_path, 6, kind=Task.COUNTING, flexible=0)
    found = evaluated(MarsVizLM(rule="mars", dial=dial), path, gen_kwargs={"max_gen_toks": 120})
    task = load_task(str(path))
    settings, at = task.settings(Settings(rule="mars"), 120), np.array([dial])
    span = span_of(rule_named("mars"), RELAXED, None, (settings.gamma,))
    result = Sweep(pair, task.prompts, settings, span, tmp_path / "sweep").finish()
    for score, column in ((STRICT, "right"), (FLEXIBLE, FLEXIBLE)):
        assert graded(found, score) == result.at(column, at)[:, 0].tolist()
    decoded = found["config"]["mars_viz"]["decoded"]
    tokens, rounds = (int(result.at(name, at).sum()) for name in ("tokens", "rounds"))
    assert (decoded["prompts"], decoded["tokens"], decoded["rounds"]) == (6, tokens, rounds)
    assert decoded["tau"] == tokens / rounds and decoded["tokens_per_second"] > 0
    json.dumps(found["config"]["mars_viz"])
    if dial == RELAXED:
        assert tokens / rounds > float(np.divide(*(result.at(n, np.array([1.0])).sum() for n in ("tokens", "rounds"))))


@pytest.mark.usefixtures("loaded")
def test_a_request_is_decoded_as_it_says_and_as_the_arguments_say(pair):
    prompt = "Add 12 and 345.\n"
    whole = Recording(pair, prompt, Settings(rule="strict", max_new_tokens=30)).finish().text
    model = MarsVizLM(rule="strict", max_new_tokens=30)
    (text,) = model.generate_until([request_of(prompt, until=[])])
    assert text == whole
    stop = whole[8:11]
    texts = model.generate_until([request_of(prompt, until=stop), request_of(prompt, until=["", stop], max_gen_toks=4)])
    assert texts[0] == whole.partition(stop)[0]
    assert texts[1] == Recording(pair, prompt, Settings(rule="strict", max_new_tokens=4)).finish().text
    asked = model._asked({"do_sample": True, "temperature": 0.7, "top_p": 0.5, "until": []})
    assert (asked.temperature, asked.top_p) == (0.7, 0.5)
    assert model._asked({"do_sample": False, "temperature": 0.7, "until": []}).temperature == 0
    chosen = MarsVizLM(rule="strict", temperature=0.3)._asked({"do_sample": True, "temperature": 0.7, "until": []})
    assert chosen.temperature == 0.3  # what is given to the model stands above what the task says
    with pytest.raises(SettingError, match="asks for num_beams, which is not done here"):
        model.generate_until([request_of(prompt, until=[], num_beams=4)])


@pytest.mark.usefixtures("loaded")
def test_neighbours_that_are_decoded_alike_go_together_and_keep_their_order():
    prompts = [f"Add {n} and {n + 7}.\n" for n in range(12, 17)]
    lengths = [8, 8, 5, 8, 8]
    asked = [request_of(each, until=[], max_gen_toks=n) for each, n in zip(prompts, lengths, strict=True)]
    model = MarsVizLM(rule="mars", dial=0.5, batch_size="3")
    together = model.generate_until(asked)
    assert together == [MarsVizLM(rule="mars", dial=0.5).generate_until([each])[0] for each in asked]
    assert "5 prompts" in model.told and "θ = 0.5" in model.told


def test_bad_arguments_are_refused():
    for arguments, why in (
        ("dail=0.9", "no dail. There are target, drafter, rule, dial"),
        ("rule=luck", "'luck'"),
        ("rule=mars,dial=7", "must lie"),
        ("rule=strict,dial=0.5", "no dial"),
        ("gamma=0", "gamma is 0"),
        ("tree=oak", "oak"),
        ("target=/no/such,drafter=/no/such", "/no/such"),
        ("device=gpu", "'gpu'"),
        ("temperature=-1", "temperature is -1"),
        ("chat=perhaps", "chat is 'perhaps'"),
    ):
        with pytest.raises(BadInput, match=why):
            MarsVizLM.create_from_arg_string(arguments, {"batch_size": 1, "device": "cuda:0"})


@pytest.mark.usefixtures("loaded")
def test_what_is_no_text_to_write_is_refused(tmp_path):
    model = MarsVizLM()
    for refused in (model.loglikelihood, model.loglikelihood_rolling):
        with pytest.raises(SettingError, match="rule changes nothing"):
            refused([])
    with pytest.raises(SettingError, match="chat=True"):
        model.apply_chat_template([])
    path = gsm8k_form(tmp_path, 1, output_type="loglikelihood", generation_kwargs=None, metric_list=None)
    how: dict[str, Any] = {"tasks": [str(path)], "task_manager": TaskManager(include_defaults=False)}
    with pytest.raises(SettingError, match="generate_until"):
        simple_evaluate(model="mars-viz", model_args="rule=mars,dial=0.9", **how)


def test_the_command_hands_on_what_it_is_given(capsys, monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr("lm_eval._cli.HarnessCLI.execute", lambda self, asked: seen.append(asked))
    argv = list(sys.argv)
    assert cli.main(["eval", "--model_args", "rule=mars,dial=0.9", "--tasks", "a,b", "--limit", "3"]) == 0
    assert cli.main(["eval", "--model", "dummy", "--tasks", "a"]) == 0
    assert [(each.model, each.limit) for each in seen] == [("mars-viz", 3.0), ("dummy", None)]
    assert seen[0].model_args == {"rule": "mars", "dial": 0.9} and sys.argv == argv
    tree = '{"tree": "dynamic:depth=3,topk=2"}'  # what holds commas comes as JSON
    assert cli.main(["eval", "--model_args", tree, "--tasks", "a"]) == 0
    assert seen[-1].model_args == {"tree": "dynamic:depth=3,topk=2"}
    capsys.readouterr()
    monkeypatch.setattr("lm_eval._cli.HarnessCLI.execute", lambda *_: {}["Tasks not found: a"])
    assert cli.main(["eval", "--tasks", "a"]) == 2
    assert "KeyError: Tasks not found: a" in capsys.readouterr().err


def command(*arguments):
    found = Path(sys.executable).with_name("mars-viz")
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": ""}
    return subprocess.run([found, "eval", *arguments], capture_output=True, encoding="utf-8", env=surroundings)


@pytest.mark.long
def test_the_command_evaluates_a_task_of_a_file_from_end_to_end(tmp_path):
    path = gsm8k_form(tmp_path, 4)
    done = command("--model_args", "rule=mars,dial=0.3", "--tasks", str(path), "--output_path", str(tmp_path / "out"))
    assert done.returncode == 0 and "|additions|" in done.stdout and "after 4 prompts, τ = " in done.stderr
    (results,) = (tmp_path / "out").rglob("results_*.json")
    found = json.loads(results.read_text())
    assert found["config"]["model"] == "mars-viz" and found["config"]["mars_viz"]["decoded"]["prompts"] == 4
    assert 0 <= found["results"]["additions"][STRICT] <= 1
