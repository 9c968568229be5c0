"""Backends of any target and drafter, and the choice of one by file, link and history."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mars_viz
from mars_viz import cli
from mars_viz.axis import Span
from mars_viz.backend_choice import BUILT_IN, FILE, BackendChoice, backend_toml, first_choice, read_backend_file
from mars_viz.chat import CUT_OFF, Exchange, History
from mars_viz.cli import main
from mars_viz.commands.decoding import _history
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.prompts.files import history_of
from mars_viz.recording import Mapping, Recording, Walking, dial_map, record
from mars_viz.records import emitted
from mars_viz.reproduce import HISTORY_FILE, recipe
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Provenance, Run, Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators.backend import Backend, Part, decode_alone
from mars_viz.speculators.drafters.text import NgramDrafter
from mars_viz.speculators.loading import load_backend
from mars_viz.sweep import Sweep
from mars_viz.sweep.evidence import reproduction
from mars_viz.sweep.measures import Terms
from mars_viz.sweep.result import load_sweep
from mars_viz.sweep.store import open_store
from mars_viz.ui import models_form, tab_jobs, visitors
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import Device, Status, models_that_made
from mars_viz.ui.jobs.worker import Worker
from tests import tabs
from tests.gguf_models import random_model, save
from tests.tables import CPU, TopTarget, table_backend, tables
from tests.tabs import settled

SETTINGS = Settings(gamma=4, max_new_tokens=24)


def topped(count: int = 16) -> Backend:
    """The toy backend with a target that gives its best tokens alone."""
    return replace(table_backend(), target=Part("top", lambda: TopTarget(tables()[0], count)))


def test_best_tokens_decode_and_walk_as_complete_laws_do() -> None:
    top, complete = topped(), table_backend()
    run = Recording(top, "a prompt", SETTINGS).finish()
    assert run.token_ids and run.token_ids == Recording(complete, "a prompt", SETTINGS).finish().token_ids
    walking = Walking(top, run, [(rule_named("strict"), None), (rule_named("vllm-thinking"), 0.7)])
    assert [last.finished for last in walking][-1] == 2
    assert emitted(walking.walkers[0].text.rounds) == decode_alone(top, run.prompt_ids, SETTINGS)[0]
    speculation = run.rounds[0].speculation
    assert np.isnan(speculation.logsumexp).all()
    lacking = {name for name, rule in RULES.items() if rule.lacks(speculation)}
    assert lacking and {"strict", "mars", "mars-margin", "vllm-thinking"}.isdisjoint(lacking)
    assert {name for name in ("typical", "lenience") if "logsumexp" in RULES[name].needs} <= lacking


def test_a_target_with_too_few_or_bad_logits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled, score = replace(SETTINGS, temperature=0.7), TopTarget.score

    def spoiled(*args: Any) -> Any:
        found = score(*args)
        found.logits[0, 0, 1] = np.nan
        return found

    with pytest.raises(BadInput, match="temperature 0"):
        decode_alone(topped(), (1, 2), sampled)
    for count, settings, reason in ((1, SETTINGS, "1 candid"), (16, sampled, "temperature 0"), (16, SETTINGS, "NaN")):
        monkeypatch.setattr(TopTarget, "score", spoiled if reason == "NaN" else score)
        with pytest.raises(BadInput, match=reason):
            Recording(topped(count), "a prompt", settings).finish()


def test_prompts_may_be_token_ids(pair: Backend) -> None:
    words = Recording(pair, "Once upon a time", SETTINGS).finish()
    ids = Recording(pair, list(words.prompt_ids), SETTINGS).finish()
    assert ids.token_ids == words.token_ids and ids.prompt.strip() == "Once upon a time"
    made = mars_viz.dial_map(words.prompt_ids, backend=pair, gamma=4, max_new_tokens=8, low=0.9)
    assert made.frame.prompt_ids == words.prompt_ids
    for wrong, reason in (([], "empty"), ([1, "a"], "no token id"), ([1 << 30], "outside"), ([True], "no token id")):
        with pytest.raises(BadInput, match=reason):
            Recording(pair, wrong, SETTINGS)  # type: ignore[arg-type]


def test_pages_and_the_report_open_runs_with_few_logits_and_blocks_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_reports: None
) -> None:
    lookup = replace(topped(), drafter=Part("ngram:n=1", lambda settings: NgramDrafter(1, CPU)))
    run = Recording(lookup, "a prompt", replace(SETTINGS, max_new_tokens=40), title="One").finish()
    mapped_run = mapped(run, Mapping(lookup, "a prompt", run.settings, Span(0.5, 1.0, (2, 4))).finish())
    mapped_run.save(tmp_path / "a-run")
    for name in ("MARS_VIZ_RUNS", "MARS_VIZ_SAMPLES"):
        monkeypatch.setenv(name, str(tmp_path))
    for page in ("explore", "rules", "compare", "live"):
        tab = tabs.opened(f"pages/{page}.py", run="a-run")
        assert not tab.exception and not [each.value for each in tab.error], page
    assert main(["report", str(tmp_path / "a-run"), "--out", str(tmp_path / "report.html")]) == 0


TREE = "dynamic:depth=6,topk=4,nodes=16"


def written(folder: Path, text: str) -> Path:
    (folder / "backend.toml").write_text(text, encoding="utf-8")
    return folder / "backend.toml"


def test_a_choice_comes_back_from_its_file(tmp_path, monkeypatch):
    choice = BackendChoice(drafter="eagle3", device="cpu", dtype="float32", folders=True, tree=TREE)
    assert read_backend_file(written(tmp_path, backend_toml(choice))) == choice
    for name in ("mine", "head"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            (tmp_path / name / file).touch()
    monkeypatch.chdir("/")
    found = read_backend_file(written(tmp_path, 'target = "./mine"\ndrafter = "eagle3:./head"'))
    assert found.names == (str(tmp_path / "mine"), f"eagle3:{tmp_path / 'head'}"), "beside the file"
    monkeypatch.delenv(FILE, raising=False)
    assert first_choice() == BUILT_IN
    monkeypatch.setenv(FILE, str(written(tmp_path, 'drafter = "eagle3"')))
    assert first_choice() == BackendChoice(drafter="eagle3", folders=True)
    monkeypatch.setenv(FILE, str(tmp_path / "gone.toml"))
    with pytest.raises(BadInput, match="cannot be read"):
        first_choice()


def test_a_wrong_file_is_refused(tmp_path):
    for text, reason in (
        ("target = 1", "target"),
        ('weights = "x"', "weights; .* target, drafter, device, dtype, tree"),
        ("target =", "TOML"),
        ('drafter = "org/name"', "without a target"),
        ('device = "abacus"', "abacus"),
        ('tree = "bush"', "bush"),
        ('target = "./nowhere"', "no folder"),
        ('drafter = "ngram:n=0"', "n is 0"),
    ):
        with pytest.raises(BadInput, match=reason):
            read_backend_file(written(tmp_path, text))


def test_a_runs_models_are_those_that_are_chosen_or_built_in():
    run = Provenance("big", "small")
    mine = BackendChoice("/models/big", "/models/small", folders=True, tree=TREE)
    assert models_that_made(run, mine) == mine
    assert models_that_made(run, BUILT_IN) is None and models_that_made(run, BackendChoice("org/big", "small")) is None
    server = BackendChoice("http://127.0.0.1:8000", "ngram:n=3", folders=True)
    served = Provenance("org/served", "ngram:n=3")
    held = Status(server, Device("a server", "", models=("org/served", "ngram:n=3")))
    assert models_that_made(served, server) is None and models_that_made(served, server, held) == server
    assert models_that_made(Provenance("built-in/target", "eagle3"), mine) == BackendChoice(drafter="eagle3")


def test_the_file_decodes_alike_in_python_and_on_the_command_line(tmp_path):
    file, prompt = written(tmp_path, f'drafter = "eagle3"\ntree = "{TREE}"\ndevice = "cpu"'), "Once upon"
    backend = mars_viz.backend(file)
    ours = mars_viz.record(prompt, backend=backend, max_new_tokens=8)
    common = ["record", "--prompt", prompt, "--max-new-tokens", "8", "--backend"]
    assert main([*common, str(file), "--out", str(tmp_path / "run")]) == 0
    theirs = load_run(tmp_path / "run")
    assert (ours.token_ids, ours.settings) == (theirs.token_ids, theirs.settings)
    assert ours.settings.drafts_trees and theirs.provenance.drafter == "eagle3"
    with pytest.raises(BadInput, match="already"):
        mars_viz.record("A", backend=backend, target="org/name")
    bad = str(written(tmp_path, 'device = "abacus"'))
    assert main([*common, bad, "--out", str(tmp_path / "new")]) == main(["app", "--backend", bad]) == 2
    assert not (tmp_path / "new").exists()


def test_a_choice_comes_back_from_its_link_and_wrong_ones_change_none(monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    begun = BackendChoice("org/a", "org/b", "cpu", "float32", tree=TREE)
    for first, choice in (
        (BUILT_IN, BUILT_IN),
        (BUILT_IN, BackendChoice(drafter="ngram:n=3")),
        (BUILT_IN, begun),
        (begun, BackendChoice(drafter="eagle3")),
        (begun, replace(begun, tree="chain", dtype="auto")),
    ):
        complaints: list[str] = []
        link = models_form.models_written(choice, first)
        assert replace(models_form.models_in_link(link, first, complaints), folders=False) == choice, link
        assert bool(link) == (choice != first) and all("download" in each for each in complaints)
        assert first != BUILT_IN or bool(complaints) == ("org/" in "".join(choice.names))
    for target in ("/home/me/model", "http://127.0.0.1:8000"):
        assert "target" not in models_form.models_written(BackendChoice(target, "org/b", folders=True), BUILT_IN)
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    for link, reason in (
        ({"target": "http://elsewhere:8000"}, "Links choose none"),
        ({"target": "a\n\n# b", "drafter": "b"}, "target"),
        ({"target": "a", "drafter": "b\u202e"}, "target"),
        ({"drafter": "org/a"}, "target"),
        ({"target": "a" * 301, "drafter": "b"}, "target"),
        ({"target": "<b>/x", "drafter": "org/b"}, "not the id of a model"),
        ({"device": "abacus"}, "“abacus”"),
        ({"dtype": "int4"}, "“int4”"),
        ({"tree": "<b>"}, "“<b>”"),
    ):
        complaints = []
        assert models_form.models_in_link(link, BUILT_IN, complaints) == BUILT_IN
        assert reason in " ".join(complaints), link


ODD = "It's “odd”:\n\\n \x1b[1m \u202e$HOME `x`"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random chat model as a GGUF file; its template writes `<role>text` for each message."""
    return save(tmp_path_factory.mktemp("chat") / "small.gguf", random_model("llama"))


@pytest.fixture
def chatty(file: Path) -> Backend:
    return load_backend(file, device="cpu")


def read(run: Run) -> str:
    return "".join(run.pieces[token].text for token in run.prompt_ids)


def test_each_turn_reads_the_whole_conversation_and_the_run_keeps_it(chatty: Backend, tmp_path: Path) -> None:
    first = record("Hello there", backend=chatty, system="Be brief.", max_new_tokens=6)
    second = record("And then", backend=chatty, history=first.conversation, max_new_tokens=6)
    assert read(second) == f"<system>Be brief.<user>Hello there<assistant>{first.text}<user>And then<>"
    second.save(tmp_path / "second")
    kept = load_run(tmp_path / "second")
    assert kept.history == first.conversation == History("Be brief.", (Exchange("Hello there", first.text),))
    third = record("The end", backend=chatty, history=kept.conversation, system="Now be long.", max_new_tokens=6)
    assert read(third).startswith("<system>Now be long.<user>Hello there") and len(third.history.turns) == 2
    made = dial_map("And then", backend=chatty, history=first.conversation, max_new_tokens=6, low=0.5)
    assert made.frame.history == second.history and made.at(0.9).token_ids == second.token_ids
    last = first.token_ids[-1]
    ended = replace(first, provenance=replace(first.provenance, eos_ids=(last,)))
    assert ended.ended and ended.conversation.turns[-1].answer == first.decode(first.token_ids[:-1])
    half = replace(first, pieces={**first.pieces, last: replace(first.pieces[last], data=b"\xf0\x9f")})
    assert half.conversation.turns[-1].answer == half.decode(half.token_ids[:-1]), "without half a character"


def test_the_recipe_of_a_conversation_makes_it_again(
    chatty: Backend, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(ODD, (Exchange(ODD, ""), Exchange("-x", f"{ODD} ")))
    run = record("So", backend=chatty, history=history, max_new_tokens=6)
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


def test_templates_without_a_system_prompt_and_too_long_conversations_are_refused(chatty: Backend) -> None:
    history = History(turns=(Exchange("one two three " * 20, "four " * 40), Exchange("five", "six")))
    length = len(chatty.prompt_ids("Hi", Settings(max_new_tokens=1), history))
    with pytest.raises(BadInput, match=f"3 turns has {length} tokens and 200 .* is 256"):
        record("Hi", backend=chatty, history=history, max_new_tokens=200)
    with pytest.raises(BadInput, match=r"9 turns has \d+ tokens .* is 256"):
        record("Hi", backend=chatty, history=replace(history, turns=4 * history.turns))
    for template, reason in (
        ("{{ raise_exception('Never') if messages[0].role == 'system' }}ok", "Never.. Leave the system prompt out"),
        ("{{ raise_exception('Never') }}", "cannot format this prompt .Never"),
        ("{% for %}", "cannot format this prompt"),
        ("{{ messages[-1].content }}", "drops the system prompt"),
    ):
        chatty.tokenizer.library.chat_template = template
        with pytest.raises(BadInput, match=reason):
            record("Hi", backend=chatty, system="Be brief.", max_new_tokens=2)
    assert record("Hi", backend=chatty, max_new_tokens=2).provenance.chat
    with pytest.raises(BadInput, match="token ids"):
        record([1, 2], backend=chatty, system="Be brief.")


def test_a_sweep_keeps_its_system_prompt_and_its_answers_end_before_the_end_token(
    chatty: Backend, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], unmeasured: None
) -> None:
    talk = {"question_id": "q", "category": "c", "turns": ["Hello", "And then"]}
    (tmp_path / "set.jsonl").write_text(json.dumps(talk) + "\n")
    common = ["sweep", "--set", str(tmp_path / "set.jsonl"), "--target", str(file), "--gamma", "2"]
    common += ["--max-new-tokens", "4", "--low", "0.9", "--out", str(tmp_path / "out"), "--system"]
    assert cli.main([*common, "Be brief."]) == 0
    assert [item.system for item in open_store(tmp_path / "out").prompts().items] == ["Be brief.", "Be brief."]
    assert "--system=Be brief." in reproduction(load_sweep(tmp_path / "out"), Terms())["command"].replace("'", "")
    assert cli.main([*common, "Be long.", "--resume"]) == 2
    assert "prompt set" in capsys.readouterr().err
    run = record("Hello", backend=chatty, rule="strict", gamma=2, max_new_tokens=4)
    items = tuple(PromptItem(f"q/{n}", "c", prompt, question="q", turn=n) for n, prompt in ((1, "Hello"), (2, "And")))
    ending = replace(chatty, eos_ids=frozenset({run.token_ids[2]}))  # whose text is an ordinary word
    settings, span = replace(run.settings, rule="mars"), Span(0.9, 1.0, (2,))
    Sweep(ending, PromptSet("talk", items), settings, span, tmp_path / "other").finish()
    assert open_store(tmp_path / "other").told(0, 1)[0][0] == run.decode(run.token_ids[:2])


def test_a_page_decodes_with_a_system_prompt_and_continues(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backend.toml").write_text(f'target = "{file}"\n')
    monkeypatch.setenv("MARS_VIZ_BACKEND", str(tmp_path / "backend.toml"))
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "runs"))
    worker = Worker(tasks.models())
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    tab = tabs.opened("pages/live.py")

    def latest() -> Run:
        while "Cancel" in [button.label for button in tab.button]:
            settled(tab.run())
        return load_run(tmp_path / "runs" / tab.query_params["run"])

    tab.number_input(key="max_new_tokens").set_value(4)
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
