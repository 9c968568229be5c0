"""The options for a prompt set, shared by all commands that take prompts."""

from __future__ import annotations

import argparse

from mars_viz.chat import EncodedPrompt
from mars_viz.commands.decoding import note
from mars_viz.demo.prompts import STORIES
from mars_viz.demo.tasks import Task
from mars_viz.errors import SettingError
from mars_viz.prompts import Turns, builtin_prompts, kinds_named, load_prompts
from mars_viz.sweep.plan import set_notes

BUILTIN = "builtin"  # the value of --set for the built-in tasks
OF_EACH_TASK = 5  # default number of built-in prompts per task for a check


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


def check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for a set for use with `first_turns`."""
    arguments(parser, "stories", f"first N prompts of the set; built-in: N of each task ({OF_EACH_TASK})")


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
