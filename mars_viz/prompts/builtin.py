"""The built-in graded tasks as a prompt set. Knows the tasks' texts; knows no models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from mars_viz.demo import tasks
from mars_viz.demo.tasks import Task
from mars_viz.errors import PromptError
from mars_viz.prompts.items import PromptItem, PromptSet

BUILTIN = "built-in tasks"
"""The set's name."""


def builtin_prompts(per_task: int = 100, *, seed: int = 0, kinds: Iterable[Task] = tuple(Task)) -> PromptSet:
    """Held-out exercises that the built-in pair never saw in training, `per_task` of each kind, no prompt twice.

    The first ones are the same whatever `per_task` is. Raises BadInput for fewer than one, and without a kind.
    """
    kinds = tuple(kinds)
    if per_task < 1 or not kinds:
        raise PromptError(f"{per_task} exercises of {len(kinds)} kinds make no set. Ask for at least 1 of at least 1.")
    items = [item for kind in kinds for item in islice(_items(kind, seed), per_task)]
    return PromptSet(name=BUILTIN, items=tuple(items))


def per_task(prompts: int) -> int:
    """How many of each kind make so many prompts, or a few more."""
    return -(-prompts // len(Task))


def _items(kind: Task, seed: int) -> Iterator[PromptItem]:
    seen: set[str] = set()
    for instance in tasks.instances(kind, seed, held_out=True):
        if instance.prompt not in seen:
            seen.add(instance.prompt)
            name = f"{kind.value}-{seed}-{len(seen)}"
            yield PromptItem(name, kind.value, instance.prompt, instance.answer, grader="final-line")
