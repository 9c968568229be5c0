"""The forms in which public data sets write prompts: an entry of a file in, its prompts, answers and names out.

Knows entries; knows no files and no models.
"""

from __future__ import annotations

import re
from typing import Any

from mars_viz.bounds import shortened
from mars_viz.chat import Exchange, History
from mars_viz.errors import BadInput, PromptError
from mars_viz.prompts import harness
from mars_viz.prompts.items import NUMBER, Grader, PromptItem, Turns, grader_named

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
"""Fields that hold a prompt; the first one counts."""
WANTED = f"Give one prompt a line, as text or as a JSON object with {', '.join(map(repr, KEYS[:-1]))} or 'text'."
MOST_TURNS = 1000
"""Of a conversation."""
_GRADED = ("turns", "prompt", "question")
"""Fields whose `answer` must have a grader; the answers of other forms are used only if a grader is named."""
_NAMES = ("question_id", "id", "custom_id")
_SYSTEM = ("system", "system_prompt", "instructions")
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "bing", "bard", "model"), "assistant"),
}
_NUMERIC = re.compile(rf"\s*\$?{NUMBER.pattern}\$?\s*")


class BadEntry(Exception):
    """What is wrong with an entry, and the remedy, without a full stop."""


def items_of(found: Any, name: str, grader: str | None, turns: Turns, own: bool) -> tuple[PromptItem, ...]:
    """Return an entry's prompt, or the turns of its conversation; an entry without an id gets this name.

    Raises BadEntry for an entry that is no prompt, and PromptError for one that has an answer and no grader.
    """
    if isinstance(found, str):
        found = {"text": found}
    if not isinstance(found, dict):
        raise BadEntry("it is no JSON object; write every prompt as an object")
    key, system, every = _asked(_unwrapped(found), turns)
    asked = every if turns is Turns.ALL else every[:1]
    named = _text(found, "grader") or grader
    answers = _answers(found, key, named, len(asked))
    if named is None and any(answer is not None for answer in answers):
        raise PromptError("has an answer, but no grader was named. Choose one; 'none' grades nothing.")
    for answer in answers:
        if named is not None and answer is not None:
            _check_answer(answer, named, own)
    name = next((said for each in _NAMES if (said := _name(found, each))), name)
    category = _text(found, "category") or "general"
    graders = ["none" if named is None or answer is None else named for answer in answers]
    if len(asked) == 1:
        later = len(every) - 1
        return (PromptItem(name, category, asked[0], answers[0], graders[0], later, system=system),)
    each = zip(asked, answers, graders, strict=True)
    return tuple(PromptItem(f"{name}/{n}", category, *one, 0, name, n, system) for n, one in enumerate(each, start=1))


def history_of(found: Any) -> History:
    """Return the conversation that a list of messages, or an entry with one, contains. Raises PromptError, also if it
    does not end with an answer."""
    entry = found if isinstance(found, dict) else {"messages": found}
    given: list[Any] = next((entry[key] for key in KEYS if isinstance(entry.get(key), list)), [])
    try:
        messages = [("system", _words(entry[each])) for each in _SYSTEM if entry.get(each)]
        messages += _messages(given, answers=True)
    except BadEntry as error:
        raise PromptError(f"The history cannot be used: {error}.") from error
    system = "\n\n".join(text for role, text in messages if role == "system")
    said = [(role, text) for role, text in messages if role != "system"]
    if [role for role, _ in said] != ["user", "assistant"] * (len(said) // 2):
        raise PromptError(
            "The history must begin with a user's message and end with an answer; give the next question as the prompt."
        )
    pairs = zip(said[::2], said[1::2], strict=True)
    return History(system, tuple(Exchange(prompt, answer) for (_, prompt), (_, answer) in pairs))


def checked_grader(named: str, own: bool) -> Grader:
    """Raises PromptError for one that does not exist, or that this file may not name."""
    if harness.task_of(named) and not own:
        raise PromptError("A task of lm-evaluation-harness is named by --task, by no file and by no --grader.")
    return grader_named(named)


def _unwrapped(found: dict[str, Any]) -> dict[str, Any]:
    """The request in a line of an OpenAI or Anthropic batch file; other entries as they are."""
    if str(found.get("url")).endswith("/embeddings"):
        raise BadEntry("it asks for an embedding and not for a text; leave it out")
    inner = (found[key] for key in ("body", "params", "input") if isinstance(found.get(key), dict))
    return found | next(inner, dict[str, Any]())


def _asked(found: dict[str, Any], turns: Turns) -> tuple[str, str, list[str]]:
    """The field that holds the prompts, the system message, empty for none, and the user's turns."""
    there = [key for key in KEYS if found.get(key) is not None]
    if not there:
        keys = ", ".join(shortened(key) for key in list(found)[:8]) or "none"
        raise BadEntry(f"its keys are {keys}; rename the one that holds the prompt to one of {', '.join(KEYS)}")
    key = next((key for key in there if found[key] != ""), there[0])
    given, system = found[key], [_words(found[each]) for each in _SYSTEM if found.get(each)]
    if isinstance(given, list) and any(isinstance(each, dict) for each in given):
        said, asked = _conversation(given)
        system += said
    elif key == "turns":
        if not (isinstance(given, list) and given and isinstance(given[0], str)):
            raise BadEntry("'turns' is no list of texts; write a list with the prompt first")
        asked = given
    else:
        asked = [_prompt(found, key)]
    if len(asked) > MOST_TURNS:
        raise BadEntry(f"it has more than {MOST_TURNS:,} turns; split the conversation")
    if not asked[0].strip():
        raise BadEntry("its prompt is blank; write at least one word")
    if turns is Turns.ALL and not all(isinstance(each, str) and each.strip() for each in asked[1:]):
        raise BadEntry(f"a later turn of {key!r} is blank or no text; mend it, or take first turns alone")
    return key, "\n\n".join(filter(str.strip, system)), asked


def _prompt(found: dict[str, Any], key: str) -> str:
    """A prompt that is one text; of Alpaca's and Dolly's form with the input that it is about."""
    given = found[key]
    if isinstance(given, list):
        if len(given) != 1:
            raise BadEntry(f"{key!r} is a list of {len(given)} values; write each prompt in an entry of its own")
        given = given[0]
    if not isinstance(given, str):
        raise BadEntry(f"{key!r} is no text; write it in quotes")
    about = (found.get("input") or found.get("context")) if key == "instruction" else None
    return f"{given}\n\n{about}" if isinstance(about, str) and about.strip() else given


def _conversation(given: list[Any]) -> tuple[list[str], list[str]]:
    """System messages and the user's turns. Recorded answers are left out, since the target gives its own."""
    messages = _messages(given)
    system, asked = ([text for role, text in messages if role == wanted] for wanted in ("system", "user"))
    return system, asked


def _messages(given: list[Any], *, answers: bool = False) -> list[tuple[str, str]]:
    """Role and text of each message, several in a row of one role together; an answer's text only if `answers`."""
    found: list[tuple[str, str]] = []
    for message in given:
        if not isinstance(message, dict):
            raise BadEntry("one of its messages is no object; write each with 'role' and 'content'")
        said = message.get("role") or message.get("from")
        role = _ROLES.get(said.lower()) if isinstance(said, str) else None
        if role is None:
            wanted = "system, user and assistant; mend the message, or leave the conversation out"
            raise BadEntry(f"the role of one of its messages is {shortened(said)}, which is none of {wanted}")
        if role == "system" and any(role == "user" for role, _ in found):
            raise BadEntry("a system message follows a turn; write it first, or leave the conversation out")
        left_out = role == "assistant" and not answers
        text = "" if left_out else _words(_first(message, "content", "value", "text"))
        if found and found[-1][0] == role != "system":
            text = f"{found.pop()[1]}\n\n{text}"
        found.append((role, text))
    if not any(role == "user" for role, _ in found):
        raise BadEntry("none of its messages is a user's; write one, or leave the conversation out")
    return found


def _words(content: Any) -> str:
    """A message's text, of a list of parts theirs, a line each."""
    if isinstance(content, list):
        return "\n".join(map(_part, content))
    if not isinstance(content, str):
        raise BadEntry(f"a message holds {shortened(content)} in place of text; write it in quotes")
    return content


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, dict) else part
        raise BadEntry(f"a message has a part of the type {shortened(kind)}, and only text can be read; leave it out")
    return text


def _answers(found: dict[str, Any], key: str, named: str | None, count: int) -> list[str | None]:
    """`answer`, of the first turn; else the entries of `reference`, only if a grader is named."""
    if named == "none" or (named is None and key not in _GRADED):
        return [None] * count
    answer = found.get("answer")
    given = [answer]
    if answer is None and named is not None:
        reference = found.get("reference")
        given = reference if isinstance(reference, list) else [reference]
    answers = [_answer(each) for each in [*given, *[None] * count][:count]]
    if key == "problem" and named == "last-number":  # the last number of a formula is not its value
        answers = [each if each and _NUMERIC.fullmatch(each) else None for each in answers]
    return answers


def _answer(given: Any) -> str | None:
    """A text, or a number as one."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return str(given)
    if given is not None and not isinstance(given, str):
        raise BadEntry("its answer is neither a text nor a number; write one of them")
    return given


def _check_answer(answer: str, named: str, own: bool) -> None:
    try:
        grader = checked_grader(named, own)
    except BadInput as error:
        raise BadEntry(f"'grader': {str(error).rstrip('.')}") from error
    if not grader.usable(answer):
        raise BadEntry(f"no text can be right by its answer and the grader {named!r}; mend one of them")


def _first(found: dict[str, Any], *keys: str) -> Any:
    return next((found[key] for key in keys if found.get(key) is not None), None)


def _text(found: dict[str, Any], key: str) -> str | None:
    value = found.get(key)
    if value is not None and not isinstance(value, str):
        raise BadEntry(f"{key!r} is no text; write it in quotes")
    return value


def _name(found: dict[str, Any], key: str) -> str | None:
    value = found.get(key)
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return None if value is None else str(value).strip()
    raise BadEntry(f"{key!r} is neither a text nor a whole number; write one of them")
