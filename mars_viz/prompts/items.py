"""The records of a prompt set. Knows texts only; where they come from is for the modules beside this one."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """Turns of its conversation that come after it in its file. They speak of an answer that no model has given yet, so
    they are left out, and whoever decodes the set says so."""

    @property
    def graded(self) -> bool:
        """True if a text after this prompt is right or wrong."""
        return self.grader != "none"


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

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.items)

    @property
    def graded(self) -> int:
        """Prompts that are graded."""
        return sum(item.graded for item in self.items)

    @property
    def later_turns(self) -> int:
        """Turns that are left out: all but the first of each conversation."""
        return sum(item.later_turns for item in self.items)
