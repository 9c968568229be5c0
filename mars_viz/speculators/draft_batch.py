"""Drafts with both models' logits, and what of their evidence is on the device so far. Knows tensors only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mars_viz.evidence import Of
from mars_viz.speculators.draft import Draft, rows_at
from mars_viz.speculators.host_copy import sent

CACHED = 1 << 18
"""Logits that are worked on at once on a processor: many enough for its cores, few enough for their caches, which must
hold some four times as much while divergences are computed."""
STARTED = 1 << 23
"""The same on a device that is told every step by the host: 32 MiB of them, so that what the steps take outweighs the
some two hundred starts. (On an H200 these were most of a round's evidence, with a vocabulary of 128,256.)"""


@dataclass(frozen=True, slots=True)
class Trees:
    """How trees of N nodes branch, on the host."""

    parents: tuple[tuple[int, ...], ...]
    """Of each of B trees."""
    budgets: tuple[np.ndarray, ...]
    """int32 [N] of each; see `Speculation.budgets`."""
    draws: tuple[np.ndarray, ...] | None = None
    """int32 [N] of each, where their tokens were drawn; see `Speculation.draws`."""

    @classmethod
    def of(cls, draft: Draft, chosen: Sequence[int]) -> Trees | None:
        """Those of a draft; None where it drafted chains."""
        if draft.branches is None or draft.budgets is None:
            return None
        draws = draft.draws and tuple(draft.draws[i] for i in chosen)
        return cls(tuple(tuple(draft.branches[i]) for i in chosen), tuple(draft.budgets[i] for i in chosen), draws)

    def some(self, chosen: slice) -> Trees:
        """These alone."""
        return Trees(self.parents[chosen], self.budgets[chosen], self.draws and self.draws[chosen])


@dataclass(frozen=True)  # no slots: both models' logits are laid side by side when they are first asked for so
class DraftBatch:
    """Drafts of one length and both models' logits, still on the device; B chains, or B trees, of N tokens."""

    starts: tuple[int, ...]
    """Absolute position of each chain's first drafted token."""
    tokens: Tensor
    """int64 [B, N]."""
    target: Tensor
    """float32 [B, N + 1, V]; the target's raw logits after the prefix and after each token."""
    sampled: bool
    """True if the tokens were drawn from the drafter's law."""
    drafter: Tensor | None = None
    """float32 [B, N, V]; the drafter's, each row what a token was drafted from; None where the draft is
    deterministic."""
    trees: Trees | None = None
    """How they branch; None for chains."""
    judging: Tensor | None = None
    """int64 [B, N]; of trees, the target's row that judges each node."""
    passes: np.ndarray | None = None
    """int32 [B, N + 1]; of drafts by text, see `Speculation.drafter_passes`."""

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
        """With the drafter's logits [B, N, V], if it has any; only then can tokens have been drawn from them, and those
        of trees are where it says so."""
        judging = None if trees is None else sent(np.array(trees.parents, np.int64) + 1, target.device)
        drawn = drafter is not None and (trees is None or trees.draws is not None)
        return cls(starts, tokens, target, sampled and drawn, drafter, trees, judging, passes)

    @cached_property
    def logits(self) -> Tensor:
        """float32 [B, R, V]; the target's rows, then the drafter's: R is 2N + 1, or N + 1 where the draft is
        deterministic."""
        return self.target if self.drafter is None else torch.cat([self.target, self.drafter], 1)

    def at_nodes(self, rows: Tensor) -> Tensor:
        """[B, N, …] from [B, R, …]: of each node what holds at the row that judges it."""
        return at_nodes(rows, self.judging, self.tokens.shape[1])

    @property
    def certain(self) -> bool:
        """True where q is 1 at the drafted tokens: there are no logits that they come from."""
        return self.drafter is None

    @property
    def kind(self) -> Of:
        """Which kind of drafts they are."""
        if self.trees is None:
            return Of.CHAINS
        return Of.LIKELIEST if self.trees.draws is None else Of.DRAWN

    @property
    def seats(self) -> int:
        """How many chains like these are worked on at once."""
        rows, vocabulary = self.target.shape[1:]
        at_once = CACHED if self.target.device.type == "cpu" else STARTED
        return at_once // ((rows if self.certain else 2 * rows - 1) * vocabulary)

    def parts(self) -> Iterator[DraftBatch]:
        """The same chains, on a processor a few at a time, so that what is computed of them stays in its cache."""
        chains = len(self.starts)
        step = max(1, self.seats) if self.target.device.type == "cpu" else chains
        if step >= chains:
            yield self
            return
        for at in range(0, chains, step):
            some = slice(at, at + step)
            yield DraftBatch(
                self.starts[some],
                self.tokens[some],
                self.target[some],
                self.sampled,
                None if self.drafter is None else self.drafter[some],
                None if self.trees is None else self.trees.some(some),
                None if self.judging is None else self.judging[some],
                None if self.passes is None else self.passes[some],
            )


def at_nodes(rows: Tensor, judging: Tensor | None, n: int) -> Tensor:
    """[B, n, …] from [B, R, …]: of each node what holds at the row that judges it; of chains, the rows in order."""
    if judging is None:
        return rows[:, :n]
    return rows_at(rows, judging)


@dataclass(frozen=True, slots=True)
class Seen:
    """Chains and what was computed of them for the decision."""

    blocks: DraftBatch
    """The chains."""
    found: dict[str, Tensor]
    """Of their Speculations, [B, …] each: the tokens, both models' best ones as `listed_ids` and `listed_logits`, int64
    and float32 [B, R, K], with `tied` where the order of equals is open (see `Largest`), and above temperature 0
    what was drawn and by which shares. Where nobody asks for the drafter's best ones, the lists are the target's
    [B, N + 1, K], and of the drafter there are the `peaks` [B, N], the largest logits."""
    drawn: Tensor | None
    """float32 [B, 2N + 1, V]; the laws that tokens were drawn from, the target's rows first; None at temperature 0."""
