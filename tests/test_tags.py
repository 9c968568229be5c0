from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mars_viz.errors import BadInput
from mars_viz.runfiles import list_runs, load_run, manifest, read_zip, write_zip
from mars_viz.runfiles.codec import MANIFEST
from mars_viz.runfiles.manifest import LONGEST_TAG, MOST_TAGS, checked_tags, retagged
from mars_viz.runstore import RunStatus, RunStore, read
from tests.factories import toy_run


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


def kept(store: RunStore) -> str:
    return store.finish(store.begin(), replace(toy_run(), title="A toy"))


def test_tags_are_in_order_each_once_whatever_their_capitals():
    assert checked_tags(["paper  2", " Ärger ", "Paper 2", "a"]) == ("a", "paper 2", "Ärger")
    assert retagged(("a", "Paper"), add=["b"], remove=["paper", "never there"]) == ("a", "b")


def test_a_tag_is_put_and_taken_away_and_travels_with_the_run(store, tmp_path):
    name = kept(store)
    plain = (store.folder / name / MANIFEST).read_bytes()
    assert b"tags" not in plain, "versions that know of no tags read it"
    assert store.tag(name, ["paper", "θ"]) == ("paper", "θ")
    (entry,) = list_runs(store.folder)
    assert entry.manifest is not None and entry.manifest.tags == ("paper", "θ") and entry.title == "A toy"
    run = load_run(entry.path)
    assert run.tags == ("paper", "θ")
    assert read_zip(write_zip(run), tmp_path / "again").tags == run.tags
    assert store.rename(name, "Fox") and load_run(entry.path).tags == run.tags
    assert store.tag(name, remove=["PAPER", "θ"]) == ()
    assert (store.folder / name / MANIFEST).read_bytes() == plain.replace(b'"A toy"', b'"Fox"')


def test_an_interrupted_run_is_tagged_and_a_growing_or_broken_one_is_not(store):
    journal, run = store.begin(), toy_run()
    journal.write(replace(run, rounds=run.rounds[:2]))
    with pytest.raises(BadInput, match="being decoded"):
        store.tag(journal.name, ["a"])
    journal.leave()
    assert store.find(journal.name).standing is RunStatus.INTERRUPTED
    assert store.tag(journal.name, ["cut"]) == ("cut",)
    found = store.find(journal.name)
    assert found.manifest is not None and found.manifest.tags == ("cut",) and read(found.path).tags == ("cut",)
    broken = kept(store)
    (store.folder / broken / MANIFEST).write_text("{")
    with pytest.raises(BadInput, match="no title or tags"):
        store.tag(broken, ["a"])


def test_bad_tags_change_nothing(store):
    name = kept(store)
    before = (store.folder / name / MANIFEST).read_bytes()
    control = dict.fromkeys(("a\nb", "a\u202eb"), "control character")
    wrong = {" ": "empty", "\u200d": "empty", "x" * (LONGEST_TAG + 1): "at most 40", "a,b": "comma"} | control
    for tag, message in wrong.items():
        with pytest.raises(BadInput, match=message):
            store.tag(name, ["good", tag])
    assert (store.folder / name / MANIFEST).read_bytes() == before
    assert len(store.tag(name, map(str, range(MOST_TAGS)))) == MOST_TAGS
    with pytest.raises(BadInput, match="21 tags"):
        store.tag(name, ["one more"])
    store.replace(name, replace(toy_run(), title="A toy"))  # a map that was added keeps them
    assert len(load_run(store.folder / name).tags) == MOST_TAGS


def test_bad_tags_in_a_file_are_refused(store):
    about = json.loads((store.folder / kept(store) / MANIFEST).read_bytes())
    many = [["b", "a"], ["a", "A"], [" a"], [""], ["a,b"], ["a\u202e"], ["x" * 41], ["x"] * 21]
    for tags in (*many, "a", [1], None, {"a": "b"}):
        with pytest.raises(BadInput, match="tags"):
            manifest.from_json(json.dumps(about | {"tags": tags}).encode())
