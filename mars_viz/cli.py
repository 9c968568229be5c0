"""The command `mars-viz`: arguments in, text or JSON out, one line for an error.

Knows argparse and terminals; decoding, judging and files are done elsewhere, and the model libraries are loaded only
by `record`. Exit codes: 0, 2 for bad input, 1 for a fault, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from mars_viz import __version__
from mars_viz.analysis.metrics import speed, summary
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.figures.words import counted, number, setting
from mars_viz.rules import RULES, Rule, rule_named
from mars_viz.run import Run, Settings
from mars_viz.runfiles import check_free, load_run, save_run

DEBUG_VARIABLE = "MARS_VIZ_DEBUG"
"""Set to anything to see tracebacks."""
APP = Path(__file__).parents[1] / "app.py"
"""The Streamlit app, which lies beside the package in the repository."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks θ still gets the rest
    try:
        options = _parser().parse_args(arguments)
        options.run(options)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse, after --help or an error
        return int(stop.code or 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader, such as head, has seen enough
    except KeyboardInterrupt:
        return _failed(130, "Interrupted; nothing was saved.")
    except MarsVizError as error:
        return _failed(error.exit_code, str(error))
    except Exception as error:
        reason = " ".join(str(error).split()) or "no message"
        hint = f"Set {DEBUG_VARIABLE}=1 and run it again to see the traceback."
        return _failed(1, f"This should not have happened: {type(error).__name__}: {reason}. {hint}")
    return 0


def _failed(code: int, message: str) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """One line for an error, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        """Print it and exit with 2."""
        sys.exit(_failed(2, f"{message}. See {self.prog} --help."))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mars-viz", description="See and tune how speculative decoding is verified.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], None], about: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    _record_arguments(command("record", _record, "Decode a prompt and save the run to a new folder."))
    rules = command("rules", _rules, "List the verification rules with their dials and sources.")
    show = command("show", _show, "Say in words what a recorded run decided, and print its text.")
    show.add_argument("path", metavar="RUN", help="folder of a run")
    for each in (rules, show):
        each.add_argument("--json", action="store_true", help="print JSON instead of text")
    app = command("app", _app, "Open the app in the browser, served from this machine alone.")
    app.add_argument("--port", type=int, default=8501, help="port on localhost (%(default)s)")
    app.add_argument("--no-browser", action="store_true", help="serve only; open the address yourself")
    return parser


def _record_arguments(parser: argparse.ArgumentParser) -> None:
    default = Settings()
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt itself")
    prompt.add_argument("--prompt-file", metavar="FILE", help="a file that holds it, in UTF-8; - reads standard input")
    parser.add_argument("--out", metavar="DIR", required=True, help="the run's folder, which must not exist yet")
    parser.add_argument("--target", metavar="MODEL", help="hub id or folder of the target (the built-in one)")
    parser.add_argument("--drafter", metavar="MODEL", help="hub id or folder of the drafter (the built-in one)")
    parser.add_argument("--rule", default=default.rule, help=f"one of {', '.join(RULES)} (%(default)s)")
    parser.add_argument("--dial", type=float, help="the rule's threshold (the rule's default)")
    parser.add_argument("--gamma", type=int, default=default.gamma, help="tokens drafted per round (%(default)s)")
    parser.add_argument("--temperature", type=float, default=default.temperature, help="0 is greedy (%(default)s)")
    parser.add_argument("--top-p", type=float, default=default.top_p, help="nucleus; 1 is off (%(default)s)")
    parser.add_argument("--top-k", type=int, default=default.top_k, help="0 is off (%(default)s)")
    parser.add_argument("--seed", type=int, default=default.seed, help="keys every draw (%(default)s)")
    parser.add_argument("--max-new-tokens", type=int, default=default.max_new_tokens, help="length limit (%(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (%(default)s)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (%(default)s)")
    parser.add_argument("--chat", action="store_true", help="put the prompt through the model's chat template")
    parser.add_argument("--title", default="", help="a line for lists (the start of the prompt)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _record(options: argparse.Namespace) -> None:
    """Refuse what can be refused before the models are loaded; then decode, save and say what came of it."""
    check_free(options.out)
    prompt = options.prompt if options.prompt_file is None else _read_prompt(options.prompt_file)
    settings = Settings(**{name: getattr(options, name) for name in Settings.__slots__})
    rule_named(settings.rule).checked_dial(settings.dial)
    run = _decoded(prompt, settings, options)
    path = save_run(run, options.out)
    _tell(run, path, options.json)
    if not options.json:
        print(f"\nSaved to {path}.")


def _read_prompt(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is not UTF-8 text. Save it as UTF-8.") from error
    except OSError as error:
        raise BadInput(f"{name} cannot be read ({error.strerror}). Give a text file that holds the prompt.") from error


def _decoded(prompt: str, settings: Settings, options: argparse.Namespace) -> Run:
    for library in ("torch", "transformers", "tqdm"):
        if importlib.util.find_spec(library) is None:
            raise BadInput(f"Decoding needs {library}, which is not installed. Run: pip install -r requirements.txt")
    from tqdm import tqdm

    from mars_viz.recording import Recording
    from mars_viz.speculators.loading import load_pair

    pair = load_pair(options.target, options.drafter, device=options.device, dtype=options.dtype)
    recording = Recording(pair, prompt, settings, chat=options.chat, title=options.title)
    quiet = not sys.stderr.isatty()
    with tqdm(desc="Decoding", total=settings.max_new_tokens, unit=" tokens", file=sys.stderr, disable=quiet) as bar:
        for round_ in recording:
            bar.update(len(round_.token_ids))
    return recording.run()


def _rules(options: argparse.Namespace) -> None:
    described = [_described(rule) for rule in RULES.values()]
    if options.json:
        print(_json(described))
        return
    for rule, facts in zip(RULES.values(), described, strict=True):
        dial = rule.dial
        print(f"{rule.name}  ({rule.title}{', lossless' if rule.lossless else ''})")
        print(f"    {rule.summary}")
        print(f"    keeps x where  {facts['formula']}")
        if dial is None:
            print("    dial           none")
        else:
            end = "high" if dial.strict_is_high else "low"
            bounds = f"{dial.low:g} to {dial.high:g}, default {dial.default:g}, strict at the {end} end"
            print(f"    dial           {dial.symbol}, {dial.name}: {bounds}")
        print(f"    source         {rule.source}\n")


def _described(rule: Rule) -> dict[str, Any]:
    facts = {name: getattr(rule, name) for name in ("name", "title", "summary", "formula", "source", "lossless")}
    return facts | {"dial": None if rule.dial is None else asdict(rule.dial)}


def _show(options: argparse.Namespace) -> None:
    _tell(load_run(options.path), Path(options.path), options.json)


def _tell(run: Run, path: Path, as_json: bool) -> None:
    if as_json:
        facts: dict[str, Any] = {"path": str(path)}
        facts |= {name: getattr(run, name) for name in ("title", "prompt", "text", "prompt_ids", "token_ids")}
        facts |= {"settings": asdict(run.settings), "provenance": asdict(run.provenance)}
        facts |= {"summary": asdict(summary(run)), "speed": asdict(speed(run))}
        print(_json(facts))
    else:
        print(f"{sentence(run)}\n\n{_printable(run.prompt)}[{_printable(run.text)}]")


def sentence(run: Run) -> str:
    """What the run decided, in words."""
    numbers, pace, rule = summary(run), speed(run), rule_named(run.settings.rule)
    at = "" if rule.dial is None or numbers.dial is None else f" at {setting(rule.dial.symbol, numbers.dial)}"
    relaxed = f" ({number(numbers.relaxed)} of them only because it is relaxed)" if numbers.relaxed else ""
    told = (
        f"{rule.title}{at}, γ = {run.settings.gamma}, temperature {run.settings.temperature:g}: "
        f"{counted(numbers.tokens, 'token')} in {counted(numbers.rounds, 'round')} (τ = {number(numbers.tau)}). "
        f"Of {counted(numbers.drafted, 'drafted token')}, the rule kept {number(numbers.kept)}{relaxed}, "
        f"and rolled back {number(numbers.rolled_back)}."
    )
    if math.isnan(pace.tokens_per_second):
        return told
    return f"{told} Measured: {number(pace.tokens_per_second)} tokens a second on {pace.device or 'an unknown device'}."


def _printable(text: str) -> str:
    """Text for a terminal: control characters, which could steer it, shown as escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _json(value: object) -> str:
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value in JSON's terms: null for NaN and infinity, which it lacks."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _app(options: argparse.Namespace) -> None:
    if not 1 <= options.port <= 65535:
        raise BadInput(f"The port is {options.port}; it must lie between 1 and 65535.")
    if not APP.is_file():
        raise BadInput("The app is not part of the installed package. Get the repository and run: make app")
    if importlib.util.find_spec("streamlit") is None:
        raise BadInput("The app needs streamlit, which is not installed. Run: pip install -r requirements.txt")
    command = [sys.executable, "-m", "streamlit", "run", str(APP), "--server.port", str(options.port)]
    if options.no_browser:
        command += ["--server.headless", "true"]
    os.execv(sys.executable, command)  # its signals and its exit code are then ours
