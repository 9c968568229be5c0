"""`mars-viz import`: read an engine's own records of speculative decoding: counts, rounds, or whole runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz.analysis.engine_file import DIALS, EngineFile, RejectionBound, decoded, read_file
from mars_viz.analysis.engines import EngineRow, acceptance_table
from mars_viz.backend_choice import BackendChoice, backend
from mars_viz.commands.decoding import add, json_argument, note, progress_bar
from mars_viz.documents import Block, Sentence, Table, lines
from mars_viz.errors import RunFileError, disk_refusals
from mars_viz.imports import TOLERANCE, check_tolerance, import_run
from mars_viz.options import argument, declared
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runfiles import check_free, save_run
from mars_viz.speculators.names import check_names
from mars_viz.terminal import say
from mars_viz.words import counted, number
from mars_viz.writer import json_of, picked

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

BUILTIN = "built-in"  # the value of --target for the built-in target; without the option, no target is used
_LARGEST = 200 << 20  # largest file in bytes


def arguments(parser: argparse.ArgumentParser) -> None:
    about = (
        "an engine's responses (JSON, an object a line, or a captured stream), the text of its /metrics, or a log of "
    )
    add(parser, "file", f"{about}whole rounds", metavar="FILE")
    add(parser, "--drafts", "log of the drafts behind vLLM's responses, an object a line", metavar="LOG")
    about = "the target, which is asked for what the engine does not tell: hub id, folder, a vLLM server's address, or "
    add(parser, "--target", about + BUILTIN, metavar="MODEL")
    for name in ("device", "dtype"):
        argument(parser, declared(BackendChoice)[name])
    add(parser, "--rule", "rule whose verdicts runs show", Settings().rule)
    about = "logits; the engine's choice is taken where two tokens are as near"
    add(parser, "--tolerance", about, TOLERANCE)
    add(parser, "--out", "new folder for the run, of several texts a folder in it for each", metavar="DIR")
    json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Read the file and print its contents. Raises BadInput before anything is written."""
    check_tolerance(options.tolerance)
    rule_named(options.rule)
    if options.target not in (None, BUILTIN):
        check_names(options.target, None, device=options.device, dtype=options.dtype)
    if options.out is not None:
        check_free(options.out)
    drafts = None if options.drafts is None else _text_of(options.drafts)
    engine_file = read_file(_text_of(options.file), drafts, _words(options))
    runs = _runs(engine_file, options)
    if options.out is None and engine_file.texts and not options.json:
        note("The runs are not kept; name a new folder for them with --out.")
    paths: list[Path] = []
    if options.out is not None:  # several in numbered subfolders
        names = [""] if len(runs) == 1 else map(str, range(1, len(runs) + 1))
        paths = [save_run(each, Path(options.out, name)) for (each, _), name in zip(runs, names, strict=True)]
    rows = acceptance_table([counts for _, counts in engine_file.requests]) if engine_file.requests else ()
    if options.json:
        print(json_of(_facts(engine_file, rows, runs, paths)))
        return
    say(*lines(_blocks(engine_file, rows)))
    for run_, ties in runs:
        settled = f"; {counted(ties, 'tie')} settled as the engine did" if ties else ""
        tokens, rounds = len(run_.token_ids), len(run_.rounds)
        say(f"{run_.title}: {tokens} tokens in {rounds} rounds, τ = {number(run_.tau)}{settled}.")
    if paths:
        say("", *(f"Saved to {path}." for path in paths))


def _text_of(path: str) -> str:
    with disk_refusals(path, "read", "Give a file of an engine's responses.", RunFileError):
        data = Path(path).read_bytes()
    if len(data) > _LARGEST:
        raise RunFileError(f"{path} has {len(data) >> 20} MB, above {_LARGEST >> 20}. Split it.")
    return decoded(data, path)


def _words(options: argparse.Namespace) -> Callable[[int], str] | None:
    """Return a function from token to text if a local or hub model is named."""
    if options.target is None or str(options.target).startswith(("http://", "https://")):
        return None
    from mars_viz import demo
    from mars_viz.speculators.model_files import tokenizer_of
    from mars_viz.speculators.token_bytes import TokenizerPieces

    pieces = TokenizerPieces(tokenizer_of(str(demo.TARGET if options.target == BUILTIN else options.target)))
    return lambda token: pieces[token].text


def _runs(found: EngineFile, options: argparse.Namespace) -> list[tuple[Run, int]]:
    if not found.texts:
        if options.out is not None:
            raise RunFileError(
                "No run can be made of it: it does not tell what was drafted. Give a log of the drafts with --drafts, "
                "and the target with --target."
            )
        return []
    models: Backend | None = None
    if options.target is not None:
        target = None if options.target == BUILTIN else options.target
        models = backend(target=target, device=options.device, dtype=options.dtype)
    runs, total = [], sum(len(each.rounds) for each in found.texts)
    with progress_bar()(desc="Reading", total=total, unit=" rounds") as bar:
        for text in found.texts:
            keywords: dict[str, Any] = {"rule": options.rule, "tolerance": options.tolerance}
            runs.append(import_run(text, models, tell=lambda _: bar.update(), **keywords))
    return runs


def _blocks(found: EngineFile, rows: Sequence[EngineRow]) -> list[Block]:
    blocks: list[Block] = []
    if found.requests:
        lines_of_table = []
        for row in rows:
            both = ((row.length, row.length_within.interval), (row.rate, row.rate_within.interval))
            cells = (number(value) if interval is None else interval.words for value, interval in both)
            lines_of_table.append((row.definition.engine, *cells))
        blocks += [Sentence(found.summary), Table(("acceptance as in", "length", "rate"), lines_of_table)]
    if found.unread:
        blocks.append(Sentence(f"No rounds, so no margins. {found.unread}"))
    if found.served:
        bound = RejectionBound.of(found.served)
        tokens, rounds = sum(len(each.texts) for each in found.served), sum(each.counts.steps for each in found.served)
        forgiven = [(f"{dial:g}", f"at most {bound.at(dial)} of {bound.rejections}") for dial in DIALS]
        count = f"{counted(tokens, 'token')} in {counted(rounds, 'round')}, {counted(bound.rejections, 'rejection')}."
        blocks += [Sentence(f"{count} {bound.sentence}"), Table(("θ", "forgiven"), forgiven)]
    return blocks


def _facts(
    found: EngineFile, rows: Sequence[EngineRow], made: Sequence[tuple[Run, int]], paths: Sequence[Path]
) -> dict[str, Any]:
    counts = ("name", "accepted_total", "drafted_total", "steps", "gamma", "completion_tokens", "summed")
    bound: dict[str, Any] | None = None
    if found.served:
        rejected = RejectionBound.of(found.served)
        at_most = [{"dial": dial, "rejections": rejected.at(dial)} for dial in DIALS]
        bound = {"by": "θ", "rejections": rejected.rejections}
        bound |= {"unknown": rejected.unknown, "at_most": at_most}
    acceptance = []
    for row in rows:
        figures = {"length": row.length, "length_within": row.length_within.interval, "rate": row.rate}
        acceptance.append({"engine": row.definition.engine, "rate_within": row.rate_within.interval, **figures})
    rounds = []
    for served in found.served:
        text = picked(served, "name", "model", "tau") | {"text": served.texts, "token_ids": served.token_ids}
        columns = {"round": served.round_index} | picked(served, "drafted", "corrected", "margin", "ratio")
        rounds.append(text | {name: column.tolist() for name, column in columns.items()})
    return {
        "requests": [{"engine": engine} | picked(each, *counts) for engine, each in found.requests],
        "without_counts": found.without,
        "scrapes": found.scrapes,
        "acceptance": acceptance,
        "rounds": rounds,
        "no_rounds": found.unread or None,
        "bound": bound,
        "runs": [picked(run, "title", "tau") | {"rounds": len(run.rounds), "ties": ties} for run, ties in made],
        "paths": [str(path) for path in paths],
    }
