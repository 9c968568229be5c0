"""Whether a prompt is one of the built-in exercises, and what its right answer is. Knows texts; knows no models."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice

from mars_viz.demo import tasks
from mars_viz.demo.tasks import Task

SEEDS = (2, 0, 1)
"""Of the sample runs, of the built-in prompt set, of the pair's own evaluation."""
SEARCHED = 300
"""Exercises of each kind and seed that are looked through."""
_BEGINS = {Task.ADDITION: "Add ", Task.SORTING: "Sort ", Task.QUESTION: "Story:"}


@lru_cache(maxsize=64)
def expected_answer(prompt: str) -> str | None:
    """The right answer of a built-in exercise; None for any other prompt, and for one that is not found again."""
    for kind, begins in _BEGINS.items():
        if not prompt.startswith(begins):
            continue
        for seed in SEEDS:
            for exercise in islice(tasks.instances(kind, seed, held_out=True), SEARCHED):
                if exercise.prompt.strip() == prompt.strip():
                    return exercise.answer
    return None
