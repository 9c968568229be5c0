"""`mars-viz sweep --task`: a task of lm-evaluation-harness in place of a prompt set."""

from __future__ import annotations

import argparse

from mars_viz.commands.decoding import note
from mars_viz.errors import SettingError
from mars_viz.prompts import HarnessTask, load_task
from mars_viz.run import Settings

_REPLACED = {
    "set": "prompts",
    "grader": "grading",
    "turns": "prompts",
    "skip_bad": "prompts",
    "stop": "stop strings",
}
"""Options of a prompt set, and the part of a task that replaces each."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for a task."""
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="generate_until task of lm-evaluation-harness in place of --set, by name or as a YAML file, with its own "
        "prompts, stop strings, grading and, without --max-new-tokens, length limit (pip install mars-viz[eval]); a "
        "task may run Python code of its own, so name one that you trust; with --chat each whole prompt is one turn",
    )
    parser.add_argument("--fewshot", type=int, metavar="N", help="examples before each prompt (default: the task's)")
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="score of the task by which a text is right, such as exact_match or exact_match,flexible-extract "
        "(default: the first that is better the higher it is); the others are reported beside it",
    )


def check(options: argparse.Namespace) -> None:
    """Raise BadInput for options that conflict."""
    if options.task is None:
        for name in ("fewshot", "metric"):
            if getattr(options, name) is not None:
                raise SettingError(
                    f"--{name} is for a task of lm-evaluation-harness. Name one (--task), or leave it out."
                )
        return
    for name, part in _REPLACED.items():
        if getattr(options, name):
            raise SettingError(f"A task has {part} of its own. Leave --{name.replace('_', '-')} or --task out.")


def task_of(options: argparse.Namespace, settings: Settings) -> HarnessTask | None:
    """Return the requested task or None, and note if decoding deviates from it. Raises BadInput as `load_task`."""
    if options.task is None:
        return None
    task = loaded(options, options.limit)
    if remark := task.remark(settings):
        note(remark)
    return task


def loaded(options: argparse.Namespace, limit: int | None = None) -> HarnessTask:
    """Return the task with its first `limit` prompts. Raises BadInput as `load_task`."""
    return load_task(options.task, fewshot=options.fewshot, metric=options.metric, limit=limit)
