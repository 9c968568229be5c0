"""Choice of a pair's default dtype, from stored dtypes, sizes and the processor's features. Loads no weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from mars_viz.speculators.memory import stored_values

LARGE = 250_000_000
"""Number of a target's values from which a pair runs in bfloat16 on a processor with `TILES`. At 316 M a block of 5
took 63 ms instead of 136; a small drafter loses less than that."""
TILES = "amx_bf16"
"""Feature flag of a processor that multiplies tiles of bfloat16. Others, including those with AVX-512's bfloat16, were
up to ten times slower in it than in float32."""


def dtype_of(name: str, device: torch.device, models: Sequence[str]) -> torch.dtype | str:
    """Return the dtype of this name, one of `names.DTYPES`, for a pair of models (hub ids or folders, the target
    first). 'auto' leaves each model its own."""
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type != "cpu":
        return "auto"
    if not torch.cpu.get_capabilities().get(TILES):
        return torch.float32
    return fastest_on_cpu([stored_values(model) for model in models])


def fastest_on_cpu(stored: Sequence[Mapping[str, int]]) -> torch.dtype:
    """Return the dtype for a pair with these stored values by kind ('BF16'), on a processor with `TILES`. Both models
    get one dtype, so that a run's dtype is unambiguous; bfloat16 only if most of both models is stored in it."""
    kept = all(values and max(values, key=values.__getitem__) == "BF16" for values in stored)
    return torch.bfloat16 if kept and sum(stored[0].values()) >= LARGE else torch.float32
