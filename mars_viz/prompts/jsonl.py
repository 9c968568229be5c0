"""Prompt sets from JSONL files: a JSON object a line, read a line at a time.

Three forms are understood, told apart by their fields:
- MT-Bench and Spec-Bench: `question_id`, `category`, `turns`. Every turn is a prompt of its own, 'q81/1' and 'q81/2'
  of the question q81, or the first alone, and the others are counted. `reference` holds the answers, if a grader is
  named: entry i grades turn i, and a turn without one is not graded.
- `prompt`, with `answer` where it is graded.
- GSM8K: `question` and `answer`.
In all of them `question_id` or `id`, `category` and `grader` are optional. Knows files; knows no models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from mars_viz.errors import BadInput, PromptError, RunFileError
from mars_viz.prompts import harness
from mars_viz.prompts.items import Grader, PromptItem, PromptSet, SkippedLine, Turns, grader_named
from mars_viz.runfiles.manifest import LARGEST, MOST_BRACKETS

MAX_LINE = LARGEST
"""Bytes; no prompt is longer, and a file without line breaks must not fill the memory."""
MOST_PROMPTS = 100_000
"""Of a file, with the lines that are none; ten times the largest test set of exercises."""
MOST_TURNS = 1000
"""Of a conversation."""
_BOM = b"\xef\xbb\xbf"


def read_prompts(
    path: str | PathLike[str], *, grader: str | None = None, turns: Turns = Turns.ALL
) -> Iterator[PromptItem | SkippedLine]:
    """The file's lines as prompts, and as what is wrong with them; blank lines are passed over.

    `grader` is used for every line that has an answer and names none itself; lines without an answer are not graded.
    Raises BadInput for a file that cannot be read or is not UTF-8, for an unknown grader, and where lines have answers
    but nobody named a grader.
    """
    for read in _read(path, grader, turns):
        if isinstance(read, SkippedLine):
            yield read
        else:
            yield from read


def _read(
    path: str | PathLike[str], grader: str | None, turns: Turns, own: bool = False
) -> Iterator[tuple[PromptItem, ...] | SkippedLine]:
    """A line at a time: its turns, or what is wrong with it."""
    if grader is not None:
        _grader(grader, own)
    path, seen = Path(path), dict[str, int]()
    try:
        with path.open("rb") as file:
            for line, data in _lines(file):
                try:
                    items = _items(_parsed(data, line), line, grader, turns, own)
                    names = {items[0].unit, *(item.id for item in items)}
                    if taken := sorted(names & seen.keys()):
                        raise _BadLine(f"the id {taken[0]!r} is that of line {seen[taken[0]]}; give it another")
                    seen |= dict.fromkeys(names, line)
                    yield items
                except _BadLine as error:
                    yield SkippedLine(line, str(error))
    except BadInput as error:
        raise PromptError(f"{path}: {error}") from error
    except OSError as error:
        raise RunFileError(f"{path} cannot be read ({error.strerror}). Give a JSONL file of prompts.") from error


def load_prompts(
    path: str | PathLike[str],
    *,
    grader: str | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    turns: Turns = Turns.ALL,
    own: bool = False,
) -> PromptSet:
    """The file as a set, its tasks in turn (`PromptSet.mixed`); `limit` takes the first so many prompts of that order,
    conversations whole and counted once. A file that MARS Viz wrote itself (`own`) keeps its order, and it alone may
    say that a harness's task grades a line, since a task may run code.

    A line that is no prompt raises BadInput with its number, unless `skip_bad` is set: then it is left out and listed
    in `skipped`. Raises BadInput as `read_prompts` does, for a set without prompts, and where a grader is named but no
    line has an answer.
    """
    if limit is not None and limit < 1:
        raise PromptError(f"A set of {limit} prompts is none. Ask for at least 1.")
    items: list[PromptItem] = []
    skipped: list[SkippedLine] = []
    for read in _read(path, grader, turns, own):
        if len(items) + len(skipped) >= MOST_PROMPTS:
            if limit is not None:
                break  # the first so many lines are mixed, and the limit is taken of them
            raise PromptError(
                f"{path} holds more than {MOST_PROMPTS:,} prompts. Split it, or limit how many are taken."
            )
        if not isinstance(read, SkippedLine):
            items.extend(read)
        elif skip_bad:
            skipped.append(read)
        else:
            raise PromptError(f"{path}, line {read.line}: {read.reason}. Mend the line, or skip bad lines.")
    if not items:
        why = (
            f"none of its {len(skipped)} lines is one (line {skipped[0].line}: {skipped[0].reason})" if skipped else ""
        )
        raise PromptError(f"{path} holds no prompt{': ' + why if why else ''}. {_WANTED}")
    if grader not in (None, "none") and not any(item.graded for item in items):
        raise PromptError(f"{path} holds no answers to grade with {grader!r}. Leave the grader out, or add 'answer'.")
    found = PromptSet(Path(path).name, tuple(items), tuple(skipped))
    found = found if own else found.mixed()
    return found if limit is None else found.limited(limit)


def to_jsonl(prompts: PromptSet) -> bytes:
    """The set as a file that `load_prompts` reads back, prompt for prompt; a conversation is a line."""
    lines = [json.dumps(_line(tuple(turns))) for _, turns in groupby(prompts.items, key=lambda item: item.unit)]
    return "".join(f"{line}\n" for line in lines).encode()


def _line(turns: Sequence[PromptItem]) -> dict[str, Any]:
    first = turns[0]
    named = {"question_id": first.unit, "category": first.category}
    if not first.question:
        found = named | {"prompt": first.prompt, "grader": first.grader}
        return found | ({} if first.answer is None else {"answer": first.answer})
    grader = next((item.grader for item in turns if item.graded), "none")
    said, answers = [item.prompt for item in turns], [item.answer for item in turns]
    return named | {"turns": said, "reference": answers, "grader": grader}


_WANTED = "Each line must be a JSON object with 'prompt', 'question' or 'turns'."


class _BadLine(Exception):
    """What is wrong with a line, and the remedy, without a full stop."""


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Each line that is not blank with its number; None in place of one that is too long."""
    number = 0
    while data := file.readline(MAX_LINE):
        number += 1
        whole = data.endswith(b"\n") or len(data) < MAX_LINE
        if whole and (data := data.removeprefix(_BOM) if number == 1 else data).strip():
            yield number, data
        elif not whole:
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            yield number, None


def _parsed(data: bytes | None, line: int) -> dict[str, Any]:
    if data is None:
        raise _BadLine(f"it is longer than {MAX_LINE >> 20} MiB; put every object on a line of its own")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PromptError(f"line {line} is not UTF-8 text. Save the file as UTF-8.") from error
    if data.count(b"[") + data.count(b"{") > MOST_BRACKETS:
        raise _BadLine("it is far too large for a prompt; put every object on a line of its own")
    try:
        found = json.loads(text)
        text = json.dumps(found, ensure_ascii=False)
        text.encode()  # fails on half of a surrogate pair
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a value that cannot be text or a number"
        raise _BadLine(f"it is no JSON ({reason}); every line must be one whole JSON object") from error
    if not isinstance(found, dict):
        raise _BadLine("it is no JSON object; write every prompt as an object on a line of its own")
    return found


def _items(found: dict[str, Any], line: int, grader: str | None, turns: Turns, own: bool) -> tuple[PromptItem, ...]:
    """A prompt, or the turns of a conversation."""
    named = _text(found, "grader") or grader
    asked = _prompts(found, turns)
    answers = _answers(found, named, len(asked))
    if named is None and any(answer is not None for answer in answers):
        raise PromptError(f"line {line} has an answer, but no grader was named. Choose one; 'none' grades nothing.")
    for answer in answers:
        if named is not None and answer is not None:
            _check_answer(answer, named, own)
    name = _name(found, "question_id") or _name(found, "id") or f"line-{line}"
    category = _text(found, "category") or "general"
    left_out = len(found.get("turns", asked)) - len(asked)
    graders = ["none" if named is None or answer is None else named for answer in answers]
    if len(asked) == 1:
        return (PromptItem(name, category, asked[0], answers[0], graders[0], left_out),)
    each = zip(asked, answers, graders, strict=True)
    return tuple(PromptItem(f"{name}/{n}", category, *one, 0, name, n) for n, one in enumerate(each, start=1))


def _check_answer(answer: str, named: str, own: bool) -> None:
    try:
        grader = _grader(named, own)
    except BadInput as error:
        raise _BadLine(f"'grader': {str(error).rstrip('.')}") from error
    if not grader.usable(answer):
        raise _BadLine(f"no text can be right by its answer and the grader {named!r}; mend one of them")


def _grader(named: str, own: bool) -> Grader:
    """Raises BadInput for one that there is not, or that this file may not name."""
    if harness.task_of(named) and not own:
        raise PromptError("A task of lm-evaluation-harness is named by --task, by no file and by no --grader.")
    return grader_named(named)


def _prompts(found: dict[str, Any], turns: Turns) -> list[str]:
    """What the model is to be asked, one after the other."""
    if "turns" in found:
        given = found["turns"]
        if not (isinstance(given, list) and given and isinstance(given[0], str)):
            raise _BadLine("'turns' is no list of texts; write a list with the prompt first")
        if len(given) > MOST_TURNS:
            raise _BadLine(f"it has more than {MOST_TURNS:,} turns; split the conversation")
        given = given if turns is Turns.ALL else given[:1]
        if not all(isinstance(each, str) and each.strip() for each in given[1:]):
            raise _BadLine("a later turn of 'turns' is blank or no text; mend it, or take first turns alone")
    else:
        prompt = _text(found, "prompt") or _text(found, "question")
        given = [] if prompt is None else [prompt]
    if not given:
        raise _BadLine("it has none of 'turns', 'prompt' and 'question'; add one of them")
    if not given[0].strip():
        raise _BadLine("its prompt is blank; write at least one word")
    return list(given)


def _answers(found: dict[str, Any], named: str | None, count: int) -> list[str | None]:
    """`answer`, of the first turn; else the entries of `reference`, only where someone wants to grade by them."""
    answer = found.get("answer")
    given = [answer]
    if answer is None and named not in (None, "none"):
        reference = found.get("reference")
        given = reference if isinstance(reference, list) else [reference]
    answers = [_answer(each) for each in [*given, *[None] * count][:count]]
    return [None] * count if named == "none" else answers


def _answer(given: Any) -> str | None:
    """A text, or a number as one."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return str(given)
    if given is not None and not isinstance(given, str):
        raise _BadLine("its answer is neither a text nor a number; write one of them")
    return given


def _text(found: dict[str, Any], key: str) -> str | None:
    value = found.get(key)
    if value is not None and not isinstance(value, str):
        raise _BadLine(f"{key!r} is no text; write it in quotes")
    return value


def _name(found: dict[str, Any], key: str) -> str | None:
    value = found.get(key)
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool) and str(value).strip()):
        return None if value is None else str(value).strip()
    raise _BadLine(f"{key!r} is neither a text nor a whole number; write one of them")
