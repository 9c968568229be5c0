"""The columns that only rules for trees read, computed if one of these rules, or all evidence, is requested."""

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
    """The way in which a rule for drawn paths goes through a tree."""

    chance: str
    """Column with the chance that it ends at, or keeps, each node."""
    emission: str
    """Column with a sample of its residual at each row."""
    laws: Callable[[DraftBatch, Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]
    """Its residual laws, from the target's laws [B, N + 1, V] and the laws of each node's draw [B, N, V]."""


_OF_DRAWN = (
    Refusals("traversal_stop", "traversal_emission", traversed),
    Refusals("greedy_stop", "greedy_emission", greedily),
    Refusals("recursive_keep", "recursive_emission", with_replacement),
    Refusals("k_seq_keep", "k_seq_emission", k_sequentially),
)
OWN_Q = "own_q"
"""The additional column of trees of the likeliest tokens."""
TREE_COLUMNS = frozenset((OWN_Q, *(name for one in _OF_DRAWN for name in (one.chance, one.emission))))
"""All columns for trees."""


def tree_columns(blocks: DraftBatch, settings: Settings, laws: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    """Return those of these columns that exist for trees above temperature 0, [B, N] or [B, N + 1], by name. `laws` [B,
    2N + 1, V] are those that tokens were drawn from, the target's rows first."""
    assert blocks.trees is not None
    n = blocks.tokens.shape[1]
    if not blocks.sampled:
        return {OWN_Q: _own_q(blocks)} if OWN_Q in names else {}
    columns: dict[str, Tensor] = {}
    for refusals in _OF_DRAWN:
        if refusals.chance in names or refusals.emission in names:
            left, chances = refusals.laws(blocks, laws[:, : n + 1], laws[:, n + 1 :])
            after = on_device(tree_residuals(blocks, settings), blocks.target.device)
            columns |= chances | {refusals.emission: draw(left, after)}
    return columns


def _own_q(blocks: DraftBatch) -> Tensor:
    """Return the drafter's plain softmax at each token, float32 [B, N]; 1 without a drafter's law."""
    rows = blocks.drafter
    if rows is None:
        return torch.ones_like(blocks.target[:, 1:, 0])
    return (rows.gather(-1, blocks.tokens.unsqueeze(-1)).squeeze(-1) - rows.logsumexp(-1)).exp()


def tree_residuals(blocks: DraftBatch, settings: Settings) -> np.ndarray:
    """Return the uniforms of emissions after rejections at trees' rows, keyed by round and path; float64 [B, N + 1]."""
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
