"""The options for a prompt set, which all commands that take prompts share.

Knows argparse and terminals; sets are read by `prompts`.
"""

from __future__ import annotations

import argparse

from mars_viz.chat import EncodedPrompt
from mars_viz.commands.decoding import note
from mars_viz.demo.prompts import STORIES
from mars_viz.demo.tasks import Task
from mars_viz.errors import SettingError
from mars_viz.prompts import Turns, builtin_prompts, kinds_named, load_prompts
from mars_viz.sweep.plan import set_notes

BUILTIN = "builtin"
"""What --set calls the built-in tasks."""
OF_EACH_TASK = 5
"""Built-in prompts of each task for a check, where no limit is given."""


def arguments(parser: argparse.ArgumentParser, default: str, limit: str) -> None:
    """Add the options for a set. The help says which prompts are taken without one, and what the limit does."""
    named = parser.add_mutually_exclusive_group()
    named.add_argument(
        "--set",
        metavar="SET",
        help=f"{BUILTIN}, some of its tasks ({BUILTIN}:counting,turns), or a file, gzipped or not: JSONL or a JSON "
        "list (Spec-Bench, GSM8K, MATH-500, MBPP, Alpaca, ShareGPT, OpenAI messages and batches and others: README), "
        f"or text with a prompt in each line (default: {default})",
    )
    named.add_argument("--prompts", dest="set", metavar="SET", help="the same as --set")
    parser.add_argument("--limit", type=int, metavar="N", help=limit)
    parser.add_argument("--skip-bad", action="store_true", help="skip invalid lines, and list them")


def check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for a set of which `first_turns` is taken."""
    arguments(parser, "stories", f"first N prompts of the set; built-in: N of each task ({OF_EACH_TASK})")


def builtin_kinds(named: str | None) -> tuple[Task, ...] | None:
    """The kinds of built-in tasks that --set names, all without it; None where it names a file. Raises PromptError."""
    name, separated, kinds = (named or BUILTIN).partition(":")
    return kinds_named(kinds) if name == BUILTIN and (kinds or not separated) else None


def first_turns(options: argparse.Namespace) -> list[EncodedPrompt]:
    """Return the prompts of the set, of conversations the first turns, and stories without a set. Notes about
    prompts that are left out go to standard error. Raises BadInput."""
    if options.limit is not None and options.limit < 1:
        raise SettingError(f"A limit of {options.limit} leaves no prompt; give at least 1.")
    if options.set is None:
        return [EncodedPrompt(story) for story in STORIES[: options.limit]]
    if (kinds := builtin_kinds(options.set)) is not None:
        found = builtin_prompts(OF_EACH_TASK if options.limit is None else options.limit, kinds=kinds)
    else:
        how = {"skip_bad": options.skip_bad, "limit": options.limit}
        found = load_prompts(options.set, grader="none", turns=Turns.FIRST, **how)
    for sentence in set_notes(found):
        note(sentence)
    return [EncodedPrompt(item.prompt, item.opening) for item in found.items]
