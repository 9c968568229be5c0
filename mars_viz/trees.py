"""Properties of trees given as parent arrays: depths, siblings, paths and visibility.

A tree of N nodes is numbered in depth-first preorder, siblings in the order of verification: parents precede children,
and the first path comes first, like a chain. Results are cached, and must not be modified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def _shape(parents: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return depths and sibling ranks."""
    depths, ranks, children = list[int](), list[int](), Counter[int]()
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
        ranks.append(children[parent])
        children[parent] += 1
    arrays = np.array(depths, np.int32), np.array(ranks, np.int32)
    for array in arrays:
        array.setflags(write=False)
    return arrays


def depths_of(parents: Sequence[int]) -> np.ndarray:
    """int32 [N]; 1 for a node that follows the prefix."""
    return _shape(tuple(parents))[0]


def siblings_of(parents: Sequence[int]) -> np.ndarray:
    """int32 [N]; order among the children of one parent, from 0."""
    return _shape(tuple(parents))[1]


def first_path(parents: Sequence[int]) -> int:
    """Return the number of nodes on the first path, which starts the tree like a chain."""
    return next((i for i, parent in enumerate(parents) if parent != i - 1), len(parents))


def sees(parents: Sequence[int]) -> list[bytes]:
    """Return a row of bytes per node: 1 for its ancestors and itself, otherwise 0."""
    seen: list[bytes] = []
    for node, parent in enumerate(parents):
        seen.append(also_itself(seen[parent] if parent >= 0 else b"", node))
    return [row.ljust(len(parents), b"\0") for row in seen]


def also_itself(above: bytes, node: int) -> bytes:
    """Return a node's visible nodes, given its parent's: those and itself."""
    return above.ljust(node, b"\0") + b"\1"


def leaves(parents: Sequence[int]) -> list[int]:
    """Return the nodes without children, in order."""
    return sorted(set(range(len(parents))).difference(parents))


def path_to(parents: Sequence[int], node: int) -> list[int]:
    """Return the nodes from the prefix to this one."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def path_keys(parents: Sequence[int], siblings: np.ndarray) -> list[int]:
    """Return a key per node, from 0 to 2^64 - 1, that identifies its path of sibling ranks among paths of its length.

    Collisions have a chance of 2^-64. The key is 0 if all ranks are 0, as in a chain, and no other path's. Keys are
    mixed by SplitMix64's finaliser (Steele et al. 2014).
    """
    keys: list[int] = []
    for parent, sibling in zip(parents, siblings.tolist(), strict=True):
        above = keys[parent] if parent >= 0 else 0
        key = (above * 0x9E3779B97F4A7C15 + sibling) & ((1 << 64) - 1)
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & ((1 << 64) - 1)
        keys.append(((key ^ (key >> 31)) or 1) if above or sibling else 0)
    return keys
