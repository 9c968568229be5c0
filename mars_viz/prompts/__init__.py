"""Prompt sets: prompts to decode, with answers and graders."""

from mars_viz.chat import Exchange, History
from mars_viz.prompts.builtin import BUILTIN, builtin_prompts, kinds_named, kinds_of, per_task, recognised
from mars_viz.prompts.files import HarnessTask, load_prompts, load_task, to_jsonl
from mars_viz.prompts.items import GRADERS, Grader, PromptItem, PromptSet, SkippedLine, Turns, grader_named

__all__ = [
    "BUILTIN",
    "GRADERS",
    "Exchange",
    "Grader",
    "HarnessTask",
    "History",
    "PromptItem",
    "PromptSet",
    "SkippedLine",
    "Turns",
    "builtin_prompts",
    "grader_named",
    "kinds_named",
    "kinds_of",
    "load_prompts",
    "load_task",
    "per_task",
    "recognised",
    "to_jsonl",
]
