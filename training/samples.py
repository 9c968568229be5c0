"""Records the runs under sample_runs/ again: `python -m training.samples --out sample_runs`.

Knows the built-in pair and what each sample is to show. Each carries its complete dial map; a rule without a dial has
none, so the strict samples are a MARS rule at θ = 1, its strict end. The damaged answer is searched for, not made up:
it is the first held-out question that strict decoding answers rightly and the relaxed rule answers wrongly.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mars_viz.demo import tasks
from mars_viz.demo.prompts import STORIES
from mars_viz.dialmap import useful_span
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.record_map import Mapping
from mars_viz.recording import Recording
from mars_viz.run import Run, Settings
from mars_viz.run_with_map import mapped
from mars_viz.runfiles import check_free, save_run
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend

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
        Sample("2-story-strict", "The same story, strict: θ = 1", STORY, Settings(rule="mars", dial=1.0)),
        Sample(
            "3-story-sampled-mars",
            "A story sampled at T = 0.8, MARS with rejection sampling",
            STORIES[8],
            Settings(rule="mars-sampling", temperature=0.8, seed=1),
        ),
        Sample(
            "4-story-sampled-lossless",
            "The same story and luck, lossless: θ = 1",
            STORIES[8],
            Settings(rule="mars-sampling", dial=1.0, temperature=0.8, seed=1),
        ),
        Sample("5-addition-mars", "An addition in steps, MARS at θ = 0.9", addition, Settings(rule="mars")),
        Sample(
            "7-story-mars-as-released",
            "A story sampled at T = 0.8, MARS as its code was released",
            STORIES[8],
            Settings(rule="mars-code", temperature=0.8, seed=1, max_new_tokens=64),  # its map branches most
        ),
    ]


def damaged_answer(pair: Backend) -> Sample:
    """A held-out exercise that is right when strict and wrong when relaxed, at the strictest θ that shows one.

    Raises BadInput where 2,000 exercises show none.
    """
    order = (tasks.Task.QUESTION, tasks.Task.SORTING)
    for theta, task in itertools.product(DAMAGING_THETAS, order):
        for exercise in itertools.islice(tasks.instances(task, SEED, held_out=True), 200):
            settings = Settings(rule="mars", dial=theta)
            if tasks.grade(exercise, Recording(pair, exercise.prompt, settings).finish().text):
                continue
            strict = Recording(pair, exercise.prompt, Settings(rule="strict")).finish()
            if tasks.grade(exercise, strict.text):
                title = f"An answer that θ = {theta:g} gets wrong and strict gets right"
                return Sample("6-question-damaged", title, exercise.prompt, settings)
    raise BadInput("No exercise is right when strict and wrong when relaxed; look further, or at another task.")


def recorded(pair: Backend, sample: Sample) -> Run:
    """The sample, decoded by itself for its timings, with its map over θ and every block length."""
    settings = sample.settings
    run = Recording(pair, sample.prompt, settings, title=sample.title).finish()
    mapping = Mapping(pair, sample.prompt, settings, useful_span(settings), title=sample.title, run=run)
    return mapped(run, mapping.finish())


def main(arguments: list[str] | None = None) -> int:
    """Record them all into a folder that does not hold them yet."""
    parser = argparse.ArgumentParser(prog="python -m training.samples", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("sample_runs"))
    out = parser.parse_args(arguments).out
    try:
        wanted = samples()
        for sample in wanted:
            check_free(out / sample.folder)
        pair = load_backend(device="cpu")
        for sample in (*wanted, damaged_answer(pair)):
            _keep(pair, sample, out / sample.folder)
    except MarsVizError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _keep(pair: Backend, sample: Sample, path: Path) -> None:
    began = time.perf_counter()
    run = recorded(pair, sample)
    assert run.dial_map is not None
    save_run(run, path)
    size = sum(file.stat().st_size for file in path.iterdir())
    print(
        f"{path}: {run.title}; τ {run.tau:.2f}, {len(run.token_ids)} tokens; its map holds "
        f"{len(run.dial_map.segments)} texts at γ = {run.settings.gamma}; {size / 1e6:.1f} MB, "
        f"{time.perf_counter() - began:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
