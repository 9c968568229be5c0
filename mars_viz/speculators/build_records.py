"""Records from data fetched from the device, with the columns that follow from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mars_viz.randomness import Purpose, round_uniforms, tree_uniforms
from mars_viz.records import EMITTED, Emission, Speculation, chain
from mars_viz.run import Settings
from mars_viz.speculators.draft_batch import Trees
from mars_viz.speculators.tree_columns import TREE_COLUMNS
from mars_viz.trees import depths_of, siblings_of


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts shared by the records of several chains, and their starts."""

    starts: tuple[int, ...]
    """Absolute position of each chain's first drafted token."""
    sampled: bool
    """True if the tokens were drawn from the drafter's law."""
    vocabulary: int
    """V."""
    trees: Trees | None = None
    """Branching of the drafts; None for chains."""
    passes: np.ndarray | None = None
    """int32 [B, N + 1]; for drafts by text, see `Speculation.drafter_passes`."""


def records(origin: Origin, settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """Return one record per chain with the columns that all rules need. See `Seen.found`."""
    n = found["tokens"].shape[1]
    fields = {
        "tokens": found["tokens"].astype(np.int32),
        "top_ids": found["listed_ids"][:, : n + 1].astype(np.int32),
        "top_logits": found["listed_logits"][:, : n + 1],
    }
    if settings.temperature == 0:
        fields["emissions"] = _each(fields["top_ids"][..., :1])
    else:
        fields |= _drawn(found, settings, origin)
    if origin.passes is not None:
        fields["drafter_passes"] = origin.passes
    shared = _shared(n, origin.vocabulary)
    return [
        Speculation(
            start,
            settings.temperature,
            origin.sampled,
            {**shared, **_branching(origin.trees, i), **{name: fields[name][i] for name in fields}},
        )
        for i, start in enumerate(origin.starts)
    ]


def _branching(trees: Trees | None, index: int) -> dict[str, np.ndarray]:
    """Return the columns that describe a tree's branching; none for a chain."""
    if trees is None:
        return {}
    parents = trees.parents[index]
    return {
        "parents": np.array(parents, np.int32),
        "depths": depths_of(parents),
        "siblings": siblings_of(parents),
        "budgets": trees.budgets[index],
        **({} if trees.draws is None else {"draws": trees.draws[index]}),
    }


def completed(made: Sequence[Speculation], settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """Return the records with the columns computed by `logit_stats`."""
    integers = ("ranks", "draft_ids", *EMITTED)
    fields = found | {name: found[name].astype(np.int32) for name in integers if name in found}
    if settings.temperature > 0:
        fields["emission_ranks"] = found["emission_ranks"].astype(np.int32)
    else:
        z1 = np.stack([record.top_logits[:, :1] for record in made])
        fields["emission_z"] = _each(z1)
        fields["emission_ranks"] = np.ones(fields["emission_z"].shape, np.int32)
        fields["coins"] = _coins(settings, [record.start for record in made], [record.parents for record in made])
        if "logsumexp" in found:
            fields["emission_p"] = _each(np.exp(z1 - found["logsumexp"][..., None]))
            fields["logsumexp_t"] = found["logsumexp"]
    return [record.with_columns({name: fields[name][i] for name in fields}) for i, record in enumerate(made)]


def _drawn(found: dict[str, np.ndarray], settings: Settings, origin: Origin) -> dict[str, np.ndarray]:
    """Return the columns about laws that tokens were drawn from, and the coins; above temperature 0."""
    n = found["tokens"].shape[1]
    names = ("p", "q", "best_q", "emission_p", "p_left", "q_left", *TREE_COLUMNS.difference(EMITTED))
    fields = {name: found[name] for name in names if name in found}
    fields |= {name: found[name].astype(np.int32) for name in ("support", "emissions", *EMITTED) if name in found}
    branches = [chain(n)] * len(origin.starts) if origin.trees is None else origin.trees.parents
    return fields | {"coins": _coins(settings, origin.starts, branches)}


def _coins(settings: Settings, starts: Sequence[int], branches: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    """Return coins, float64 [B, N]; unused at temperature 0. `branches` are the parents of each draft's nodes."""
    seed, coins = settings.seed, []
    for start, parents in zip(starts, branches, strict=True):
        n = len(parents)
        if parents is chain(n):
            coins.append(round_uniforms(seed, start, Purpose.COIN, n))
        else:
            coins.append(tree_uniforms(seed, start, Purpose.COIN, [int(parent) for parent in parents]))
    return np.stack(coins)


def _each(values: np.ndarray) -> np.ndarray:
    """Expand [B, N + 1, 1] to [B, N + 1, 5]: at temperature 0 all candidates are one token."""
    return values.repeat(len(Emission), -1)


@lru_cache(maxsize=64)
def _shared(n: int, vocabulary: int) -> dict[str, np.ndarray]:
    """Return the columns that all chains of N tokens share: their shape, and the full support of temperature 0."""
    columns = {
        "parents": chain(n),
        "depths": np.arange(1, n + 1, dtype=np.int32),
        "siblings": np.zeros(n, np.int32),
        "support": np.full(n + 1, vocabulary, np.int32),
    }
    for array in columns.values():
        array.setflags(write=False)
    return columns
