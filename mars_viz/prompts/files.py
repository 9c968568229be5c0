"""Read prompt sets from files, and tasks of lm-evaluation-harness as prompt sets.

A file is JSONL, a JSON list, or text with a prompt per line, optionally gzipped. The format is detected from the
contents, and entries are read one at a time. `forms` interprets an entry.
"""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import BufferedReader
from itertools import chain, groupby
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from mars_viz.errors import BadInput, PromptError, RunFileError, disk_refusals
from mars_viz.prompts import harness
from mars_viz.prompts.forms import KEYS, WANTED, BadEntry, checked_grader, items_of
from mars_viz.prompts.items import PromptItem, PromptSet, SkippedLine, Turns
from mars_viz.run import Settings
from mars_viz.runfiles.manifest import LARGEST, MOST_BRACKETS
from mars_viz.words import counted

MAX_LINE = LARGEST  # bytes per line, so that a file without line breaks cannot fill the memory
MOST_PROMPTS = 100_000  # entries per file, including invalid ones; ten times the largest test set of exercises
MOST_UNPACKED = 64 << 20  # bytes to read from a gzipped file
MOST_BLANK = 1_000_000  # blank lines per file
_PIECE = 1 << 20
_LOOKED_AT = 10  # lines used to distinguish JSONL from text
_GZIP = b"\x1f\x8b"
_PACKED = {
    _GZIP: "gzip within gzip",
    b"\xfd7zXZ": "an xz file",
    b"BZh": "a bzip2 file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"PK\x03\x04": "a zip file",
    b"7z\xbc\xaf": "a 7z file",
}
_TABLES = {b"PAR1": "a Parquet", b"ARROW1": "an Arrow"}
_JSON_BEGINS = re.compile(r"\s*(\{\s*([\"'}]|$)|\[\s*([\[{\"\]]|$))")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
Entry = tuple[str, int, Any]  # unit ('line' or 'entry'), its number, and its value: JSON, a text, or a BadEntry


def load_prompts(
    path: str | PathLike[str],
    *,
    grader: str | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    turns: Turns = Turns.ALL,
    own: bool = False,
) -> PromptSet:
    """Return the file as a set, its tasks alternating (`PromptSet.mixed`).

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
    with _reading(path), path.open("rb") as file:
        for unit, number, value in _entries(_pieces(file)):
            if len(items) + len(skipped) >= MOST_PROMPTS:
                if limit is not None:
                    break  # the limit applies to the mixed prompts read so far
                most = f"more than {MOST_PROMPTS:,} prompts"
                raise PromptError(f"{path} holds {most}. Split it, or limit how many are taken.")
            try:
                read = items_of(value, unit, number, grader, turns, own)
                names = {read[0].unit, *(item.id for item in read)}
                if repeated := sorted(names & seen.keys()):
                    raise BadEntry(f"the id {repeated[0]!r} is that of {seen[repeated[0]]}; give it another")
            except BadEntry as error:
                if not skip_bad:
                    where = f"{path}, {unit} {number}"
                    raise PromptError(f"{where}: {error}. Mend the {unit}, or skip bad lines.") from error
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
            named = str(error).startswith(str(path))
            raise PromptError(str(error) if named else f"{path}: {error}") from error
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


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file's lines, unpacked and without a byte order mark; long lines are split."""
    source: Any = file
    packed = source.peek(len(_GZIP)).startswith(_GZIP)
    if packed:
        source = BufferedReader(gzip.GzipFile(fileobj=file))  # reads lines ten times as fast
    begins: bytes = source.peek(8)
    for magic, kind in _PACKED.items():
        if begins.startswith(magic):
            raise PromptError(f"it is {kind}. Unpack it, and give the JSONL or text that it holds.")
    for magic, kind in _TABLES.items():
        if begins.startswith(magic):
            raise PromptError(
                f"it is {kind} table. Write it as JSONL first, such as with pandas: "
                "pandas.read_parquet(FILE).to_json(OUT, orient='records', lines=True)."
            )
    size = blank = 0
    while piece := source.readline(_PIECE):
        yield piece if size else piece.removeprefix(codecs.BOM_UTF8)
        size, blank = size + len(piece), blank + piece.isspace()
        if packed and size > MOST_UNPACKED:
            raise PromptError(f"it unpacks to more than {MOST_UNPACKED >> 20} MiB. Unpack it first, or split it.")
        if blank > MOST_BLANK:
            raise PromptError(f"it has more than {MOST_BLANK:,} blank lines. Remove them.")


def _entries(pieces: Iterator[bytes]) -> Iterator[Entry]:
    blank = 0
    for first in pieces:
        if first.strip():
            break
        blank += first.endswith(b"\n")
    else:
        return
    pieces, text = chain([first], pieces), first.decode(errors="replace")
    if text.lstrip().startswith("[") and _begins_as_json(text):
        yield from _values(pieces)
        return
    lines = _lines(pieces, blank)
    looked: list[tuple[int, bytes | BadEntry]] = []
    objects = 0
    for line in lines:
        looked.append(line)
        objects += isinstance(_parsed(line[1], line[0]), dict)
        if objects == len(looked) or len(looked) == _LOOKED_AT:
            break
    lines = chain(looked, lines)
    if 2 * objects < len(looked) and not _begins_as_json(text):
        cells = [cell.strip().strip('"').lower() for cell in re.split("[,;\t]", text)]
        if len(cells) > 1 and any(cell in KEYS for cell in cells) and all(re.fullmatch(r"\w{1,40}", c) for c in cells):
            raise PromptError(
                "it is a CSV table. Write it as JSONL first, such as with pandas: "
                "pandas.read_csv(FILE).to_json(OUT, orient='records', lines=True)."
            )
        for number, data in lines:
            yield "line", number, data if isinstance(data, BadEntry) else _decoded(data, number).rstrip("\r\n")
    elif objects or any(isinstance(data, BadEntry) for _, data in looked):
        yield from (("line", number, _parsed(data, number)) for number, data in lines)
    else:
        yield from _values(b"" if isinstance(data, BadEntry) else data for _, data in lines)


def _begins_as_json(text: str) -> bool:
    """True if a truncated text is JSON rather than words in brackets."""
    try:
        _, end = json.JSONDecoder().raw_decode(text.strip())
    except (ValueError, RecursionError):
        return _JSON_BEGINS.match(text) is not None
    return text.strip()[end:].lstrip(" ,")[:1] in ("", "[", "{")


def _lines(pieces: Iterable[bytes], blank: int) -> Iterator[tuple[int, bytes | BadEntry]]:
    """Yield number and bytes of each line that is not blank; a BadEntry for a line that is too long."""
    number, parts, size = blank + 1, list[bytes](), 0
    for piece in chain(pieces, [b""]):
        size += len(piece)
        if size <= MAX_LINE:
            parts.append(piece)
        if piece.endswith(b"\n") or not piece:
            if size > MAX_LINE:
                long = f"it is longer than {MAX_LINE >> 20} MiB; put every prompt on a line of its own"
                yield number, BadEntry(long)
            elif (line := b"".join(parts)).strip():
                yield number, line
            number, parts, size = number + 1, [], 0


def _decoded(data: bytes, line: int) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PromptError(f"line {line} is not UTF-8 text. Save the file as UTF-8.") from error
    if "\0" in text:
        raise PromptError(f"line {line} holds zero bytes, so it is not UTF-8 text. Give text or JSONL in UTF-8.")
    return text


def _parsed(data: bytes | BadEntry, line: int) -> Any:
    if isinstance(data, BadEntry):
        return data
    text = _decoded(data, line)
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        return BadEntry("it is far too large for a prompt; put every object on a line of its own")
    try:
        return _checked(json.loads(text))
    except (ValueError, RecursionError) as error:
        return BadEntry(f"it is no JSON ({_reason(error)}); every line must be one whole JSON object")


def _values(pieces: Iterator[bytes]) -> Iterator[Entry]:
    """Yield the values of a JSON list or of concatenated JSON. Raises PromptError at the first invalid one."""
    decoder, scan = codecs.getincrementaldecoder("utf-8")(), json.JSONDecoder().raw_decode
    text, at, number, listed = "", 0, 0, False
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it also matches the empty string
        if number == 0 and not listed and text.startswith("[", at):
            at, listed = at + 1, True
            continue
        if listed and text.startswith("]", at):
            if text[at + 1 :].strip() or any(piece.strip() for piece in pieces):
                raise PromptError("more follows the end of its list. Write every prompt on a line of its own.")
            return
        try:
            value, at = scan(text, at)
        except (ValueError, RecursionError) as error:
            left = len(text) - at
            brackets = text.count("[", at) + text.count("{", at)
            exhausted = left >= MAX_LINE or brackets > MOST_BRACKETS
            more = b"" if exhausted else _joined(pieces, max(_PIECE, left))
            try:
                text, at = text[at:] + decoder.decode(more, final=not (more or exhausted)), 0
            except UnicodeDecodeError as bad:
                raise PromptError(f"entry {number + 1} is not UTF-8 text. Save the file as UTF-8.") from bad
            if not more and not text and not listed:
                return
            if not more:
                reason = f"none within {MAX_LINE >> 20} MiB" if exhausted else _reason(error)
                raise PromptError(
                    f"entry {number + 1} is no JSON ({reason}). Mend it, or write every prompt as a JSON "
                    "object on a line of its own."
                ) from error
            continue
        number += 1
        yield "entry", number, _checked(value)


def _joined(pieces: Iterator[bytes], wanted: int) -> bytes:
    parts, size = [], 0
    while size < wanted and (piece := next(pieces, b"")):
        parts.append(piece)
        size += len(piece)
    return b"".join(parts)


def _checked(value: Any) -> Any:
    """Return the value, or a BadEntry if it contains half a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return BadEntry("it is no JSON (half of a surrogate pair is no character); write the whole one")
    return value


def _reason(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else "a value that cannot be text or a number"


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
        raise PromptError(f"{task} says that no examples stand before its prompts (num_fewshot: 0). Leave them out.")
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
