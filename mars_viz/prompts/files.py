"""Read prompt sets from files, and tasks of lm-evaluation-harness as prompt sets.

A file is JSONL, a JSON list, or text with a prompt per line, optionally gzipped. The format is detected from the
contents, and entries are parsed one at a time, in the formats of public data sets.
"""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import BytesIO
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

from mars_viz.bounds import LARGEST, MOST_BRACKETS, shortened
from mars_viz.chat import Exchange, History
from mars_viz.errors import BadInput, PromptError, RunFileError, disk_refusals
from mars_viz.prompts import harness
from mars_viz.prompts.items import NUMBER, Grader, PromptItem, PromptSet, SkippedLine, Turns, grader_named
from mars_viz.run import Settings
from mars_viz.words import counted

MOST_READ = 1 << 28  # bytes of a file
MAX_LINE = LARGEST  # bytes per line of JSONL or text
MOST_PROMPTS = 100_000  # entries per file, including invalid ones; ten times the largest test set of exercises
MOST_UNPACKED = 64 << 20  # bytes to read from a gzipped file
_LOOKED_AT = 10  # lines used to distinguish JSONL from text
_GZIP = b"\x1f\x8b"
_JSON_BEGINS = re.compile(r"\s*(\{\s*([\"'}]|$)|\[\s*([\[{]|$))")  # rather than words in brackets
_CSV_HEAD = re.compile(r"\s*\"?\w+\"?(\s*[,;\t]\s*\"?\w+\"?)+\s*")
_AS_TEXT = (
    "Unpack an archive, and write a table as JSONL, such as with pandas: "
    "pandas.read_csv(FILE).to_json(OUT, orient='records', lines=True)."
)
Entry = tuple[str, int, Any]  # unit ('line' or 'entry'), its number, and its value: JSON, a text, or a BadEntry


def load_prompts(
    path: str | PathLike[str],
    *,
    grader: str | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    turns: Turns = Turns.ALL,
    own: bool = False,
    data: bytes | None = None,
) -> PromptSet:
    """Return the file as a set, its tasks alternating (`PromptSet.mixed`). `data` are contents in place of the file's.

    `limit` keeps the first prompts in that order; a conversation counts once. A file written by MARS Viz (`own`) keeps
    its order, and only such a file may name a harness task as grader, because a task may run code. `grader` applies to
    entries with an answer and without a grader of their own. Entries without an answer are not graded.

    An invalid line raises BadInput with its number, or is listed in `skipped` if `skip_bad` is set. Raises BadInput for
    a file that cannot be read, is not UTF-8 or has no prompt, for an unknown grader, for answers without a grader, and
    if a grader is named but no line has an answer.
    """
    if limit is not None and limit < 1:
        raise PromptError(f"A set of {limit} prompts is none. Ask for at least 1.")
    if grader is not None:
        checked_grader(grader, own)
    path, items, skipped, seen = Path(path), list[PromptItem](), list[SkippedLine](), dict[str, str]()
    with _reading(path):
        if data is None and path.stat().st_size > MOST_READ:
            raise PromptError(f"it has more than {MOST_READ >> 20} MiB. Split it.")
        for unit, number, value in _entries(_unpacked(path.read_bytes() if data is None else data)):
            if len(items) + len(skipped) >= MOST_PROMPTS:
                if limit is not None:
                    break  # the limit applies to the mixed prompts read so far
                raise PromptError(f"more than {MOST_PROMPTS:,} prompts. Split it, or limit how many are taken.")
            try:
                read = items_of(value, unit, number, grader, turns, own)
                names = {read[0].unit, *(item.id for item in read)}
                if repeated := sorted(names & seen.keys()):
                    raise BadEntry(f"the id {repeated[0]!r} is that of {seen[repeated[0]]}; give it another")
            except BadEntry as error:
                if not skip_bad:
                    remedy = f"Mend the {unit}, or skip bad lines."
                    raise PromptError(f"{unit} {number}: {error}. {remedy}") from error
                skipped.append(SkippedLine(number, str(error), unit))
            else:
                seen |= dict.fromkeys(names, f"{unit} {number}")
                items.extend(read)
    if not items:
        why = ""
        if skipped:
            first = f"{skipped[0].unit} {skipped[0].line}: {skipped[0].reason}"
            why = f": none of its {len(skipped)} lines is one ({first})"
        raise PromptError(f"{path} holds no prompt{why}. {WANTED}")
    if grader not in (None, "none") and not any(item.graded for item in items):
        raise PromptError(f"{path} holds no answers to grade with {grader!r}. Leave the grader out, or add 'answer'.")
    prompts = PromptSet(path.name, tuple(items), tuple(skipped))
    prompts = prompts if own else prompts.mixed()
    return prompts if limit is None else prompts.limited(limit)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Add the path to every error raised in the block, as BadInput."""
    with disk_refusals(path, "read", "Give a file of prompts.", RunFileError):
        try:
            yield
        except BadInput as error:
            raise PromptError(f"{path}: {error}") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise PromptError(f"{path} is a gzip file that is damaged or cut short. Copy it again.") from error


def to_jsonl(prompts: PromptSet) -> bytes:
    """Return the set as a file that `load_prompts` reads back identically; a conversation is one line."""
    lines = []
    for _, turns in groupby(prompts.items, key=lambda item: item.unit):
        first, *later = turns
        entry: dict[str, Any] = {"question_id": first.unit, "category": first.category}
        entry |= {"system": first.system} if first.system else {}
        if first.question:
            entry["turns"] = [item.prompt for item in (first, *later)]
            entry["reference"] = [item.answer for item in (first, *later)]
            entry["grader"] = next((item.grader for item in (first, *later) if item.graded), "none")
        else:
            entry |= {"prompt": first.prompt, "grader": first.grader}
            entry |= {} if first.answer is None else {"answer": first.answer}
        lines.append(f"{json.dumps(entry)}\n")
    return "".join(lines).encode()


def _unpacked(data: bytes) -> str:
    """Return a file's text without gzip and byte order mark."""
    if data.startswith(_GZIP):
        data = gzip.GzipFile(fileobj=BytesIO(data)).read(MOST_UNPACKED + 1)
        if len(data) > MOST_UNPACKED:
            raise PromptError(f"it unpacks to more than {MOST_UNPACKED >> 20} MiB. Unpack it first, or split it.")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text, end = data.decode(), data.find(b"\0")
    except UnicodeDecodeError as error:
        text, end = "", error.start
    if end >= 0:
        line = data[:end].count(b"\n") + 1
        raise PromptError(f"line {line} is not UTF-8 text. {_AS_TEXT}")
    return text


def _entries(text: str) -> Iterator[Entry]:
    """Yield the values of a JSON list or object, of JSON lines, or the lines of a text. Lines are JSON if most of the
    first ones are objects."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    objects = sum(isinstance(_parsed(line), dict) for _, line in lines[:_LOOKED_AT])
    jsonl = 0 < len(lines[:_LOOKED_AT]) <= 2 * objects
    if not jsonl and text.lstrip()[:1] in ("[", "{"):
        whole = _parsed(text)
        if not isinstance(whole, BadEntry):
            yield from (("entry", *each) for each in enumerate(whole if isinstance(whole, list) else [whole], 1))
            return
        if _JSON_BEGINS.match(text):
            raise PromptError(f"{whole}, or write every prompt as a JSON object on a line of its own.")
    if (
        not jsonl
        and lines
        and _CSV_HEAD.fullmatch(lines[0][1])
        and {*re.findall(r"\w+", lines[0][1].lower())} & {*KEYS}
    ):
        raise PromptError(f"it is a CSV table. {_AS_TEXT}")
    for number, line in lines:
        if len(line) > MAX_LINE:
            yield "line", number, BadEntry(f"it is longer than {MAX_LINE >> 20} MiB; put every prompt on its own line")
        else:
            yield "line", number, _parsed(line) if jsonl else line.rstrip("\r")


def _parsed(text: str) -> Any:
    """Return the JSON value, or a BadEntry."""
    if text.count("[") + text.count("{") > MOST_BRACKETS + len(text) // 8:
        return BadEntry("it has far more lists and objects than prompts; put every prompt on a line of its own")
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # raises for half of a surrogate pair
        return value
    except (ValueError, RecursionError) as error:
        reason = "half of a surrogate pair is no character" if isinstance(error, UnicodeError) else error
        return BadEntry(f"it is no JSON ({reason}); mend it")


KEYS = (
    "turns",
    "messages",
    "conversations",
    "conversation",
    "prompt",
    "question",
    "problem",
    "instruction",
    "input",
    "text",
)
"""Fields for prompts, by priority."""
WANTED = f"Give one prompt a line, as text or as a JSON object with {', '.join(map(repr, KEYS[:-1]))} or 'text'."
MOST_TURNS = 1000  # per conversation
_GRADED = ("turns", "prompt", "question")
"""Fields whose `answer` needs a grader; answers of other formats are used only if a grader is named."""
_NAMES = ("question_id", "id", "custom_id")
_SYSTEM = ("system", "system_prompt", "instructions")
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "bing", "bard", "model"), "assistant"),
}
_NUMERIC = re.compile(rf"\s*\$?{NUMBER.pattern}\$?\s*")


class BadEntry(Exception):
    """An invalid entry; the message has problem and remedy, without a full stop."""


def items_of(found: Any, unit: str, number: int, grader: str | None, turns: Turns, own: bool) -> tuple[PromptItem, ...]:
    """Return an entry's prompt, or the turns of its conversation; `unit` and `number` name an entry without an id.

    Raises BadEntry for an entry without a valid prompt, and PromptError for an answer without a grader.
    """
    if isinstance(found, BadEntry):
        raise found
    name = f"{unit}-{number}"
    if isinstance(found, str):
        found = {"text": found}
    if not isinstance(found, dict):
        raise BadEntry("it is no JSON object; write every prompt as an object")
    if str(found.get("url")).endswith("/embeddings"):
        raise BadEntry("it asks for an embedding and not for a text; leave it out")
    inner = (found[key] for key in ("body", "params", "input") if isinstance(found.get(key), dict))
    request = found | next(inner, dict[str, Any]())  # of an OpenAI or Anthropic batch line
    key, system, every = _asked(request, turns)
    kept_turns = every if turns is Turns.ALL else every[:1]
    named = _text(found, "grader") or grader
    answers = _answers(found, key, named, len(kept_turns))
    if named is None and any(answer is not None for answer in answers):
        raise PromptError(f"{unit} {number} has an answer, but no grader was named. Choose one; 'none' grades nothing.")
    for answer in answers:
        if named is not None and answer is not None:
            try:
                usable = checked_grader(named, own).usable(answer)
            except BadInput as error:
                raise BadEntry(f"'grader': {str(error).rstrip('.')}") from error
            if not usable:
                raise BadEntry(f"no text can be right by its answer and the grader {named!r}; mend one of them")
    identifier = next((found[each] for each in _NAMES if found.get(each) not in (None, "")), "")
    if isinstance(identifier, bool) or not isinstance(identifier, int | str):
        raise BadEntry("its id is neither a text nor a whole number; write one of them")
    name = str(identifier).strip() or name
    category = _text(found, "category") or "general"
    graders = ["none" if named is None or answer is None else named for answer in answers]
    if len(kept_turns) == 1:
        later = len(every) - 1
        return (PromptItem(name, category, kept_turns[0], answers[0], graders[0], later, system=system),)
    each = zip(kept_turns, answers, graders, strict=True)
    return tuple(
        PromptItem(f"{name}/{n}", category, *parts, 0, name, n, system) for n, parts in enumerate(each, start=1)
    )


def history_of(found: Any) -> History:
    """Return the conversation of a list of messages, or of an entry that contains one.

    Raises PromptError if it is invalid or does not end with an answer.
    """
    entry = found if isinstance(found, dict) else {"messages": found}
    listed: list[Any] = next((entry[key] for key in KEYS if isinstance(entry.get(key), list)), [])
    try:
        messages = [("system", _words(entry[each])) for each in _SYSTEM if entry.get(each)]
        messages += _messages(listed, answers=True)
    except BadEntry as error:
        raise PromptError(f"The history cannot be used: {error}.") from error
    system = "\n\n".join(text for role, text in messages if role == "system")
    turns = [(role, text) for role, text in messages if role != "system"]
    if [role for role, _ in turns] != ["user", "assistant"] * (len(turns) // 2):
        raise PromptError(
            "The history must begin with a user's message and end with an answer; give the next question as the prompt."
        )
    pairs = zip(turns[::2], turns[1::2], strict=True)
    return History(system, tuple(Exchange(prompt, answer) for (_, prompt), (_, answer) in pairs))


def checked_grader(named: str, own: bool) -> Grader:
    """Return the grader. Raises PromptError if it does not exist, or if this file may not name it."""
    if harness.task_of(named) and not own:
        raise PromptError("A task of lm-evaluation-harness is named by --task, by no file and by no --grader.")
    return grader_named(named)


def _asked(found: dict[str, Any], turns: Turns) -> tuple[str, str, list[str]]:
    """Return the field with the prompts, the system message (may be empty), and the user's turns."""
    present = [key for key in KEYS if found.get(key) is not None]
    if not present:
        keys = ", ".join(shortened(key) for key in list(found)[:8]) or "none"
        raise BadEntry(f"its keys are {keys}; rename the one that holds the prompt to one of {', '.join(KEYS)}")
    key = next((key for key in present if found[key] != ""), present[0])
    value, system = found[key], [_words(found[each]) for each in _SYSTEM if found.get(each)]
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        messages = _messages(value)  # without recorded answers, which the target replaces
        system += [text for role, text in messages if role == "system"]
        user_turns = [text for role, text in messages if role == "user"]
    elif key == "turns":
        if not (isinstance(value, list) and value and isinstance(value[0], str)):
            raise BadEntry("'turns' is no list of texts; write a list with the prompt first")
        user_turns = value
    else:
        user_turns = [_prompt(found, key)]
    if len(user_turns) > MOST_TURNS:
        raise BadEntry(f"it has more than {MOST_TURNS:,} turns; split the conversation")
    if not user_turns[0].strip():
        raise BadEntry("its prompt is blank; write at least one word")
    if turns is Turns.ALL and not all(isinstance(each, str) and each.strip() for each in user_turns[1:]):
        raise BadEntry(f"a later turn of {key!r} is blank or no text; mend it, or take first turns alone")
    return key, "\n\n".join(filter(str.strip, system)), user_turns


def _prompt(found: dict[str, Any], key: str) -> str:
    """Return a single prompt, with its input in the format of Alpaca and Dolly."""
    value = found[key]
    if isinstance(value, list):
        if len(value) != 1:
            raise BadEntry(f"{key!r} is a list of {len(value)} values; write each prompt in an entry of its own")
        value = value[0]
    if not isinstance(value, str):
        raise BadEntry(f"{key!r} is no text; write it in quotes")
    about = (found.get("input") or found.get("context")) if key == "instruction" else None
    return f"{value}\n\n{about}" if isinstance(about, str) and about.strip() else value


def _messages(given: list[Any], *, answers: bool = False) -> list[tuple[str, str]]:
    """Return role and text of each message, merging consecutive ones of a role; answers are empty unless `answers`."""
    messages: list[tuple[str, str]] = []
    keys = ("content", "value", "text")
    for message in given:
        if not isinstance(message, dict):
            raise BadEntry("one of its messages is no object; write each with 'role' and 'content'")
        name = message.get("role") or message.get("from")
        role = _ROLES.get(name.lower()) if isinstance(name, str) else None
        if role is None:
            expected = "system, user and assistant; mend the message, or leave the conversation out"
            raise BadEntry(f"the role of one of its messages is {shortened(name)}, which is none of {expected}")
        if role == "system" and any(role == "user" for role, _ in messages):
            raise BadEntry("a system message follows a turn; write it first, or leave the conversation out")
        left_out = role == "assistant" and not answers
        text = "" if left_out else _words(next((message[key] for key in keys if message.get(key) is not None), None))
        if messages and messages[-1][0] == role != "system":
            text = f"{messages.pop()[1]}\n\n{text}"
        messages.append((role, text))
    if not any(role == "user" for role, _ in messages):
        raise BadEntry("none of its messages is a user's; write one, or leave the conversation out")
    return messages


def _words(content: Any) -> str:
    """Return a message's text; parts of a list are joined by line breaks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadEntry(f"a message holds {shortened(content)} in place of text; write it in quotes")
    texts = []
    for part in content:
        text, kind = (part.get("text"), part.get("type")) if isinstance(part, dict) else (part, part)
        if not isinstance(text, str):
            problem = f"a message has a part of the type {shortened(kind)}, and only text can be read; leave it out"
            raise BadEntry(problem)
        texts.append(text)
    return "\n".join(texts)


def _answers(found: dict[str, Any], key: str, named: str | None, count: int) -> list[str | None]:
    """Return `answer` for the first turn, or the entries of `reference` if a grader is named."""
    if named == "none" or (named is None and key not in _GRADED):
        return [None] * count
    answer = found.get("answer")
    values = [answer]
    if answer is None and named is not None:
        reference = found.get("reference")
        values = reference if isinstance(reference, list) else [reference]
    answers: list[str | None] = []
    for given in [*values, *[None] * count][:count]:
        if isinstance(given, bool) or not (given is None or isinstance(given, int | float | str)):
            raise BadEntry("its answer is neither a text nor a number; write one of them")
        answers.append(None if given is None else str(given))
    if key == "problem" and named == "last-number":  # the last number of a formula is not its value
        answers = [each if each and _NUMERIC.fullmatch(each) else None for each in answers]
    return answers


def _text(found: dict[str, Any], key: str) -> str | None:
    value = found.get(key)
    if value is not None and not isinstance(value, str):
        raise BadEntry(f"{key!r} is no text; write it in quotes")
    return value


LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the length limit in tasks, by priority."""
LENGTH = 256  # the harness's default length limit in tokens


@dataclass(frozen=True, slots=True)
class HarnessTask:
    """A task as prompts and generation settings."""

    prompts: PromptSet  # the answer of each prompt is its document
    stop: tuple[str, ...]  # strings that end a text; removed before grading
    max_new_tokens: int
    temperature: float  # the task's temperature; 0 is greedy

    def settings(self, settings: Settings, max_new_tokens: int | None = None) -> Settings:
        """Return the settings with the task's stop strings, and its length limit by default.

        Raises BadInput for more or longer stop strings than supported.
        """
        return replace(settings, stop=self.stop, max_new_tokens=max_new_tokens or self.max_new_tokens)

    def remark(self, settings: Settings) -> str:
        """Return a sentence if decoding deviates from the task, otherwise an empty string."""
        if settings.temperature == self.temperature:
            return ""
        return f"The task asks for temperature {self.temperature:g}; this is decoded at {settings.temperature:g}."


def load_task(
    task: str, *, fewshot: int | None = None, metric: str | None = None, limit: int | None = None
) -> HarnessTask:
    """Return the first `limit` documents of a task, with prompts as the harness itself writes them.

    `task` is a name known to the harness, or a YAML file. `fewshot` is the number of examples before each prompt (None:
    the task's own). `metric` decides whether a text is right: 'exact_match' after the task's first filter, or
    'exact_match,flexible-extract' (None: the first metric for which higher is better). Raises PromptError if that is
    not possible, and as `harness.loaded`.
    """
    if limit is not None and limit < 1:
        raise PromptError(f"A set of {limit} prompts is none. Ask for at least 1.")
    task = os.path.abspath(os.path.expanduser(task)) if harness.names_file(task) else task
    loaded_task = harness.loaded(task)
    names = score_names(loaded_task)
    better = loaded_task.higher_is_better()
    usable = [name for name in names if better.get(name.partition(",")[0])]
    if not usable:
        raise PromptError(f"{task} has no metric that grades each text and is better the higher it is. Choose another.")
    score = next((name for name in usable if metric in (None, name, name.partition(",")[0])), None)
    if score is None:
        raise PromptError(f"{task} grades no text by {metric!r}. Choose one of {'; '.join(usable)}.")
    default = loaded_task.config.num_fewshot
    if fewshot is not None and fewshot < 0:
        raise PromptError(f"{fewshot} examples before a prompt are none. Ask for 0 or more.")
    if fewshot and default == 0:
        raise PromptError(f"{task} allows no examples before its prompts (num_fewshot: 0). Leave them out.")
    shots = (default or 0) if fewshot is None else fewshot
    requests = _requests(task, loaded_task, shots, limit)
    about = loaded_task.config.generation_kwargs or {}
    title, items = loaded_task.config.task, []
    for each in requests:
        prompt = each.args[0]
        if not isinstance(prompt, str) or not prompt.strip():
            raise PromptError(f"The prompt of document {each.doc_id} of {title} is blank or no text. Mend the task.")
        answer, grader = harness.document(each.doc), f"{harness.PREFIX}{task}:{score}"
        items.append(PromptItem(f"{title}-{each.doc_id}", title, prompt, answer, grader))
    name = f"{title}, {counted(shots, 'example')} in front, {score}, lm_eval {version('lm_eval')}"
    length = next((int(about[each]) for each in LENGTHS if about.get(each) is not None), LENGTH)
    drawn = float(about.get("temperature") or 0) if about.get("do_sample", True) else 0.0
    others = tuple(each for each in names if each != score)
    return HarnessTask(PromptSet(name, tuple(items), scores=others), harness.stop_strings(loaded_task), length, drawn)


def score_names(task: Any) -> tuple[str, ...]:
    """Return the task's scores of single texts: metrics that are averaged over texts, after each filter."""
    from lm_eval.api.metrics import mean

    metrics = [metric for metric, of in task.aggregation().items() if of is mean]
    names = [f"{metric},{each.name}" for each in task._filters for metric in metrics]
    return tuple(filter(harness.names_score, names))


def _requests(task: str, found: Any, shots: int, limit: int | None) -> list[Any]:
    """Return the harness's requests, one `Instance` per document."""
    default = found.config.num_fewshot
    try:
        with harness.quiet():
            found.set_config("num_fewshot", shots)
            found.set_fewshot_seed(harness.FEWSHOT_SEED)
            try:
                found.build_all_requests(limit=limit)
                requests = list(found.instances)
            finally:
                found.set_config("num_fewshot", default)
    except Exception as error:  # code and data of the task
        raise PromptError(f"{task} cannot write its prompts: {harness.reason(error)} Mend the task.") from error
    several = len({each.doc_id for each in requests}) < len(requests)
    if several or any(each.request_type != "generate_until" for each in requests):
        raise PromptError(f"{task} asks more than one text of a document, and a sweep grades one. Choose another task.")
    return requests
