"""Two sweeps over the same prompts, each at a value of its own dial, be that a rule's or a draft-length controller's
threshold: their figures in pairs, prompt by prompt.

Knows sweeps' columns and the bootstrap; knows no models and draws nothing. A prompt is known by its id, a turn of a
conversation by its question and place, and where both sweeps hold their prompts by what it says. A later turn is the
same prompt only after the same turns and answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval
from mars_viz.chat import in_plain_text
from mars_viz.costs import Costs
from mars_viz.errors import BadInput, SettingError
from mars_viz.prompts import Turns
from mars_viz.records import Emission
from mars_viz.sweep.columns import UNGRADED
from mars_viz.sweep.mapper import strict_reference
from mars_viz.sweep.measures import DRAFTED, Among, ComparedFigure, Measure, change, measures, value_at
from mars_viz.sweep.plan import Plan, comparable, same_answers
from mars_viz.sweep.result import SweepResult, costed_by
from mars_viz.sweep.store import open_store


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """A sweep at a value of its dial."""

    result: SweepResult
    """The sweep."""
    dial: float
    """The value."""


@dataclass(frozen=True, slots=True)
class Paired:
    """One figure of both settings, on the prompts that they share."""

    measure: Measure
    """The figure, as the first sweep has it."""
    left: Interval
    """The first's."""
    right: Interval
    """The second's."""
    change: Interval
    """Second less first, both on the same resampled prompts, or questions where prompts are turns of them."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two settings and the prompts that both have results of."""

    left: SweepSetting
    """The reference."""
    right: SweepSetting
    """The other."""
    ids: tuple[str, ...]
    """[P]; the shared prompts, in the reference's order and by its names."""
    texts: tuple[str, ...]
    """[P]; what each asks; empty where the sweeps do not hold their prompts."""
    rows: tuple[np.ndarray, np.ndarray]
    """int64 [P] each; where they stand in either sweep."""
    otherwise: int
    """Prompts of one id that say something else in the other sweep; they are not paired."""
    apart: int
    """Later turns that both hold, after other turns or other answers; they are not paired."""

    @property
    def graded(self) -> np.ndarray:
        """bool [P]; prompts that are right or wrong in both."""
        sides = zip((self.left, self.right), self.rows, strict=True)
        return np.logical_and.reduce([side.result.graded[rows] for side, rows in sides])

    @property
    def units(self) -> np.ndarray | None:
        """int64 [P]; the question that each is a turn of, which is what resampling draws. None where every prompt
        stands alone, as where one of the sweeps has first turns only."""
        units = self.left.result.units
        return None if units is None or self.right.result.units is None else units[self.rows[0]]

    @property
    def one_sweep(self) -> bool:
        """True if both are settings of one sweep."""
        return self.left.result is self.right.result

    @property
    def one_setting(self) -> bool:
        """True if they are the same setting."""
        return self.one_sweep and self.left.dial == self.right.dial

    @property
    def one_vocabulary(self) -> bool:
        """True if a token is known to mean the same in both: they are one sweep, or sweeps of one target."""
        ours, theirs = (side.result.plan.provenance for side in (self.left, self.right))
        one = ours.target == theirs.target and ours.target_revision == theirs.target_revision
        return self.one_sweep or one

    @property
    def costs(self) -> tuple[Costs | None, Costs | None]:
        """What either setting is modelled with. Of one pair on one device that is what one sweep measured, up to the
        longer blocks: two measurements of one thing differ, and that would pass for a difference of the settings."""
        ours, theirs = self.left.result.costs, self.right.result.costs
        if ours is None or theirs is None or any(getattr(ours, name) != getattr(theirs, name) for name in _COSTED):
            return ours, theirs
        shared = ours if ours.gamma >= theirs.gamma else theirs
        return shared, shared

    def at(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """[P] each; a column of the sweeps' tables at both settings."""
        left, right = (
            side.result.at(column, np.array([side.dial]))[rows, 0]
            for side, rows in zip((self.left, self.right), self.rows, strict=True)
        )
        return left, right

    @property
    def coverage(self) -> str:
        """How far the two sets match, in a sentence or two."""
        ours, theirs, shared = len(self.left.result), len(self.right.result), len(self.ids)
        if shared == ours == theirs:
            return f"Both sweeps hold the same {shared} prompts." if shared > 1 else "Both sweeps hold the same prompt."
        said = f"The sweeps share {shared} prompts of {ours} and {theirs}; these alone are compared."
        if self.otherwise:
            said += f" {self.otherwise} more have one id and different texts."
        if self.apart:
            what = "later turn that both hold follows" if self.apart == 1 else "later turns that both hold follow"
            said += (
                f" {self.apart} {what} other turns or other answers and {'is' if self.apart == 1 else 'are'} left out."
            )
        return said


_COSTED = ("device", "dtype", "target", "drafter", "cache_length", "tree")
"""What makes two measurements of costs ones of the same thing."""


def pair(left: SweepSetting, right: SweepSetting) -> Pairing:
    """The prompts that both settings have results of. Raises BadInput where they share none, where one has results of
    none, and for a dial value that was not swept."""
    _check(left, right)
    ours = _asked(left.result)
    theirs = ours if right.result is left.result else _asked(right.result)
    answers = same_answers(left.result.plan, right.result.plan)
    alike: dict[_TurnKey, None] = {}
    otherwise = apart = 0
    for place in (place for place in ours if place in theirs):
        if place.turn > 1 and not (answers and replace(place, turn=place.turn - 1) in alike):
            apart += 1
        elif None not in (texts := {ours[place].text, theirs[place].text}) and len(texts) > 1:
            otherwise += 1
        else:
            alike[place] = None
    if not alike:
        same = f" {otherwise} ids occur in both, with different texts." if otherwise else ""
        raise SettingError(
            f"These sweeps share no prompt: one is over “{left.result.plan.prompt_set}”, the other over "
            f"“{right.result.plan.prompt_set}”.{same} Choose two sweeps of one set of prompts."
        )
    rows = tuple(np.array([known[place].row for place in alike], np.int64) for known in (ours, theirs))
    texts_of = tuple(ours[place].text or theirs[place].text or "" for place in alike)
    return Pairing(left, right, tuple(ours[p].id for p in alike), texts_of, (rows[0], rows[1]), otherwise, apart)


def at_settings(paired: Pairing, left: SweepSetting, right: SweepSetting) -> Pairing:
    """The same prompts at other dial values of the same sweeps. Raises BadInput for one that was not swept."""
    _check(left, right)
    return replace(paired, left=left, right=right)


def _check(*settings: SweepSetting) -> None:
    for side in settings:
        side.result.rows(np.array([side.dial]))
        if not len(side.result):
            reason = side.result.failures[0].reason  # it has lines, but none of a text
            raise SettingError(f"No prompt of the sweep {side.result.folder.name} could be swept. {reason}")


@dataclass(frozen=True, slots=True)
class _TurnKey:
    """What a prompt is known by in both sweeps, whether they decode first turns or all."""

    question: str
    """The conversation whose turn it is, or its own id."""
    turn: int
    """Which of its turns, from 1."""


@dataclass(frozen=True, slots=True)
class _SweptPrompt:
    """A prompt of one sweep."""

    row: int
    """Where it stands among those with results."""
    id: str
    """Its name there."""
    text: str | None
    """What it asks; None where the folder does not hold its prompts."""


def _asked(result: SweepResult) -> dict[_TurnKey, _SweptPrompt]:
    """Every prompt with results. Turns are counted: one without results leaves the later ones without them."""
    ids, texts, turns = result.prompts["id"].astype(str).tolist(), _texts(result), Counter[str]()
    if result.plan.turns is Turns.FIRST:
        return {_TurnKey(name, 1): _SweptPrompt(row, name, texts.get(name)) for row, name in enumerate(ids)}
    found = {}
    for row, (name, question) in enumerate(zip(ids, result.prompts["question"].astype(str).tolist(), strict=True)):
        turns[question] += 1
        found[_TurnKey(question, turns[question])] = _SweptPrompt(row, name, texts.get(name))
    return found


def _texts(result: SweepResult) -> dict[str, str]:
    """What each prompt asks, by id; nothing where the folder does not hold its prompts."""
    try:
        items = open_store(result.folder).prompts().items
        return {item.id: in_plain_text(item.opening, item.prompt) for item in items}
    except BadInput:
        return {}


def compared(pairing: Pairing, names: Sequence[str], how: Bootstrap = DEFAULT) -> tuple[Paired, ...]:
    """The figures of these names that both sweeps have of the shared prompts, and that say the same of both: texts may
    be compared with strict in one sweep, and in the other with those of drafts of full length."""
    left, right = (
        replace(side, result=costed_by(side.result, costs))
        for side, costs in zip((pairing.left, pairing.right), pairing.costs, strict=True)
    )
    pairing = replace(pairing, left=left, right=right)
    known = [measures(side.result) for side in (left, right)]
    if any(DRAFTED.name in each for each in known):
        known = [each | {DRAFTED.name: DRAFTED} for each in known]
    graded = pairing.graded
    both = [(known[0][name], known[1][name]) for name in names if all(name in each for each in known)]
    return tuple(
        _paired(pairing, (one, other), graded, how)
        for one, other in both
        if one.title == other.title and (graded.any() or not one.graded)
    )


def _paired(pairing: Pairing, both: tuple[Measure, Measure], graded: np.ndarray, how: Bootstrap) -> Paired:
    chosen = graded if both[0].graded else np.ones_like(graded)
    units = None if pairing.units is None else pairing.units[chosen]
    settings = zip((pairing.left, pairing.right), both, pairing.rows, strict=True)
    one, other = (
        ComparedFigure(setting.result, measure, setting.dial, rows[chosen]) for setting, measure, rows in settings
    )
    left, right = (
        value_at(each.result, each.measure, each.dial, how, Among(each.rows, units)) for each in (one, other)
    )
    return Paired(both[0], left, right, change((one, other), how, units, sure=pairing.one_setting))


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the texts of a prompt part, as far as two sweeps tell: they keep where each leaves the text that it is
    compared with, strict's or that of drafts of full length."""

    first: np.ndarray
    """int64 [P]; first token that differs; -1 where none does."""
    exact: np.ndarray
    """bool [P]; False where both leave that text at this token, so that they part there or later, or not at all."""


def divergence(pairing: Pairing) -> Divergence | None:
    """Where the texts part; None where the two texts that they are compared with are not known to be the same: other
    models, sampling, length limit or device, a strict end that is not lossless, or above temperature 0 one of another
    kind."""
    one, other = pairing.left.result.plan, pairing.right.result.plan
    # what is paired asks the same after the same turns and answers, whatever else the sets hold
    same_set = replace(other, prompt_set_sha256=one.prompt_set_sha256, prompts=one.prompts, turns=one.turns)
    sides = zip((pairing.left, pairing.right), pairing.rows, strict=True)
    as_told = all(side.result.prompts["off_is_strict"][rows].all() for side, rows in sides)
    if not comparable(one, same_set) or not as_told or _reference(one) != _reference(other):
        return None
    left, right = (column.astype(np.int64) for column in pairing.at("first_divergence"))
    never = np.iinfo(np.int64).max
    least = np.minimum(np.where(left < 0, never, left), np.where(right < 0, never, right))
    return Divergence(np.where(least == never, -1, least), (left != right) | (left < 0))


def _reference(plan: Plan) -> tuple[object, ...]:
    """What decides the text that a sweep compares its settings with; of plans that are comparable equal for one text.

    At the strict end of a rule that is a lossless rule's, of a controller the rule's own at its dial, from drafts of
    full length. Lossless text hangs on what is emitted on a rejection, and where this is not the target's own sample,
    which stands at its position whatever was drafted, also on where blocks begin.
    """
    settings = plan.settings
    strict = strict_reference(plan.rule, settings.temperature)
    drafts = (settings.gamma, settings.tree, settings.controller)
    greedy = settings.temperature == 0 and plan.rule.lossless
    if plan.controller is not None and not greedy and plan.rule.name != strict.name:
        return (plan.rule.name, plan.rule.checked_dial(settings.dial), *drafts)
    return (strict.on_rejection,) if strict.on_rejection is Emission.SAMPLE else (strict.on_rejection, *drafts)


def turned(pairing: Pairing) -> tuple[np.ndarray, np.ndarray]:
    """bool [P] each; prompts that the second setting has wrong and the first right, and the other way round."""
    left, right = pairing.at("right")
    known = (left != UNGRADED) & (right != UNGRADED)
    return known & (left > right), known & (left < right)
