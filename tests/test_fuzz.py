"""Spoiled runs, hostile zips and damaged Parquet are refused by the product's own errors or can be used.

Checksums are computed again after each change. MARS_VIZ_FUZZ is the number of inputs, 50,000 before a release.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mars_viz import runfiles
from mars_viz.components.compare import run_pane
from mars_viz.components.explorer.element import RunPayload
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.race import RaceStore, load_race, save_race
from mars_viz.run import Run
from mars_viz.runfiles import codec, unpacked
from mars_viz.runfiles.codec import TABLES, from_bytes, to_bytes
from mars_viz.ui.gallery import to_be_seen, token_bars
from tests.factories import toy_run
from tests.test_race import toy_race
from tests.test_runfiles import in_folder, run_with_map, signed, zipped

INPUTS = int(os.environ.get("MARS_VIZ_FUZZ", "200"))  # in all


def fuzzed(share: float) -> Callable[[Any], Any]:
    """A share of the inputs, the same ones each time for the same number."""
    how: dict[str, Any] = {"derandomize": True, "database": None, "phases": [Phase.generate, Phase.shrink]}
    return settings(max_examples=max(10, round(share * INPUTS)), suppress_health_check=list(HealthCheck), **how)


@cache
def sound_runs() -> tuple[Mapping[str, bytes], ...]:
    """Small ones, with and without a map, greedy and sampled."""
    made = (
        toy_run(max_new_tokens=9),
        toy_run(rule="mars-code", temperature=1.0, max_new_tokens=12),
        toy_run(rule="strict", max_new_tokens=4),
        run_with_map(0.8, gammas=(1, 2), max_new_tokens=6),
    )
    return tuple(map(codec.encode, made))


WHICH = st.integers(0, 3)
SEEDS = st.integers(0, 2**64 - 1)
ODD_TEXT = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["\ud800", "\x00", "../x", "strict", "fuzzy", "mars", "a" * 5000, "٣", "1", "", "\u202e", "NaN"]),
)
ODD_NUMBER = st.one_of(
    st.integers(-3, 70),
    st.integers(),
    st.floats(),
    st.sampled_from([2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, 1e308, 5e-324, -0.0, 1e999, float("nan")]),
)
ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), ODD_NUMBER, ODD_TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ODD_TEXT, inner, max_size=3)),
    max_leaves=6,
)


def or_refused(load: Callable[[], Any]) -> Any:
    """Return what was read; None if one of the product's errors refused it in a sentence."""
    try:
        return load()
    except MarsVizError as error:
        assert str(error).strip() and "\n" not in str(error) and len(str(error)) < 2000
        return None


def outcome(load: Callable[[], Run]) -> None:
    """Check that a run is refused or can be used for all that a run is for."""
    run = or_refused(load)
    if run is None:
        return
    codec.encode(run)
    assert len(run.to_frame()) and run.text is not None and run.tau > 0
    for gamma in run.dial_map.span.gammas if run.dial_map else ():
        segments = run.dial_map.segments_for(gamma)
        assert [segment.tau for segment in segments if segment.complete and not segment.tau > 0] == []
        assert segments[0].low == run.dial_map.span.low and segments[-1].high == run.dial_map.span.high
    with np.errstate(all="ignore"):  # logits far above their own sum make infinite shares, at which NumPy only warns
        RunPayload.of(run, run.settings.gamma)  # what Explore sends, and the card on the start page
        assert run_pane(run) and token_bars(run) and to_be_seen(run)


def _places(value: object) -> list[tuple[Any, Any]]:
    """Return each place within some JSON, as its container and key."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


def spoiled_manifest(data: bytes, luck: random.Random, odd: object) -> bytes:
    about = json.loads(data)
    holder, key = luck.choice(_places(about))
    match luck.randrange(6):
        case 0 | 1 | 2:
            holder[key] = odd
        case 3:
            del holder[key]
        case 4 if isinstance(holder, dict):
            holder[str(odd)] = holder.pop(key)
        case _:
            other, at = luck.choice(_places(about))
            holder[key] = json.loads(json.dumps(other[at]))
    return json.dumps(about, ensure_ascii=luck.random() < 0.5).encode("utf-8", "surrogatepass")


@fuzzed(0.4)
@given(WHICH, SEEDS, ODD)
def test_manifests(which, seed, odd):
    files = sound_runs()[which]
    data = spoiled_manifest(files["manifest.json"], random.Random(seed), odd)
    outcome(lambda: codec.decode({**files, "manifest.json": data}))


TYPES = (pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.bool_(), pa.binary())


def spoiled_column(column: pa.ChunkedArray, luck: random.Random, odd: object) -> pa.Array:
    """Another value, type or width of lists."""
    values = column.to_pylist()
    at = luck.randrange(max(1, len(values)))
    match luck.randrange(5):
        case 0:
            return column.combine_chunks().cast(luck.choice([*TYPES, pa.list_(column.type, 1)]), safe=False)
        case 1:
            values = [(value * 40)[: luck.choice([0, 1, 2, 40])] for value in values]
        case 2 | 3 if values and isinstance(values[at], list) and values[at]:
            values[at][luck.randrange(len(values[at]))] = odd
        case _:
            values[at] = odd
    return pa.array(values, column.type)


def spoiled_table(data: bytes, luck: random.Random, odd: object) -> bytes:
    """A few other columns or lines, in a file that is sometimes written in another way."""
    table = pq.read_table(pa.BufferReader(data))
    for _ in range(luck.choice([1, 1, 2])):
        name, lines = luck.choice(table.column_names), range(table.num_rows)
        with suppress(pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError, IndexError):
            match luck.randrange(8):
                case 0:
                    table = table.take(pa.array(luck.choices(lines, k=luck.randrange(len(lines) + 2)), pa.int64()))
                case 1:
                    table = table.take(pa.array(sorted([*lines, luck.choice(lines)]), pa.int64()))
                case 2:
                    table = table.drop_columns([name])
                case _:
                    column = spoiled_column(table[name], luck, odd)
                    table = table.set_column(table.column_names.index(name), name, column)
    sink, odd_way = io.BytesIO(), luck.random() < 0.3
    compression = luck.choice(["none", "snappy", "lz4", "brotli"]) if odd_way else "zstd"
    pq.write_table(
        table,
        sink,
        compression=compression,
        use_dictionary=odd_way,
        row_group_size=luck.choice([1, 999]) if odd_way else 999,
    )
    return sink.getvalue()


EXTREMES = st.one_of(
    ODD_NUMBER,
    ODD_TEXT,
    st.none() | st.booleans() | st.binary(max_size=6) | st.lists(st.integers(-2, 40), max_size=20),
    st.sampled_from([float("inf"), float("-inf"), 2**31 - 1, 31, 32, 0.5]),
)


@fuzzed(0.6)
@given(WHICH, SEEDS, EXTREMES)
def test_tables(which, seed, odd):
    luck, files = random.Random(seed), sound_runs()[which]
    name = luck.choice([name for name in TABLES if f"{name}.parquet" in files])
    changed = {name: spoiled_table(files[f"{name}.parquet"], luck, odd)}
    outcome(lambda: codec.decode(signed(files, **changed)))


Files = Mapping[str, bytes]


@pytest.fixture(scope="module")
def files():
    return codec.encode(toy_run())


def but(data: bytes, at: int, value: int, size: int = 4) -> bytes:
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def lying(files: Files, name: str, field: int, value: int, size: int = 4) -> bytes:
    """The zip whose directory says something else of an entry, in the field at so many bytes of its line."""
    data = zipped(files)
    return but(data, data.rindex(name.encode()) - 46 + field, value, size)


def ending(files: Files, field: int, value: int, size: int = 4) -> bytes:
    data = zipped(files)
    return but(data, data.rindex(END) + field, value, size)


def stored(files: Files) -> bytes:
    return zipped(files, lambda info: setattr(info, "compress_type", zipfile.ZIP_STORED))


END, LOCATOR = b"PK\x05\x06", struct.pack("<4sLQL", b"PK\x06\x07", 0, 2**60, 1)
WAY, FLAGS, CRC, AT = 10, 8, 16, 42
HALF, LENGTH, NODES = bytes(30_000_000), (30_000_000).to_bytes(4, "little"), "nodes.parquet"
NO_ZIP, NO_PART, FAR_MORE = "damaged or no zip", "no part of a run", "far more than a run"
RUNS: list[tuple[Callable[[Files], bytes], str]] = [
    (lambda files: b"", NO_ZIP),
    (lambda files: zipped({"?": b""} | dict(files)).replace(b"?", b"\0"), NO_PART),
    (lambda files: zipped(files)[:-30], NO_ZIP),
    (lambda files: zipped({}), "manifest.json is missing"),
    (lambda files: zipped({**files, "map_rows.parquet": b""}), "does not name it"),
    (lambda files: zipped({**files, "run.py": b""}), NO_PART),
    (lambda files: zipped({**files, NODES: zipped(files)}), "is damaged or changed"),
    (lambda files: zipped(in_folder(files, "../")), NO_PART),
    (lambda files: zipped(in_folder(files, "/tmp/")), NO_PART),
    (lambda files: zipped(in_folder(files, "C:/")), NO_PART),
    (lambda files: zipped(in_folder(files, "..\\")), NO_PART),
    (lambda files: zipped(in_folder(files, "a/b/")), NO_PART),
    (lambda files: zipped(in_folder(files, "a/") | {f"b/{NODES}": b""}), NO_PART),
    (lambda files: zipped({f"{name[0]}/{name}": data for name, data in files.items()}), "more than one"),
    (lambda files: zipped({name + "/" * (name == NODES): b"" for name in files}), "is missing|no JSON"),
    (lambda files: zipped({**files, "nodes.parqueX": b"x"}).replace(b"nodes.parqueX", NODES.encode()), NO_PART),
    (lambda files: zipped({**files, "NODES.PARQUET": b""}), NO_PART),
    (lambda files: zipped({**files, "pieces.parquet?.txt": b""}).replace(b"parquet?", b"parquet\0"), NO_PART),
    (lambda files: zipped({**files, "abcé": b""}).replace("abcé".encode(), b"abc\xff\xfe"), NO_ZIP),
    (lambda files: zipped(files, lambda info: setattr(info, "compress_type", zipfile.ZIP_BZIP2)), "unusual"),
    (lambda files: lying(files, NODES, WAY, 0, 2), NO_ZIP),
    (lambda files: lying(files, NODES, FLAGS, 1, 2), "encrypted"),
    (lambda files: lying(files, NODES, CRC, 7), NO_ZIP),
    (lambda files: zipped({**files, **{f"{i}/": b"" for i in range(99)}}), "too many"),
    (lambda files: zipped({**files, NODES: HALF}), FAR_MORE),
    (lambda files: zipped({name: HALF for name in codec.NAMES}), FAR_MORE),
    # every header claims that what takes 30 MB unpacks to ten bytes
    (lambda files: zipped({**files, NODES: HALF}).replace(LENGTH, bytes([10, 0, 0, 0])), f"{FAR_MORE}|damaged"),
    (lambda files: ending(files, 16, 10), NO_ZIP),
    (lambda files: ending(files, 12, 60), NO_ZIP),
    (lambda files: lying(files, "rows.parquet", AT, 3), NO_ZIP),
    (lambda files: zipped(files).replace(END, LOCATOR + END), NO_ZIP),
]


def test_hostile_zips_are_refused_and_leave_nothing(tmp_path, tmp_path_factory, files):
    for place, data in enumerate(
        (stored(files), ending(files, 20, 9, 2) + b"a comment")
    ):  # harmless ones of the same kinds
        assert runfiles.read_zip(data, tmp_path_factory.mktemp("harmless") / str(place)).rounds
    (tmp_path / "in").mkdir()
    for make, message in RUNS:
        with pytest.raises(BadInput, match=f"^The zip cannot be opened: .*({message})") as refused:
            runfiles.read_zip(make(files), tmp_path / "in" / "run")
        assert len(str(refused.value)) < 500 and str(refused.value).isprintable()
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


def test_titles_of_races_are_checked(tmp_path):
    store = RaceStore(tmp_path / "races")
    store.save(toy_race(), "one")
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


def test_damaged_bytes_end_no_process_and_a_nan_that_signals_is_refused(files):
    sink = io.BytesIO()  # without compression and page checksums, which would notice most changes
    pq.write_table(pq.read_table(io.BytesIO(files["rounds.parquet"])), sink, compression="none")
    data = sink.getvalue()
    end = len(data) - 8
    start = end - int.from_bytes(data[end:][:4], "little")
    for place in (*range(0, start, 29), *range(start, end, 2)):
        with suppress(BadInput):
            from_bytes("rounds", data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :], 10_000)
    packed = zipped(files)
    for place in range(0, len(packed), 99):
        with suppress(BadInput):
            unpacked(packed[:place] + bytes([packed[place] ^ 0x10]) + packed[place + 1 :])
    nodes = from_bytes("nodes", files["nodes.parquet"], 10_000)
    entropy = nodes["q_entropy"].copy()
    entropy.view(np.uint32)[0] = 0x7FA00000
    with pytest.raises(BadInput, match="impossible value"):
        from_bytes("nodes", to_bytes("nodes", {**nodes, "q_entropy": entropy}), 10_000)
