"""Records from what was fetched from the device: equals in the order of their ids, and the fields that follow from
others. Knows arrays and the fields of a Speculation; knows no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.records import Emission, Speculation
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
    """One of each chain. Fields [B, …] that are not among `found`, and do not follow from it, are unknown."""
    n, k = found["tokens"].shape[1], found["top_ids"].shape[-1]
    found = {name: array.astype(np.int32) if array.dtype == np.int64 else array for name, array in found.items()}
    order = _order(found["top_ids"], found["top_logits"])
    if order is not None:
        found |= _reordered(found, ("top_ids", "top_logits"), order)
        found |= _reordered(found, ("best_q",) if "best_q" in found else (), order[:, :n])
    if settings.temperature == 0:
        found["emissions"] = _each(found["top_ids"][..., :1])
    stands = "logsumexp" in found
    if stands:
        found |= _standing(found, settings)
    shared = _unknown(n, k) | {"support": _plain_support(n, origin.vocabulary)}
    drawn_by = settings.temperature > 0 or stands  # no rule looks at a coin at temperature 0
    return [
        Speculation(
            **shared
            | {name: array[i] for name, array in found.items()}
            | ({"coins": round_uniforms(settings.seed, start, Purpose.COIN, n)} if drawn_by else {}),
            start=start,
            temperature=settings.temperature,
            sampled=origin.sampled,
        )
        for i, start in enumerate(origin.starts)
    ]


def complete(record: Speculation, whole: Speculation) -> None:
    """Give a record what it was left to hear of afterwards: frozen means that nobody else may."""
    for name in Speculation.__slots__:
        object.__setattr__(record, name, getattr(whole, name))


def _standing(found: dict[str, np.ndarray], settings: Settings) -> dict[str, np.ndarray]:
    """What follows from where tokens stand."""
    made: dict[str, np.ndarray] = {}
    n, listed = found["tokens"].shape[1], found["top_ids"]
    order = _order(found["draft_ids"], found["draft_logits"])
    if order is not None:
        made |= _reordered(found, ("draft_ids", "draft_logits"), order)
    made["ranks"] = _listed_rank(found["tokens"][..., None], listed[:, :n], found["ranks"][..., None])[..., 0]
    if settings.temperature > 0:
        made["emission_ranks"] = _listed_rank(found["emissions"], listed, found["emission_ranks"])
        return made
    z1 = found["top_logits"][..., :1]
    made["emission_z"] = _each(z1)
    made["emission_p"] = _each(np.exp(z1 - found["logsumexp"][..., None]))
    made["emission_ranks"] = np.ones(made["emission_z"].shape, np.int32)
    made["logsumexp_t"] = found["logsumexp"]
    return made


def _each(values: np.ndarray) -> np.ndarray:
    """[B, N + 1, 5] from [B, N + 1, 1]: at temperature 0 all candidates are one token."""
    return values.repeat(len(Emission), -1)


@lru_cache(maxsize=64)
def _unknown(n: int, k: int) -> dict[str, Any]:
    """All array fields of N tokens whose rows list K: their shape, and NaN or no entries for what is unknown."""
    node, row, emission = np.full(n, np.nan, np.float32), np.full(n + 1, np.nan, np.float32), (n + 1, len(Emission))
    depths = np.arange(1, n + 1, dtype=np.int32)
    made = {
        "parents": depths - 2,
        "depths": depths,
        "siblings": np.zeros(n, np.int32),
        "coins": np.full(n, np.nan),
        "draft_ids": np.zeros((n, 0), np.int32),
        "draft_logits": np.zeros((n, 0), np.float32),
        "ranks": np.zeros(n, np.int32),
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


@lru_cache(maxsize=64)
def _plain_support(n: int, vocabulary: int) -> np.ndarray:
    """int32 [N + 1]; what temperature 0 leaves to the target's law: everything."""
    support = np.full(n + 1, vocabulary, np.int32)
    support.setflags(write=False)
    return support


def _order(ids: np.ndarray, logits: np.ndarray) -> np.ndarray | None:
    """By logit, then by id, along the last axis; None where they stand so already."""
    rows = logits.reshape(-1, logits.shape[-1]).tolist()  # so few values that NumPy would take several times as long
    if all(len(set(row)) == len(row) for row in rows):  # as nearly always: there are no equals
        return None
    return np.lexsort((ids, -logits), axis=-1)


def _reordered(found: dict[str, np.ndarray], names: tuple[str, ...], order: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.take_along_axis(found[name], order, -1) for name in names}


def _listed_rank(tokens: np.ndarray, listed: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Rank of each token [..., C] by its place in the row's list [..., K], which settles ties; else as counted."""
    places = tokens[..., None] == listed[..., None, :]  # [..., C, K]
    return np.where(places.any(-1), places.argmax(-1) + 1, otherwise).astype(np.int32)
