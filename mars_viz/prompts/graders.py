"""Graders: is this text right? Each is a small pure function of the expected answer and the text.

Knows texts only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from mars_viz.demo.tasks import final_answer
from mars_viz.errors import PromptError

_NUMBER = re.compile(r"(?<![^\W_])[-−]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")
"""A number in a text. A minus after a digit or letter is a hyphen; commas count only between thousands."""


@dataclass(frozen=True, slots=True)
class Grader:
    """A way to tell a right text from a wrong one."""

    name: str
    """In the registry, in files, on the command line."""
    summary: str
    """One plain sentence."""
    grade: Callable[[str, str], bool]
    """Of the expected answer and the text that the model wrote: True where it is right."""
    usable: Callable[[str], bool]
    """Of an expected answer: False where no text could ever be right by it."""


def exact_match(answer: str, text: str) -> bool:
    """True if the whole text is the answer; blanks and line breaks around and between words do not count."""
    return text.split() == answer.split()


def final_line(answer: str, text: str) -> bool:
    """True if the line after the last 'Answer:' is the answer, as the built-in tasks are graded."""
    return final_answer(text) == answer.strip()


def last_number(answer: str, text: str) -> bool:
    """True if the last number of the text is the last number of the answer: 1,200 and 1200.0 are the same."""
    wanted = _last_number(answer)
    return wanted is not None and _last_number(text) == wanted


def contains(answer: str, text: str) -> bool:
    """True if the answer occurs in the text, whatever the case and the blanks; 42 does not occur in 1420."""
    words = answer.casefold().split()
    if not words:
        return False
    pattern = r"\s+".join(re.escape(word) for word in words)
    return re.search(f"{_edge(words[0][0], '<!')}{pattern}{_edge(words[-1][-1], '!')}", text.casefold()) is not None


def grader_named(name: str) -> Grader:
    """The grader. Raises BadInput for a name that is not in the registry."""
    if name not in GRADERS:
        raise PromptError(f"There is no grader {name!r}. Choose one of {', '.join(GRADERS)}.")
    return GRADERS[name]


def _last_number(text: str) -> Decimal | None:
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "").replace("−", "-")) if found else None


def _edge(character: str, look: str) -> str:
    """Where the answer begins or ends with a Latin letter or a digit, none may go on there."""
    return f"(?{look}[0-9a-z])" if character.isascii() and character.isalnum() else ""


def _never(answer: str, text: str) -> bool:
    raise PromptError("A prompt without a grader cannot be right or wrong. Choose a grader for the set.")


_REGISTERED = (
    Grader("exact", "The whole text is the answer.", exact_match, lambda answer: bool(answer.strip())),
    Grader("final-line", "The line after the last 'Answer:' is the answer.", final_line, lambda a: bool(a.strip())),
    Grader(
        "last-number",
        "The last number in the text is the last one in the answer.",
        last_number,
        lambda answer: _last_number(answer) is not None,
    ),
    Grader("contains", "The answer occurs somewhere in the text.", contains, lambda answer: bool(answer.strip())),
    Grader("none", "Nothing is graded; only speed and agreement are measured.", _never, lambda answer: True),
)

GRADERS: dict[str, Grader] = {grader.name: grader for grader in _REGISTERED}
"""Every grader by its name."""
