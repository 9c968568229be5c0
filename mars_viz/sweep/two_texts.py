"""The texts of two paired settings after one prompt, and the prompts most worth reading.

Texts are exact: each is the one that its setting writes.
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
    """Change of a prompt from the reference to the other setting; the largest changes come first."""

    WORSE = "becomes wrong"  # right, then wrong
    BETTER = "becomes right"  # wrong, then right
    DIFFERS = "differs"  # the texts differ, the grades are equal
    PERHAPS = "may differ"  # unknown from the figures
    SAME = "identical"  # token for token


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A shared prompt."""

    place: int  # index in the pairing
    id: str
    change: Change


@dataclass(frozen=True, slots=True)
class TwoTexts:
    """Both texts of a prompt, aligned."""

    left: Written  # the reference's text
    right: Written  # the other's text
    found: Alignment  # the alignment of both


@dataclass(frozen=True, slots=True)
class KeptTexts:
    """The stored texts of a prompt."""

    left: Written | None  # the reference's text; None if its sweep stores none
    right: Written | None  # the other's text; None if its sweep stores none
    both: TwoTexts | None  # the aligned texts; None unless both exist


def entries(both: Pairing) -> tuple[PromptEntry, ...]:
    """Return every shared prompt, changed ones first, otherwise in the reference's order. Reads no texts."""
    (worse, better), parted, lengths = turned(both), divergence(both), both.at("tokens")
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
    marks = {Change.WORSE: worse, Change.BETTER: better, Change.DIFFERS: differs & ~same, Change.SAME: same}
    prompts = []
    for place, name in enumerate(both.ids):
        change = next((kind for kind, of in marks.items() if of[place]), Change.PERHAPS)
        prompts.append(PromptEntry(place, name, change))
    order = list(Change)
    return tuple(sorted(prompts, key=lambda entry: order.index(entry.change)))


def kept(both: Pairing, place: int) -> KeptTexts:
    """Return both texts after a prompt. Raises BadInput if a sweep's texts are damaged."""
    ours, theirs = (int(rows[place]) for rows in both.rows)
    read = [_texts(both.left, ours)]
    once = both.one_sweep and ours == theirs
    read.append(read[0] if once else _texts(both.right, theirs))
    written: list[Written | None] = []
    for side, row, found in zip((both.left, both.right), (ours, theirs), read, strict=True):
        stretch = int(side.result.rows(np.array([side.dial]))[row, 0] - side.result.starts[row])
        written.append(None if found is None else found.text(stretch))
    left, right = written
    if left is None or right is None or read[0] is None or read[1] is None:
        return KeptTexts(left, right, None)
    by_token = both.one_vocabulary or same_vocabulary(read[0].pieces, read[1].pieces)
    unit = Unit.TOKENS if by_token else Unit.CHARACTERS
    return KeptTexts(left, right, TwoTexts(left, right, align(left, right, unit)))


def _texts(side: SweepSetting, row: int) -> PromptTexts | None:
    result = side.result
    stored = texts.read(result.folder, int(result.prompts["prompt"][row]))
    lengths = result.lines["tokens"][slice(*result.starts[row : row + 2])]
    if stored is not None and not np.array_equal(stored.lengths, lengths):
        raise spoiled(result.folder / FOLDER)
    return stored
