"""The options for a prompt set or a task of lm-evaluation-harness, shared by the commands that take prompts."""

from __future__ import annotations

import argparse

from mars_viz.chat import EncodedPrompt
from mars_viz.commands.decoding import add, note
from mars_viz.demo.prompts import STORIES
from mars_viz.demo.tasks import Task
from mars_viz.errors import SettingError
from mars_viz.prompts import HarnessTask, Turns, builtin_prompts, kinds_named, load_prompts, load_task
from mars_viz.run import Settings
from mars_viz.sweep.plan import set_notes

BUILTIN = "builtin"  # the value of --set for the built-in tasks
OF_EACH_TASK = 5  # default number of built-in prompts per task for a check
_REPLACED = ("set", "grader", "turns", "skip_bad", "stop")  # options that a task has itself


def arguments(parser: argparse.ArgumentParser, default: str, limit: str) -> None:
    """Add the options for a set; `default` and `limit` are parts of the help text."""
    named = parser.add_mutually_exclusive_group()
    named.add_argument(
        "--set",
        metavar="SET",
        help=f"{BUILTIN}, some of its tasks ({BUILTIN}:counting,turns), or a file, gzipped or not: JSONL or a "
        "JSON list (Spec-Bench, GSM8K, MATH-500, ShareGPT, OpenAI messages and more, see docs/tune.md), "
        f"or text with a prompt in each line (default: {default})",
    )
    named.add_argument("--prompts", dest="set", metavar="SET", help="the same as --set")
    parser.add_argument("--limit", type=int, metavar="N", help=limit)
    parser.add_argument("--skip-bad", action="store_true", help="skip invalid lines, and list them")


def builtin_kinds(named: str | None) -> tuple[Task, ...] | None:
    """Return the built-in tasks that --set names, all by default; None if it names a file. Raises PromptError."""
    name, separated, kinds = (named or BUILTIN).partition(":")
    return kinds_named(kinds) if name == BUILTIN and (kinds or not separated) else None


def first_turns(options: argparse.Namespace) -> list[EncodedPrompt]:
    """Return the first turns of the set, by default of the stories, and print notes. Raises BadInput."""
    if options.limit is not None and options.limit < 1:
        raise SettingError(f"A limit of {options.limit} leaves no prompt; give at least 1.")
    if options.set is None:
        return [EncodedPrompt(story) for story in STORIES[: options.limit]]
    if (kinds := builtin_kinds(options.set)) is not None:
        prompts = builtin_prompts(OF_EACH_TASK if options.limit is None else options.limit, kinds=kinds)
    else:
        keywords = {"skip_bad": options.skip_bad, "limit": options.limit}
        prompts = load_prompts(options.set, grader="none", turns=Turns.FIRST, **keywords)
    for sentence in set_notes(prompts):
        note(sentence)
    return [EncodedPrompt(item.prompt, item.opening) for item in prompts.items]


def task_arguments(parser: argparse.ArgumentParser) -> None:
    about = (
        "generate_until task of lm-evaluation-harness in place of --set, by name or as a YAML file, with its own "
        "prompts, stop strings, grading and, without --max-new-tokens, length limit (pip install mars-viz[eval]); a "
        "task may run Python code of its own, so name one that you trust; with --chat each whole prompt is one turn"
    )
    add(parser, "--task", about, metavar="TASK")
    add(parser, "--fewshot", "examples before each prompt (default: the task's)", type=int, metavar="N")
    about = "score of the task by which a text is right, such as exact_match or exact_match,flexible-extract (default: "
    add(
        parser,
        "--metric",
        f"{about}the first that is better the higher it is); the others are reported too",
        metavar="NAME",
    )


def check_task(options: argparse.Namespace) -> None:
    if options.task is None:
        for name in ("fewshot", "metric"):
            if getattr(options, name) is not None:
                raise SettingError(
                    f"--{name} is for a task of lm-evaluation-harness. Name one (--task), or leave it out."
                )
        return
    if given := next((name.replace("_", "-") for name in _REPLACED if getattr(options, name)), None):
        raise SettingError(f"A task has prompts, grading and stop strings of its own. Leave --{given} or --task out.")


def task_of(options: argparse.Namespace, settings: Settings) -> HarnessTask | None:
    """Return the requested task or None, and note if decoding deviates from it. Raises BadInput as `load_task`."""
    if options.task is None:
        return None
    task = load_task(options.task, fewshot=options.fewshot, metric=options.metric, limit=options.limit)
    if remark := task.remark(settings):
        note(remark)
    return task
