"""Form fields for a task of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.errors import SettingError
from mars_viz.prompts import HarnessTask, harness
from mars_viz.ui import theme, visitors
from mars_viz.ui.tune.sweep_requests import task_prompts

OWN = "Prompts, stop strings, length limit and grading are the task's own."
_AS_THE_TASK = -1


def fields() -> Callable[[], HarnessTask]:
    """Draw the fields. Returns a function that loads the task and raises BadInput."""
    if not harness.installed():
        problem = f"Tasks need lm-evaluation-harness, which is not installed. {harness.REMEDY}"
        theme.note(problem)
        return lambda: _refused(problem)
    paths = visitors.may_name_paths()
    task = st.text_input(
        "Task",
        key="sweep-task",
        max_chars=None if paths else 200,
        placeholder="gsm8k",
        help="A generate_until task of lm-evaluation-harness, by name"
        + (", or the whole path of a YAML file; its Python code, if it has any, runs on this machine" if paths else ""),
    )
    left, middle, right = st.columns(3)
    shots = left.number_input(
        "Examples before each prompt",
        _AS_THE_TASK,
        100,
        _AS_THE_TASK,
        key="sweep-fewshot",
        help=f"{_AS_THE_TASK} for as many as the task says",
    )
    metric = middle.text_input(
        "Right by",
        key="sweep-metric",
        placeholder="the task's first score",
        help="Such as exact_match, or exact_match,flexible-extract after that filter; the others are shown beside it",
    )
    limit = right.number_input("Max prompts", 0, 1_000_000, 0, key="sweep-task-limit", help="0 for all")
    st.caption(OWN)
    fewshot = None if shots == _AS_THE_TASK else int(shots)
    return lambda: task_prompts(task, fewshot, metric.strip() or None, int(limit) or None)


def _refused(problem: str) -> HarnessTask:
    raise SettingError(problem)
