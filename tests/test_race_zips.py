from __future__ import annotations

import re
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


BOMB = "relaxed/nodes.parquet"
SWAPPED = {"strict": "relaxed", "relaxed": "strict"}
HOSTILE: dict[str, tuple[Callable[[Files], Files], str]] = {
    "empty": (lambda files: {}, "race.json is missing"),
    "no lane": (lambda files: {"race.json": files["race.json"]}, "run strict cannot be opened: manifest.json"),
    "part": (lambda files: {n: data for n, data in files.items() if n != BOMB}, "run relaxed .* nodes.parquet is"),
    "swapped": (
        lambda files: {re.sub("^(strict|relaxed)", lambda m: SWAPPED[m[0]], n): data for n, data in files.items()},
        "not the run that the race was recorded with",
    ),
    "a run": (lambda files: {n[7:]: files[n] for n in files if n.startswith("strict/")}, "no part of a race"),
    "stranger": (lambda files: files | {"strict/run.py": b""}, "no part of a race"),
    "climbing lane": (lambda files: files | {"strict/../../race.json": b""}, "leads elsewhere"),
    "twice": (lambda files: files | {"one/race.json": files["race.json"]}, "no part of a race"),
    "many": (lambda files: files | {f"{i}/": b"" for i in range(99)}, "too many"),
    "bomb": (lambda files: files | {BOMB: bytes(30_000_000)}, "far more than a race"),
    "another device": (lambda files: files | {"race.json": b"{}"}, "not that of a race"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_zips_are_refused_and_leave_nothing(tmp_path, files, case):
    make, message = HOSTILE[case]
    with pytest.raises(BadInput, match=f"^The zip cannot be opened: .*({message})"):
        RaceStore(tmp_path / "races").bring(zipped(make(files)), "one")
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
    left = save_race(toy_race(), tmp_path / "left").rename(store.folder / f".left.{'0' * 32}.gone")
    assert len(RaceStore(store.folder).list()) == 1 and not left.exists()
