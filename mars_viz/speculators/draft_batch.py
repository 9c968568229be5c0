"""Drafts with both models' logits, and the part of their evidence that is on the device. Imports tensors only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mars_viz.evidence import Of
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, rows_at

CACHED = 1 << 18
"""Logits processed at once on a processor: enough for its cores, and few enough for their caches, which need about four
times as much while divergences are computed."""
STARTED = 1 << 23
"""Logits processed at once on other devices: 32 MiB, so that the computation outweighs about two hundred kernel starts.
On an H200 the starts took most of a round's evidence, with a vocabulary of 128,256."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Branching of trees of N nodes, on the host."""

    parents: tuple[tuple[int, ...], ...]  # for each of B trees
    budgets: tuple[np.ndarray, ...]  # int32 [N] each; see `Speculation.budgets`
    draws: tuple[np.ndarray, ...] | None = None  # int32 [N] each, if tokens were drawn; see `Speculation.draws`

    @classmethod
    def of(cls, draft: Draft, chosen: Sequence[int]) -> Trees | None:
        """Return the trees of a draft; None if it drafted chains."""
        if draft.branches is None or draft.budgets is None:
            return None
        draws = draft.draws and tuple(draft.draws[i] for i in chosen)
        return cls(tuple(tuple(draft.branches[i]) for i in chosen), tuple(draft.budgets[i] for i in chosen), draws)


@dataclass(frozen=True)  # no slots: both models' logits are laid side by side when they are first asked for so
class DraftBatch:
    """Drafts of one length and both models' logits on the device; B chains, or B trees, of N tokens."""

    starts: tuple[int, ...]  # absolute position of each chain's first drafted token
    tokens: Tensor  # int64 [B, N]
    target: Tensor  # float32 [B, N + 1, V]; the target's raw logits after the prefix and after each token
    sampled: bool  # True if the tokens were drawn from the drafter's law
    drafter: Tensor | None = None
    """float32 [B, N, V]; the drafter's logits, from which each token was drafted; None for a deterministic draft."""
    trees: Trees | None = None  # branching; None for chains
    judging: Tensor | None = None  # int64 [B, N]; the target's row that judges each node of a tree
    passes: np.ndarray | None = None  # int32 [B, N + 1]; for drafts by text, see `Speculation.drafter_passes`

    @classmethod
    def of(
        cls,
        starts: tuple[int, ...],
        tokens: Tensor,
        drafter: Tensor | None,
        target: Tensor,
        *,
        sampled: bool,
        trees: Trees | None = None,
        passes: np.ndarray | None = None,
    ) -> DraftBatch:
        """Build a batch with the drafter's logits [B, N, V], if any. Tokens can be drawn only with these logits; those
        of trees are drawn if `trees` has draws."""
        judging = None if trees is None else sent(np.array(trees.parents, np.int64) + 1, target.device)
        drawn = drafter is not None and (trees is None or trees.draws is not None)
        return cls(starts, tokens, target, sampled and drawn, drafter, trees, judging, passes)

    @cached_property
    def logits(self) -> Tensor:
        """float32 [B, R, V]; the target's rows, then the drafter's: R is 2N + 1, or N + 1 for a deterministic draft."""
        return self.target if self.drafter is None else torch.cat([self.target, self.drafter], 1)

    def at_nodes(self, rows: Tensor) -> Tensor:
        """Index rows [B, R, ...] by each node's judging row; returns [B, N, ...]."""
        return at_nodes(rows, self.judging, self.tokens.shape[1])

    @property
    def kind(self) -> Of:
        """The kind of drafts."""
        if self.trees is None:
            return Of.CHAINS
        return Of.LIKELIEST if self.trees.draws is None else Of.DRAWN

    @property
    def seats(self) -> int:
        """Number of such chains processed at once."""
        rows, vocabulary = self.target.shape[1:]
        at_once = CACHED if self.target.device.type == "cpu" else STARTED
        return at_once // ((rows if self.drafter is None else 2 * rows - 1) * vocabulary)

    def parts(self) -> Iterator[DraftBatch]:
        """Yield the chains, on a processor a few at a time, so that their data stay in its cache."""
        chains = len(self.starts)
        step = max(1, self.seats) if self.target.device.type == "cpu" else chains
        if step >= chains:
            yield self
            return
        for at in range(0, chains, step):
            some, trees = slice(at, at + step), self.trees
            if trees is not None:
                trees = Trees(trees.parents[some], trees.budgets[some], trees.draws and trees.draws[some])
            yield DraftBatch(
                self.starts[some],
                self.tokens[some],
                self.target[some],
                self.sampled,
                None if self.drafter is None else self.drafter[some],
                trees,
                None if self.judging is None else self.judging[some],
                None if self.passes is None else self.passes[some],
            )


def at_nodes(rows: Tensor, judging: Tensor | None, n: int) -> Tensor:
    """Index rows [B, R, ...] by each node's judging row, in order for chains; returns [B, n, ...]."""
    return rows[:, :n] if judging is None else rows_at(rows, judging)


@dataclass(frozen=True, slots=True)
class Seen:
    """Chains and the values computed for the decision."""

    blocks: DraftBatch
    found: dict[str, Tensor]
    """Columns of their Speculations, [B, ...] each.

    Contains the tokens, both models' best ones as `listed_ids` and `listed_logits`, int64 and float32 [B, R, K], with
    `tied` if the order of equal ones is open (see `Largest`), and above temperature 0 the draws and their
    probabilities. If the drafter's best ones are not needed, the lists are the target's [B, N + 1, K], and the drafter
    has `peaks` [B, N], its largest logits.
    """
    drawn: Tensor | None
    """float32 [B, 2N + 1, V]; the laws that tokens were drawn from, the target's rows first; None at temperature 0."""
