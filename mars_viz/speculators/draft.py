"""Interfaces between drafters, targets and the speculator. Imports tensors only.

An open target or drafter has its own cache, which follows the requested prefixes: the next prefix shows the accepted
part of the last block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mars_viz.walk import Prefix

Branches = Sequence[Sequence[int]]
"""Parents of the nodes of each of B trees, -1 for the prefix; in depth-first preorder, see `trees`."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafts after each of B prefixes: chains or trees of up to N tokens."""

    tokens: Tensor  # int64 [B, N]; arbitrary tokens after a draft's end
    logits: Tensor | None = None
    """float32 [B, N, V']; the raw logits from which each token was drafted. None for deterministic drafting: q is 1 at
    the drafted token."""
    vocabulary: Tensor | None = None
    """int64 [V']; the target's token of each entry of the drafter's vocabulary; None for the first V' tokens."""
    lengths: tuple[int, ...] | None = None  # number of tokens of each draft; None if all have N
    branches: Branches | None = None
    """Parents of each tree's nodes; None for chains. Without `draws` the tree's tokens are the likeliest ones."""
    budgets: tuple[np.ndarray, ...] | None = None
    """For trees, int32 [N]: size of the smallest tree with each node; see `Speculation.budgets`."""
    draws: tuple[np.ndarray, ...] | None = None
    """For drawn trees, int32 [N]: paths that drew each node; see `Speculation.draws`."""
    passes: tuple[np.ndarray, ...] | None = None
    """For chains drafted as text, int32 [n + 1] for a chain of n tokens; see `Speculation.drafter_passes`."""

    @classmethod
    def of_chains(
        cls, chains: Sequence[Sequence[int]], device: torch.device, passes: tuple[np.ndarray, ...] | None = None
    ) -> Draft:
        """Build deterministic chains of any lengths on a device."""
        longest = max(map(len, chains))
        tokens = [[*chain, *(longest - len(chain)) * (0,)] for chain in chains]
        ids = torch.tensor(tokens, dtype=torch.int64, device=device).reshape(len(chains), longest)
        return cls(ids, lengths=tuple(map(len, chains)), passes=passes)

    def first(self, count: int) -> Draft:
        """Return the first `count` tokens of chains of one length."""
        logits = None if self.logits is None else self.logits[:, :count]
        return replace(self, tokens=self.tokens[:, :count], logits=logits)

    def spread(self, vocabulary_size: int) -> Tensor | None:
        """Return the logits [B, N, V] over the target's vocabulary; tokens that cannot be drafted get -inf."""
        return None if self.logits is None else spread(self.logits, self.vocabulary, vocabulary_size)


def spread(logits: Tensor, vocabulary: Tensor | None, vocabulary_size: int) -> Tensor:
    """Spread logits [..., V'] over the target's vocabulary [..., V]; other tokens get -inf. Without a `vocabulary` the
    entries are the first V' tokens."""
    if vocabulary is None:
        missing = vocabulary_size - logits.shape[-1]
        return pad(logits, (0, missing), value=-torch.inf) if missing > 0 else logits
    rows = logits.new_full((*logits.shape[:-1], vocabulary_size), -torch.inf)
    rows[..., vocabulary] = logits
    return rows


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """Return rows [B, n, ...] of [B, R, ...] at these places, int64 [B, n]. Selects whole rows, because gathering
    single entries takes a processor ten times as long."""
    if len(rows) == 1:
        return rows[0].index_select(0, places[0]).unsqueeze(0)
    return rows[torch.arange(len(rows), device=rows.device).unsqueeze(1), places]


@dataclass(frozen=True, slots=True)
class TopLogits:
    """Scores of a target that returns only its best tokens, on the host."""

    ids: np.ndarray  # int64 [B, N + 1, K]; its best tokens, best first, the lower id first if logits are equal
    logits: np.ndarray  # float32 [B, N + 1, K]
    drafted: np.ndarray | None  # float32 [B, N]; the raw logits of the drafted tokens; None if unknown

    @classmethod
    def of_rows(
        cls, rows: Sequence[Sequence[Mapping[int, float]]], width: int, drafted: Sequence[Sequence[float]] | None
    ) -> TopLogits:
        """Build from dicts of token to logit for B texts' N + 1 rows, keeping the best `width`; `drafted` is [B, N]."""
        ordered = [[sorted(row.items(), key=lambda pair: (-pair[1], pair[0]))[:width] for row in each] for each in rows]
        pairs = np.array(ordered, np.float64)  # [B, N + 1, K, 2]; ids are far below 2^53
        logits = None if drafted is None else np.array(drafted, np.float32).reshape(len(rows), -1)
        return cls(pairs[..., 0].astype(np.int64), pairs[..., 1].astype(np.float32), logits)


NO_SAMPLE = "This target gives its best tokens alone, which no sample can be drawn from; decode at temperature 0."
Scored = Tensor | TopLogits
"""A target's scores after each of B prefixes and each of the N tokens that follow: raw float32 logits [B, N + 1, V], or
its best ones only."""


class Target(Protocol):
    """The model that writes the text, with its own cache."""

    device: torch.device  # device for drafted tokens

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts into the cache."""

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Scored:
        """Score each prefix and each of the tokens [B, N] after it in one pass."""

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Receive the scored tokens once they are on the host."""


class Drafter(Protocol):
    """A proposer of tokens, with its own cache."""

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts into the cache."""

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Draft at most `count` tokens after each prefix."""

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Receive the drafted tokens once they are on the host."""


@runtime_checkable
class ScoresTrees(Protocol):
    """A target that scores trees in one pass; others score their paths."""

    def score_trees(self, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Scored:
        """Score each prefix and each of the nodes [B, N] after it."""


@runtime_checkable
class KeepsInputs(Protocol):
    """A target that can keep the inputs of some of its layers."""

    def keep(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these layers, counted from 0; call before any read."""

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """Return the concatenated inputs of the kept layers for each text from token `begins` on, [n, width]. Reads the
        unread part of a text first."""


@dataclass(slots=True)
class Spent:
    """Totals over all drafts so far."""

    passes: int = 0  # drafter passes
    tokens: int = 0  # drafted tokens, in the target's tokens


@runtime_checkable
class CountsPasses(Protocol):
    """A drafter whose number of passes differs from its number of tokens."""

    spent: Spent


@runtime_checkable
class FollowsTarget(Protocol):
    """A drafter that reads the hidden states of its target."""

    def follow(self, target: Target) -> None:
        """Set the target; call before any read."""
