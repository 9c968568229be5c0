"""The columns that rules for trees alone read: made where one of these rules asks for them, or somebody wants all.

Knows which column comes from which law; knows no rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms, tree_uniforms
from mars_viz.run import Settings
from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.sampling import draw, on_device
from mars_viz.speculators.tree_laws import greedily, k_sequentially, traversed, with_replacement


@dataclass(frozen=True, slots=True)
class Refusals:
    """How a rule for drawn paths goes through a tree."""

    chance: str
    """The column of how likely it ends at, or keeps, each node."""
    emission: str
    """The column of a sample of what it leaves of p at each row."""
    laws: Callable[[DraftBatch, Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]
    """What it leaves, from the target's laws [B, N + 1, V] and what each node was drawn from [B, N, V]."""


_OF_DRAWN = (
    Refusals("traversal_stop", "traversal_emission", traversed),
    Refusals("greedy_stop", "greedy_emission", greedily),
    Refusals("recursive_keep", "recursive_emission", with_replacement),
    Refusals("k_seq_keep", "k_seq_emission", k_sequentially),
)
OWN_Q = "own_q"
"""The column that trees of the likeliest tokens have besides."""
TREE_COLUMNS = frozenset((OWN_Q, *(name for one in _OF_DRAWN for name in (one.chance, one.emission))))
"""All of them."""


def tree_columns(blocks: DraftBatch, settings: Settings, laws: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    """Of trees above temperature 0 those of these columns that there are, [B, N] or [B, N + 1], by name; `laws`
    [B, 2N + 1, V] are those that tokens were drawn from, the target's rows first."""
    assert blocks.trees is not None
    n = blocks.tokens.shape[1]
    if not blocks.sampled:
        return {OWN_Q: _own_q(blocks)} if OWN_Q in names else {}
    found: dict[str, Tensor] = {}
    for one in _OF_DRAWN:
        if one.chance in names or one.emission in names:
            left, chances = one.laws(blocks, laws[:, : n + 1], laws[:, n + 1 :])
            after = on_device(tree_residuals(blocks, settings), blocks.target.device)
            found |= chances | {one.emission: draw(left, after)}
    return found


def _own_q(blocks: DraftBatch) -> Tensor:
    """float32 [B, N]; the drafter's plain softmax at each token, 1 where it has none."""
    rows = blocks.drafter
    if rows is None:
        return torch.ones_like(blocks.target[:, 1:, 0])
    return (rows.gather(-1, blocks.tokens.unsqueeze(-1)).squeeze(-1) - rows.logsumexp(-1)).exp()


def tree_residuals(blocks: DraftBatch, settings: Settings) -> np.ndarray:
    """float64 [B, N + 1]; by which trees' rows draw what is emitted after a refusal, keyed by round and path."""
    assert blocks.trees is not None
    return np.stack(
        [
            np.append(
                round_uniforms(settings.seed, start, Purpose.RESIDUAL, 1),
                tree_uniforms(settings.seed, start, Purpose.RESIDUAL, parents, after=True),
            )
            for start, parents in zip(blocks.starts, blocks.trees.parents, strict=True)
        ]
    )
