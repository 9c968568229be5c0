"""What the built-in models can do, measured: graded tasks along θ with each drafter, stories, the size of logits, and
how drafters that were distilled in other ways compare.

Knows the product's own decoding and sweeps, and the graded tasks; of the training text the held-out stories alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from mars_viz.analysis.engines import position_rates
from mars_viz.analysis.intervals import Interval, ratio
from mars_viz.axis import RuleDial
from mars_viz.demo import TARGET
from mars_viz.demo.tasks import Task, instances
from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Recording
from mars_viz.records import Speculation
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.sweep import SweepResult, measures, sweep_prompts, value_at
from training.train import model_in

DRAFTERS = {"drafter": None, "EAGLE-3 head": "eagle3", "first four layers": "layers:exit=4"}
"""By what the card calls them."""
EXERCISES = {"drafter": 300, "EAGLE-3 head": 300, "first four layers": 50}
"""Held-out exercises per task, by drafter."""
STORIES = 10
"""Held-out stories, of which the models are given the first few words."""
HELD_OUT_SEED = 1
DIALS = (1.0, 0.9, 0.8, 0.6)
"""Of θ, strict first."""
RELAXED = 0.9
NEW_TOKENS = 160


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """How a graded task goes with one drafter, greedy, γ = 6."""

    accuracy: tuple[Interval, ...]
    """At each of `DIALS`."""
    tau: tuple[Interval, ...]
    """Acceptance length there."""
    change: Interval
    """Accuracy at θ = 0.9 less strict's, the same exercises compared."""
    kept: tuple[float, ...]
    """At each depth, the share of drafted tokens that strict kept where all before them were."""


@dataclass(frozen=True, slots=True)
class CloseCalls:
    """Positions of strict runs at which the ratio z2/z1 is above 0.9."""

    share: float
    """Of all positions."""
    rejected: float
    """Share of the drafts there that strict rejects."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One way to distil a drafter."""

    name: str
    agreed: Interval
    """Share of the target's own greedy tokens that are the drafter's best too."""
    overlap: Interval
    """The law's overlap with the target's, 1 less total variation: the chance that a drawn token is kept."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of the model card."""

    target_parameters: int
    drafter_parameters: int
    story_loss: float
    """Target's cross-entropy on held-out stories, nats per token."""
    drafter_story_loss: float
    """The drafter's."""
    tasks: Mapping[str, Mapping[Task, TaskFigures]]
    """By drafter."""
    stories: Mapping[str, tuple[float, ...]]
    """Acceptance length on stories at each of `DIALS`, pooled, by drafter: greedy, γ = 6, 128 new tokens."""
    calls: Mapping[str, CloseCalls]
    """With the built-in drafter: of stories, and of each task."""
    z1_quantiles: tuple[float, ...]
    """1, 25, 50, 75 and 99 % of z1 on the stories' rows."""
    ratio_quantiles: tuple[float, ...]
    """1, 25, 50, 75 and 99 % of z2/z1 there."""
    nonpositive_share: float
    """Share of rows with z1 <= 0."""


def evaluate(held_out: Sequence[str], work: Path) -> Figures:
    """Measure the built-in models, in float32 on the CPU; the sweeps are kept below `work` and gone on with there."""
    openings = [" ".join(story.split(" ")[:6]) for story in held_out[:STORIES]]
    backends = {name: load_backend(drafter=drafter, device="cpu") for name, drafter in DRAFTERS.items()}
    pair = backends["drafter"]
    told = {
        name: [[decode(each, text, dial) for text in tqdm(openings, desc=f"stories, {name}")] for dial in DIALS]
        for name, each in backends.items()
    }
    exercises = {
        task.value: [
            decode(pair, each.prompt, 1.0)
            for each in itertools.islice(instances(task, HELD_OUT_SEED, held_out=True), STORIES)
        ]
        for task in Task
    }
    rows = [round_.speculation for run in told["drafter"][0] for round_ in run.rounds]
    z1, close = (np.concatenate([getattr(s, name) for s in rows]) for name in ("z1", "ratio"))
    return Figures(
        target_parameters=pair.target.model.num_parameters(),
        drafter_parameters=pair.drafter.model.num_parameters(),
        story_loss=story_loss(pair, pair.target.model, held_out),
        drafter_story_loss=story_loss(pair, pair.drafter.model, held_out),
        tasks={name: {task: _figures(name, each, task, work) for task in Task} for name, each in backends.items()},
        stories={name: tuple(map(pooled_tau, runs)) for name, runs in told.items()},
        calls={name: close_calls(runs) for name, runs in {"stories": told["drafter"][0], **exercises}.items()},
        z1_quantiles=_quantiles(z1),
        ratio_quantiles=_quantiles(close),
        nonpositive_share=float((z1 <= 0).mean()),
    )


def _figures(drafter: str, backend: Backend, task: Task, work: Path) -> TaskFigures:
    count = EXERCISES[drafter]
    return task_figures(swept(backend, task, count, work / f"{drafter.replace(' ', '-')}-{task.value}-{count}"))


def swept(backend: Backend, task: Task, count: int, folder: Path) -> SweepResult:
    """Held-out exercises of a task with MARS, every θ from strict to the loosest of `DIALS`."""
    prompts = builtin_prompts(count, seed=HELD_OUT_SEED, kinds=(task,))
    settings = Settings(rule="mars", max_new_tokens=NEW_TOKENS)
    span = RuleDial(rule_named("mars")).span(min(DIALS), None, (settings.gamma,))
    sweep = sweep_prompts(backend, prompts, settings, span, folder, resume=True)
    with tqdm(total=len(prompts), desc=folder.name) as bar:
        for now in sweep:
            bar.update(now.finished - bar.n)
    return sweep.result()


def task_figures(result: SweepResult) -> TaskFigures:
    """What a sweep says."""
    known = measures(result)

    def along(name: str) -> tuple[Interval, ...]:
        return tuple(value_at(result, known[name], dial) for dial in DIALS)

    return TaskFigures(
        accuracy=along("accuracy"),
        tau=along("tau"),
        change=value_at(result, known["accuracy_change"], RELAXED),
        kept=tuple(position_rates(result.acceptance(1.0))[1].tolist()),
    )


def close_calls(runs: Sequence[Run]) -> CloseCalls:
    """Of strict runs."""
    close = np.concatenate([s.ratio > RELAXED for s in _speculations(runs)])
    drafts = np.concatenate([s.ranks[s.ratio[: len(s.ranks)] > RELAXED] for s in _speculations(runs)])
    return CloseCalls(float(close.mean()), float((drafts > 1).mean()))


def _speculations(runs: Sequence[Run]) -> list[Speculation]:
    return [round_.speculation for run in runs for round_ in run.rounds]


def decode(backend: Backend, prompt: str, dial: float) -> Run:
    """Greedy, γ = 6, MARS at this θ, 128 new tokens."""
    return Recording(backend, prompt, Settings(rule="mars", dial=dial, max_new_tokens=128)).finish()


def pooled_tau(runs: Sequence[Run]) -> float:
    """Emitted tokens over rounds, all runs together."""
    return sum(len(run.token_ids) for run in runs) / sum(len(run.rounds) for run in runs)


def story_loss(pair: Backend, model: torch.nn.Module, texts: Sequence[str]) -> float:
    """Cross-entropy per token over the stories, nats; each cut at the context."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([pair.tokenizer.library(text)["input_ids"][: pair.context]])
            logits = model(input_ids=ids).logits[0, :-1].float()
            total += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
            count += ids.shape[1] - 1
    return total / count


@torch.inference_mode()
def compare(folders: Mapping[str, Path], held_out: Sequence[str]) -> list[Compared]:
    """Drafters in these folders, on the target's own greedy texts after held-out beginnings; intervals over texts."""
    pair = load_backend(device="cpu")
    prompts = [" ".join(story.split(" ")[:6]) for story in held_out[: 4 * STORIES]]
    for task in Task:
        prompts += [x.prompt for x in itertools.islice(instances(task, HELD_OUT_SEED, held_out=True), STORIES)]
    runs = [decode(pair, prompt, 1.0) for prompt in tqdm(prompts, desc="the target's own texts")]
    target = model_in(TARGET).eval()
    found = []
    for name, folder in folders.items():
        drafter = model_in(folder).eval()
        agreed, overlap, counts = [], [], []
        for run in runs:
            ids = torch.tensor([[*run.prompt_ids, *run.token_ids]])
            begin, end = len(run.prompt_ids) - 1, ids.shape[1] - 1
            p, q = (model(input_ids=ids).logits[0, begin:end].float().softmax(-1) for model in (target, drafter))
            agreed.append(int((p.argmax(-1) == q.argmax(-1)).sum()))
            overlap.append(float(torch.minimum(p, q).sum()))
            counts.append(end - begin)
        kept, drawn = (ratio(np.array(each, float), np.array(counts, float)) for each in (agreed, overlap))
        found.append(Compared(name, kept, drawn))
    return found


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(v) for v in np.quantile(values, (0.01, 0.25, 0.5, 0.75, 0.99)))
