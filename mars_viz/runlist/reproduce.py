"""How a run is made again: the command and the lines of Python, or why there are none.

Knows what a run says of itself; knows no models. What a run does not keep (where a model's folder lay, a server's
address) is named in the lines as what to fill in, and said in a sentence.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mars_viz import demo
from mars_viz.chat import messages_of
from mars_viz.demo import SMOLLM2
from mars_viz.escapes import unseen
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, joined
from mars_viz.shapes import with_nodes
from mars_viz.speculators.drafter_names import Eagle3, NamedDrafter, ReadsText, Trimmed, drafter_told
from mars_viz.speculators.names import DTYPES
from mars_viz.words import exactly

LONGEST_ARGUMENT = 100_000
"""Bytes of a prompt that a command takes as an argument: Linux has a bound of 131,072."""
FOLDER, ADDRESS, PROMPT_FILE, HISTORY_FILE = "FOLDER", "http://HOST:PORT", "prompt.txt", "history.json"
"""What stands in the lines for what the run does not say."""
_DEFAULT = Settings()
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{12}")
_BLANK_LINE = re.compile(r"\n[^\S\n]+(?=\n)")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a run is made again."""

    command: str = ""
    """A line for a shell; empty where there is none."""
    python: str = ""
    """Lines of Python; empty where there are none."""
    refused: str = ""
    """Why it cannot be made again, as a sentence; empty where it can."""
    cautions: tuple[str, ...] = ()
    """What has to be filled in, or may come out otherwise, a sentence each."""


@dataclass(frozen=True, slots=True)
class _Models:
    """The options that name the models; what is at its default is None."""

    target: str | None
    drafter: str | None
    device: str | None
    dtype: str | None


def recipe(run: Run, name: str) -> Recipe:
    """How the run of that id is made again."""
    if refused := _refused(run):
        return Recipe(refused=refused)
    cautions: list[str] = []
    models, chat = _models(run, cautions), _chat(run, cautions)
    _cautioned(run, cautions)
    command = _command(run, name, models, cautions, chat=chat)
    return Recipe(command, _python(run, models, chat=chat), cautions=tuple(cautions))


def _refused(run: Run) -> str:
    made = run.provenance
    if not made.target or not made.drafter:
        return "This run does not name its models, so nothing here can make it again. Record the prompt with a pair."
    if not made.drafter_revision:
        return (
            "This run does not say which weights drafted, as one that was read from an engine's log does not, so "
            "nothing here can make it again. Record its prompt with models of yours."
        )
    return ""


def _models(run: Run, cautions: list[str]) -> _Models:
    """The options for the models; what has to be filled in goes to the cautions."""
    made = run.provenance
    device = _device(made.device)
    dtype = made.dtype if made.dtype in DTYPES and (made.dtype != "float32" or device is not None) else None
    own_target = not demo.is_built_in(made.target)
    if made.target_revision.startswith("vLLM"):
        cautions.append(f"The target, {made.target}, was served by vLLM; put its address in place of {ADDRESS}.")
        target: str | None = ADDRESS
    else:
        target = _named(made.target, made.target_revision, "target", cautions) if own_target else None
    if demo.is_built_in(made.drafter):
        drafter = str(made.drafter) if own_target else None
        if drafter is not None:
            cautions.append(f"The built-in drafter drafted; put its folder in place of {made.drafter}.")
    else:
        drafter = _drafter(made.drafter, made.drafter_revision, cautions)
    return _Models(target, drafter, device, dtype)


def _named(name: str, revision: str, what: str, cautions: list[str]) -> str:
    """A model's hub id, or a place in a folder that is to be filled in."""
    if _DIGEST.fullmatch(revision) and name != SMOLLM2:
        cautions.append(
            f"The {what} was in a folder called “{name}”, whose place is not kept; put it in place of {FOLDER}/{name}."
        )
        return f"{FOLDER}/{name}"
    if _COMMIT.fullmatch(revision):
        cautions.append(f"The {what} was {name} at the commit {revision[:12]}; the hub may have another by now.")
    return name


def _drafter(name: str, revision: str, cautions: list[str]) -> str:
    found: NamedDrafter | None = drafter_told(name)
    if found is None:
        return _named(name, revision, "drafter", cautions)
    read = found.text if isinstance(found, ReadsText | Trimmed) else found.head if isinstance(found, Eagle3) else ""
    if read and not (isinstance(found, Eagle3) and "/" in read):
        cautions.append(f"The drafter was made from “{read}”, whose place is not kept; write it with its folder.")
    return name


def _device(words: str) -> str | None:
    """The device to ask for; None for the CPU, which `auto` takes where there is no other."""
    if words.endswith("(mps)"):
        return "mps"
    return None if re.search(r"\d+ threads?\b", words) or not words else "cuda"


def _chat(run: Run, cautions: list[str]) -> bool:
    """True if the prompt went through a chat template. An older run shows it by tokens beyond its prompt's."""
    if run.provenance.chat is not None:
        return run.provenance.chat
    read = joined(run.pieces[token] for token in run.prompt_ids if token in run.pieces)
    prompt = run.prompt.strip()
    if not prompt or prompt not in read or len(read.strip()) - len(prompt) < 2:
        return False
    cautions.append("The prompt's tokens say more than its text, so the model's chat template is applied.")
    return True


def _cautioned(run: Run, cautions: list[str]) -> None:
    made = run.provenance
    if made.device:
        cautions.append(
            f"It was made on {made.device}{f' in {made.dtype}' if made.dtype else ''}. Another device may round "
            "otherwise, and so write another token where two are nearly equal."
        )
    span = run.dial_map or run.controller_map
    if span is not None:
        over = " --over controller" if span.span.over else " --gammas all" * (len(span.span.gammas) > 1)
        ends = f"--low {exactly(span.span.low)} --high {exactly(span.span.high)}{over}"
        cautions.append(f"Its map is made by mars-viz map with the same options and {ends}.")


def _options(run: Run) -> list[tuple[str, object]]:
    """The settings that are not at their defaults, in the order of the command's help, as Python names them."""
    settings = run.settings
    dial = rule_named(settings.rule).checked_dial(settings.dial)
    found: list[tuple[str, object]] = [("rule", settings.rule)]
    found += [("dial", dial)] * (dial is not None)
    if settings.drafts_trees:
        found.append(("tree", with_nodes(settings.tree, settings.gamma)))
    elif settings.gamma != _DEFAULT.gamma:
        found.append(("gamma", settings.gamma))
    for name in ("controller", "temperature", "top_p", "top_k", "seed", "max_new_tokens"):
        value = getattr(settings, name)
        found += [(name, value)] * (value != getattr(_DEFAULT, name))
    return found


def _command(run: Run, name: str, models: _Models, cautions: list[str], *, chat: bool) -> str:
    words = ["mars-viz", "record"]
    if "\0" in run.prompt or len(run.prompt.encode()) > LONGEST_ARGUMENT:
        words.append(f"--prompt-file {PROMPT_FILE}")
        cautions.append(f"The prompt is none that a command takes; save it as {PROMPT_FILE} first.")
    else:
        words.append(f"--prompt={_quoted(run.prompt)}")  # with '=', for it may begin with a dash
    named = ((option, getattr(models, option)) for option in ("target", "drafter", "device", "dtype"))
    for option, value in (*((option, value) for option, value in named if value is not None), *_options(run)):
        said = exactly(value) if isinstance(value, float) else str(value)
        words.append(f"--{option.replace('_', '-')} {_quoted(said)}")
    words += [f"--stop={_quoted(stop)}" for stop in run.settings.stop]
    words += [f"--system={_quoted(run.history.system)}"] * bool(run.history.system)
    if run.history.turns:
        earlier = json.dumps(messages_of(replace(run.history, system=""), "")[:-1], ensure_ascii=False)
        if len(earlier.encode()) > LONGEST_ARGUMENT:
            cautions.append(f"The earlier turns are more than a command takes; save them as {HISTORY_FILE} first.")
            earlier = HISTORY_FILE
        words.append(f"--history={_quoted(earlier)}")
    words += ["--chat"] * chat + ["--no-chat"] * (not chat and models.target is not None)
    return " ".join([*words, f"--out {_quoted(f'{name}-again')}"])


def _python(run: Run, models: _Models, *, chat: bool) -> str:
    named = [(option, getattr(models, option)) for option in ("target", "drafter", "device", "dtype")]
    backend = _called("mars_viz.backend", [], [(option, value) for option, value in named if value is not None])
    options = [*_options(run)]
    options += [("stop", run.settings.stop)] * bool(run.settings.stop) + [("chat", chat)] * (
        chat or models.target is not None
    )
    history, imported = run.history, ""
    if history.turns:
        options.append(("history", history))
        imported = "from mars_viz import Exchange, History\n"
    elif history.system:
        options.append(("system", history.system))
    made = _called("mars_viz.record", [_literal(run.prompt), "backend=backend"], options)
    return f"import mars_viz\n{imported}\nbackend = {backend}\nrun = {made}\nprint(run.text)"


def _called(function: str, given: Iterable[str], options: Iterable[tuple[str, object]]) -> str:
    """A call, on a line if it is short, else an argument a line."""
    arguments = [*given, *(f"{name}={_literal(value)}" for name, value in options)]
    line = f"{function}({', '.join(arguments)})"
    return line if len(line) <= 100 else "".join([f"{function}(\n", *(f"    {each},\n" for each in arguments), ")"])


def _literal(value: object) -> str:
    """As Python writes it, with double quotes where that needs no escape."""
    written = repr(value)
    if isinstance(value, str) and written.startswith("'") and '"' not in written:
        return f'"{written[1:-1]}"'
    return written


def _quoted(text: str) -> str:
    """An argument for a POSIX shell. What nobody sees, and a terminal might act on, is written as escapes in $'…',
    which bash, zsh and ksh read; as are lines of blanks alone, which pages drop."""
    if not (any(unseen(sign) and sign != "\n" for sign in text) or _BLANK_LINE.search(text)):
        return shlex.quote(text)
    return "$'" + "".join(_ESCAPES.get(sign) or (_escaped(sign) if unseen(sign) else sign) for sign in text) + "'"


def _escaped(sign: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in sign.encode())
