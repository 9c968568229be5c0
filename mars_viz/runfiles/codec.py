"""A run as files in memory and back, for folders and zips alike: a manifest, and tables of columns in Parquet.

Columns have the names of the records' columns and fields in records.py, which documents them. A table contains the rows
of all owners (rounds or map answers), one owner after another. The tables of a dial map contain the answer at each
prefix; its segments are computed on first access, not when a run is opened. Files may be untrusted: the size is limited
before unpacking, columns must match `TABLES` (unknown ones are ignored), tables must agree, and every failure is a
BadInput that names the file. Encoding reads the files back before returning them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mars_viz.bounds import LONGEST_DRAFT, LONGEST_PIECE, SECONDS, TEMPERATURE, TOKENS, VOCABULARY, WIDEST
from mars_viz.errors import BadInput, EvidenceError, RunFileError
from mars_viz.exploration import DialMap
from mars_viz.records import COLUMNS, EMITTED, Check, Decides, Emission, Per, Policy, Timing, Verdicts, within
from mars_viz.rules import rule_named
from mars_viz.run import Piece, Run, Settings
from mars_viz.runfiles import manifest
from mars_viz.runfiles.manifest import Manifest, MapFacts, Stamp
from mars_viz.trace import Settled, Speculations, Trace
from mars_viz.trees import depths_of, siblings_of
from mars_viz.walk import Answer, answers_of, shortened

Table: TypeAlias = dict[str, np.ndarray]
"""Columns by name: [rows], or [rows, length] for lists of one length; other lists and bytes as objects."""

MAX_VALUES = 50_000_000  # rows; far above any run, and far below the memory of a machine
MAX_PREFIXES = MAX_VALUES  # tokens of all prefixes of a map
MAX_BYTES = 1 << 30  # size of an unpacked table
MAX_FOOTER = 1 << 20  # bytes; a long run has a few thousand
_END = 8  # bytes after the footer: its length and the magic number
_UNREADABLE = (pa.ArrowException, OSError, MemoryError, ValueError, TypeError, KeyError, IndexError, OverflowError)
"""Errors that pyarrow raises on damaged bytes, depending on the location of the damage."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """Type and valid values of a column."""

    type: pa.DataType
    holds: Check = lambda values: np.ones(values.shape, bool)  # True for each valid value
    wide: bool = False  # True for equally long lists of `type`
    optional: bool = False

    def fits(self, other: pa.DataType) -> bool:
        """True if a file's column of that type may have these values."""
        if not self.wide:
            return other == self.type
        return pa.types.is_fixed_size_list(other) and other.value_type == self.type and other.list_size <= WIDEST


_FLAG, _DOUBLE = FileColumn(pa.bool_()), FileColumn(pa.float64())
_TOKEN = FileColumn(pa.int32(), within(0, VOCABULARY - 1))
_TOKENS = FileColumn(pa.list_(pa.int32()), within(0, VOCABULARY - 1))
_INDEX = FileColumn(pa.int32(), within(0, TOKENS - 1))
_PIECE = FileColumn(pa.binary(), lambda values: np.array([len(data) <= LONGEST_PIECE for data in values], bool))

_EVIDENCE = {
    name: FileColumn(pa.from_numpy_dtype(each.dtype), each.holds, each.width != 1, each.decides is not Decides.ALWAYS)
    for name, each in COLUMNS.items()
}
NODE_FIELDS = {name: each for name, each in _EVIDENCE.items() if COLUMNS[name].per is Per.NODE}
"""Arrays of `Speculation` with a value per drafted token."""
ROW_FIELDS = {name: each for name, each in _EVIDENCE.items() if COLUMNS[name].per is Per.ROW}
"""Arrays of `Speculation` with a value per row."""
NODE_VERDICTS = {"breakpoints": _DOUBLE, "keep_below": _FLAG, "keep_above": _FLAG, "keep_strict": _FLAG}
"""Arrays of `Verdicts` with a value per drafted token."""
ROW_VERDICTS = {"row_breakpoints": _DOUBLE, "emit_below": _TOKEN, "emit_above": _TOKEN}
"""Arrays of `Verdicts` with a value per row."""
SCALAR_FIELDS = {
    "start": FileColumn(pa.int64(), within(0, 2 * TOKENS)),
    "temperature": FileColumn(pa.float64(), within(TEMPERATURE.low, TEMPERATURE.high)),
    "sampled": _FLAG,
}
"""Single values of `Speculation`."""
TIMING_FIELDS = {field.name: FileColumn(pa.float64(), within(0, SECONDS)) for field in fields(Timing)}  # seconds

RUN_TABLES: dict[str, dict[str, FileColumn]] = {
    "nodes": {
        "round": _INDEX,
        **NODE_FIELDS,
        **NODE_VERDICTS,
        "gap_from": FileColumn(pa.float64(), optional=True),  # only for rules that have gaps
        "kept": _FLAG,
    },
    "rows": {"round": _INDEX} | ROW_FIELDS | ROW_VERDICTS,
    "rounds": {
        **SCALAR_FIELDS,
        "row": FileColumn(pa.int32(), within(0, LONGEST_DRAFT)),
        "emitted": _TOKEN,
        "token_ids": _TOKENS,
        **TIMING_FIELDS,
    },
    "pieces": {"id": _TOKEN, "bytes": _PIECE, "special": _FLAG},
}
"""Tables of every run. A row of `nodes` is a drafted token, of `rows` a target distribution, of `rounds` a draft-verify
cycle, of `pieces` a vocabulary entry."""

MAP_TABLES: dict[str, dict[str, FileColumn]] = {
    "map_nodes": {"answer": _INDEX} | NODE_FIELDS,
    "map_rows": {"answer": _INDEX} | ROW_FIELDS,
    "map_answers": {**SCALAR_FIELDS, "prefix": _TOKENS, **TIMING_FIELDS},
}
"""Tables of a map. `map_nodes` and `map_rows` are as above; a row of `map_answers` is a prefix after the prompt."""

TABLES = RUN_TABLES | MAP_TABLES
MANIFEST = "manifest.json"
NAMES = (MANIFEST, *(f"{table}.parquet" for table in RUN_TABLES))  # the files of every run, in writing order
MAP_NAMES = tuple(f"{table}.parquet" for table in MAP_TABLES)  # additional files of a run with a dial map

ROUNDS = ("nodes", "rows", "rounds", "round")
ANSWERS = ("map_nodes", "map_rows", "map_answers", "answer")
"""The tables with a run's own speculations, and with those of its map: of drafted tokens, target distributions and
owners; and the column with the index of the owner."""
_TOKEN_COLUMNS = ("tokens", "draft_ids", "top_ids", "emissions", *EMITTED)
"""Columns with token ids. Emitted tokens and prefixes need no check, since they consist of candidates."""


def to_bytes(name: str, columns: Table) -> bytes:
    """Return the Parquet file of a table's known columns; `from_bytes` checks them. Raises BadInput."""
    sink = pa.BufferOutputStream()
    try:
        arrays = {key: _to_arrow(column, columns[key]) for key, column in TABLES[name].items() if key in columns}
        schema = pa.schema([pa.field(key, array.type, nullable=False) for key, array in arrays.items()])
        table = pa.table(list(arrays.values()), schema=schema)
        pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    except pa.ArrowException as error:
        raise RunFileError(f"A column of {name} is none that a run holds ({error}).") from error
    return bytes(sink.getvalue())


def from_bytes(name: str, data: bytes, most: int) -> Table:
    """Return the columns of a table with at most `most` rows. Raises BadInput if `data` is not that table, or is far
    larger than any run's, which is checked before unpacking."""
    try:
        if len(data) < _END or int.from_bytes(data[-_END:][:4], "little") > min(len(data), MAX_FOOTER):
            raise ValueError("no footer")
        source = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        about, schema = source.metadata, source.schema_arrow
        size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        small = about.num_rows <= min(most, MAX_VALUES) and size <= MAX_BYTES
        require(name, small, "is far larger than any run, or than its manifest says")
        types = dict(zip(schema.names, schema.types, strict=True))
        if len(types) < len(schema.names):
            raise ValueError("a column twice")
        for key, column in TABLES[name].items():
            require(name, key in types or column.optional, f"lacks the column {key}")
            if key in types and not column.fits(types[key]):
                expected = f"{'equally long lists of ' * column.wide}{column.type}"
                require(name, False, f"holds {types[key]} in the column {key}, and a run holds {expected}")
        # one column at a time, to release its buffers before the next
        return {key: _column(name, source, key) for key in TABLES[name] if key in types}
    except _UNREADABLE as error:
        raise RunFileError(f"{name}.parquet is damaged or is no Parquet file. Record the run again.") from error


def _column(name: str, source: pq.ParquetFile, key: str) -> np.ndarray:
    """Return one column. Raises one of `_UNREADABLE` if it contradicts the footer, and BadInput for invalid values."""
    column = TABLES[name][key]
    table = source.read(columns=[key], use_threads=False)
    table.validate(full=True)
    if len(table) != source.metadata.num_rows:
        raise ValueError("other lines")
    array = table.column(key).combine_chunks()
    flat = array.flatten() if pa.types.is_nested(array.type) else array
    if array.null_count or flat.null_count:
        raise ValueError("a value is missing")
    values = _to_numpy(flat)
    with np.errstate(invalid="ignore"):  # comparing a signalling NaN
        require(name, column.holds(values).all(), f"holds an impossible value in the column {key}")
    if pa.types.is_list(array.type):
        listed, ends = values.tolist(), np.cumsum(_to_numpy(array.value_lengths())).tolist()
        return objects(listed[start:end] for start, end in itertools.pairwise([0, *ends]))
    values = values.reshape(len(array), array.type.list_size) if column.wide else values
    values.flags.writeable = False
    return values


def objects(values: Iterable[Any]) -> np.ndarray:
    """Return object [rows] with one value per row."""
    listed = list(values)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array


def _to_arrow(column: FileColumn, values: np.ndarray) -> pa.Array:
    if values.dtype == object:  # lists or bytes
        return pa.array(values.tolist(), column.type)
    flat = pa.array(values.reshape(-1))
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _to_numpy(flat: pa.Array) -> np.ndarray:
    """Convert as `to_numpy` does, but without importing pandas, which takes a third of a second."""
    if pa.types.is_boolean(flat.type):
        return np.from_dlpack(flat.cast(pa.uint8())).astype(bool)
    if pa.types.is_primitive(flat.type):
        return np.from_dlpack(flat)
    return objects(flat.to_pylist())


def _speculation_tables(speculations: Speculations, place: tuple[str, str, str, str]) -> dict[str, Table]:
    """Return the columns of the three tables. Raises BadInput if an array has a wrong length."""
    (nodes, rows, owners, owner), has = place, speculations.columns
    lengths, index = speculations.lengths, np.arange(len(speculations), dtype=np.int32)
    scalars = (speculations.starts, speculations.temperatures, speculations.sampled)
    return {
        nodes: {owner: np.repeat(index, lengths)} | {name: has[name] for name in NODE_FIELDS if name in has},
        rows: {owner: np.repeat(index, lengths + 1)} | {name: has[name] for name in ROW_FIELDS if name in has},
        owners: dict(zip(SCALAR_FIELDS, scalars, strict=True)),
    }


def require(table: str, holds: object, otherwise: str) -> None:
    """Raise BadInput with the words for an inconsistent table if `holds` is false."""
    if not holds:
        raise RunFileError(f"{table}.parquet {otherwise}. Take a fresh copy, or record the run again.")


def _speculations(tables: Mapping[str, Table], place: tuple[str, str, str, str]) -> Speculations:
    """Return the speculations in order. Raises BadInput if tables are inconsistent or lack columns for rules."""
    *names, owner = place
    nodes, rows, owners = (tables[name] for name in names)
    counts = []  # rows per owner in the tables of nodes and rows, int64 [owners]
    for name, table in zip(names, (nodes, rows), strict=False):
        ordered = (np.diff(table[owner]) >= 0).all() and (table[owner] < len(owners["start"])).all()
        require(name, ordered, f"names {owner}s that do not exist or are out of order")
        counts.append(np.bincount(table[owner], minlength=len(owners["start"])))
    lengths, one_more = counts[0], (counts[1] == counts[0] + 1).all()
    require(names[1], one_more, f"does not hold one row more than there are drafted tokens in every {owner}")
    _check_nodes(names[0], nodes, lengths, owner, rows["top_ids"].shape[1])
    logits = rows["top_logits"]
    two = rows["top_ids"].shape == logits.shape and logits.shape[1] >= 2
    require(names[1], two, "lacks the ids and logits of the target's two best tokens")
    falling = (logits[:, 1:] <= logits[:, :-1]).all() and np.isfinite(logits[:, 0]).all()
    require(names[1], falling, "has best tokens that are not sorted by a finite logit")
    widths = {rows[name].shape[1] for name in COLUMNS.keys() & rows.keys() if name.startswith("emission")}
    require(names[1], widths <= {len(Emission)}, f"does not hold {len(Emission)} candidates for what each row emits")
    evidence = {name: column for table in (nodes, rows) for name, column in table.items() if name in COLUMNS}
    hottest = float(owners["temperature"].max(initial=0))
    for name, column in COLUMNS.items():
        has, where = name in evidence or not column.required(hottest), names[column.per is Per.ROW]
        require(where, has, f"lacks the column {name}, by which rules decide above temperature 0")
    return Speculations(lengths, owners["start"], owners["temperature"], owners["sampled"], evidence)


def _check_nodes(table: str, nodes: Table, lengths: np.ndarray, owner: str, width: int) -> None:
    """Check that parents precede their children, and that levels, siblings and budgets fit them. `width` is the number
    of listed target tokens."""
    parents, siblings, ends = nodes["parents"], nodes["siblings"], np.cumsum(lengths)
    first = np.repeat(ends - lengths, lengths)
    before = (parents < np.arange(len(parents)) - first).all()
    require(table, before, "has a token whose parent is not among the tokens before it")
    trees = [each.tolist() for each in np.split(parents, ends[:-1])]
    depths, order = (np.concatenate([*map(of, trees)]) for of in (depths_of, siblings_of))
    require(table, np.array_equal(nodes["depths"], depths), "has a token that is not one level below its parent")
    ordered = np.array_equal(siblings, order)
    require(table, ordered, "does not count the tokens after one another's place in their order")
    if "budgets" in nodes:
        budgets = nodes["budgets"]
        by_budget = np.lexsort((budgets, nodes[owner]))
        above = np.where(parents < 0, 0, budgets[first + np.maximum(parents, 0)]) if len(parents) else budgets
        each_once = (budgets[by_budget] == np.arange(len(budgets)) - first[by_budget] + 1).all()
        nested = each_once and (budgets > above).all()
        require(table, nested, "has tokens that no tree of fewer nodes would leave out in such an order")
    else:
        require(table, not siblings.any(), "holds trees, but not which smaller trees they hold")
    listed = [nodes[name].shape if name in nodes else None for name in ("draft_ids", "draft_logits")]
    require(table, listed[0] == listed[1], "has candidates of the drafter without a logit each")
    wide = "best_q" not in nodes or nodes["best_q"].shape[1] == width
    require(table, wide, "has not one probability of the drafter for each of the target's best tokens")


def trace_tables(trace: Trace) -> dict[str, Table]:
    """Return the columns of `nodes`, `rows` and `rounds`. Raises BadInput if an array has a wrong length."""
    tables, verdicts, recorded = _speculation_tables(trace.speculations, ROUNDS), trace.verdicts, trace.recorded
    tables["nodes"] |= {name: getattr(verdicts, name) for name in NODE_VERDICTS}
    if verdicts.gap_from is not None:
        tables["nodes"]["gap_from"] = verdicts.gap_from
    tables["nodes"]["kept"] = recorded.kept
    tables["rows"] |= {name: getattr(verdicts, name) for name in ROW_VERDICTS}
    ends = np.cumsum(recorded.lengths)[:-1]
    tables["rounds"] |= {
        "row": recorded.rows.astype(np.int32),
        "emitted": recorded.emitted,
        "token_ids": objects(each.tolist() for each in np.split(trace.text, ends)[: len(trace)]),
        **dict(zip(TIMING_FIELDS, trace.timings.T, strict=True)),
    }
    return tables


def trace_of(tables: Mapping[str, Table], settings: Settings, prompt_length: int) -> Trace:
    """Return the rounds. Raises BadInput if tables contradict each other or the rule's decisions at the dial value."""
    nodes, rows, rounds = (tables[name] for name in ("nodes", "rows", "rounds"))
    speculations = _speculations(tables, ROUNDS)
    candidates = np.concatenate([rows["emissions"], *(rows[name][:, None] for name in EMITTED if name in rows)], axis=1)
    for name in ("emit_below", "emit_above"):
        among = (candidates == rows[name][:, None]).any(axis=1).all()
        require("rows", among, "emits a token that is not among the row's candidates")
    lengths = np.array([len(token_ids) for token_ids in rounds["token_ids"]], np.int64)
    starts = prompt_length + np.cumsum(lengths) - lengths
    follow = (speculations.starts == starts).all()
    require("rounds", follow, "has a round that does not start where the one before ended")
    columns = {name: nodes[name] for name in NODE_VERDICTS} | {name: rows[name] for name in ROW_VERDICTS}
    policy = rule_named(settings.rule).policy if nodes["siblings"].any() else Policy.DRAFT_ORDER
    trace = Trace.of_columns(
        speculations,
        Verdicts(**columns, gap_from=nodes.get("gap_from"), policy=policy),
        Settled(nodes["kept"], rounds["row"].astype(np.int64), rounds["emitted"], lengths),
        np.fromiter(itertools.chain.from_iterable(rounds["token_ids"]), np.int64),
        np.stack([rounds[name] for name in TIMING_FIELDS], axis=1),
    )
    decided_so = trace.settled(settings.dial).same_as(trace.recorded)
    require("rounds", decided_so, "has a decision that its verdicts do not lead to")
    if len(trace):  # blocks are whole, except that the last may be cut to at least one token
        tokens, whole = trace.decided(trace.recorded)
        short = whole - lengths
        fits = (short[:-1] == 0).all() and short[-1] >= 0 and lengths[-1] > 0
        same = fits and np.array_equal(trace.text, tokens[: len(trace.text)])
        require("rounds", same, "has a round whose text is not the one that it decided")
    return trace


def map_tables(dial_map: DialMap) -> dict[str, Table]:
    """Return the columns of the map's tables, sorted by prefix. Raises BadInput if an array has a wrong length."""
    prefixes = sorted(dial_map.answers)
    answers = [dial_map.answers[prefix] for prefix in prefixes]
    prompt = len(dial_map.frame.prompt_ids)
    tables = _speculation_tables(Speculations.of([answer.speculation for answer in answers]), ANSWERS)
    timings = np.array([astuple(answer.timing) for answer in answers], np.float64).reshape(-1, len(TIMING_FIELDS))
    tables["map_answers"]["prefix"] = objects(prefix[prompt:] for prefix in prefixes)
    tables["map_answers"] |= zip(TIMING_FIELDS, timings.T, strict=True)
    return tables


def map_of(tables: Mapping[str, Table], run: Run, facts: MapFacts) -> DialMap:
    """Return the map of this run. Raises BadInput if the tables contradict each other, the manifest or the run."""
    table, prompt = tables["map_answers"], run.prompt_ids
    speculations = _speculations(tables, ANSWERS)
    few = len(prompt) * len(table["prefix"]) <= MAX_PREFIXES
    require("map_answers", few, "holds far more prefixes than a map of so long a prompt")
    prefixes = [prompt + tuple(prefix) for prefix in table["prefix"]]
    follow = (table["start"] == np.array([len(prefix) for prefix in prefixes], np.int64)).all()
    require("map_answers", follow, "has an answer that does not start where its prefix ends")
    require("map_answers", len(set(prefixes)) == len(prefixes), "holds a prefix twice")
    timings = zip(*(table[name].tolist() for name in TIMING_FIELDS), strict=True)
    answers = {
        prefix: Answer(speculation, Timing(*timing))
        for prefix, speculation, timing in zip(prefixes, speculations, timings, strict=True)
    }
    require("map_answers", not answers or prompt in answers, "does not begin at the prompt")
    for prefix, answer in answers_of(run).items():
        if prefix not in answers:
            continue
        length = min(len(answer.speculation), len(answers[prefix].speculation))  # the shorter is part of the longer
        ours, theirs = (shortened(each.speculation, length) for each in (answer, answers[prefix]))
        same = np.array_equal(ours.tokens, theirs.tokens) and np.array_equal(ours.parents, theirs.parents)
        require("map_nodes", same, "drafts other tokens than the run did at the same place")
    return DialMap(run.without_rounds, facts.span, answers, facts.passes, facts.seconds)


def stamp(data: bytes) -> Stamp:
    """Return size and checksum."""
    return Stamp(len(data), hashlib.sha256(data).hexdigest())


def missing_file(name: str) -> BadInput:
    """Return the error for a missing file."""
    return RunFileError(f"{name} is missing. Choose a whole folder written by MARS Viz.")


def damaged_file(name: str) -> BadInput:
    """Return the error for a file that does not have the manifest's checksum."""
    return RunFileError(f"{name} is damaged or changed. Take a fresh copy, or record the run again.")


def files_of(about: Manifest) -> tuple[str, ...]:
    """Return the names of the table files. Raises BadInput if the manifest lists others."""
    names = NAMES[1:] if about.dial_map is None else NAMES[1:] + MAP_NAMES
    if set(about.files) != set(names):
        raise RunFileError(f"{MANIFEST} names other tables than {', '.join(names)}. Take a fresh copy.")
    return names


def encode(run: Run) -> dict[str, bytes]:
    """Return the files by name. Raises BadInput for a run that could not be read again."""
    pieces: Table = {
        "id": np.array(list(run.pieces), np.int32),
        "bytes": objects(piece.data for piece in run.pieces.values()),
        "special": np.array([piece.special for piece in run.pieces.values()], bool),
    }
    try:
        tables = trace_tables(run.trace) | {"pieces": pieces}
        if (dial_map := run.map) is not None:
            if dial_map.frame != run.without_rounds:
                raise RunFileError("it has the map of another run. Join them with mars_viz.exploration.mapped.")
            tables |= map_tables(dial_map)
        files = {f"{name}.parquet": to_bytes(name, table) for name, table in tables.items()}
        files[MANIFEST] = manifest.to_json(Manifest.of(run, {name: stamp(data) for name, data in files.items()}))
        decode(files)
    except BadInput as error:
        raise RunFileError(f"The run cannot be saved: {error}") from error
    return {name: files[name] for name in (*NAMES, *MAP_NAMES) if name in files}


def decode(files: Mapping[str, bytes]) -> Run:
    """Return the run. Raises BadInput if a file is missing, damaged, newer or contradicts another."""
    about = _checked_manifest(files)
    most: dict[str, int] = {}  # rows of each table; those that the manifest counts are read first
    mapped = {} if about.dial_map is None else {ANSWERS: about.dial_map.answers}
    for (nodes, rows, owners, _), count in ({ROUNDS: about.rounds} | mapped).items():
        most |= {owners: count, nodes: LONGEST_DRAFT * count, rows: (LONGEST_DRAFT + 1) * count}
    most["pieces"] = VOCABULARY
    tables = {name: from_bytes(name, files[f"{name}.parquet"], limit) for name, limit in most.items()}
    if about.rounds != len(tables["rounds"]["start"]):
        raise RunFileError(_COUNTS)
    trace = trace_of(tables, about.settings, len(about.prompt_ids))
    columns = (tables["pieces"]["id"].tolist(), tables["pieces"]["bytes"], tables["pieces"]["special"].tolist())
    pieces = {token: Piece(data, special) for token, data, special in zip(*columns, strict=True)}
    require("pieces", len(pieces) == len(columns[0]), "holds a token twice")
    run = Run(**manifest.shared(about), rounds=trace, pieces=pieces)
    if about.dial_map is not None:
        same = about.dial_map.answers == len(tables["map_answers"]["start"])
        require("map_answers", same, f"does not hold as many prefixes as {MANIFEST} says")
        run = replace(run, map=map_of(tables, run, about.dial_map))
    if about.tokens != len(run.token_ids):
        raise RunFileError(_COUNTS)
    _check_tokens(run, tables)
    return run


_COUNTS = f"{MANIFEST} counts other rounds or tokens than the tables hold. Take a fresh copy."


def _checked_manifest(files: Mapping[str, bytes]) -> Manifest:
    """Return the manifest. Raises BadInput unless the other files are those that it names."""
    if MANIFEST not in files:
        raise missing_file(MANIFEST)
    about = manifest.from_json(files[MANIFEST])
    expected = files_of(about)
    for name in expected:
        if name not in files:
            raise missing_file(name)
        if stamp(files[name]) != about.files[name]:
            raise damaged_file(name)
    if unnamed := files.keys() - {MANIFEST, *expected}:
        raise RunFileError(f"{min(unnamed)} is there, but {MANIFEST} does not name it. Take a fresh copy.")
    return about


def _check_tokens(run: Run, tables: Mapping[str, Table]) -> None:
    """Raise BadInput unless every token is in the vocabulary and has a piece."""
    columns = [np.array(run.prompt_ids, np.int64)]
    for name in tables.keys() & {*ROUNDS[:2], *ANSWERS[:2]}:
        columns += [tables[name][column] for column in _TOKEN_COLUMNS if column in tables[name]]
    if "map_answers" in tables:
        columns += [np.fromiter(itertools.chain.from_iterable(tables["map_answers"]["prefix"]), np.int64)]
    has_piece = np.zeros(max(run.pieces, default=-1) + 2, bool)  # the last entry represents all higher ids
    has_piece[list(run.pieces)] = True
    lacking = [int(ids[~has].min()) for ids in columns if not (has := has_piece.take(ids, mode="clip")).all()]
    if lacking:
        raise EvidenceError(f"pieces.parquet lacks the token {min(lacking)}. Record the run again.")
    size = run.provenance.vocabulary_size or VOCABULARY
    if any(ids.size and ids.max() >= size for ids in columns):
        raise RunFileError(f"A table holds tokens beyond the models' vocabulary of {size:,}. Record the run again.")
