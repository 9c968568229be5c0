"""The records of a prompt set. Knows texts only; where they come from is for the modules beside this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby, pairwise

from mars_viz.errors import PromptError


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
    """For grouping, such as 'math'."""
    prompt: str
    """What the model is given; never blank."""
    answer: str | None = None
    """What the grader looks for; None where the prompt is not graded."""
    grader: str = "none"
    """Name in the registry of graders."""
    later_turns: int = field(default=0, compare=False)
    """Turns of its conversation that come after it in its file and are left out; whoever decodes the set says so."""
    question: str = ""
    """The conversation whose turn it is; empty where it stands alone."""
    turn: int = 1
    """Which of its conversation's turns it is. A later one follows the one before it in the set."""

    @property
    def graded(self) -> bool:
        """True if a text after this prompt is right or wrong."""
        return self.grader != "none"

    @property
    def unit(self) -> str:
        """What is drawn when a set is resampled: the turns of one conversation stand and fall together."""
        return self.question or self.id


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line of a file that is no usable prompt."""

    line: int
    """Its number, from 1."""
    reason: str
    """What is wrong with it, and the remedy."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in order."""

    name: str
    """For people: the file's name, or 'built-in tasks'."""
    items: tuple[PromptItem, ...]
    """At least one."""
    skipped: tuple[SkippedLine, ...] = ()
    """Lines left out because the user said so."""

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
        return PromptSet(self.name, self.items[:count], self.skipped)

    def with_more(self, offered: PromptSet, graded: int | None = None) -> PromptSet:
        """This set, and after it the offered prompts that it lacks, conversations whole; `graded` stops at so many
        graded ones (conversations count once), None takes all.

        Raises BadInput where not all of this set is among those offered: then that is another set.
        """
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
        return PromptSet(self.name, tuple(items), self.skipped)

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
