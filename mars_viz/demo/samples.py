"""Records the runs under sample_runs/ again: `python -m mars_viz.demo.samples --out sample_runs` (or `make samples`).

Knows the built-in pair and what each sample is to show. The damaged answer is searched for, not made up: it is the
first held-out question that strict decoding answers rightly and the relaxed rule answers wrongly.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

from mars_viz.demo import tasks
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.recording import Recording
from mars_viz.run import Run, Settings
from mars_viz.runfiles import check_free, save_run
from mars_viz.speculators.loading import Pair, load_pair

SEED = 2
"""Of the exercises; another than the evaluation's."""
STORY = STORIES[0]
DAMAGING_THETAS = (0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run to record."""

    folder: str
    """Under sample_runs/; the lists are in its order."""
    title: str
    """What it shows, in a line."""
    prompt: str
    settings: Settings


def samples() -> list[Sample]:
    """Every sample but the damaged answer."""
    addition = next(tasks.instances(tasks.Task.ADDITION, SEED, held_out=True)).prompt
    return [
        Sample("1-story-mars", "A story, MARS at θ = 0.9, greedy", STORY, Settings(rule="mars")),
        Sample("2-story-strict", "The same story, strict", STORY, Settings(rule="strict")),
        Sample(
            "3-story-sampled-mars",
            "A story sampled at T = 0.8, MARS with rejection sampling",
            STORIES[8],
            Settings(rule="mars-sampling", temperature=0.8, seed=1),
        ),
        Sample(
            "4-story-sampled-lossless",
            "The same story and luck, lossless rejection sampling",
            STORIES[8],
            Settings(rule="rejection-sampling", temperature=0.8, seed=1),
        ),
        Sample("5-addition-mars", "An addition in steps, MARS at θ = 0.9", addition, Settings(rule="mars")),
        Sample(
            "7-story-mars-as-released",
            "A story sampled at T = 0.8, MARS as its code was released",
            STORIES[8],
            Settings(rule="mars-code", temperature=0.8, seed=1),
        ),
    ]


def damaged_answer(pair: Pair) -> Run:
    """A held-out exercise that is right when strict and wrong when relaxed, at the strictest θ that shows one.

    Raises BadInput where 2,000 exercises show none.
    """
    order = (tasks.Task.QUESTION, tasks.Task.SORTING)
    for theta, task in itertools.product(DAMAGING_THETAS, order):
        for exercise in itertools.islice(tasks.instances(task, SEED, held_out=True), 200):
            relaxed = _decoded(pair, exercise.prompt, Settings(rule="mars", dial=theta), "")
            if tasks.grade(exercise, relaxed.text):
                continue
            strict = _decoded(pair, exercise.prompt, Settings(rule="strict"), "")
            if tasks.grade(exercise, strict.text):
                title = f"An answer that θ = {theta:g} gets wrong and strict gets right"
                return _decoded(pair, exercise.prompt, Settings(rule="mars", dial=theta), title)
    raise BadInput("No exercise is right when strict and wrong when relaxed; look further, or at another task.")


def main(arguments: list[str] | None = None) -> int:
    """Record them all into a folder that does not hold them yet."""
    parser = argparse.ArgumentParser(prog="python -m mars_viz.demo.samples", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("sample_runs"))
    out = parser.parse_args(arguments).out
    try:
        wanted = samples()
        for sample in wanted:
            check_free(out / sample.folder)
        pair = load_pair(device="cpu")
        for sample in wanted:
            _keep(_decoded(pair, sample.prompt, sample.settings, sample.title), out / sample.folder)
        _keep(damaged_answer(pair), out / "6-question-damaged")
    except MarsVizError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _decoded(pair: Pair, prompt: str, settings: Settings, title: str) -> Run:
    return Recording(pair, prompt, settings, title=title).finish()


def _keep(run: Run, path: Path) -> None:
    save_run(run, path)
    print(f"{path}: {run.title}; τ {run.tau:.2f}, {len(run.token_ids)} tokens")


if __name__ == "__main__":
    sys.exit(main())
