"""A run to and from its files in memory, so that folders and zips hold exactly the same.

Knows the files' names and that what is written is read back before anyone is told that it was; knows no disk.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import numpy as np

from mars_viz.errors import BadInput
from mars_viz.run import Piece, Run
from mars_viz.runfiles import manifest, maps, parquet, rounds
from mars_viz.runfiles.columns import MAP_TABLES, RUN_TABLES
from mars_viz.runfiles.manifest import Manifest, MapFacts, Stamp
from mars_viz.runfiles.parquet import Table

MANIFEST = "manifest.json"
NAMES = (MANIFEST, *(f"{table}.parquet" for table in RUN_TABLES))
"""The files of every run, in the order in which they are written."""
MAP_NAMES = tuple(f"{table}.parquet" for table in MAP_TABLES)
"""More files, of a run that carries its dial map."""

_TOKEN_COLUMNS = {
    "nodes": ("tokens", "draft_ids"),
    "rows": ("top_ids", "emissions"),
    "map_nodes": ("tokens", "draft_ids"),
    "map_rows": ("top_ids", "emissions"),
}
"""Where token ids occur; what is emitted is among the row's candidates, and a prefix consists of what was emitted."""


def encode(run: Run) -> dict[str, bytes]:
    """The files by name. Raises BadInput for a run that could not be read again."""
    pieces: Table = {
        "id": np.array(list(run.pieces), np.int32),
        "bytes": parquet.objects(piece.data for piece in run.pieces.values()),
        "special": np.array([piece.special for piece in run.pieces.values()], bool),
    }
    try:
        tables = rounds.to_tables(run.rounds) | {"pieces": pieces} | _map_tables(run)
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
                dial_map=_map_facts(run),
                files={name: stamp(data) for name, data in files.items()},
            ),
            optional=any(parquet.more_than_before(name, table) for name, table in tables.items()),
        )
        decode(files)
    except BadInput as error:
        raise BadInput(f"The run cannot be saved: {error}") from error
    return {name: files[name] for name in (*NAMES, *MAP_NAMES) if name in files}


def _map_tables(run: Run) -> dict[str, Table]:
    if run.dial_map is None:
        return {}
    if run.dial_map.frame != run.without_rounds:
        raise BadInput("its map is that of another run. Join them with mars_viz.mapped.mapped(run, dial_map).")
    return maps.to_tables(run.dial_map)


def _map_facts(run: Run) -> MapFacts | None:
    made = run.dial_map
    return None if made is None else MapFacts(made.span, made.passes, made.seconds, len(made.answers))


def tables_of(about: Manifest) -> tuple[str, ...]:
    """The files beside a manifest. Raises BadInput where it names others."""
    wanted = NAMES[1:] if about.dial_map is None else NAMES[1:] + MAP_NAMES
    if set(about.files) != set(wanted):
        raise BadInput(f"{MANIFEST} names other tables than {', '.join(wanted)}. Take a fresh copy.")
    return wanted


def decode(files: Mapping[str, bytes]) -> Run:
    """The run. Raises BadInput where a file is missing, damaged, newer or contradicts another."""
    if MANIFEST not in files:
        raise _missing(MANIFEST)
    about = manifest.from_json(files[MANIFEST])
    wanted = tables_of(about)
    for name in wanted:
        if name not in files:
            raise _missing(name)
        if stamp(files[name]) != about.files[name]:
            raise BadInput(f"{name} is not what was written. Take a fresh copy, or record the run again.")
    if unnamed := files.keys() - {MANIFEST, *wanted}:
        raise BadInput(f"{min(unnamed)} is there, but {MANIFEST} does not name it. Take a fresh copy.")
    names = [name.removesuffix(".parquet") for name in wanted]
    tables = {name: parquet.from_bytes(name, files[f"{name}.parquet"]) for name in names}
    with _uncollected():
        made, blocks = rounds.from_tables(tables, about.settings.dial, len(about.prompt_ids))
    run = Run(
        settings=about.settings,
        provenance=about.provenance,
        prompt_ids=about.prompt_ids,
        rounds=made,
        pieces=_pieces(tables["pieces"]),
        title=about.title,
        prompt=about.prompt,
    )
    if about.dial_map is not None:
        run = replace(run, dial_map=maps.from_tables(tables, run, about.dial_map))
    vars(run)["blocks"] = blocks  # where `Run.blocks` would keep what it lays end to end
    vars(run)["token_ids"] = tuple(chain.from_iterable(tables["rounds"]["token_ids"]))  # as `Run.token_ids` would
    _check(run, about, tables)
    return run


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looking for garbage in cycles, of which rounds, however many, leave none.

    Whoever came in while it was off leaves it to the first one to turn it on again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _missing(name: str) -> BadInput:
    return BadInput(f"{name} is missing. Choose a whole folder written by MARS Viz.")


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
    held = [tables[table][column] for table, columns in _TOKEN_COLUMNS.items() if table in tables for column in columns]
    held += [np.array(run.prompt_ids, np.int64)]
    if "map_answers" in tables:
        held += [np.fromiter(chain.from_iterable(tables["map_answers"]["prefix"]), np.int64)]
    has_piece = np.zeros(max(run.pieces, default=-1) + 2, bool)  # the last one stands for all ids above
    has_piece[list(run.pieces)] = True
    lacking = [int(ids[~has].min()) for ids in held if not (has := has_piece.take(ids, mode="clip")).all()]
    if lacking:
        raise BadInput(f"pieces.parquet lacks the token {min(lacking)}. Take a fresh copy, or record the run again.")
