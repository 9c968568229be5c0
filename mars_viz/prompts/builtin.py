"""The built-in graded tasks: as a prompt set, and recognised by prompt text, so that any run of one can be graded.

Answers are computed from the prompt text, so prompts typed by hand work too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from mars_viz.demo import tasks
from mars_viz.demo.tasks import NAMES, PLACES, THINGS, VERBS, Task, solve_counting, solve_holders, solve_turns
from mars_viz.errors import PromptError
from mars_viz.prompts.items import PromptItem, PromptSet

_ADDITION = re.compile(r"Add ([0-9]{1,12}) and ([0-9]{1,12})\.")
_SORTING = re.compile(r"Sort these words: ([a-z]+(?:, [a-z]+)+)\.")
_QUESTION = re.compile(r"Story: ([^\n]+)\nQuestion: ([^\n]+)")


def recognised(prompt: str) -> PromptItem | None:
    """Return the exercise with this prompt and its answer; None for other prompts. Trailing whitespace is ignored."""
    text = prompt.rstrip()
    for task, solve in _SOLVERS.items():
        if answer := solve(text):
            return PromptItem(f"{task.value}-recognised", task.value, prompt, answer, grader="final-line")
    return None


def _addition(asked: str) -> str:
    match = _ADDITION.fullmatch(asked)
    return str(int(match[1]) + int(match[2])) if match else ""


def _sorting(asked: str) -> str:
    match = _SORTING.fullmatch(asked)
    return ", ".join(sorted(match[1].split(", "))) if match else ""


def _any(words: Iterator[str]) -> str:
    return "|".join(sorted({re.escape(word) for word in words}, key=len, reverse=True))


_WHO, _THING, _PLACE = (_any(iter(words)) for words in (NAMES, THINGS, PLACES))
_PAST = {verb.past: verb for verb in VERBS} | {verb.participle: verb for verb in VERBS}
_ACTIVE = re.compile(rf"(?P<who>{_WHO}) (?P<verb>{_any(v.past for v in VERBS)}) the (?P<thing>{_THING})")
_PASSIVE = re.compile(rf"The (?P<thing>{_THING}) was (?P<verb>{_any(v.participle for v in VERBS)}) by (?P<who>{_WHO})")
_SENTENCE = re.compile(rf"(?P<clause>.+?) (?P<place>{_PLACE})\. ?")


def _question(asked: str) -> str:
    """Return the answer that the story gives; empty if there is none or several, or a sentence has another form."""
    match, answers, at = _QUESTION.fullmatch(asked), set[str](), 0
    while match and at < len(match[1]):
        sentence = _SENTENCE.match(match[1], at)
        fact = sentence and (_ACTIVE.fullmatch(sentence["clause"]) or _PASSIVE.fullmatch(sentence["clause"]))
        if not sentence or not fact:
            return ""
        at, verb, clause = sentence.end(), _PAST[fact["verb"]], sentence["clause"]
        by_question = {
            f"Where is the {fact['thing']}?": f"{clause} {sentence['place']}.",
            f"Who {verb.past} the {fact['thing']}?": f"{clause}.",
            f"What did {fact['who']} {verb.plain}?": f"{clause}.",
        }
        answers |= {by_question[match[2]]} if match[2] in by_question else set()
    return answers.pop() if len(answers) == 1 else ""


_SOLVERS = {
    Task.ADDITION: _addition,
    Task.SORTING: _sorting,
    Task.QUESTION: _question,
    Task.COUNTING: solve_counting,
    Task.HOLDERS: solve_holders,
    Task.TURNS: solve_turns,
}
BUILTIN = "built-in tasks"  # name of the set of all kinds; for fewer, the kinds' names are appended


def builtin_prompts(per_task: int = 100, *, seed: int = 0, kinds: Iterable[Task] = tuple(Task)) -> PromptSet:
    """Return held-out exercises that the built-in pair never saw in training, `per_task` of each kind.

    Prompts are distinct, and kinds alternate, so a larger `per_task` extends the set. Raises PromptError for fewer than
    one, and without a kind.
    """
    chosen = set(kinds)
    kinds = tuple(kind for kind in Task if kind in chosen)
    if per_task < 1 or not kinds:
        raise PromptError(f"{per_task} exercises of {len(kinds)} kinds make no set. Ask for at least 1 of at least 1.")
    items = [item for kind in kinds for item in islice(_items(kind, seed), per_task)]
    suffix = "" if len(kinds) == len(Task) else f": {', '.join(kind.value for kind in kinds)}"
    return PromptSet(name=f"{BUILTIN}{suffix}", items=tuple(items)).mixed()


def kinds_named(names: str) -> tuple[Task, ...]:
    """Parse comma-separated names of kinds; all if empty. Raises PromptError."""
    wanted_names = [name.strip() for name in names.split(",")] if names.strip() else [kind.value for kind in Task]
    by_name = {kind.value: kind for kind in Task}
    if unknown := [name for name in wanted_names if name not in by_name]:
        raise PromptError(f"There is no built-in task {unknown[0]!r}. Choose from {', '.join(by_name)}.")
    return tuple(by_name[name] for name in dict.fromkeys(wanted_names))


def kinds_of(set_name: str) -> tuple[Task, ...]:
    """Return the kinds of a set that `builtin_prompts` made, by its name; empty for other sets."""
    name, _, kinds = set_name.partition(": ")
    try:
        return kinds_named(kinds) if name == BUILTIN else ()
    except PromptError:  # a file with such a name
        return ()


def per_task(prompts: int, kinds: int) -> int:
    """Return the number of prompts per kind that yields at least `prompts`."""
    return -(-prompts // kinds)


def _items(kind: Task, seed: int) -> Iterator[PromptItem]:
    seen: set[str] = set()
    for instance in tasks.instances(kind, seed, held_out=True):
        if instance.prompt not in seen:
            seen.add(instance.prompt)
            name = f"{kind.value}-{seed}-{len(seen)}"
            yield PromptItem(name, kind.value, instance.prompt, instance.answer, grader="final-line")
