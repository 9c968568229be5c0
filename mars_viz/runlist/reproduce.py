"""Build the command and the Python code that reproduce a run.

Facts missing from the run, such as a model's folder or a server's address, become placeholders with a note.
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

LONGEST_ARGUMENT = 100_000  # most bytes of a prompt as command-line argument; Linux's limit is 131,072
FOLDER, ADDRESS, PROMPT_FILE, HISTORY_FILE = "FOLDER", "http://HOST:PORT", "prompt.txt", "history.json"  # placeholders
_DEFAULT = Settings()
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{12}")
_BLANK_LINE = re.compile(r"\n[^\S\n]+(?=\n)")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Instructions to reproduce a run."""

    command: str = ""  # a shell command; may be empty
    python: str = ""  # Python code; may be empty
    refused: str = ""  # why it cannot be reproduced; empty if it can
    cautions: tuple[str, ...] = ()  # sentences on placeholders and possible differences


@dataclass(frozen=True, slots=True)
class _Models:
    """The options for the models; None for defaults."""

    target: str | None
    drafter: str | None
    device: str | None
    dtype: str | None


def recipe(run: Run, name: str) -> Recipe:
    """Return the instructions to reproduce the run with that id."""
    if refused := _refused(run):
        return Recipe(refused=refused)
    cautions: list[str] = []
    models, chat = _models(run, cautions), _chat(run, cautions)
    _cautioned(run, cautions)
    command = _command(run, name, models, cautions, chat=chat)
    return Recipe(command, _python(run, models, chat=chat), cautions=tuple(cautions))


def _refused(run: Run) -> str:
    provenance = run.provenance
    if not provenance.target or not provenance.drafter:
        return "This run does not name its models, so nothing here can make it again. Record the prompt with a pair."
    if not provenance.drafter_revision:
        return (
            "This run does not say which weights drafted, as one that was read from an engine's log does not, so "
            "nothing here can make it again. Record its prompt with models of yours."
        )
    return ""


def _models(run: Run, cautions: list[str]) -> _Models:
    """Return the options for the models; notes on placeholders are added to `cautions`."""
    provenance = run.provenance
    device = _device(provenance.device)
    dtype = (
        provenance.dtype
        if provenance.dtype in DTYPES and (provenance.dtype != "float32" or device is not None)
        else None
    )
    custom_target = not demo.is_built_in(provenance.target)
    if provenance.target_revision.startswith("vLLM"):
        cautions.append(f"The target, {provenance.target}, was served by vLLM; put its address in place of {ADDRESS}.")
        target: str | None = ADDRESS
    else:
        target = _named(provenance.target, provenance.target_revision, "target", cautions) if custom_target else None
    if demo.is_built_in(provenance.drafter):
        drafter = str(provenance.drafter) if custom_target else None
        if drafter is not None:
            cautions.append(f"The built-in drafter drafted; put its folder in place of {provenance.drafter}.")
    else:
        drafter = _drafter(provenance.drafter, provenance.drafter_revision, cautions)
    return _Models(target, drafter, device, dtype)


def _named(name: str, revision: str, what: str, cautions: list[str]) -> str:
    """Return a model's hub id, or a placeholder folder."""
    if _DIGEST.fullmatch(revision) and name != SMOLLM2:
        cautions.append(
            f"The {what} was in a folder called “{name}”, whose place is not kept; put it in place of {FOLDER}/{name}."
        )
        return f"{FOLDER}/{name}"
    if _COMMIT.fullmatch(revision):
        cautions.append(f"The {what} was {name} at the commit {revision[:12]}; the hub may have another by now.")
    return name


def _drafter(name: str, revision: str, cautions: list[str]) -> str:
    drafter: NamedDrafter | None = drafter_told(name)
    if drafter is None:
        return _named(name, revision, "drafter", cautions)
    source = (
        drafter.text
        if isinstance(drafter, ReadsText | Trimmed)
        else drafter.head
        if isinstance(drafter, Eagle3)
        else ""
    )
    if source and not (isinstance(drafter, Eagle3) and "/" in source):
        cautions.append(f"The drafter was made from “{source}”, whose place is not kept; write it with its folder.")
    return name


def _device(words: str) -> str | None:
    """Return the device option; None for the CPU, the default of `auto` without an accelerator."""
    if words.endswith("(mps)"):
        return "mps"
    return None if re.search(r"\d+ threads?\b", words) or not words else "cuda"


def _chat(run: Run, cautions: list[str]) -> bool:
    """True if the prompt used a chat template; older runs show it by additional prompt tokens."""
    if run.provenance.chat is not None:
        return run.provenance.chat
    read = joined(run.pieces[token] for token in run.prompt_ids if token in run.pieces)
    prompt = run.prompt.strip()
    if not prompt or prompt not in read or len(read.strip()) - len(prompt) < 2:
        return False
    cautions.append("The prompt's tokens say more than its text, so the model's chat template is applied.")
    return True


def _cautioned(run: Run, cautions: list[str]) -> None:
    info = run.provenance
    if info.device:
        cautions.append(
            f"It was made on {info.device}{f' in {info.dtype}' if info.dtype else ''}. Another device may round "
            "otherwise, and so write another token where two are nearly equal."
        )
    span = run.dial_map or run.controller_map
    if span is not None:
        over = " --over controller" if span.span.over else " --gammas all" * (len(span.span.gammas) > 1)
        ends = f"--low {exactly(span.span.low)} --high {exactly(span.span.high)}{over}"
        cautions.append(f"Its map is made by mars-viz map with the same options and {ends}.")


def _options(run: Run) -> list[tuple[str, object]]:
    """Return the settings that differ from defaults, by Python name, in the order of the command's help."""
    settings = run.settings
    dial = rule_named(settings.rule).checked_dial(settings.dial)
    options: list[tuple[str, object]] = [("rule", settings.rule)]
    options += [("dial", dial)] * (dial is not None)
    if settings.drafts_trees:
        options.append(("tree", with_nodes(settings.tree, settings.gamma)))
    elif settings.gamma != _DEFAULT.gamma:
        options.append(("gamma", settings.gamma))
    for name in ("controller", "temperature", "top_p", "top_k", "seed", "max_new_tokens"):
        value = getattr(settings, name)
        options += [(name, value)] * (value != getattr(_DEFAULT, name))
    return options


def _command(run: Run, name: str, models: _Models, cautions: list[str], *, chat: bool) -> str:
    words = ["mars-viz", "record"]
    if "\0" in run.prompt or len(run.prompt.encode()) > LONGEST_ARGUMENT:
        words.append(f"--prompt-file {PROMPT_FILE}")
        cautions.append(f"The prompt is none that a command takes; save it as {PROMPT_FILE} first.")
    else:
        words.append(f"--prompt={_quoted(run.prompt)}")  # with '=', because it may start with a dash
    named = ((option, getattr(models, option)) for option in ("target", "drafter", "device", "dtype"))
    for option, value in (*((option, value) for option, value in named if value is not None), *_options(run)):
        text = exactly(value) if isinstance(value, float) else str(value)
        words.append(f"--{option.replace('_', '-')} {_quoted(text)}")
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
    record_call = _called("mars_viz.record", [_literal(run.prompt), "backend=backend"], options)
    return f"import mars_viz\n{imported}\nbackend = {backend}\nrun = {record_call}\nprint(run.text)"


def _called(function: str, given: Iterable[str], options: Iterable[tuple[str, object]]) -> str:
    """Format a call on one line if it is short, otherwise one argument per line."""
    arguments = [*given, *(f"{name}={_literal(value)}" for name, value in options)]
    line = f"{function}({', '.join(arguments)})"
    return line if len(line) <= 100 else "".join([f"{function}(\n", *(f"    {each},\n" for each in arguments), ")"])


def _literal(value: object) -> str:
    """Return the Python literal, with double quotes if that needs no escapes."""
    written = repr(value)
    if isinstance(value, str) and written.startswith("'") and '"' not in written:
        return f'"{written[1:-1]}"'
    return written


def _quoted(text: str) -> str:
    """Quote an argument for a POSIX shell. Invisible characters and whitespace-only lines are escaped in $'…', for
    bash, zsh and ksh: terminals may act on the former, and pages drop the latter."""
    if not (any(unseen(sign) and sign != "\n" for sign in text) or _BLANK_LINE.search(text)):
        return shlex.quote(text)
    return "$'" + "".join(_ESCAPES.get(sign) or (_escaped(sign) if unseen(sign) else sign) for sign in text) + "'"


def _escaped(sign: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in sign.encode())
