from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mars_viz import cli, default_folders, samples
from mars_viz.runfiles import list_runs, load_run
from mars_viz.runstore import RunStore
from tests.factories import toy_run


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Two runs in the app's folder."""
    monkeypatch.setenv(default_folders.RUNS, str(tmp_path))
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    replace(load_run(samples.RUNS / "1-story-mars").unmapped, title="Fox").save(tmp_path / "fox")
    replace(toy_run(rule="strict"), title="Bear", tags=("wood",)).save(tmp_path / "bear")
    return RunStore(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert cli.main(["runs", *arguments]) == code
    told = capsys.readouterr()
    assert bool(told.err) == bool(code)
    return told.err or told.out


def ids(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    return [each["id"] for each in json.loads(said(capsys, *arguments, "--json"))]


def test_runs_are_listed_found_and_sorted(store, capsys):
    everything = said(capsys)
    assert "fox  Fox\n    MARS θ = 0.9 · T 0 · seed 0 · γ 6" in everything and "bear  Bear #wood" in everything
    count = 2 + len(list_runs(samples.RUNS))
    assert everything.endswith(f"{count} of {count} runs.\n")
    assert ids(capsys, "--origin", "saved", "--sort", "title") == ["bear", "fox"]
    assert (
        ids(capsys, "--search", "WOOD") == ["bear"] == ids(capsys, "--tag", "wood") == ids(capsys, "--rule", "strict")
    )
    assert "9-story-tree" in ids(capsys, "--tree", "trees") and "fox" not in ids(capsys, "--drafter", "eagle3")
    assert "fox" not in ids(capsys, "--temperature", "0.8")
    assert ids(capsys, "--folder", str(samples.RUNS), "--search", "fox") == []
    (fox,) = json.loads(said(capsys, "--search", "fox", "--json"))
    assert fox["tokens"] == 128 and fox["tau"] == 6.4 and fox["settings"]["dial"] == 0.9 and not fox["error"]


def test_one_run_is_shown_with_how_it_is_made_again(store, capsys):
    text = said(capsys, "show", "fox")
    assert "mars-viz record --prompt='Once upon" in text and "    temperature: 0.0" in text and "torch 2" in text
    told = json.loads(said(capsys, "show", "fox", "--json"))
    assert told["again"]["command"] in text and told["summary"]["tau"] == 6.4 and told["id"] == "fox"
    assert "which weights drafted" in said(capsys, "show", "bear")
    assert "mars-viz record" in said(capsys, "show", "2-story-strict"), "samples can be shown"


def test_titles_and_tags_are_changed_and_runs_deleted_and_restored(store, capsys, tmp_path):
    assert "“A  fox”" in said(capsys, "title", "fox", " A  fox ")
    assert said(capsys, "tag", "fox", "bear", "--add", "new", "--remove", "Wood") == "fox: new\nbear: new\n"
    assert ids(capsys, "--tag", "new", "--sort", "title") == ["fox", "bear"]
    assert said(capsys, "tag", "fox", "--remove", "new") == "fox: no tags\n"
    assert said(capsys, "delete", "fox", "bear", "fox").count("Deleted") == 2
    assert ids(capsys, "--origin", "saved") == [] and sorted(ids(capsys, "--deleted")) == ["bear", "fox"]
    assert "bear is back" in said(capsys, "restore", "bear")
    assert ids(capsys, "--origin", "saved") == ["bear"]
    (tmp_path / "empty").mkdir()
    assert "mars-viz record" in said(capsys, "--folder", str(tmp_path / "empty"))


def test_bad_input_is_a_sentence_and_changes_nothing(store, capsys):
    before = {path: path.read_bytes() for path in store.folder.rglob("*.json")}
    for arguments, message in (
        ("--folder nowhere", "no folder nowhere"),
        ("--rule nope", "no rule 'nope'"),
        ("--sort nope", "nope"),
        ("--temperature warm", "warm"),
        ("show nobody", "no run nobody"),
        ("show ../bear", "no run ../bear"),
        ("title nobody a", "no run nobody"),
        ("tag fox", "No tag"),
        ("tag fox --add a,b", "comma"),
        ("tag 1-story-mars --add a", "comes with MARS Viz"),
        ("title 1-story-mars a", "comes with MARS Viz"),
        ("delete fox nobody", "Nothing was changed"),
        ("delete fox 1-story-mars", "comes with MARS Viz"),
        ("delete", "ID"),
        ("restore fox", "not in the bin"),
        ("lose fox", "lose"),
    ):
        assert message in said(capsys, *arguments.split(), code=2)
    assert {path: path.read_bytes() for path in store.folder.rglob("*.json")} == before
