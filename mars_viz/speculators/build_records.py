"""Records from what was fetched from the device, with the columns that follow from others.

Knows arrays and the columns of a Speculation; makes no tensors.
"""

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
    """What the records of some chains share, and where each begins."""

    starts: tuple[int, ...]
    """Absolute position of each chain's first drafted token."""
    sampled: bool
    """True if the tokens were drawn from the drafter's law."""
    vocabulary: int
    """V."""
    trees: Trees | None = None
    """How the drafts branch; None for chains."""
    passes: np.ndarray | None = None
    """int32 [B, N + 1]; of drafts by text, see `Speculation.drafter_passes`."""


def records(origin: Origin, settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """One of each chain, of what every rule decides by. See `Seen.found`."""
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
    """The columns that say how a tree branches; none for a chain."""
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
    """The records with what `logit_stats` found of them besides."""
    whole = ("ranks", "draft_ids", *EMITTED)
    fields = found | {name: found[name].astype(np.int32) for name in whole if name in found}
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
    """Above temperature 0: what is known of the laws that tokens were drawn from, and the coins."""
    n = found["tokens"].shape[1]
    known = ("p", "q", "best_q", "emission_p", "p_left", "q_left", *TREE_COLUMNS.difference(EMITTED))
    fields = {name: found[name] for name in known if name in found}
    fields |= {name: found[name].astype(np.int32) for name in ("support", "emissions", *EMITTED) if name in found}
    branches = [chain(n)] * len(origin.starts) if origin.trees is None else origin.trees.parents
    return fields | {"coins": _coins(settings, origin.starts, branches)}


def _coins(settings: Settings, starts: Sequence[int], branches: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    """float64 [B, N]; no rule looks at one at temperature 0. `branches` are the parents of each draft's nodes."""
    seed, found = settings.seed, []
    for start, parents in zip(starts, branches, strict=True):
        n = len(parents)
        if parents is chain(n):
            found.append(round_uniforms(seed, start, Purpose.COIN, n))
        else:
            found.append(tree_uniforms(seed, start, Purpose.COIN, [int(parent) for parent in parents]))
    return np.stack(found)


def _each(values: np.ndarray) -> np.ndarray:
    """[B, N + 1, 5] from [B, N + 1, 1]: at temperature 0 all candidates are one token."""
    return values.repeat(len(Emission), -1)


@lru_cache(maxsize=64)
def _shared(n: int, vocabulary: int) -> dict[str, np.ndarray]:
    """What all chains of N tokens share: their shape, and what temperature 0 leaves to the target's law: everything."""
    made = {
        "parents": chain(n),
        "depths": np.arange(1, n + 1, dtype=np.int32),
        "siblings": np.zeros(n, np.int32),
        "support": np.full(n + 1, vocabulary, np.int32),
    }
    for array in made.values():
        array.setflags(write=False)
    return made
