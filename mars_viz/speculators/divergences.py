"""Divergences and entropies of two laws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mars_viz.speculators.draft_batch import at_nodes
from mars_viz.speculators.sampling import wide

LOWEST = torch.finfo(torch.float32).min
"""Replaces log 0, so that its product with 0 is 0."""
SMALLEST = torch.finfo(torch.float32).tiny
"""Replaces 0 inside a logarithm."""


@dataclass(frozen=True, slots=True)
class Laws:
    """Both models' laws over chains of N drafted tokens; the target's N + 1 rows first, then the drafter's N."""

    tokens: Tensor  # int64 [B, N]
    below: Tensor
    """float32 [B, 2N + 1, V]; raw logits minus their row's largest, so that they are finite."""
    totals: Tensor
    """float32 [B, 2N + 1, 1]; the sum of their exponentials."""
    drawn: Tensor | None
    """float32 [B, 2N + 1, V]; the laws that tokens were drawn from; None if they are the plain softmax."""
    judging: Tensor | None = None
    """int64 [B, N]; the target's row that judges each token of a tree."""


DIVERGENCES = frozenset(
    ("p", "q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass", "entropy")
)
"""Fields of a Speculation that `divergences` computes; p and q already exist if tokens are drawn."""


def divergences(laws: Laws, shares: Tensor) -> dict[str, Tensor]:
    """Return all of `DIVERGENCES` by name: [B, N], and the entropy [B, N + 1]. `shares` are the exponentials of
    `below`; they are overwritten."""
    rows = laws.tokens.shape[1] + 1
    plain = shares.div_(laws.totals)
    constants = laws.totals.log()
    room = torch.empty_like(plain)  # one for all that comes between: the first touch of memory costs more than the rest
    if laws.drawn is None:
        return _apart(plain, laws.below, constants, laws, room)
    values = _apart(laws.drawn, laws.drawn.log().clamp_(min=LOWEST), torch.zeros_like(constants), laws, room)
    values["entropy"] = _entropy(plain[:, :rows], laws.below[:, :rows], constants[:, :rows], room)
    return values


def _entropy(laws: Tensor, logs: Tensor, constants: Tensor, room: Tensor) -> Tensor:
    """Return the entropy [B, R] in nats of laws [B, R, V] whose logarithms are `logs` - `constants`. Constants are
    subtracted from sums, which is cheaper than from every entry."""
    return constants.squeeze(-1) - _dot(laws, logs, room)


def _dot(one: Tensor, other: Tensor, room: Tensor) -> Tensor:
    """Return the dot products [B, R] of rows [B, R, V]; the products use the first rows of `room`."""
    return torch.mul(one, other, out=room[:, : one.shape[1]]).sum(-1)


def _apart(laws: Tensor, logs: Tensor, constants: Tensor, about: Laws, room: Tensor) -> dict[str, Tensor]:
    """Return the divergences of p and q at each node, in nats, from the laws [B, 2N + 1, V] and their logarithms.
    `room` has the same size and is overwritten."""
    n, x, judging = about.tokens.shape[1], about.tokens.unsqueeze(-1), about.judging
    ps, qs = at_nodes(laws, judging, n), laws[:, n + 1 :]
    px, qx = ps.gather(-1, x).squeeze(-1), qs.gather(-1, x).squeeze(-1)
    entropy, constant = _entropy(laws, logs, constants, room), constants.squeeze(-1)
    hp, hq = at_nodes(entropy, judging, n), entropy[:, n + 1 :]
    kl_pq = constant[:, n + 1 :] - _dot(ps, logs[:, n + 1 :], room) - hp
    kl_qp = at_nodes(constant, judging, n) - _dot(qs, at_nodes(logs, judging, n), room) - hq
    middle = torch.add(ps, qs, out=room[:, :n])  # twice the law in the middle
    logs_in_middle = torch.clamp(middle, min=SMALLEST, out=room[:, n : 2 * n]).log_()
    h_middle = math.log(2) - middle.mul_(logs_in_middle).sum(-1).mul_(0.5)
    return {
        "p": px,
        "q": qx,
        "q_max": qs.amax(-1),
        "q_entropy": hq,
        "entropy": entropy[:, : n + 1],
        "total_variation": torch.sub(ps, qs, out=room[:, :n]).abs_().sum(-1).mul_(0.5),
        "kl_pq": kl_pq.masked_fill_(kl_pq > 1e20, torch.inf),
        "kl_qp": kl_qp.masked_fill_(kl_qp > 1e20, torch.inf),
        "js": h_middle - (hp + hq).mul_(0.5),
        "block_mass": _block_mass(laws, px / qx, room) if judging is None else _unknown_mass(px),
    }


def _unknown_mass(px: Tensor) -> Tensor:
    """Return NaN, float64 [B, N], for trees, which block verification does not judge."""
    return torch.full_like(px, torch.nan, dtype=wide(px.device))


def _block_mass(laws: Tensor, ratios: Tensor, room: Tensor) -> Tensor:
    """Return block verification's mass after each node, float64 [B, N]; see `Speculation.block_mass`."""
    n = ratios.shape[1]
    weights = parent_weights(ratios)[:, 1:].unsqueeze(-1)  # [B, N - 1, 1], of what is drafted below each node
    mass = torch.mul(weights, laws[:, 1:n], out=room[:, : n - 1]).sub_(laws[:, n + 2 :]).clamp_(min=0).sum(-1)
    return torch.nn.functional.pad(mass, (0, 1))[:, :n].to(wide(laws.device))


def parent_weights(ratios: Tensor) -> Tensor:
    """Return block verification's weight above each node of the chains [B, N]: 1, then w = min(1, w_parent p/q)."""
    if not ratios.shape[1]:
        return ratios
    carried = [torch.ones_like(ratios[:, 0])]
    for ratio in ratios[:, :-1].unbind(1):
        carried.append((carried[-1] * ratio).clamp_(max=1.0))
    return torch.stack(carried, 1)
