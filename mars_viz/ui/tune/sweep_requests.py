"""What a person asks to be swept, checked, and put before the worker. The model libraries are the worker's to load."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

from mars_viz import default_folders
from mars_viz.backend_choice import BackendChoice
from mars_viz.controllers import CONTROLLERS, Control, controller_named
from mars_viz.dialmap import Span, controller_span, span_of
from mars_viz.errors import BadInput, PromptError, RunFileError, SettingError, StorageError
from mars_viz.locks import check_nobody
from mars_viz.permissions import PATHS
from mars_viz.prompts import HarnessTask, PromptSet, Turns, builtin_prompts, harness, load_prompts, load_task
from mars_viz.rules import RULES, rule_named
from mars_viz.run import Settings
from mars_viz.runstore import checked_name
from mars_viz.samples import is_sample_sweep
from mars_viz.speculators.names import check_controller, check_trees
from mars_viz.sweep import Plan, SweepResult
from mars_viz.sweep.grid import MOST
from mars_viz.sweep.ray_cluster import RayRequest, check_ray
from mars_viz.sweep.store import SweepEntry, check_listed, holds_sweep, open_store
from mars_viz.sweep.timing import TimingCheck, keep_check
from mars_viz.sweep.wall_clock import to_time
from mars_viz.ui import tab_jobs, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import models_that_made
from mars_viz.ui.session import current_session
from mars_viz.ui.tune.catalogue import jobs_in, new_folder, sweep_label
from mars_viz.ui.tune.jobs import Begin, ClockJob, SweepJob
from mars_viz.words import exact_setting
from mars_viz.writer import write_file

DIALLED = tuple(name for name, rule in RULES.items() if rule.dial is not None)
"""Rules that can be swept."""
FIRST_PER_TASK = 50
"""Prompts of each built-in task in a first sweep: enough to tell of a loss of one point, done in about a minute."""
PER_TASK_MOST = 2_000
_SECONDS = {True: 0.13, False: 2.5}
"""A prompt of the built-in tasks, measured with the built-in pair on two processor cores, and one of another set, whose
texts are longer: a guess on the high side. A sweep under way tells its own pace."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file from the browser."""

    name: str
    """As the browser says; a stranger chose it."""
    data: bytes
    """Its contents."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """Sweeps to begin, one a rule; those of variants of one rule go on together."""

    prompts: PromptSet
    """What is decoded."""
    rules: tuple[str, ...]
    """Names of rules that have a dial, variants among them."""
    settings: Settings
    """But for the rule."""
    choice: BackendChoice = BackendChoice()
    """With which models."""
    chat: bool | None = None
    """False if prompts do not go through the target's chat template; None if they do if there is one."""
    loosest: Mapping[str, float] = field(default_factory=dict)
    """How far from strict the dial of a rule and its variants goes, by the rule's name; to its end where nothing is
    said."""
    over: str = ""
    """The controller whose threshold is swept in place of the rules' dials, by name."""
    thresholds: tuple[float, ...] = ()
    """Of the settings' controller: rules' dials are swept by drafts that it cuts at each of them."""
    ray: str = ""
    """The Ray cluster whose workers map the prompts, as `RayRequest.address`; empty for this server's models."""
    at: Mapping[str, float] = field(default_factory=dict)
    """Where a rule's dial stands while a controller's threshold is swept, by the rule's name; at its default where
    nothing is said."""


def first_wish() -> SweepRequest:
    """A small sweep of the built-in tasks."""
    return SweepRequest(builtin_prompts(FIRST_PER_TASK), ("mars",), Settings(max_new_tokens=128))


def uploaded_prompts(
    upload: Upload, grader: str | None, skip_bad: bool, limit: int | None, turns: Turns = Turns.ALL
) -> PromptSet:
    """The file as a set. Raises BadInput as `load_prompts` does, in the name that the file has for its owner."""
    name = PurePosixPath(upload.name.replace("\\", "/")).name.lstrip(".")[-100:]
    name = "".join(letter for letter in name if letter.isprintable()) or "prompts.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompts.jsonl"  # whatever its owner calls it
        write_file(path, upload.data)
        try:
            found = load_prompts(path, grader=grader, skip_bad=skip_bad, limit=limit, turns=turns)
        except BadInput as error:
            raise PromptError(str(error).replace(f"{path}", name)) from error
    return replace(found, name=name)


def task_prompts(task: str, fewshot: int | None, metric: str | None, limit: int | None) -> HarnessTask:
    """A task of lm-evaluation-harness. Raises BadInput as `load_task` does, and for a file where the visitor may name
    none."""
    if not (task := task.strip()):
        raise SettingError("Name a task of lm-evaluation-harness first, or sweep the built-in tasks.")
    _check_file(task)
    return load_task(task, fewshot=fewshot, metric=metric, limit=limit)


def _check_file(task: str) -> None:
    """Raise BadInput for a task's file, which may run code, where the visitor may name no paths."""
    if harness.names_file(task) and not visitors.may_name_paths():
        raise SettingError(
            "Name a task that lm-evaluation-harness has itself. Files of tasks are taken by `mars-viz sweep --task`, "
            f"and where the server lets its visitors name paths ({PATHS})."
        )


def estimate(prompts: int, builtin: bool, rules: int) -> float:
    """Seconds that sweeps will take with the built-in pair, roughly."""
    return 8 + prompts * rules * _SECONDS[builtin]


def checked_folder(text: str) -> tuple[Path, Path]:
    """Where a person wants new sweeps, and the folder of results that this is or lies in: a name lies in the server's,
    and only those who may name paths can ask for another. Raises BadInput where it cannot be one."""
    text, results = text.strip(), default_folders.sweeps()
    if not text:
        return results, results
    if set(text) & set("/\\") or text.startswith("~"):
        if not visitors.may_name_paths():
            raise SettingError(
                "Name a folder for results without a path: it will lie in the server's own. Paths are taken by "
                f"`mars-viz sweep --out`, and where the server lets its visitors name them ({PATHS})."
            )
        folder = _at(text)
        return folder, folder
    into = results / checked_name(text, "folder")
    if holds_sweep(into) or (into.exists() and not into.is_dir()):
        raise SettingError(f"{into.name} is a sweep or a file itself. Choose another name for the folder.")
    return into, results


def _at(text: str) -> Path:
    """The folder of that path. Raises BadInput where there is none and none can be."""
    try:
        path = Path(text).expanduser()
        if not path.is_absolute() or not text.isprintable():
            raise SettingError("Name the folder for results by its whole path, such as /home/me/sweeps.")
        if path.exists() and not path.is_dir():
            raise StorageError(f"{path} is a file. Choose another folder for results.")
    except (OSError, RuntimeError) as error:  # no such user's home
        raise RunFileError(f"{text} cannot be looked at ({error}). Choose another folder for results.") from error
    return path


def begin(wish: SweepRequest, results: Path, into: Path | None = None) -> list[str]:
    """Put the sweeps before the worker; their ids in the folder of `results`, where they lie, or in the folder `into`
    in there. Raises BadInput for what cannot be swept."""
    rights.check_sweeps()
    if not wish.rules:
        raise SettingError("Choose at least one rule to sweep.")
    families: dict[str, list[str]] = {}
    for name in wish.rules:
        families.setdefault(rule_named(name).family, []).append(name)
    gamma = wish.settings.gamma
    spans = {family: span_to(family, wish.loosest.get(family), gamma) for family in families if not wish.over}
    if wish.over:
        if wish.settings.drafts_trees:
            raise SettingError("Draft-length controllers cut chains; choose Draft: Chain.")
        spans = dict.fromkeys(families, controller_span(controller_named(wish.over), None, None, (gamma,)))
    if max(map(len, families.values())) * len(_cut(wish)) > MOST:
        raise SettingError(f"A grid has at most {MOST} sweeps; list fewer values.")
    if wish.ray:
        _check_cluster(wish, families)
    for name in wish.rules:
        models = wish.choice.target or None, wish.choice.drafter or None
        check_trees(replace(wish.settings, rule=name), *models)
        check_controller(replace(wish.settings, controller=wish.over or wish.settings.controller), *models)
    into = into or results
    if into != results:
        check_listed(into, len(wish.rules) * len(_cut(wish)))
    folders = [each for family, names in families.items() for each in _begin(wish, names, spans[family], into)]
    return [folder.relative_to(results).as_posix() for folder in folders]


def _check_cluster(wish: SweepRequest, families: Mapping[str, Sequence[str]]) -> None:
    """Raise BadInput where the sweeps cannot be made by a Ray cluster's workers."""
    if not visitors.may_name_paths():
        raise SettingError(f"A Ray cluster is for those who may name folders of this machine here ({PATHS}).")
    check_ray()
    RayRequest(wish.ray)
    if max(map(len, families.values())) * len(_cut(wish)) > 1:
        raise SettingError(
            "Variants of a rule share what the models answer, in one process. Leave the Ray cluster out, or list one "
            "value each."
        )


def span_to(rule: str, loosest: float | None, gamma: int) -> Span:
    """From a rule's strict end to this value, or to the dial's other end. Raises BadInput where the dial does not reach
    that far, and where nothing is left but strict."""
    found = rule_named(rule)
    low, high = (loosest, None) if found.strict_is_high else (None, loosest)
    span = span_of(found, low, high, (gamma,))
    if span.low == span.high:
        assert found.dial is not None  # or it had no span
        at = exact_setting(found.dial.symbol, span.low)
        raise SettingError(
            f"{found.title}: {at} is strict itself, so there is nothing to sweep. Let its dial go further."
        )
    return span


def _begin(wish: SweepRequest, names: Sequence[str], span: Span, results: Path) -> list[Path]:
    """A rule and its variants as one job, so that the models are asked about nothing twice."""
    rules = [rule_named(name) for name in names]
    over = wish.over and f"{wish.over.strip('+')}-"
    dial = wish.at.get(rules[0].family) if wish.over else None
    settings = [replace(each, rule=rule.name, dial=dial) for rule in rules for each in _cut(wish)]
    rules = [rule_named(each.rule) for each in settings]
    cuts = [each.controller.replace("+", "").replace(":", "") if wish.thresholds else "" for each in settings]
    slugs = [f"{over}{rule.slug}{cut and f'-{cut}'}" for rule, cut in zip(rules, cuts, strict=True)]
    folders = [new_folder(results, slug) for slug in slugs]
    swept = f"{CONTROLLERS[wish.over].title} with " if wish.over else ""
    drafts = ["" if each.drafts_plainly else f", {each.draft}" for each in settings]
    labels = [
        f"{swept}{rule.title}{draft} · {wish.prompts.name}, {len(wish.prompts)} prompts"
        for rule, draft in zip(rules, drafts, strict=True)
    ]
    make: Begin = partial(tasks.sweep, wish.prompts, settings[0], span, folders[0], wish.chat)
    if len(settings) > 1:
        make = partial(tasks.grid, wish.prompts, settings, span, folders, wish.chat)
    elif wish.ray:
        how = (wish.chat, RayRequest(wish.ray), wish.choice)
        make = partial(tasks.sweep_on_ray, wish.prompts, settings[0], span, folders[0], *how)
    others = dict(zip(folders[1:], labels[1:], strict=True))
    job = SweepJob(folders[0], make, labels[0], wish.choice, others, elsewhere=bool(wish.ray))
    tab_jobs.shared_worker().begin(job, *job.labels)
    return folders


def _cut(wish: SweepRequest) -> list[Settings]:
    """The settings at each threshold that is asked for, drafts of full length among them; as they are for none."""
    control = wish.settings.control
    if control is None or not wish.thresholds or wish.over:
        return [wish.settings]
    wanted = sorted({*wish.thresholds, control.threshold, control.controller.longest})
    return [replace(wish.settings, controller=Control(control.controller, each).name) for each in wanted]


def go_on(entry: SweepEntry, beside: Sequence[SweepEntry] = (), prompts: PromptSet | None = None) -> None:
    """Continue a sweep, and those of its rule's variants `beside` it as one job; with `prompts` those that it has and
    more after them. Raises BadInput where the folder no longer says what was swept, and while somebody else sweeps into
    one of them."""
    rights.check_sweeps()
    plans = {each.path: each.plan for each in (entry, *beside) if each.plan is not None}
    for folder in plans:
        check_nobody(folder)
    prompts = open_store(entry.path).prompts() if prompts is None else prompts
    for task in {harness.task_of(item.grader) for item in prompts.items}:
        _check_file(task)
    plan, labels = plans[entry.path], {folder: sweep_label(each) for folder, each in plans.items()}
    make: Begin = partial(tasks.sweep, prompts, plan.settings, plan.span, entry.path, plan.chat)
    if len(plans) > 1:
        settings = [each.settings for each in plans.values()]
        make = partial(tasks.grid, prompts, settings, plan.span, list(plans), plan.chat)
    job = SweepJob(entry.path, make, labels[entry.path], models_of(entry.path, plan), labels)
    tab_jobs.shared_worker().begin(job, *job.labels)


def check_clock(result: SweepResult, dial: float, count: int, repetitions: int) -> None:
    """Time strict, or drafts of full length, and this setting. Raises BadInput where the folder no longer holds its
    prompts."""
    rights.check_sweeps()
    asked = to_time(result, open_store(result.folder).prompts(), count)
    plan = result.plan
    fixed = plan.controller is not None
    make = partial(tasks.clock, asked, plan.at(dial), repetitions, plan.chat, result.costs, fixed)
    keep = keep_nowhere if is_sample_sweep(result.folder) else partial(keep_check, result.folder)
    job = ClockJob(make, keep, models_of(result.folder, plan))
    tab_jobs.shared_worker().begin(job, (result.folder, dial))


def keep_nowhere(check: TimingCheck) -> None:
    """Of a sample, whose checks the server remembers alone. A function with a name, since it travels with its job."""


def models_of(folder: Path, plan: Plan) -> BackendChoice:
    """As they were asked for where this server swept, since a plan knows a local folder's name alone."""
    known = jobs_in(folder.parent).get(folder.name)
    return choice_of(plan) if known is None else known.choice


def choice_of(plan: Plan) -> BackendChoice:
    """The models of a sweep, to have them again."""
    made = plan.provenance
    return models_that_made(made, current_session().models) or BackendChoice(
        made.target, made.drafter, dtype=made.dtype, folders=visitors.may_name_paths()
    )
