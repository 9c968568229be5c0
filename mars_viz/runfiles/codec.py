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
    about = _checked_manifest(files)
    contents = {name: tables.from_bytes(name, files[f"{name}.parquet"], most) for name, most in _most_rows(about)}
    if about.rounds != len(contents["rounds"]["start"]):
        raise RunFileError(f"{MANIFEST} counts other rounds or tokens than the tables hold. Take a fresh copy.")
    trace = tables.trace_of(contents, about.settings, len(about.prompt_ids))
    columns = (contents["pieces"]["id"].tolist(), contents["pieces"]["bytes"], contents["pieces"]["special"].tolist())
    pieces = {token: Piece(data, special) for token, data, special in zip(*columns, strict=True)}
    if len(pieces) != len(contents["pieces"]["id"]):
        raise RunFileError("pieces.parquet holds a token twice. Take a fresh copy, or record the run again.")
    run = Run(**manifest.shared(about), rounds=trace, pieces=pieces)
    if about.dial_map is not None:
        same = about.dial_map.answers == len(contents["map_answers"]["start"])
        tables.require("map_answers", same, f"does not hold as many prefixes as {MANIFEST} says")
        run = replace(run, map=tables.map_of(contents, run, about.dial_map))
    _check(run, about, contents)
    return run


def missing_file(name: str) -> BadInput:
    """Return the error for a missing file."""
    return RunFileError(f"{name} is missing. Choose a whole folder written by MARS Viz.")


def stamp(data: bytes) -> Stamp:
    """Return size and checksum."""
    return Stamp(len(data), hashlib.sha256(data).hexdigest())


def damaged_file(name: str) -> BadInput:
    """Return the error for a file that does not have the manifest's checksum."""
    return RunFileError(f"{name} is damaged or changed. Take a fresh copy, or record the run again.")


def _checked_manifest(files: Mapping[str, bytes]) -> Manifest:
    """Return the manifest. Raises BadInput unless the other files are those that it names."""
    if MANIFEST not in files:
        raise missing_file(MANIFEST)
    about = manifest.from_json(files[MANIFEST])
    expected = tables_of(about)
    for name in expected:
        if name not in files:
            raise missing_file(name)
        if stamp(files[name]) != about.files[name]:
            raise damaged_file(name)
    if unnamed := files.keys() - {MANIFEST, *expected}:
        raise RunFileError(f"{min(unnamed)} is there, but {MANIFEST} does not name it. Take a fresh copy.")
    return about


def _most_rows(about: Manifest) -> list[tuple[str, int]]:
    """Return the tables with the most rows that they can have. Tables whose rows the manifest counts are first."""
    rounds, facts = about.rounds, about.dial_map
    most = [("rounds", rounds), ("nodes", LONGEST_DRAFT * rounds), ("rows", (LONGEST_DRAFT + 1) * rounds)]
    if facts is not None:
        answers = facts.answers
        most += [("map_answers", answers), ("map_nodes", LONGEST_DRAFT * answers)]
        most += [("map_rows", (LONGEST_DRAFT + 1) * answers)]
    return [*most, ("pieces", VOCABULARY)]


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
