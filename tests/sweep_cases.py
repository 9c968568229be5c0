"""Sweeps of a toy backend, and prompt sets for it: fast, exact, without models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import Bootstrap
from mars_viz.axis import RuleDial
from mars_viz.chat import History
from mars_viz.costs import BatchCosts, Cost, Costs
from mars_viz.documents import lines
from mars_viz.exploration import walk
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.runfiles import check_free
from mars_viz.shapes import shape_named
from mars_viz.speculators.backend import Backend
from mars_viz.sweep import Sweep, SweepResult
from mars_viz.sweep.document import summary
from mars_viz.sweep.evidence import DEFAULT_TERMS, Evidence
from mars_viz.sweep.measures import Terms
from mars_viz.sweep.report import CachedSweep
from mars_viz.sweep.wall_clock import Checks, TimingCheck, Way
from mars_viz.walk import Ending
from mars_viz.writer import write_folder
from tests.factories import ToySpeculator
from tests.tables import table_backend

SETTINGS = Settings(rule="mars", gamma=3, max_new_tokens=16)
TREES = Settings(rule="mars", max_new_tokens=16, tree="dynamic:depth=3,topk=2,nodes=5")
SHORT = Settings(rule="mars", gamma=2, max_new_tokens=5)
COSTS = Costs(
    device="Toy",
    dtype="float32",
    target="toy-target",
    drafter="toy-drafter",
    cache_length=64,
    repeats=30,
    target_pass=tuple(Cost(s, s, s) for s in (0.010, 0.011, 0.012, 0.013)),
    drafter_step=Cost(0.001, 0.001, 0.001),
    rest=tuple(Cost(0.001, 0.001, 0.001) for _ in range(3)),
)

BATCHES = BatchCosts(
    *("Toy", "float32", "toy-target", "toy-drafter", 64, 6, (1, 4, 16)),
    tuple(
        tuple(Cost(ms / 1000, ms / 1000, ms / 1000) for ms in row)
        for row in ((10, 11, 12, 14), (12, 15, 24, 40), (20, 60, 90, 120))
    ),
)


def asking(backend: Backend, opened: Callable[[Settings], Any]) -> Backend:
    """Return the backend with speculators of this function."""
    kind = type("Asking", (Backend,), {"speculator": lambda self, settings, *_: opened(settings)})
    return kind(**{each.name: getattr(backend, each.name) for each in fields(Backend)})


def accuracy(points: float, confidence: float) -> Terms:
    """Terms by which accuracy alone decides."""
    return Terms(points, Bootstrap(confidence), cut_off=100, looping=100)


def evidence_of(result: SweepResult, dial: float, **options: Any) -> dict[str, Any]:
    return Evidence(result, dial, **options).facts()


def evidence_files(result: SweepResult, *, dial: float, **options: Any) -> dict[str, bytes]:
    return Evidence(result, dial, **options).files()


def write_evidence(folder: Path, result: SweepResult, *, dial: float, **options: Any) -> Path:
    check_free(folder)
    write_folder(folder, evidence_files(result, dial=dial, **options).items())
    return folder


def toy_prompts(count: int, graded: bool = True) -> PromptSet:
    """Right is a text in which a certain word occurs: some are, some are not."""
    items = [
        PromptItem(f"p{i}", "even" if i % 2 == 0 else "odd", f"prompt {i}", f"w{i % 31 + 1}", "contains")
        if graded
        else PromptItem(f"p{i}", "general", f"prompt {i}")
        for i in range(count)
    ]
    return PromptSet("toys", tuple(items))


def conversations(questions: int, turns: int) -> PromptSet:
    """Questions of so many turns; every turn is graded."""
    items = []
    for n in range(questions):
        for turn in range(1, turns + 1):
            text, answer = f"question {n}, turn {turn}", f"w{(n + turn) % 31 + 1}"
            items.append(PromptItem(f"q{n}/{turn}", "talk", text, answer, "contains", 0, f"q{n}", turn))
    return PromptSet("talks", tuple(items))


def first_turns(prompts: PromptSet) -> PromptSet:
    """The same read without later turns: a question is known by its own name then."""
    firsts = [replace(item, id=item.question, question="") for item in prompts.items if item.turn == 1]
    return replace(prompts, items=tuple(firsts))


def toy_sweep(out: Path, count: int = 6, settings: Settings = SETTINGS, *, graded: bool = True, **how: Any) -> Sweep:
    """A sweep over the whole dial, or from `low` on."""
    return _sweep(out, toy_prompts(count, graded), settings, **how)


def sweep_over(out: Path, prompts: PromptSet, settings: Settings = SETTINGS) -> None:
    """The same over these prompts, made at once."""
    _sweep(out, prompts, settings).finish()


def _sweep(out: Path, prompts: PromptSet, settings: Settings, resume: bool = False, low: float | None = None) -> Sweep:
    span = RuleDial(rule_named(settings.rule)).span(low, None, (settings.gamma,))
    costs = replace(
        COSTS, rest=COSTS.rest[:1] * settings.gamma, target_pass=COSTS.target_pass[:1] * (settings.gamma + 1)
    )
    costs = COSTS if settings.gamma == COSTS.gamma else costs
    if settings.drafts_trees:
        levels = shape_named(settings.tree).within(settings.gamma).depth
        costs = replace(costs, tree=settings.tree, drafting=(COSTS.drafter_step,) * levels)
    return Sweep(table_backend(), prompts, settings, span, out, resume=resume, costs=costs)


def timing(gamma: int = 3) -> TimingCheck:
    """A wall-clock check that finds the setting twice as fast as strict, for every prompt."""
    ways = [
        Way(name, np.array([10, 20, 30]), np.array([5, 8, 9]), factor * np.array([[1.0, 1.2], [2.0, 2.1], [3.0, 3.3]]))
        for name, factor in (("target", 1.2), ("strict", 1.0), ("chosen", 0.5))
    ]
    return TimingCheck(
        "Toy", "mars", 0.9, gamma, *ways, same_as_target=3, modelled_over_strict=1.5, modelled_over_target=3
    )


def summary_of(result: SweepResult, dial: float, *checks: TimingCheck, terms: Terms = DEFAULT_TERMS) -> str:
    return "\n".join(lines(summary(CachedSweep(result, terms.how), dial, Checks(checks), terms)))


def equal(one: SweepResult, other: SweepResult) -> bool:
    """The same lines and prompts, but for the time they took."""
    ours, theirs = ({**r.lines, **r.prompts, "starts": r.starts} for r in (one, other))
    same = all(np.array_equal(values, theirs[name]) for name, values in ours.items() if name != "seconds")
    return same and one.plan.settings == other.plan.settings


def alone(
    prompt: str, settings: Settings, dial: float | None, rule: str = "", history: History | None = None
) -> list[Round]:
    """Return the rounds of an independent walk, by the settings' rule unless another is named."""
    tokens = table_backend().tokenizer.encode(prompt, history or History())
    ending = Ending(frozenset({0}), settings.max_new_tokens)
    return list(walk(ToySpeculator(settings), rule_named(rule or settings.rule), dial, tokens, ending))
