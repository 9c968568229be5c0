"""What the built-in pair can do, measured: held-out loss, graded tasks, acceptance length, the size of its logits.

Knows the product's own decoding and the graded tasks; reads no training text but the held-out stories.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from mars_viz.demo import tasks
from mars_viz.recording import Recording
from mars_viz.run import Run, Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend

EXERCISES = 300
"""Held-out exercises per task."""
STORIES = 20
"""Held-out stories, of which the pair is given the first few words."""
HELD_OUT_SEED = 1
THETA = 0.9


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """How the pair does on a graded task."""

    strict_accuracy: float
    """Share of exercises right under strict greedy decoding, which is the target's own greedy decoding."""
    relaxed_accuracy: float
    """The same under MARS at θ = 0.9."""
    strict_tau: float
    """Acceptance length, all exercises pooled."""
    relaxed_tau: float
    """The same under MARS at θ = 0.9."""


@dataclass(frozen=True, slots=True)
class PairFigures:
    """The numbers of the model card."""

    target_parameters: int
    drafter_parameters: int
    story_loss: float
    """Target's cross-entropy on held-out stories, nats per token."""
    drafter_story_loss: float
    """The drafter's."""
    tasks: dict[tasks.Task, TaskFigures]
    story_strict_tau: float
    """Acceptance length on stories, greedy, γ = 6, 128 new tokens, pooled."""
    story_relaxed_tau: float
    """The same under MARS at θ = 0.9."""
    z1_quantiles: tuple[float, ...]
    """1, 25, 50, 75 and 99 % of z1 on the stories' rows."""
    ratio_quantiles: tuple[float, ...]
    """1, 25, 50, 75 and 99 % of z2/z1 there."""
    nonpositive_share: float
    """Share of rows with z1 <= 0."""


def evaluate(held_out: list[str]) -> PairFigures:
    """Measure the built-in pair, in float32 on the CPU as it is used by default, whatever it was trained on."""
    pair = load_backend(device="cpu")
    openings = [" ".join(story.split(" ")[:6]) for story in held_out[:STORIES]]
    strict, relaxed = (
        [decode(pair, text, rule, 128) for text in tqdm(openings, desc=f"stories, {rule}")]
        for rule in ("strict", "mars")
    )
    rows = [round_.speculation for run in strict for round_ in run.rounds]
    z1 = np.concatenate([s.z1 for s in rows])
    ratio = np.concatenate([s.ratio for s in rows])
    return PairFigures(
        target_parameters=pair.target.model.num_parameters(),
        drafter_parameters=pair.drafter.model.num_parameters(),
        story_loss=story_loss(pair, pair.target.model, held_out),
        drafter_story_loss=story_loss(pair, pair.drafter.model, held_out),
        tasks={task: task_figures(pair, task) for task in tasks.Task},
        story_strict_tau=pooled_tau(strict),
        story_relaxed_tau=pooled_tau(relaxed),
        z1_quantiles=_quantiles(z1),
        ratio_quantiles=_quantiles(ratio),
        nonpositive_share=float((z1 <= 0).mean()),
    )


def task_figures(pair: Backend, task: tasks.Task) -> TaskFigures:
    """Accuracy and acceptance length on held-out exercises."""
    exercises = list(itertools.islice(tasks.instances(task, HELD_OUT_SEED, held_out=True), EXERCISES))
    found: dict[str, tuple[float, float]] = {}
    for rule in ("strict", "mars"):
        runs = [decode(pair, exercise.prompt, rule, 160) for exercise in tqdm(exercises, desc=f"{task.value}, {rule}")]
        right = [tasks.grade(exercise, run.text) for exercise, run in zip(exercises, runs, strict=True)]
        found[rule] = float(np.mean(right)), pooled_tau(runs)
    return TaskFigures(found["strict"][0], found["mars"][0], found["strict"][1], found["mars"][1])


def decode(pair: Backend, prompt: str, rule: str, new_tokens: int) -> Run:
    """Greedy, γ = 6; MARS at its default θ."""
    return Recording(pair, prompt, Settings(rule=rule, max_new_tokens=new_tokens)).finish()


def pooled_tau(runs: list[Run]) -> float:
    """Emitted tokens over rounds, all runs together."""
    return sum(len(run.token_ids) for run in runs) / sum(len(run.rounds) for run in runs)


def story_loss(pair: Backend, model: torch.nn.Module, texts: list[str]) -> float:
    """Cross-entropy per token over the stories, nats; each cut at the context."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([pair.tokenizer.library(text)["input_ids"][: pair.context]])
            logits = model(input_ids=ids).logits[0, :-1].float()
            total += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
            count += ids.shape[1] - 1
    return total / count


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(v) for v in np.quantile(values, (0.01, 0.25, 0.5, 0.75, 0.99)))
