"""The three graded tasks that the built-in pair learns: made from a seed, graded by exact match.

Knows text only, no models and no tokens. A tenth of all possible instances, chosen by a hash of the prompt, is
held out: training never sees them and grading uses nothing else, whatever the seed.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum


class Task(Enum):
    """One kind of graded exercise."""

    ADDITION = "addition"
    SORTING = "sorting"
    QUESTION = "question"


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
    return _MAKERS[task](rng)


def _addition(rng: random.Random) -> Instance:
    digits = rng.choice((2, 3, 3, 4))
    a, b = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
    steps, carry = [], 0
    for place in range(digits):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        terms = f"{x} + {y} + {carry}" if carry else f"{x} + {y}"
        carry, written = divmod(total, 10)
        steps.append(f"{terms} = {total}, write {written}, carry {carry}.\n")
    return Instance(Task.ADDITION, f"Add {a} and {b}.\n", "".join(steps) + f"Answer: {a + b}")


def _sorting(rng: random.Random) -> Instance:
    words = rng.sample(WORDS, rng.randint(3, 5))
    return Instance(Task.SORTING, f"Sort these words: {', '.join(words)}.\n", f"Answer: {', '.join(sorted(words))}")


def _question(rng: random.Random) -> Instance:
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
    return Instance(Task.QUESTION, f"Story: {story}\nQuestion: {question}\n", f"Answer: {answer}")


_MAKERS: dict[Task, Callable[[random.Random], Instance]] = {
    Task.ADDITION: _addition,
    Task.SORTING: _sorting,
    Task.QUESTION: _question,
}


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb in three forms."""

    plain: str
    past: str
    participle: str


VERBS = [
    Verb("put", "put", "put"),
    Verb("hide", "hid", "hidden"),
    Verb("leave", "left", "left"),
    Verb("find", "found", "found"),
    Verb("see", "saw", "seen"),
    Verb("drop", "dropped", "dropped"),
]

NAMES = (
    "Anna Ben Lily Tom Max Mia Sam Sue Tim Jack Jane Lucy Bob Amy Joe Ella Leo Rose Dan Kate Nick Sara Finn Emma"
).split()

THINGS = (
    "ball cup hat book doll drum cake apple key toy boat bell box kite car truck coat shoe spoon ring bag pencil "
    "flower stone candle blanket cookie basket letter coin"
).split()

PLACES = (
    "in the garden|on the table|under the bed|in the kitchen|by the river|near the tree|on the chair|in the forest|"
    "behind the door|at the park|in the car|on the roof|under the bridge|in the barn|by the lake|at the school|"
    "in the tent|on the shelf|behind the house|near the pond|at the beach|on the boat|in the cave|by the road"
).split("|")

WORDS = (
    "ant apple arm baby bag ball bear bed bee bell bird boat book box boy bread bug bus cake car cat chair cow cup "
    "day dog door doll drum duck ear egg eye farm fire fish flag flower fork fox frog game gate girl goat hand hat "
    "hen hill horse house ice ink jam jar key king kite lake lamp leaf lion lip map milk moon mouse nail nest net "
    "night nose nut oak owl page pan park pen pie pig pond queen rain ring river road rock roof rope rose sand sea "
    "seed ship shoe sky snow sock song soup star stone sun table tail tent toe top toy tree truck van vest wall "
    "water well wind wing wolf wood yard zoo"
).split()
