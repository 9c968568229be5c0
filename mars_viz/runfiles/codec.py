"""Encode a run as files in memory and decode it, for folders and zips alike.

Encoding reads the files back before returning them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from mars_viz.bounds import LONGEST_DRAFT, VOCABULARY
from mars_viz.errors import BadInput, EvidenceError, RunFileError
from mars_viz.records import EMITTED
from mars_viz.run import Piece, Run
from mars_viz.runfiles import manifest, tables
from mars_viz.runfiles.manifest import Manifest, Stamp

MANIFEST = "manifest.json"
NAMES = (MANIFEST, *(f"{table}.parquet" for table in tables.RUN_TABLES))  # the files of every run, in writing order
MAP_NAMES = tuple(f"{table}.parquet" for table in tables.MAP_TABLES)  # additional files of a run with a dial map

_TOKENS = ("tokens", "draft_ids", "top_ids", "emissions", *EMITTED)
"""Columns with token ids. Emitted tokens and prefixes need no check, since they consist of candidates."""


def encode(run: Run) -> dict[str, bytes]:
    """Return the files by name. Raises BadInput for a run that could not be read again."""
    pieces: tables.Table = {
        "id": np.array(list(run.pieces), np.int32),
        "bytes": tables.objects(piece.data for piece in run.pieces.values()),
        "special": np.array([piece.special for piece in run.pieces.values()], bool),
    }
    try:
        contents = tables.trace_tables(run.trace) | {"pieces": pieces}
        if (dial_map := run.map) is not None:
            if dial_map.frame != run.without_rounds:
                raise RunFileError("it has the map of another run. Join them with mars_viz.exploration.mapped.")
            contents |= tables.map_tables(dial_map)
        files = {f"{name}.parquet": tables.to_bytes(name, table) for name, table in contents.items()}
        stamps = {name: stamp(data) for name, data in files.items()}
        files[MANIFEST] = manifest.to_json(Manifest.of(run, stamps))
        decode(files)
    except BadInput as error:
        raise RunFileError(f"The run cannot be saved: {error}") from error
    return {name: files[name] for name in (*NAMES, *MAP_NAMES) if name in files}


def tables_of(about: Manifest) -> tuple[str, ...]:
    """Return the names of the table files. Raises BadInput if the manifest lists others."""
    names = NAMES[1:] if about.dial_map is None else NAMES[1:] + MAP_NAMES
    if set(about.files) != set(names):
        raise RunFileError(f"{MANIFEST} names other tables than {', '.join(names)}. Take a fresh copy.")
    return names


def decode(files: Mapping[str, bytes]) -> Run:
    """Return the run. Raises BadInput if a file is missing, damaged, newer or contradicts another."""
    about, sources = _looked_at(files)
    contents = {name: source.read() for name, source in sources.items()}
    trace = tables.trace_of(contents, about.settings, len(about.prompt_ids))
    columns = (contents["pieces"]["id"].tolist(), contents["pieces"]["bytes"], contents["pieces"]["special"].tolist())
    pieces = {token: Piece(data, special) for token, data, special in zip(*columns, strict=True)}
    if len(pieces) != len(contents["pieces"]["id"]):
        raise RunFileError("pieces.parquet holds a token twice. Take a fresh copy, or record the run again.")
    run = Run(**manifest.shared(about), rounds=trace, pieces=pieces)
    if about.dial_map is not None:
        run = replace(run, map=tables.map_of(contents, run, about.dial_map))
    _check(run, about, contents)
    return run


def missing_file(name: str) -> BadInput:
    """Return the error for a missing file."""
    return RunFileError(f"{name} is missing. Choose a whole folder written by MARS Viz.")


def stamp(data: bytes) -> Stamp:
    """Return size and checksum."""
    return Stamp(len(data), hashlib.sha256(data).hexdigest())


def _looked_at(files: Mapping[str, bytes]) -> tuple[Manifest, dict[str, tables.UnreadTable]]:
    """Return the manifest and the unread tables. Raises BadInput if their sizes do not fit or are impossible."""
    if MANIFEST not in files:
        raise missing_file(MANIFEST)
    about = manifest.from_json(files[MANIFEST])
    expected = tables_of(about)
    for name in expected:
        if name not in files:
            raise missing_file(name)
        if stamp(files[name]) != about.files[name]:
            raise RunFileError(f"{name} is damaged or changed. Take a fresh copy, or record the run again.")
    if unnamed := files.keys() - {MANIFEST, *expected}:
        raise RunFileError(f"{min(unnamed)} is there, but {MANIFEST} does not name it. Take a fresh copy.")
    names = [name.removesuffix(".parquet") for name in expected]
    sources = {name: tables.opened(name, files[f"{name}.parquet"]) for name in names}
    lines = {name: source.lines for name, source in sources.items()}
    if about.rounds != lines["rounds"]:
        raise RunFileError(f"{MANIFEST} counts other rounds or tokens than the tables hold. Take a fresh copy.")
    same = about.dial_map is None or about.dial_map.answers == lines["map_answers"]
    tables.require("map_answers", same, "does not hold as many prefixes as manifest.json says")
    for place in (tables.ROUNDS, *([tables.ANSWERS] if about.dial_map is not None else [])):
        few = lines[place.nodes] <= LONGEST_DRAFT * lines[place.owners]
        tables.require(place.nodes, few, f"holds more drafted tokens than any {place.owner}s have")
    tables.require("pieces", lines["pieces"] <= VOCABULARY, "holds texts of more tokens than any vocabulary has")
    return about, sources


def _check(run: Run, about: Manifest, contents: Mapping[str, tables.Table]) -> None:
    """Check the manifest's counts, that every token is in the vocabulary, and that it has a piece."""
    if about.tokens != len(run.token_ids):
        raise RunFileError(f"{MANIFEST} counts other rounds or tokens than the tables hold. Take a fresh copy.")
    token_columns = [np.array(run.prompt_ids, np.int64)]
    for name in contents.keys() & tables.EVIDENCE_TABLES:
        token_columns += [contents[name][column] for column in _TOKENS if column in contents[name]]
    if "map_answers" in contents:
        token_columns += [np.fromiter(chain.from_iterable(contents["map_answers"]["prefix"]), np.int64)]
    has_piece = np.zeros(max(run.pieces, default=-1) + 2, bool)  # the last entry represents all higher ids
    has_piece[list(run.pieces)] = True
    lacking = [int(ids[~has].min()) for ids in token_columns if not (has := has_piece.take(ids, mode="clip")).all()]
    if lacking:
        raise EvidenceError(f"pieces.parquet lacks the token {min(lacking)}. Record the run again.")
    size = about.provenance.vocabulary_size or VOCABULARY
    if any(ids.size and ids.max() >= size for ids in token_columns):
        raise RunFileError(f"A table holds tokens beyond the models' vocabulary of {size:,}. Record the run again.")
