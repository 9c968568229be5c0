"""The command line `mars-viz`: parse arguments, print text or JSON, and print errors on one line.

Model libraries are imported only by commands that decode. Exit codes: 0, 2 for bad input, 1 for a fault, 130 when
interrupted.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from mars_viz import __version__, backend_choice, permissions, samples
from mars_viz.bounds import whole
from mars_viz.commands import checks, decoding, dial_map, evaluate, imports, runs, sweep
from mars_viz.commands.decoding import add, tell
from mars_viz.errors import MarsVizError, ModelError, RunFileError, SettingError
from mars_viz.report import check_place, report_html, write_report
from mars_viz.rules import RULES
from mars_viz.runfiles import load_run, save_run
from mars_viz.terminal import say, shown_streams
from mars_viz.words import counted, number
from mars_viz.writer import json_of, picked

DEBUG_VARIABLE = "MARS_VIZ_DEBUG"  # set to anything to print tracebacks
APP = Path(__file__).parents[1] / "app.py"  # the Streamlit app, next to the package in the repository


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Control characters in its output are escaped."""
    with shown_streams():
        try:
            options = decoding.with_backend_file(_parser().parse_args(arguments))
            options.run(options)
            sys.stdout.flush()
        except SystemExit as stop:  # argparse, after --help or an error
            return int(stop.code or 0)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader, such as head, closed the pipe
        except KeyboardInterrupt:
            return _failed(130, "Interrupted; nothing was saved.")
        except MarsVizError as error:
            return _failed(error.exit_code, str(error))
        except Exception as error:
            reason = " ".join(str(error).split()) or "no message"
            hint = f"Set {DEBUG_VARIABLE}=1 and run it again to see the traceback."
            return _failed(1, f"Internal error, {type(error).__name__}: {reason}. {hint}")
    return 0


def _failed(code: int, message: str) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    say(f"error: {' '.join(message.split())}", error=True)
    return code


class _Parser(argparse.ArgumentParser):
    """Prints errors on one line, with the help of the given subcommand."""

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """Reject unknown arguments here: argparse reports them from the main parser, whose help lacks them."""
        namespace, unknown = super().parse_known_args(*arguments, **options)
        if unknown:
            self.error(f"{self.prog} does not know {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        sys.exit(_failed(2, f"{message}. See {self.prog} --help."))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mars-viz", description="Record, map and sweep verification rules of speculative decoding.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str,
        run: Callable[[argparse.Namespace], None],
        arguments: Callable[[argparse.ArgumentParser], None],
        about: str,
        **how: Any,
    ) -> None:
        added = commands.add_parser(name, help=about, description=about, allow_abbrev=False, **how)
        added.set_defaults(run=run)
        arguments(added)

    command("record", _record, decoding.arguments, "Decode a prompt and save the run to a new folder.")
    about = "Decode a prompt, map every text that the rule's dial can reach, and save both to a new folder."
    command("map", dial_map.run, dial_map.arguments, about)
    about = "Map a rule's whole dial over a set of prompts, and find the loosest setting that keeps accuracy."
    command("sweep", sweep.run, sweep.arguments, about)
    about = "Evaluate decoding by a rule with lm-evaluation-harness: `lm_eval run`, with mars-viz as the model."
    how = {"prefix_chars": evaluate.NO_PREFIX, "add_help": False}
    command("eval", evaluate.run, evaluate.arguments, about, **how)
    about = "Check a drafter against its target: agreement at each depth, and what is wrong if it is low."
    command("drafter-check", checks.drafter_check, checks.drafter_arguments, about)
    about = "Check whether a vLLM server runs the same model as this machine: how far its logits are off."
    command("server", checks.server, checks.server_arguments, about)
    about = "Watch what a vLLM server accepts of its own drafts, round by round, next to strict speculation here."
    command("watch", checks.watch, checks.watch_arguments, about)
    about = "Read what an engine reports of its own speculation: counts, rounds, or with its drafts whole runs."
    command("import", imports.run, imports.arguments, about)
    about = "List the runs that are kept, or those with some words; show, title, tag, delete or restore some."
    command("runs", runs.run, runs.arguments, about)
    about = "List the verification rules with their dials and sources."
    command("rules", _rules, decoding.json_argument, about)
    command("show", _show, _show_arguments, "Summarise a recorded run, and print its text.")
    command("report", _report, _report_arguments, "Write a run as one HTML file that opens offline.")
    about = "Write runs as a static site: a gallery, every run with its live dial, comparisons and lessons."
    command("site", _site, _site_arguments, about)
    command("app", _app, _app_arguments, "Serve the app to this machine and open it in the browser.")
    return parser


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "path", "folder of a run", metavar="RUN")
    parser.add_argument("-o", "--out", metavar="FILE", default="report.html", help="the report (default: %(default)s)")
    add(parser, "--dial", "dial value that it opens at (default: the run's)", type=float)
    add(parser, "--gamma", "draft length that it shows (default: the run's)", type=int)
    parser.add_argument("--force", action="store_true", help="replace the file even if it is no report")


def _site_arguments(parser: argparse.ArgumentParser) -> None:
    about = "folder or zip of a run, or a folder of runs (default: the sample runs)"
    add(parser, "runs", about, metavar="RUN", nargs="*")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder for the site")
    parser.add_argument("--force", action="store_true", help="replace the folder even if it is no site")


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "path", "folder of a run", metavar="RUN")
    decoding.json_argument(parser)


def _app_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "--port", "port", 8501)
    add(parser, "--address", "0.0.0.0 serves the network, without a login", "localhost")
    about = (
        f"who may name folders of this machine, for results and as models (default: {permissions.PATHS}, else local: "
    )
    about += "this machine's browsers, if no other machine reaches the app)"
    add(parser, "--paths", about, choices=[each.value for each in permissions.MayNamePaths])
    about = f"a backend.toml with the models that every tab begins with (default: {backend_choice.FILE}, else the "
    add(parser, "--backend", f"{about}built-in pair)", metavar="FILE")
    about = (
        f"for one class: everybody sees their own runs and what the teacher shows (default: {permissions.CLASSROOM})"
    )
    parser.add_argument("--classroom", action="store_true", help=about)
    limits = permissions.ClassLimits()
    about = f"new tokens of a student's decode (default: {limits.tokens})"
    add(parser, "--class-tokens", about, type=int, metavar="N")
    about = f"jobs of a student's browser at once (default: {limits.jobs})"
    add(parser, "--class-queue", about, type=int, metavar="N")
    parser.add_argument("--no-browser", action="store_true", help="do not open the browser")


def _record(options: argparse.Namespace) -> None:
    request = decoding.requested(options)
    run = decoding.decoded(decoding.opened_backend(options), *request, options)
    path = save_run(run, options.out)
    tell(run, path, options.json)
    if not options.json:
        say("", f"Saved to {path}.")


def _rules(options: argparse.Namespace) -> None:
    if options.json:
        names = ("name", "title", "summary", "formula", "source", "lossless", "dial", "fixed")
        print(json_of([picked(rule, *names) for rule in RULES.values()]))
        return
    for rule in RULES.values():
        say(
            rule.name, f"    {rule.title}. {rule.summary}", *(f"    {name:<14} {text}" for name, text in rule.facts), ""
        )


def _show(options: argparse.Namespace) -> None:
    tell(load_run(options.path), Path(options.path), options.json)


def _report(options: argparse.Namespace) -> None:
    check_place(options.out, force=options.force)
    html = report_html(load_run(options.path), dial=options.dial, gamma=options.gamma)
    path = write_report(html, options.out, force=options.force)
    say(f"Wrote {path}, {number(len(html.encode()) / 1e3)} kB. It opens in any browser, without a network.")


def _site(options: argparse.Namespace) -> None:
    from mars_viz.site import check_site_place, runs_in, write_site  # imported here: it imports the app's page modules

    check_site_place(options.out, force=options.force)
    with tempfile.TemporaryDirectory() as unpacked:
        places = options.runs or [samples.runs_folder()]
        if None in places:
            raise RunFileError(f"There are no sample runs here ({samples.VARIABLE} is off). Name runs of yours.")
        runs_of_site = runs_in(map(Path, places), Path(unpacked))
        folder = write_site(runs_of_site, options.out, force=options.force, told=decoding.note)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    say(
        f"Wrote {folder}, {counted(len(runs_of_site), 'run')}, {number(size / 1e6)} MB. Open {folder / 'index.html'}, "
        "or let any web host serve the folder."
    )


def _app(options: argparse.Namespace) -> None:
    whole(1, 65535).checked(options.port, "The port")
    if not APP.is_file():
        raise SettingError("The app is not part of the installed package. Get the repository and run: make app")
    if importlib.util.find_spec("streamlit") is None:
        raise ModelError("The app needs streamlit, which is not installed. Run: pip install -r requirements.txt")
    if options.paths is not None:
        os.environ[permissions.PATHS] = options.paths
    if options.backend is not None:
        os.environ[backend_choice.FILE] = os.path.abspath(options.backend)
    limits = {permissions.TOKENS: options.class_tokens, permissions.QUEUE: options.class_queue}
    limits = {variable: str(value) for variable, value in limits.items() if value is not None}
    if options.classroom:
        os.environ[permissions.CLASSROOM] = "1"
    os.environ.update(limits)
    if permissions.class_limits() is None and limits:
        raise SettingError("--class-tokens and --class-queue are for a classroom. Add --classroom, or leave them out.")
    backend_choice.first_choice()
    permissions.who_may_delete()
    permissions.who_may_name_paths()
    command = [sys.executable, "-m", "streamlit", "run", str(APP), "--server.port", str(options.port)]
    command += ["--server.address", options.address, *["--server.headless", "true"] * options.no_browser]
    os.execv(sys.executable, command)  # signals and exit code pass through
