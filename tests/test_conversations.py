"""System prompts and follow-up turns: in Python, on the command line, in files and on the pages."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz import cli
from mars_viz.chat import CUT_OFF, Exchange, History
from mars_viz.commands.decoding import _history
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.prompts.forms import history_of
from mars_viz.recording import dial_map, record
from mars_viz.run import Run, Settings
from mars_viz.runfiles import load_run
from mars_viz.runlist.reproduce import HISTORY_FILE, recipe
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.sweep import Sweep
from mars_viz.sweep.reproduce import reproduction
from mars_viz.sweep.result import load_sweep
from mars_viz.sweep.store import open_store
from mars_viz.sweep.terms import Terms
from mars_viz.ui import models_form, navigation, tab_jobs
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.worker import Worker
from tests.gguf_models import random_model, save
from tests.tabs import PATIENCE, settled

ODD = "It's “odd”:\n\\n \x1b[1m \u202e$HOME `x`"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random chat model as a GGUF file; its template writes `<role>text` for each message."""
    return save(tmp_path_factory.mktemp("chat") / "small.gguf", random_model("llama"))


@pytest.fixture
def pair(file: Path) -> Backend:
    return load_backend(file, device="cpu")


def read(run: Run) -> str:
    return "".join(run.pieces[token].text for token in run.prompt_ids)


def test_each_turn_reads_the_whole_conversation_and_the_run_keeps_it(pair: Backend, tmp_path: Path) -> None:
    first = record("Hello there", backend=pair, system="Be brief.", max_new_tokens=6)
    second = record("And then", backend=pair, history=first.conversation, max_new_tokens=6)
    assert read(second) == f"<system>Be brief.<user>Hello there<assistant>{first.text}<user>And then<>"
    second.save(tmp_path / "second")
    kept = load_run(tmp_path / "second")
    assert kept.history == first.conversation == History("Be brief.", (Exchange("Hello there", first.text),))
    third = record("The end", backend=pair, history=kept.conversation, system="Now be long.", max_new_tokens=6)
    assert read(third).startswith("<system>Now be long.<user>Hello there") and len(third.history.turns) == 2
    made = dial_map("And then", backend=pair, history=first.conversation, max_new_tokens=6, low=0.5)
    assert made.frame.history == second.history and made.at(0.9).token_ids == second.token_ids
    last = first.token_ids[-1]
    ended = replace(first, provenance=replace(first.provenance, eos_ids=(last,)))
    assert ended.ended and ended.conversation.turns[-1].answer == first.decode(first.token_ids[:-1])
    half = replace(first, pieces={**first.pieces, last: replace(first.pieces[last], data=b"\xf0\x9f")})
    assert half.conversation.turns[-1].answer == half.decode(half.token_ids[:-1]), "without half a character"


def test_the_recipe_of_a_conversation_makes_it_again(
    pair: Backend, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(ODD, (Exchange(ODD, ""), Exchange("-x", f"{ODD} ")))
    run = record("So", backend=pair, history=history, max_new_tokens=6)
    lines, names = recipe(run, "a"), dict[str, Any]()
    shell = f"printf '%s\\0' {lines.command.replace('FOLDER', str(file.parent))}"  # the words that bash reads
    words = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout.split("\0")
    monkeypatch.chdir(tmp_path)
    assert words[0] == "mars-viz" and cli.main(words[1:-1]) == 0
    exec(lines.python.replace("FOLDER", str(file.parent)), names)
    for again in (load_run(tmp_path / "a-again"), names["run"]):
        assert (again.history, again.prompt_ids, again.token_ids) == (history, run.prompt_ids, run.token_ids)
    long = recipe(replace(run, history=History("", (Exchange("x" * 200_000, ""),))), "a")
    assert f"--history={HISTORY_FILE}" in long.command


def test_the_command_line_continues_a_conversation(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["record", "--target", str(file), "--max-new-tokens", "5"]
    assert cli.main([*common, "--prompt", "Hello", "--system", "Be brief.", "--out", str(tmp_path / "a")]) == 0
    first, roles = load_run(tmp_path / "a"), ("system", "user", "assistant")
    texts = zip(roles, ("Be brief.", "Hello", first.text), strict=True)
    text = json.dumps({"messages": [{"role": role, "content": content} for role, content in texts]})
    (tmp_path / "history.json").write_text(text)
    assert _history(text) == _history(str(tmp_path / "history.json")) == first.conversation
    capsys.readouterr()
    assert cli.main([*common, "--prompt", "And", "--history", str(tmp_path / "a"), "--out", str(tmp_path / "b")]) == 0
    assert (CUT_OFF in capsys.readouterr().err) == (not first.ended)
    assert load_run(tmp_path / "b").history == first.conversation
    shared = {"system": "Be kind.", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    assert history_of(shared) == History("Be kind.", (Exchange("a", "b"),))
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]
    answers = [{"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"}]
    assert history_of([*parts, *answers]) == History("", (Exchange("a\n\nb", "c\n\nd"),))


def test_wrong_options_are_refused_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, reason in (
        (["--system", "X"], "template"),
        (["--system", "X", "--no-chat"], "--no-chat"),
        (["--system", "\udcff"], "UTF-8"),
        (["--history", '[{"role": "user", "content": "a"}]'], "end with an answer"),
        (["--history", '[{"role": "assistant", "content": "a"}]'], "user"),
        (["--history", '{"messages": 3}'], "messages"),
        (["--history", '[{"role":"user","content":"a"},{"role":"assistant","content":null}]'], "None"),
        (["--history", '{"messages"'], "no JSON"),
        (["--history", "nowhere.json"], "cannot be read"),
        (["--history", "a" * 5000], "cannot be read"),
    ):
        assert cli.main(["record", "--prompt", "Hi", *options, "--out", str(tmp_path / "new")]) == 2
        message = capsys.readouterr().err
        assert reason in message and len(message.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_templates_without_a_system_prompt_and_too_long_conversations_are_refused(pair: Backend) -> None:
    history = History(turns=(Exchange("one two three " * 20, "four " * 40), Exchange("five", "six")))
    length = len(pair.prompt_ids("Hi", Settings(max_new_tokens=1), history))
    with pytest.raises(BadInput, match=f"3 turns has {length} tokens and 200 .* is 256"):
        record("Hi", backend=pair, history=history, max_new_tokens=200)
    with pytest.raises(BadInput, match=r"9 turns has \d+ tokens .* is 256"):
        record("Hi", backend=pair, history=replace(history, turns=4 * history.turns))
    for template, reason in (
        ("{{ raise_exception('Never') if messages[0].role == 'system' }}ok", "no system prompt .Never"),
        ("{{ raise_exception('Never') }}", "cannot format this prompt .Never"),
        ("{% for %}", "cannot format this prompt"),
        ("{{ messages[-1].content }}", "drops the system prompt"),
    ):
        pair.tokenizer.library.chat_template = template
        with pytest.raises(BadInput, match=reason):
            record("Hi", backend=pair, system="Be brief.", max_new_tokens=2)
    assert record("Hi", backend=pair, max_new_tokens=2).provenance.chat
    with pytest.raises(BadInput, match="token ids"):
        record([1, 2], backend=pair, system="Be brief.")


def test_a_sweep_keeps_its_system_prompt_and_its_answers_end_before_the_end_token(
    pair: Backend, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], unmeasured: None
) -> None:
    talk = {"question_id": "q", "category": "c", "turns": ["Hello", "And then"]}
    (tmp_path / "set.jsonl").write_text(json.dumps(talk) + "\n")
    common = ["sweep", "--set", str(tmp_path / "set.jsonl"), "--target", str(file), "--gamma", "2"]
    common += ["--max-new-tokens", "4", "--low", "0.9", "--out", str(tmp_path / "out"), "--system"]
    assert cli.main([*common, "Be brief."]) == 0
    assert [item.system for item in open_store(tmp_path / "out").prompts().items] == ["Be brief.", "Be brief."]
    assert "--system=Be brief." in reproduction(load_sweep(tmp_path / "out"), Terms()).command.replace("'", "")
    assert cli.main([*common, "Be long.", "--resume"]) == 2
    assert "prompt set" in capsys.readouterr().err
    run = record("Hello", backend=pair, rule="strict", gamma=2, max_new_tokens=4)
    items = tuple(PromptItem(f"q/{n}", "c", prompt, question="q", turn=n) for n, prompt in ((1, "Hello"), (2, "And")))
    ending = replace(pair, eos_ids=frozenset({run.token_ids[2]}))  # whose text is an ordinary word
    settings, span = replace(run.settings, rule="mars"), Span(0.9, 1.0, (2,))
    Sweep(ending, PromptSet("talk", items), settings, span, tmp_path / "other").finish()
    assert open_store(tmp_path / "other").told(0, 1)[0].answer == run.decode(run.token_ids[:2])


def test_a_page_decodes_with_a_system_prompt_and_continues(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backend.toml").write_text(f'target = "{file}"\n')
    monkeypatch.setenv("MARS_VIZ_BACKEND", str(tmp_path / "backend.toml"))
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "runs"))
    worker = Worker(tasks.models())
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    monkeypatch.setattr(navigation, "through_app", models_form.draw)  # app.py itself would forget the click
    tab = AppTest.from_file(str(Path(navigation.__file__).parents[2] / "app.py"), default_timeout=PATIENCE)
    settled(tab.switch_page("pages/live.py").run())

    def latest() -> Run:
        while "Cancel" in [button.label for button in tab.button]:
            settled(tab.run())
        return load_run(tmp_path / "runs" / tab.query_params["run"])

    tab.number_input(key="limit").set_value(4)
    tab.text_area(key="prompt").set_value("Hello")
    tab.text_area(key="system").set_value("Be brief.")
    settled(tab.run())
    next(button for button in tab.button if button.label == "Decode now").click()
    settled(tab.run())
    first = latest()
    settled(tab.chat_input(key="follow-up").set_value("And then").run())
    second = latest()
    assert second.history == first.conversation and second.settings == first.settings
    assert read(second).startswith("<system>Be brief.<user>Hello<assistant>")
