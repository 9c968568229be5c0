"""Uniform random numbers keyed by use, never drawn in sequence.

Two rules, dial values or machines that request the same coin get the same coin. The generator is Philox4x64-10 (Salmon
et al. 2011) with the key as counter, so no state is kept.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from mars_viz.trees import depths_of, path_keys, siblings_of


class Purpose(IntEnum):
    """The use of a uniform; part of its key."""

    DRAFT = 0  # draws the drafter's token
    COIN = 1  # accepts or rejects in rejection sampling
    RESIDUAL = 2  # draws from the residual distribution after a rejection
    SAMPLE = 3  # draws from the target's own distribution at a position


def round_uniforms(seed: int, start: int, purpose: Purpose, count: int, sibling: int = 0) -> np.ndarray:
    """Return float64 [count] in [0, 1); uniforms of a round for depths 1, 2, … `count`.

    Keyed by (seed, first position of the round, depth, sibling rank, purpose), so a longer block does not change a
    shorter one's values.
    """
    return _philox(seed, (0, start, sibling, purpose), count)


def tree_uniforms(
    seed: int, start: int, purpose: Purpose, parents: Sequence[int], *, after: bool = False
) -> np.ndarray:
    """float64 [N] in [0, 1); a uniform for each node of a tree, or with `after` for the row below it.

    Keyed by (seed, first position of the round, path of sibling ranks, purpose). The first path has the values of a
    chain, and no node's value depends on other branches.
    """
    depths, keys = depths_of(parents), path_keys(parents, siblings_of(parents))
    places = depths if after else depths - 1
    count = int(places.max(initial=-1)) + 1
    streams = {key: round_uniforms(seed, start, purpose, count, key) for key in dict.fromkeys(keys)}
    return np.array([streams[key][place] for key, place in zip(keys, places.tolist(), strict=True)], np.float64)


def position_uniforms(seed: int, start: int, count: int) -> np.ndarray:
    """Return float64 [count] in [0, 1); uniforms for the target's own samples at positions start, start + 1, …

    Keyed by (seed, absolute position) only, so all walks share them.
    """
    skipped = start % 4  # a Philox counter yields four words
    return _philox(seed, (start // 4, 0, 0, Purpose.SAMPLE), skipped + count)[skipped:]


def _philox(seed: int, counter: tuple[int, int, int, int], count: int) -> np.ndarray:
    key = np.array(divmod(seed, 1 << 64)[::-1], np.uint64)
    bits = np.random.Philox(key=key, counter=np.array(counter, np.uint64))
    return np.asarray((bits.random_raw(count) >> np.uint64(11)) * 2.0**-53)
