"""A task of lm-evaluation-harness as a prompt set: its own prompts, few-shot examples included, its stop strings and
its length limit.

Knows prompt sets and, once a task is asked for, the harness; knows no models.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mars_viz.errors import PromptError
from mars_viz.prompts import harness
from mars_viz.prompts.items import PromptItem, PromptSet
from mars_viz.run import Settings
from mars_viz.words import counted

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""What tasks call their length limit, the first one counts."""
LENGTH = 256
"""Tokens at most where a task says nothing: the harness's default."""


@dataclass(frozen=True, slots=True)
class HarnessTask:
    """A task that can be swept."""

    prompts: PromptSet
    """Its prompts; the answer of each is the document that it was made of."""
    stop: tuple[str, ...]
    """What ends a text; a text is graded without it."""
    max_new_tokens: int
    """Its length limit."""
    temperature: float
    """At which the task wants texts drawn; 0 is greedy."""

    def settings(self, settings: Settings, max_new_tokens: int | None = None) -> Settings:
        """How the task's prompts are decoded; its own length limit where nobody asks for another. Raises BadInput for
        more or longer stop strings than decoding takes."""
        return replace(settings, stop=self.stop, max_new_tokens=max_new_tokens or self.max_new_tokens)

    def remark(self, settings: Settings) -> str:
        """What is decoded otherwise than the task says, as a sentence; empty where nothing is."""
        if settings.temperature == self.temperature:
            return ""
        return f"The task asks for temperature {self.temperature:g}; this is decoded at {settings.temperature:g}."


def load_task(
    task: str, *, fewshot: int | None = None, metric: str | None = None, limit: int | None = None
) -> HarnessTask:
    """The task as the harness itself would ask it, the first `limit` of its documents.

    `task` is a name that the harness has, or a YAML file. `fewshot` examples stand before each prompt (None: the
    task's own number). `metric` is what decides whether a text is right, 'exact_match' after the task's first filter or
    'exact_match,flexible-extract' (None: the first that is better the higher it is). Raises PromptError for what cannot
    be done, and as `harness.loaded`.
    """
    if limit is not None and limit < 1:
        raise PromptError(f"A set of {limit} prompts is none. Ask for at least 1.")
    task = os.path.abspath(os.path.expanduser(task)) if harness.names_file(task) else task
    found = harness.loaded(task)
    names = score_names(found)
    score = _deciding(task, found, names, metric)
    shots = _shots(task, found, fewshot)
    asked = _asked(task, found, shots, limit)
    about = found.config.generation_kwargs or {}
    grader = harness.grader_name(task, score)
    items = tuple(_item(found.config.task, grader, each) for each in asked)
    name = f"{found.config.task}, {counted(shots, 'example')} in front, {score}, lm_eval {_version()}"
    length = next((int(about[each]) for each in LENGTHS if about.get(each) is not None), LENGTH)
    drawn = float(about.get("temperature") or 0) if about.get("do_sample", True) else 0.0
    others = tuple(each for each in names if each != score)
    return HarnessTask(PromptSet(name, items, scores=others), harness.stop_strings(found), length, drawn)


def score_names(task: Any) -> tuple[str, ...]:
    """What the task gives each text for itself: its metrics that are a mean over texts, each after each filter."""
    from lm_eval.api.metrics import mean

    metrics = [metric for metric, of in task.aggregation().items() if of is mean]
    names = [f"{metric},{each.name}" for each in task._filters for metric in metrics]
    return tuple(filter(harness.names_score, names))


def _deciding(task: str, found: Any, names: Sequence[str], metric: str | None) -> str:
    better = found.higher_is_better()
    usable = [name for name in names if better.get(name.partition(",")[0])]
    if not usable:
        raise PromptError(f"{task} has no metric that grades each text and is better the higher it is. Choose another.")
    chosen = next((name for name in usable if metric in (None, name, name.partition(",")[0])), None)
    if chosen is None:
        raise PromptError(f"{task} grades no text by {metric!r}. Choose one of {'; '.join(usable)}.")
    return chosen


def _shots(task: str, found: Any, fewshot: int | None) -> int:
    own = found.config.num_fewshot
    if fewshot is not None and fewshot < 0:
        raise PromptError(f"{fewshot} examples before a prompt are none. Ask for 0 or more.")
    if fewshot and own == 0:
        raise PromptError(f"{task} says that no examples stand before its prompts (num_fewshot: 0). Leave them out.")
    return (own or 0) if fewshot is None else fewshot


def _asked(task: str, found: Any, shots: int, limit: int | None) -> list[Any]:
    """The harness's own requests, an `Instance` a document."""
    own = found.config.num_fewshot
    try:
        with harness.quiet():
            found.set_config("num_fewshot", shots)
            found.set_fewshot_seed(harness.FEWSHOT_SEED)
            try:
                found.build_all_requests(limit=limit)
                asked = list(found.instances)
            finally:
                found.set_config("num_fewshot", own)
    except Exception as error:  # the task's own code and data
        raise PromptError(f"{task} cannot write its prompts: {harness.reason(error)} Mend the task.") from error
    if any(each.request_type != "generate_until" for each in asked) or len({each.doc_id for each in asked}) < len(
        asked
    ):
        raise PromptError(f"{task} asks more than one text of a document, and a sweep grades one. Choose another task.")
    return asked


def _item(task: str, grader: str, asked: Any) -> PromptItem:
    prompt = asked.args[0]
    if not isinstance(prompt, str) or not prompt.strip():
        raise PromptError(f"The prompt of document {asked.doc_id} of {task} is blank or no text. Mend the task.")
    return PromptItem(f"{task}-{asked.doc_id}", task, prompt, harness.document(asked.doc), grader)


def _version() -> str:
    from importlib.metadata import version

    return version("lm_eval")
