"""What the blocks of a run add to its text when they are settled at a dial value, and where the text's end cuts it off.

Knows runs and the verdicts in all their blocks at once; walks no block by itself. R is the number of rounds, P that of
their drafted positions. Each block stands after its recorded prefix. A kept end of text cuts its own block, as a kept
token that completes a stop string does; the length limit cuts only the last block, at what it allowed there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from mars_viz.blocks import Blocks, Settled
from mars_viz.records import Decision, Round
from mars_viz.replay import ending_of
from mars_viz.run import Run

_ENDLESS = np.iinfo(np.int64).max
"""More tokens than any block has."""


@dataclass(frozen=True, slots=True, eq=False)
class SettledText:
    """What the blocks of a run add to its text at one setting of a rule, each after its recorded prefix."""

    settled: Settled
    """The decisions, before the text's end cuts anything off."""
    lengths: np.ndarray
    """int64 [R]; tokens of each block that belong to the text."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where two ways to settle the blocks of a run first write something else."""

    index: int
    """In the recorded text."""
    sure: bool
    """False where one of the two blocks only goes on longer, so that what the other writes next is not known."""


def settled_text(run: Run, blocks: Blocks, dial: float | None) -> SettledText:
    """The run's blocks, judged by its own rule or another, at a dial value; None for a rule without a dial."""
    settled = blocks.settled(dial)
    return SettledText(settled, _text_lengths(run, settled))


def recorded_text(run: Run) -> SettledText:
    """The run's blocks as they were recorded."""
    return SettledText(run.blocks.recorded, np.array([len(round_.token_ids) for round_ in run.rounds], np.int64))


def in_text(blocks: Blocks, text: SettledText) -> np.ndarray:
    """bool [P]; the positions that are kept and not cut off by the text's end."""
    kept = text.settled.kept
    found: np.ndarray = kept & (blocks.places(kept) <= text.lengths[blocks.round_index])
    return found


def emits(blocks: Blocks, text: SettledText) -> np.ndarray:
    """bool [R]; the text goes on to the block's correction or bonus."""
    kept = np.bincount(blocks.round_index[text.settled.kept], minlength=len(blocks))
    found: np.ndarray = text.lengths > kept
    return found


def rounds_of(run: Run, text: SettledText) -> tuple[Round, ...]:
    """The run's rounds, so settled."""
    if not run.rounds:
        return ()
    blocks, settled = run.blocks, text.settled
    decided = replace(blocks, recorded=settled).decided()
    counts = decided.lengths - 1
    kept = np.flatnonzero(settled.kept) - np.repeat(blocks.firsts, counts)
    ends, tokens, nodes = np.cumsum(decided.lengths).tolist(), decided.tokens.tolist(), kept.tolist()
    columns = (settled.rows.tolist(), settled.emitted.tolist(), counts.tolist(), ends, text.lengths.tolist())
    found, first = [], 0
    for round_, row, emitted, count, end, length in zip(run.rounds, *columns, strict=True):
        decision = Decision(tuple(nodes[first : first + count]), row, emitted)
        begin = end - count - 1
        found.append(replace(round_, decision=decision, token_ids=tuple(tokens[begin : begin + length])))
        first += count
    return tuple(found)


def first_to_differ(run: Run, ours: SettledText, theirs: SettledText) -> FirstDifference | None:
    """Block by block beside each other; None where no block writes anything else."""
    blocks = run.blocks
    different = np.argwhere(_tokens(blocks, ours) != _tokens(blocks, theirs))
    if not len(different):
        return None
    block, place = different[0].tolist()
    before = sum(len(round_.token_ids) for round_ in run.rounds[:block])
    return FirstDifference(before + place, bool(place < min(ours.lengths[block], theirs.lengths[block])))


def _tokens(blocks: Blocks, text: SettledText) -> np.ndarray:
    """int64 [R, γ + 1]; the tokens of each block, then -1."""
    decided = replace(blocks, recorded=text.settled).decided()
    places = np.arange(int(blocks.lengths.max(initial=0)) + 1)
    tokens = np.full((len(blocks), len(places)), -1)
    tokens[places < decided.lengths[:, None]] = decided.tokens
    tokens[places >= text.lengths[:, None]] = -1
    return tokens


def _text_lengths(run: Run, settled: Settled) -> np.ndarray:
    """int64 [R]; tokens that each recorded block adds to the text, so decided."""
    blocks = run.blocks
    if not len(blocks):
        return np.zeros(0, np.int64)
    decided = replace(blocks, recorded=settled).decided()
    lengths = np.minimum(decided.lengths, _end_of_text(run, settled))
    ends = np.cumsum(decided.lengths)
    ending, text, last = ending_of(run), run.token_ids, len(blocks) - 1
    boundless = replace(ending, max_new_tokens=int(_ENDLESS))
    for place, begin in _begins(run, asked_one_by_one(run, settled)).items():
        block = decided.tokens[ends[place] - decided.lengths[place] : ends[place]].tolist()
        if place < last:
            lengths[place] = len(boundless.cut(block, 0, text[max(0, begin - ending.reach) : begin]))
        else:
            lengths[place] = len(ending.cut(block, begin, text[:begin]))
    return lengths


def _begins(run: Run, places: list[int]) -> dict[int, int]:
    """Tokens of the recorded text before each of these rounds."""
    if places == [len(run.rounds) - 1]:  # most often so
        return {places[0]: len(run.token_ids) - len(run.rounds[-1].token_ids)}
    begins = [0, *accumulate(len(round_.token_ids) for round_ in run.rounds)]
    return {place: begins[place] for place in places}


def _end_of_text(run: Run, settled: Settled) -> np.ndarray:
    """int64 [R]; tokens of each block up to its first kept end of text; `_ENDLESS` for one without."""
    blocks = run.blocks
    ends = settled.kept & np.logical_or.reduce([blocks.tokens == token for token in run.provenance.eos_ids or (-1,)])
    if not ends.any():
        return np.full(len(blocks), _ENDLESS)
    first = ends & (blocks.places(ends) == 1)
    lengths = np.full(len(blocks), _ENDLESS)
    lengths[blocks.round_index[first]] = blocks.places(settled.kept)[first]
    return lengths


def asked_one_by_one(run: Run, settled: Settled) -> list[int]:
    """The blocks of which no array arithmetic says where they end: the last one, which the length limit may cut, and
    those with a kept token that may complete one of the run's stop strings."""
    last = [len(run.blocks) - 1]
    if not run.settings.stop:
        return last
    ending, tokens = ending_of(run), run.blocks.tokens
    able = [token for token in np.unique(tokens[settled.kept]).tolist() if ending.may_stop_with(token)]
    found: list[int] = np.union1d(run.blocks.round_index[settled.kept & np.isin(tokens, able)], last).tolist()
    return found
