"""Functions that jobs run with the models.

They import the model libraries inside, so that pages never import these.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import Steps, combined
from mars_viz.analysis.map_grid import along_dial
from mars_viz.axis import RuleDial
from mars_viz.backend_choice import BackendChoice
from mars_viz.demo.tasks import FREE_WORDING
from mars_viz.errors import ModelError
from mars_viz.exploration import Budget, Segment, useful_span
from mars_viz.prompts import PromptItem
from mars_viz.prompts.builtin import builtin_prompts
from mars_viz.prompts.items import grader_named
from mars_viz.recording import Mapping
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.samples import GradedExercises
from mars_viz.ui.jobs.models import Device, Events, Models, TaskStep, Tell

PER_TASK = 20  # number of exercises graded per built-in task in free wording
LOW = 0.5  # smallest θ of the maps used for grading
BRANCHES = 48  # maximum number of branches decoded at once for a map, which limits the memory for caches


def models() -> Models[Any]:
    """Return a `Models` for real backends, with nothing loaded yet."""
    return Models(load, _look, _release)


def load(choice: BackendChoice, tell: Tell) -> Any:
    """Load the backend. Raises BadInput with the remedy if that fails."""
    libraries(tell)
    from mars_viz.speculators.loading import load_backend

    return load_backend(**choice.arguments, folders=choice.folders, tell=tell)


def libraries(tell: Tell) -> None:
    """Import the model libraries, which takes seconds. Raises ModelError with the remedy if one is missing."""
    tell("Starting PyTorch and transformers", 0.0)
    try:
        import mars_viz.speculators.loading  # noqa: F401
    except ImportError as error:
        raise ModelError(
            f"Decoding needs PyTorch and transformers, and {error.name} is missing; install requirements.txt. "
            "Recorded runs open without them."
        ) from error


def _look(backend: Any) -> Device:
    from mars_viz.speculators.devices import bytes_free, bytes_used

    place, weights = backend.place, backend.target.weights + backend.drafter.weights
    names = backend.target.name, backend.drafter.name
    free, template = bytes_free(place), backend.tokenizer.has_template
    return Device(backend.device, backend.dtype, bytes_used(place), free, weights, names, backend.notes, template)


def _release() -> None:
    from mars_viz.speculators.devices import give_back

    give_back()


def chart(backend: Any, run: Run) -> Mapping | None:
    """Return the mapper that resumes the run's map, or begins that of its dial over the useful range, at every draft
    length up to the run's own. None if there is no map and the rule has no dial."""
    if run.map is None and rule_named(run.settings.rule).dial is None:
        return None
    how: dict[str, Any] = {"chat": bool(run.provenance.chat), "history": run.history, "title": run.title}
    span = useful_span(run.settings) if run.map is None else run.map.span
    return Mapping(backend, run.prompt, run.settings, span, budget=Budget(branches=BRANCHES), run=run, **how)


def measure(settings: Settings, backend: Any, most: int = 0) -> Iterator[TaskStep]:
    """Measure the cost of passes over up to γ tokens with these settings, or of rounds of up to `most` texts."""
    from mars_viz.speculators.costs import Measuring, MeasuringBatches

    measuring: Measuring[Any] = Measuring(backend, settings.gamma, settings=settings)
    measuring = MeasuringBatches(backend, settings, most) if most else measuring
    for share in measuring:
        yield share, None
    yield 1.0, measuring.costs()


def prepare(models: Models[Any]) -> Events:
    """Import the model libraries before a user needs them, as the work of a job."""
    try:
        libraries(models.set_doing)
    finally:
        models.set_doing()
    yield {}
    return None


def unload(models: Models[Any]) -> Events:
    """Drop the models, as the work of a job."""
    models.rest()
    yield {}
    return None


def grade(pair: Any, per_task: int = PER_TASK) -> Iterator[TaskStep]:
    """Map `per_task` built-in exercises of each kind in free wording, and yield the number of right answers at
    every θ."""
    settings = Settings(rule="mars", max_new_tokens=144)
    span = RuleDial(rule_named("mars")).span(LOW, None, (settings.gamma,))
    prompts = builtin_prompts(per_task, kinds=FREE_WORDING).items
    items = sorted(prompts, key=lambda item: int(item.id.rsplit("-", 1)[1]))  # alternate the kinds
    grades: list[Steps] = []
    for done, item in enumerate(items, start=1):
        dial_map = Mapping(pair, item.prompt, settings, span).finish()
        if dial_map.complete:  # 1 where the text answers the exercise correctly and 0 elsewhere, along the dial
            grades.append(along_dial(dial_map.segments, partial(_right, item, dial_map.frame)))
        right = combined(lambda *each: np.sum(each, axis=0), *grades) if grades else None
        yield done / len(items), None if right is None else GradedExercises(len(grades), right)


def _right(item: PromptItem, frame: Run, segment: Segment) -> float:
    return grader_named(item.grader).grade(item.answer or "", frame.decode(segment.token_ids))
