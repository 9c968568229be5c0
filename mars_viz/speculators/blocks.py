"""Drafted chains with both models' logits, and what of their evidence is on the device so far. Knows tensors only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

CACHED = 1 << 17
"""Logits that are worked on at once on a processor: many enough for its cores, few enough for their caches, which must
hold some five times as much while divergences are computed."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Drafted chains of one length and both models' logits, still on the device; B chains of N tokens."""

    starts: tuple[int, ...]
    """Absolute position of each chain's first drafted token."""
    tokens: Tensor
    """int64 [B, N]."""
    drafter: Tensor
    """float32 [B, N, V]; raw logits that each token was drafted from."""
    target: Tensor
    """float32 [B, N + 1, V]; raw logits after the prefix and after each token."""
    sampled: bool
    """True if the tokens were drawn from the drafter's law."""

    @property
    def seats(self) -> int:
        """How many chains like these are worked on at once on a processor."""
        rows, vocabulary = self.target.shape[1:]
        return CACHED // ((rows + self.drafter.shape[1]) * vocabulary)

    def parts(self) -> Iterator[Blocks]:
        """The same chains, on a processor a few at a time, so that what is computed of them stays in its cache."""
        chains = len(self.starts)
        step = max(1, self.seats) if self.target.device.type == "cpu" else chains
        if step >= chains:
            yield self
            return
        for at in range(0, chains, step):
            some = slice(at, at + step)
            yield Blocks(
                self.starts[some], self.tokens[some], self.drafter[some], self.target[some], sampled=self.sampled
            )


@dataclass(frozen=True, slots=True)
class Seen:
    """Chains and what was computed of them for the decision."""

    blocks: Blocks
    """The chains."""
    found: dict[str, Tensor]
    """Fields of their Speculations, [B, …] each."""
    drawn: Tensor | None
    """float32 [B, 2N + 1, V]; the laws that tokens were drawn from, the target's rows first; None at temperature 0."""
