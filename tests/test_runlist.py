"""Lists of runs: their lines, labels and search, how a run is made again, and the command mars-viz runs."""

from __future__ import annotations

import ast
import json
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from typing import Any

import pytest

from mars_viz import cli, default_folders, runlist, samples
from mars_viz.analysis.engine_file import read_file
from mars_viz.reproduce import ADDRESS, PROMPT_FILE, recipe
from mars_viz.run import Provenance, Settings
from mars_viz.runfiles import Manifest, load_run
from mars_viz.runlist import found, labels_of, listed_runs
from mars_viz.runstore import ListedRun, RunOrigin, RunStatus, RunStore, list_runs
from mars_viz.ui import share
from tests.factories import toy_run

STORY = samples.RUNS / "1-story-mars"
ODD = "It's \"5\" $HOME `x` \\n\nÄ 漢字 🦀 !! -- 'q'\t\x1b[31m\u202eend"
STORY_FACTS = Manifest.of(load_run(STORY))


def facts(**values: Any) -> Manifest:
    of_settings = {name: value for name, value in values.items() if name in Settings.__slots__}
    of_place = {name: value for name, value in values.items() if name in Provenance.__slots__}
    others = {name: value for name, value in values.items() if name not in of_settings | of_place}
    provenance = replace(STORY_FACTS.provenance, **of_place)
    return replace(STORY_FACTS, settings=replace(STORY_FACTS.settings, **of_settings), provenance=provenance, **others)


def test_labels_are_titles_and_what_differs():
    fox, bear = facts(title="Fox"), facts(title="Bear")
    other, plain = facts(title="Fox", dial=0.8), [facts(title="", seed=seed) for seed in (1, 2)]
    for runs, labels in (
        ([fox, bear], ["Fox", "Bear"]),
        ([fox, other, bear], ["Fox · MARS θ = 0.9", "Fox · MARS θ = 0.8", "Bear"]),
        ([fox, fox, "Fox"], ["Fox · a", "Fox · b", "Fox · c"]),
        ([fox, facts(title="Fox · a"), fox], ["Fox · a · a", "Fox · a · b", "Fox · c"]),
    ):
        assert labels_of(dict(zip("abc", runs, strict=False))) == dict(zip("abc", labels, strict=False))
    labels = labels_of(dict(enumerate(plain)))
    assert labels[0].endswith("Lily. · MARS θ = 0.9 · T 0 · γ 6 · seed 1") and labels[1].endswith("seed 2")
    assert "\u202e" not in "".join(labels_of({"a": facts(title="F\u202eox")}).values())


def row(name: str, **values: Any) -> ListedRun:
    return ListedRun(name, RunOrigin.SAVED, RunStatus.WHOLE, facts(created=f"2026-01-0{name[-1]}", **values))


ROWS = (
    row("r1", title="Fox", tags=("paper",), tokens=10, rounds=5),
    row("r2", title="bear", prompt="ÄRGER in the wood", temperature=1.0, tokens=90, rounds=10),
    row("r3", title="Wolf", tree="dynamic:depth=6,topk=4", gamma=16, drafter="eagle3", rule="tensorrt-llm:k=4", dial=1),
    ListedRun("r4", RunOrigin.SAVED, RunStatus.BROKEN, None, error="It is damaged."),
    ListedRun("r5", RunOrigin.SAMPLE, RunStatus.WHOLE, facts(title="Cut", tags=("Paper", "b"), rounds=0)),
)


def test_growing_and_broken_runs_are_listed_and_a_sample_hides_a_run_of_its_name(tmp_path):
    store, run = RunStore(tmp_path / "runs"), replace(toy_run(), title="A toy")
    name = store.finish(store.begin(), run)
    journal = store.begin()
    journal.write(replace(run, rounds=run.rounds[:3]))
    run.save(store.folder / "1-story-mars")
    (store.folder / "broken").mkdir()
    (store.folder / "broken" / "manifest.json").write_text("{")
    runs = {each.name: each for each in listed_runs(store.folder, samples.RUNS)}
    assert runs["1-story-mars"].origin is RunOrigin.SAMPLE and runs[name].origin is RunOrigin.SAVED
    assert runs["broken"].standing is RunStatus.BROKEN and "cannot be opened" in runs["broken"].line
    growing = runs[journal.name]
    assert growing.standing is RunStatus.GROWING and not growing.opens and growing.line.endswith("growing")
    journal.leave()
    assert replace(runs[name].facts, files={}) == runlist.of_tab("live-0", run).facts


@pytest.mark.parametrize("prompt", [ODD, "-x\n", "a'b", "\x7f\r", "a\n  \nb \n"])
def test_a_prompt_survives_shell_and_python(prompt, tmp_path):
    run = replace(load_run(STORY), prompt=prompt, settings=replace(load_run(STORY).settings, stop=(ODD[:9], "-")))
    lines = recipe(run, "an id")
    script = f"import sys, json; json.dump(sys.argv[1:], open({str(tmp_path / 'said')!r}, 'w'))"
    line = lines.command.replace("mars-viz", f'{sys.executable} -c "{script}"', 1)
    subprocess.run([shutil.which("bash") or "bash", "-c", line], check=True)
    said = ast.literal_eval((tmp_path / "said").read_text())
    said = [each.encode("utf-16", "surrogatepass").decode("utf-16") for each in said]  # JSON has halves of pairs
    assert f"--prompt={prompt}" in said and f"--stop={ODD[:9]}" in said and "--stop=-" in said
    assert said[-2:] == ["--out", "an id-again"] and not any(sign in lines.command for sign in "\x1b\u202e\r\x7f")
    assert textwrap.dedent(lines.command).strip() == lines.command, "as a page shows it"
    (call,) = [node for node in ast.walk(ast.parse(lines.python)) if isinstance(node, ast.Call) and node.args][:1]
    assert ast.literal_eval(call.args[0]) == prompt and "\u202e" not in lines.python


def test_options_at_their_defaults_are_left_out_and_unknown_values_are_to_be_filled_in():
    run = load_run(STORY).unmapped
    lines = recipe(run, "a")
    assert lines.command.endswith("Lily.' --rule mars --dial 0.9 --out a-again") and "--chat" not in lines.command
    assert "backend = mars_viz.backend()\n" in lines.python and "seed" not in lines.python
    changed = replace(run.settings, gamma=4, controller="svip:0.3", temperature=0.5, top_p=0.9, top_k=3, seed=9)
    line = recipe(replace(run, settings=changed), "a").command
    assert "--gamma 4 --temperature 0.5 --top-p 0.9 --top-k 3 --seed 9 --controller svip:0.3 --out" in line

    def placed(**values):
        return recipe(replace(run, provenance=replace(run.provenance, **values)), "a")

    folder = placed(target="mine", target_revision="0123456789ab", drafter="ngram:n=3")
    assert "--target FOLDER/mine --drafter ngram:n=3" in folder.command and 'target="FOLDER/mine"' in folder.python
    ours = placed(drafter="hf:ours", drafter_revision="0123456789ab")
    assert folder.cautions and "“ours”, whose folder is not kept" in " ".join(ours.cautions)
    hub = placed(target="Qwen/Q", target_revision="0" * 40, device="NVIDIA H100", dtype="bfloat16")
    assert "Qwen/Q --drafter built-in/drafter --device cuda --dtype bfloat16" in hub.command and "0" * 12 in str(hub)
    served = placed(target="Q", target_revision="vLLM 0.32", dtype="as served")
    assert f"--target {ADDRESS}" in served.command and "--dtype" not in served.command
    long = recipe(replace(run, prompt="x" * 200_000), "a")
    assert f"--prompt-file {PROMPT_FILE}" in long.command and "200" not in long.command
    chat = recipe(replace(run, prompt=run.prompt[:20]), "a")
    assert chat.command.count("--chat") == 1 and "chat=True" in chat.python
    assert "models" in placed(target="").refused
    engine = placed(drafter="reported by the engine", drafter_revision="", device="vLLM 0.32")
    assert "log" in engine.refused and not engine.command and not engine.python


def test_the_line_describes_settings_models_and_result():
    assert STORY_FACTS.line.startswith("MARS θ = 0.9 · T 0 · seed 0 · γ 6 · built-in pair · ")
    assert STORY_FACTS.line.endswith(" · 128 tokens · τ 6.40")
    tree = facts(tree="dynamic:depth=6,topk=4", gamma=16, drafter="eagle3", rounds=0)
    assert tree.parts["draft"] == "tree of 16 nodes, depth 6, branching 4" and "tau" not in tree.parts
    assert tree.parts["models"] == "built-in target, eagle3" and facts(created="long ago").date == ""


def test_a_search_looks_for_words_in_texts_tags_and_settings():
    for words, names in {
        "": "r5 r3 r2 r1 r4",
        "ärger WOOD": "r2",
        "PAPER": "r5 r1",
        "paper b cut": "r5",
        "r4": "r4",
        "tensorrt-llm eagle3": "r3",
        "trees": "r3",
        "chains": "r5 r2 r1",
        "dynamic:depth=6,topk=4 wolf": "r3",
    }.items():
        assert [run.name for run in found(ROWS, words)] == names.split(), words
    assert [run.name for run in found(ROWS, "", RunOrigin.SAMPLE)] == ["r5"]
    assert runlist.tags_among(ROWS) == ["b", "Paper"]


def test_the_command_and_the_python_lines_of_a_sample_make_it_again(tmp_path, monkeypatch):
    run = load_run(samples.RUNS / "9-story-tree")
    lines = recipe(run, "tree")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(lines.command)
    assert program == "mars-viz" and cli.main(arguments) == 0
    (path,) = tmp_path.iterdir()
    made = load_run(path)
    assert made.token_ids == run.token_ids and made.settings == run.settings and made.prompt_ids == run.prompt_ids
    (tmp_path / "lines.py").write_text(lines.python)
    assert runpy.run_path(str(tmp_path / "lines.py"))["run"].token_ids == run.token_ids


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(default_folders.RUNS, str(tmp_path))
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    replace(load_run(STORY).unmapped, title="Fox").save(tmp_path / "fox")
    replace(toy_run(rule="strict"), title="Bear", tags=("wood",)).save(tmp_path / "bear")
    return RunStore(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert cli.main(["runs", *arguments]) == code
    told = capsys.readouterr()
    assert bool(told.err) == bool(code)
    return told.err or told.out


def ids(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    return [each["id"] for each in json.loads(said(capsys, *arguments, "--json"))]


def test_the_command_lists_finds_and_shows_runs(store, capsys):
    everything = said(capsys)
    assert "fox  Fox\n    MARS θ = 0.9 · T 0 · seed 0 · γ 6" in everything and "bear  Bear #wood" in everything
    count = 2 + len(list_runs(samples.RUNS))
    assert everything.endswith(f"{count} of {count} runs.\n")
    assert sorted(ids(capsys, "--origin", "saved")) == ["bear", "fox"]
    for query in (("--search", "WOOD"), ("--search", "strict", "--origin", "saved")):
        assert ids(capsys, *query) == ["bear"], query
    assert "9-story-tree" in ids(capsys, "--search", "trees")
    (fox,) = json.loads(said(capsys, "--search", "fox", "--json"))
    assert fox["tokens"] == 128 and fox["tau"] == 6.4 and fox["settings"]["dial"] == 0.9 and not fox["error"]
    text = said(capsys, "show", "fox")
    assert "mars-viz record --prompt='Once upon" in text and "    Temperature: 0\n" in text and "torch 2" in text
    told = json.loads(said(capsys, "show", "fox", "--json"))
    assert told["again"]["command"] in text and told["summary"]["tau"] == 6.4 and told["id"] == "fox"
    assert "the drafter's weights" in said(capsys, "show", "bear")
    assert "mars-viz record" in said(capsys, "show", "2-story-strict"), "samples can be shown"
    records = read_file(said(capsys, "acceptance", "fox", "2-story-strict")).requests
    run = load_run(samples.RUNS / "2-story-strict")
    assert [each.name for _, each in records] == ["fox", "2-story-strict"]
    assert records[1][1].accepted.tolist() == [len(each.decision.kept) for each in run.rounds]
    assert json.loads(share.acceptance_record(run, None, None, "a"))["metadata"] == {"x_request_id": "a"}


def test_the_command_changes_titles_and_tags_and_deletes_and_restores(store, capsys):
    assert "“A  fox”" in said(capsys, "title", "fox", " A  fox ")
    assert said(capsys, "tag", "fox", "bear", "--add", "new", "--remove", "Wood") == "fox: new\nbear: new\n"
    assert sorted(ids(capsys, "--search", "new")) == ["bear", "fox"]
    assert said(capsys, "tag", "fox", "--remove", "new") == "fox: no tags\n"
    assert said(capsys, "delete", "fox", "bear", "fox").count("Deleted") == 2
    assert ids(capsys, "--origin", "saved") == [] and sorted(ids(capsys, "--deleted")) == ["bear", "fox"]
    assert "bear is back" in said(capsys, "restore", "bear")
    assert ids(capsys, "--origin", "saved") == ["bear"]


def test_bad_input_of_the_command_is_a_sentence_and_changes_nothing(store, capsys):
    before = {path: path.read_bytes() for path in store.folder.rglob("*.json")}
    for arguments, message in (
        ("--folder nowhere", "no folder nowhere"),
        ("show ../bear", "no run ../bear"),
        ("title nobody a", "no run nobody"),
        ("tag fox", "No tag"),
        ("tag fox --add a,b", "comma"),
        ("title 1-story-mars a", "comes with MARS Viz"),
        ("delete fox nobody", "Nothing was changed"),
        ("delete fox 1-story-mars", "comes with MARS Viz"),
        ("delete", "ID"),
        ("restore fox", "not in the bin"),
    ):
        assert message in said(capsys, *arguments.split(), code=2)
    assert {path: path.read_bytes() for path in store.folder.rglob("*.json")} == before
