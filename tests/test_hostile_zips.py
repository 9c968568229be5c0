"""Runs and races in zips: made to do harm, read differently by programs, or with a damaged Parquet directory."""

from __future__ import annotations

import io
import re
import stat
import struct
import sys
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import toy_run

from mars_viz import runfiles
from mars_viz.components.race import race_payload
from mars_viz.errors import BadInput
from mars_viz.race import files as zip_of_race
from mars_viz.race import load_race, save_race
from mars_viz.race.files import RACE, decode_race, write_zip
from mars_viz.race.store import RaceStore
from mars_viz.runfiles import codec
from mars_viz.runfiles.directory import END as DIRECTORY_END
from mars_viz.runfiles.directory import chunks_of
from mars_viz.runfiles.parquet import opened, to_bytes
from mars_viz.runfiles.zips import unpacked
from tests.test_race import toy_race
from tests.test_runfiles import in_folder, zipped

Files = Mapping[str, bytes]


@pytest.fixture(scope="module")
def files():
    return codec.encode(toy_run())


def mode(mode: int) -> Callable[[zipfile.ZipInfo], None]:
    return lambda info: setattr(info, "external_attr", mode << 16)


def but(data: bytes, at: int, value: int, size: int = 4) -> bytes:
    """The bytes with another number at this place."""
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def lying(files: Files, name: str, field: int, value: int, size: int = 4) -> bytes:
    """The zip whose directory says something else of an entry, in the field at so many bytes of its line."""
    data = zipped(files)
    return but(data, data.rindex(name.encode()) - 46 + field, value, size)


def ending(files: Files, field: int, value: int, size: int = 4) -> bytes:
    """The same of the record at the end."""
    data = zipped(files)
    return but(data, data.rindex(END) + field, value, size)


END, LOCATOR = b"PK\x05\x06", struct.pack("<4sLQL", b"PK\x06\x07", 0, 2**60, 1)
WAY, FLAGS, CRC, PACKED, AT = 10, 8, 16, 20, 42
HALF, LENGTH, NODES = bytes(30_000_000), (30_000_000).to_bytes(4, "little"), "nodes.parquet"
NO_ZIP, NO_PART, FAR_MORE = "damaged or no zip", "no part of a run", "far more than a run"
RUNS: list[tuple[Callable[[Files], bytes], str]] = [
    (lambda files: b"", NO_ZIP),
    (lambda files: zipped({"?": b""} | dict(files)).replace(b"?", b"\0"), "without a name"),
    (lambda files: zipped(files)[:-30], NO_ZIP),
    (lambda files: zipped({}), "manifest.json is missing"),
    (lambda files: zipped({**files, "map_rows.parquet": b""}), "does not name it"),
    (lambda files: zipped({**files, "run.py": b""}), NO_PART),
    (lambda files: zipped({**files, NODES: zipped(files)}), "not what was written"),
    (lambda files: zipped(in_folder(files, "../")), "leads elsewhere"),
    (lambda files: zipped(in_folder(files, "/tmp/")), "leads elsewhere"),
    (lambda files: zipped(in_folder(files, "C:/")), "leads elsewhere"),
    (lambda files: zipped(in_folder(files, "..\\")), "leads elsewhere"),
    (lambda files: zipped(in_folder(files, "a/b/")), "deeper"),
    (lambda files: zipped(in_folder(files, "a/") | {f"b/{NODES}": b""}), NO_PART),
    (lambda files: zipped({f"{name[0]}/{name}": data for name, data in files.items()}), "more than one"),
    (lambda files: zipped(files, mode(stat.S_IFLNK | 0o777)), "link"),
    (lambda files: zipped(files, mode(stat.S_IFBLK | 0o660)), "no plain file"),
    (lambda files: zipped({**files, f"run/{NODES}/": b""}), "deeper|no plain file|more than"),
    (lambda files: zipped({name + "/" * (name == NODES): b"" for name in files}), "is missing|no JSON"),
    (lambda files: zipped({**files, "nodes.parqueX": b"x"}).replace(b"nodes.parqueX", NODES.encode()), NO_PART),
    (lambda files: zipped({**files, "NODES.PARQUET": b""}), NO_PART),
    (lambda files: zipped({**files, "pieces.parquet?.txt": b""}).replace(b"parquet?", b"parquet\0"), "NUL"),
    (lambda files: zipped({**files, "abcé": b""}).replace("abcé".encode(), b"abc\xff\xfe"), NO_ZIP),
    (lambda files: zipped(files, lambda info: setattr(info, "compress_type", zipfile.ZIP_BZIP2)), "unusual"),
    (lambda files: lying(files, NODES, WAY, 0, 2), NO_ZIP),
    (lambda files: lying(files, NODES, FLAGS, 1, 2), "encrypted"),
    (lambda files: but(zipped(files), zipped(files).index(NODES.encode()) - 24, 1, 2), NO_ZIP),
    (lambda files: lying(files, NODES, CRC, 7), NO_ZIP),
    (lambda files: zipped({**files, **{f"{i}/": b"" for i in range(99)}}), "too many"),
    (lambda files: zipped({**files, NODES: HALF}), FAR_MORE),
    (lambda files: zipped({name: HALF for name in codec.NAMES}), FAR_MORE),
    # every header claims that what takes 30 MB unpacks to ten bytes
    (lambda files: zipped({**files, NODES: HALF}).replace(LENGTH, bytes([10, 0, 0, 0])), f"{FAR_MORE}|damaged"),
    (lambda files: lying(files, NODES, PACKED, 2**30), NO_ZIP),
    (lambda files: ending(files, 16, 10), NO_ZIP),
    (lambda files: ending(files, 10, 2, 2), NO_ZIP),
    (lambda files: ending(files, 12, 60), NO_ZIP),
    (lambda files: lying(files, "rows.parquet", AT, 3), NO_ZIP),
    (lambda files: lying(files, "pieces.parquet", PACKED, 2**30), NO_ZIP),
    (lambda files: ending(files, 20, 900, 2), NO_ZIP),
    (lambda files: ending(files, 20, 9, 2) + b"x" * 90, NO_ZIP),
    (lambda files: zipped(files).replace(END, LOCATOR + END), NO_ZIP),
    (lambda files: zipped({"other": b""}) + zipped(files), NO_ZIP),
]
BOMB = "relaxed/nodes.parquet"
SWAPPED = {"strict": "relaxed", "relaxed": "strict"}
RACES: list[tuple[Callable[[dict[str, bytes]], Files], str]] = [
    (lambda files: {}, "race.json is missing"),
    (lambda files: {"race.json": files["race.json"]}, "run strict cannot be opened: manifest.json"),
    (lambda files: {n: data for n, data in files.items() if n != BOMB}, "run relaxed .* nodes.parquet is"),
    (
        lambda files: {re.sub("^(strict|relaxed)", lambda m: SWAPPED[m[0]], n): data for n, data in files.items()},
        "not the run that the race was recorded with",
    ),
    (lambda files: {n[7:]: files[n] for n in files if n.startswith("strict/")}, "no part of a race"),
    (lambda files: files | {"strict/run.py": b""}, "no part of a race"),
    (lambda files: files | {"strict/../../race.json": b""}, "leads elsewhere"),
    (lambda files: files | {f"{i}/": b"" for i in range(99)}, "too many"),
    (lambda files: files | {BOMB: bytes(30_000_000)}, "far more than a race"),
    (lambda files: files | {"race.json": b"{}"}, "not that of a race"),
]


def test_harmless_zips_of_the_same_kinds_are_opened(tmp_path, files):
    stored = zipped(files, lambda info: setattr(info, "compress_type", zipfile.ZIP_STORED))
    for number, data in enumerate((stored, ending(files, 20, 9, 2) + b"a comment")):
        assert runfiles.read_zip(data, tmp_path / str(number)).rounds


def test_hostile_zips_are_refused_and_leave_nothing(tmp_path, files, race_files):
    (tmp_path / "in").mkdir()
    for make, message in RUNS:
        with pytest.raises(BadInput, match=f"^The zip cannot be opened: .*({message})") as refused:
            runfiles.read_zip(io.BytesIO(make(files)), tmp_path / "in" / "run")
        assert len(str(refused.value)) < 500 and str(refused.value).isprintable()
    for make, message in RACES:
        with pytest.raises(BadInput, match=f"^The zip cannot be opened: .*({message})"):
            RaceStore(tmp_path / "in").bring(zipped(make(race_files)), "one")
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    return save_race(toy_race(), tmp_path_factory.mktemp("races") / "one")


@pytest.fixture(scope="module")
def race_files(race):
    return unpacked(write_zip(race), RACE)


def test_a_race_comes_back_from_its_zip(race, race_files, tmp_path, monkeypatch):
    assert race_payload(decode_race(race_files)) == race_payload(load_race(race))
    mac = in_folder(race_files, "one/") | {"one/.DS_Store": b"x", "__MACOSX/one/._race.json": b"x"}
    for number, data in enumerate((write_zip(race), zipped(race_files), zipped(mac))):
        zip_of_race.read_zip(data, tmp_path / str(number))
        assert race_payload(load_race(tmp_path / str(number))) == race_payload(load_race(race))
    with pytest.raises(BadInput, match="exists already"):
        zip_of_race.read_zip(write_zip(race), tmp_path / "0")
    monkeypatch.setattr(zip_of_race, "VETTING", (sys.executable, "-c", "import os; os.abort()"))
    with pytest.raises(BadInput, match="damaged in a way that no race is"):
        zip_of_race.read_zip(zipped(race_files), tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_a_race_is_brought_in_under_a_free_name_and_titles_are_checked(race, tmp_path):
    store = RaceStore(tmp_path / "races", taken=["1-story"])
    assert store.bring(write_zip(race), "one") == "one"
    for name in ("one", "1-story", "../out", "", "CON"):
        other = store.bring(write_zip(race), name)
        assert other.startswith("race-")
        store.delete(other)
    assert store.rename("one", " For class: 1/2 ", "A toy race") == "For class: 1/2"
    for change, message in (
        (lambda: store.rename("one", " "), "is empty"),
        (lambda: store.rename("one", "a\nb"), "control character"),
        (lambda: store.rename("one", "Mine", "A toy race"), "renamed to “For class: 1/2” meanwhile"),
        (lambda: store.rename("..", "x"), "no race of that name"),
        (lambda: store.delete("../races"), "no race of that name"),
    ):
        with pytest.raises(BadInput, match=message):
            change()
    store.delete("one")
    assert store.list() == [] and "For class: 1/2" in [entry.title for entry in store.deleted()]
    store.restore("one")
    assert load_race(tmp_path / "races" / "one").title == "For class: 1/2"
    left = save_race(toy_race(), tmp_path / "left").rename(store.folder / f".left.{'0' * 32}.gone")
    assert len(RaceStore(store.folder).list()) == 1 and not left.exists()


NUMBERS = {"PLAIN": 0, "PLAIN_DICTIONARY": 2, "RLE": 3, "RLE_DICTIONARY": 8, "BYTE_STREAM_SPLIT": 9}
RECORDS = pa.array([{"k": 1, "of": {"l": [True]}}, {"k": 2, "of": None}, None])
MAPS = pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int8()))
HALVES = pa.array([1.5, 2, 3], pa.float16())
TABLE = pa.table({"words": ["x", "y" * 300, None], "lists": [[1], [2, 3], []], "records": RECORDS, "maps": MAPS})
MANNERS: list[dict[str, Any]] = [
    {"row_group_size": 1},
    {"compression": "zstd", "data_page_version": "2.0", "write_page_index": True},
    {"use_dictionary": False, "use_byte_stream_split": ["halves"]},
    {"use_dictionary": False, "write_statistics": False, "store_schema": False},
]


def test_chunks_of_parquet_are_as_pyarrow_reads_them():
    for manner in MANNERS:
        sink = io.BytesIO()
        pq.write_table(TABLE.append_column("halves", HALVES), sink, **manner)
        metadata = pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        for chunk, found in zip(chunks, chunks_of(sink.getvalue()), strict=True):
            assert (chunk.path_in_schema, chunk.num_values) == (".".join(found.path), found.values)
            assert chunk.total_uncompressed_size == found.bytes
            assert {NUMBERS[name] for name in chunk.encodings} == found.encodings


def test_damaged_bytes_end_no_process_and_a_nan_that_signals_is_refused(files):
    sink = io.BytesIO()  # without compression and page checksums, which would notice most changes
    pq.write_table(pq.read_table(io.BytesIO(files["rounds.parquet"])), sink, compression="none")
    data = sink.getvalue()
    end = len(data) - DIRECTORY_END
    start = end - int.from_bytes(data[end:][:4], "little")
    for place in (*range(0, start, 29), *range(start, end, 2)):
        with suppress(BadInput):
            opened("rounds", data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]).read()
    packed = zipped(files)
    for place in range(0, len(packed), 99):
        with suppress(BadInput):
            unpacked(packed[:place] + bytes([packed[place] ^ 0x10]) + packed[place + 1 :])
    nodes = opened("nodes", files["nodes.parquet"]).read()
    entropy = nodes["q_entropy"].copy()
    entropy.view(np.uint32)[0] = 0x7FA00000
    with pytest.raises(BadInput, match="impossible value"):
        opened("nodes", to_bytes("nodes", {**nodes, "q_entropy": entropy})).read()
