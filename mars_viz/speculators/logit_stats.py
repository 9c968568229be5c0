"""Ranks, logits and divergences of tokens in both models' laws, which few rules need.

One block's laws are too few numbers to keep a processor busy, and each step has a start-up cost, so chains of several
rounds are processed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mars_viz.run import Settings
from mars_viz.speculators.divergences import LOWEST, Laws, divergences
from mars_viz.speculators.draft_batch import Seen, at_nodes
from mars_viz.speculators.topk import ranks


def standing(seen: Sequence[Seen], settings: Settings, *, apart: bool) -> dict[str, Tensor]:
    """Return the values of these chains, concatenated; with the divergences if `apart`."""
    tokens, ids, best = (_cat([one.found[name] for one in seen]) for name in ("tokens", "listed_ids", "listed_logits"))
    logits = _cat([one.blocks.logits for one in seen])
    n, x = tokens.shape[1], tokens.unsqueeze(-1)
    target, peaks, draft_ids, draft_logits = logits[:, : n + 1], best[..., :1], ids[:, n + 1 :], best[:, n + 1 :]
    judging = None if seen[0].blocks.judging is None else _cat([_judging(one) for one in seen])
    judged = at_nodes(target, judging, n)
    if seen[0].blocks.certain:
        draft_ids, draft_logits = x, torch.zeros_like(x, dtype=logits.dtype)
        logits, peaks = torch.cat([logits, one_hot(x, logits)], 1), torch.cat([peaks, draft_logits], 1)
    values = {
        "draft_ids": draft_ids,
        "draft_logits": draft_logits,
        "z": judged.gather(-1, x).squeeze(-1),
        "ranks": ranks(judged, x, at_nodes(ids, judging, n)).squeeze(-1),
    }
    if settings.temperature > 0:
        values |= _standing_emissions(target, _cat([one.found["emissions"] for one in seen]), ids, settings)
    below = logits - peaks if len(seen) == 1 else logits.sub_(peaks)  # a copy is not read any more
    below.clamp_(min=LOWEST)
    shares = below.exp()
    totals = shares.sum(-1, keepdim=True)
    normalisers = (peaks + totals.log()).squeeze(-1)
    values |= {"logsumexp": normalisers[:, : n + 1], "draft_logsumexp": normalisers[:, n + 1 :]}
    if apart:
        drawn = [one.drawn for one in seen if one.drawn is not None]
        values |= divergences(Laws(tokens, below, totals, _cat(drawn) if drawn else None, judging), shares)
    return values


def one_hot(x: Tensor, logits: Tensor) -> Tensor:
    """Return logits [B, N, V] of the law that is 1 at the tokens x [B, N, 1]."""
    rows = logits.new_full((*x.shape[:2], logits.shape[-1]), LOWEST)
    return rows.scatter_(-1, x, 0.0)


def _standing_emissions(target: Tensor, emissions: Tensor, ids: Tensor, settings: Settings) -> dict[str, Tensor]:
    """Return values of the candidate emissions [B, N + 1, 5], and the law's normaliser; above temperature 0. `ids` are
    the target's best tokens, then the drafter's."""
    return {
        "logsumexp_t": (target / settings.temperature).logsumexp(-1),
        "emission_z": target.gather(-1, emissions),
        "emission_ranks": ranks(target, emissions, ids[:, : target.shape[1]]),
    }


def _judging(one: Seen) -> Tensor:
    assert one.blocks.judging is not None, "all are trees, or none is"
    return one.blocks.judging


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
