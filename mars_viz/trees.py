"""What follows from the parents of a tree's nodes: depths, siblings, paths, and who sees whom.

Knows arrays alone. A tree of N nodes is numbered in depth-first preorder, siblings in the order in which they are
tried: parents come before their children, and the first path stands at the start, as a chain does. What a round asks
for several times, and the next ones where the tree is always the same, is kept; these arrays are not to be written to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps

import numpy as np

KEPT = 256
"""Trees of which is kept what follows from their parents."""


def _kept(made: Callable[[tuple[int, ...]], np.ndarray]) -> Callable[[Sequence[int]], np.ndarray]:
    """The function with its last results at hand, for reading only."""

    @lru_cache(maxsize=KEPT)
    def found(parents: tuple[int, ...]) -> np.ndarray:
        array = made(parents)
        array.setflags(write=False)
        return array

    return wraps(made)(lambda parents: found(tuple(parents)))


@_kept
def depths_of(parents: tuple[int, ...]) -> np.ndarray:
    """int32 [N]; 1 for a node that follows the prefix."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
    return np.array(depths, np.int32)


@_kept
def siblings_of(parents: tuple[int, ...]) -> np.ndarray:
    """int32 [N]; order among the children of one parent, from 0."""
    born: dict[int, int] = {}
    siblings: list[int] = []
    for parent in parents:
        siblings.append(born.get(parent, 0))
        born[parent] = siblings[-1] + 1
    return np.array(siblings, np.int32)


def first_path(parents: Sequence[int]) -> int:
    """How many nodes at the start are a chain: the first path, down to its leaf."""
    return next((i for i, parent in enumerate(parents) if parent != i - 1), len(parents))


def sees(parents: Sequence[int]) -> list[bytes]:
    """Of each of N nodes a byte for each: 1 for those that it sees, which are those it follows, and itself; else 0."""
    seen: list[bytes] = []
    for node, parent in enumerate(parents):
        seen.append(also_itself(seen[parent] if parent >= 0 else b"", node))
    return [row.ljust(len(parents), b"\0") for row in seen]


def also_itself(above: bytes, node: int) -> bytes:
    """What a node sees whose parent sees so much: that, and itself."""
    return above.ljust(node, b"\0") + b"\1"


def leaves(parents: Sequence[int]) -> list[int]:
    """The nodes that nothing was drafted after, in order."""
    return sorted(set(range(len(parents))).difference(parents))


def path_to(parents: Sequence[int], node: int) -> list[int]:
    """The nodes from the prefix down to this one."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def path_keys(parents: Sequence[int], siblings: np.ndarray) -> list[int]:
    """Of each node a number from 0 to 2^64 - 1 that tells its path of sibling ranks from every other of its length, but
    for one in 2^64; 0 where all are 0, as in a chain."""
    keys: list[int] = []
    for parent, sibling in zip(parents, siblings.tolist(), strict=True):
        above = keys[parent] if parent >= 0 else 0
        keys.append(_mixed(above * 0x9E3779B97F4A7C15 + sibling) if above or sibling else 0)
    return keys


def _mixed(key: int) -> int:
    """SplitMix64's finaliser (Steele et al. 2014), never 0."""
    key &= (1 << 64) - 1
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & ((1 << 64) - 1)
    return (key ^ (key >> 31)) or 1
