"""Everything that a rule, a view or a later re-judging may ask of a block, computed on the device in one go.

Knows logits and the fields of a Speculation; knows no models, no caches and no rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, position_uniforms, round_uniforms
from mars_viz.records import Emission, Speculation
from mars_viz.run import Settings
from mars_viz.speculators.largest import Largest, count_above, largest
from mars_viz.speculators.laws import draw, law, on_device, wide

CACHED = 1 << 18
"""Logits that are worked on at once on a processor."""
CANDIDATES = 16
"""K, the target's and the drafter's best tokens kept per row."""

LOWEST = torch.finfo(torch.float32).min
"""Stands for log 0, so that nothing times it is nothing."""
SMALLEST = torch.finfo(torch.float32).tiny
"""Stands for 0 inside a logarithm."""


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

    def parts(self) -> Iterator[Blocks]:
        """The same chains, on a processor a few at a time, so that what is computed of them stays in its cache."""
        rows, vocabulary = self.target.shape[1] + self.drafter.shape[1], self.target.shape[-1]
        step = max(1, CACHED // (rows * vocabulary)) if self.target.device.type == "cpu" else len(self.starts)
        if step >= len(self.starts):
            yield self
            return
        for at in range(0, len(self.starts), step):
            some = slice(at, at + step)
            yield Blocks(
                self.starts[some], self.tokens[some], self.drafter[some], self.target[some], sampled=self.sampled
            )


def gather_evidence(blocks: Blocks, settings: Settings, *, full: bool = True) -> list[Speculation]:
    """Compute the record of every block and bring them to the host in one transfer.

    `full=False` computes only what deciding needs (NaN elsewhere), for decoding without recording. Raises
    BadInput where a model's logits are no numbers.
    """
    return [record for part in blocks.parts() for record in _gathered(part, settings, full)]


def _gathered(blocks: Blocks, settings: Settings, full: bool) -> list[Speculation]:
    both = torch.cat([blocks.target, blocks.drafter], 1)  # [B, 2N + 1, V]
    best = largest(both, CANDIDATES)
    below = both.sub_(best.values[..., :1]).clamp_(min=LOWEST)  # log p, but for the sum
    shares = below.exp()
    total = shares.sum(-1, keepdim=True)
    logs = Logs(below, total.log())
    found = _candidates(blocks, best, (best.values[..., :1] + logs.total).squeeze(-1))
    if settings.temperature > 0:
        laws = _drawn_from(blocks, law(torch.cat([blocks.target, blocks.drafter], 1), settings))
        found |= _draws(blocks, settings, laws)
        if full:
            found |= _divergences(laws, Logs.of(laws), blocks.tokens)
            found["entropy"] = logs.entropy(shares.div_(total))[:, : blocks.target.shape[1]]
    elif full:
        found |= _divergences(shares.div_(total), logs, blocks.tokens)
    fetched = _to_host(found)
    _check(fetched)
    return _records(blocks, settings, fetched)


def _check(found: dict[str, np.ndarray]) -> None:
    """A NaN is the largest entry of its row, and an infinity makes the row's sum one."""
    for whose, name in (("target", "logsumexp"), ("drafter", "draft_logsumexp")):
        if not np.isfinite(found[name]).all():
            raise BadInput(
                f"The {whose}'s logits hold NaN or infinity. Decode in float32 (--dtype float32); if that does not "
                "help, its weights are damaged: take a fresh copy."
            )


@dataclass(frozen=True, slots=True)
class Logs:
    """Logarithms of laws, but for a constant of each row, which is cheaper to take off a sum than off every entry."""

    values: Tensor
    """float32 [B, R, V]."""
    total: Tensor
    """float32 [B, R, 1]; to be taken off."""

    @classmethod
    def of(cls, laws: Tensor) -> Logs:
        """Of laws [B, R, V] that are known themselves."""
        return cls(laws.log().clamp_(min=LOWEST), laws.new_zeros(*laws.shape[:-1], 1))

    def entropy(self, laws: Tensor) -> Tensor:
        """[B, R]; of the laws whose logarithms these are, nats."""
        return self.total.squeeze(-1) - torch.linalg.vecdot(laws, self.values)


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


def _draws(blocks: Blocks, settings: Settings, laws: Tensor) -> dict[str, Tensor]:
    """Above temperature 0: the law at the drafted tokens, and every row's candidate emissions."""
    n, x = blocks.tokens.shape[1], blocks.tokens.unsqueeze(-1)  # [B, N, 1]
    ps, qs = laws[:, : n + 1], laws[:, n + 1 :]
    px, qx = ps[:, :n].gather(-1, x), qs.gather(-1, x)
    residual = _or_law((ps[:, :n] - qs).clamp_(min=0), ps)
    lowered = _or_law(ps[:, :n].scatter(-1, x, (px - qx).clamp_(min=0)), ps)
    weights = _parent_weights(px.squeeze(-1) / qx.squeeze(-1)).unsqueeze(-1)  # [B, N, 1]
    weighted = _or_law((weights * ps[:, :n] - qs).clamp_(min=0), ps)
    drawn = draw(torch.stack([ps, residual, lowered, weighted], 2), _uniforms(blocks, settings))  # [B, N + 1, 4]
    emissions = torch.cat([blocks.target.max(-1, keepdim=True).indices, drawn], -1)  # [B, N + 1, 5]
    emission_z = blocks.target.gather(-1, emissions)
    return {
        "p": px.squeeze(-1),
        "q": qx.squeeze(-1),
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


def _divergences(laws: Tensor, logs: Logs, tokens: Tensor) -> dict[str, Tensor]:
    """How far p and q lie apart at each node, nats, from the laws [B, 2N + 1, V] and their logarithms."""
    n, x = tokens.shape[1], tokens.unsqueeze(-1)
    ps, qs = laws[:, :n], laws[:, n + 1 :]
    px, qx = ps.gather(-1, x).squeeze(-1), qs.gather(-1, x).squeeze(-1)
    entropy, totals = logs.entropy(laws), logs.total.squeeze(-1)
    hp, hq = entropy[:, :n], entropy[:, n + 1 :]
    kl_pq = totals[:, n + 1 :] - torch.linalg.vecdot(ps, logs.values[:, n + 1 :]) - hp
    kl_qp = totals[:, :n] - torch.linalg.vecdot(qs, logs.values[:, :n]) - hq
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
    weights = _parent_weights(ratios)[:, 1:].unsqueeze(-1)  # [B, N - 1, 1], of what is drafted below each node
    mass = (weights * laws[:, 1:n]).sub_(laws[:, n + 2 :]).clamp_(min=0).sum(-1)
    return torch.nn.functional.pad(mass, (0, 1)).to(wide(laws.device))


def _parent_weights(ratios: Tensor) -> Tensor:
    """Block verification's weight above each node of the chains [B, N]: 1, then w = min(1, w_parent p/q)."""
    carried = [torch.ones_like(ratios[:, 0])]
    for ratio in ratios[:, :-1].unbind(1):
        carried.append((carried[-1] * ratio).clamp_(max=1.0))
    return torch.stack(carried, 1)


def _to_host(found: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """One device-to-host transfer for all of it."""
    if all(t.device.type == "cpu" for t in found.values()):
        return {name: t.numpy() for name, t in found.items()}
    raw = torch.cat([t.contiguous().view(torch.uint8).flatten() for t in found.values()]).cpu().numpy()
    fetched, at = {}, 0
    for name, t in found.items():
        size = t.numel() * t.element_size()
        dtype = str(t.dtype).removeprefix("torch.")
        fetched[name] = raw[at : at + size].view(dtype).reshape(tuple(t.shape))
        at += size
    return fetched


def _records(blocks: Blocks, settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """The records, with equals in the order of their ids and the fields that follow from others filled in."""
    b, n = found["tokens"].shape
    found = {name: array.astype(np.int32) if array.dtype == np.int64 else array for name, array in found.items()}
    found["top_ids"], found["top_logits"] = _by_logit_then_id(found["top_ids"], found["top_logits"])
    found["draft_ids"], found["draft_logits"] = _by_logit_then_id(found["draft_ids"], found["draft_logits"])
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
    for name in _OPTIONAL:
        if name not in found:
            found[name] = np.full((b, n + (name == "entropy")), np.nan, np.float32)
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


_OPTIONAL = ("p", "q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass", "entropy")
"""Fields that decoding without recording leaves unknown."""


def _by_logit_then_id(ids: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if (logits[..., 1:] < logits[..., :-1]).all():  # as nearly always: there are no equals
        return ids, logits
    order = np.lexsort((ids, -logits), axis=-1)
    return np.take_along_axis(ids, order, -1), np.take_along_axis(logits, order, -1)


def _listed_rank(tokens: np.ndarray, listed: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Rank of each token [..., C] by its place in the row's list [..., K], which settles ties; else as counted."""
    places = tokens[..., None] == listed[..., None, :]  # [..., C, K]
    return np.where(places.any(-1), places.argmax(-1) + 1, otherwise).astype(np.int32)
