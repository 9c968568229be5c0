"""Options, decoding and printing that `record`, `map` and `sweep` share. Bad options are refused before models load."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz import default_folders
from mars_viz.analysis.metrics import drafted_by, ending, speed, summary
from mars_viz.backend_choice import BackendChoice, read_backend_file
from mars_viz.bounds import shortened
from mars_viz.chat import CUT_OFF, NO_HISTORY, History
from mars_viz.errors import ModelError, PromptError, disk_refusals
from mars_viz.options import argument, declared
from mars_viz.prompts.files import history_of
from mars_viz.recording import OVER_CONTROLLER, OVER_DIAL, OVER_GAMMA, Recording, checked_history
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, settings_from, stop_words
from mars_viz.runfiles import check_free, load_run
from mars_viz.runstore import new_name
from mars_viz.speculators.names import check_device_map, check_names, drafter_for, pair_named
from mars_viz.terminal import raw, say
from mars_viz.words import counted, number, setting
from mars_viz.writer import json_of, picked

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


def add(parser: argparse.ArgumentParser, name: str, about: str, default: Any = None, **how: Any) -> None:
    """Add an option or argument. Its help ends with the default, which also gives it its type."""
    if default is not None:
        about, how = f"{about} (default: %(default)s)", {"type": type(default), "default": default} | how
    parser.add_argument(name, help=about, **how)


def arguments(parser: argparse.ArgumentParser) -> None:
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt")
    prompt.add_argument("--prompt-file", metavar="FILE", help="a UTF-8 file with the prompt; - reads standard input")
    add(parser, "--out", "new folder for the run (default: one that the app's Runs page lists)", metavar="DIR")
    settings_arguments(parser)
    model_arguments(parser)
    system_argument(parser)
    about = "conversation that the prompt continues: a run's folder, or OpenAI messages as JSON or in a file"
    parser.add_argument("--history", metavar="RUN", default="", help=about)
    parser.add_argument("--title", default="", help="title in lists of runs (default: the start of the prompt)")
    json_argument(parser)


def settings_arguments(parser: argparse.ArgumentParser, **helps: str) -> None:
    """Add the options of `Settings`; `helps` replaces the help of some."""
    for name, each in declared(Settings).items():
        how: dict[str, Any] = {"help": helps[name]} if name in helps else {}
        if name == "stop":
            how = {"action": "append", "default": [], "help": each.help}
        argument(parser, each, **how)
    parser.set_defaults(gamma=None)  # depends on the tree


def over_argument(parser: argparse.ArgumentParser, done: str) -> None:
    about = f"axis that is {done}: the rule's dial; or, at the one --dial and from drafts of full length, the "
    about += "threshold of --controller, or the draft length up to --gamma"
    add(parser, "--over", about, OVER_DIAL, choices=(OVER_DIAL, OVER_CONTROLLER, OVER_GAMMA))


def range_arguments(parser: argparse.ArgumentParser, purpose: str = "") -> None:
    for end, size in (("low", "smallest"), ("high", "largest")):
        add(parser, f"--{end}", f"{size} dial value{purpose} (default: the dial's)", type=float)


def json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def system_argument(parser: argparse.ArgumentParser, purpose: str = " (default: none)") -> None:
    about = f"system prompt, which goes through the chat template{purpose}"
    parser.add_argument("--system", metavar="TEXT", default="", help=about)


def model_arguments(parser: argparse.ArgumentParser, *, drafter: bool = True) -> None:
    """Add the options for the models, as `opened_backend` reads them, and for their chat template; `drafter` adds the
    drafter's."""
    about = "a backend.toml that names target, drafter, tree, device and dtype; options given with it win"
    add(parser, "--backend", about, metavar="FILE")
    for name in ("target", *["drafter"] * drafter, "device", "dtype"):
        argument(parser, declared(BackendChoice)[name])
    about = "lay a target larger than one GPU over all GPUs, then over memory and disk; needs accelerate"
    add(parser, "--device-map", about, choices=("auto",))
    about = "on CUDA take the batched pass with CUDA graphs (default), or transformers' own, one text at a time"
    parser.add_argument("--cuda-graphs", action=argparse.BooleanOptionalAction, default=True, help=about)
    about = "apply the target's chat template (default: if it has one)"
    parser.add_argument("--chat", action=argparse.BooleanOptionalAction, default=None, help=about)


def with_backend_file(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options, with values of the file of --backend in place of defaults. Raises BadInput for a file that
    cannot be read."""
    if getattr(options, "backend", None) is None:
        return options
    choice = read_backend_file(options.backend)
    for name, each in declared(BackendChoice).items():
        if name in options and getattr(options, name) in (None, each.default):
            setattr(options, name, getattr(choice, name) or None)
    return options


def settings_of(options: argparse.Namespace, **others: Any) -> Settings:
    """Return the settings of the options; others are in `others` or have their defaults. Raises BadInput."""
    known = {name: getattr(options, name) for name in declared(Settings) if name in options}
    given = {name: value for name, value in (known | others).items() if value is not None}
    return settings_from(given)  # type: ignore[arg-type]


def requested(options: argparse.Namespace) -> tuple[str, Settings, History]:
    """Return the prompt as entered, the settings, and the messages before the prompt. Raises BadInput if they are
    impossible, or if the run's folder exists already."""
    options.out = options.out or str(default_folders.runs() / new_name())
    check_free(options.out)
    prompt = options.prompt if options.prompt_file is None else _read_prompt(options.prompt_file)
    history = checked_history(prompt, options.system, _history(options.history), options.chat)
    settings = settings_of(options)
    rule_named(settings.rule).checked_dial(settings.dial)
    pair_named(options.target, options.drafter).check(settings)
    return prompt, settings, history


def _history(source: str) -> History:
    """Return the conversation of a run's folder, of messages as JSON, or of a file with them. Raises BadInput."""
    if not source.strip():
        return NO_HISTORY
    if source.lstrip()[0] not in "[{":
        if os.path.isdir(source):
            run = load_run(source)
            if not run.ended:
                note(CUT_OFF)
            return run.conversation
        source = _read_prompt(source)
    try:
        return history_of(json.loads(source))
    except (ValueError, RecursionError) as error:
        remedy = "Give a run's folder, or OpenAI messages as a JSON list."
        raise PromptError(f"The history is no JSON ({error}). {remedy}") from error


def _read_prompt(name: str) -> str:
    with disk_refusals(shortened(name), "read", "Give the path of a text file.", PromptError):
        try:
            return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise PromptError(f"{name} is not UTF-8 text. Save it as UTF-8.") from error


def models_of(options: argparse.Namespace, begun: str = "auto") -> dict[str, Any]:
    """Return the arguments of `load_backend`. `begun` is the dtype of a resumed sweep, for options without one.

    Raises BadInput for names that cannot work.
    """
    dtype = begun if options.dtype == "auto" else options.dtype
    check_names(options.target, options.drafter, device=options.device, dtype=dtype)
    if options.device_map is not None:
        check_device_map(options.target, options.device)
    if options.target is not None and options.drafter is None:
        note(f"No drafter is named, so {drafter_for(options.target, None).name} drafts.")
    return picked(options, "target", "drafter", "device_map", "device", "cuda_graphs") | {"dtype": dtype}


def opened_backend(options: argparse.Namespace, begun: str = "auto") -> Backend:
    """Load the models of the options. Raises BadInput if a library is missing or they cannot be loaded."""
    named = models_of(options, begun)
    for library in ("torch", "transformers", "tqdm"):
        if importlib.util.find_spec(library) is None:
            raise ModelError(f"Decoding needs {library}, which is not installed. Run: pip install -r requirements.txt")
    from mars_viz.speculators.loading import load_backend

    return load_backend(**named)


def decoded(backend: Backend, prompt: str, settings: Settings, history: History, options: argparse.Namespace) -> Run:
    recording = Recording(backend, prompt, settings, chat=options.chat, title=options.title, history=history)
    with progress_bar()(desc="Decoding", total=settings.max_new_tokens, unit=" tokens") as bar:
        for round_ in recording:
            bar.update(len(round_.token_ids))
    run = recording.run()
    template = ["The chat template of the target was applied (--no-chat leaves it out)."] * bool(run.provenance.chat)
    for sentence in (*backend.notes, *template):
        note(sentence)
    return run


def note(text: str) -> None:
    say(" ".join(text.split()), error=True)


def progress_bar() -> Callable[..., Any]:
    """Return a constructor of tqdm's bars on standard error, silent unless it is a terminal."""
    from tqdm import tqdm

    return partial(tqdm, file=raw(sys.stderr), disable=not sys.stderr.isatty())


def tell(run: Run, path: Path, as_json: bool) -> None:
    if as_json:
        print(json_of(facts(run, path)))
    else:
        say(sentence(run), "")
        print(run.text.strip() if run.provenance.chat else f"{run.prompt}[{run.text}]")


def facts(run: Run, path: Path) -> dict[str, Any]:
    names = ("title", "prompt", "text", "prompt_ids", "token_ids", "settings", "provenance", "history")
    fields = {"path": str(path), "ending": ending(run)} | picked(run, *names)
    return fields | {"summary": summary(run), "speed": speed(run)}


def sentence(run: Run) -> str:
    numbers, pace, rule, settings = summary(run), speed(run), rule_named(run.settings.rule), run.settings
    at = "" if rule.dial is None or numbers.dial is None else f" at {setting(rule.dial.symbol, numbers.dial)}"
    stop = f", stop at {stop_words(settings.stop)}" if settings.stop else ""
    told = f"{rule.title}{at}, {settings.draft}, temperature {settings.temperature:g}{stop}: "
    told += f"{counted(numbers.tokens, 'token')} in {counted(numbers.rounds, 'round')} (τ = {number(numbers.tau)})"
    ended, drafted = ending(run), counted(numbers.drafted, "drafted token")
    relaxed = f" ({number(numbers.relaxed)} of them relaxed)" if numbers.relaxed else ""
    work = f"Of {drafted} {number(numbers.kept)} were kept{relaxed} and {number(numbers.rolled_back)} rolled back."
    told += f"{ended and f', {ended}'}. {work if numbers.drafted else 'Nothing was drafted.'}"
    if by := drafted_by(run):
        told += f" By {by}."
    if numbers.forced_strict:
        told += f" Strict at {counted(numbers.forced_strict, 'drafted runner-up')} where z1 ≤ 0 and z2/z1 is undefined."
    if not math.isnan(pace.tokens_per_second):
        whole = "" if settings.control is None else ", all γ tokens drafted in every round"
        told += f" Measured: {number(pace.tokens_per_second)} tokens/s on {pace.device or 'an unknown device'}{whole}."
    return told
