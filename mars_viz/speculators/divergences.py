"""The part of the evidence that no decision waits for: how far two laws lie apart, and how spread out they are.

One block's laws are too few numbers to keep a processor busy, so those of several rounds are worked on together, and
the records are completed in place. Knows laws and the fields of a Speculation; knows no models, no caches, no rules.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from mars_viz.speculators.laws import to_host, wide

LOWEST = torch.finfo(torch.float32).min
"""Stands for log 0, so that nothing times it is nothing."""
SMALLEST = torch.finfo(torch.float32).tiny
"""Stands for 0 inside a logarithm."""
TOGETHER = 1 << 18
"""Entries of laws that are worked on at once on a processor: many enough for its cores, few enough for their caches."""


class Extent(Enum):
    """How much evidence is computed, and when."""

    DECIDING = "deciding"
    """What deciding needs; the divergences stay unknown (NaN)."""
    WHOLE = "whole"
    """All of it, with every answer."""
    AFTERWARDS = "afterwards"
    """All of it, the divergences up to some rounds later; see `Waiting`."""

    @classmethod
    def least(cls, needs: Collection[str], *, recorded: bool) -> Extent:
        """The cheapest that serves a rule which needs these fields of the evidence."""
        if needs:
            return cls.WHOLE
        return cls.AFTERWARDS if recorded else cls.DECIDING


@dataclass(frozen=True, slots=True)
class Laws:
    """Both models' laws over chains of N drafted tokens; the target's N + 1 rows first, then the drafter's N."""

    tokens: Tensor
    """int64 [B, N]; what was drafted."""
    below: Tensor
    """float32 [B, 2N + 1, V]; raw logits less their row's largest, which makes them finite."""
    totals: Tensor
    """float32 [B, 2N + 1, 1]; the sum of their exponentials."""
    drawn: Tensor | None
    """float32 [B, 2N + 1, V]; the laws that tokens were drawn from; None where they are the plain softmax."""


class Waiting:
    """Chains whose divergences are not known yet: completed once there are enough of them, or when asked."""

    def __init__(self) -> None:
        """None so far."""
        self._below = torch.empty(0, 0, 0)
        self._laws: list[Laws] = []
        self._fields: dict[str, np.ndarray] = {}
        self._taken = 0

    def room(self, shape: tuple[int, int, int], device: torch.device) -> Tensor | None:
        """Where to write what is `Laws.below`, of some chains; None where these are enough by themselves."""
        chains, rows, vocabulary = shape
        seats = TOGETHER // (rows * vocabulary)
        if chains >= seats:
            return None
        if self._below.shape != (seats, rows, vocabulary):
            self.complete()
            self._below = torch.empty(seats, rows, vocabulary, device=device)
        if self._taken + chains > seats:
            self.complete()
        if not self._taken:
            self._fields = unknown(seats, rows // 2)
        return self._below[self._taken : self._taken + chains]

    def take(self, laws: Laws) -> dict[str, np.ndarray]:
        """Take the laws that were written to the room asked for last; the fields [B, N] that will be filled in."""
        mine = slice(self._taken, self._taken + len(laws.tokens))
        self._laws.append(laws)
        self._taken = mine.stop
        return {name: values[mine] for name, values in self._fields.items()}

    def complete(self) -> None:
        """Fill in all fields that were given out."""
        if not self._taken:
            return
        drawn = [laws.drawn for laws in self._laws if laws.drawn is not None]
        together = Laws(
            tokens=torch.cat([laws.tokens for laws in self._laws]),
            below=self._below[: self._taken],
            totals=torch.cat([laws.totals for laws in self._laws]),
            drawn=torch.cat(drawn) if drawn else None,
        )
        found = to_host(divergences(together))
        for name, values in found.items():
            self._fields[name][: self._taken] = values
        self._laws, self._taken = [], 0


UNKNOWN = ("p", "q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass", "entropy")
"""Fields of a Speculation that `divergences` computes; p and q are known before where tokens are drawn."""


def divergences(laws: Laws, shares: Tensor | None = None) -> dict[str, Tensor]:
    """All of `UNKNOWN`, by name: [B, N], and the entropy [B, N + 1].

    `shares` are the exponentials of `below`, where somebody has them already; they are overwritten.
    """
    rows = laws.tokens.shape[1] + 1
    plain = (laws.below.exp() if shares is None else shares).div_(laws.totals)
    constants = laws.totals.log()
    if laws.drawn is None:
        return _apart(plain, laws.below, constants, laws.tokens)
    found = _apart(laws.drawn, laws.drawn.log().clamp_(min=LOWEST), torch.zeros_like(constants), laws.tokens)
    found["entropy"] = _entropy(plain[:, :rows], laws.below[:, :rows], constants[:, :rows])
    return found


def _entropy(laws: Tensor, logs: Tensor, constants: Tensor) -> Tensor:
    """[B, R]; nats, of laws [B, R, V] whose logarithms are `logs` - `constants`: cheaper taken off a sum than off every
    entry."""
    return constants.squeeze(-1) - torch.linalg.vecdot(laws, logs)


def _apart(laws: Tensor, logs: Tensor, constants: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """How far p and q lie apart at each node, nats, from the laws [B, 2N + 1, V] and their logarithms."""
    n, x = tokens.shape[1], tokens.unsqueeze(-1)
    ps, qs = laws[:, :n], laws[:, n + 1 :]
    px, qx = ps.gather(-1, x).squeeze(-1), qs.gather(-1, x).squeeze(-1)
    entropy, own = _entropy(laws, logs, constants), constants.squeeze(-1)
    hp, hq = entropy[:, :n], entropy[:, n + 1 :]
    kl_pq = own[:, n + 1 :] - torch.linalg.vecdot(ps, logs[:, n + 1 :]) - hp
    kl_qp = own[:, :n] - torch.linalg.vecdot(qs, logs[:, :n]) - hq
    middle = ps + qs  # twice the law in the middle
    h_middle = math.log(2) - torch.linalg.vecdot(middle, middle.clamp(min=SMALLEST).log_()).mul_(0.5)
    return {
        "p": px,
        "q": qx,
        "q_max": qs.amax(-1),
        "q_entropy": hq,
        "entropy": entropy[:, : n + 1],
        "total_variation": (ps - qs).abs_().sum(-1).mul_(0.5),
        "kl_pq": kl_pq.masked_fill_(kl_pq > 1e20, torch.inf),
        "kl_qp": kl_qp.masked_fill_(kl_qp > 1e20, torch.inf),
        "js": h_middle - (hp + hq).mul_(0.5),
        "block_mass": _block_mass(laws, px / qx),
    }


def _block_mass(laws: Tensor, ratios: Tensor) -> Tensor:
    """float64 [B, N]; block verification's mass after each node; see `Speculation.block_mass`."""
    n = ratios.shape[1]
    weights = parent_weights(ratios)[:, 1:].unsqueeze(-1)  # [B, N - 1, 1], of what is drafted below each node
    mass = (weights * laws[:, 1:n]).sub_(laws[:, n + 2 :]).clamp_(min=0).sum(-1)
    return torch.nn.functional.pad(mass, (0, 1)).to(wide(laws.device))


def parent_weights(ratios: Tensor) -> Tensor:
    """Block verification's weight above each node of the chains [B, N]: 1, then w = min(1, w_parent p/q)."""
    carried = [torch.ones_like(ratios[:, 0])]
    for ratio in ratios[:, :-1].unbind(1):
        carried.append((carried[-1] * ratio).clamp_(max=1.0))
    return torch.stack(carried, 1)


def unknown(chains: int, drafted: int) -> dict[str, np.ndarray]:
    """The fields of `UNKNOWN` before they are known: NaN [B, N], and the entropy [B, N + 1]."""
    whole = np.full((len(UNKNOWN) + 1, chains, drafted + 1), np.nan, np.float32)
    found = dict(zip(UNKNOWN, whole[:, :, :drafted], strict=False))
    return found | {"entropy": whole[-1], "block_mass": np.full((chains, drafted), np.nan)}
