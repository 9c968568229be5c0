"""The one writer: whole or not there, through no link that lies in the way, and used by everything that writes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import COSTS, timing, toy_sweep, write_evidence

from mars_viz import locks, writer
from mars_viz.errors import BadInput
from mars_viz.race import RaceStore, load_race, save_race
from mars_viz.report import report_html
from mars_viz.report.page import write_report
from mars_viz.runfiles import save_run
from mars_viz.runstore import RunStore, read
from mars_viz.site import write_site
from mars_viz.sweep import load_sweep, store, texts
from mars_viz.sweep.wall_clock import keep_check, kept_checks
from tests.factories import toy_run
from tests.test_race import toy_race

RUN = replace(toy_run(max_new_tokens=20), title="A toy")
SECRET = b"nobody's business"


def a_run(folder: Path) -> None:
    kept = RunStore(folder)
    kept.finish(kept.begin("one"), RUN)


def a_sweep(folder: Path, count: int = 3) -> None:
    toy_sweep(folder / "swept", count, resume=count > 3).finish()


def everything(folder: Path) -> None:
    runs, races, sweeps = folder / "runs", folder / "runs" / "races", folder / "sweeps" / "grid"
    kept = RunStore(runs)
    for name in ("one", "two", "four"):
        kept.finish(kept.begin(name, "a mark"), RUN)
    kept.rename("one", "Mine")
    for name in ("two", "four"):
        kept.delete(name)
    kept.restore("four")
    kept.replace("four", RUN)
    journal = kept.begin("three")
    journal.write(RUN)
    journal.leave()
    kept.rename("three", "Cut short")
    save_run(RUN, folder / "saved")
    save_race(toy_race(), races / "one")
    RaceStore(races).save(toy_race(), "two")
    RaceStore(races).rename("two", "Mine")
    a_sweep(sweeps)
    a_sweep(sweeps, 5)
    store.keep_costs(sweeps / "swept", COSTS)
    keep_check(sweeps / "swept", timing())
    write_evidence(folder / "pack", load_sweep(sweeps / "swept"), dial=0.9, grid=[1.0, 0.9])
    write_report(report_html(RUN, most_steps=0), folder / "report.html")
    write_site([RUN], folder / "site")


_LISTENING: list[list[tuple[Path, int]]] = []


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _LISTENING and event in ("open", "os.scandir", "os.listdir") and isinstance(arguments[0], str | os.PathLike):
        _LISTENING[-1].append((Path(arguments[0]), arguments[2] if event == "open" else 0))


sys.addaudithook(_listen)


@contextmanager
def listening() -> Iterator[list[tuple[Path, int]]]:
    """Hear of every file and folder that Python opens, with the flags."""
    _LISTENING.append([])
    try:
        yield _LISTENING[-1]
    finally:
        _LISTENING.pop()


def test_nothing_is_written_through_a_link(tmp_path):
    with listening() as heard:
        everything(tmp_path)
    assert not [path for path in tmp_path.rglob(".*") if writer._RANDOM.fullmatch(path.name)]
    written = {(p, how) for p, how in heard if tmp_path in p.parents and how & (os.O_WRONLY | os.O_RDWR)}
    assert len(written) > 60
    for path, flags in written:
        assert flags & os.O_NOFOLLOW and (flags & os.O_EXCL or path.name == ".lock"), path
    victim, place = tmp_path / "victim", tmp_path / "place"
    victim.write_bytes(SECRET)
    for write, more in ((writer.write_file, [b""]), (writer.write_folder, [{"a": b""}]), (writer.new_file, [])):
        place.symlink_to(victim)
        with suppress(BadInput, OSError):
            write(place, *more)
        assert victim.read_bytes() == SECRET
        place.unlink()


def test_a_pipe_or_a_link_in_place_of_the_lock_is_refused(tmp_path):
    a_sweep(tmp_path)
    lock, victim = tmp_path / "swept" / ".lock", tmp_path / "victim"
    victim.write_bytes(SECRET)
    lock.unlink(missing_ok=True)
    lock.symlink_to(victim)
    with pytest.raises(BadInput, match=r"cannot be written \(\.lock in it is a link"):
        a_sweep(tmp_path, 5)
    lock.unlink()
    os.mkfifo(lock)
    assert locks.holder(lock.parent) is None and victim.read_bytes() == SECRET
    with pytest.raises(BadInput, match=r"\.lock in it is no plain file"), locks.held(lock.parent):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links in another's name")
def test_a_link_that_another_user_made_is_not_followed(tmp_path):
    victim, notes = tmp_path / "victim", tmp_path / "notes"
    runs = RunStore(tmp_path / "runs")
    a_run(runs.folder)
    a_sweep(tmp_path)
    links = [runs.folder / ".bin", runs.folder / "races", tmp_path / "swept" / "checks", runs.folder / ".makers"]
    for link, to in zip(links, [victim, victim, victim, notes], strict=True):
        to.mkdir(exist_ok=True)
        link.symlink_to(to)
        os.lchown(link, 4711, 4711)
    old, note = victim / ".bin" / "old", notes / "note"
    old.mkdir(parents=True)
    note.write_bytes(SECRET)
    for each in (old, old.parent, note):
        os.utime(each, (0, 0))
    races = RaceStore(runs.folder / "races")
    for change in (
        lambda: races.save(toy_race(), "race"),
        lambda: races.restore("old"),
        lambda: runs.delete("one"),
        lambda: keep_check(tmp_path / "swept", timing()),
    ):
        with pytest.raises(BadInput, match="a link that another user made"):
            change()
    runs.makers.note("one", "a mark")
    RunStore(runs.folder)  # empties the bin of old runs
    assert [*victim.rglob("*"), *notes.iterdir()] == [old.parent, old, note]


def readable(folder: Path) -> set[str]:
    """What of it can be read, by every way that reads what is listed as whole."""
    runs, races = RunStore(folder / "runs"), RaceStore(folder / "runs" / "races")
    ways: dict[str, Any] = {
        "bin": lambda: [kept for kept in runs.deleted() if not kept.error],
        "makers": lambda: all(map(runs.makers.of, ("one", "two", "four"))),
    }
    ways |= {f"run {kept.name}": partial(read, runs.find(kept.name).path) for kept in runs.list()}
    for entry in races.list():
        ways[f"race {entry.path.name}"] = partial(load_race, entry.path)
    for path in [entry.path for entry in store.list_sweeps(folder / "sweeps") if not entry.error]:
        ways |= {
            "sweep": partial(load_sweep, path),
            "prompts": lambda: store.open_store(path).prompts(),  # noqa: B023 # there is one sweep
            "texts": lambda: [texts.read(path, place) for place in range(5)],  # noqa: B023
            "checks": lambda: kept_checks(path, store.open_store(path).plan).found,  # noqa: B023
        }
    found = set()
    for name, way in ways.items():
        with suppress(BadInput):
            if way():
                found.add(name)
    return found


def test_links_of_other_users_are_not_read_and_pipes_not_waited_for(tmp_path):
    shelf, elsewhere = tmp_path / "shelf", tmp_path / "elsewhere"
    everything(shelf)
    listed = readable(shelf)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"a reader waits for {path}"))
    paths = [path for name in ("runs", "sweeps") for path in sorted((shelf / name).rglob("*"))]
    paths = [path for path in paths if path.name not in ("lock", ".lock")]
    assert len(listed) == 11 and len(paths) > 40
    links = paths[4::9] if os.geteuid() == 0 else []  # only root makes links in another's name
    for number, path in enumerate([*links, *[path for path in paths if path.is_file()][4::9]]):
        path.rename(elsewhere)
        if number < len(links):
            path.symlink_to(elsewhere)
            os.lchown(path, 4711, 4711)
        else:
            os.mkfifo(path)
        signal.alarm(240)
        with listening() as heard:
            assert readable(shelf) < listed
        read = {each.resolve() for each in {each for each, _ in heard} if tmp_path in each.parents}
        assert not [each for each in read if elsewhere in (each, *each.parents)], path
        signal.alarm(0)
        path.unlink()
        elsewhere.rename(path)
    signal.signal(signal.SIGALRM, before)
    assert readable(shelf) == listed


def test_folders_that_are_links_of_ones_own_are_used_as_ever(tmp_path):
    elsewhere, runs = tmp_path / "elsewhere", tmp_path / "runs"
    (elsewhere / "bin").mkdir(parents=True)
    runs.symlink_to(elsewhere)
    (runs / ".bin").symlink_to(elsewhere / "bin")
    a_run(runs)
    kept = RunStore(runs)
    assert kept.rename("one", "Mine") == "Mine"
    kept.delete("one")
    assert (elsewhere / "bin" / "one").is_dir()
    kept.restore("one")
    assert [entry.heading for entry in kept.list()] == ["Mine"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        writer.write_file(tmp_path / "file", b"")
        writer.write_folder(tmp_path / "folder", {"in/file": b""})
        with locks.held(tmp_path):
            modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in (".lock", "file", "folder/in/file")}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o640}
    assert (tmp_path / "folder" / "in").stat().st_mode & 0o777 == 0o750


def test_a_failed_write_keeps_the_old_file_and_long_names_can_be_written(tmp_path):
    path = tmp_path / ("é" * 127)  # room for the random suffix
    writer.write_file(path, b"old")
    with pytest.raises(KeyboardInterrupt), writer.replacing(path) as file:
        file.write(b"ne")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_only_old_leftovers_are_removed_and_links_among_them_not_followed(tmp_path):
    victim, tail = tmp_path / "victim", "0" * 32
    victim.mkdir()
    (victim / "file").write_bytes(SECRET)
    (tmp_path / f".a.{tail}").symlink_to(victim)
    for name in (".lock", f".a.{tail}x", ".bashrc", f".b.{tail}", f".c.{tail}"):
        (tmp_path / name).write_bytes(b"")
    before = set(tmp_path.iterdir())
    writer.remove_leftovers(tmp_path)  # all are new: another process may be writing them
    assert set(tmp_path.iterdir()) == before
    writer.remove_leftovers(tmp_path, "a", age=0)
    assert before - set(tmp_path.iterdir()) == {tmp_path / f".a.{tail}"}
    for name in (f".c.{tail}", f".b.{tail}", ".lock"):
        os.utime(tmp_path / name, (0, 0))
    writer.write_file(tmp_path / "c", b"")  # removes its own old leftovers
    assert before - set(tmp_path.iterdir()) == {tmp_path / f".a.{tail}", tmp_path / f".c.{tail}"}
    writer.remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"c", "victim", ".lock", f".a.{tail}x", ".bashrc"}
    assert (victim / "file").read_bytes() == SECRET
