"""Where the text's end cuts off what a rule decided in the blocks of a run: an end of text, a stop string, the limit.

Knows runs and decisions in all blocks at once; knows no verdicts. R is the number of rounds, P that of their drafted
positions. A kept end of text cuts its own block, as a kept token that completes a stop string does; the length limit
cuts only the last block, at what it allowed there.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np

from mars_viz.blocks import Blocks, Settled
from mars_viz.recorded import ending_of
from mars_viz.run import Run

ENDLESS = np.iinfo(np.int64).max
"""More tokens than any block has."""


def text_lengths(run: Run, settled: Settled) -> np.ndarray:
    """int64 [R]; tokens that each recorded block adds to the text, so decided, as `metrics.judged_rounds` cuts them."""
    blocks = run.blocks
    if not len(blocks):
        return np.zeros(0, np.int64)
    decided = replace(blocks, recorded=settled).decided()
    lengths = np.minimum(decided.lengths, end_of_text(run, settled))
    ends = np.cumsum(decided.lengths)
    ending, text, last = ending_of(run), run.token_ids, len(blocks) - 1
    boundless = replace(ending, max_new_tokens=int(ENDLESS))
    for place, begin in _begins(run, asked_one_by_one(run, settled)).items():
        block = decided.tokens[ends[place] - decided.lengths[place] : ends[place]].tolist()
        if place < last:
            lengths[place] = len(boundless.cut(block, 0, text[max(0, begin - ending.reach) : begin]))
        else:
            lengths[place] = len(ending.cut(block, begin, text[:begin]))
    return lengths


def in_text(blocks: Blocks, kept: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """bool [P]; the `kept` positions, bool [P], that lie within their block's `lengths`, int64 [R], tokens of text."""
    found: np.ndarray = kept & (blocks.places(kept) <= lengths[blocks.round_index])
    return found


def _begins(run: Run, places: list[int]) -> dict[int, int]:
    """Tokens of the recorded text before each of these rounds."""
    if places == [len(run.rounds) - 1]:  # most often so
        return {places[0]: len(run.token_ids) - len(run.rounds[-1].token_ids)}
    begins = [0, *accumulate(len(round_.token_ids) for round_ in run.rounds)]
    return {place: begins[place] for place in places}


def end_of_text(run: Run, settled: Settled) -> np.ndarray:
    """int64 [R]; tokens of each block up to its first kept end of text; `ENDLESS` for one without."""
    blocks = run.blocks
    ends = settled.kept & np.logical_or.reduce([blocks.tokens == token for token in run.provenance.eos_ids or (-1,)])
    if not ends.any():
        return np.full(len(blocks), ENDLESS)
    first = ends & (blocks.places(ends) == 1)
    lengths = np.full(len(blocks), ENDLESS)
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
