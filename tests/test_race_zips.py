"""Races that come in from a zip, as a person's or a stranger's, and the folder that keeps them."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from mars_viz.components.race import race_payload
from mars_viz.errors import BadInput
from mars_viz.race import files as race_zips
from mars_viz.race import load_race, save_race
from mars_viz.race.files import RACE, decode_race, read_zip, write_zip
from mars_viz.race.store import RaceStore
from mars_viz.runfiles.zips import unpacked
from tests.test_hostile_zips import understated
from tests.test_race import toy_race
from tests.test_runfiles import in_folder, zipped

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return save_race(toy_race(), tmp_path_factory.mktemp("races") / "one")


@pytest.fixture(scope="module")
def files(made):
    return unpacked(write_zip(made), RACE)


def test_a_race_comes_back_from_its_zip(made, files, tmp_path):
    assert race_payload(decode_race(files)) == race_payload(load_race(made))
    mac = in_folder(files, "one/") | {"one/.DS_Store": b"x", "__MACOSX/one/._race.json": b"x"}
    for number, data in enumerate((write_zip(made), zipped(files), zipped(mac))):
        read_zip(data, tmp_path / str(number))
        assert race_payload(load_race(tmp_path / str(number))) == race_payload(load_race(made))
    with pytest.raises(BadInput, match="exists already"):
        read_zip(write_zip(made), tmp_path / "0")


def without(files: Files, name: str) -> Files:
    return {each: data for each, data in files.items() if each != name}


BOMB = "relaxed/nodes.parquet"
HOSTILE: dict[str, tuple[Callable[[Files], bytes], str]] = {
    "empty": (lambda files: zipped({}), "race.json is missing"),
    "no lane": (lambda files: zipped({"race.json": files["race.json"]}), "run strict cannot be opened: manifest.json"),
    "part": (lambda files: zipped(without(files, BOMB)), "run relaxed .* nodes.parquet is missing"),
    "swapped": (
        lambda files: zipped({name.replace("strict/", "relaxed/") if name.startswith("strict/") else
                              name.replace("relaxed/", "strict/"): data for name, data in files.items()}),
        "not the run that the race was recorded with",
    ),
    "a run": (lambda files: zipped({name[7:]: data for name, data in files.items() if name.startswith("strict/")}),
              "no part of a race"),
    "stranger": (lambda files: zipped(files | {"strict/run.py": b""}), "no part of a race"),
    "climbing lane": (lambda files: zipped(files | {"strict/../../race.json": b""}), "leads elsewhere"),
    "two folders": (lambda files: zipped({f"{name[0]}/{name}": data for name, data in files.items()}), "one folder"),
    "twice": (lambda files: zipped(files | {"one/race.json": files["race.json"]}), "no part of a race"),
    "many": (lambda files: zipped(files | {f"{i}/": b"" for i in range(99)}), "too many"),
    "bomb": (lambda files: zipped(files | {BOMB: bytes(30_000_000)}), "far more than a race"),
    "lying bomb": (
        lambda files: understated(zipped(files | {BOMB: bytes(30_000_000)}), 30_000_000),
        "far more than a race|damaged|not what was written",
    ),
    "another device": (lambda files: zipped(files | {"race.json": b"{}"}), "not that of a race"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_zips_are_refused_and_leave_nothing(tmp_path, files, case):
    make, message = HOSTILE[case]
    with pytest.raises(BadInput, match=f"^The zip cannot be opened: .*({message})"):
        RaceStore(tmp_path / "races").bring(make(files), "one")
    assert list(tmp_path.rglob("*")) == []


def test_a_zip_that_kills_its_reader_is_refused(tmp_path, files, monkeypatch):
    monkeypatch.setattr(race_zips, "VETTING", (sys.executable, "-c", "import os; os.abort()"))
    with pytest.raises(BadInput, match="damaged in a way that no race is"):
        read_zip(zipped(files), tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_race_is_brought_in_renamed_deleted_and_brought_back(made, tmp_path):
    store = RaceStore(tmp_path / "races", taken=["1-story"])
    assert store.bring(write_zip(made), "one") == "one"
    for name in ("one", "1-story", "../out", "", "races", "CON"):
        other = store.bring(write_zip(made), name)
        assert other.startswith("race-")
        store.delete(other)
    for title, message in {" ": "is empty", "a\nb": "control character", "x" * 81: "at most 80"}.items():
        with pytest.raises(BadInput, match=message):
            store.rename("one", title)
    assert store.rename("one", " For class: 1/2 ", "A toy race") == "For class: 1/2"
    assert [(entry.path.name, entry.title) for entry in store.list()] == [("one", "For class: 1/2")]
    assert load_race(tmp_path / "races" / "one").title == "For class: 1/2"
    with pytest.raises(BadInput, match="renamed to “For class: 1/2” meanwhile"):
        store.rename("one", "Mine", "A toy race")
    for deed in (lambda: store.rename("..", "x"), lambda: store.delete("../races"), lambda: store.delete("two")):
        with pytest.raises(BadInput, match="no race of that name"):
            deed()
    store.delete("one")
    assert store.list() == [] and "For class: 1/2" in [entry.title for entry in store.deleted()]
    store.restore("one")
    assert load_race(tmp_path / "races" / "one").title == "For class: 1/2"
    with pytest.raises(BadInput, match="not in the bin any more"):
        store.restore("one")


def test_what_a_crash_left_of_a_deletion_is_removed(tmp_path):
    left = save_race(toy_race(), tmp_path / "one").rename(tmp_path / f".one.{'0' * 32}.gone")
    assert RaceStore(tmp_path).list() == [] and not left.exists()
