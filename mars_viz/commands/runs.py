"""`mars-viz runs`: list, search, show, rename, tag, delete and restore saved runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mars_viz import default_folders, samples
from mars_viz.analysis.engine_counts import acceptance_records
from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.analysis.metrics import run_facts
from mars_viz.commands.decoding import facts, json_argument, sentence
from mars_viz.documents import lines
from mars_viz.errors import RunFileError, StorageError
from mars_viz.reproduce import recipe
from mars_viz.run import Run
from mars_viz.runlist import found, listed_runs
from mars_viz.runstore import ListedRun, RunOrigin, RunStore, read
from mars_viz.terminal import say
from mars_viz.words import counted, number
from mars_viz.writer import json_of, picked

STAYS = "comes with MARS Viz and cannot be changed; only your own runs can have titles and tags, or be deleted."
_ID = "id of a run, as the list shows it"


def arguments(parser: argparse.ArgumentParser) -> None:
    _folder_argument(parser, str(default_folders.runs()))
    parser.add_argument(
        "--search", metavar="TEXT", default="", help="words in title, prompt, tags, id, rule, models, ..."
    )
    kinds = [each.value for each in (RunOrigin.SAMPLE, RunOrigin.SAVED)]
    parser.add_argument("--origin", choices=kinds, help="samples, or what was saved here (default: both)")
    parser.add_argument("--deleted", action="store_true", help="list the bin instead")
    json_argument(parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands, instead of the list")

    def command(name: str, run: Callable[[argparse.Namespace], None], about: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        added.set_defaults(run=run)
        _folder_argument(added, argparse.SUPPRESS)
        return added

    shown = command("show", _show, "Say all about one run: settings, models, numbers, and how it is made again.")
    shown.add_argument("id", metavar="ID", help=_ID)
    shown.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON instead of text")
    about = "Print acceptance records of runs as AIPerf's profile_export.jsonl has them, a line for each."
    command("acceptance", _acceptance, about).add_argument("ids", metavar="ID", nargs="+", help=_ID)
    titled = command("title", _title, "Give a run another title; its id, and so its links, stay.")
    titled.add_argument("id", metavar="ID", help=_ID)
    titled.add_argument("title", metavar="TEXT", help="the title")
    tagged = command("tag", _tag, "Put tags to runs, or take them away.")
    tagged.add_argument("ids", metavar="ID", nargs="+", help=_ID)
    tagged.add_argument("--add", metavar="TAG", action="append", default=[], help="put this one; may be repeated")
    tagged.add_argument("--remove", metavar="TAG", action="append", default=[], help="take it away; may be repeated")
    deleted = command("delete", _delete, "Move runs to the bin, from which `restore` brings them back.")
    deleted.add_argument("ids", metavar="ID", nargs="+", help=_ID)
    restored = command("restore", _restore, "Bring runs back from the bin, under their ids.")
    restored.add_argument("ids", metavar="ID", nargs="+", help="id of a run in the bin, as --deleted lists them")


def _folder_argument(parser: argparse.ArgumentParser, default: str) -> None:
    about = f"folder of runs (default: {default_folders.RUNS}, else the app's own, and the samples with it)"
    parser.add_argument("--folder", metavar="DIR", default=default, help=about)


def run(options: argparse.Namespace) -> None:
    available = list(RunStore(options.folder).deleted()) if options.deleted else _listed(options)
    listed = found(available, options.search, None if options.origin is None else RunOrigin(options.origin))
    if options.json:
        print(json_of([told(each) for each in listed]))
        return
    for each in listed:
        tags = "".join(f" #{tag}" for tag in each.tags)
        say(f"{each.name}  {each.heading}{tags}", f"    {each.line}")
    if not available:
        say("There is no run here yet. Record one: mars-viz record --prompt TEXT --out DIR")
    else:
        say(f"{number(len(listed))} of {counted(len(available), 'run')}.")


def told(each: ListedRun) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": each.name, "origin": each.origin.value, "standing": each.standing.value}
    fields |= {"line": each.line, "error": each.error, "path": None if each.path is None else str(each.path)}
    if each.facts is None:
        return fields
    fields |= picked(each.facts, "title", "prompt", "tags", "settings", "provenance", "rounds", "tokens", "tau")
    return fields | {"mapped": each.facts.dial_map is not None}


def _listed(options: argparse.Namespace) -> list[ListedRun]:
    """Return the runs in the folder, and the samples if the folder is the default. Raises BadInput."""
    folder = Path(options.folder)
    if folder != default_folders.runs():
        if not folder.is_dir():
            raise RunFileError(f"There is no folder {folder}. Name one that holds runs.")
        return listed_runs(folder)
    return listed_runs(folder, samples.runs_folder())


def _store_of(options: argparse.Namespace, names: list[str]) -> RunStore:
    """Return the store after checking that it contains all these runs. Raises BadInput before anything changes."""
    listed = {each.name: each for each in _listed(options)}
    for name in names:
        if name not in listed:
            raise RunFileError(f"There is no run {name} here. `mars-viz runs` lists their ids. Nothing was changed.")
        if listed[name].origin is RunOrigin.SAMPLE:
            raise StorageError(f"{name} {STAYS}")
    return RunStore(options.folder)


def _opened(options: argparse.Namespace, name: str) -> tuple[ListedRun, Path, Run]:
    listed = next((each for each in _listed(options) if each.name == name), None)
    if listed is None:
        raise RunFileError(f"There is no run {name} here. `mars-viz runs` lists their ids.")
    if listed.path is None or not listed.opens:
        raise RunFileError(listed.error or f"{listed.name} is being decoded; wait for its end.")
    return listed, listed.path, read(listed.path)


def _acceptance(options: argparse.Namespace) -> None:
    requests = []
    for name in dict.fromkeys(options.ids):
        *_, run = _opened(options, name)
        requests.append(AcceptanceCounts.of_rounds(name, run.rounds, run.settings.gamma, len(run.token_ids)))
    print(acceptance_records(requests), end="")


def _show(options: argparse.Namespace) -> None:
    listed, path, opened = _opened(options, options.id)
    again = recipe(opened, listed.name)
    if options.json:
        print(json_of(told(listed) | facts(opened, path) | {"again": again}))
        return
    say(f"{listed.heading}{''.join(f' #{tag}' for tag in listed.tags)}", listed.line, "", sentence(opened))
    say(*lines(run_facts(opened)), "")
    if again.refused:
        say(again.refused)
        return
    say("Make it again")
    print(again.command)
    print(f"\n{again.python}\n")
    say(*again.cautions)


def _title(options: argparse.Namespace) -> None:
    title = _store_of(options, [options.id]).rename(options.id, options.title)
    say(f"{options.id} is now called “{title}”.")


def _tag(options: argparse.Namespace) -> None:
    if not (options.add or options.remove):
        raise StorageError("No tag was given. Name some with --add TAG or --remove TAG.")
    store = _store_of(options, options.ids)
    for name in options.ids:
        tags = store.tag(name, options.add, options.remove)
        say(f"{name}: {', '.join(tags) or 'no tags'}")


def _delete(options: argparse.Namespace) -> None:
    store = _store_of(options, options.ids)
    for name in dict.fromkeys(options.ids):
        store.delete(name)
        say(f"Deleted {name}. Bring it back: mars-viz runs restore {name}")


def _restore(options: argparse.Namespace) -> None:
    store = RunStore(options.folder)
    if missing := set(options.ids) - {kept.name for kept in store.deleted()}:
        raise StorageError(
            f"{min(missing)} is not in the bin. `mars-viz runs --deleted` lists it. Nothing was changed."
        )
    for name in dict.fromkeys(options.ids):
        store.restore(name)
        say(f"{name} is back.")
