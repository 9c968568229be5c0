"""lm-evaluation-harness (`lm_eval`) as a grader: a task of its is loaded by name or from a YAML file, and grades a text
with its own filters and metrics.

Knows texts and the harness, an extra that is imported when a task is first asked for and never before; knows no prompt
sets and no models. A task may run Python code of its own: whoever names one trusts it.
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

from mars_viz.errors import PromptError

PREFIX = "lm-eval:"
"""What the name of a grader begins with that is a task's; the task follows, and after a last colon what decides."""
REMEDY = "Run: pip install mars-viz[eval]"
"""How the harness is installed."""
FEWSHOT_SEED = 1234
"""The harness's default; the examples in front of each prompt hang on it."""
RANDOM_SEED, NUMPY_SEED = 0, 1234
"""Its defaults too, in force while it loads a task."""
_SCORE = re.compile(r"[\w@.:/+ ()-]+,[\w@.:/+ ()-]+")
_SUFFIXES = (".yaml", ".yml")
_ONE_AT_A_TIME = RLock()
"""Held by whoever loads a task or has it write its prompts: tasks and their random generators are shared."""
_log = logging.getLogger(__name__)


def installed() -> bool:
    """True if the harness can be imported."""
    return importlib.util.find_spec("lm_eval") is not None


def names_file(task: str) -> bool:
    """True if this names a YAML file rather than a task that the harness has."""
    return task.lower().endswith(_SUFFIXES) or bool(set(task) & set("/\\"))


def grader_name(task: str, score: str) -> str:
    """How the grader is called that calls a text right where this score of the task is 1."""
    return f"{PREFIX}{task}:{score}"


def names_score(name: str) -> bool:
    """True if a score may be called so: its metric, a comma, and its filter, in plain letters that mean nothing in a
    page or a terminal."""
    return len(name) <= 100 and _SCORE.fullmatch(name) is not None


def task_of(grader: str) -> str:
    """The task in the name of a grader; empty for a grader that is none."""
    return grader.removeprefix(PREFIX).rpartition(":")[0] if grader.startswith(PREFIX) else ""


def usable(answer: str) -> bool:
    """True if this is a document of a task, as `document` writes it; the harness is not asked."""
    try:
        return isinstance(json.loads(answer), dict)
    except (ValueError, RecursionError):
        return False


def document(doc: Any) -> str:
    """A task's document as a prompt's answer, from which it is graded later. Raises PromptError for one that cannot be
    written as JSON and read back."""
    try:
        written = json.dumps(doc, ensure_ascii=False)
        if isinstance(doc, dict) and json.loads(written) == doc:
            return written
    except (TypeError, ValueError):
        pass
    raise PromptError("The task's documents hold more than texts, numbers and lists, so they cannot be kept as JSON.")


def right(grader: str, answer: str, text: str) -> bool:
    """True if the score that the grader's name says is 1 for this text. Raises PromptError where it is neither 0 nor
    1, and as `scores` does."""
    name = grader.rpartition(":")[2]
    found = scores(grader, answer, text).get(name, nan)
    if found not in (0, 1):
        raise PromptError(
            f"{task_of(grader)} gives a text the score {name} = {found:g}, but right is 1 and wrong is 0. Choose a "
            "score that is one of them (--metric)."
        )
    return bool(found)


@lru_cache(maxsize=64)  # the score that decides and the others are asked for one after the other
def scores(grader: str, answer: str, text: str) -> Mapping[str, float]:
    """What the task gives this text: each metric after each of its filters, by name, such as
    'exact_match,strict-match'; a score that is no number is left out. Raises PromptError where the task cannot be
    loaded, or its own code fails."""
    task, doc = loaded(task_of(grader)), json.loads(answer)
    from lm_eval.api.instance import Instance

    asked = Instance("generate_until", doc, ("", {}), 0, (task.config.task, 0, 1), [cut(text, stop_strings(task))])
    found: dict[str, float] = {}
    try:
        for each in task._filters:
            each.apply([asked])
            for metric, score in task.process_results(doc, [asked.filtered_resps[each.name]]).items():
                if isinstance(score, Real | np.bool_):
                    found[f"{metric},{each.name}"] = float(score)
    except Exception as error:  # the task's own code
        raise PromptError(f"{task_of(grader)} cannot grade a text: {reason(error)} Mend the task.") from error
    return found


def cut(text: str, stop: Sequence[str]) -> str:
    """The text before its first stop string, as the harness hands it to a task."""
    for each in filter(None, stop):
        text = text.partition(each)[0]
    return text


def stop_strings(task: Any) -> tuple[str, ...]:
    """The task's own (`until`); empty ones, which end nothing, are left out."""
    until = (task.config.generation_kwargs or {}).get("until") or []
    return tuple(filter(None, [until] if isinstance(until, str) else until))


def loaded(task: str) -> Any:
    """The harness's task of this name, or of this YAML file; the same object until the file changes. Raises PromptError
    where the harness is not installed, and for what is no task that a text can be written for."""
    if not installed():
        raise PromptError(f"The task {task} needs lm-evaluation-harness, which is not installed. {REMEDY}")
    if not names_file(task):
        return _loaded(task, 0)
    if not task.lower().endswith(_SUFFIXES):
        raise PromptError(f"{task} is no YAML file by its name, which ends in {' or '.join(_SUFFIXES)}. Rename it.")
    try:
        return _loaded(task, Path(task).stat().st_mtime_ns)
    except OSError as error:
        raise PromptError(f"{task} cannot be read ({error.strerror}). Give the YAML file of a task.") from error


@lru_cache(maxsize=4)
def _loaded(task: str, changed: int) -> Any:
    """`changed` says when the file was."""
    try:
        with quiet(), _seeded():
            manager = _index(own=not names_file(task))
            _check(task, _configured(manager, task))
            (found,) = manager.load(task)["tasks"].values()
    except PromptError:
        raise
    except Exception as error:  # files, data sets and code of strangers
        _log.info("%s cannot be loaded", task, exc_info=True)
        raise PromptError(
            f"The task {task} cannot be loaded: {reason(error)} Mend the task, or see that its data is there."
        ) from error
    if found.OUTPUT_TYPE != "generate_until":
        raise PromptError(_no_text(task, found.OUTPUT_TYPE))
    return found


@lru_cache(maxsize=2)  # reading some ten thousand files takes it a while
def _index(own: bool) -> Any:
    """The harness's list of the tasks that it has itself, or an empty one."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_defaults=own)


def _configured(manager: Any, task: str) -> dict[str, Any]:
    """What the task's YAML says, before any of its code is run or its data is fetched."""
    from lm_eval.tasks._yaml_loader import load_yaml

    if names_file(task):
        found: dict[str, Any] = load_yaml(task, resolve_func=False)
        if "task" not in found and "group" not in found:
            raise PromptError(f"{task} has no 'task'. Give the YAML file of a task.")
        return found
    entry = manager.task_index.get(task)
    if entry is None:
        raise PromptError(
            f"lm-evaluation-harness has no task {task!r}. `lm_eval ls tasks` lists them; a YAML file's name ends in "
            ".yaml."
        )
    return {"group": task} if entry.kind.name in ("GROUP", "TAG") else dict(entry.cfg or {})


def _check(task: str, config: Mapping[str, Any]) -> None:
    """Raise PromptError for what is no task that one text after one prompt answers."""
    if "group" in config or isinstance(config.get("task"), list):
        raise PromptError(f"{task} is a group of tasks, and a sweep grades one. Name one of its tasks.")
    kind = config.get("output_type", "generate_until")
    if kind != "generate_until":
        raise PromptError(_no_text(task, kind))
    if config.get("unsafe_code"):
        raise PromptError(f"{task} runs the code that a model writes, which is not done here. Choose another task.")
    if config.get("repeats", 1) != 1:
        raise PromptError(
            f"{task} grades {config['repeats']} texts of each prompt together (repeats), and a setting has one. Set "
            "repeats to 1 in a copy of its YAML file."
        )
    if config.get("doc_to_image") or config.get("doc_to_audio"):
        raise PromptError(f"{task} asks about images or sounds, and models here read texts. Choose another task.")


def _no_text(task: str, kind: str) -> str:
    return (
        f"{task} is a {kind} task, which compares probabilities of given texts: a verification rule changes nothing "
        "there. Choose a generate_until task."
    )


def reason(error: Exception) -> str:
    """An exception of the harness, or of a task, as a sentence of one line."""
    words = " ".join(str(error.args[0] if isinstance(error, KeyError) and error.args else error).split())
    words = words if len(words) <= 300 else f"{words[:299]}…"
    return f"{type(error).__name__}{f': {words}' if words else ''}".rstrip(".…") + "."


@contextmanager
def quiet() -> Iterator[None]:
    """Without the harness's progress bars and remarks, which nobody can do anything about here, and alone with it."""
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
    """With the random generators as the harness sets them before it loads a task, and afterwards as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(RANDOM_SEED)
    np.random.seed(NUMPY_SEED)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
