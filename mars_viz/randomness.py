"""Uniforms looked up by what they are for, never drawn in sequence. Knows no models and no rules.

Two rules, two dial positions or two machines that ask for the same coin get the same coin. The generator is
Philox4x64-10 (Salmon et al. 2011), whose counter is the key: nothing is consumed and no state is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from mars_viz.trees import depths_of, path_keys, siblings_of


class Purpose(IntEnum):
    """What a uniform decides; part of its key."""

    DRAFT = 0
    """Which token the drafter draws."""
    COIN = 1
    """Whether a rejection-sampling rule keeps it."""
    RESIDUAL = 2
    """Which token of the residual law replaces a rejected one."""
    SAMPLE = 3
    """Which token of its own law the target draws at a position."""


def round_uniforms(seed: int, start: int, purpose: Purpose, count: int, sibling: int = 0) -> np.ndarray:
    """Uniforms of a round for depths 1, 2, … `count`.

    Keyed by (seed, first position of the round, depth, sibling rank, purpose): asking for a longer block does not
    change the shorter one's. Returns float64 [count] in [0, 1).
    """
    return _philox(seed, (0, start, sibling, purpose), count)


def tree_uniforms(
    seed: int, start: int, purpose: Purpose, parents: Sequence[int], *, after: bool = False
) -> np.ndarray:
    """float64 [N] in [0, 1); a uniform of each node of a tree, or `after` it, of what is decided at the row below.

    Keyed by (seed, first position of the round, path of sibling ranks, purpose): along the first path they are those of
    a chain, and no node's hangs on what else the tree has.
    """
    depths, keys = depths_of(parents), path_keys(parents, siblings_of(parents))
    places = depths if after else depths - 1
    count = int(places.max(initial=-1)) + 1
    streams = {key: round_uniforms(seed, start, purpose, count, key) for key in dict.fromkeys(keys)}
    return np.array([streams[key][place] for key, place in zip(keys, places.tolist(), strict=True)], np.float64)


def position_uniforms(seed: int, start: int, count: int) -> np.ndarray:
    """Uniforms for the target's own sample at absolute positions start, start + 1, …

    Keyed by (seed, absolute position) alone, so any walk that passes a position sees the same. Returns float64
    [count] in [0, 1).
    """
    skipped = start % 4  # a Philox counter yields four words
    return _philox(seed, (start // 4, 0, 0, Purpose.SAMPLE), skipped + count)[skipped:]


class _Generators(threading.local):
    """One generator a thread, set to its counter before each use: making a new one takes ten times as long."""

    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)


_GENERATORS = _Generators()


def _philox(seed: int, counter: tuple[int, int, int, int], count: int) -> np.ndarray:
    bits = _GENERATORS.bits
    key = np.array(divmod(seed, 1 << 64)[::-1], np.uint64)
    bits.state = {
        "bit_generator": "Philox",
        "state": {"counter": np.array(counter, np.uint64), "key": key},
        "buffer": np.zeros(4, np.uint64),
        "buffer_pos": 4,  # nothing is left in it
        "has_uint32": 0,
        "uinteger": 0,
    }
    return np.asarray((bits.random_raw(count) >> np.uint64(11)) * 2.0**-53)
