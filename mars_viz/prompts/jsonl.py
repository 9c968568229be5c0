"""Prompt sets from JSONL files: a JSON object a line, read a line at a time.

Three forms are understood, told apart by their fields:
- MT-Bench and Spec-Bench: `question_id`, `category`, `turns`. The first turn is the prompt; the later ones refer to
  an answer that is not there yet; they are left out and counted. `reference` (its first entry) is the answer if
  a grader is named.
- `prompt`, with `answer` where it is graded.
- GSM8K: `question` and `answer`.
In all of them `question_id` or `id`, `category` and `grader` are optional. Knows files; knows no models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from mars_viz.errors import BadInput
from mars_viz.prompts.graders import grader_named
from mars_viz.prompts.items import PromptItem, PromptSet, SkippedLine

MAX_LINE = 16 << 20
"""Bytes; no prompt is longer, and a file without line breaks must not fill the memory."""
_BOM = b"\xef\xbb\xbf"


def read_prompts(path: str | PathLike[str], *, grader: str | None = None) -> Iterator[PromptItem | SkippedLine]:
    """The file's lines as prompts, and as what is wrong with them; blank lines are passed over.

    `grader` is used for every line that has an answer and names none itself; lines without an answer are not graded.
    Raises BadInput for a file that cannot be read or is not UTF-8, for an unknown grader, and where lines have answers
    but nobody named a grader.
    """
    if grader is not None:
        grader_named(grader)
    path, seen = Path(path), dict[str, int]()
    try:
        with path.open("rb") as file:
            for line, data in _lines(file):
                try:
                    item = _item(_parsed(data, line), line, grader)
                    if item.id in seen:
                        raise _BadLine(f"the id {item.id!r} is that of line {seen[item.id]}; give it another")
                    seen[item.id] = line
                    yield item
                except _BadLine as error:
                    yield SkippedLine(line, str(error))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}). Give a JSONL file of prompts.") from error


def load_prompts(
    path: str | PathLike[str], *, grader: str | None = None, skip_bad: bool = False, limit: int | None = None
) -> PromptSet:
    """The file as a set; `limit` stops reading after so many prompts.

    A line that is no prompt raises BadInput with its number, unless `skip_bad` is set: then it is left out and listed
    in `skipped`. Raises BadInput as `read_prompts` does, for a set without prompts, and where a grader is named but no
    line has an answer.
    """
    if limit is not None and limit < 1:
        raise BadInput(f"A set of {limit} prompts is none. Ask for at least 1.")
    items: list[PromptItem] = []
    skipped: list[SkippedLine] = []
    for read in read_prompts(path, grader=grader):
        if isinstance(read, PromptItem):
            items.append(read)
            if len(items) == limit:
                break
        elif skip_bad:
            skipped.append(read)
        else:
            raise BadInput(f"{path}, line {read.line}: {read.reason}. Mend the line, or skip bad lines.")
    if not items:
        why = (
            f"none of its {len(skipped)} lines is one (line {skipped[0].line}: {skipped[0].reason})" if skipped else ""
        )
        raise BadInput(f"{path} holds no prompt{': ' + why if why else ''}. {_WANTED}")
    if grader not in (None, "none") and not any(item.graded for item in items):
        raise BadInput(f"{path} holds no answers to grade with {grader!r}. Leave the grader out, or add 'answer'.")
    return PromptSet(Path(path).name, tuple(items), tuple(skipped))


def to_jsonl(prompts: PromptSet) -> bytes:
    """The set as a file that `load_prompts` reads back, prompt for prompt."""
    lines = []
    for item in prompts.items:
        found = {"question_id": item.id, "category": item.category, "prompt": item.prompt, "grader": item.grader}
        lines.append(json.dumps(found | ({} if item.answer is None else {"answer": item.answer})))
    return "".join(f"{line}\n" for line in lines).encode()


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
        raise BadInput(f"line {line} is not UTF-8 text. Save the file as UTF-8.") from error
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


def _item(found: dict[str, Any], line: int, grader: str | None) -> PromptItem:
    named = _text(found, "grader") or grader
    answer = _answer(found, named)
    if answer is None or named == "none":
        answer, named = None, "none"
    elif named is None:
        raise BadInput(f"line {line} has an answer, but no grader was named. Choose one; 'none' grades nothing.")
    else:
        _check_answer(answer, named)
    prompt = _prompt(found)
    name = _name(found, "question_id") or _name(found, "id") or f"line-{line}"
    turns = found.get("turns", [])
    return PromptItem(name, _text(found, "category") or "general", prompt, answer, named, max(0, len(turns) - 1))


def _check_answer(answer: str, named: str) -> None:
    try:
        grader = grader_named(named)
    except BadInput as error:
        raise _BadLine(f"'grader': {str(error).rstrip('.')}") from error
    if not grader.usable(answer):
        raise _BadLine(f"no text can be right by its answer and the grader {named!r}; mend one of them")


def _prompt(found: dict[str, Any]) -> str:
    turns = found.get("turns")
    if "turns" in found and not (isinstance(turns, list) and turns and isinstance(turns[0], str)):
        raise _BadLine("'turns' is no list of texts; write a list with the prompt first")
    prompt = turns[0] if isinstance(turns, list) else _text(found, "prompt") or _text(found, "question")
    if prompt is None:
        raise _BadLine("it has none of 'turns', 'prompt' and 'question'; add one of them")
    if not str(prompt).strip():
        raise _BadLine("its prompt is blank; write at least one word")
    return str(prompt)


def _answer(found: dict[str, Any], named: str | None) -> str | None:
    """`answer`, a number included; the first `reference` only where someone wants to grade by it."""
    answer = found.get("answer")
    if answer is None and named not in (None, "none"):
        answer = found.get("reference")
        answer = (answer[0] if answer else None) if isinstance(answer, list) else answer
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return str(answer)
    if answer is not None and not isinstance(answer, str):
        raise _BadLine("its answer is neither a text nor a number; write one of them")
    return answer


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
