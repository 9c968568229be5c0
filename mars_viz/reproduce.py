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
from mars_viz.run import Run, joined
from mars_viz.speculators.drafters import Mixed, Model, drafter_told
from mars_viz.speculators.names import DTYPES
from mars_viz.words import exactly

LONGEST_ARGUMENT = 100_000  # most bytes of a prompt as command-line argument; Linux's limit is 131,072
FOLDER, ADDRESS, PROMPT_FILE, HISTORY_FILE = "FOLDER", "http://HOST:PORT", "prompt.txt", "history.json"  # placeholders
Options = list[tuple[str, object]]
"""Name and value of each option. True and False are flags, a tuple is an option for each of its items."""

_TEXTS = ("prompt", "stop", "system", "history")  # written with '=', because they may start with a dash
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Instructions to reproduce a run."""

    command: str = ""  # a shell command; may be empty
    python: str = ""  # Python code; may be empty
    refused: str = ""  # why it cannot be reproduced; empty if it can
    cautions: tuple[str, ...] = ()  # sentences on placeholders and possible differences


def recipe(run: Run, name: str) -> Recipe:
    """Return the instructions to reproduce the run with that id."""
    info, cautions = run.provenance, list[str]()
    if not (info.target and info.drafter and info.drafter_revision):
        lacks = "does not name the drafter's weights, which engines' logs lack, or its models"
        return Recipe(refused=f"This run {lacks}. Record its prompt here.")
    models, with_chat = _models(run, cautions), _chat(run, cautions)
    rule = {"rule": run.settings.rule, "dial": rule_named(run.settings.rule).checked_dial(run.settings.dial)}
    options = [(name, value) for name, value in (rule | run.settings.keywords).items() if value is not None]
    chat: Options = [("chat", with_chat)] * (with_chat or "target" in dict(models))
    if info.device:
        dtype = f" in {info.dtype}" if info.dtype else ""
        cautions.append(f"It was made on {info.device}{dtype}. Another device may round a near tie to another token.")
    if run.map is not None:
        span = run.map.span
        over = " --over controller" if span.over else " --gammas all" * (len(span.gammas) > 1)
        ends = f"--low {exactly(span.low)} --high {exactly(span.high)}{over}"
        cautions.append(f"Its map is made by mars-viz map with the same options and {ends}.")
    command = _command(run, name, [*models, *options], chat, cautions)
    return Recipe(command, _python(run, models, [*options, *chat]), cautions=tuple(cautions))


def _models(run: Run, cautions: list[str]) -> Options:
    """Return the options for the models that are not defaults; notes on placeholders are added to `cautions`."""
    made, target, drafter, device = run.provenance, "", "", ""  # an empty device is the CPU, as of `auto`
    if made.device.endswith("(mps)"):
        device = "mps"
    elif made.device and not re.search(r"\d+ threads?\b", made.device):
        device = "cuda"
    dtype = made.dtype if made.dtype in DTYPES and (device or made.dtype != "float32") else ""
    custom_target = not demo.is_built_in(made.target)
    if made.target_revision.startswith("vLLM"):
        cautions.append(f"The target, {made.target}, was served by vLLM; put its address in place of {ADDRESS}.")
        target = ADDRESS
    elif custom_target:
        target = _named(made.target, made.target_revision, "target", cautions)
    if not demo.is_built_in(made.drafter):
        drafter = _drafter(made.drafter, made.drafter_revision, cautions)
    elif custom_target:
        cautions.append(f"The built-in drafter drafted; put its folder in place of {made.drafter}.")
        drafter = made.drafter
    options = {"target": target, "drafter": drafter, "device": device, "dtype": dtype}
    return [(name, value) for name, value in options.items() if value]


def _named(name: str, revision: str, what: str, cautions: list[str]) -> str:
    """Return a model's hub id, or a placeholder folder."""
    if re.fullmatch(r"[0-9a-f]{12}", revision) and name != SMOLLM2:
        cautions.append(f"The {what} was in a folder “{name}”; put its path in place of {FOLDER}/{name}.")
        return f"{FOLDER}/{name}"
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        cautions.append(f"The {what} was {name} at the commit {revision[:12]}; the hub may have another by now.")
    return name


def _drafter(name: str, revision: str, cautions: list[str]) -> str:
    drafter = drafter_told(name)
    if isinstance(drafter, Mixed):
        first, (ours, _, theirs) = drafter.first.name, revision.partition("+")
        second = name[len(first) + 1 :]
        second = "default" if demo.is_built_in(second) else _drafter(second, theirs, cautions)
        return f"{_drafter(first, ours, cautions)}+{second}"
    if drafter is None or isinstance(drafter, Model):
        return _named(name, revision, "drafter", cautions)
    if source := drafter.text or drafter.model * ("/" not in drafter.model and len(revision) < 40):  # not on the hub
        cautions.append(f"The drafter was made from “{source}”, whose folder is not kept; write it with its folder.")
    return name


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


def _command(run: Run, name: str, options: Options, chat: Options, cautions: list[str]) -> str:
    prompt: tuple[str, object] = ("prompt", run.prompt)
    if "\0" in run.prompt or len(run.prompt.encode()) > LONGEST_ARGUMENT:
        prompt = ("prompt_file", PROMPT_FILE)
        cautions.append(f"The prompt is none that a command takes; save it as {PROMPT_FILE} first.")
    history: Options = [("system", run.history.system)] * bool(run.history.system)
    if run.history.turns:
        earlier = json.dumps(messages_of(replace(run.history, system=""), "")[:-1], ensure_ascii=False)
        if len(earlier.encode()) > LONGEST_ARGUMENT:
            cautions.append(f"The earlier turns are more than a command takes; save them as {HISTORY_FILE} first.")
            earlier = HISTORY_FILE
        history.append(("history", earlier))
    return command_line("record", [prompt, *options, *history, *chat, ("out", f"{name}-again")])


def _python(run: Run, models: Options, options: Options) -> str:
    imported = "from mars_viz import Exchange, History\n" if run.history.turns else ""
    if run.history.turns:
        options = [*options, ("history", run.history)]
    elif run.history.system:
        options = [*options, ("system", run.history.system)]
    backend = _call("mars_viz.backend", [], models)
    record_call = _call("mars_viz.record", [_literal(run.prompt), "backend=backend"], options)
    return f"import mars_viz\n{imported}\nbackend = {backend}\nrun = {record_call}\nprint(run.text)"


def command_line(command: str, options: Iterable[tuple[str, object]]) -> str:
    """Return a shell command with these options."""
    words = ["mars-viz", command]
    for name, value in options:
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
            continue
        for each in value if isinstance(value, tuple) else (value,):
            text = _quoted(exactly(each) if isinstance(each, float) else str(each))
            words.append(f"{flag}={text}" if name in _TEXTS else f"{flag} {text}")
    return " ".join(words)


def _call(function: str, given: Iterable[str], options: Iterable[tuple[str, object]]) -> str:
    """Return a call on one line if it is short, otherwise one argument per line. `given` are written arguments."""
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
    if not (any(unseen(sign) and sign != "\n" for sign in text) or re.search(r"\n[^\S\n]+(?=\n)", text)):
        return shlex.quote(text)
    escapes = {sign: "".join(f"\\{byte:03o}" for byte in sign.encode()) for sign in text if unseen(sign)} | _ESCAPES
    return "$'" + "".join(escapes.get(sign, sign) for sign in text) + "'"
