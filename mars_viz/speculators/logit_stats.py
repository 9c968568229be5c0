"""Ranks, logits and divergences of tokens in both models' laws, which few rules need.

One block's laws are too few numbers to keep a processor busy, and each step has a start-up cost, so chains of several
rounds are processed at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from mars_viz.run import Settings
from mars_viz.speculators.draft_batch import Seen, at_nodes
from mars_viz.speculators.sampling import wide
from mars_viz.speculators.topk import ranks

LOWEST = torch.finfo(torch.float32).min  # replaces log 0, so that its product with 0 is 0
SMALLEST = torch.finfo(torch.float32).tiny  # replaces 0 inside a logarithm
DIVERGENCES = frozenset(
    ("p", "q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass", "entropy")
)
"""Fields of a Speculation that `divergences` computes; p and q already exist if tokens are drawn."""


def standing(seen: Sequence[Seen], settings: Settings, *, apart: bool) -> dict[str, Tensor]:
    """Return the values of these chains, concatenated; with the divergences if `apart`."""
    tokens, ids, best = (_cat([one.found[name] for one in seen]) for name in ("tokens", "listed_ids", "listed_logits"))
    logits = _cat([one.blocks.logits for one in seen])
    n, x = tokens.shape[1], tokens.unsqueeze(-1)
    target, peaks, draft_ids, draft_logits = logits[:, : n + 1], best[..., :1], ids[:, n + 1 :], best[:, n + 1 :]
    rows = [one.blocks.judging for one in seen if one.blocks.judging is not None]  # all are trees, or none is
    judging = _cat(rows) if rows else None
    judged = at_nodes(target, judging, n)
    if seen[0].blocks.drafter is None:  # q is 1 at the drafted tokens
        draft_ids, draft_logits = x, torch.zeros_like(x, dtype=logits.dtype)
        logits, peaks = torch.cat([logits, one_hot(x, logits)], 1), torch.cat([peaks, draft_logits], 1)
    values = {
        "draft_ids": draft_ids,
        "draft_logits": draft_logits,
        "z": judged.gather(-1, x).squeeze(-1),
        "ranks": ranks(judged, x, at_nodes(ids, judging, n)).squeeze(-1),
    }
    if settings.temperature > 0:
        emissions = _cat([one.found["emissions"] for one in seen])  # [B, N + 1, 5]
        values |= {
            "logsumexp_t": (target / settings.temperature).logsumexp(-1),
            "emission_z": target.gather(-1, emissions),
            "emission_ranks": ranks(target, emissions, ids[:, : n + 1]),
        }
    below = logits - peaks if len(seen) == 1 else logits.sub_(peaks)  # a copy is not read any more
    below.clamp_(min=LOWEST)
    shares = below.exp()
    totals = shares.sum(-1, keepdim=True)
    normalisers = (peaks + totals.log()).squeeze(-1)
    values |= {"logsumexp": normalisers[:, : n + 1], "draft_logsumexp": normalisers[:, n + 1 :]}
    if apart:
        drawn = [one.drawn for one in seen if one.drawn is not None]
        values |= divergences(tokens, below, totals, shares, _cat(drawn) if drawn else None, judging)
    return values


def one_hot(x: Tensor, logits: Tensor) -> Tensor:
    """Return logits [B, N, V] of the law that is 1 at the tokens x [B, N, 1]."""
    rows = logits.new_full((*x.shape[:2], logits.shape[-1]), LOWEST)
    return rows.scatter_(-1, x, 0.0)


def divergences(
    tokens: Tensor, below: Tensor, totals: Tensor, shares: Tensor, drawn: Tensor | None, judging: Tensor | None
) -> dict[str, Tensor]:
    """Return all of `DIVERGENCES` by name, in nats, for chains of N tokens: [B, N], and the entropy [B, N + 1].

    Rows are the target's N + 1, then the drafter's N. `below`, float32 [B, 2N + 1, V], are raw logits minus their row's
    largest, so that they are finite; `shares` are their exponentials, which are overwritten, and `totals` the sums of
    these. `drawn` are the laws that tokens were drawn from; None if they are the plain softmax. `judging`, int64
    [B, N], is the target's row that judges each token of a tree.
    """
    n, x = tokens.shape[1], tokens.unsqueeze(-1)
    plain, constants = shares.div_(totals), totals.log().squeeze(-1)
    room = torch.empty_like(plain)  # one for all that comes between: the first touch of memory costs more than the rest
    laws, logs, constant = plain, below, constants  # logarithms of laws are logs - constant
    if drawn is not None:
        laws, logs, constant = drawn, drawn.log().clamp_(min=LOWEST), torch.zeros_like(constants)
    ps, qs = at_nodes(laws, judging, n), laws[:, n + 1 :]
    px, qx = ps.gather(-1, x).squeeze(-1), qs.gather(-1, x).squeeze(-1)
    entropy = constant - _dot(laws, logs, room)  # from sums, which is cheaper than from every entry
    hp, hq = at_nodes(entropy, judging, n), entropy[:, n + 1 :]
    kl_pq = constant[:, n + 1 :] - _dot(ps, logs[:, n + 1 :], room) - hp
    kl_qp = at_nodes(constant, judging, n) - _dot(qs, at_nodes(logs, judging, n), room) - hq
    middle = torch.add(ps, qs, out=room[:, :n])  # twice the law in the middle
    logs_in_middle = torch.clamp(middle, min=SMALLEST, out=room[:, n : 2 * n]).log_()
    h_middle = math.log(2) - middle.mul_(logs_in_middle).sum(-1).mul_(0.5)
    total_variation = torch.sub(ps, qs, out=room[:, :n]).abs_().sum(-1).mul_(0.5)
    if judging is None:  # block verification's mass after each node; see `Speculation.block_mass`
        weights = parent_weights(px / qx)[:, 1:].unsqueeze(-1)  # [B, N - 1, 1], of what is drafted below each node
        mass = torch.mul(weights, laws[:, 1:n], out=room[:, : n - 1]).sub_(laws[:, n + 2 :]).clamp_(min=0).sum(-1)
        block_mass = pad(mass, (0, 1))[:, :n].to(wide(laws.device))
    else:
        block_mass = torch.full_like(px, torch.nan, dtype=wide(px.device))
    if drawn is not None:
        entropy = constants[:, : n + 1] - _dot(plain[:, : n + 1], below[:, : n + 1], room)
    return {
        "p": px,
        "q": qx,
        "q_max": qs.amax(-1),
        "q_entropy": hq,
        "entropy": entropy[:, : n + 1],
        "total_variation": total_variation,
        "kl_pq": kl_pq.masked_fill_(kl_pq > 1e20, torch.inf),
        "kl_qp": kl_qp.masked_fill_(kl_qp > 1e20, torch.inf),
        "js": h_middle - (hp + hq).mul_(0.5),
        "block_mass": block_mass,
    }


def _dot(one: Tensor, other: Tensor, room: Tensor) -> Tensor:
    """Return the dot products [B, R] of rows [B, R, V]; the products use the first rows of `room`."""
    return torch.mul(one, other, out=room[:, : one.shape[1]]).sum(-1)


def parent_weights(ratios: Tensor) -> Tensor:
    """Return block verification's weight above each node of the chains [B, N]: 1, then w = min(1, w_parent p/q)."""
    if not ratios.shape[1]:
        return ratios
    carried = [torch.ones_like(ratios[:, 0])]
    for ratio in ratios[:, :-1].unbind(1):
        carried.append((carried[-1] * ratio).clamp_(max=1.0))
    return torch.stack(carried, 1)


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
