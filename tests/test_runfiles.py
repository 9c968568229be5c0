from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import toy_map, toy_run

from mars_viz import runfiles, writer
from mars_viz.errors import BadInput
from mars_viz.exploration import Budget, mapped
from mars_viz.records import Timing
from mars_viz.rules import RULES, Rule
from mars_viz.run import Piece, Run
from mars_viz.runfiles import codec, manifest
from mars_viz.runstore import list_runs
from mars_viz.trace import Trace


def difference(a: object, b: object, where: str = "run") -> str:
    """Where two values differ in type or in any bit; empty where they do not."""
    kinds = [Mapping if isinstance(value, Mapping) else type(value) for value in (a, b)]  # columns are views of others
    if kinds[0] is not kinds[1]:
        return f"{where}: {kinds[0]} and {kinds[1]}"
    if isinstance(a, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return "" if same else where
    if is_dataclass(a):
        a, b = ({field.name: getattr(each, field.name) for field in fields(each)} for each in (a, b))
    elif isinstance(a, tuple | Trace):
        a, b = (dict(enumerate(each)) for each in (a, b))
    if not isinstance(a, Mapping):
        return "" if a == b else where
    if set(a) != set(b):
        return f"{where}: keys or lengths"
    return next(filter(None, (difference(a[key], b[key], f"{where}.{key}") for key in a)), "")


def signed(files: Mapping[str, bytes], **changes: bytes) -> dict[str, bytes]:
    """The files with some tables changed, and checksums that say so: damage that a checksum does not catch."""
    changed = dict(files) | {f"{table}.parquet": data for table, data in changes.items()}
    about = json.loads(changed["manifest.json"])
    for name in about["files"]:
        stamp = codec.stamp(changed[name])
        about["files"][name] = {"bytes": stamp.bytes, "sha256": stamp.sha256}
    return changed | {"manifest.json": json.dumps(about).encode()}


def edited(files: Mapping[str, bytes], table: str, edit: Callable[[dict[str, np.ndarray]], None]) -> dict[str, bytes]:
    read = codec.from_bytes(table, files[f"{table}.parquet"], 10_000)
    columns = {name: values.copy() for name, values in read.items()}
    edit(columns)
    return signed(files, **{table: codec.to_bytes(table, columns)})


def described(files: Mapping[str, bytes], changes: Mapping[str, object]) -> dict[str, bytes]:
    """The files with some of the manifest's values changed; 'section.name' reaches into a section."""
    about = json.loads(files["manifest.json"])
    for name, value in changes.items():
        section, _, key = name.rpartition(".")
        (about[section] if section else about)[key] = value
    return dict(files) | {"manifest.json": json.dumps(about).encode()}


Edit = Callable[[dict[str, np.ndarray]], None]


def put(column: str, place: object, value: object) -> Edit:
    return lambda columns: columns[column].__setitem__(place, value)


def shifted(column: str) -> Edit:
    return lambda columns: columns.update({column: columns[column] + np.array(1, columns[column].dtype)})


def dropped(columns: dict[str, np.ndarray]) -> None:
    columns.update({name: values[:-1] for name, values in columns.items()})


@pytest.fixture(scope="module")
def run():
    return toy_run(rule="mars-code", temperature=1.0)


@pytest.fixture(scope="module")
def files(run):
    return codec.encode(run)


def run_with_map(
    low: float | None = None,
    gammas: tuple[int, ...] = (1, 3, 6),
    budget: Budget | None = None,
    model_seed: int = 0,
    **settings: object,
) -> Run:
    run = toy_run(model_seed=model_seed, **({"max_new_tokens": 20} | settings))
    return mapped(run, toy_map(replace(run.settings, dial=None), low, None, gammas, budget, model_seed)[0])


@pytest.fixture(scope="module")
def charted():
    return run_with_map(0.6, rule="mars-code", temperature=1.0, max_new_tokens=14)


@pytest.fixture(scope="module")
def charted_files(charted):
    return codec.encode(charted)


def odd_run(run: Run) -> Run:
    """Values that files like to lose: NaN, infinities, the sign of zero, tiny numbers, bytes of no character."""
    first, *others = run.rounds
    s, v = first.speculation, first.verdicts
    n = len(s)
    kl = np.resize(np.array([np.inf, 1e-45, -0.0], np.float32), n)
    mass = np.resize(np.array([5e-324, -0.0, np.nextafter(0.1, 1)]), n)
    logits = s.top_logits.copy()
    logits[:, -1] = -np.inf
    nan = np.frombuffer(np.array([0x7FF8000000001234] * n, np.uint64).tobytes(), np.float64)  # a NaN with a payload
    same = v.keep_below == v.keep_above
    odd = replace(
        first,
        speculation=s.with_columns({"kl_pq": kl, "block_mass": mass, "top_logits": logits}),
        verdicts=replace(v, breakpoints=np.where(same, nan, v.breakpoints)),
        timing=Timing(0.1, 1e-9, 0.3, 12345.678901234567),
    )
    pieces = {**run.pieces, 7: Piece(b"\xf0\x9f"), 8: Piece("é\u202e<img src=x onerror=1>\0".encode())}
    prompt = 'ünï "quoted"\n\U0001f600\u2028\x00'
    return replace(run, rounds=(odd, *others), pieces=pieces, prompt=prompt, title="Ti\ttle")


def test_unusual_runs_and_maps_cut_short_come_back_bit_for_bit(run):
    tree = toy_run(rule="strict", tree="dynamic:depth=4,topk=3", gamma=10, max_new_tokens=24)
    cut = run_with_map(budget=Budget(passes=3), rule="mars")
    empty = replace(cut, map=replace(cut.dial_map, answers={}))
    for odd in (odd_run(run), replace(run, rounds=()), tree, cut, empty):
        read = codec.decode(codec.encode(odd))
        assert not difference(odd, read) and (odd.dial_map is None or not read.dial_map.complete)


def test_the_map_has_files_of_its_own_and_opening_it_judges_nothing(run, files, charted_files, monkeypatch):
    assert tuple(files) == codec.NAMES and json.loads(files["manifest.json"])["dial_map"] is None
    assert tuple(charted_files) == codec.NAMES + codec.MAP_NAMES
    about = json.loads(charted_files["manifest.json"])["dial_map"]
    assert about["span"] == {"low": 0.6, "high": 1.0, "gammas": [1, 3, 6], "over": ""} and about["answers"] > 20
    monkeypatch.setattr(Rule, "judge", lambda *_: pytest.fail("a rule judged"))
    assert codec.decode(charted_files).dial_map is not None and codec.decode(files).dial_map is None


def test_an_existing_path_is_never_overwritten(tmp_path, run):
    for name, make in {"folder": Path.mkdir, "file": Path.touch, "link": lambda p: p.symlink_to("nowhere")}.items():
        make(tmp_path / name)
        with pytest.raises(BadInput, match="exists already"):
            run.save(tmp_path / name)
    assert len(list(tmp_path.iterdir())) == 3


def test_an_interrupted_save_leaves_nothing(tmp_path, run, monkeypatch):
    make, written = writer.new_file, list[Path]()
    for failure, error in (
        (OSError(28, "No space left on device"), BadInput),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ):

        def fails_on_the_third(path, failure=failure):
            written.append(path)
            if len(written) % 3 == 0:
                raise failure
            return make(path)

        monkeypatch.setattr(writer, "new_file", fails_on_the_third)
        with pytest.raises(error):
            run.save(tmp_path / "run")
    assert len(written) == 6 and list(tmp_path.iterdir()) == []


def test_runs_that_could_not_be_read_again_are_not_written(tmp_path, run, charted):
    first, evidence = run.rounds[0], run.rounds[0].speculation
    columns = ({"tokens": evidence.tokens.astype(np.int64)}, {"z": evidence.z[1:]})
    wrong = [replace(first, speculation=evidence.with_columns(changed)) for changed in columns]
    for broken in (
        *(replace(run, rounds=(each, *run.rounds[1:])) for each in wrong),
        replace(run, rounds=run.rounds[1:]),
        replace(run, pieces={0: Piece(b"")}),
        replace(run, prompt="\ud800"),
        replace(run, provenance=replace(run.provenance, seconds=float("nan"))),
        replace(run, map=run_with_map().dial_map),
        replace(charted, map=replace(charted.dial_map, seconds=float("nan"))),
    ):
        with pytest.raises(BadInput, match="cannot be saved"):
            broken.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


WRONG = {  # values of the manifest, with what the error must contain
    "schema": ("schema", (0, 4, 6, True, "1")),
    "format": ("not that of a run", ("other",)),
    "settings.gamma": ("gamma", (6.5, True, -1)),
    "settings.rule": ("'wishful'", ("wishful",)),
    "settings.dial": ("dial|from 0 to 1", (None, 7)),
    "settings.max_new_tokens": ("more tokens than its own limit", (1,)),
    "prompt_ids": ("prompt_ids is|token 999|does not start", ([-1, 2, 3], [1, 2, 999], [1, 2])),
    "prompt": ("manifest.json is damaged", ("\ud800",)),
    "rounds": ("counts other rounds|far larger", (1,)),
    "tokens": ("counts (more|other) rounds", (1, 59)),
    "files": ("other tables|bytes, sha256", ({}, {"nodes.parquet": {"bytes": 1}})),
    "extra": ("does not hold exactly", (1,)),
    "dial_map": ("other tables|dial_map", (None, [])),
    "dial_map.answers": ("as many prefixes|far larger|answers is -1", (3, -1)),
    "dial_map.span": ("span", ({"low": 0.6, "high": 1.0},)),
}
SPANS = [(0.6, 1.5, [1]), (0.9, 0.6, [1]), *((0.6, 1.0, each) for each in ([], [0, 1], [2, 1], [1, 1], [1, 7], [1.0]))]


def test_a_wrong_manifest_is_refused(files, charted_files):
    for name, (message, values) in WRONG.items():
        for value in values:
            with pytest.raises(BadInput, match=message):
                codec.decode(described(charted_files if "dial_map" in name else files, {name: value}))
    for low, high, gammas in SPANS:
        with pytest.raises(BadInput, match="no possible map|gammas is"):
            codec.decode(described(charted_files, {"dial_map.span": {"low": low, "high": high, "gammas": gammas}}))
    with pytest.raises(BadInput, match="strict has no dial"):
        codec.decode(described(charted_files, {"settings.rule": "strict", "settings.dial": None}))
    with pytest.raises(BadInput, match="newer"):
        codec.decode(described(files, {"schema": manifest.SCHEMA + 1, "unheard_of": True}))


def test_a_manifest_that_is_no_strict_json_is_refused():
    for data in (b"", b"\xff\xfe", b"null", b'{"schema": NaN}', b'{"schema": 1e999}', b"[" * 10**5):
        with pytest.raises(BadInput, match="manifest.json"):
            manifest.from_json(data)


CONTRADICTIONS: dict[str, list[tuple[Edit, str]]] = {  # edits of each table, with what the error must contain
    "nodes": [
        (put("parents", 1, 1), "parent"),
        (put("parents", 2, 0), "one level below"),
        (put("depths", 1, 9), "one level below"),
        (put("round", 0, 10_000), "out of order"),
        (put("tokens", 0, 31_000), "lacks the token 31000|decision|text"),
        (put("draft_ids", (0, 0), 31_000), "lacks the token 31000"),
        (dropped, "one row more"),
        (lambda columns: columns.update(kept=~columns["kept"]), "decision"),
    ],
    "rows": [
        (dropped, "one row more"),
        (put("top_logits", (0, 0), -50.0), "sorted"),
        (put("top_logits", 0, -np.inf), "finite logit"),
        (put("top_ids", (0, 0), 31_000), "lacks the token 31000"),
        (put("emit_below", 0, 31_000), "not among the row's candidates"),
    ],
    "rounds": [
        (shifted("start"), "does not start where"),
        (shifted("row"), "decision"),
        (shifted("emitted"), "decision"),
        (put("token_ids", 0, [30, 30]), "does not start where|text|counts other"),
        (put("token_ids", -1, []), "text|counts"),
        (dropped, "counts other rounds"),
    ],
    "pieces": [(put("id", 0, 1), "twice"), (dropped, "lacks the token")],
    "map_nodes": [
        (put("depths", 1, 9), "map_nodes.parquet .*one level below"),
        (put("answer", 0, 10_000), "names answers that do not exist"),
        (shifted("tokens"), "drafts other tokens than the run did"),
        (put("draft_ids", (0, 0), 31_000), "lacks the token 31000"),
        (put("tokens", -1, 31_000), "lacks the token 31000|other tokens than the run"),
        (dropped, "in every answer"),
    ],
    "map_rows": [
        (dropped, "in every answer"),
        (put("top_logits", 0, -np.inf), "map_rows.parquet has best tokens"),
        (put("top_ids", (0, 0), 31_000), "lacks the token 31000"),
        (put("emissions", (0, 0), 31_000), "lacks the token 31000"),
    ],
    "map_answers": [
        (shifted("start"), "does not start where its prefix ends"),
        (put("prefix", 1, []), "does not start where|twice"),
        (put("prefix", -1, [-1]), "column prefix"),
        (dropped, "as many prefixes"),
        (lambda columns: [values.__setitem__(2, values[1]) for values in columns.values()], "twice"),
        (lambda columns: columns["prefix"][-1].__setitem__(0, 31_000), "lacks the token 31000"),
        (lambda c: [put("prefix", 0, [30] * 30)(c), put("start", 0, 34)(c)], "begin at the prompt|starts? where"),
    ],
}


IMPOSSIBLE = {
    "nodes": {"parents": -2, "round": -1, "q": np.nan, "z": np.inf, "kl_qp": -np.inf, "coins": 1.0, "ranks": -1},
    "rows": {"logsumexp": np.inf, "support": 0, "top_logits": np.nan},
    "rounds": {"temperature": np.nan, "total": -1.0},
    "map_nodes": {"q": 1.5, "tokens": -1},
    "map_answers": {"draft": -1.0},
}


@pytest.mark.parametrize("table", CONTRADICTIONS)
def test_contradictions_and_impossible_values_are_refused(files, charted_files, table):
    impossible = [(put(column, 0, value), f"column {column}") for column, value in IMPOSSIBLE.get(table, {}).items()]
    for edit, message in CONTRADICTIONS[table] + impossible:
        with pytest.raises(BadInput, match=message):
            codec.decode(edited(charted_files if table.startswith("map_") else files, table, edit))


def test_the_map_of_another_run_is_refused(charted):
    other = run_with_map(0.6, rule="mars-code", temperature=1.0, max_new_tokens=14, model_seed=1)
    with pytest.raises(BadInput, match="the map of another run"):
        codec.encode(replace(charted, title="Renamed", map=other.dial_map))


def test_tables_beyond_any_memory_are_refused(files, charted_files, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(BadInput, match="far more prefixes"):
        patched.setattr(codec, "MAX_PREFIXES", 50)
        codec.decode(charted_files)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("it was unpacked"))
    for limit in ("MAX_VALUES", "MAX_BYTES"):
        with monkeypatch.context() as patched, pytest.raises(BadInput, match="far larger"):
            patched.setattr(codec, limit, 10)
            codec.decode(files)


def rewritten(data: bytes, change: Callable[[pa.Table], pa.Table], **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(data))), sink, **({"use_dictionary": False} | options))
    return sink.getvalue()


def first_as(column: str, value: object, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(old: pa.Table) -> pa.Table:
        values = pa.array([value, *old[column].to_pylist()[1:]], kind)
        return old.set_column(old.schema.get_field_index(column), column, values)

    return change


FOREIGN: list[tuple[Callable[[pa.Table], pa.Table], str]] = [
    (lambda t: t.append_column("z", t["z"]), "damaged"),
    (lambda t: t.drop_columns(["draft_logits"]), "candidates of the drafter without a logit each"),
    (lambda t: t.set_column(1, "tokens", t["tokens"].cast(pa.int64())), "holds int64"),
    (lambda t: t.slice(0, 0), "one row more"),
    (first_as("z", None, pa.float32()), "nodes.parquet"),
    (first_as("draft_ids", [1], pa.list_(pa.int32())), "nodes.parquet"),
    (first_as("draft_ids", [None], pa.list_(pa.int32())), "nodes.parquet"),
]


def test_foreign_tables_gaps_and_uneven_lists_are_refused(files):
    nodes = files["nodes.parquet"]
    changed = [(rewritten(nodes, change), message) for change, message in FOREIGN]
    for table, message in changed:
        with pytest.raises(BadInput, match=message):
            codec.decode(signed(files, nodes=table))


def test_a_missing_or_truncated_file_is_named(tmp_path, charted):
    path = charted.save(tmp_path / "run")
    for name in (*codec.NAMES, *codec.MAP_NAMES):
        data = (path / name).read_bytes()
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        for damaged in (data[:middle], *([flipped] if name != "manifest.json" else [])):  # which has no checksum
            (path / name).write_bytes(damaged)
            with pytest.raises(BadInput, match=rf"run cannot be opened: .*{name}"):
                runfiles.load_run(path)
        (path / name).unlink()
        with pytest.raises(BadInput, match=f"{name} is missing"):
            runfiles.load_run(path)
        (path / name).write_bytes(data)
    for wrong, message in ((path / name, "it is a file.*unpack"), (tmp_path / "none", "the folder does not exist")):
        with pytest.raises(BadInput, match=message):
            runfiles.load_run(wrong)


def test_a_broken_run_does_not_take_the_others_down(tmp_path, run):
    damaged = {"b": "rows.parquet", "c": "manifest.json", "d": "nodes.parquet"}
    for name in "abcd":
        replace(run, title="").save(tmp_path / name)
        if name in damaged:
            (tmp_path / name / damaged[name]).write_bytes(b"{")
    (tmp_path / "no run").mkdir()
    (tmp_path / "README.md").touch()
    first, *others = list_runs(tmp_path)
    assert first.heading == "w1 w2 w3" and not first.error and first.facts is not None
    assert first.facts.settings == run.settings and first.facts.tokens == len(run.token_ids)
    for entry, (name, file) in zip(others, damaged.items(), strict=True):
        assert entry.path.name == entry.heading == name and entry.facts is None and file in entry.error
    assert list_runs(tmp_path / "nowhere") == []


def zipped(entries: Mapping[str, bytes], edit: Callable[[zipfile.ZipInfo], None] = lambda _: None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            edit(info)
            archive.writestr(info, data)
    return buffer.getvalue()


def in_folder(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {f"{folder}{name}": data for name, data in files.items()}


def test_a_run_comes_back_from_a_zip(tmp_path, charted, charted_files):
    made = runfiles.write_zip(charted)
    assert made == runfiles.write_zip(charted)
    mac = {"run/": b"", **in_folder(charted_files, "run/"), "__MACOSX/run/._nodes.parquet": b"?", "run/.DS_Store": b""}
    for data in (made, zipped(charted_files), zipped(mac)):
        assert runfiles.unpacked(data) == charted_files
    into = tmp_path / "run"
    assert not difference(charted, runfiles.read_zip(made, into))
    assert not difference(charted, runfiles.load_run(into))
    (entry,) = list_runs(tmp_path)
    assert entry.heading == charted.title and entry.facts.dial_map is not None
    with pytest.raises(BadInput, match="exists already"):
        runfiles.read_zip(made, into)


def test_an_upload_that_is_too_large_or_kills_its_reader_is_refused(tmp_path, files, monkeypatch):
    data = zipped(files)
    sleep, abort = ((sys.executable, "-c", code) for code in ("import time; time.sleep(9)", "import os; os.abort()"))
    for changes, upload, message in (
        ({"MAX_ZIP": len(data) - 1}, data, "larger than"),
        ({"MAX_UNPACKED": 1000}, data, "far more"),
        ({"VETTING": abort}, data, "damaged"),
        ({"VETTING": sleep, "TIMEOUT": 0.5}, data, "more than 0.5 seconds"),
    ):
        with monkeypatch.context() as patched, pytest.raises(BadInput, match=message):
            for name, value in changes.items():
                patched.setattr(runfiles, name, value)
            runfiles.read_zip(upload, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    runfiles.vet(data)
    with pytest.raises(BadInput, match="column q"):  # found by the process that reads it first
        runfiles.vet(zipped(edited(files, "nodes", put("q", 0, np.nan))))


def test_runs_and_their_maps_come_back_bit_for_bit(tmp_path):
    for place, rule in enumerate(RULES):
        temperature = 0.7 * (place % 2)
        how = {"rule": rule, "temperature": temperature, "seed": 5}
        run = toy_run(top_k=9 if temperature else 0, max_new_tokens=20, **how)
        if RULES[rule].dial is not None:
            run = run_with_map(gammas=(1, 4), gamma=4, **how)
        path = tmp_path / "there" / rule
        assert run.save(path) == path
        read = runfiles.load_run(path)
        assert not difference(run, read)
        if run.dial_map is not None:
            found = read.dial_map.at(read.settings.dial, read.settings.gamma)
            for one, other in zip(found.rounds, read.rounds, strict=True):
                for name in ("speculation", "verdicts", "decision", "token_ids"):
                    assert not difference(getattr(one, name), getattr(other, name))
            assert found.settings == read.settings and read.dial_map.frame.pieces is read.pieces
