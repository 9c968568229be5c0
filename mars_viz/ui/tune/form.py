"""Form for a new sweep, and for more prompts in a finished one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NoReturn

import streamlit as st

from mars_viz import default_folders
from mars_viz.axis import Threshold
from mars_viz.controllers import LENGTH, NONE, control_named
from mars_viz.demo.tasks import Task
from mars_viz.errors import SettingError
from mars_viz.escapes import markdown
from mars_viz.prompts import GRADERS, HarnessTask, PromptSet, Turns, builtin_prompts, harness
from mars_viz.rules import RULES, Fixed, Rule, rule_named
from mars_viz.runstore import LONGEST_NAME
from mars_viz.shapes import CHAIN
from mars_viz.sweep.grid import grid_values, neighbours
from mars_viz.sweep.plan import ALL_TURNS, AS_TEXT
from mars_viz.ui import decode_form, tab_jobs, theme, visitors
from mars_viz.ui.decode_form import START, dial_slider, draft_fields, fixed_inputs, other_fields
from mars_viz.ui.models_form import in_words
from mars_viz.ui.session import current_session
from mars_viz.ui.tune import sweep_requests
from mars_viz.ui.tune.sweep_requests import DIALLED, SweepRequest
from mars_viz.words import exactly

BUILTIN, FILE, TASK = "Built-in tasks", "My own file", "Harness task"
SOURCES = (BUILTIN, FILE, TASK)
BY_LINE = "as each line says"
DIALS, LENGTHS = "Rule's dial", "Draft length γ"
OWN = "Prompts, stop strings, length limit and grading are the task's own."


def task_fields() -> Callable[[], HarnessTask]:
    """Draw the fields of a task of lm-evaluation-harness. Returns a function that loads it and raises BadInput."""
    if not harness.installed():
        problem = f"Tasks need lm-evaluation-harness, which is not installed. {harness.REMEDY}"
        theme.note(problem)
        return partial(_refuse, problem)
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
        "Examples before each prompt", -1, 100, -1, key="sweep-fewshot", help="-1 for as many as the task says"
    )
    metric = middle.text_input(
        "Right by",
        key="sweep-metric",
        placeholder="the task's first score",
        help="Such as exact_match, or exact_match,flexible-extract after that filter; the others are shown too",
    )
    limit = right.number_input("Max prompts", 0, 1_000_000, 0, key="sweep-task-limit", help="0 for all")
    st.caption(OWN)
    fewshot = None if shots == -1 else int(shots)
    return lambda: sweep_requests.task_prompts(task, fewshot, metric.strip() or None, int(limit) or None)


def _refuse(problem: str) -> NoReturn:
    raise SettingError(problem)


def form(results: Path) -> tuple[Callable[[], SweepRequest], str]:
    """Draw the form. Returns a function that makes the request and raises BadInput, and the results folder as written.
    `results` is the current folder."""
    models = current_session().models
    prompts = _prompts()
    rules = st.multiselect(
        "Rules",
        DIALLED,
        ["mars"],
        key="sweep-rules",
        format_func=lambda name: RULES[name].title,
        placeholder="Choose rules",
        help="One sweep each, which can be overlaid. Each covers the rule's dial from strict to its other end, or to "
        "the value set below.",
    )
    variants = {name: _variants(RULES[name]) for name in rules if RULES[name].fixed}
    with st.expander("Dial range, settings and folder"):
        ranges = st.container()  # above the settings, one of which determines what is swept
        start, tree, policy, controller = draft_fields([RULES[name] for name in rules], "sweep-")
        over, thresholds = _over(controller, tree)
        settings = other_fields(tree, "sweep-", start, 3, controller=NONE if over else controller)
        with ranges:
            loosest, at = {} if over else _loosest(rules), {}
            for name in rules if over else ():
                value = dial_slider(RULES[name], f"sweep-stands-{name}")
                assert value is not None  # all in DIALLED have a dial
                at[name] = value
        theme.small(f"By the models that are chosen at the top: {in_words(models)}.")
        chat, system = decode_form.chat_fields(tab_jobs.has_template(models), prefix="sweep-")
        folder = _folder(results)

    def make_request() -> SweepRequest:
        variant_names = {family: names() for family, names in variants.items()}
        named = [rule_named(name) for family in rules for name in variant_names.get(family, (family,))]
        names = tuple(decode_form.choosing(rule, policy).name for rule in named)
        chosen, prompt_set = settings(), prompts()
        if isinstance(prompt_set, HarnessTask):
            chosen, prompt_set = prompt_set.settings(chosen), prompt_set.prompts
        prompt_set = prompt_set.with_system(system)
        return SweepRequest(prompt_set, names, chosen, models, chat, loosest, over, thresholds(), at)

    return make_request, folder


def _folder(results: Path) -> str:
    paths = visitors.may_name_paths()
    return st.text_input(
        "Folder for results",
        str(results) if results != default_folders.sweeps() else "",
        key="sweep-folder",
        max_chars=None if paths else LONGEST_NAME,
        placeholder=str(default_folders.sweeps()) if paths else "the server's",
        help=("A name, or the whole path of a folder of this machine" if paths else "A name")
        + "; empty for the server's own folder. Each sweep gets its own folder there: sweep.json, the prompts, and "
        "Parquet data sets of figures and texts.",
    )


def _variants(rule: Rule) -> Callable[[], tuple[str, ...]]:
    """Draw the fields of a rule's fixed settings. Returns a function that returns the names of its variants, the chosen
    one first, and raises BadInput for an invalid list."""
    theme.small(f"{rule.title}:")
    left, right = st.columns(2)
    with left:
        chosen = fixed_inputs(rule, "sweep-fixed")
    swept = rule.dial.symbol if rule.dial else "its dial"
    listed = {}
    for each in rule.fixed:
        key, grid = f"sweep-also-{rule.family}-{each.key}", f"and a grid of {each.symbol} and {swept}"
        listed[each.key] = _more_values(right, each, key, grid)

    def names() -> tuple[str, ...]:
        more = [chosen.varied({key: value}).name for key, values in listed.items() for value in values()]
        return tuple(dict.fromkeys([chosen.name, *more]))

    return names


def _more_values(place: Any, each: Fixed, key: str, grid: str) -> Callable[[], tuple[float, ...]]:
    """Draw the field for more values of a setting. Returns a function that reads them and raises BadInput."""
    listed = place.text_input(
        f"Also with {markdown(each.symbol)} =",
        key=key,
        placeholder=", ".join(each.written(value) for value in neighbours(each)),
        help=markdown(
            f"More values of {each.symbol}, separated by commas: one sweep each on the same prompts, {grid} in the "
            "evidence. They share the models' answers."
        ),
    )
    return lambda: grid_values(each, listed) if listed.strip() else ()


def _loosest(rules: Sequence[str]) -> dict[str, float]:
    """Draw the loosest value of each rule's dial. A sweep begins at strict, with which all settings are compared."""
    ends = {}
    for name, column in zip(rules, cycle(st.columns(2)), strict=False):
        rule, dial = RULES[name], RULES[name].dial
        assert dial is not None  # all in DIALLED have a dial
        ends[name] = column.number_input(
            markdown(f"{rule.title}: loosest {dial.symbol}"),
            dial.low,
            dial.high,
            dial.low if rule.strict_is_high else dial.high,
            dial.step,
            format="%.0f" if dial.step >= 1 else "%.3f",
            key=f"sweep-loosest-{name}",
            help=markdown(f"Swept from {dial.strict:g}, which is strict. The default is {exactly(dial.default)}."),
        )
    return ends


def _prompts() -> Callable[[], PromptSet | HarnessTask]:
    source = st.segmented_control(
        "Prompts", SOURCES, default=BUILTIN, required=True, key="sweep-source", label_visibility="collapsed"
    )
    if source == TASK:
        return task_fields()
    if source == BUILTIN:
        kinds = st.multiselect(
            "Tasks",
            list(Task),
            list(Task),
            key="sweep-tasks",
            format_func=lambda task: task.value.capitalize(),
            placeholder="Choose tasks",
            help="All graded and held out from training. Counting, holders and turns are reasoned out in free wording, "
            "so that a relaxed rule has something to gain; additions, sorted lists and questions have one wording.",
        )
        bounds = 1, sweep_requests.PER_TASK_MOST, sweep_requests.FIRST_PER_TASK
        count = int(st.number_input("Prompts of each task", *bounds, key="sweep-count"))
        return lambda: builtin_prompts(count, kinds=kinds)
    return _file()


def _file() -> Callable[[], PromptSet]:
    upload = st.file_uploader(
        "File of prompts",
        key="sweep-file",
        max_upload_size=50,
        help="JSONL or a JSON list of a known form (Spec-Bench, ShareGPT, OpenAI messages, GSM8K and others), or text "
        "with a prompt in each line; gzipped or not",
    )
    turns = st.segmented_control(
        "Conversations",
        list(Turns),
        default=Turns.ALL,
        required=True,
        key="sweep-turns",
        format_func=lambda turns: "Every turn" if turns is Turns.ALL else "First turn only",
    )
    st.caption(f"{ALL_TURNS} {AS_TEXT}" if turns is Turns.ALL else "Later turns are left out, and counted.")
    left, right = st.columns(2)
    grader = left.selectbox(
        "Grader",
        [BY_LINE, *GRADERS],
        key="sweep-grader",
        format_func=lambda name: name if name == BY_LINE else f"{name}: {GRADERS[name].summary}",
        help="For lines that have an answer and name no grader",
    )
    limit = right.number_input(
        "Max prompts", 0, 1_000_000, 0, key="sweep-limit",
        help="0 for all; tasks are taken in turn, and a conversation counts as one",
    )  # fmt: skip
    skip = st.checkbox("Skip invalid lines and list them", key="sweep-skip")
    if upload is None:
        return partial(_refuse, "Choose a file of prompts first, or sweep the built-in tasks.")
    name, data, named = upload.name, upload.getvalue(), None if grader == BY_LINE else grader
    return lambda: sweep_requests.uploaded_prompts(name, data, named, skip, int(limit) or None, turns)


def _over(controller: str, tree: str) -> tuple[str, Callable[[], tuple[float, ...]]]:
    """Draw the choice of the swept axis: the rules' dials, the draft length, or the threshold of a chosen controller.
    Returns the controller whose threshold is swept, empty for the dials, and a function that returns additional
    thresholds and raises BadInput for an invalid list."""
    if tree != CHAIN:
        return "", tuple
    control = control_named(controller)
    swept = LENGTH if control is None else control.controller
    threshold = LENGTHS if control is None else f"Threshold {swept.dial.symbol}"
    chosen = st.segmented_control(
        "Sweep over",
        [threshold, DIALS][:: 1 if control else -1],
        default=threshold if control else DIALS,
        required=True,
        key="sweep-over" if control else "sweep-over-length",  # each keeps its own choice
        format_func=lambda name: markdown(str(name)),
        help="The rule's dial; or, at one value of it and from drafts of full length, every draft length up to γ, or "
        "every threshold of a draft-length controller",
    )
    if chosen != DIALS:
        return swept.name, tuple
    if control is None:
        return "", tuple
    setting = Threshold(control.controller, START.gamma).setting
    grid = f"one of full drafts, and a grid of {setting.symbol} and the dial"
    return "", _more_values(st, setting, "sweep-thresholds", grid)
