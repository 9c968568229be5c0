"""One choice of models for the app, Python and the command line: the file, the link, what is remembered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import mars_viz
from mars_viz.backend_choice import (
    BUILT_IN,
    FILE,
    MOST_BYTES,
    BackendChoice,
    backend_toml,
    first_choice,
    read_backend_file,
)
from mars_viz.cli import main
from mars_viz.errors import BadInput
from mars_viz.run import Provenance
from mars_viz.runfiles import load_run
from mars_viz.ui import models_form, visitors
from mars_viz.ui.jobs.models import Device, Status, models_that_made

TREE = "dynamic:depth=6,topk=4,nodes=16"


def written(folder: Path, text: str) -> Path:
    (folder / "backend.toml").write_text(text, encoding="utf-8")
    return folder / "backend.toml"


def test_a_choice_comes_back_from_its_file(tmp_path):
    choice = BackendChoice(drafter="eagle3", device="cpu", dtype="float32", folders=True, tree=TREE)
    for each in (choice, replace(BUILT_IN, folders=True)):
        assert read_backend_file(written(tmp_path, backend_toml(each))) == each


def test_folders_of_the_file_are_looked_for_beside_it(tmp_path, monkeypatch):
    for name in ("mine", "head"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            (tmp_path / name / file).touch()
    monkeypatch.chdir("/")
    found = read_backend_file(written(tmp_path, 'target = "./mine"\ndrafter = "eagle3:./head"'))
    assert found.names == (str(tmp_path / "mine"), f"eagle3:{tmp_path / 'head'}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("target = 1", "target"),
        ('weights = "x"', "weights; .* target, drafter, tree, device, dtype"),
        ("target =", "TOML"),
        ('drafter = "org/name"', "without a target"),
        ('device = "abacus"', "abacus"),
        ('tree = "bush"', "bush"),
        ('target = "./nowhere"', "no folder"),
        ('drafter = "ngram:n=0"', "n is 0"),
        ("#" * (MOST_BYTES + 1), "64 kB"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, reason):
    with pytest.raises(BadInput, match=reason):
        read_backend_file(written(tmp_path, text))


def test_the_environment_names_what_the_app_begins_with(tmp_path, monkeypatch):
    monkeypatch.delenv(FILE, raising=False)
    assert first_choice() == BUILT_IN
    monkeypatch.setenv(FILE, str(written(tmp_path, 'drafter = "eagle3"')))
    assert first_choice() == BackendChoice(drafter="eagle3", folders=True)
    monkeypatch.setenv(FILE, str(tmp_path / "gone.toml"))
    with pytest.raises(BadInput, match="cannot be read"):
        first_choice()


def test_the_file_decodes_alike_in_python_and_on_the_command_line(tmp_path):
    file = written(tmp_path, f'drafter = "eagle3"\ntree = "{TREE}"\ndevice = "cpu"')
    backend = mars_viz.backend(file)
    ours = mars_viz.record("Once upon a time", backend=backend, max_new_tokens=8)
    common = ["record", "--prompt", "Once upon a time", "--max-new-tokens", "8", "--backend", str(file)]
    assert main([*common, "--out", str(tmp_path / "run")]) == 0
    theirs = load_run(tmp_path / "run")
    assert (ours.token_ids, ours.settings) == (theirs.token_ids, theirs.settings)
    assert ours.settings.drafts_trees and theirs.provenance.drafter == "eagle3"
    assert main([*common, "--drafter", "ngram:n=3", "--tree", "dynamic", "--out", str(tmp_path / "other")]) == 2
    chain = mars_viz.record("Once upon a time", backend=mars_viz.backend(file, tree="chain"), max_new_tokens=2)
    assert not chain.settings.drafts_trees
    made = mars_viz.dial_map("Once upon a time", backend=backend, low=0.9, max_new_tokens=4)
    assert made.frame.settings.drafts_trees
    with pytest.raises(BadInput, match="already"):
        mars_viz.record("A", backend=backend, target="org/name")
    bad = written(tmp_path, 'device = "abacus"')
    assert main(["record", "--prompt", "A", "--out", str(tmp_path / "new"), "--backend", str(bad)]) == 2
    assert main(["app", "--backend", str(bad)]) == 2 and not (tmp_path / "new").exists()


def test_a_choice_comes_back_from_its_link(monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    begun = BackendChoice("org/a", "org/b", "cpu", "float32", tree=TREE)
    for first, choice in (
        (BUILT_IN, BUILT_IN),
        (BUILT_IN, BackendChoice(drafter="ngram:n=3")),
        (BUILT_IN, begun),
        (BUILT_IN, BackendChoice("org/a", "eagle3:org/head", tree=TREE)),
        (begun, BUILT_IN),
        (begun, BackendChoice(drafter="eagle3")),
        (begun, replace(begun, tree="chain")),
        (begun, replace(begun, dtype="auto")),
    ):
        complaints: list[str] = []
        link = models_form.models_written(choice, first)
        assert replace(models_form.models_in_link(link, first, complaints), folders=False) == choice, link
        assert bool(link) == (choice != first)
        assert all("fetch" in each for each in complaints)
        if first == BUILT_IN:
            assert bool(complaints) == ("org/" in "".join(choice.names))
    assert models_form.models_written(BUILT_IN, BackendChoice(drafter="eagle3")) == {"target": "built-in"}
    for target in ("/home/me/model", "http://127.0.0.1:8000"):
        assert "target" not in models_form.models_written(BackendChoice(target, "org/b", folders=True), BUILT_IN)
    begun = BackendChoice("/srv/model", "org/b", folders=True)
    assert models_form.models_written(begun, begun) == {} and models_form.models_in_link({}, begun, []) == begun


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ({"target": "http://elsewhere:8000"}, "Links choose none"),
        ({"target": "http://", "drafter": "org/b"}, "target"),
        ({"target": "a\n\n# b", "drafter": "b"}, "target"),
        ({"target": "a", "drafter": "b\u202e"}, "target"),
        ({"drafter": "org/a"}, "target"),
        ({"target": "org/a", "drafter": "ngram:n=0"}, "target"),
        ({"target": "a" * 301, "drafter": "b"}, "target"),
        ({"target": "<b>/x", "drafter": "org/b"}, "model's id"),
        ({"device": "abacus"}, "“abacus”"),
        ({"dtype": "int4"}, "“int4”"),
        ({"tree": "<b>"}, "“<b>”"),
    ],
)
def test_wrong_links_change_no_models(monkeypatch, link, reason):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    complaints: list[str] = []
    assert models_form.models_in_link(link, BUILT_IN, complaints) == BUILT_IN
    assert reason in " ".join(complaints)


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


def test_what_was_loaded_is_remembered_by_the_next_server(tmp_path, monkeypatch):
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "new"))
    first = BackendChoice("org/a", "org/b")
    assert models_form.recent_models((first, BUILT_IN)) == (first,)
    file = tmp_path / "new" / models_form.RECENT_FILE
    assert models_form.read_recent(file) == (first,)
    second = replace(first, target="org/c")
    assert models_form.recent_models((second,)) == (second, first) == models_form.read_recent(file)


def test_wrong_files_of_recent_models_are_ignored(tmp_path):
    file = tmp_path / "recent.json"
    for text in ("", "[", "{}", "[1]", '[{"target": "x"}]', "[" * 100_000, "\udcff"):
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        assert models_form.read_recent(file) == ()
    good = {"target": "a", "drafter": "b", "device": "cpu", "dtype": "auto", "folders": False, "tree": "chain"}
    for wrong in ({"target": "a\nb"}, {"folders": "yes"}, {"device": "abacus"}, {"tree": "bush"}, {"more": "x"}):
        file.write_text(json.dumps([good | wrong, good]), encoding="utf-8")
        assert models_form.read_recent(file) == (BackendChoice("a", "b", "cpu"),)
