"""Two sweeps over the same prompts, each at a value of its own dial: their figures in pairs, prompt by prompt.

Knows sweeps' columns and the bootstrap; knows no models and draws nothing. A prompt is known by its id, and where both
sweeps hold their prompts by what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval, interval
from mars_viz.errors import BadInput
from mars_viz.sweep.columns import UNGRADED
from mars_viz.sweep.measures import Measure, measures
from mars_viz.sweep.plan import comparable
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.store import open_store


@dataclass(frozen=True, slots=True)
class Setting:
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
    """Second less first, both on the same resampled prompts."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two settings and the prompts that both have results of."""

    left: Setting
    """The reference."""
    right: Setting
    """The other."""
    ids: tuple[str, ...]
    """[P]; the shared prompts, in the reference's order."""
    texts: tuple[str, ...]
    """[P]; what each asks; empty where the sweeps do not hold their prompts."""
    rows: tuple[np.ndarray, np.ndarray]
    """int64 [P] each; where they stand in either sweep."""
    otherwise: int
    """Prompts of one id that say something else in the other sweep; they are not paired."""

    @property
    def graded(self) -> np.ndarray:
        """bool [P]; prompts that are right or wrong in both."""
        sides = zip((self.left, self.right), self.rows, strict=True)
        return np.logical_and.reduce([side.result.graded[rows] for side, rows in sides])

    def at(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """[P] each; a column of the sweeps' tables at both settings."""
        left, right = (
            side.result.at(column, np.array([side.dial]))[rows, 0]
            for side, rows in zip((self.left, self.right), self.rows, strict=True)
        )
        return left, right

    @property
    def coverage(self) -> str:
        """How far the two sets match, in a sentence."""
        ours, theirs, shared = len(self.left.result), len(self.right.result), len(self.ids)
        if shared == ours == theirs:
            return f"Both sweeps hold the same {shared} prompts." if shared > 1 else "Both sweeps hold the same prompt."
        said = f"The sweeps share {shared} prompts of {ours} and {theirs}; these alone are compared."
        if self.otherwise:
            said += f" {self.otherwise} more have one id and different texts."
        return said


def pair(left: Setting, right: Setting) -> Pairing:
    """The prompts that both settings have results of. Raises BadInput where they share none, and for a dial value that
    was not swept."""
    for side in (left, right):
        side.result.rows(np.array([side.dial]))
    ours, theirs = ({str(name): row for row, name in enumerate(side.result.prompts["id"])} for side in (left, right))
    asked, other = _texts(left.result), _texts(right.result)
    shared = [name for name in ours if name in theirs]
    alike = [name for name in shared if name not in asked or name not in other or asked[name] == other[name]]
    if not alike:
        same = f" {len(shared)} ids occur in both, with different texts." if shared else ""
        raise BadInput(
            f"These sweeps share no prompt: one is over “{left.result.plan.prompt_set}”, the other over "
            f"“{right.result.plan.prompt_set}”.{same} Choose two sweeps of one set of prompts."
        )
    rows = tuple(np.array([known[name] for name in alike], np.int64) for known in (ours, theirs))
    texts = tuple(asked.get(name, other.get(name, "")) for name in alike)
    return Pairing(left, right, tuple(alike), texts, (rows[0], rows[1]), len(shared) - len(alike))


def _texts(result: SweepResult) -> dict[str, str]:
    """What each prompt asks, by id; nothing where the folder does not hold its prompts."""
    try:
        return {item.id: item.prompt for item in open_store(result.folder).prompts().items}
    except BadInput:
        return {}


def compared(pairing: Pairing, names: Sequence[str], how: Bootstrap = DEFAULT) -> tuple[Paired, ...]:
    """The figures of these names that both sweeps have of the shared prompts."""
    known = [measures(side.result) for side in (pairing.left, pairing.right)]
    graded = pairing.graded
    return tuple(
        _paired(pairing, (known[0][name], known[1][name]), graded, known[0].get("accuracy_change"), how)
        for name in names
        if all(name in each for each in known) and (graded.any() or not known[0][name].graded)
    )


def _paired(
    pairing: Pairing,
    both: tuple[Measure, Measure],
    graded: np.ndarray,
    turned: Measure | None,
    how: Bootstrap,
) -> Paired:
    sides = zip((pairing.left, pairing.right), pairing.rows, both, strict=True)
    columns = [_columns(side, measure, rows[graded] if measure.graded else rows) for side, rows, measure in sides]
    values = [
        _not_too_sure(interval(measure.of, *each, how=how), measure, len(each[0]))
        for measure, each in zip(both, columns, strict=True)
    ]
    count = len(columns[0])
    change = interval(
        lambda *means: both[1].of(*means[count:]) - both[0].of(*means[:count]), *columns[0], *columns[1], how=how
    )
    if both[0].name == "accuracy" and turned is not None:
        change = _not_too_sure(change, turned, len(columns[0][0]))
    return Paired(both[0], values[0], values[1], change)


def _columns(side: Setting, measure: Measure, rows: np.ndarray) -> list[np.ndarray]:
    found = []
    for column in measure.columns:
        name = column.removeprefix("strict:")
        at = side.dial if name == column else side.result.plan.strict
        found.append(side.result.at(name, np.array([at]))[rows, 0].astype(np.float64))
    return found


def _not_too_sure(found: Interval, measure: Measure, prompts: int) -> Interval:
    """Where all prompts agree, resampling shows no spread; see `Measure.agreed`."""
    if measure.agreed is None or found.low != found.high:
        return found
    ends = measure.agreed(found.estimate, prompts, found.confidence)
    return replace(found, low=ends.low, high=ends.high)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the texts of a prompt part, as far as two sweeps tell: they keep where each leaves strict's text."""

    first: np.ndarray
    """int64 [P]; first token that differs; -1 where none does."""
    exact: np.ndarray
    """bool [P]; False where both leave strict's text at this token, so that they part there or later, or not at all."""


def divergence(pairing: Pairing) -> Divergence | None:
    """Where the texts part; None where the two strict texts are not known to be the same: other models, sampling,
    length limit or device, or a strict end that is not lossless."""
    one, other = pairing.left.result.plan, pairing.right.result.plan
    same_set = replace(other, prompt_set_sha256=one.prompt_set_sha256, prompts=one.prompts)
    lossless = all(
        side.result.prompts["off_is_strict"][rows].all()
        for side, rows in zip((pairing.left, pairing.right), pairing.rows, strict=True)
    )
    if not comparable(one, same_set) or not lossless:
        return None
    left, right = (column.astype(np.int64) for column in pairing.at("first_divergence"))
    never = np.iinfo(np.int64).max
    least = np.minimum(np.where(left < 0, never, left), np.where(right < 0, never, right))
    return Divergence(np.where(least == never, -1, least), (left != right) | (left < 0))


def turned(pairing: Pairing) -> tuple[np.ndarray, np.ndarray]:
    """bool [P] each; prompts that the second setting has wrong and the first right, and the other way round."""
    left, right = pairing.at("right")
    known = (left != UNGRADED) & (right != UNGRADED)
    return known & (left > right), known & (left < right)
