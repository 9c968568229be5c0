"""The folder of live runs: names, tags, journals, replacing, and what a process that is killed leaves behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mars_viz import locks
from mars_viz.errors import BadInput
from mars_viz.run import Run
from mars_viz.runfiles import load_run, manifest, read_zip, unpacked, write_zip
from mars_viz.runfiles.codec import MANIFEST
from mars_viz.runfiles.manifest import LONGEST_TAG, MOST_TAGS, checked_tags, retagged
from mars_viz.runstore import RunStatus, RunStore, checked_name, list_runs, read
from tests.factories import toy_run

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def run():
    return replace(toy_run(temperature=1.0, max_new_tokens=60), title="A toy")


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


def cut(run: Run, rounds: int) -> Run:
    return replace(run, rounds=run.rounds[:rounds])


def kept(store: RunStore, run: Run) -> str:
    return store.finish(store.begin(), run)


def interrupted(store: RunStore, run: Run, *rounds: int) -> str:
    """A run that was cut short after the last of these rounds, each of which was written."""
    journal = store.begin()
    for count in rounds:
        journal.write(cut(run, count))
    journal.leave()
    return journal.folder.name[1 : -len(".journal")]


def same(one: Run, other: Run) -> bool:
    """The same tokens from the same drafts; arrays in records do not compare as a whole."""
    drafts = [[round_.speculation.tokens.tolist() for round_ in each.rounds] for each in (one, other)]
    return one.token_ids == other.token_ids and one.prompt_ids == other.prompt_ids and drafts[0] == drafts[1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(message: str, *changes: Callable[[], object]) -> None:
    for change in changes:
        with pytest.raises(BadInput, match=message):
            change()


def test_a_run_is_seen_growing_and_then_whole(store, run):
    journal = store.begin()
    journal.write(cut(run, 1))
    journal.write(cut(run, 4))
    (entry,) = store.list()
    assert (entry.standing, entry.heading) == (RunStatus.GROWING, "A toy")
    assert entry.facts.tokens == len(cut(run, 4).token_ids) and same(read(entry.path), cut(run, 4))
    refused("being decoded", lambda: store.rename(entry.name, "b"), lambda: store.delete(entry.name))
    refused("being decoded", lambda: store.tag(entry.name, ["a"]))
    name = store.finish(journal, run)
    (entry,) = store.list()
    assert (entry.name, entry.standing, entry.facts.tokens) == (name, RunStatus.WHOLE, len(run.token_ids))
    assert same(read(entry.path), run) and names(store.folder) == [name]


def test_an_interrupted_run_can_be_renamed_and_tagged(store, run):
    name = interrupted(store, run, 2, 4, 6)
    store.rename(name, "As far as it came")
    (entry,) = store.list()
    assert (entry.name, entry.heading, entry.standing) == (name, "As far as it came", RunStatus.INTERRUPTED)
    assert same(read(entry.path), cut(run, 6)) and read(entry.path).title == "As far as it came"
    assert store.tag(name, ["cut"]) == store.find(name).facts.tags == read(entry.path).tags == ("cut",)
    assert read(entry.path).pieces.keys() <= run.pieces.keys() and names(entry.path) == [
        *map("{:09}".format, (4, 6)),
        "lock",
    ]


def test_a_decode_that_made_nothing_leaves_nothing(store, run):
    assert store.list() == [] and not store.folder.exists()
    nothing, cut_short, whole = (store.begin(name, "a mark") for name in ("nothing", "cut-short", "whole"))
    cut_short.write(cut(run, 1))
    for journal in (nothing, cut_short):
        store.leave(journal)
    store.finish(whole, run)
    assert names(store.folder / ".makers") == ["cut-short", "whole"] and len(store.list()) == 2


def test_another_title_or_tag_changes_nothing_else(store, run, tmp_path):
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (store.folder / name).iterdir()}

    name, title = kept(store, run), "Fox: take 2/3 🦊"
    before = files()
    assert b"tags" not in before[MANIFEST], "versions that know of no tags read it"
    assert store.rename(name, f"  {title} ") == title and store.tag(name, ["paper", "θ"]) == ("paper", "θ")
    after = files()
    assert json.loads(after.pop(MANIFEST)) == json.loads(before[MANIFEST]) | {"title": title, "tags": ["paper", "θ"]}
    assert after == {file: data for file, data in before.items() if file != MANIFEST}
    (entry,) = store.list()
    unzipped = read_zip(write_zip(read(entry.path)), tmp_path / "unzipped")
    assert (entry.name, entry.heading, unzipped.title) == (name, title, title) and same(unzipped, run)
    assert unzipped.tags == read_zip(write_zip(unzipped), tmp_path / "again").tags == ("paper", "θ")
    assert store.tag(name, remove=["PAPER", "θ"]) == () and store.rename(name, "A toy")
    assert files() == before and names(store.folder) == [name]


def test_replacing_keeps_a_new_title_survives_a_crash_and_restores_no_deleted_run(store, run):
    name = kept(store, cut(run, 2))
    store.rename(name, "Given meanwhile")
    store.replace(name, run)
    assert store.find(name).heading == "Given meanwhile" and same(read(store.find(name).path), run)
    assert names(store.folder) == [name]
    (store.folder / name).rename(store.folder / f".{name}.{'0' * 32}.old")  # killed between the two renamings
    assert store.list() == []
    assert same(read(RunStore(store.folder).find(name).path), run)
    store.delete(name)
    refused("was deleted meanwhile", lambda: store.replace(name, run))
    assert store.list() == [] and names(store.folder) == [".bin"]


def test_deleted_runs_come_back_under_their_names(store, run):
    name, other = kept(store, run), kept(store, run)
    begun = interrupted(store, run, 3)
    for each in (name, begun):
        store.delete(each)
        refused("no run of that name", lambda: store.delete(each))  # noqa: B023 # called at once
    assert [entry.name for entry in store.list()] == [other]
    assert {entry.name for entry in store.deleted()} == {name, begun}
    assert {entry.standing for entry in store.deleted()} == {RunStatus.DELETED}
    RunStore(store.folder)  # another server starts and tidies up
    store.restore(name)
    store.restore(begun)
    assert {entry.name for entry in store.list()} == {name, other, begun} and store.deleted() == ()
    assert same(read(store.find(name).path), run) and same(read(store.find(begun).path), cut(run, 3))
    refused("not in the bin any more", lambda: store.restore(name))
    store.delete(name)
    store.finish(store.begin(name), cut(run, 2))
    refused("exists already", lambda: store.restore(name))
    assert same(read(store.find(name).path), cut(run, 2)) and len(store.deleted()) == 1
    store.delete(name)  # the bin keeps the last run of a name
    store.restore(name)
    assert same(read(store.find(name).path), cut(run, 2))


def test_the_bin_is_bounded_in_days_and_in_bytes(store, run, monkeypatch):
    runs = [kept(store, run) for _ in range(4)]
    for ago, name in zip((31, 3, 2, 1), runs, strict=True):
        store.delete(name)
        os.utime(store.folder / ".bin" / name, (time.time() - ago * 86_400,) * 2)
    one = sum(path.stat().st_size for path in (store.folder / ".bin" / runs[3]).iterdir())
    for limit, left in ((2**40, runs[1:]), (2 * one + one // 2, runs[2:]), (1, runs[3:])):  # the last always stays
        monkeypatch.setattr("mars_viz.runstore.BYTES", limit)
        RunStore(store.folder)
        assert {entry.name for entry in store.deleted()} == set(left)


def test_the_maker_of_a_run_is_kept_outside_the_run(store, run):
    name = kept(store, run)
    store.makers.note(name, "a mark")
    store.makers.note("nobody's", "")
    asked = (name, "nobody's", f"../.makers/{name}")
    assert [store.makers.of(each) for each in asked] == ["a mark", "", ""]
    store.rename(name, "Fox")
    store.replace(name, run)
    store.delete(name)
    assert RunStore(store.folder).makers.of(name) == "a mark"
    store.restore(name)
    assert all(b"a mark" not in path.read_bytes() for path in (store.folder / name).iterdir())
    assert (
        b"a mark" not in b"".join(unpacked(write_zip(read(store.find(name).path))).values())
        and len(list_runs(store.folder)) == 1
    )
    store.delete(name)
    os.utime(store.folder / ".bin" / name, (0, 0))
    assert RunStore(store.folder).deleted() == () and store.makers.of(name) == ""


def test_names_cannot_leave_the_folder(store, run):
    mine = kept(store, run)
    bad = ["", " ", "..", ".", "../out", "a/b", "a\\b", "/etc", ".hidden", "a\0b", "a\nb", "con", "LPT1.txt", "x" * 81]
    refused(".", *(partial(checked_name, name) for name in [*bad, "a:b", "é" * 41, "-rf", "name.", "~", "a\u202eb"]))
    refused(".", *(partial(change, "../out") for change in (store.delete, store.restore, store.find)))
    refused(".", lambda: store.replace("../out", run), lambda: store.rename("../out", "O"))
    assert [entry.name for entry in store.list()] == [mine] and names(store.folder.parent) == ["runs"]


def test_leftovers_of_a_crash_are_removed_and_other_hidden_files_are_not(store, run):
    name = kept(store, run)
    gone, fresh, stale = (f".{name}.{letter * 32}" for letter in "abc")
    for left in (f"{gone}.gone", fresh, stale, f".{name}.journal", ".mine"):  # the run is whole, so its journal is old
        (store.folder / left).mkdir()
    os.utime(store.folder / stale, (0, 0))
    RunStore(store.folder)
    assert names(store.folder) == sorted([".mine", fresh, name])  # `fresh` may still be written


def test_a_broken_run_is_listed_with_its_fault_and_can_be_deleted(store, run):
    name = kept(store, run)
    (store.folder / name / MANIFEST).write_text("{")
    (entry,) = store.list()
    assert entry.standing is RunStatus.BROKEN and MANIFEST in entry.error
    refused("no title or tags", lambda: store.tag(name, ["a"]))
    store.delete(name)
    assert store.list() == []


def test_a_disk_that_refuses_to_write_is_bad_input(store, run, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    refused("cannot be written", RunStore(tmp_path / "file").begin)
    name = kept(store, run)

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(Path, "rename", refuse)
    refused("Read-only file system", lambda: store.rename(name, "b"), lambda: store.delete(name))
    assert store.find(name).heading == "A toy" and names(store.folder) == [".bin", name]


def test_bad_tags_are_refused_in_the_store_and_in_files(store, run):
    name = kept(store, run)
    about = json.loads((store.folder / name / MANIFEST).read_bytes())
    control = dict.fromkeys(("a\nb", "a\u202eb"), "control character")
    wrong = {" ": "empty", "\u200d": "empty", "x" * (LONGEST_TAG + 1): "at most 40", "a,b": "comma"}
    for tag, message in (wrong | control).items():
        refused(message, partial(store.tag, name, ["good", tag]))
    for tags in (["b", "a"], ["a", "A"], [" a"], [""], ["x" * 41], ["x"] * 21, "a", [1], None, {"a": "b"}):
        refused("tags", partial(manifest.from_json, json.dumps(about | {"tags": tags}).encode()))
    assert len(store.tag(name, map(str, range(MOST_TAGS)))) == MOST_TAGS
    refused("21 tags", lambda: store.tag(name, ["one more"]))
    store.replace(name, run)  # a map that was added keeps them
    assert len(load_run(store.folder / name).tags) == MOST_TAGS
    assert checked_tags(["paper  2", " Ärger ", "Paper 2", "a"]) == ("a", "paper 2", "Ärger")
    assert retagged(("a", "Paper"), add=["b"], remove=["paper", "never there"]) == ("a", "b")


SAVING = """
import sys
from dataclasses import replace
from mars_viz import load_run
from mars_viz.runstore import RunStore

store, run = RunStore(sys.argv[1]), load_run(sys.argv[2])
while True:
    journal = store.begin()
    for rounds in range(1, len(run.rounds) + 1, 3):
        journal.write(replace(run, rounds=run.rounds[:rounds]))
        print("wrote", journal.folder.name[1:-8], rounds, flush=True)
    print("kept", store.finish(journal, run), flush=True)
"""


def test_a_kill_leaves_finished_runs_whole_and_others_with_their_rounds(tmp_path):
    whole = toy_run(temperature=1.0, max_new_tokens=60)
    command = [sys.executable, "-c", SAVING, str(tmp_path / "runs"), str(whole.save(tmp_path / "whole"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as saving:
        lines = [saving.stdout.readline() for _ in range(len(whole.rounds) * 2 // 3 - 1)]  # of the second run
        saving.send_signal(signal.SIGKILL)
    promised = {line.split()[1] for line in lines if line.startswith("kept")}
    written = {line.split()[1]: int(line.split()[2]) for line in lines if line.startswith("wrote")}
    listed = {entry.name: entry for entry in RunStore(tmp_path / "runs").list()}
    assert promised and promised <= {name for name, entry in listed.items() if entry.standing is RunStatus.WHOLE}
    assert written.keys() <= listed.keys()
    for name, entry in listed.items():
        if entry.standing is RunStatus.INTERRUPTED and entry.error:
            assert name not in written  # killed before its first round
            continue
        found = read(entry.path)
        rounds = len(whole.rounds) if entry.standing is RunStatus.WHOLE else max(written.get(name, 0), 1)
        assert len(found.rounds) >= rounds and same(found, cut(whole, len(found.rounds)))


def test_a_journal_is_held_even_where_somebody_asks_about_it_at_that_moment(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / "lock").open("wb") as mine, (tmp_path / "lock").open("rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(theirs, fcntl.LOCK_UN)).start()
        locks.try_lock(mine.fileno(), locks.PATIENCE)
        assert locks.holder(tmp_path, "lock") is not None
    assert locks.holder(tmp_path, "lock") is None


def test_a_folder_locked_by_another_program_is_bad_input(store, run, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    name = kept(store, run)
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    descriptor = os.open(store.folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    refused("Another program has been changing", lambda: store.delete(name), lambda: store.rename(name, "b"))
    refused("Another program has been changing", lambda: store.replace(name, run))
    os.close(descriptor)
    assert [entry.name for entry in RunStore(store.folder).list()] == [name]


def test_a_bad_title_or_one_changed_meanwhile_is_refused_and_the_old_one_stays(store, run):
    name = kept(store, run)
    refused("empty", lambda: store.rename(name, ""), lambda: store.rename(name, "\u200d"))
    refused("81 characters", lambda: store.rename(name, "x" * 81))
    signs = "\0\n\r\t\x1b\x7f\x85\u2028\u202e\u2066\ufeff\ud800"
    refused("control character", *(partial(store.rename, name, f"a{sign}b") for sign in signs))
    assert store.find(name).heading == "A toy"
    store.rename(name, "Theirs", "A toy")
    refused("“Theirs” meanwhile", lambda: store.rename(name, "Mine", "A toy"))
    assert store.find(name).heading == "Theirs"
