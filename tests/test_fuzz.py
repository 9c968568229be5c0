"""The doors through which runs come in, kicked at: nothing but the product's own errors may come out.

Each input begins as a whole run and is spoiled where a run is weak: values of the manifest, columns, types, lengths and
encodings of the tables, bytes, files of the folder, entries of the zip; a race's and a sweep's description likewise.
Checksums are made to fit again, those of pages and files, or none of it would be reached. MARS_VIZ_FUZZ says how many
inputs in all; 50,000 before a release, a few hundred by default.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mars_viz.components.compare import run_pane
from mars_viz.components.explorer.element import RunPayload
from mars_viz.components.race import race_payload
from mars_viz.costs import disturbance, objection
from mars_viz.errors import MarsVizError
from mars_viz.figures.svg import token_bars
from mars_viz.race import save_race
from mars_viz.race.files import RACE as LAYOUT
from mars_viz.race.files import decode_race
from mars_viz.race.files import write_zip as race_zip
from mars_viz.run import Run
from mars_viz.runfiles import codec, list_runs, load_run, zips
from mars_viz.runfiles.columns import TABLES
from mars_viz.sweep import plan as plans
from mars_viz.ui.gallery import to_be_seen
from tests.factories import toy_run
from tests.sweep_cases import toy_sweep
from tests.test_race import toy_race
from tests.test_runfiles import run_with_map, signed, use

INPUTS = int(os.environ.get("MARS_VIZ_FUZZ", "200"))  # in all
BOMB = bytes(3 << 20)


def fuzzed(share: float) -> Callable[[Any], Any]:
    """A share of the inputs, the same ones each time for the same number."""
    return settings(
        max_examples=max(10, round(share * INPUTS)),
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


RUNS: tuple[Mapping[str, bytes], ...] = ()
RACE: Mapping[str, bytes] = {}
SHEET = b""


@pytest.fixture(scope="module", autouse=True)
def runs(tmp_path_factory):
    """Small ones, with and without a map, greedy and sampled."""
    global RUNS, RACE, SHEET
    made: tuple[Run, ...] = (
        toy_run(max_new_tokens=9),
        toy_run(rule="mars-code", temperature=1.0, max_new_tokens=12),
        toy_run(rule="strict", max_new_tokens=4),
        run_with_map(0.8, gammas=(1, 2), max_new_tokens=6),
    )
    RUNS = tuple(codec.encode(run) for run in made)
    for files in RUNS:
        use(codec.decode(files))
    folder = tmp_path_factory.mktemp("fuzz")
    RACE = zips.unpacked(race_zip(save_race(toy_race(), folder / "race")), LAYOUT)
    SHEET = (toy_sweep(folder / "sweep", 2).folder / "sweep.json").read_bytes()
    assert decode_race(RACE) and plans.from_json(SHEET)[0]


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


def outcome(load: Callable[[], Run]) -> None:
    """A run that can be used for all that a run is for, or one of the product's errors, in a sentence."""
    try:
        run = load()
    except MarsVizError as error:
        assert str(error).strip() and "\n" not in str(error) and len(str(error)) < 2000
        return
    use(run)
    with np.errstate(all="ignore"):  # logits far above their own sum make infinite shares, at which NumPy only warns
        RunPayload.of(run, run.settings.gamma)  # what Explore sends, and the card on the start page
        assert run_pane(run) and token_bars(run) and to_be_seen(run)


# The manifest


def _spots(value: object) -> list[tuple[Any, Any]]:
    """Each place within some JSON, as what holds it and its key."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            pairs += [(value, key), *_spots(inner)]
    return pairs


def spoiled_manifest(data: bytes, luck: random.Random, odd: object) -> bytes:
    """With a value changed, taken away, given twice or under another name."""
    about = json.loads(data)
    holder, key = luck.choice(_spots(about))
    match luck.randrange(6):
        case 0 | 1 | 2:
            holder[key] = odd
        case 3:
            del holder[key]
        case 4 if isinstance(holder, dict):
            holder[str(odd)] = holder.pop(key)
        case _:
            other, at = luck.choice(_spots(about))
            holder[key] = json.loads(json.dumps(other[at]))
    text = json.dumps(about, ensure_ascii=luck.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


@fuzzed(0.3)
@given(WHICH, SEEDS, ODD)
def test_manifests(which, seed, odd):
    luck, files = random.Random(seed), RUNS[which]
    outcome(lambda: codec.decode({**files, "manifest.json": spoiled_manifest(files["manifest.json"], luck, odd)}))


# The tables


def _cell(column: pa.ChunkedArray, luck: random.Random, odd: object) -> pa.Array:
    """One value, or one within a list, replaced."""
    values = column.to_pylist()
    if values:
        at = luck.randrange(len(values))
        if isinstance(values[at], list) and values[at] and luck.random() < 0.7:
            values[at] = list(values[at])
            values[at][luck.randrange(len(values[at]))] = odd
        else:
            values[at] = odd
    return pa.array(values, column.type)


_TYPES = (pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.bool_())
_OTHERS = (pa.null(), pa.binary(), pa.timestamp("ns"), pa.decimal128(38, 3), pa.list_(pa.int32()), pa.list_(pa.null()))


def _typed(column: pa.ChunkedArray, luck: random.Random) -> pa.Array:
    kind = luck.choice((*_TYPES, *_OTHERS, pa.dictionary(pa.int8(), column.type), pa.list_(column.type, 1)))
    if luck.random() < 0.5:
        return pa.nulls(len(column), kind)
    return column.combine_chunks().cast(kind, safe=False)


def _width(column: pa.ChunkedArray, luck: random.Random) -> pa.Array:
    """Lists of another length, none included."""
    wide = luck.choice([0, 1, 2, 40])
    values = [(list(value) * 40)[:wide] if isinstance(value, list) else [value] * wide for value in column.to_pylist()]
    inner = column.type.value_type if hasattr(column.type, "value_type") else column.type
    fixed = wide and luck.random() < 0.8  # of width 0 the library's own writer aborts
    return pa.array(values, pa.list_(inner, wide) if fixed else pa.list_(inner))


def _lines(table: pa.Table, luck: random.Random) -> pa.Table:
    """Other lines: fewer, more, in another order."""
    count = table.num_rows
    at = list(range(count))
    match luck.randrange(5):
        case 0:
            at = at[: luck.randrange(count + 1)]
        case 1:
            at += luck.choices(at, k=luck.randrange(4)) if at else []
        case 2:
            luck.shuffle(at)
        case 3:
            at = []
        case _ if len(at) > 1:
            a, b = luck.sample(at, 2)
            at[a], at[b] = at[b], at[a]
    return table.take(pa.array(at, pa.int64()))


def _columns(table: pa.Table, luck: random.Random) -> pa.Table:
    """Other columns: one gone, twice there, renamed, or somewhere else."""
    names = table.column_names
    name = luck.choice(names)
    match luck.randrange(4):
        case 0:
            return table.drop_columns([name])
        case 1:
            return table.append_column(name, table.column(name))
        case 2:
            return table.rename_columns([other + "x" * (other == name) for other in names])
        case _:
            luck.shuffle(names)
            return table.select(names)


def spoiled_table(data: bytes, luck: random.Random, odd: object) -> bytes:
    """A few changes of its columns, and a file that may be written in another way."""
    table = pq.read_table(pa.BufferReader(data))
    for _ in range(luck.choice([1, 1, 1, 2, 3])):
        name = luck.choice(table.column_names)
        at = table.schema.get_field_index(name)
        try:
            match luck.randrange(10):
                case 0:
                    table = _lines(table, luck)
                case 1:
                    table = _columns(table, luck)
                case 2:
                    table = table.set_column(at, name, _typed(table.column(at), luck))
                case 3:
                    table = table.set_column(at, name, _width(table.column(at), luck))
                case _:
                    table = table.set_column(at, name, _cell(table.column(at), luck, odd))
        except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError, KeyError):
            continue  # that value has no place in such a column, so nobody can send it
    return written(table, luck)


def written(table: pa.Table, luck: random.Random) -> bytes:
    """As this product would write it, or as others might."""
    sink, usual = io.BytesIO(), luck.random() < 0.7
    how: dict[str, Any] = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    if not usual:
        how = {
            "compression": luck.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
            "use_dictionary": luck.random() < 0.3,
            "data_page_version": luck.choice(["1.0", "2.0"]),
            "row_group_size": luck.choice([1, 3, 1000]),
            "write_statistics": luck.random() < 0.5,
        }
    try:
        pq.write_table(table, sink, **how)
    except (pa.ArrowException, ValueError, TypeError):
        pq.write_table(pa.table({"a": [1]}), sink)
    return sink.getvalue()


EXTREMES = st.one_of(
    ODD_NUMBER,
    ODD_TEXT,
    st.binary(max_size=6),
    st.none(),
    st.booleans(),
    st.lists(st.integers(-2, 40), max_size=20),
    st.sampled_from([float("inf"), float("-inf"), float("nan"), 2**31 - 1, -1, 0, 1, 3, 31, 32, 0.5, 1.0]),
)


@fuzzed(0.4)
@given(WHICH, SEEDS, EXTREMES)
def test_tables(which, seed, odd):
    luck, files = random.Random(seed), RUNS[which]
    name = luck.choice([name for name in TABLES if f"{name}.parquet" in files])
    changed = {name: spoiled_table(files[f"{name}.parquet"], luck, odd)}
    outcome(lambda: codec.decode(signed(files, **changed)))


@fuzzed(0.1)
@given(WHICH, SEEDS)
def test_bytes_of_tables(which, seed):
    luck, files = random.Random(seed), RUNS[which]
    name = luck.choice([name for name in TABLES if f"{name}.parquet" in files])
    data = files[f"{name}.parquet"]
    if luck.random() < 0.6:
        data = bare(data, luck)
    outcome(lambda: codec.decode(signed(files, **{name: spoiled_bytes(data, luck)})))


def bare(data: bytes, luck: random.Random) -> bytes:
    """The table without what would notice changed bytes: pages' checksums and, mostly, compression."""
    sink = io.BytesIO()
    packed = luck.choice(["none", "none", "zstd", "snappy"])
    pq.write_table(pq.read_table(pa.BufferReader(data)), sink, compression=packed, use_dictionary=False)
    return sink.getvalue()


def spoiled_bytes(data: bytes, luck: random.Random) -> bytes:
    """Bits turned, stretches overwritten, cut out or doubled, an end missing; more often near the end, where the
    directory of such files lies."""
    array = bytearray(data)
    first = luck.choice([0, max(0, len(array) - 600)])
    a = luck.randrange(first, len(array))
    b = min(len(array), a + luck.randint(1, 64))
    match luck.randrange(6):
        case 0 | 1:
            for _ in range(luck.randint(1, 4)):
                array[luck.randrange(first, len(array))] ^= 1 << luck.randrange(8)
        case 2:
            array[a:b] = luck.randbytes(b - a)
        case 3:
            del array[a:b]
        case 4:
            array[a:a] = array[a:b]
        case _:
            del array[a:]
    return bytes(array)


# Folders


def spoiled_folder(folder: Path, luck: random.Random, odd: object) -> None:
    """Files that are missing, cut, foreign, too many, links or folders."""
    file = folder / luck.choice(sorted(path.name for path in folder.iterdir()))
    match luck.randrange(9):
        case 0:
            file.unlink()
        case 1:
            file.write_bytes(file.read_bytes()[: luck.randrange(file.stat().st_size)])
        case 2:
            file.write_bytes(str(odd).encode("utf-8", "replace"))
        case 3:
            file.unlink()
            file.mkdir()
        case 4:
            file.unlink()
            file.symlink_to(luck.choice([file, Path("/dev/zero"), Path("/proc/self/mem"), Path("nowhere"), folder]))
        case 5:
            file.unlink()
            os.mkfifo(file)
        case 6:
            (folder / f"x{luck.randrange(9)}.parquet").write_bytes(b"PAR1")
        case 7:
            shutil.copy(folder / luck.choice(sorted(os.listdir(folder))), file.with_name("other"))
            file.with_name("other").replace(file)
        case _:
            file.write_bytes(spoiled_bytes(file.read_bytes() or b"x", luck))


@fuzzed(0.1)
@given(WHICH, SEEDS, ODD)
def test_folders(which, seed, odd):
    luck = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        folder.mkdir()
        for name, data in RUNS[which].items():
            (folder / name).write_bytes(data)
        spoiled_folder(folder, luck, odd)
        if luck.random() < 0.5:
            stamped(folder)
        outcome(lambda: load_run(folder))
        for entry in list_runs(place):
            assert (entry.manifest is None) == (entry.error is not None)


def stamped(folder: Path) -> None:
    """Let the manifest, where it can be read, name the tables as they are by now."""
    about = folder / "manifest.json"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        if not about.is_file():
            return  # a device has no end
        found = json.loads(about.read_bytes())
        for name in found["files"]:
            if (folder / name).is_file():
                found["files"][name] = asdict(codec.stamp((folder / name).read_bytes()))
        about.write_text(json.dumps(found))


# Races and sweeps


@fuzzed(0.05)
@given(SEEDS, ODD, EXTREMES)
def test_races(seed, odd, extreme):
    luck, files = random.Random(seed), dict(RACE)
    lane = luck.choice(["strict", "relaxed"])
    inner = {name.removeprefix(f"{lane}/"): data for name, data in files.items() if name.startswith(f"{lane}/")}
    match luck.randrange(3):
        case 0:
            files["race.json"] = spoiled_manifest(files["race.json"], luck, odd)
        case 1:
            inner["manifest.json"] = spoiled_manifest(inner["manifest.json"], luck, odd)
        case _:
            name = luck.choice([name for name in TABLES if f"{name}.parquet" in inner])
            inner = signed(inner, **{name: spoiled_table(inner[f"{name}.parquet"], luck, extreme)})
    files |= {f"{lane}/{name}": data for name, data in inner.items()}
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        about = json.loads(files["race.json"])
        about["manifests"][lane] = asdict(codec.stamp(inner["manifest.json"]))
        files["race.json"] = json.dumps(about).encode("utf-8", "surrogatepass")
    try:
        race = decode_race(files)
    except MarsVizError as error:
        assert str(error).strip() and "\n" not in str(error)
        return
    assert race_payload(race) and race.figures and race.objection is not None


@fuzzed(0.05)
@given(SEEDS, ODD)
def test_sweeps(seed, odd):
    data = spoiled_manifest(SHEET, random.Random(seed), odd)
    try:
        plan, costs = plans.from_json(data)
    except MarsVizError as error:
        assert str(error).strip() and "\n" not in str(error)
        return
    assert plans.comparable(plan, plan) and not plans.differences(plan, plan)
    assert plan.rule.title and plans.turns_words(plan) is not None
    if costs is not None:
        assert objection(costs) is not None and disturbance(costs) is not None


# Zips

NAMES = st.one_of(
    ODD_TEXT.filter(bool),
    st.sampled_from(
        ["../a", "/etc/x", "a/b/c", "C:x", "a\\..\\b", "nodes.parquet", "manifest.json", "run/", "..", "."]
    ),
    st.sampled_from(["__MACOSX/._x", ".DS_Store", "run/nodes.parquet", "run/../manifest.json", "con", "a\0b", "//x"]),
)


def spoiled_zip(files: Mapping[str, bytes], luck: random.Random, name: str, odd: object) -> bytes:
    """Entries under odd names, as links, twice, packed oddly, far larger than they say; bytes spoiled last."""
    buffer = io.BytesIO()
    spoiling = luck.randrange(8)
    with zipfile.ZipFile(buffer, "w", luck.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])) as archive:
        victim = luck.choice(sorted(files))
        for each, data in files.items():
            info = zipfile.ZipInfo(f"run/{each}" if spoiling else each)
            info.compress_type = archive.compression
            if each == victim and spoiling == 1:
                info.external_attr = luck.choice([0o120777, 0o020666, 0o010666, 0o040755]) << 16
            if each == victim and spoiling == 2:
                info = zipfile.ZipInfo(name)
            if each == victim and spoiling == 3:
                data = luck.choice([BOMB, b"", str(odd).encode("utf-8", "replace")])
            if each == victim and spoiling == 4:
                info.compress_type = luck.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
            archive.writestr(info, data, info.compress_type)
        if spoiling == 5:
            archive.writestr(name, str(odd).encode("utf-8", "replace"))
        if spoiling == 6:
            archive.comment = luck.randbytes(luck.randrange(3000))
    data = buffer.getvalue()
    return spoiled_bytes(data, luck) if luck.random() < 0.6 else data


@fuzzed(0.1)
@given(WHICH, SEEDS, NAMES, ODD)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zips(which, seed, name, odd):
    try:
        data = spoiled_zip(RUNS[which], random.Random(seed), name, odd)
    except (ValueError, UnicodeError, IndexError):
        return  # no zip can hold that name
    with suppress(MarsVizError):  # which the same call says again below
        if zips.unpacked(data) == RUNS[which]:
            return  # unspoiled: the run of the fixture, used there, which would take nearly all of the time
    outcome(lambda: codec.decode(zips.unpacked(data)))
