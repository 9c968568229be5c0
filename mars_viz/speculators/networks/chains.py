"""Drafting several tokens in a row without the host between them. Knows the words only; networks know how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Pick = Callable[[Tensor, Tensor | None], Tensor]
"""From raw logits [B, 1, V] and, where it draws, uniforms [B, 1] to token ids int64 [B, 1].

Equal picks must pick alike: a recorded chain is played again for a pick that equals its own.
"""


@dataclass(frozen=True, slots=True)
class Chain:
    """What was drafted after each of B rows, N tokens each."""

    tokens: Tensor
    """int64 [B, N]."""
    logits: Tensor
    """float32 [B, N, V]; raw, each row what its token was picked from."""
