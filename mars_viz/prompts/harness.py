"""Load tasks of lm-evaluation-harness (`lm_eval`) and grade texts with their filters and metrics.

The harness is an optional dependency, imported on first use of a task. A task may run Python code: users must trust the
tasks that they name.
"""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import lru_cache
from math import nan
from numbers import Real
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from mars_viz.errors import PromptError, disk_refusals
from mars_viz.words import clipped

PREFIX = "lm-eval:"  # prefix of graders that are tasks; the task, a colon and the deciding score follow
REMEDY = "Run: pip install mars-viz[eval]"
FEWSHOT_SEED = 1234  # the harness's default; it determines the few-shot examples
RANDOM_SEED, NUMPY_SEED = 0, 1234  # the harness's defaults for loading tasks
_SCORE = re.compile(r"[\w@.:/+ ()-]+,[\w@.:/+ ()-]+")
_SUFFIXES = (".yaml", ".yml")
_ONE_AT_A_TIME = RLock()
"""Held while a task is loaded or writes prompts, because tasks and random generators are shared."""
_log = logging.getLogger(__name__)


def installed() -> bool:
    """True if the harness can be imported."""
    return importlib.util.find_spec("lm_eval") is not None


def names_file(task: str) -> bool:
    """True if this names a YAML file rather than one of the harness's tasks."""
    return task.lower().endswith(_SUFFIXES) or bool(set(task) & set("/\\"))


def names_score(name: str) -> bool:
    """True for a valid score name: metric, comma and filter, without characters special to pages or terminals."""
    return len(name) <= 100 and _SCORE.fullmatch(name) is not None


def task_of(grader: str) -> str:
    """Return the task in the name of a grader; empty for other graders."""
    return grader.removeprefix(PREFIX).rpartition(":")[0] if grader.startswith(PREFIX) else ""


def usable(answer: str) -> bool:
    """True if this is a document of a task, as written by `document`; does not need the harness."""
    try:
        return isinstance(json.loads(answer), dict)
    except (ValueError, RecursionError):
        return False


def document(doc: Any) -> str:
    """Return a task's document as a prompt's answer. Raises PromptError if JSON cannot represent it."""
    try:
        written = json.dumps(doc, ensure_ascii=False)
        if isinstance(doc, dict) and json.loads(written) == doc:
            return written
    except (TypeError, ValueError):
        pass
    raise PromptError("The task's documents hold more than texts, numbers and lists, so they cannot be kept as JSON.")


def right(grader: str, answer: str, text: str) -> bool:
    """True if the score in the grader's name is 1. Raises PromptError unless it is 0 or 1, and as `scores`."""
    name = grader.rpartition(":")[2]
    score = scores(grader, answer, text).get(name, nan)
    if score not in (0, 1):
        raise PromptError(
            f"{task_of(grader)} gives a text the score {name} = {score:g}, but right is 1 and wrong is 0. Choose a "
            "score that is one of them (--metric)."
        )
    return bool(score)


@lru_cache(maxsize=64)  # the deciding score and the others are requested in turn
def scores(grader: str, answer: str, text: str) -> Mapping[str, float]:
    """Return the task's scores of this text by metric and filter, such as 'exact_match,strict-match'.

    Scores that are not numbers are omitted. Raises PromptError if the task cannot be loaded or its code fails.
    """
    task, doc = loaded(task_of(grader)), json.loads(answer)
    from lm_eval.api.instance import Instance

    instance = Instance("generate_until", doc, ("", {}), 0, (task.config.task, 0, 1), [cut(text, stop_strings(task))])
    values: dict[str, float] = {}
    try:
        for each in task._filters:
            each.apply([instance])
            for metric, score in task.process_results(doc, [instance.filtered_resps[each.name]]).items():
                if isinstance(score, Real | np.bool_):
                    values[f"{metric},{each.name}"] = float(score)
    except Exception as error:  # the task's own code
        raise PromptError(f"{task_of(grader)} cannot grade a text: {reason(error)} Mend the task.") from error
    return values


def cut(text: str, stop: Sequence[str]) -> str:
    """Return the text before its first stop string, as the harness passes it to a task."""
    for each in filter(None, stop):
        text = text.partition(each)[0]
    return text


def stop_strings(task: Any) -> tuple[str, ...]:
    """Return the task's own stop strings (`until`) that are not empty."""
    until = (task.config.generation_kwargs or {}).get("until") or []
    return tuple(filter(None, [until] if isinstance(until, str) else until))


def loaded(task: str) -> Any:
    """Return the harness's task of this name or YAML file; cached until the file changes.

    Raises PromptError if the harness is not installed, and for tasks that do not grade generated texts.
    """
    if not installed():
        raise PromptError(f"The task {task} needs lm-evaluation-harness, which is not installed. {REMEDY}")
    if not names_file(task):
        return _loaded(task, 0)
    if not task.lower().endswith(_SUFFIXES):
        raise PromptError(f"{task} is no YAML file by its name, which ends in {' or '.join(_SUFFIXES)}. Rename it.")
    with disk_refusals(task, "read", "Give the YAML file of a task.", PromptError):
        return _loaded(task, Path(task).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _loaded(task: str, changed: int) -> Any:
    """Load a task; `changed` is the file's modification time, as a cache key."""
    try:
        with quiet(), _seeded():
            manager = _index(own=not names_file(task))
            _check(task, manager)
            (loaded_task,) = manager.load(task)["tasks"].values()
    except PromptError:
        raise
    except Exception as error:  # third-party files, data sets and code
        _log.info("%s cannot be loaded", task, exc_info=True)
        raise PromptError(
            f"The task {task} cannot be loaded: {reason(error)} Mend the task, or see that its data is there."
        ) from error
    if loaded_task.OUTPUT_TYPE != "generate_until":
        raise PromptError(f"{task} {_no_text(loaded_task.OUTPUT_TYPE)}")
    return loaded_task


@lru_cache(maxsize=2)  # slow: it reads about ten thousand files
def _index(own: bool) -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager(include_defaults=own)


def _check(task: str, manager: Any) -> None:
    """Raise PromptError unless one text answers one prompt of the task. Reads its YAML, before running code or loading
    data."""
    from lm_eval.tasks._yaml_loader import load_yaml

    entry = None if names_file(task) else manager.task_index.get(task)
    if names_file(task):
        config = load_yaml(task, resolve_func=False)
        if "task" not in config and "group" not in config:
            raise PromptError(f"{task} has no 'task'. Give the YAML file of a task.")
    elif entry is None:
        raise PromptError(
            f"lm-evaluation-harness has no task {task!r}. `lm_eval ls tasks` lists them; a YAML file's name ends in "
            ".yaml."
        )
    else:
        config = {"group": task} if entry.kind.name in ("GROUP", "TAG") else dict(entry.cfg or {})
    kind, texts = config.get("output_type", "generate_until"), config.get("repeats", 1)
    group = "is a group of tasks, and a sweep grades one. Name one of its tasks."
    refusals = (
        ("group" in config or isinstance(config.get("task"), list), group),
        (kind != "generate_until", _no_text(kind)),
        (config.get("unsafe_code"), "runs the code that a model writes, which is not done here. Choose another task."),
        (texts != 1, f"grades {texts} texts of each prompt together. Set repeats to 1 in a copy of its YAML file."),
        (
            config.get("doc_to_image") or config.get("doc_to_audio"),
            "asks about images or sounds, and models here read texts.",
        ),
    )
    for refused, why in refusals:
        if refused:
            raise PromptError(f"{task} {why}")


def _no_text(kind: str) -> str:
    return (
        f"is a {kind} task, which compares probabilities of given texts: a verification rule changes nothing there. "
        "Choose a generate_until task."
    )


def reason(error: Exception) -> str:
    """Format an exception of the harness or a task as one line."""
    words = " ".join(str(error.args[0] if isinstance(error, KeyError) and error.args else error).split())
    return f"{type(error).__name__}{f': {clipped(words, 300)}' if words else ''}".rstrip(".…") + "."


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the harness's progress bars and log messages, and hold the lock on it."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        with _ONE_AT_A_TIME, redirect_stderr(io.StringIO()):
            yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed the random generators as the harness does for loading, and restore them afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(RANDOM_SEED)
    np.random.seed(NUMPY_SEED)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
