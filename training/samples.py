"""Records what comes with the product again: `python -m training.samples` the runs under sample_runs/, and the sweeps
under sample_sweeps/.

Knows the models and what each sample is to show. Each run carries its complete dial map; a rule without a dial
has none, so the strict samples are a MARS rule at θ = 1, its strict end. The damaged answer is searched for, not made
up: it is the first held-out word problem that strict decoding answers rightly and the relaxed rule answers wrongly.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mars_viz.costs import objection
from mars_viz.demo import SMOLLM2, tasks
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.exploration import mapped, useful_span
from mars_viz.prompts import builtin_prompts
from mars_viz.recording import Mapping, Recording
from mars_viz.run import Run, Settings
from mars_viz.runfiles import check_free, save_run
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.sweep import sweep_prompts
from training import command

SEED = 2
"""Of the exercises; another than the evaluation's."""
STORY = STORIES[0]
DAMAGING_THETAS = (0.9, 0.8, 0.7, 0.6, 0.5)
TREE = "dynamic:depth=6,topk=4,nodes=16"
MIXED = "suffix:n=16+eagle3"
PROMPTS = 640
"""Held-out exercises of a sweep."""
NEW_TOKENS = 144
"""Enough for every answer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run to record."""

    folder: str
    """Under sample_runs/; the lists are in its order."""
    title: str
    """What it shows, in a line."""
    prompt: str
    settings: Settings
    drafter: str | None = None
    """The built-in one unless another is named."""


QUESTIONS = (
    "Why do leaves change colour in autumn? Answer in two sentences.",
    "What is the capital of Australia, and what is it known for?",
    "Explain photosynthesis to a child.",
    "What are the causes of inflation?",
    "What is the difference between a virus and a bacterium?",
    "Give me tips for a job interview.",
)
"""Of which one derails when relaxed."""
PLANTS = "What is photosynthesis? Answer in two sentences."
TREE_16 = "dynamic:depth=5,topk=4,nodes=16"


def chat_samples() -> list[Sample]:
    """Answers by SmolLM2 and its EAGLE-3 head."""
    answer = Settings(rule="mars", gamma=4, max_new_tokens=96)
    sampled = replace(answer, rule="mars-sampling", temperature=0.6, seed=3, max_new_tokens=64)
    sea = "Write two sentences about the sea."
    return [
        Sample("0-1-plants-mars", "A chat answer, MARS at θ = 0.9, greedy", PLANTS, answer),
        Sample("0-2-plants-strict", "The same answer, strict: θ = 1", PLANTS, replace(answer, dial=1.0)),
        Sample(
            "0-3-plants-tree", "The same answer in trees of 16, MARS at θ = 0.9", PLANTS, replace(answer, tree=TREE_16)
        ),
        Sample(
            "0-4-sea-sampled-lossless", "An answer sampled at T = 0.6, lossless: θ = 1", sea, replace(sampled, dial=1.0)
        ),
        Sample("0-5-sea-sampled-mars", "The same question and luck, MARS at θ = 0.9", sea, sampled),
        Sample(
            "0-6-code-mars", "Python code, MARS at θ = 0.9", "Write a Python function that adds two numbers.", answer
        ),
        Sample("0-7-list-mars", "A list, MARS at θ = 0.9", "List three tips for better sleep.", answer),
    ]


def derailed_answer(backend: Backend) -> Sample:
    """Return an answer that ends by itself when strict and repeats itself when relaxed, at the strictest such θ.

    Raises BadInput if no question has one.
    """
    strict = Settings(rule="mars", dial=1.0, gamma=4, max_new_tokens=NEW_TOKENS)
    ending = [each for each in QUESTIONS if not repeats(Recording(backend, each, strict).finish().token_ids)]
    for theta, question in itertools.product(DAMAGING_THETAS, ending):
        settings = replace(strict, dial=theta)
        if repeats(Recording(backend, question, settings).finish().token_ids):
            title = f"An answer that repeats itself at θ = {theta:g} and not when strict"
            return Sample("0-8-chat-derailed", title, question, settings)
    raise BadInput("No answer repeats itself when relaxed and not when strict; add questions.")


def repeats(tokens: Sequence[int]) -> bool:
    """Return True if the last 36 tokens are made of one phrase of at most 16, over and over."""
    end = list(tokens[-36:])
    return len(end) == 36 and any(end[n:] == end[:-n] for n in range(1, 17))


def samples() -> list[Sample]:
    """Every sample but the damaged answer."""
    addition, counting = (
        next(tasks.instances(task, SEED, held_out=True)).prompt for task in (tasks.Task.ADDITION, tasks.Task.COUNTING)
    )
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
        Sample(
            "8-counting-mars",
            "A word problem in other words, MARS at θ = 0.9",
            counting,
            Settings(rule="mars", max_new_tokens=NEW_TOKENS),
        ),
        Sample(
            "9-story-tree",
            "A story in trees by the EAGLE-3 head, MARS at θ = 0.9",
            STORIES[1],
            Settings(rule="mars", tree=TREE),
            drafter="eagle3",
        ),
        Sample(
            "10-story-ngram",
            "A story drafted by prompt lookup, MARS at θ = 0.9",
            STORY,
            Settings(rule="mars"),
            drafter="ngram:n=3",
        ),
        Sample(
            "11-story-mtp",
            "A story drafted by an MTP layer, MARS at θ = 0.9",
            STORIES[1],
            Settings(rule="mars"),
            drafter="mtp",
        ),
        Sample(
            "12-story-dflash",
            "A story drafted in blocks by DFlash, MARS at θ = 0.9",
            STORIES[1],
            Settings(rule="mars"),
            drafter="dflash",
        ),
        Sample(
            "13-counting-mixed",
            "A word problem, lookup before EAGLE-3, MARS at θ = 0.9",
            counting,
            Settings(rule="mars", max_new_tokens=NEW_TOKENS),
            drafter=MIXED,
        ),
    ]


def damaged_answer(pair: Backend) -> Sample:
    """A held-out word problem that is right when strict and wrong when relaxed, at the strictest θ that shows one.

    Raises BadInput where 200 of them show none.
    """
    for theta in DAMAGING_THETAS:
        for exercise in itertools.islice(tasks.instances(tasks.Task.COUNTING, SEED, held_out=True), 200):
            settings = Settings(rule="mars", dial=theta, max_new_tokens=NEW_TOKENS)
            if tasks.final_answer(Recording(pair, exercise.prompt, settings).finish().text) == exercise.answer:
                continue
            strict = Recording(pair, exercise.prompt, replace(settings, dial=1.0)).finish()
            if tasks.final_answer(strict.text) == exercise.answer:
                title = f"A word problem that θ = {theta:g} gets wrong and strict gets right"
                return Sample("6-counting-damaged", title, exercise.prompt, settings)
    raise BadInput("No word problem is right when strict and wrong when relaxed; look further, or at another task.")


def recorded(pair: Backend, sample: Sample) -> Run:
    """The sample, decoded by itself for its timings, with its map over θ and every block length."""
    settings = sample.settings
    run = Recording(pair, sample.prompt, settings, title=sample.title).finish()
    mapping = Mapping(pair, sample.prompt, settings, useful_span(settings), title=sample.title, run=run)
    return mapped(run, mapping.finish())


@dataclass(frozen=True, slots=True)
class SampleSweep:
    """One sweep to record: a task, a rule and what drafts."""

    folder: str
    """Under sample_sweeps/; lists are in the order of these names."""
    task: tasks.Task
    settings: Settings
    drafter: str | None = None
    """The built-in one unless another is named."""


def sample_sweeps() -> list[SampleSweep]:
    """Return the sweeps of each task in free wording: MARS and an engine's rule with the built-in drafter, and MARS on
    trees of the head. The first is the one that Tune opens, in which much is gained before anything is lost. The last
    are of its prompts with further drafters, which Compare shows in one table."""
    mars, engine = (Settings(rule=rule, max_new_tokens=NEW_TOKENS) for rule in ("mars", "tensorrt-llm"))
    kinds = (("mars", mars, None), ("tensorrt-llm", engine, None), ("eagle3-tree", replace(mars, tree=TREE), "eagle3"))
    wanted = [
        (task, kind, settings, drafter)
        for (kind, settings, drafter), task in itertools.product(kinds, tasks.FREE_WORDING)
    ]
    drafters = (("mtp", "mtp"), ("dflash", "dflash"), ("suffix-eagle3", MIXED))
    others = [(tasks.Task.COUNTING, kind, mars, drafter) for kind, drafter in drafters]
    return [
        SampleSweep(f"{place}-{task.value}-{kind}", task, settings, drafter)
        for place, (task, kind, settings, drafter) in enumerate(
            [(tasks.Task.COUNTING, "eagle3", mars, "eagle3"), *wanted, *others], start=1
        )
    ]


@command
def main(arguments: list[str] | None = None) -> None:
    """Record them all into folders that do not hold them yet; a sweep that was stopped is gone on with."""
    parser = argparse.ArgumentParser(prog="python -m training.samples", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("sample_runs"), help="folder of the runs (%(default)s)")
    parser.add_argument("--sweeps", type=Path, default=Path("sample_sweeps"), help="folder of the sweeps (%(default)s)")
    parser.add_argument("--only", choices=("chat", "runs", "sweeps"), help="record the one kind alone")
    options = parser.parse_args(arguments)
    if options.only in (None, "chat"):
        _record_chat(options.out)
    if options.only in (None, "runs"):
        _record_runs(options.out)
    if options.only in (None, "sweeps"):
        _record_sweeps(options.sweeps)


@cache
def drafting(drafter: str | None, target: str | None = None) -> Backend:
    """The target, the built-in one for None, with this drafter, loaded when it is first asked for."""
    return load_backend(target, drafter, device="cpu")


def _record_runs(out: Path) -> None:
    wanted = samples()
    for sample in wanted:
        check_free(out / sample.folder)
    for sample in (*wanted, damaged_answer(drafting(None))):
        _keep(drafting(sample.drafter), sample, out / sample.folder)


def _record_chat(out: Path) -> None:
    wanted, backend = chat_samples(), drafting(None, SMOLLM2)
    for sample in wanted:
        check_free(out / sample.folder)
    for sample in (*wanted, derailed_answer(backend)):
        _keep(backend, sample, out / sample.folder)


def _record_sweeps(out: Path) -> None:
    """Raises BadInput at the end where a sweep has no costs that can be believed, since the machine did other work:
    called again, it goes on with all and measures those."""
    disturbed = []
    for wanted in sample_sweeps():
        began, path = time.perf_counter(), out / wanted.folder
        span = replace(useful_span(wanted.settings), gammas=(wanted.settings.gamma,))
        prompts = builtin_prompts(PROMPTS, kinds=(wanted.task,))
        result = sweep_prompts(drafting(wanted.drafter), prompts, wanted.settings, span, path, resume=True).finish()
        if result.costs is None or objection(result.costs):
            disturbed.append(wanted.folder)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        print(f"{path}: {len(result)} prompts; {size / 1e6:.1f} MB, {time.perf_counter() - began:.0f} s", flush=True)
    if disturbed:
        raise BadInput(
            f"No costs of passes for {', '.join(disturbed)}: the machine was busy. Run it again when it is not."
        )


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
