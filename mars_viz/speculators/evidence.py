"""Everything that a rule, a view or a later re-judging may ask of a block, computed on the device in one go.

Knows logits and the fields of a Speculation; knows no models, no caches and no rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, position_uniforms, round_uniforms
from mars_viz.records import Emission, Speculation
from mars_viz.run import Settings
from mars_viz.speculators.divergences import (
    LOWEST,
    Extent,
    Laws,
    Waiting,
    divergences,
    parent_weights,
    unknown,
)
from mars_viz.speculators.largest import Largest, count_above, largest
from mars_viz.speculators.laws import draw, law, on_device, to_host

CACHED = 1 << 18
"""Logits that are worked on at once on a processor."""
CANDIDATES = 16
"""K, the target's and the drafter's best tokens kept per row."""


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
    def shape(self) -> tuple[int, int, int]:
        """(B, 2N + 1, V); of both models' logits together."""
        chains, rows, vocabulary = self.target.shape
        return chains, rows + self.drafter.shape[1], vocabulary

    def parts(self) -> Iterator[Blocks]:
        """The same chains, on a processor a few at a time, so that what is computed of them stays in its cache."""
        chains, rows, vocabulary = self.shape
        step = max(1, CACHED // (rows * vocabulary)) if self.target.device.type == "cpu" else chains
        if step >= chains:
            yield self
            return
        for at in range(0, chains, step):
            some = slice(at, at + step)
            yield Blocks(
                self.starts[some], self.tokens[some], self.drafter[some], self.target[some], sampled=self.sampled
            )


def gather_evidence(
    blocks: Blocks, settings: Settings, extent: Extent = Extent.WHOLE, waiting: Waiting | None = None
) -> list[Speculation]:
    """Compute the record of every block and bring them to the host in one transfer.

    What is left for afterwards goes to `waiting`, unless one part of the blocks is enough by itself. Raises BadInput
    where a model's logits are no numbers.
    """
    waiting = waiting or Waiting()
    return [record for part in blocks.parts() for record in _gathered(part, settings, extent, waiting)]


def _gathered(blocks: Blocks, settings: Settings, extent: Extent, waiting: Waiting) -> list[Speculation]:
    room = waiting.room(blocks.shape, blocks.target.device) if extent is Extent.AFTERWARDS else None
    both = torch.cat([blocks.target, blocks.drafter], 1, out=room)  # [B, 2N + 1, V]
    best = largest(both, CANDIDATES)
    below = both.sub_(best.values[..., :1]).clamp_(min=LOWEST)
    shares = below.exp()
    totals = shares.sum(-1, keepdim=True)
    found = _candidates(blocks, best, (best.values[..., :1] + totals.log()).squeeze(-1))
    drawn = None
    if settings.temperature > 0:
        drawn = _drawn_from(blocks, law(torch.cat([blocks.target, blocks.drafter], 1), settings))
        found |= _draws(blocks, settings, drawn, found["top_ids"])
    laws = Laws(blocks.tokens, below, totals, drawn)
    if extent is not Extent.DECIDING and room is None:
        found |= divergences(laws, shares)
    fetched = to_host(found)
    _check(fetched)
    fields = waiting.take(laws) if room is not None else unknown(*blocks.tokens.shape)
    return _records(blocks, settings, fields | fetched)


def _check(found: dict[str, np.ndarray]) -> None:
    """A NaN is the largest entry of its row, and an infinity makes the row's sum one."""
    for whose, name in (("target", "logsumexp"), ("drafter", "draft_logsumexp")):
        if not np.isfinite(found[name]).all():
            raise BadInput(
                f"The {whose}'s logits hold NaN or infinity. Decode in float32 (--dtype float32); if that does not "
                "help, its weights are damaged: take a fresh copy."
            )


def _drawn_from(blocks: Blocks, laws: Tensor) -> Tensor:
    """The laws [B, 2N + 1, V], with q one-hot where the drafter did not draw."""
    if blocks.sampled:
        return laws
    rows = blocks.target.shape[1]
    one_hot = torch.zeros_like(laws[:, rows:]).scatter_(-1, blocks.tokens.unsqueeze(-1), 1.0)
    return torch.cat([laws[:, :rows], one_hot], 1)


def _candidates(blocks: Blocks, best: Largest, lse: Tensor) -> dict[str, Tensor]:
    """The best tokens of every law, and where the drafted ones stand."""
    n, ids, logits = blocks.tokens.shape[1], best.ids, best.values
    z = blocks.target[:, :n].gather(-1, blocks.tokens.unsqueeze(-1))  # [B, N, 1]
    return {
        "tokens": blocks.tokens,
        "top_ids": ids[:, : n + 1],
        "top_logits": logits[:, : n + 1],
        "draft_ids": ids[:, n + 1 :],
        "draft_logits": logits[:, n + 1 :],
        "logsumexp": lse[:, : n + 1],
        "draft_logsumexp": lse[:, n + 1 :],
        "z": z.squeeze(-1),
        "ranks": count_above(blocks.target[:, :n], z) + 1,
    }


def _draws(blocks: Blocks, settings: Settings, laws: Tensor, best: Tensor) -> dict[str, Tensor]:
    """Above temperature 0: the laws at the drafted and at the target's `best` tokens [B, N + 1, K], and every row's
    candidate emissions."""
    n, x = blocks.tokens.shape[1], blocks.tokens.unsqueeze(-1)  # [B, N, 1]
    ps, qs = laws[:, : n + 1], laws[:, n + 1 :]
    px, qx = ps[:, :n].gather(-1, x), qs.gather(-1, x)
    residual = _or_law((ps[:, :n] - qs).clamp_(min=0), ps)
    lowered = _or_law(ps[:, :n].scatter(-1, x, (px - qx).clamp_(min=0)), ps)
    weights = parent_weights(px.squeeze(-1) / qx.squeeze(-1)).unsqueeze(-1)  # [B, N, 1]
    weighted = _or_law((weights * ps[:, :n] - qs).clamp_(min=0), ps)
    drawn = draw(torch.stack([ps, residual, lowered, weighted], 2), _uniforms(blocks, settings))  # [B, N + 1, 4]
    emissions = torch.cat([blocks.target.max(-1, keepdim=True).indices, drawn], -1)  # [B, N + 1, 5]
    emission_z = blocks.target.gather(-1, emissions)
    return {
        "p": px.squeeze(-1),
        "q": qx.squeeze(-1),
        "best_q": qs.gather(-1, best[:, :n]),
        "support": (ps > 0).sum(-1),
        "logsumexp_t": (blocks.target / settings.temperature).logsumexp(-1),
        "emissions": emissions,
        "emission_z": emission_z,
        "emission_p": ps.gather(-1, emissions),
        "emission_ranks": torch.stack([count_above(blocks.target, z.unsqueeze(-1)) for z in emission_z.unbind(-1)], -1)
        + 1,
    }


def _uniforms(blocks: Blocks, settings: Settings) -> Tensor:
    """float64 [B, N + 1, 4] for the plain, residual, lowered and block samples; the last three share theirs."""
    count, device = blocks.target.shape[1], blocks.target.device
    plain = np.stack([position_uniforms(settings.seed, start, count) for start in blocks.starts])
    residual = np.stack([round_uniforms(settings.seed, start, Purpose.RESIDUAL, count) for start in blocks.starts])
    return on_device(np.stack([plain, residual, residual, residual], -1), device)


def _or_law(mass: Tensor, ps: Tensor) -> Tensor:
    """The mass [B, N, V] where there is any, else p; p on the last row. [B, N + 1, V]"""
    usable = mass.sum(-1, keepdim=True) > 1e-9
    return torch.cat([torch.where(usable, mass, ps[:, :-1]), ps[:, -1:]], 1)


def _records(blocks: Blocks, settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """The records, with equals in the order of their ids and the fields that follow from others filled in."""
    b, n = found["tokens"].shape
    found = {name: array.astype(np.int32) if array.dtype == np.int64 else array for name, array in found.items()}
    if settings.temperature == 0:
        found["best_q"] = np.full(found["top_ids"][:, :n].shape, np.nan, np.float32)
    order = _order(found["top_ids"], found["top_logits"])
    if order is not None:
        found |= _reordered(found, ("top_ids", "top_logits"), order) | _reordered(found, ("best_q",), order[:, :n])
    order = _order(found["draft_ids"], found["draft_logits"])
    if order is not None:
        found |= _reordered(found, ("draft_ids", "draft_logits"), order)
    if settings.temperature == 0:
        shape = (b, n + 1, len(Emission))
        z1 = found["top_logits"][..., :1]
        p1 = np.exp(z1 - found["logsumexp"][..., None])
        found["emissions"] = np.broadcast_to(found["top_ids"][..., :1], shape)
        found["emission_z"], found["emission_p"] = np.broadcast_to(z1, shape), np.broadcast_to(p1, shape)
        found["emission_ranks"] = np.ones(shape, np.int32)
        found["support"] = np.full((b, n + 1), blocks.target.shape[-1], np.int32)
        found["logsumexp_t"] = found["logsumexp"]
    else:
        found["emission_ranks"] = _listed_rank(found["emissions"], found["top_ids"], found["emission_ranks"])
    found["ranks"] = _listed_rank(found["tokens"][..., None], found["top_ids"][:, :n], found["ranks"][..., None])[
        ..., 0
    ]
    depths = np.arange(1, n + 1, dtype=np.int32)
    return [
        Speculation(
            start=start,
            parents=depths - 2,
            depths=depths,
            siblings=np.zeros(n, np.int32),
            temperature=settings.temperature,
            sampled=blocks.sampled,
            coins=round_uniforms(settings.seed, start, Purpose.COIN, n),
            **{name: array[i] for name, array in found.items()},
        )
        for i, start in enumerate(blocks.starts)
    ]


def _order(ids: np.ndarray, logits: np.ndarray) -> np.ndarray | None:
    """By logit, then by id, along the last axis; None where they stand so already, as nearly always."""
    if (logits[..., 1:] < logits[..., :-1]).all():  # there are no equals
        return None
    return np.lexsort((ids, -logits), axis=-1)


def _reordered(found: dict[str, np.ndarray], names: tuple[str, ...], order: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.take_along_axis(found[name], order, -1) for name in names}


def _listed_rank(tokens: np.ndarray, listed: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Rank of each token [..., C] by its place in the row's list [..., K], which settles ties; else as counted."""
    places = tokens[..., None] == listed[..., None, :]  # [..., C, K]
    return np.where(places.any(-1), places.argmax(-1) + 1, otherwise).astype(np.int32)
