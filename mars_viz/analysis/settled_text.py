"""Text of a run's blocks at a dial value, cut at the end of the text.

All blocks are handled at once. R is the number of rounds, P the number of drafted positions. Each block follows its
recorded prefix. A kept end of text cuts its own block, as does a kept token that completes a stop string; the length
limit cuts only the last block, at its recorded allowance.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.replay import ending_of
from mars_viz.run import Run
from mars_viz.trace import Settled, SettledText, Trace


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first place at which two settings of a run's blocks write different tokens."""

    index: int  # index in the recorded text
    sure: bool  # False if one block is only longer, so that the other's next token is unknown


def settled_text(run: Run, trace: Trace, dial: float | None) -> SettledText:
    """Return the text of the run's blocks, judged by any rule at a dial value; None for a rule without a dial."""
    settled, recorded = trace.settled(dial), run.trace
    if not len(recorded):
        return SettledText(settled, np.zeros(0, np.int64))
    decided = recorded.decided(settled)
    lengths = decided.lengths.copy()  # [R]; of each block, in the text
    ends = np.cumsum(decided.lengths)
    ending, text, last = ending_of(run), run.token_ids, len(recorded) - 1
    boundless = replace(ending, max_new_tokens=sys.maxsize)
    begins = np.cumsum(recorded.text_lengths) - recorded.text_lengths
    for place in asked_one_by_one(run, settled):
        begin = int(begins[place])
        block = decided.tokens[ends[place] - decided.lengths[place] : ends[place]].tolist()
        if place < last:
            lengths[place] = len(boundless.cut(block, 0, text[max(0, begin - ending.reach) : begin]))
        else:
            lengths[place] = len(ending.cut(block, begin, text[:begin]))
    return SettledText(settled, lengths)


def first_to_differ(run: Run, ours: SettledText, theirs: SettledText) -> FirstDifference | None:
    """Compare blocks one by one; None if all write the same."""
    trace = run.trace
    different = np.argwhere(_tokens(trace, ours) != _tokens(trace, theirs))
    if not len(different):
        return None
    block, place = different[0].tolist()
    before = int(trace.text_lengths[:block].sum())
    return FirstDifference(before + place, bool(place < min(ours.lengths[block], theirs.lengths[block])))


def _tokens(trace: Trace, text: SettledText) -> np.ndarray:
    """Return the tokens of each block, then -1; int64 [R, γ + 1]."""
    decided = trace.decided(text.settled)
    places = np.arange(int(trace.lengths.max(initial=0)) + 1)
    tokens = np.full((len(trace), len(places)), -1)
    tokens[places < decided.lengths[:, None]] = decided.tokens
    tokens[places >= text.lengths[:, None]] = -1
    return tokens


def asked_one_by_one(run: Run, settled: Settled) -> list[int]:
    """Return the blocks whose ends need a check: the last one, which the length limit may cut, and those with a kept
    token that ends the text or may complete a stop string."""
    ending, tokens = ending_of(run), run.trace.tokens
    able = [*ending.eos_ids]
    if ending.stop:
        able += filter(ending.may_stop_with, np.unique(tokens[settled.kept]).tolist())
    blocks = run.trace.round_index[settled.kept & np.isin(tokens, able)]
    return [int(block) for block in np.union1d(blocks, [len(run.trace) - 1])]
