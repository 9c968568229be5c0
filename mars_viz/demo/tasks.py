"""The six graded tasks that the built-in models learn: made from a seed, graded by exact match.

Three have one wording each (addition, sorting, a question). Three are reasoned out in free wording, drawn for each
sentence, so that a model trained on such text has many equally good words to choose from, and a few that matter.

A tenth of all possible instances, chosen by a hash of the prompt, is held out: for grading only, never for training.
"""

from __future__ import annotations

import random
import re
import tomllib
import zlib
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

Verb = namedtuple("Verb", ("plain", "past", "participle"))
with (Path(__file__).parent / "tasks.toml").open("rb") as _file:
    _TEXTS = tomllib.load(_file)
_PHRASES: dict[str, list[str]] = _TEXTS["phrases"]
NAMES, COUNTED, LANDMARKS, THINGS, WORDS = (
    _TEXTS[kind].split() for kind in ("names", "counted", "landmarks", "things", "words")
)
PLACES: list[str] = _TEXTS["places"]
VERBS = [Verb(*forms) for forms in _TEXTS["verbs"]]


class Task(Enum):
    """A kind of graded exercise."""

    ADDITION = "addition"
    SORTING = "sorting"
    QUESTION = "question"
    COUNTING = "counting"
    HOLDERS = "holders"
    TURNS = "turns"


FREE_WORDING = (Task.COUNTING, Task.HOLDERS, Task.TURNS)
_MOST = 20  # the largest count
DIRECTIONS = ("north", "east", "south", "west")
QUARTERS = {"left": -1, "right": 1, "around": 2}  # quarters of a turn to the right
GAINS = ("finds", "gets", "buys", "makes", "wins")
LOSSES = ("loses", "sells", "drops", "breaks", "gives away")


@dataclass(frozen=True, slots=True)
class Instance:
    """An exercise."""

    task: Task
    prompt: str  # ends with a line break
    completion: str  # the whole text that the model should write, including the steps

    @property
    def answer(self) -> str:
        """The part of the completion that is graded."""
        return final_answer(self.completion)

    @property
    def held_out(self) -> bool:
        """True for the tenth of all instances that is not used for training."""
        return zlib.crc32(self.prompt.encode()) % 10 == 0


def final_answer(text: str) -> str:
    """Return the line after the last 'Answer:', stripped; empty if there is none."""
    _, found, rest = text.rpartition("Answer:")
    return rest.strip().split("\n", 1)[0].strip() if found else ""


def instances(task: Task, seed: int, *, held_out: bool) -> Iterator[Instance]:
    """Yield exercises without end, the same for the same seed, from one side of the held-out split."""
    rng = random.Random(f"{task.value}:{seed}")
    while True:
        instance = make(task, rng)
        if instance.held_out == held_out:
            yield instance


def make(task: Task, rng: random.Random) -> Instance:
    """Return an exercise drawn with `rng`, from either side of the split."""
    return Instance(task, *_MAKERS[task](rng))


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
    """Two thirds of the 'Who' questions are about a sentence in the passive, since the active is far harder.

    The answer is a whole sentence of the story: a small model copies far better than it looks up.
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


def counting(rng: random.Random) -> tuple[str, str]:
    """Return a prompt of two to four steps of plus and minus, and its completion."""
    name, things = rng.choice(NAMES), rng.choice(COUNTED)
    count = rng.randint(3, 12)
    asked = [f"{name} has {count} {things}."]
    told = [_one_of(rng, "count_begins").format(name=name, count=count, things=things)]
    changes = rng.sample(range(2, 10), 4)
    gains, losses = rng.sample(GAINS, 4), rng.sample(LOSSES, 4)
    for change in changes[: rng.randint(2, 4)]:  # no number and no verb twice, so that each says which step it is
        more = count - change < 2 or (count + change <= _MOST and rng.random() < 0.5)
        verb = (gains if more else losses).pop()
        asked.append(f"{name} {verb} {change}.")
        after = count + change if more else count - change
        words = {"name": name, "verb": verb, "change": change, "things": things}
        words["sum"] = f"{count} {'+' if more else '-'} {change} = {after}"
        told.append(_sentence(rng, ("then", "more" if more else "fewer", "makes"), **words))
        count = after
    told.append(_one_of(rng, "count_ends").format(name=name, count=count, things=things))
    return f"{' '.join(asked)} How many {things} does {name} have now?\n", f"{' '.join(told)}\nAnswer: {count}"


def holders(rng: random.Random) -> tuple[str, str]:
    """Return a prompt in which one of two things changes hands two to four times, and its completion."""
    names, things = rng.sample(NAMES, 6), rng.sample(THINGS, 2)
    holder, *takers = names[1 : 2 + rng.randint(2, 4)]
    asked = [f"The {things[0]} is with {names[0]}.", f"The {things[1]} is with {holder}."]
    rng.shuffle(asked)
    thing = things[1]
    told = [_one_of(rng, "hold_begins").format(name=holder, thing=thing)]
    for place, taker in zip(rng.sample(LANDMARKS, len(takers)), takers, strict=True):
        asked.append(f"At the {place} the {thing} goes from {holder} to {taker}.")
        told.append(_sentence(rng, ("then", "hands", "holds"), giver=holder, taker=taker, thing=thing, place=place))
        holder = taker
    told.append(_one_of(rng, "hold_ends").format(name=holder, thing=thing))
    return f"{' '.join(asked)} Who has the {thing} now?\n", f"{' '.join(told)}\nAnswer: {holder}"


def turns(rng: random.Random, *, slips: float = 0.0) -> tuple[str, str]:
    """Return a prompt of two to four turns, and its completion, in which a share `slips` of the sentences is wrong."""
    name, faced = rng.choice(NAMES), rng.randrange(4)
    asked = [f"{name} looks {DIRECTIONS[faced]}."]
    told = [_one_of(rng, "turn_begins").format(name=name, faced=DIRECTIONS[faced])]
    for place in rng.sample(LANDMARKS, rng.randint(2, 4)):
        way = rng.choice(tuple(QUARTERS))
        asked.append(f"At the {place} {name} turns {way}.")
        faced = (faced + QUARTERS[way] + 2 * (rng.random() < slips)) % 4
        told.append(_sentence(rng, ("then", "turn", "faces"), name=name, way=way, place=place, faced=DIRECTIONS[faced]))
    told.append(_one_of(rng, "turn_ends").format(name=name, faced=DIRECTIONS[faced]))
    return f"{' '.join(asked)} Where does {name} look now?\n", f"{' '.join(told)}\nAnswer: {DIRECTIONS[faced]}"


def _one_of(rng: random.Random, phrase: str) -> str:
    return rng.choice(_PHRASES[phrase])


def _sentence(rng: random.Random, parts: Sequence[str], **words: object) -> str:
    """Return the named parts in one wording each, joined; it starts with a capital letter."""
    said = "".join(_one_of(rng, part) for part in parts).format(**words)
    return said[0].upper() + said[1:]


_MAKERS: dict[Task, Callable[[random.Random], tuple[str, str]]] = {
    Task.ADDITION: _addition,
    Task.SORTING: _sorting,
    Task.QUESTION: _question,
    Task.COUNTING: counting,
    Task.HOLDERS: holders,
    Task.TURNS: turns,
}

_COUNTING = re.compile(
    r"(?P<name>\w+) has (?P<count>[0-9]{1,9}) (?P<things>\w+)\."
    rf"(?P<steps>(?: (?P=name) (?:{'|'.join((*GAINS, *LOSSES))}) [0-9]{{1,9}}\.)+)"
    r" How many (?P=things) does (?P=name) have now\?"
)
_HOLDERS = re.compile(
    r"(?P<facts>The \w+ is with \w+\.(?: The \w+ is with \w+\.)*)"
    r"(?P<steps>(?: At the \w+ the \w+ goes from \w+ to \w+\.)*)"
    r" Who has the (?P<thing>\w+) now\?"
)
_TURNS = re.compile(
    rf"(?P<name>\w+) looks (?P<faced>{'|'.join(DIRECTIONS)})\."
    rf"(?P<steps>(?: At the \w+ (?P=name) turns (?:{'|'.join(QUARTERS)})\.)+) Where does (?P=name) look now\?"
)


def solve_counting(asked: str) -> str:
    """Return the answer to a prompt of `counting`; empty for other prompts."""
    match = _COUNTING.fullmatch(asked)
    if not match:
        return ""
    count = int(match["count"])
    for verb, change in re.findall(rf"({'|'.join((*GAINS, *LOSSES))}) ([0-9]+)\.", match["steps"]):
        count += int(change) if verb in GAINS else -int(change)
    return str(count) if count >= 0 else ""


def solve_holders(asked: str) -> str:
    """Return the answer to a prompt of `holders`; empty for other prompts, and if a giver lacks the given thing."""
    match = _HOLDERS.fullmatch(asked)
    if not match:
        return ""
    holds = dict(re.findall(r"The (\w+) is with (\w+)\.", match["facts"]))
    for thing, giver, taker in re.findall(r"the (\w+) goes from (\w+) to (\w+)\.", match["steps"]):
        if holds.get(thing) != giver:
            return ""
        holds[thing] = taker
    return holds.get(match["thing"], "")


def solve_turns(asked: str) -> str:
    """Return the answer to a prompt of `turns`; empty for other prompts."""
    match = _TURNS.fullmatch(asked)
    if not match:
        return ""
    ways = re.findall(r"turns (\w+)\.", match["steps"])
    return DIRECTIONS[(DIRECTIONS.index(match["faced"]) + sum(QUARTERS[way] for way in ways)) % 4]
