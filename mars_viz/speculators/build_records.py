"""Records from what was fetched from the device, with the fields that follow from others.

Knows arrays and the fields of a Speculation; knows no tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.records import Emission, Speculation, chain
from mars_viz.run import Settings


@dataclass(frozen=True, slots=True)
class Origin:
    """What the records of some chains share, and where each begins."""

    starts: tuple[int, ...]
    """Absolute position of each chain's first drafted token."""
    sampled: bool
    """True if the tokens were drawn from the drafter's law."""
    vocabulary: int
    """V."""


def records(origin: Origin, settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """One of each chain, of what every rule decides by; the other fields are unknown. See `Seen.found`."""
    n, k = found["tokens"].shape[1], found["listed_ids"].shape[-1]
    fields = {
        "tokens": found["tokens"].astype(np.int32),
        "top_ids": found["listed_ids"][:, : n + 1].astype(np.int32),
        "top_logits": found["listed_logits"][:, : n + 1],
    }
    if settings.temperature == 0:
        fields["emissions"] = _each(fields["top_ids"][..., :1])
    else:
        fields |= _drawn(found, settings, origin.starts)
    shared = _unknown(n, k, origin.vocabulary)
    return [
        Speculation(
            **{**shared, **{name: array[i] for name, array in fields.items()}},
            start=start,
            temperature=settings.temperature,
            sampled=origin.sampled,
        )
        for i, start in enumerate(origin.starts)
    ]


def complete(made: Sequence[Speculation], settings: Settings, found: dict[str, np.ndarray]) -> None:
    """Give records, in place, what `logit_stats` found of them: frozen means that nobody else may."""
    fields = found | {name: found[name].astype(np.int32) for name in ("ranks", "draft_ids")}
    if settings.temperature > 0:
        fields["emission_ranks"] = found["emission_ranks"].astype(np.int32)
    else:
        z1 = np.stack([record.top_logits[:, :1] for record in made])
        fields["emission_z"] = _each(z1)
        fields["emission_p"] = _each(np.exp(z1 - found["logsumexp"][..., None]))
        fields["emission_ranks"] = np.ones(fields["emission_z"].shape, np.int32)
        fields["logsumexp_t"] = found["logsumexp"]
        fields["coins"] = _coins(settings, [record.start for record in made], found["z"].shape[1])
    for name, array in fields.items():
        for record, value in zip(made, array, strict=True):
            object.__setattr__(record, name, value)


def _drawn(found: dict[str, np.ndarray], settings: Settings, starts: Sequence[int]) -> dict[str, np.ndarray]:
    """Above temperature 0: what is known of the laws that tokens were drawn from, and the coins."""
    n = found["tokens"].shape[1]
    fields = {name: found[name] for name in ("p", "q", "best_q", "emission_p")}
    fields |= {name: found[name].astype(np.int32) for name in ("support", "emissions")}
    return fields | {"coins": _coins(settings, starts, n)}


def _coins(settings: Settings, starts: Sequence[int], n: int) -> np.ndarray:
    """float64 [B, N]; no rule looks at one at temperature 0."""
    return np.stack([round_uniforms(settings.seed, start, Purpose.COIN, n) for start in starts])


def _each(values: np.ndarray) -> np.ndarray:
    """[B, N + 1, 5] from [B, N + 1, 1]: at temperature 0 all candidates are one token."""
    return values.repeat(len(Emission), -1)


@lru_cache(maxsize=64)
def _unknown(n: int, k: int, vocabulary: int) -> dict[str, Any]:
    """All array fields of N tokens whose rows list K: their shape, what temperature 0 leaves to the target's law, which
    is everything, and NaN or no entries for what is unknown."""
    node, row, emission = np.full(n, np.nan, np.float32), np.full(n + 1, np.nan, np.float32), (n + 1, len(Emission))
    depths = np.arange(1, n + 1, dtype=np.int32)
    made = {
        "parents": chain(n),
        "depths": depths,
        "siblings": np.zeros(n, np.int32),
        "coins": np.full(n, np.nan),
        "draft_ids": np.zeros((n, 0), np.int32),
        "draft_logits": np.zeros((n, 0), np.float32),
        "ranks": np.zeros(n, np.int32),
        "support": np.full(n + 1, vocabulary, np.int32),
        "best_q": np.full((n, k), np.nan, np.float32),
        "block_mass": np.full(n, np.nan),
        "emission_z": np.full(emission, np.nan, np.float32),
        "emission_p": np.full(emission, np.nan, np.float32),
        "emission_ranks": np.zeros(emission, np.int32),
    }
    made |= dict.fromkeys(("logsumexp", "logsumexp_t", "entropy"), row)
    made |= dict.fromkeys(("q", "q_max", "q_entropy", "draft_logsumexp", "z", "p"), node)
    made |= dict.fromkeys(("total_variation", "kl_pq", "kl_qp", "js"), node)
    for array in made.values():
        array.setflags(write=False)  # all chains share them
    return made
