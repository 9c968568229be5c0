"""A run to and from its five files in memory, so that folders and zips hold exactly the same.

Knows the files' names and that what is written is read back before anyone is told that it was; knows no disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from mars_viz.errors import BadInput
from mars_viz.run import Piece, Run
from mars_viz.runfiles import manifest, parquet, rounds
from mars_viz.runfiles.columns import TABLES
from mars_viz.runfiles.manifest import Manifest, Stamp
from mars_viz.runfiles.parquet import Table

MANIFEST = "manifest.json"
NAMES = (MANIFEST, *(f"{table}.parquet" for table in TABLES))
"""Every file of a run, in the order in which they are written."""

_TOKEN_COLUMNS = ("nodes", "tokens"), ("nodes", "draft_ids"), ("rows", "top_ids"), ("rows", "emissions")
"""Where token ids occur; what is emitted is among the row's candidates."""


def encode(run: Run) -> dict[str, bytes]:
    """The files by name. Raises BadInput for a run that could not be read again."""
    pieces: Table = {
        "id": np.array(list(run.pieces), np.int32),
        "bytes": parquet.objects(piece.data for piece in run.pieces.values()),
        "special": np.array([piece.special for piece in run.pieces.values()], bool),
    }
    try:
        tables = rounds.to_tables(run.rounds) | {"pieces": pieces}
        files = {f"{name}.parquet": parquet.to_bytes(name, table) for name, table in tables.items()}
        files[MANIFEST] = manifest.to_json(
            Manifest(
                title=run.title,
                prompt=run.prompt,
                prompt_ids=run.prompt_ids,
                settings=run.settings,
                provenance=run.provenance,
                rounds=len(run.rounds),
                tokens=len(run.token_ids),
                files={name: stamp(data) for name, data in files.items()},
            )
        )
        decode(files)
    except BadInput as error:
        raise BadInput(f"The run cannot be saved: {error}") from error
    return {name: files[name] for name in NAMES}


def decode(files: Mapping[str, bytes]) -> Run:
    """The run. Raises BadInput where a file is missing, damaged, newer or contradicts another."""
    for name in NAMES:
        if name not in files:
            raise BadInput(f"{name} is missing. Choose a whole folder written by MARS Viz.")
    about = manifest.from_json(files[MANIFEST])
    if set(about.files) != set(NAMES) - {MANIFEST}:
        raise BadInput(f"{MANIFEST} names other tables than {', '.join(NAMES[1:])}. Take a fresh copy.")
    for name, expected in about.files.items():
        if stamp(files[name]) != expected:
            raise BadInput(f"{name} is not what was written. Take a fresh copy, or record the run again.")
    tables = {name: parquet.from_bytes(name, files[f"{name}.parquet"]) for name in TABLES}
    pieces = _pieces(tables["pieces"])
    run = Run(
        settings=about.settings,
        provenance=about.provenance,
        prompt_ids=about.prompt_ids,
        rounds=rounds.from_tables(tables, about.settings.dial, len(about.prompt_ids)),
        pieces=pieces,
        title=about.title,
        prompt=about.prompt,
    )
    _check(run, about, tables)
    return run


def stamp(data: bytes) -> Stamp:
    """Size and checksum."""
    return Stamp(len(data), hashlib.sha256(data).hexdigest())


def _pieces(table: Table) -> dict[int, Piece]:
    columns = (table["id"].tolist(), table["bytes"], table["special"].tolist())
    pieces = {token: Piece(data, special) for token, data, special in zip(*columns, strict=True)}
    if len(pieces) != len(table["id"]):
        raise BadInput("pieces.parquet holds a token twice. Take a fresh copy, or record the run again.")
    return pieces


def _check(run: Run, about: Manifest, tables: Mapping[str, Table]) -> None:
    """The manifest's counts are right, and every token has its text."""
    if (about.rounds, about.tokens) != (len(run.rounds), len(run.token_ids)):
        raise BadInput(f"{MANIFEST} counts other rounds or tokens than the tables hold. Take a fresh copy.")
    if about.tokens > about.settings.max_new_tokens:
        raise BadInput(f"{MANIFEST} allows fewer tokens than the tables hold. Take a fresh copy.")
    ids = [np.unique(tables[table][column]) for table, column in _TOKEN_COLUMNS]
    lacking = {*np.unique(np.concatenate(ids)).tolist(), *run.prompt_ids} - run.pieces.keys()
    if lacking:
        raise BadInput(f"pieces.parquet lacks the token {min(lacking)}. Take a fresh copy, or record the run again.")
