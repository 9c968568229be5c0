"""Prompt sets, their items, and graders of texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from functools import partial
from itertools import groupby, pairwise

from mars_viz.chat import History
from mars_viz.demo.tasks import final_answer
from mars_viz.errors import PromptError
from mars_viz.prompts import harness


class Turns(StrEnum):
    """The turns of conversations to decode."""

    FIRST = "first"  # only the first; later ones are counted and skipped
    ALL = "all"  # all; later turns follow the target's own answers to earlier ones


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A prompt and how to grade its text."""

    id: str  # unique in its set; results are stored under it
    category: str  # its task, such as 'math'; results are reported by task, and tasks alternate
    prompt: str  # never blank
    answer: str | None = None  # the expected answer; None if not graded
    grader: str = "none"  # name in `GRADERS`, or a harness task as 'lm-eval:TASK:SCORE'
    later_turns: int = field(default=0, compare=False)  # number of skipped later turns of its conversation in the file
    question: str = ""  # id of its conversation; empty for a single prompt
    turn: int = 1  # index in its conversation, from 1; turns of a conversation are consecutive in a set
    system: str = ""  # the system message of its conversation; may be empty

    @property
    def graded(self) -> bool:
        return self.grader != "none"

    @property
    def opening(self) -> History:
        """The messages before the first turn of its conversation."""
        return History(self.system)

    @property
    def unit(self) -> str:
        """Unit of resampling: the conversation, or the prompt itself."""
        return self.question or self.id


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line of a file, or an entry of a JSON list, without a usable prompt."""

    line: int  # its number, from 1
    reason: str  # problem and remedy
    unit: str = "line"  # 'line' or 'entry'

    def __str__(self) -> str:
        return f"{self.unit.capitalize()} {self.line} is left out: {self.reason}."


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in order."""

    name: str  # for display: the file's name, or 'built-in tasks'
    items: tuple[PromptItem, ...]  # at least one
    skipped: tuple[SkippedLine, ...] = ()  # invalid lines, if the user chose to skip them
    scores: tuple[str, ...] = ()  # names of further scores of a harness task
    rest: tuple[PromptItem, ...] = field(default=(), compare=False)  # prompts beyond the limit, to extend a sweep
    system: str = field(default="", compare=False)  # system prompt set for all; empty if each has its own

    def __post_init__(self) -> None:
        for before, item in pairwise((None, *self.items)):
            if item is not None and item.turn > 1:
                follows = before is not None and (before.question, before.turn + 1) == (item.question, item.turn)
                if not (follows and item.question):
                    raise PromptError(
                        f"{item.id} is a later turn, but the one before it is not in front. Put it there."
                    )

    def __len__(self) -> int:
        return len(self.items)

    def first(self, count: int) -> PromptSet:
        return replace(self, items=self.items[:count])

    def limited(self, units: int) -> PromptSet:
        """Return the first `units` prompts or whole conversations, with the others in `rest`."""
        kept = set(list(dict.fromkeys(item.unit for item in self.items))[:units])
        first, others = ([item for item in self.items if (item.unit in kept) == wanted] for wanted in (True, False))
        return replace(self, items=tuple(first), rest=(*others, *self.rest))

    def mixed(self) -> PromptSet:
        """Return the prompts with alternating tasks, so that any prefix represents all tasks.

        Each task's prompts keep their order and are spread evenly: the k-th of n gets position (k - 1/2) / n, with ties
        in set order. So any prefix contains the tasks in about their overall shares. Conversations stay whole. Sets of
        one task and mixed sets do not change.
        """
        units = [tuple(turns) for _, turns in groupby(self.items, key=lambda item: item.unit)]
        sizes, seen = Counter(turns[0].category for turns in units), Counter[str]()
        places = []
        for turns in units:
            task = turns[0].category
            seen[task] += 1
            places.append((2 * seen[task] - 1) / (2 * sizes[task]))
        order = sorted(range(len(units)), key=places.__getitem__)  # stable
        return replace(self, items=tuple(item for place in order for item in units[place]))

    def with_more(self, offered: PromptSet, graded: int | None = None) -> PromptSet:
        """Return this set followed by the offered prompts that it lacks, in whole conversations.

        `graded` stops at that many graded units; None takes all. Raises BadInput if a prompt of this set is not among
        those offered.
        """
        if len({item.system for item in self.items}) == 1 and not any(item.system for item in offered.items):
            offered = offered.with_system(self.items[0].system)
        offered_items = {item.id: item for item in offered.items}
        if (other := next((item for item in self.items if offered_items.get(item.id) != item), None)) is not None:
            problem = "reads otherwise there" if other.id in offered_items else "is not among them"
            raise PromptError(
                f"{offered.name} is not the set that was swept: {other.id} {problem}. Give the same prompts."
            )
        units = {item.unit for item in self.items}
        graded_units = {item.unit for item in self.items if item.graded}
        items = [offered_items[item.id] for item in self.items]  # the offered ones count skipped later turns
        for _, turns in groupby((item for item in offered.items if item.unit not in units), lambda item: item.unit):
            if graded is not None and len(graded_units) >= graded:
                break
            items += (more := tuple(turns))
            graded_units |= {item.unit for item in more if item.graded}
        return replace(self, items=tuple(items))

    def with_system(self, system: str) -> PromptSet:
        """Return the set with this system prompt in place of its own; unchanged if it is empty."""
        if not system:
            return self
        items, others = (tuple(replace(item, system=system) for item in each) for each in (self.items, self.rest))
        return replace(self, items=items, rest=others, system=system)

    @property
    def graded(self) -> int:
        return sum(item.graded for item in self.items)

    @property
    def turns(self) -> Turns:
        return Turns.ALL if any(item.turn > 1 for item in self.items) else Turns.FIRST

    @property
    def later_turns(self) -> int:
        return sum(item.later_turns for item in self.items)


NUMBER = re.compile(r"(?<![^\W_])[-−]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")
"""A number in a text. A minus after a digit or letter is a hyphen; commas count only between thousands."""


@dataclass(frozen=True, slots=True)
class Grader:
    """A way to decide whether a text is right."""

    name: str
    summary: str  # one plain sentence
    grade: Callable[[str, str], bool]  # takes expected answer and text; True if right
    usable: Callable[[str], bool] = lambda answer: bool(answer.strip())
    """Takes an expected answer; False if no text could ever be right."""
    scores: Callable[[str, str], Mapping[str, float]] | None = None  # returns all scores by name


def exact_match(answer: str, text: str) -> bool:
    """True if the whole text is the answer, ignoring whitespace differences."""
    return text.split() == answer.split()


def final_line(answer: str, text: str) -> bool:
    """True if the line after the last 'Answer:' is the answer, as for the built-in tasks."""
    return final_answer(text) == answer.strip()


def last_number(answer: str, text: str) -> bool:
    """True if the last numbers of text and answer are equal; 1,200 equals 1200.0."""
    expected = _last_number(answer)
    return expected is not None and _last_number(text) == expected


def contains(answer: str, text: str) -> bool:
    """True if the answer occurs in the text, ignoring case and whitespace; 42 does not occur in 1420."""
    words = answer.casefold().split()
    if not words:
        return False
    pattern = r"\s+".join(re.escape(word) for word in words)
    return re.search(f"{_edge(words[0][0], '<!')}{pattern}{_edge(words[-1][-1], '!')}", text.casefold()) is not None


def grader_named(name: str) -> Grader:
    """Return the grader. Raises BadInput for a name that is neither in `GRADERS` nor a harness task.

    A harness task is loaded when the first text is graded.
    """
    if harness.task_of(name):
        each = partial(harness.right, name), harness.usable, partial(harness.scores, name)
        return Grader(name, f"The task {harness.task_of(name)} of lm-evaluation-harness.", *each)
    if name not in GRADERS:
        raise PromptError(f"There is no grader {name!r}. Choose one of {', '.join(GRADERS)}.")
    return GRADERS[name]


def _last_number(text: str) -> Decimal | None:
    numbers = NUMBER.findall(text)
    return Decimal(numbers[-1].replace(",", "").replace("−", "-")) if numbers else None


def _edge(character: str, look: str) -> str:
    """Return a lookaround so that Latin letters or digits at the answer's edge do not continue in the text."""
    return f"(?{look}[0-9a-z])" if character.isascii() and character.isalnum() else ""


def _never(answer: str, text: str) -> bool:
    raise PromptError("A prompt without a grader cannot be right or wrong. Choose a grader for the set.")


GRADERS: dict[str, Grader] = {
    grader.name: grader
    for grader in (
        Grader("exact", "The whole text is the answer.", exact_match),
        Grader("final-line", "The line after the last 'Answer:' is the answer.", final_line),
        Grader(
            "last-number",
            "The last number in the text is the last one in the answer.",
            last_number,
            lambda answer: _last_number(answer) is not None,
        ),
        Grader("contains", "The answer occurs somewhere in the text.", contains),
        Grader("none", "Nothing is graded; only speed and agreement are measured.", _never, lambda answer: True),
    )
}
