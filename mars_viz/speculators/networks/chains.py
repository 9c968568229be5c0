"""Types for drafting several tokens in a row without the host between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Pick = Callable[[Tensor, Tensor | None], Tensor]
"""Maps raw logits [B, 1, V] and, if it draws, uniforms [B, 1] to token ids int64 [B, 1].

Equal functions must pick alike: a recorded chain is replayed for any function equal to its own.
"""


@dataclass(frozen=True, slots=True)
class Chain:
    """Drafts after each of B rows, N tokens each."""

    tokens: Tensor  # int64 [B, N]
    logits: Tensor
    """Raw, float32 [B, N, V]; the law from which each token was picked."""
