"""Answers that were given before as a speculator: a recorded run or map is walked again without models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mars_viz.controllers import Control
from mars_viz.errors import EvidenceError
from mars_viz.records import Round, Speculation
from mars_viz.run import Run
from mars_viz.walk import Answer, Ending


class RecordedSpeculator:
    """Answers the prefixes that were asked about once, for any γ up to the one that was drafted, and any controller of
    drafts that were not cut before."""

    def __init__(
        self, answers: Mapping[tuple[int, ...], Answer], gamma: int | None = None, control: Control | None = None
    ):
        self._answers = answers
        self._gamma = gamma
        self._control = control

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """The recorded answers. Raises BadInput for a prefix that was never asked about."""
        unknown = next((prefix for prefix in prefixes if prefix not in self._answers), None)
        if unknown is not None:
            raise EvidenceError(
                f"The run does not hold what comes after those {len(unknown)} tokens, since its text parts before "
                "there; decode the prompt anew at this dial value."
            )
        found = [self._answers[prefix] for prefix in prefixes]
        if self._gamma is not None:
            found = [replace(answer, speculation=shortened(answer.speculation, self._gamma)) for answer in found]
        return [cut_by(self._control, answer) for answer in found]


def answers_of(run: Run) -> dict[tuple[int, ...], Answer]:
    """What the run was answered at each prefix it passed through."""
    return answers_through(run.prompt_ids, run.rounds)


def answers_through(prompt: tuple[int, ...], rounds: Iterable[Round]) -> dict[tuple[int, ...], Answer]:
    """What a walk of these rounds was answered at each prefix it passed through."""
    answers: dict[tuple[int, ...], Answer] = {}
    prefix = prompt
    for round_ in rounds:
        answers[prefix] = Answer(round_.speculation, round_.timing)
        prefix += round_.token_ids
    return answers


def ending_of(run: Run) -> Ending:
    """When the run's text ends, and that of every other walk from its prompt."""
    return Ending.of(run.settings, run.provenance.eos_ids, run.pieces)


def cut_by(control: Control | None, answer: Answer) -> Answer:
    """The answer without what the controller would not have drafted, as a drafter under it would have given it; the
    seconds are those of the whole. Raises EvidenceError for trees, and where the controller lacks a column."""
    if control is None:
        return answer
    return replace(answer, speculation=shortened(answer.speculation, control.length(answer.speculation)))


def shortened(speculation: Speculation, gamma: int) -> Speculation:
    """What a drafter told to draft only `gamma` tokens would have left: a chain's first nodes and their rows, or the
    tree of so many nodes.

    Draws, coins and samples are keyed by place, so they are the ones that it would have seen; above temperature 0 but
    for what a tree's row emits of whose children some are cut away.
    """
    drafted = len(speculation)
    if gamma >= drafted:
        return speculation
    if "budgets" in speculation.columns:
        return _smaller(speculation, gamma)
    cut = speculation.chosen(slice(gamma), slice(gamma + 1))
    if "block_mass" in cut and gamma:
        cut["block_mass"] = np.append(cut["block_mass"][:-1], 0.0)  # nothing was drafted below the last one
    return replace(speculation, columns=cut)


def _smaller(speculation: Speculation, nodes: int) -> Speculation:
    """The tree of so many nodes that a tree holds."""
    kept = np.flatnonzero(speculation.budgets <= nodes)
    places = np.full(len(speculation) + 1, -1, np.int32)
    places[kept] = np.arange(len(kept))  # of the prefix, which is the last, -1
    rows = np.append(0, kept + 1)
    cut = {name: each[kept if len(each) == len(speculation) else rows] for name, each in speculation.columns.items()}
    return replace(speculation, columns=cut | {"parents": places[cut["parents"]]})
