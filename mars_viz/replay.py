"""The answers recorded in a run, and shorter drafts of them, to walk it again without models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from mars_viz.controllers import Control
from mars_viz.records import Round, Speculation
from mars_viz.run import Run
from mars_viz.walk import Answer, Ending


def answers_of(run: Run) -> dict[tuple[int, ...], Answer]:
    """Return the run's answer at each of its prefixes."""
    return answers_through(run.prompt_ids, run.rounds)


def answers_through(prompt: tuple[int, ...], rounds: Iterable[Round]) -> dict[tuple[int, ...], Answer]:
    """Return the answer at each prefix of these rounds."""
    answers: dict[tuple[int, ...], Answer] = {}
    prefix = prompt
    for round_ in rounds:
        answers[prefix] = Answer(round_.speculation, round_.timing)
        prefix += round_.token_ids
    return answers


def ending_of(run: Run) -> Ending:
    """Return the end conditions of all walks from the run's prompt."""
    return Ending.of(run.settings, run.provenance.eos_ids, run.pieces)


def cut_by(control: Control | None, answer: Answer) -> Answer:
    """Return the answer with the draft cut by the controller; the timing stays that of the full draft.

    Raises EvidenceError for trees, and if the controller lacks a column.
    """
    if control is None:
        return answer
    return replace(answer, speculation=shortened(answer.speculation, control.length(answer.speculation)))


def shortened(speculation: Speculation, gamma: int) -> Speculation:
    """Return the draft with at most `gamma` tokens: the first nodes of a chain with their rows, or a tree's subtree.

    Draws, coins and samples are keyed by position, so they equal those of the shorter draft. Above temperature 0,
    emissions of tree rows with removed children may differ.
    """
    drafted = len(speculation)
    if gamma >= drafted:
        return speculation
    if "budgets" in speculation.columns:
        kept = np.flatnonzero(speculation.budgets <= gamma)
        places = np.full(drafted + 1, -1, np.int32)
        places[kept] = np.arange(len(kept))  # the last entry, for the prefix, stays -1
        rows = np.append(0, kept + 1)
        cut = {name: each[kept if len(each) == drafted else rows] for name, each in speculation.columns.items()}
        return replace(speculation, columns=cut | {"parents": places[cut["parents"]]})
    cut = speculation.chosen(slice(gamma), slice(gamma + 1))
    if "block_mass" in cut and gamma:
        cut["block_mass"] = np.append(cut["block_mass"][:-1], 0.0)  # nothing is drafted below the last one
    return replace(speculation, columns=cut)
