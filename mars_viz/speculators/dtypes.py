"""Which dtype a pair is computed in where nobody says. Knows what is stored, how much, and what a processor multiplies;
knows no models and loads no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from mars_viz.speculators.memory import stored_values

LARGE = 250_000_000
"""Values of a target from which a pair runs in bfloat16 on a processor with `TILES`. A block of 5 took 63 ms in place
of 136 at 316 M; a small drafter loses less than that."""
TILES = "amx_bf16"
"""What a processor that multiplies tiles of bfloat16 says of itself. Others, AVX-512's bfloat16 alone among them, were
up to ten times slower in it than in float32."""


def dtype_of(name: str, device: torch.device, models: Sequence[str]) -> torch.dtype | str:
    """The dtype of that name, one of `names.DTYPES`, for a pair of models (hub ids or folders, the target first);
    'auto' leaves each its own."""
    if name != "auto":
        found: torch.dtype = getattr(torch, name)
        return found
    if device.type != "cpu":
        return "auto"
    if not torch.cpu.get_capabilities().get(TILES):
        return torch.float32
    return fastest_on_cpu([stored_values(model) for model in models])


def fastest_on_cpu(stored: Sequence[Mapping[str, int]]) -> torch.dtype:
    """For a pair whose values are stored so, by kind ('BF16'), on a processor with `TILES`.

    One for both, so that a run's dtype says it all; bfloat16 only where most of both models is stored in it.
    """
    kept = all(values and max(values, key=values.__getitem__) == "BF16" for values in stored)
    return torch.bfloat16 if kept and sum(stored[0].values()) >= LARGE else torch.float32
