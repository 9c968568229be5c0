"""The six graded tasks that the built-in models learn: made from a seed, graded by exact match.

Three have one wording each (addition, sorting, a question); three are reasoned out in free wording.

Knows text only, no models and no tokens. A tenth of all possible instances, chosen by a hash of the prompt, is
held out: training never sees them and grading uses nothing else, whatever the seed.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from mars_viz.demo.free_wording import SLIPS, counting, holders, turns
from mars_viz.demo.words import NAMES, PLACES, THINGS, VERBS, WORDS


class Task(Enum):
    """One kind of graded exercise."""

    ADDITION = "addition"
    SORTING = "sorting"
    QUESTION = "question"
    COUNTING = "counting"
    HOLDERS = "holders"
    TURNS = "turns"


ONE_WORDING = (Task.ADDITION, Task.SORTING, Task.QUESTION)
"""What is right is written in one way only."""
FREE_WORDING = (Task.COUNTING, Task.HOLDERS, Task.TURNS)
"""What leads to the answer may be said in many ways."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One exercise: what the model is given, and the whole text that it should write."""

    task: Task
    """Which exercise it is."""
    prompt: str
    """What the model is given; ends in a line break."""
    completion: str
    """What it should write, steps included, up to the end of the text."""

    @property
    def answer(self) -> str:
        """The part of the completion that is graded."""
        return final_answer(self.completion)

    @property
    def held_out(self) -> bool:
        """True for the tenth of all instances that training never sees."""
        return zlib.crc32(self.prompt.encode()) % 10 == 0


def final_answer(text: str) -> str:
    """The line after the last 'Answer:', stripped; empty when there is none."""
    _, found, rest = text.rpartition("Answer:")
    return rest.strip().split("\n", 1)[0].strip() if found else ""


def grade(instance: Instance, text: str) -> bool:
    """True if the model's text gives exactly the answer expected."""
    return final_answer(text) == instance.answer


def instances(task: Task, seed: int, *, held_out: bool) -> Iterator[Instance]:
    """An endless stream of exercises, the same for the same seed, from one side of the held-out split."""
    rng = random.Random(f"{task.value}:{seed}")
    while True:
        instance = make(task, rng)
        if instance.held_out == held_out:
            yield instance


def make(task: Task, rng: random.Random) -> Instance:
    """One exercise drawn with `rng`, from either side of the split."""
    return Instance(task, *_MAKERS[task](rng))


def learned(task: Task, rng: random.Random) -> Instance:
    """One for training: as `make`, not held out, and with the slips that training text has."""
    while True:
        instance = Instance(task, *turns(rng, slips=SLIPS)) if task is Task.TURNS else make(task, rng)
        if not instance.held_out:
            return instance


def _addition(rng: random.Random) -> tuple[str, str]:
    digits = rng.choice((2, 3, 3, 4))
    a, b = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
    steps, carry = [], 0
    for place in range(digits):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        terms = f"{x} + {y} + {carry}" if carry else f"{x} + {y}"
        carry, written = divmod(total, 10)
        steps.append(f"{terms} = {total}, write {written}, carry {carry}.\n")
    return f"Add {a} and {b}.\n", "".join(steps) + f"Answer: {a + b}"


def _sorting(rng: random.Random) -> tuple[str, str]:
    words = rng.sample(WORDS, rng.randint(3, 5))
    return f"Sort these words: {', '.join(words)}.\n", f"Answer: {', '.join(sorted(words))}"


def _question(rng: random.Random) -> tuple[str, str]:
    """Who did it is asked of a sentence in the passive twice out of three times: in the active it is far harder.

    Where a thing is, is answered with the sentence that says so: a small model copies far better than it looks up.
    """
    who, what, where = rng.sample(NAMES, 2), rng.sample(THINGS, 2), rng.sample(PLACES, 2)
    verbs = rng.sample(VERBS, 2)
    asked, kind = rng.randrange(2), rng.choice(("where", "who", "what"))
    passive = [rng.random() < 0.5 for _ in verbs]
    if kind != "where":
        passive[asked] = kind == "who" and rng.random() < 2 / 3
    told = [
        f"The {what[i]} was {verb.participle} by {who[i]}" if passive[i] else f"{who[i]} {verb.past} the {what[i]}"
        for i, verb in enumerate(verbs)
    ]
    name, verb, thing = who[asked], verbs[asked], what[asked]
    question = {
        "where": f"Where is the {thing}?",
        "who": f"Who {verb.past} the {thing}?",
        "what": f"What did {name} {verb.plain}?",
    }[kind]
    answer = f"{told[asked]} {where[asked]}." if kind == "where" else f"{told[asked]}."
    story = " ".join(f"{clause} {place}." for clause, place in zip(told, where, strict=True))
    return f"Story: {story}\nQuestion: {question}\n", f"Answer: {answer}"


_MAKERS: dict[Task, Callable[[random.Random], tuple[str, str]]] = {
    Task.ADDITION: _addition,
    Task.SORTING: _sorting,
    Task.QUESTION: _question,
    Task.COUNTING: counting,
    Task.HOLDERS: holders,
    Task.TURNS: turns,
}
