"""Checks requests for sweeps and submits them to the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

from mars_viz import default_folders
from mars_viz.axis import RuleDial, Span, Threshold
from mars_viz.backend_choice import BackendChoice
from mars_viz.controllers import CONTROLLERS
from mars_viz.errors import RunFileError, SettingError, StorageError
from mars_viz.locks import check_nobody
from mars_viz.permissions import PATHS
from mars_viz.prompts import HarnessTask, PromptSet, Turns, builtin_prompts, harness, load_prompts, load_task
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Settings
from mars_viz.runstore import checked_name
from mars_viz.samples import is_sample_sweep
from mars_viz.speculators.names import pair_named
from mars_viz.sweep import Plan, SweepResult
from mars_viz.sweep.grid import MOST
from mars_viz.sweep.store import SweepEntry, holds_sweep, open_store
from mars_viz.sweep.sweep import sweep_prompts
from mars_viz.sweep.wall_clock import WallClock, clock_options, keep_check
from mars_viz.ui import tab_jobs, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.jobs.models import Job, Report, background_task, models_that_made
from mars_viz.ui.session import current_session
from mars_viz.ui.tune.catalogue import jobs_in, new_folder, sweep_job, sweep_label, timed_check
from mars_viz.words import exact_setting

DIALLED = tuple(name for name, rule in RULES.items() if rule.dial is not None)  # rules that can be swept
FIRST_PER_TASK = 50  # of the first sweep: enough prompts to detect a loss of one point, in about a minute
PER_TASK_MOST = 2_000


Upload = tuple[str, bytes]  # name sent by the browser, which is not trustworthy, and contents of a file


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """Sweeps to begin, one per rule. Variants of a rule run as one job. By default a small one of built-in tasks."""

    prompts: PromptSet = field(default_factory=partial(builtin_prompts, FIRST_PER_TASK))
    rules: tuple[str, ...] = ("mars",)  # names of rules with a dial, including variants
    settings: Settings = Settings()  # settings without the rule
    choice: BackendChoice = BackendChoice()
    chat: bool | None = None  # False to skip the target's chat template; None to use it if there is one
    loosest: Mapping[str, float] = field(default_factory=dict)
    """The end of the dial's range, by rule; missing rules use the full range."""
    over: str = ""  # name of the controller whose threshold is swept in place of the rules' dials; empty for none
    thresholds: tuple[float, ...] = ()
    """Thresholds of the settings' controller; the rules' dials are swept with drafts cut at each of them."""
    at: Mapping[str, float] = field(default_factory=dict)
    """The dial's value by rule while a controller's threshold is swept; missing rules use the default."""


def uploaded_prompts(
    upload: Upload, grader: str | None, skip_bad: bool, limit: int | None, turns: Turns = Turns.ALL
) -> PromptSet:
    """Return the file as a prompt set. Raises BadInput as `load_prompts` does, with the file's original name."""
    name = PurePosixPath(upload[0].replace("\\", "/")).name.lstrip(".")[-100:]
    name = "".join(letter for letter in name if letter.isprintable()) or "prompts.jsonl"
    return load_prompts(name, data=upload[1], grader=grader, skip_bad=skip_bad, limit=limit, turns=turns)


def task_prompts(task: str, fewshot: int | None, metric: str | None, limit: int | None) -> HarnessTask:
    """Return a task of lm-evaluation-harness. Raises like `load_task`, and if the visitor may not name files."""
    if not (task := task.strip()):
        raise SettingError("Name a task of lm-evaluation-harness first, or sweep the built-in tasks.")
    _check_file(task)
    return load_task(task, fewshot=fewshot, metric=metric, limit=limit)


def _check_file(task: str) -> None:
    """Raise SettingError for a task's file, which may run code, if the visitor may not name paths."""
    if harness.names_file(task) and not visitors.may_name_paths():
        raise SettingError(
            "Name a task that lm-evaluation-harness has itself. Files of tasks work with `mars-viz sweep "
            f"--task`, and on servers that let visitors name paths ({PATHS})."
        )


def checked_folder(text: str) -> tuple[Path, Path]:
    """Return the folder for new sweeps and the results folder that contains it. A name is in the server's folder; only
    some visitors may give a path. Raises BadInput for invalid folders."""
    text, results = text.strip(), default_folders.sweeps()
    if not text:
        return results, results
    if set(text) & set("/\\") or text.startswith("~"):
        if not visitors.may_name_paths():
            raise SettingError(
                "Name a folder for results without a path: it is made in the server's own. Paths work with "
                f"`mars-viz sweep --out`, and on servers that let visitors name them ({PATHS})."
            )
        try:
            path = Path(text).expanduser()
            if not path.is_absolute() or not text.isprintable():
                raise SettingError("Name the folder for results by its whole path, such as /home/me/sweeps.")
            if path.exists() and not path.is_dir():
                raise StorageError(f"{path} is a file. Choose another folder for results.")
        except (OSError, RuntimeError) as error:  # an unknown user's home
            raise RunFileError(f"{text} cannot be looked at ({error}). Choose another folder for results.") from error
        return path, path
    into = results / checked_name(text, "folder")
    if holds_sweep(into) or (into.exists() and not into.is_dir()):
        raise SettingError(f"{into.name} is a sweep or a file itself. Choose another name for the folder.")
    return into, results


def begin(request: SweepRequest, results: Path, into: Path | None = None) -> list[str]:
    """Submit the sweeps and return their ids relative to `results`. They are saved in `results`, or in its subfolder
    `into`. Raises BadInput for invalid requests."""
    rights.check_sweeps()
    if not request.rules:
        raise SettingError("Choose at least one rule to sweep.")
    families: dict[str, list[str]] = {}
    for name in request.rules:
        families.setdefault(rule_named(name).family, []).append(name)
    gamma = request.settings.gamma
    spans = {family: span_to(family, request.loosest.get(family), gamma) for family in families if not request.over}
    if request.over:
        if request.settings.drafts_trees:
            raise SettingError("Draft-length controllers cut chains; choose Draft: Chain.")
        spans = dict.fromkeys(families, Threshold(CONTROLLERS.named(request.over), gamma).span(None, None, (gamma,)))
    if max(map(len, families.values())) * len(_cut(request)) > MOST:
        raise SettingError(f"A grid has at most {MOST} sweeps; list fewer values.")
    for name in request.rules:
        pair, settings = pair_named(request.choice.target, request.choice.drafter), replace(request.settings, rule=name)
        pair.check(settings)
        pair.check(replace(request.settings, controller=request.over or request.settings.controller))
    into = into or results
    folders = [each for family, names in families.items() for each in _begin(request, names, spans[family], into)]
    return [folder.relative_to(results).as_posix() for folder in folders]


def span_to(rule: str, loosest: float | None, gamma: int) -> Span:
    """Return the span from a rule's strict end to `loosest`, or to the dial's other end. Raises BadInput if the dial's
    range is too small, or only strict is left."""
    named_rule = rule_named(rule)
    low, high = (loosest, None) if named_rule.strict_is_high else (None, loosest)
    axis = RuleDial(named_rule)
    span = axis.span(low, high, (gamma,))
    if span.low == span.high:
        at = exact_setting(axis.symbol, span.low)
        raise SettingError(
            f"{named_rule.title}: {at} is strict itself, so there is nothing to sweep. Let its dial go further."
        )
    return span


def _begin(request: SweepRequest, names: Sequence[str], span: Span, results: Path) -> list[Path]:
    """Submit a rule and its variants as one job, so that they share the models' answers."""
    rules = [rule_named(name) for name in names]
    over = request.over and f"{request.over.strip('+')}-"
    dial = request.at.get(rules[0].family) if request.over else None
    settings = [replace(each, rule=rule.name, dial=dial) for rule in rules for each in _cut(request)]
    rules = [rule_named(each.rule) for each in settings]
    cuts = [each.controller.replace("+", "").replace(":", "") if request.thresholds else "" for each in settings]
    slugs = [f"{over}{rule.slug}{cut and f'-{cut}'}" for rule, cut in zip(rules, cuts, strict=True)]
    folders = [new_folder(results, slug) for slug in slugs]
    swept = f"{CONTROLLERS[request.over].title} with " if request.over else ""
    drafts = ["" if each.drafts_plainly else f", {each.draft}" for each in settings]
    labels = {
        folder: f"{swept}{rule.title}{draft} · {request.prompts.name}, {len(request.prompts)} prompts"
        for folder, rule, draft in zip(folders, rules, drafts, strict=True)
    }
    make = partial(
        sweep_prompts,
        prompts=request.prompts,
        settings=settings,
        span=span,
        out=folders,
        chat=request.chat,
        resume=True,
    )
    tab_jobs.shared_worker().begin(sweep_job(labels, make, request.choice), *labels)
    return folders


def _cut(request: SweepRequest) -> list[Settings]:
    """Return the settings at each requested threshold and with drafts of full length; unchanged without thresholds."""
    control = request.settings.control
    if control is None or not request.thresholds or request.over:
        return [request.settings]
    axis = Threshold(control.controller, request.settings.gamma)
    thresholds = sorted({*request.thresholds, control.threshold, axis.reference})
    return [axis.apply(request.settings, each) for each in thresholds]


def go_on(entry: SweepEntry, beside: Sequence[SweepEntry] = (), prompts: PromptSet | None = None) -> None:
    """Resume a sweep and the variants in `beside` as one job. `prompts` are the current prompts and more after them.
    Raises BadInput if the folder is damaged, or another process sweeps into one of them."""
    rights.check_sweeps()
    plans = {each.path: each.plan for each in (entry, *beside) if each.plan is not None}
    for folder in plans:
        check_nobody(folder)
    prompts = open_store(entry.path).prompts() if prompts is None else prompts
    for task in {harness.task_of(item.grader) for item in prompts.items}:
        _check_file(task)
    plan, labels = plans[entry.path], {folder: sweep_label(each) for folder, each in plans.items()}
    settings = [each.settings for each in plans.values()]
    make = partial(
        sweep_prompts, prompts=prompts, settings=settings, span=plan.span, out=list(plans), chat=plan.chat, resume=True
    )
    job = sweep_job(labels, make, models_of(entry.path, plan))
    tab_jobs.shared_worker().begin(job, *labels)


def clock_job(result: SweepResult, dial: float, count: int, repetitions: int) -> Job[Report]:
    """Return a job that times the reference and this setting. Raises BadInput if the folder has lost its prompts."""
    rights.check_sweeps()
    make = partial(WallClock, **clock_options(result, dial, count, repetitions))
    keep = None if is_sample_sweep(result.folder) else partial(keep_check, result.folder)
    return background_task(partial(timed_check, make), models_of(result.folder, result.plan), keep)


def models_of(folder: Path, plan: Plan) -> BackendChoice:
    """Return the models that made a sweep: its job's, if any, because a plan only has a local folder's name."""
    job, made_with = jobs_in(folder.parent).get(folder.name), plan.provenance
    if job is not None:
        return job.progress.choice
    return models_that_made(made_with, current_session().models) or BackendChoice(
        made_with.target, made_with.drafter, dtype=made_with.dtype, folders=visitors.may_name_paths()
    )
