"""A task of lm-evaluation-harness as a prompt set, with few-shot examples, stop strings and length limit."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from mars_viz.errors import PromptError
from mars_viz.prompts import harness
from mars_viz.prompts.items import PromptItem, PromptSet
from mars_viz.run import Settings
from mars_viz.words import counted

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the length limit in tasks, by priority."""
LENGTH = 256  # the harness's default length limit in tokens


@dataclass(frozen=True, slots=True)
class HarnessTask:
    """A task as prompts and generation settings."""

    prompts: PromptSet  # the answer of each prompt is its document
    stop: tuple[str, ...]  # strings that end a text; removed before grading
    max_new_tokens: int
    temperature: float  # the task's temperature; 0 is greedy

    def settings(self, settings: Settings, max_new_tokens: int | None = None) -> Settings:
        """Return the settings with the task's stop strings, and its length limit by default.

        Raises BadInput for more or longer stop strings than supported.
        """
        return replace(settings, stop=self.stop, max_new_tokens=max_new_tokens or self.max_new_tokens)

    def remark(self, settings: Settings) -> str:
        """Return a sentence if decoding deviates from the task, otherwise an empty string."""
        if settings.temperature == self.temperature:
            return ""
        return f"The task asks for temperature {self.temperature:g}; this is decoded at {settings.temperature:g}."


def load_task(
    task: str, *, fewshot: int | None = None, metric: str | None = None, limit: int | None = None
) -> HarnessTask:
    """Return the first `limit` documents of a task, with prompts as the harness itself writes them.

    `task` is a name known to the harness, or a YAML file. `fewshot` is the number of examples before each prompt (None:
    the task's own). `metric` decides whether a text is right: 'exact_match' after the task's first filter, or
    'exact_match,flexible-extract' (None: the first metric for which higher is better). Raises PromptError if that is
    not possible, and as `harness.loaded`.
    """
    if limit is not None and limit < 1:
        raise PromptError(f"A set of {limit} prompts is none. Ask for at least 1.")
    task = os.path.abspath(os.path.expanduser(task)) if harness.names_file(task) else task
    loaded_task = harness.loaded(task)
    names = score_names(loaded_task)
    better = loaded_task.higher_is_better()
    usable = [name for name in names if better.get(name.partition(",")[0])]
    if not usable:
        raise PromptError(f"{task} has no metric that grades each text and is better the higher it is. Choose another.")
    score = next((name for name in usable if metric in (None, name, name.partition(",")[0])), None)
    if score is None:
        raise PromptError(f"{task} grades no text by {metric!r}. Choose one of {'; '.join(usable)}.")
    default = loaded_task.config.num_fewshot
    if fewshot is not None and fewshot < 0:
        raise PromptError(f"{fewshot} examples before a prompt are none. Ask for 0 or more.")
    if fewshot and default == 0:
        raise PromptError(f"{task} says that no examples stand before its prompts (num_fewshot: 0). Leave them out.")
    shots = (default or 0) if fewshot is None else fewshot
    requests = _asked(task, loaded_task, shots, limit)
    about = loaded_task.config.generation_kwargs or {}
    title, items = loaded_task.config.task, []
    for each in requests:
        prompt = each.args[0]
        if not isinstance(prompt, str) or not prompt.strip():
            raise PromptError(f"The prompt of document {each.doc_id} of {title} is blank or no text. Mend the task.")
        answer, grader = harness.document(each.doc), f"{harness.PREFIX}{task}:{score}"
        items.append(PromptItem(f"{title}-{each.doc_id}", title, prompt, answer, grader))
    name = f"{title}, {counted(shots, 'example')} in front, {score}, lm_eval {version('lm_eval')}"
    length = next((int(about[each]) for each in LENGTHS if about.get(each) is not None), LENGTH)
    drawn = float(about.get("temperature") or 0) if about.get("do_sample", True) else 0.0
    others = tuple(each for each in names if each != score)
    return HarnessTask(PromptSet(name, tuple(items), scores=others), harness.stop_strings(loaded_task), length, drawn)


def score_names(task: Any) -> tuple[str, ...]:
    """Return the task's scores of single texts: metrics that are averaged over texts, after each filter."""
    from lm_eval.api.metrics import mean

    metrics = [metric for metric, of in task.aggregation().items() if of is mean]
    names = [f"{metric},{each.name}" for each in task._filters for metric in metrics]
    return tuple(filter(harness.names_score, names))


def _asked(task: str, found: Any, shots: int, limit: int | None) -> list[Any]:
    """Return the harness's requests, one `Instance` per document."""
    default = found.config.num_fewshot
    try:
        with harness.quiet():
            found.set_config("num_fewshot", shots)
            found.set_fewshot_seed(harness.FEWSHOT_SEED)
            try:
                found.build_all_requests(limit=limit)
                requests = list(found.instances)
            finally:
                found.set_config("num_fewshot", default)
    except Exception as error:  # code and data of the task
        raise PromptError(f"{task} cannot write its prompts: {harness.reason(error)} Mend the task.") from error
    several = len({each.doc_id for each in requests}) < len(requests)
    if several or any(each.request_type != "generate_until" for each in requests):
        raise PromptError(f"{task} asks more than one text of a document, and a sweep grades one. Choose another task.")
    return requests
