"""Two sweeps over the same prompts, each at a dial value: their figures in pairs, and their texts prompt by prompt.

The dial may be a rule's or a controller's threshold. A prompt is identified by its id, a turn of a conversation by its
question and place, and by its text if both sweeps store their prompts. A later turn is the same prompt only after the
same turns and answers. Texts are exact: each is the one that its setting writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np

from mars_viz.analysis.alignment import Alignment, Unit, Written, align, same_vocabulary
from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval
from mars_viz.chat import in_plain_text
from mars_viz.costs import Costs
from mars_viz.errors import BadInput, SettingError
from mars_viz.records import first_difference
from mars_viz.sweep import texts
from mars_viz.sweep.columns import UNGRADED
from mars_viz.sweep.measures import DRAFTED, Measure, change, measures, value_at
from mars_viz.sweep.plan import same_answers
from mars_viz.sweep.result import SweepResult, costed_by
from mars_viz.sweep.store import open_store
from mars_viz.sweep.texts import PromptTexts


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """A sweep at a value of its dial."""

    result: SweepResult
    dial: float


@dataclass(frozen=True, slots=True)
class Paired:
    """One figure of both settings, on their shared prompts."""

    measure: Measure  # the figure as defined in the first sweep
    left: Interval  # the first setting's value
    right: Interval  # the second setting's value
    change: Interval  # second minus first, paired by resampled prompts (or questions if prompts are turns)


@dataclass(frozen=True)
class Pairing:
    """Two settings and their shared prompts with results."""

    left: SweepSetting  # the reference
    right: SweepSetting  # the other setting
    ids: tuple[str, ...]  # [P]; the shared prompts, in the reference's order and with its names
    texts: tuple[str, ...]  # [P]; texts of the prompts; empty if the sweeps do not store them
    rows: tuple[np.ndarray, np.ndarray]  # int64 [P] each; indices in either sweep
    otherwise: int  # number of prompts with equal id and different text, which are not paired
    apart: int  # number of shared later turns after other turns or answers, which are not paired

    @property
    def graded(self) -> np.ndarray:
        """bool [P]; prompts that are graded in both."""
        return np.asarray(self.left.result.graded[self.rows[0]] & self.right.result.graded[self.rows[1]])

    @property
    def units(self) -> np.ndarray | None:
        """int64 [P]; the question of each turn, which resampling draws. None if every prompt is independent, for
        example if one of the sweeps has first turns only."""
        units = self.left.result.units
        return None if units is None or self.right.result.units is None else units[self.rows[0]]

    @property
    def one_sweep(self) -> bool:
        return self.left.result is self.right.result

    @property
    def one_setting(self) -> bool:
        return self.one_sweep and self.left.dial == self.right.dial

    @property
    def one_vocabulary(self) -> bool:
        """True if token ids are known to mean the same in both: one sweep, or sweeps of one target."""
        ours, theirs = (side.result.plan.provenance for side in (self.left, self.right))
        one_target = (ours.target, ours.target_revision) == (theirs.target, theirs.target_revision)
        return self.one_sweep or one_target

    @property
    def costs(self) -> tuple[Costs | None, Costs | None]:
        """Costs for modelling either setting. For one pair on one device both use one sweep's costs, those for longer
        blocks: two measurements differ, and that could be mistaken for a difference of the settings."""
        ours, theirs = self.left.result.costs, self.right.result.costs
        if ours is None or theirs is None or any(getattr(ours, name) != getattr(theirs, name) for name in _COSTED):
            return ours, theirs
        shared = ours if ours.gamma >= theirs.gamma else theirs
        return shared, shared

    @cached_property
    def divergence(self) -> np.ndarray | None:
        """int64 [P]; the first token at which both texts differ, -1 if none does. None if a sweep stores no texts, or
        if their tokens may mean something else."""
        if not self.one_vocabulary:
            return None
        sides = []
        for side, rows in zip((self.left, self.right), self.rows, strict=True):
            lines = side.result.rows(np.array([side.dial]))[rows, 0] - side.result.starts[rows]
            stretches = dict(zip(side.result.prompts["prompt"][rows].tolist(), lines.tolist(), strict=True))
            with suppress(BadInput):  # damaged ones, which are named when one is read
                sides.append(texts.tokens_of(side.result.folder, stretches))
        if len(sides) < 2 or None in sides:
            return None
        places = (first_difference(one, other) for one, other in zip(*sides, strict=True))
        return np.array([-1 if place is None else place for place in places], np.int64)

    def at(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a column of the sweeps' tables at both settings, [P] each."""
        left, right = (
            side.result.at(column, np.array([side.dial]))[rows, 0]
            for side, rows in zip((self.left, self.right), self.rows, strict=True)
        )
        return left, right

    @property
    def coverage(self) -> str:
        ours, theirs, shared = len(self.left.result), len(self.right.result), len(self.ids)
        if shared == ours == theirs:
            return f"Both sweeps hold the same {shared} prompts." if shared > 1 else "Both sweeps hold the same prompt."
        words = f"The sweeps share {shared} prompts of {ours} and {theirs}; these alone are compared."
        if self.otherwise:
            words += f" {self.otherwise} more have one id and different texts."
        if self.apart:
            what = "turn that both hold follows" if self.apart == 1 else "turns that both hold follow"
            are = "is" if self.apart == 1 else "are"
            words += f" {self.apart} later {what} other turns or other answers and {are} left out."
        return words


_COSTED = ("device", "dtype", "target", "drafter", "cache_length", "tree")
"""Fields that identify the subject of a cost measurement."""


def pair(left: SweepSetting, right: SweepSetting) -> Pairing:
    """Return the prompts with results at both settings. Raises BadInput if they share none, if one has no results, and
    for a dial value that was not swept."""
    for side in (left, right):
        side.result.rows(np.array([side.dial]))
        if not len(side.result):
            reason = side.result.failures[0].reason  # it has lines, but none of a text
            raise SettingError(f"No prompt of the sweep {side.result.folder.name} could be swept. {reason}")
    ours = _asked(left.result)
    theirs = ours if right.result is left.result else _asked(right.result)
    answers = same_answers(left.result.plan, right.result.plan)
    alike: dict[tuple[str, int], None] = {}
    otherwise = apart = 0
    for question, turn in (place for place in ours if place in theirs):
        texts = {prompts[question, turn][2] for prompts in (ours, theirs)}
        if turn > 1 and not (answers and (question, turn - 1) in alike):
            apart += 1
        elif None not in texts and len(texts) > 1:
            otherwise += 1
        else:
            alike[question, turn] = None
    if not alike:
        same = f" {otherwise} ids occur in both, with different texts." if otherwise else ""
        raise SettingError(
            f"These sweeps share no prompt: one is over “{left.result.plan.prompt_set}”, the other over "
            f"“{right.result.plan.prompt_set}”.{same} Choose two sweeps of one set of prompts."
        )
    rows = tuple(np.array([prompts[place][0] for place in alike], np.int64) for prompts in (ours, theirs))
    ids = tuple(ours[place][1] for place in alike)
    texts_of = tuple(ours[place][2] or theirs[place][2] or "" for place in alike)
    return Pairing(left, right, ids, texts_of, (rows[0], rows[1]), otherwise, apart)


def _asked(result: SweepResult) -> dict[tuple[str, int], tuple[int, str, str | None]]:
    """Return row, id and text of every prompt with results, by its identity in both sweeps: question and turn.

    The question is the conversation, or the prompt's id. The row is the index among prompts with results. The text is
    None if the folder does not store its prompts. Turns can be counted, because later turns of a missing one have no
    results either.
    """
    texts: dict[str, str] = {}
    with suppress(BadInput):
        items = open_store(result.folder).prompts().items
        texts = {item.id: in_plain_text(item.opening, item.prompt) for item in items}
    ids = result.prompts["id"]
    questions = result.prompts.get("question", ids)
    prompts, turns = {}, Counter[str]()
    for row, (name, question) in enumerate(zip(ids.astype(str).tolist(), questions.astype(str).tolist(), strict=True)):
        turns[question] += 1
        prompts[question, turns[question]] = (row, name, texts.get(name))
    return prompts


def compared(pairing: Pairing, names: Sequence[str], how: Bootstrap = DEFAULT) -> tuple[Paired, ...]:
    """Return the named figures that both sweeps have for the shared prompts and define equally. Definitions may differ:
    texts are compared with strict in one sweep, and with drafts of full length in another."""
    left, right = (
        replace(side, result=costed_by(side.result, costs))
        for side, costs in zip((pairing.left, pairing.right), pairing.costs, strict=True)
    )
    pairing = replace(pairing, left=left, right=right)
    figures = [measures(side.result) for side in (left, right)]
    if any(DRAFTED.name in each for each in figures):
        figures = [each | {DRAFTED.name: DRAFTED} for each in figures]
    graded, pairs = pairing.graded, []
    for one, other in ((figures[0][name], figures[1][name]) for name in names if all(name in each for each in figures)):
        if one.title != other.title or (one.graded and not graded.any()):
            continue
        chosen = graded if one.graded else np.ones_like(graded)
        units = None if pairing.units is None else pairing.units[chosen]
        ours = (left.result, one, left.dial, pairing.rows[0][chosen])
        theirs = (right.result, other, right.dial, pairing.rows[1][chosen])
        before, after = (
            value_at(result, measure, dial, how, rows, units) for result, measure, dial, rows in (ours, theirs)
        )
        pairs.append(Paired(one, before, after, change((ours, theirs), how, units, sure=pairing.one_setting)))
    return tuple(pairs)


def turned(pairing: Pairing) -> tuple[np.ndarray, np.ndarray]:
    """Return the prompts that only the first setting has right, and those of the second, bool [P] each."""
    left, right = pairing.at("right")
    graded = (left != UNGRADED) & (right != UNGRADED)
    return graded & (left > right), graded & (left < right)


class Change(Enum):
    """Change of a prompt from the reference to the other setting; the largest changes come first."""

    WORSE = "becomes wrong"  # right, then wrong
    BETTER = "becomes right"  # wrong, then right
    DIFFERS = "differs"  # the texts differ, the grades are equal
    PERHAPS = "may differ"  # unknown, because a sweep stores no texts
    SAME = "identical"  # token for token


def changes(both: Pairing) -> dict[int, Change]:
    """Return the change of every shared prompt by its index, changed ones first, otherwise in the reference's order."""
    (worse, better), lengths = turned(both), both.at("tokens")
    # tokens of another vocabulary may be more or fewer for one text
    differs = (lengths[0] != lengths[1]) & both.one_vocabulary
    same = np.zeros_like(differs)
    if both.divergence is not None:
        same = both.divergence < 0
        differs = ~same
    elif both.one_sweep:
        dials = np.array([both.left.dial, both.right.dial])
        lines = both.left.result.rows(dials)[both.rows[0]]
        same = lines[:, 0] == lines[:, 1]
    marks = np.array([worse, better, differs & ~same, ~same, same])  # in the order of `Change`
    kinds = marks.argmax(axis=0)
    return {place: list(Change)[kinds[place]] for place in np.argsort(kinds, kind="stable").tolist()}


def kept(both: Pairing, place: int) -> tuple[Written, Written, Alignment]:
    """Return both texts after a prompt and their alignment. Raises BadInput if a sweep's texts are missing or
    damaged."""
    rows = [int(each[place]) for each in both.rows]
    left, right = (_texts(side, row) for side, row in zip((both.left, both.right), rows, strict=True))
    if left is None or right is None:
        one = f"The {'reference' if left is None else 'compared'} sweep holds no"
        who = "This sweep holds no" if both.one_sweep else "Neither sweep holds a" if left is right else one
        raise SettingError(
            f"{who} text of this prompt (older sweeps kept none). Sweep again into a new folder to read both, or "
            "decode the prompt under Rules or models on one prompt. The figures above need no texts."
        )
    ours, theirs = (
        found.text(int(side.result.rows(np.array([side.dial]))[row, 0] - side.result.starts[row]))
        for side, row, found in zip((both.left, both.right), rows, (left, right), strict=True)
    )
    by_token = both.one_vocabulary or same_vocabulary(left.pieces, right.pieces)
    return ours, theirs, align(ours, theirs, Unit.TOKENS if by_token else Unit.CHARACTERS)


def _texts(side: SweepSetting, row: int) -> PromptTexts | None:
    result = side.result
    stored = texts.read(result.folder, int(result.prompts["prompt"][row]))
    lengths = result.lines["tokens"][slice(*result.starts[row : row + 2])]
    if stored is not None and not np.array_equal(stored.lengths, lengths):
        raise texts.data_set(result.folder).damaged("")
    return stored
