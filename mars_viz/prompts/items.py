"""Prompt sets and graders: what is asked, which answers are right, and who grades them. Knows texts alone."""

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
    """Which turns of a conversation are decoded."""

    FIRST = "first"
    """The first alone; the later ones are counted and left out."""
    ALL = "all"
    """Every one; a later turn follows the earlier ones with the answers that the target itself gives to them."""


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt, and how the text that a model writes after it is graded."""

    id: str
    """Unique in its set; results are kept and resumed under it."""
    category: str
    """Its task, such as 'math': results are told task by task, and tasks are taken in turn."""
    prompt: str
    """What the model is given; never blank."""
    answer: str | None = None
    """What the grader looks for; None where the prompt is not graded."""
    grader: str = "none"
    """Name in the registry of graders, or of a harness's task, 'lm-eval:TASK:SCORE'."""
    later_turns: int = field(default=0, compare=False)
    """Turns of its conversation that come after it in its file and are left out; whoever decodes the set says so."""
    question: str = ""
    """The conversation whose turn it is; empty where it stands alone."""
    turn: int = 1
    """Which of its conversation's turns it is. A later one follows the one before it in the set."""
    system: str = ""
    """The system message of its conversation; empty for none."""

    @property
    def graded(self) -> bool:
        """True if a text after this prompt is right or wrong."""
        return self.grader != "none"

    @property
    def opening(self) -> History:
        """What stands before the first turn of its conversation."""
        return History(self.system)

    @property
    def unit(self) -> str:
        """What is drawn when a set is resampled: the turns of one conversation stand and fall together."""
        return self.question or self.id


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line of a file, or an entry of a JSON list, that is no usable prompt."""

    line: int
    """Its number, from 1."""
    reason: str
    """What is wrong with it, and the remedy."""
    unit: str = "line"
    """What is numbered: 'line' or 'entry'."""

    def __str__(self) -> str:
        return f"{self.unit.capitalize()} {self.line} is left out: {self.reason}."


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in order."""

    name: str
    """For people: the file's name, or 'built-in tasks'."""
    items: tuple[PromptItem, ...]
    """At least one."""
    skipped: tuple[SkippedLine, ...] = ()
    """Lines left out because the user said so."""
    scores: tuple[str, ...] = ()
    """What a text is given besides right or wrong, by name: the other scores of a harness's task."""
    rest: tuple[PromptItem, ...] = field(default=(), compare=False)
    """Prompts of the same set that a limit left out, in order; whoever sweeps it keeps them to go on with."""
    system: str = field(default="", compare=False)
    """The system prompt that was set for all prompts; empty if each has its own or none."""

    def __post_init__(self) -> None:
        """Raise BadInput where a later turn does not follow the one before it."""
        for before, item in pairwise((None, *self.items)):
            if item is not None and item.turn > 1:
                told = before is not None and (before.question, before.turn + 1) == (item.question, item.turn)
                if not (told and item.question):
                    raise PromptError(
                        f"{item.id} is a later turn, but the one before it is not in front. Put it there."
                    )

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.items)

    def first(self, count: int) -> PromptSet:
        """The first so many of its prompts."""
        return replace(self, items=self.items[:count])

    def limited(self, units: int) -> PromptSet:
        """The first so many of its prompts, of conversations the first so many with all their turns; the others are its
        `rest`."""
        kept = set(list(dict.fromkeys(item.unit for item in self.items))[:units])
        first, others = ([item for item in self.items if (item.unit in kept) == wanted] for wanted in (True, False))
        return replace(self, items=tuple(first), rest=(*others, *self.rest))

    def mixed(self) -> PromptSet:
        """The same prompts with their tasks in turn, so that the first ones speak for all of them.

        Each task's prompts (those of one category) keep their own order and are spread evenly: the k-th of n stands at
        (k - 1/2) / n, equal places in the set's order. So any first part holds the tasks in about the shares of the
        whole. Conversations stay whole; a set of one task, and one that is mixed already, stays as it is.
        """
        units = self._units()
        sizes, seen = Counter(turns[0].category for turns in units), Counter[str]()
        places = []
        for turns in units:
            task = turns[0].category
            seen[task] += 1
            places.append((2 * seen[task] - 1) / (2 * sizes[task]))
        order = sorted(range(len(units)), key=places.__getitem__)  # sorting keeps the order of equals
        return replace(self, items=tuple(item for place in order for item in units[place]))

    def grouped(self) -> PromptSet:
        """The same prompts task by task, the tasks in the order of their first prompts."""
        tasks = {task: place for place, task in enumerate(dict.fromkeys(item.category for item in self.items))}
        units = sorted(self._units(), key=lambda turns: tasks[turns[0].category])
        return replace(self, items=tuple(item for turns in units for item in turns))

    def _units(self) -> list[tuple[PromptItem, ...]]:
        """Each prompt, or conversation with all its turns, in order."""
        return [tuple(turns) for _, turns in groupby(self.items, key=lambda item: item.unit)]

    def with_more(self, offered: PromptSet, graded: int | None = None) -> PromptSet:
        """This set, and after it the offered prompts that it lacks, conversations whole; `graded` stops at so many
        graded ones (conversations count once), None takes all.

        Raises BadInput where not all of this set is among those offered: then that is another set.
        """
        if len({item.system for item in self.items}) == 1 and not any(item.system for item in offered.items):
            offered = offered.with_system(self.items[0].system)
        there = {item.id: item for item in offered.items}
        if (other := next((item for item in self.items if there.get(item.id) != item), None)) is not None:
            what = "reads otherwise there" if other.id in there else "is not among them"
            raise PromptError(
                f"{offered.name} is not the set that was swept: {other.id} {what}. Give the same prompts."
            )
        own = {item.unit for item in self.items}
        known = {item.unit for item in self.items if item.graded}
        items = [there[item.id] for item in self.items]  # which also says what later turns are left out
        for _, turns in groupby((item for item in offered.items if item.unit not in own), lambda item: item.unit):
            if graded is not None and len(known) >= graded:
                break
            items += (more := tuple(turns))
            known |= {item.unit for item in more if item.graded}
        return replace(self, items=tuple(items))

    def with_system(self, system: str) -> PromptSet:
        """Return the set with this system prompt in place of its own; an empty one leaves it as it is."""
        if not system:
            return self
        items, rest = (tuple(replace(item, system=system) for item in each) for each in (self.items, self.rest))
        return replace(self, items=items, rest=rest, system=system)

    @property
    def graded(self) -> int:
        """Prompts that are graded."""
        return sum(item.graded for item in self.items)

    @property
    def turns(self) -> Turns:
        """ALL where it holds a later turn."""
        return Turns.ALL if any(item.turn > 1 for item in self.items) else Turns.FIRST

    @property
    def later_turns(self) -> int:
        """Turns that are left out: all but the first of each conversation."""
        return sum(item.later_turns for item in self.items)


NUMBER = re.compile(r"(?<![^\W_])[-−]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")
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
    scores: Callable[[str, str], Mapping[str, float]] | None = None
    """Of the expected answer and the text: all that it is given, by name. None where right or wrong is all."""


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
    """The grader. Raises BadInput for a name that is neither in the registry nor a harness's task; the task is loaded
    once a text is graded."""
    if harness.task_of(name):
        each = partial(harness.right, name), harness.usable, partial(harness.scores, name)
        return Grader(name, f"The task {harness.task_of(name)} of lm-evaluation-harness.", *each)
    if name not in GRADERS:
        raise PromptError(f"There is no grader {name!r}. Choose one of {', '.join(GRADERS)}.")
    return GRADERS[name]


def _last_number(text: str) -> Decimal | None:
    found = NUMBER.findall(text)
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
