"""Prompt sets: prompts to decode, with answers and graders."""

from mars_viz.prompts.builtin import builtin_prompts, kinds_named, kinds_of, per_task, recognised
from mars_viz.prompts.files import HarnessTask, load_prompts, load_task, to_jsonl
from mars_viz.prompts.items import GRADERS, PromptItem, PromptSet, Turns, grader_named

__all__ = [
    "GRADERS",
    "HarnessTask",
    "PromptItem",
    "PromptSet",
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
