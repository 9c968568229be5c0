"""What a drafter proposes, what a target says of it, and who they are to the speculator. Knows tensors only.

A target or a drafter that is open has its own cache, which follows the prefixes that it is asked about: what of the
last block was kept is known from the next prefix.
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
"""Of each of B trees the parents of its nodes, -1 for the prefix; in depth-first preorder, see `trees`."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was drafted after each of B prefixes: chains or trees of up to N tokens."""

    tokens: Tensor
    """int64 [B, N]; what stands behind a draft's end is any token."""
    logits: Tensor | None = None
    """float32 [B, N, V']; raw, each row what its token was drafted from. None where drafting is deterministic: q is 1
    at the drafted token."""
    vocabulary: Tensor | None = None
    """int64 [V']; the target's token of each entry of the drafter's vocabulary; None if these are the first V'."""
    lengths: tuple[int, ...] | None = None
    """Tokens of each; None where all have N."""
    branches: Branches | None = None
    """Of trees, the parents of each one's nodes; None for chains. The tokens of trees were chosen as the likeliest,
    where there are no `draws`."""
    budgets: tuple[np.ndarray, ...] | None = None
    """Of trees, int32 [N]: the size of the smallest tree that has each node; see `Speculation.budgets`."""
    draws: tuple[np.ndarray, ...] | None = None
    """Of trees whose tokens were drawn, int32 [N]: by which paths; see `Speculation.draws`."""
    passes: tuple[np.ndarray, ...] | None = None
    """Of chains by text, int32 [n + 1] of each one's n tokens; see `Speculation.drafter_passes`."""

    @classmethod
    def of_chains(
        cls, chains: Sequence[Sequence[int]], device: torch.device, passes: tuple[np.ndarray, ...] | None = None
    ) -> Draft:
        """Deterministic chains of any lengths, there."""
        longest = max(map(len, chains))
        tokens = [[*chain, *(longest - len(chain)) * (0,)] for chain in chains]
        ids = torch.tensor(tokens, dtype=torch.int64, device=device).reshape(len(chains), longest)
        return cls(ids, lengths=tuple(map(len, chains)), passes=passes)

    def first(self, count: int) -> Draft:
        """Of chains of one length the first so many tokens."""
        logits = None if self.logits is None else self.logits[:, :count]
        return replace(self, tokens=self.tokens[:, :count], logits=logits)

    def spread(self, vocabulary_size: int) -> Tensor | None:
        """The logits [B, N, V] over the target's vocabulary; what the drafter cannot draft has none (-inf)."""
        return None if self.logits is None else spread(self.logits, self.vocabulary, vocabulary_size)


def spread(logits: Tensor, vocabulary: Tensor | None, vocabulary_size: int) -> Tensor:
    """Logits [..., V] over the target's vocabulary, of logits [..., V'] of some of its tokens; others have none (-inf).

    Without a `vocabulary` these are the first V'.
    """
    if vocabulary is None:
        missing = vocabulary_size - logits.shape[-1]
        return pad(logits, (0, missing), value=-torch.inf) if missing > 0 else logits
    rows = logits.new_full((*logits.shape[:-1], vocabulary_size), -torch.inf)
    rows[..., vocabulary] = logits
    return rows


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """[B, n, …] from [B, R, …]: of each text the rows at these places, int64 [B, n].

    A row at a time: to gather them entry by entry takes a processor ten times as long.
    """
    if len(rows) == 1:
        return rows[0].index_select(0, places[0]).unsqueeze(0)
    return rows[torch.arange(len(rows), device=rows.device).unsqueeze(1), places]


@dataclass(frozen=True, slots=True)
class TopLogits:
    """What a target says that gives its best tokens alone, on the host."""

    ids: np.ndarray
    """int64 [B, N + 1, K]; its best tokens, best first, the lower id first among equals."""
    logits: np.ndarray
    """float32 [B, N + 1, K]; their raw logits."""
    drafted: np.ndarray | None
    """float32 [B, N]; the raw logits of the drafted tokens; None where they are not told."""

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[Sequence[Mapping[int, float]]],
        width: int,
        drafted: Sequence[Sequence[float]] | None,
    ) -> TopLogits:
        """Of B texts' N + 1 rows, by token the logit, the best `width`; `drafted` [B, N] as the field is."""
        ordered = [[sorted(row.items(), key=_best_first)[:width] for row in each] for each in rows]
        pairs = np.array(ordered, np.float64)  # [B, N + 1, K, 2]; ids are far below 2^53
        told = None if drafted is None else np.array(drafted, np.float32).reshape(len(rows), -1)
        return cls(pairs[..., 0].astype(np.int64), pairs[..., 1].astype(np.float32), told)


def _best_first(pair: tuple[int, float]) -> tuple[float, int]:
    """The lower id first among equals."""
    return -pair[1], pair[0]


NO_SAMPLE = "This target gives its best tokens alone, which no sample can be drawn from; decode at temperature 0."
Scored = Tensor | TopLogits
"""What a target says after each of B prefixes and after each of N tokens that follow it: raw float32 logits
[B, N + 1, V], or its best ones alone."""


class Target(Protocol):
    """The model whose text is wanted, with a cache of its own."""

    device: torch.device
    """Where drafted tokens are to lie."""

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read what prefixes will begin with."""
        ...

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Scored:
        """What it says after each prefix and each of the tokens [B, N] behind it, in one pass."""
        ...

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Told the tokens that were scored, once they are on the host."""
        ...


class Drafter(Protocol):
    """What proposes tokens, with a cache of its own."""

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read what prefixes will begin with."""
        ...

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """At most `count` tokens after each prefix."""
        ...

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Told what it drafted, once that is on the host."""
        ...


@runtime_checkable
class ScoresTrees(Protocol):
    """A target that scores trees in one pass; every other one scores their paths."""

    def score_trees(self, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Scored:
        """What it says after each prefix and each of the nodes [B, N] that follow it."""
        ...


@runtime_checkable
class KeepsInputs(Protocol):
    """A target that can keep what enters some of its layers."""

    def keep(self, layers: Sequence[int]) -> None:
        """Keep what enters these, counted from 0; to be said before anything is read."""
        ...

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """Of each text what entered these layers, side by side, [n, width], from the token `begins` says on; what was
        not read of a text is read first."""
        ...


@dataclass(slots=True)
class Spent:
    """What drafts took so far."""

    passes: int = 0
    """Of the drafter."""
    tokens: int = 0
    """Drafted, of the target's."""


@runtime_checkable
class CountsPasses(Protocol):
    """A drafter that does not take one pass for each token that it drafts."""

    spent: Spent
    """What its drafts took."""


@runtime_checkable
class FollowsTarget(Protocol):
    """A drafter that looks into the target that it drafts for."""

    def follow(self, target: Target) -> None:
        """Told before anything is read which one that is."""
        ...
