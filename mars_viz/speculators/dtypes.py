"""Which dtype a pair is computed in where nobody says. Knows what is stored, how much, and what a processor multiplies;
knows no models and loads no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from mars_viz.errors import BadInput
from mars_viz.speculators.memory import stored_values

DTYPES = ("auto", "float32", "bfloat16", "float16")
LARGE = 100_000_000
"""Values of a target from which passes in bfloat16 are clearly faster on a processor with `TILES` (a block of 5 took
25 ms in place of 43); a small drafter loses less by it than such a target gains."""
TILES = "amx_bf16"
"""What a processor that multiplies tiles of bfloat16 says of itself. Others, AVX-512's bfloat16 alone among them, were
up to ten times slower in it than in float32."""


def dtype_of(name: str, device: torch.device, models: Sequence[str]) -> torch.dtype | str:
    """The dtype of that name for a pair of models (hub ids or folders, the target first); 'auto' leaves each its own.

    Raises BadInput where there is no such dtype.
    """
    if name not in DTYPES:
        raise BadInput(f"There is no dtype {name!r}; choose one of {', '.join(DTYPES)}.")
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

    One for both, so that a run's dtype says it all; bfloat16 only where nothing is rounded that was stored finer.
    """
    kept = all(values and max(values, key=values.__getitem__) == "BF16" for values in stored)
    return torch.bfloat16 if kept and sum(stored[0].values()) >= LARGE else torch.float32
