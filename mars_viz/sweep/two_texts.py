"""What two paired settings write after one prompt, and which prompts are worth reading first.

Knows pairings and the texts that sweeps keep; draws nothing. Texts are exact: each is the one that its setting writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.alignment import Alignment, Unit, Written, align, same_vocabulary
from mars_viz.sweep import texts
from mars_viz.sweep.pairing import Pairing, SweepSetting, divergence, turned
from mars_viz.sweep.texts import FOLDER, PromptTexts, spoiled


class Change(Enum):
    """What becomes of a prompt from the reference to the setting beside it; those that change most come first."""

    WORSE = "becomes wrong"
    """Right, then wrong."""
    BETTER = "becomes right"
    """Wrong, then right."""
    DIFFERS = "differs"
    """The texts differ, the grade does not."""
    PERHAPS = "may differ"
    """The figures do not tell whether the texts differ."""
    SAME = "identical"
    """Token for token."""


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A shared prompt."""

    place: int
    """Among the pairing's."""
    id: str
    """Its name."""
    change: Change
    """What becomes of it."""


@dataclass(frozen=True, slots=True)
class TwoTexts:
    """Both texts of a prompt, side by side."""

    left: Written
    """The reference's."""
    right: Written
    """The other's."""
    found: Alignment
    """Where they part, and what both have."""


@dataclass(frozen=True, slots=True)
class KeptTexts:
    """What the sweeps hold of a prompt."""

    left: Written | None
    """The reference's text; None where its sweep kept none."""
    right: Written | None
    """The other's; likewise."""
    both: TwoTexts | None
    """Side by side; None unless both are there."""


def entries(both: Pairing) -> tuple[PromptEntry, ...]:
    """Every shared prompt, those that change first, else in the reference's order. Reads no texts."""
    worse, better = turned(both)
    told = _told(both)
    marks = ((Change.WORSE, worse), (Change.BETTER, better), (Change.DIFFERS, told.differs), (Change.SAME, told.same))
    found = []
    for place, name in enumerate(both.ids):
        change = next((kind for kind, of in marks if of[place]), Change.PERHAPS)
        found.append(PromptEntry(place, name, change))
    order = list(Change)
    return tuple(sorted(found, key=lambda entry: order.index(entry.change)))


@dataclass(frozen=True, slots=True)
class _KnownOfTexts:
    """What the figures alone say of the texts."""

    same: np.ndarray
    """bool [P]; one text, for certain."""
    differs: np.ndarray
    """bool [P]; two texts, for certain."""


def _told(both: Pairing) -> _KnownOfTexts:
    parted, lengths = divergence(both), both.at("tokens")
    # tokens of another vocabulary may be more or fewer for one text
    differs = (lengths[0] != lengths[1]) & both.one_vocabulary
    same = np.zeros_like(differs)
    if parted is not None:
        same = parted.first < 0
        differs |= parted.exact & ~same
    if both.one_sweep:
        dials = np.array([both.left.dial, both.right.dial])
        lines = both.left.result.rows(dials)[both.rows[0]]
        same |= lines[:, 0] == lines[:, 1]
    return _KnownOfTexts(same, differs & ~same)


def kept(both: Pairing, place: int) -> KeptTexts:
    """What both write after a prompt. Raises BadInput where a sweep's texts are damaged."""
    ours, theirs = (int(rows[place]) for rows in both.rows)
    read = [_texts(both.left, ours)]
    once = both.one_sweep and ours == theirs
    read.append(read[0] if once else _texts(both.right, theirs))
    left, right = (
        None if found is None else found.text(_stretch(side, int(rows[place])))
        for side, rows, found in zip((both.left, both.right), both.rows, read, strict=True)
    )
    if left is None or right is None or read[0] is None or read[1] is None:
        return KeptTexts(left, right, None)
    known = both.one_vocabulary or same_vocabulary(read[0].pieces, read[1].pieces)
    unit = Unit.TOKENS if known else Unit.CHARACTERS
    return KeptTexts(left, right, TwoTexts(left, right, align(left, right, unit)))


def _texts(side: SweepSetting, row: int) -> PromptTexts | None:
    result = side.result
    found = texts.read(result.folder, int(result.prompts["prompt"][row]))
    if found is not None and not np.array_equal(
        found.lengths, result.lines["tokens"][slice(*result.starts[row : row + 2])]
    ):
        raise spoiled(result.folder / FOLDER)
    return found


def _stretch(side: SweepSetting, row: int) -> int:
    """Which of the prompt's stretches holds the setting."""
    return int(side.result.rows(np.array([side.dial]))[row, 0] - side.result.starts[row])
