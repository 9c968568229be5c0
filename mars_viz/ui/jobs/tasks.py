"""What is done with models: one function a kind of work, which a job names and whoever has the models calls.

The model libraries are imported inside, at the first call, and never by a page. Knows no Streamlit.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz.analysis.map_grid import along_dial
from mars_viz.analysis.steps import Steps, total
from mars_viz.backend_choice import BackendChoice
from mars_viz.chat import NO_HISTORY, EncodedPrompt, History
from mars_viz.controllers import controller_named
from mars_viz.costs import Costs
from mars_viz.demo.prompts import STORIES
from mars_viz.demo.tasks import FREE_WORDING
from mars_viz.dialmap import Budget, DialMap, Segment, Span, controller_span, span_of, useful_span
from mars_viz.errors import ModelError
from mars_viz.multi_rule_walk import Stand, Together
from mars_viz.prompts import PromptItem
from mars_viz.prompts.builtin import builtin_prompts
from mars_viz.prompts.items import grader_named
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.samples import GradedExercises
from mars_viz.ui.jobs.background_task import TaskStep
from mars_viz.ui.jobs.models import Device, Models, Tell

if TYPE_CHECKING:
    from mars_viz.prompts import PromptSet
    from mars_viz.race.making import Racing
    from mars_viz.record_map import Mapping
    from mars_viz.recording import Recording
    from mars_viz.sweep import Sweep
    from mars_viz.sweep.grid_sweep import GridSweep
    from mars_viz.sweep.ray_cluster import RayRequest
    from mars_viz.sweep.ray_mapper import ClusterSweep
    from mars_viz.sweep.wall_clock import WallClock

PER_TASK = 20
"""Exercises of each of the built-in tasks in free wording that are graded on request."""
LOW = 0.5
"""Smallest θ of those maps."""
BRANCHES = 48
"""Of a map behind a run that go on at once, which bounds what its caches take."""


def models() -> Models[Any]:
    """Real ones, none of them loaded yet."""
    return Models(load, look, release, libraries)


def load(choice: BackendChoice, tell: Tell) -> Any:
    """The backend. Raises BadInput with the remedy where that cannot be."""
    libraries(tell)
    from mars_viz.speculators.loading import load_backend

    named = choice.target or None, choice.drafter or None
    return load_backend(*named, device=choice.device, dtype=choice.dtype, folders=choice.folders, tell=tell)


def libraries(tell: Tell) -> None:
    """Import what every backend needs, which takes seconds. Raises BadInput with the remedy where it is missing."""
    tell("Starting PyTorch and transformers", 0.0)
    try:
        import mars_viz.speculators.loading  # noqa: F401
    except ImportError as error:
        raise ModelError(
            f"Decoding needs PyTorch and transformers, and {error.name} is missing; install requirements.txt. "
            "Recorded runs open without them."
        ) from error
    _forget_libraries()


@cache
def _forget_libraries() -> None:
    """Leave what importing the model libraries made out of all later searches for garbage, once: half a million objects
    that stay anyway, and a third of a second each time."""
    gc.collect()
    gc.freeze()


def look(backend: Any) -> Device:
    """What it runs on, and the memory there."""
    from mars_viz.speculators.memory import bytes_free, bytes_used

    place, weights = backend.place, backend.target.weights + backend.drafter.weights
    names = backend.target.name, backend.drafter.name
    free, template = bytes_free(place), backend.tokenizer.has_template
    return Device(backend.device, backend.dtype, bytes_used(place), free, weights, names, backend.notes, template)


def release() -> None:
    """Give back what a pair took that nobody holds any more."""
    from mars_viz.speculators.memory import give_back

    give_back()


def record(
    backend: Any, prompt: str, settings: Settings, *, chat: bool | None = None, history: History = NO_HISTORY
) -> Recording:
    """Decodes a prompt; `chat` and `history` as in `mars_viz.record`."""
    from mars_viz.recording import Recording

    return Recording(backend, prompt, settings, chat=chat, history=history)


def chart(backend: Any, run: Run) -> Mapping | None:
    """Maps the run's dial over its useful range, at every draft length up to its own, or goes on with its map; None
    without a dial."""
    if rule_named(run.settings.rule).dial is None:
        return None
    span = useful_span(run.settings) if run.dial_map is None else run.dial_map.span
    return _mapping(backend, run, span)


def chart_threshold(name: str, backend: Any, run: Run) -> Mapping:
    """Maps the whole threshold of the controller of that name, around a run that none cuts, or goes on with the map."""
    made = run.controller_map
    span = controller_span(controller_named(name), None, None, (run.settings.gamma,)) if made is None else made.span
    return _mapping(backend, run, span)


def _mapping(backend: Any, run: Run, span: Span) -> Mapping:
    from mars_viz.record_map import Mapping

    how: dict[str, Any] = {"chat": bool(run.provenance.chat), "history": run.history, "title": run.title}
    return Mapping(backend, run.prompt, run.settings, span, budget=Budget(branches=BRANCHES), run=run, **how)


def race(prompt: str, settings: Settings, chat: bool | None, history: History, backend: Any) -> Racing:
    """Decodes a prompt in three lanes."""
    from mars_viz.race.making import Racing

    return Racing(backend, prompt, settings, chat=chat, history=history)


def measure(settings: Settings, backend: Any) -> Iterator[TaskStep]:
    """Measures what a pass costs in blocks of up to γ tokens, decoded by these settings."""
    from mars_viz.speculators.costs import Measuring

    measuring = Measuring(backend, settings.gamma, settings=settings)
    for share in measuring:
        yield TaskStep(share)
    yield TaskStep(1.0, measuring.costs())


def check_head(backend: Any) -> Iterator[TaskStep]:
    """Checks the EAGLE-3 head along the built-in stories; what is known after a few of them is told already."""
    from mars_viz.speculators.head_check import CheckingHead

    checking = CheckingHead(backend, STORIES)
    for share in checking:
        yield TaskStep(share, checking.result() if checking.tells else None)
    yield TaskStep(1.0, checking.result())


def walk(backend: Any, run: Run, stands: Sequence[Stand]) -> Iterable[Together]:
    """Walks rules from the run's prompt."""
    from mars_viz.record_rule_walks import Walking

    return Walking(backend, run, stands)


def sweep(prompts: PromptSet, settings: Settings, span: Span, folder: Path, chat: bool | None, backend: Any) -> Sweep:
    """Begins a sweep, or continues it."""
    from mars_viz.sweep import sweep_prompts

    return sweep_prompts(backend, prompts, settings, span, folder, chat=chat, resume=True)


def sweep_on_ray(
    prompts: PromptSet,
    settings: Settings,
    span: Span,
    folder: Path,
    chat: bool | None,
    request: RayRequest,
    choice: BackendChoice,
    backend: None,
) -> ClusterSweep:
    """The same by workers of a Ray cluster, each of which loads these models; none are needed in this process."""
    from mars_viz.sweep.ray_mapper import ClusterSweep
    from mars_viz.sweep.ray_worker import NamedModels

    target, drafter = choice.target or None, choice.drafter or None
    models = NamedModels(target, drafter, choice.device, choice.dtype, threads=request.cpus)
    return ClusterSweep(models, prompts, settings, span, folder, request, chat=chat, resume=True)


def grid(
    prompts: PromptSet,
    settings: Sequence[Settings],
    span: Span,
    folders: Sequence[Path],
    chat: bool | None,
    backend: Any,
) -> GridSweep:
    """The same of a rule's variants together."""
    from mars_viz.sweep.grid_sweep import sweep_grid

    return sweep_grid(backend, prompts, settings, folders, span, chat=chat, resume=True)


def clock(
    asked: Sequence[EncodedPrompt],
    settings: Settings,
    repetitions: int,
    chat: bool | None,
    costs: Costs | None,
    fixed: bool,
    backend: Any,
) -> WallClock:
    """Times a setting of a sweep against strict, or where `fixed` against drafts of full length; `costs` are those that
    the sweep was modelled with."""
    from mars_viz.sweep.wall_clock import WallClock

    return WallClock(backend, asked, settings, repetitions=repetitions, chat=chat, costs=costs, fixed=fixed)


def grade(pair: Any, per_task: int = PER_TASK) -> Iterator[TaskStep]:
    """Exact maps of the built-in exercises in free wording, `per_task` of each kind, one after the other, and how many
    are right at every θ."""
    from mars_viz.record_map import Mapping

    settings = Settings(rule="mars", max_new_tokens=144)
    span = span_of(rule_named("mars"), LOW, None, (settings.gamma,))
    prompts = builtin_prompts(per_task, kinds=FREE_WORDING).items
    items = sorted(prompts, key=lambda item: int(item.id.rsplit("-", 1)[1]))  # kinds in turn
    found: list[Steps] = []
    for done, item in enumerate(items, start=1):
        made = Mapping(pair, item.prompt, settings, span).finish()
        if made.complete:
            found.append(_along(made, item))
        yield TaskStep(done / len(items), GradedExercises(len(found), total(found)) if found else None)


def _along(made: DialMap, item: PromptItem) -> Steps:
    """1 where the text answers the exercise rightly, else 0, along the dial."""
    grader = grader_named(item.grader)

    def right(segment: Segment) -> float:
        return grader.grade(item.answer or "", made.frame.decode(segment.token_ids))

    return along_dial(made.segments, right)
