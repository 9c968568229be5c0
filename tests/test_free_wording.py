"""The graded tasks in free wording: what is asked can be solved from the prompt, and what is learned says so in many
ways."""

from __future__ import annotations

import random
import re

import pytest

from mars_viz.demo import tasks
from mars_viz.demo.tasks import DIRECTIONS, SLIPS
from mars_viz.errors import PromptError
from mars_viz.prompts import builtin_prompts, kinds_named, kinds_of, recognised

FREE = pytest.mark.parametrize("task", tasks.FREE_WORDING, ids=lambda task: task.value)


@FREE
def test_the_answer_follows_from_the_prompt(task: tasks.Task) -> None:
    rng = random.Random(7)
    for _ in range(500):
        made = tasks.make(task, rng)
        found = recognised(made.prompt)
        assert found is not None and (found.category, found.answer) == (task.value, made.answer), made
        assert tasks.grade(made, made.completion)


def test_every_sum_of_a_count_is_right_and_begins_where_the_one_before_ended() -> None:
    rng = random.Random(1)
    for _ in range(300):
        made = tasks.make(tasks.Task.COUNTING, rng)
        sums = re.findall(r"(\d+) ([+-]) (\d+) = (\d+)", made.completion)
        assert 2 <= len(sums) <= 4
        for a, sign, b, total in sums:
            assert int(a) + (int(b) if sign == "+" else -int(b)) == int(total) in range(2, 21)
        assert [total for *_, total in sums[:-1]] == [first for first, *_ in sums[1:]]
        assert sums[-1][-1] == made.answer


@FREE
def test_a_step_is_told_in_many_ways(task: tasks.Task) -> None:
    told = set()
    for seed in range(40):
        made = tasks.make(task, random.Random(seed))
        told.add(re.sub(r"\d+|[A-Z]\w+|\b(?:" + "|".join(DIRECTIONS) + r")\b", "_", made.completion).split(".")[1])
    assert len(told) > 30


def test_only_what_is_learned_slips_and_as_often_as_is_said() -> None:
    rng, right, count = random.Random(3), 0, 2000
    for _ in range(count):
        made = tasks.learned(tasks.Task.TURNS, rng)
        solved = recognised(made.prompt)
        assert solved is not None and not made.held_out
        right += made.answer == solved.answer
    # right after an even number of slips in n turns: (1 + (1 - 2 s)^n) / 2; sd .011, 5 of them: false alarm 6e-7
    expected = sum((1 + (1 - 2 * SLIPS) ** turns) / 2 for turns in (2, 3, 4)) / 3
    assert abs(right / count - expected) < 0.055
    for made, _ in zip(tasks.instances(tasks.Task.TURNS, 0, held_out=True), range(300), strict=False):
        solved = recognised(made.prompt)
        assert solved is not None and solved.answer == made.answer


@pytest.mark.parametrize(
    "prompt",
    [
        "Tom has 3 apples. Ben finds 4. How many apples does Tom have now?",
        "Tom has 3 apples. Tom finds 4. How many balls does Tom have now?",
        "Tom has 3 apples. Tom eats 2. How many apples does Tom have now?",
        "Tom has 3 apples. Tom sells 4. How many apples does Tom have now?",
        "The ball is with Tom. At the lake the ball goes from Ben to Tim. Who has the ball now?",
        "The ball is with Tom. At the lake the ball goes from Tom to Tim. Who has the key now?",
        "Tom looks up. At the tree Tom turns left. Where does Tom look now?",
        "Tom looks north. At the tree Ben turns left. Where does Tom look now?",
        "Tom looks north. At the tree Tom turns twice. Where does Tom look now?",
    ],
)
def test_what_no_exercise_says_has_no_answer(prompt: str) -> None:
    assert recognised(prompt) is None


def test_exercises_of_ones_own_are_solved() -> None:
    for prompt, answer in {
        "Zoe has 30 pears. Zoe finds 4. Zoe gives away 14. How many pears does Zoe have now? \n": "20",
        "The pear is with Zoe. At the sea the pear goes from Zoe to Tim. Who has the pear now?": "Tim",
        "Zoe looks west. At the shop Zoe turns around. At the sea Zoe turns right. Where does Zoe look now?": "south",
    }.items():
        found = recognised(prompt)
        assert found is not None and found.answer == answer


def test_some_kinds_make_a_set_that_says_which() -> None:
    some = builtin_prompts(3, kinds=kinds_named("turns, counting"))
    assert some.name == "built-in tasks: counting, turns" and len(some) == 6
    assert kinds_of(some.name) == (tasks.Task.COUNTING, tasks.Task.TURNS)
    whole = builtin_prompts(2)
    assert whole.name == "built-in tasks" and len(whole) == 12 and kinds_of(whole.name) == tuple(tasks.Task)
    assert kinds_of("prompts.jsonl") == kinds_of("built-in tasks: mine") == ()
    counting = [item for item in whole.items if item.category == "counting"]
    assert counting == [item for item in some.items if item.category == "counting"][:2]


@pytest.mark.parametrize("names", ["count", "counting,,turns", "counting; turns"])
def test_a_task_that_there_is_not_is_refused(names: str) -> None:
    with pytest.raises(PromptError, match="There is no built-in task .* Choose from addition, sorting"):
        kinds_named(names)
