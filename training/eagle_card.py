"""What the built-in EAGLE-3 head does, measured with the product beside the built-in drafter, and its card."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from mars_viz.demo import tasks
from mars_viz.recording import Recording
from mars_viz.run import Run, Settings
from mars_viz.speculators.loading import load_backend
from mars_viz.writer import write_file
from training.evaluation import HELD_OUT_SEED, pooled_tau

STORIES, EXERCISES = 20, 7
"""Held-out stories, and held-out exercises of each task."""
NEW_TOKENS = 96
GAMMAS = (4, 6)
BUILT_IN, HEAD = "built-in drafter", "EAGLE-3 head"


@dataclass(frozen=True, slots=True)
class Drafted:
    """How often drafts of one length were kept, under the strict rule at temperature 0."""

    drafter: str
    text: str
    """stories or exercises."""
    gamma: int
    tau: float
    """Tokens a round, all texts pooled."""
    kept: tuple[float, ...]
    """At each depth, the share of drafted tokens that were kept where all before them were."""
    seconds: float
    """Of all texts, wall clock."""


def measure(held_out: list[str], drafters: Mapping[str, str]) -> list[Drafted]:
    """The built-in drafter and these, by name, on the same prompts, in turns, in float32 on the CPU."""
    named = {BUILT_IN: None} | dict(drafters)
    backends = {name: load_backend(drafter=each, device="cpu", dtype="float32") for name, each in named.items()}
    prompts = {
        "stories": [" ".join(story.split(" ")[:6]) for story in held_out[:STORIES]],
        "exercises": [
            exercise.prompt
            for task in tasks.Task
            for exercise in itertools.islice(tasks.instances(task, HELD_OUT_SEED, held_out=True), EXERCISES)
        ],
    }
    found = []
    for gamma, (text, some) in itertools.product(GAMMAS, prompts.items()):
        settings = Settings(rule="strict", gamma=gamma, max_new_tokens=NEW_TOKENS)
        runs: dict[str, list[Run]] = {name: [] for name in backends}
        for prompt in tqdm(some, desc=f"{text}, γ = {gamma}"):
            for name, backend in backends.items():
                runs[name].append(Recording(backend, prompt, settings).finish())
        for name, made in runs.items():
            seconds = sum(run.provenance.seconds for run in made)
            found.append(Drafted(name, text, gamma, pooled_tau(made), kept_at(made, gamma), seconds))
    return found


def kept_at(runs: Sequence[Run], gamma: int) -> tuple[float, ...]:
    """At each depth the share that was kept, of the rounds that came so far; each text's last round, which may be cut
    short, is left out."""
    kept = [len(round_.token_ids) - 1 for run in runs for round_ in run.rounds[:-1]]
    reached = [sum(each >= depth for each in kept) for depth in range(gamma + 1)]
    return tuple(after / max(before, 1) for before, after in itertools.pairwise(reached))


def write_card(
    figures: Sequence[Drafted], curve: Path, kind: str, card: tuple[str, str], options: argparse.Namespace
) -> None:
    """Write README.md beside the weights, and print it. `card` describes the drafter, and the way it was trained by
    `training.<kind>`."""
    rows = "\n".join(
        f"| {each.text} | {each.gamma} | {each.drafter} | {each.tau:.2f} "
        f"| {' '.join(f'{share:.2f}' for share in each.kept)} | {each.seconds:.1f} |"
        for each in figures
    )
    points = [tuple(map(float, line.split(","))) for line in curve.read_text().splitlines()]
    losses = {int(step): loss for step, loss, _ in points if step % 40 == 0}
    starts = [*(before for before, after in itertools.pairwise(points) if after[2] < before[2]), points[-1]]
    text = CARD.format(
        about=card[0],
        trained=card[1],
        kind=kind,
        rows=rows,
        losses="\n".join(f"| {step} | {loss:.2f} |" for step, loss in losses.items()),
        starts=len(starts),
        minutes=sum(seconds for _, _, seconds in starts) / 60,
        o=options,
        tokens=options.steps * 2048 / 1e6,
        new=NEW_TOKENS,
        stories=STORIES,
        exercises=EXERCISES,
    )
    write_file(options.out / "README.md", text.encode())
    print(text)


CARD = """\
{about}

## Measured

Strict, temperature 0, float32 on the CPU, {new} new tokens; {stories} held-out stories, of which six words are
given, and {exercises} held-out exercises of each task, all drafters in turns. *kept*: at each depth, the share of
drafted tokens that were kept if all before them were. Seconds are wall clock on two cores that ran other work, too.

| text | γ | drafter | τ | kept by depth | seconds |
|---|---|---|---|---|---|
{rows}

## Trained on

The target's own samples and the text that the target was trained on, half and half ({o.sample_batches} batches of 64
samples, half greedy, half drawn at temperature 1; the text's sources and licences are those of `../pair/README.md`):
{o.steps} steps of 2,048 tokens, {tokens:.1f} M in all. {trained} Seed {o.seed}. One story in fifty and a tenth of all
possible exercises were held out. It took {minutes:.0f} minutes on two cores, in {starts} start(s), after each of which
the running mean of the loss begins again:

| step | loss, nats |
|---|---|
{losses}

To train it again:

    python -m training.{kind} --data FOLDER_WITH_THE_TEXT --steps {o.steps}

It resumes where it was stopped.
"""
