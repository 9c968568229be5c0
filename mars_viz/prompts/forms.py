"""Parse the prompt formats of public data sets: one entry in, its prompts, answers and names out."""

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
    for key_of_id in _NAMES:
        identifier = found.get(key_of_id)
        if identifier is not None and (isinstance(identifier, bool) or not isinstance(identifier, int | str)):
            raise BadEntry(f"{key_of_id!r} is neither a text nor a whole number; write one of them")
        if identifier is not None and str(identifier).strip():
            name = str(identifier).strip()
            break
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
