"""The one writer: whole or not there, through no link that lies in the way, and used by everything that writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sweep_cases import COSTS, timing, toy_sweep

from mars_viz import locks, writer
from mars_viz.errors import BadInput
from mars_viz.race import load_race, save_race
from mars_viz.race.files import write_zip as race_zip
from mars_viz.race.store import RaceStore
from mars_viz.report import report_html
from mars_viz.report.files import write_report
from mars_viz.runfiles import save_run
from mars_viz.runstore import RunStore
from mars_viz.site import write_site
from mars_viz.sweep import load_sweep, store, texts
from mars_viz.sweep.evidence_pack import write_evidence
from mars_viz.sweep.timing import keep_check, kept_checks
from tests.factories import toy_run
from tests.test_race import toy_race

ROOT = Path(__file__).parents[1]
RUN = replace(toy_run(max_new_tokens=20), title="A toy")
SECRET = b"nobody's business"
PATIENCE = 240.0


def a_run(folder: Path) -> None:
    store_ = RunStore(folder)
    store_.finish(store_.begin("one"), RUN)


def interrupted(folder: Path) -> None:
    journal = RunStore(folder).begin("one")
    journal.write(RUN)
    journal.leave()


def decoded(folder: Path) -> None:
    store_ = RunStore(folder)
    journal = store_.begin("one")
    for rounds in (1, 3):
        journal.write(replace(RUN, rounds=RUN.rounds[:rounds]))
    store_.finish(journal, RUN)


def a_race(folder: Path) -> None:
    save_race(toy_race(), folder / "one")


def a_zipped_race(folder: Path) -> None:
    save_race(toy_race(), folder / "one")
    RaceStore(folder).bring(race_zip(folder / "one"), "two")


def a_sweep(folder: Path) -> None:
    toy_sweep(folder / "swept", 3).finish()


def half_a_sweep(folder: Path) -> None:
    for progress in toy_sweep(folder / "swept", 3):
        if progress.finished == 1:
            break


def a_larger_sweep(folder: Path) -> None:
    toy_sweep(folder / "swept", 5, resume=True).finish()


def deleted(folder: Path) -> None:
    a_run(folder)
    RunStore(folder).delete("one")


class Case(NamedTuple):
    write: Callable[[Path], object]
    before: Callable[[Path], object] = lambda folder: None


CASES = {
    "run": Case(lambda folder: save_run(RUN, folder / "one")),
    "race": Case(a_race),
    "race's zip": Case(a_zipped_race),
    "decode": Case(decoded),
    "map of a run": Case(lambda folder: RunStore(folder).replace("one", RUN), a_run),
    "title of a run": Case(lambda folder: RunStore(folder).rename("one", "Mine"), a_run),
    "title of an interrupted run": Case(lambda folder: RunStore(folder).rename("one", "Mine"), interrupted),
    "title of a race": Case(lambda folder: RaceStore(folder).rename("one", "Mine"), a_race),
    "deleted run": Case(lambda folder: RunStore(folder).delete("one"), a_run),
    "restored run": Case(lambda folder: RunStore(folder).restore("one"), deleted),
    "maker": Case(lambda folder: RunStore(folder).makers.note("one", "a mark"), a_run),
    "sweep": Case(a_sweep),
    "rest of a sweep": Case(lambda folder: toy_sweep(folder / "swept", 3, resume=True).finish(), half_a_sweep),
    "more prompts": Case(a_larger_sweep, a_sweep),
    "costs of a sweep": Case(lambda folder: store.keep_costs(folder / "swept", COSTS), a_sweep),
    "wall-clock check": Case(lambda folder: keep_check(folder / "swept", timing()), a_sweep),
    "evidence": Case(
        lambda folder: write_evidence(folder / "pack", load_sweep(folder / "swept"), dial=0.9, grid=[1.0, 0.9]), a_sweep
    ),
    "report": Case(lambda folder: write_report(report_html(RUN, most_steps=0), folder / "report.html")),
    "site": Case(lambda folder: write_site([RUN], folder / "site")),
}


@dataclass(slots=True)
class Heard:
    folder: Path
    opened: dict[Path, int]  # files opened to write, with the flags
    named: set[Path]  # targets of renames
    read: set[Path] = field(default_factory=set)  # files and folders that were opened


_LISTENING: list[Heard] = []


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if not _LISTENING or event not in ("open", "os.rename", "os.scandir", "os.listdir"):
        return
    heard = _LISTENING[-1]
    path = arguments[1 if event == "os.rename" else 0]
    if not isinstance(path, str | os.PathLike):
        return
    real = Path(os.path.realpath(path))
    if event != "os.rename" and heard.folder in (real, *real.parents):
        heard.read.add(Path(path))
    if heard.folder not in Path(path).parents:
        return
    if event == "os.rename":
        heard.named.add(Path(path))
    elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        heard.opened[Path(path)] = arguments[2]


sys.addaudithook(_listen)


@contextmanager
def listening(folder: Path) -> Iterator[Heard]:
    """Hear of every file that Python opens below the folder."""
    _LISTENING.append(Heard(folder, {}, set()))
    try:
        yield _LISTENING[-1]
    finally:
        _LISTENING.pop()


@pytest.mark.parametrize("name", CASES)
def test_no_link_that_lies_in_the_way_is_written_through(tmp_path, name):
    case, victim, (first, second) = CASES[name], tmp_path / "victim", (tmp_path / "first", tmp_path / "second")
    victim.write_bytes(SECRET)
    for folder in (first, second):
        folder.mkdir()
        case.before(folder)
    with listening(first) as heard:
        case.write(first)
    assert not [path for path in first.rglob(".*") if writer._RANDOM.fullmatch(path.name)]
    assert heard.opened or heard.named
    for path, flags in heard.opened.items():
        assert flags & os.O_NOFOLLOW, path
        assert flags & os.O_EXCL or path.name == ".lock", path
    for path in sorted({*heard.opened, *heard.named}):
        there = second / path.relative_to(first)
        if there.parent.is_dir() and not os.path.lexists(there):
            there.symlink_to(victim)
    with suppress(BadInput):
        case.write(second)
    assert victim.read_bytes() == SECRET


def test_a_pipe_in_place_of_the_lock_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    assert locks.holder(tmp_path) is None
    with pytest.raises(BadInput, match=r"\.lock in it is no plain file"), locks.held(tmp_path):
        pass


def test_a_new_sweep_takes_no_linked_folder_for_its_results(tmp_path):
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    for folder in (victim, shared):
        folder.mkdir()
    (victim / ".profile").write_bytes(SECRET)
    (shared / "results").symlink_to(victim)
    with pytest.raises(BadInput, match="is not empty"):
        toy_sweep(shared, 2)
    assert (victim / ".profile").read_bytes() == SECRET and len(list(victim.iterdir())) == 1


def test_a_link_that_another_user_made_leads_nowhere(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root makes links in another's name")
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
    for change in (lambda: races.save(toy_race(), "race"), lambda: races.restore("old")):
        with pytest.raises(BadInput, match="a link that another user made"):
            change()
    with pytest.raises(BadInput, match="a link that another user made"):
        runs.delete("one")
    with pytest.raises(BadInput, match="a link that another user made"):
        keep_check(tmp_path / "swept", timing())
    runs.makers.note("one", "a mark")
    RunStore(runs.folder)  # which empties the bin of what is overdue
    assert [*victim.rglob("*"), *notes.iterdir()] == [old.parent, old, note]


def a_shelf(folder: Path) -> None:
    """Something of every kind that is kept: below runs and sweeps, one of them a level further down."""
    kept = RunStore(folder / "runs")
    for name in ("one", "two"):
        kept.finish(kept.begin(name, "a mark"), RUN)
    kept.delete("two")
    journal = kept.begin("three")
    journal.write(RUN)
    journal.leave()
    a_race(folder / "runs" / "races")
    a_sweep(folder / "sweeps" / "grid")
    keep_check(folder / "sweeps" / "grid" / "swept", timing())


def readable(folder: Path) -> set[str]:
    """What of it can be read, by every way that reads what is listed as whole."""
    runs, races = RunStore(folder / "runs"), RaceStore(folder / "runs" / "races")
    ways: dict[str, Callable[[], object]] = {
        "bin": lambda: [kept for kept in runs.deleted() if not kept.error],
        "makers": lambda: all(map(runs.makers.of, ("one", "two"))),
    }
    for kept in runs.list():
        ways[f"run {kept.name}"] = partial(runs.zipped, kept.name)
    for entry in races.list():
        ways |= {"race": partial(load_race, entry.path), "race's zip": partial(race_zip, entry.path)}
    for swept in [entry for entry in store.list_sweeps(folder / "sweeps") if not entry.error]:
        ways |= {
            "sweep": partial(load_sweep, swept.path),
            "prompts": lambda path=swept.path: store.open_store(path).prompts(),
            "texts": lambda path=swept.path: [texts.read(path, place) for place in range(3)],
            "checks": lambda path=swept.path: kept_checks(path, store.open_store(path).plan).found,
        }
    found = set()
    for name, read in ways.items():
        with suppress(BadInput):
            if read():
                found.add(name)
    return found


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    a_shelf(folder)
    return folder


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
def test_what_another_user_links_to_is_not_read(shelf, tmp_path, step):
    if os.geteuid() != 0:
        pytest.skip("only root makes links in another's name")
    whole, elsewhere = readable(shelf), tmp_path / "elsewhere"
    assert len(whole) == 10
    there = [path for path in sorted(shelf.rglob("*")) if path.parent != shelf and path.name not in ("lock", ".lock")]
    assert len(there) > 40
    for path in there[::step]:
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        os.lchown(path, 4711, 4711)
        with listening(elsewhere) as heard:
            assert readable(shelf) < whole, path
        assert not heard.read, path
        path.unlink()
        elsewhere.rename(path)
    assert readable(shelf) == whole


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(shelf, tmp_path, step):
    def waits(*_):
        raise AssertionError(f"somebody waits for {path}")

    whole, elsewhere = readable(shelf), tmp_path / "elsewhere"
    before = signal.signal(signal.SIGALRM, waits)
    files = [path for path in sorted(shelf.rglob("*")) if path.is_file() and path.name != "lock"]
    for path in files[step // 2 :: step]:
        path.rename(elsewhere)
        os.mkfifo(path)
        signal.alarm(int(PATIENCE))
        assert readable(shelf) < whole, path
        signal.alarm(0)
        path.unlink()
        elsewhere.rename(path)
    signal.signal(signal.SIGALRM, before)


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
    assert [entry.title for entry in kept.list()] == ["Mine"]
    a_sweep(elsewhere)
    os.rename(elsewhere / "swept" / "results", tmp_path / "results")
    (elsewhere / "swept" / "results").symlink_to(tmp_path / "results")
    a_larger_sweep(runs)
    assert len(load_sweep(runs / "swept")) == 5


def test_permissions_are_those_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        writer.write_file(tmp_path / "file", b"")
        writer.write_folder(tmp_path / "folder", {"in/file": b""})
        with locks.held(tmp_path):
            held = (tmp_path / ".lock").stat().st_mode
    finally:
        os.umask(before)
    assert held & 0o777 == (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder" / "in" / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder" / "in").stat().st_mode & 0o777 == 0o750


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    writer.write_file(path, b"old")
    with pytest.raises(KeyboardInterrupt), writer.replacing(path) as file:
        file.write(b"ne")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_long_names_have_room_for_the_random_one(tmp_path):
    path = tmp_path / ("é" * 127)
    writer.write_file(path, b"whole")
    assert path.read_bytes() == b"whole"


WRITING = """
import sys
from pathlib import Path
from mars_viz.writer import write_file, write_folder
folder = Path(sys.argv[1])
for number in range(100_000):
    data = bytes([number % 256]) * (4 << 20)
    write_file(folder / "file", data)
    write_folder(folder / f"folder-{number}", {"in/one": data, "two": data})
"""


@pytest.mark.parametrize("kill", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_kill_leaves_whole_files_and_what_can_be_found(tmp_path, kill):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    end = time.monotonic() + PATIENCE
    with subprocess.Popen([sys.executable, "-c", WRITING, str(tmp_path)], env=environment) as process:
        while not ((tmp_path / f"folder-{kill}").is_dir() and unfinished(tmp_path)):
            assert time.monotonic() < end and process.poll() is None
        process.send_signal(signal.SIGKILL)
    data = (tmp_path / "file").read_bytes()
    assert len(data) == 4 << 20 and len(set(data)) == 1
    for folder in tmp_path.glob("folder-*"):
        assert (folder / "in" / "one").read_bytes() == (folder / "two").read_bytes()
    writer.remove_leftovers(tmp_path)
    left = unfinished(tmp_path)  # perhaps somebody is still writing it
    for path in left:
        os.utime(path, (0, 0))
    writer.write_file(tmp_path / "file", b"")
    writer.write_folder(tmp_path / "another", {"file": b""})
    assert [path for path in unfinished(tmp_path) if path.name.startswith(".file.")] == []
    writer.remove_leftovers(tmp_path)
    assert unfinished(tmp_path) == []


def unfinished(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def test_leftovers_are_known_by_their_names_and_links_among_them_go_alone(tmp_path):
    victim, tail = tmp_path / "victim", "0" * 32
    victim.mkdir()
    (victim / "file").write_bytes(SECRET)
    (tmp_path / f".a.{tail}").symlink_to(victim)
    for name in (".lock", f".a.{tail}x", ".bashrc"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f".b.{tail}").mkdir()
    writer.remove_leftovers(tmp_path, "a", age=0)
    assert {path.name for path in tmp_path.iterdir()} == {"victim", ".lock", f".a.{tail}x", ".bashrc", f".b.{tail}"}
    writer.remove_leftovers(tmp_path, age=0)
    assert not (tmp_path / f".b.{tail}").exists() and (victim / "file").read_bytes() == SECRET


def test_links_in_the_way_of_a_sweep_are_not_followed(tmp_path):
    victim, tail = tmp_path / "victim", "0" * 32
    victim.write_bytes(SECRET)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / ".sweep.json.part").symlink_to(victim)
    toy_sweep(tmp_path / "shared", 2).finish()
    a_sweep(tmp_path)
    folder = tmp_path / "swept"
    left = [folder / f".sweep.json.{tail}", *(folder / each / f".x.parquet.{tail}" for each in ("results", "texts"))]
    for path in left:
        path.write_bytes(b"half")
    a_larger_sweep(tmp_path)
    assert not any(path.exists() for path in left)
    (folder / ".lock").unlink(missing_ok=True)
    (folder / ".lock").symlink_to(victim)
    with pytest.raises(BadInput, match=r"cannot be written \(\.lock in it is a link"):
        toy_sweep(folder, 6, resume=True).finish()
    assert victim.read_bytes() == SECRET
