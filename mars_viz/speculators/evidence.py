"""Everything that a rule, a view or a later re-judging may ask of a block, computed on the device in one go.

Knows logits and the fields of a Speculation; knows no models, no caches and no rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.randomness import Purpose, position_uniforms, round_uniforms
from mars_viz.records import Emission, Speculation
from mars_viz.run import Settings
from mars_viz.speculators.laws import draw, law, wide

CANDIDATES = 16
"""K, the target's and the drafter's best tokens kept per row."""

LOWEST = torch.finfo(torch.float32).min
"""Stands for log 0, so that nothing times it is nothing."""


@dataclass(frozen=True, slots=True)
class Block:
    """A drafted chain and both models' logits, still on the device."""

    start: int
    """Absolute position of the first drafted token."""
    tokens: Tensor
    """int64 [N]."""
    drafter: Tensor
    """float32 [N, V]; raw logits that each token was drafted from."""
    target: Tensor
    """float32 [N + 1, V]; raw logits after the prefix and after each token."""
    sampled: bool
    """True if the tokens were drawn from the drafter's law."""


def gather_evidence(block: Block, settings: Settings, *, full: bool = True) -> Speculation:
    """Compute the record of a block and bring it to the host in one transfer.

    `full=False` computes only what deciding needs (NaN elsewhere), for decoding without recording.
    """
    both = torch.cat([block.target, block.drafter])  # [2N + 1, V]
    lse = both.logsumexp(-1)
    found = _candidates(block, both, lse)
    if settings.temperature > 0:
        laws = _drawn_from(block, law(both, settings))
        found |= _draws(block, settings, laws)
        if full:
            found |= _divergences(laws, laws.log().clamp_(min=LOWEST), block.tokens)
    if full:
        logs = (both - lse.unsqueeze(-1)).clamp_(min=LOWEST)
        shares = logs.exp()
        if settings.temperature == 0:
            found |= _divergences(shares, logs, block.tokens)
        n = len(block.tokens)
        found["entropy"] = -torch.linalg.vecdot(shares[: n + 1], logs[: n + 1])
    return _record(block, settings, _to_host(found))


def _drawn_from(block: Block, laws: Tensor) -> Tensor:
    """The laws [2N + 1, V], with q one-hot where the drafter did not draw."""
    if block.sampled:
        return laws
    n = len(block.tokens)
    return torch.cat([laws[: n + 1], torch.zeros_like(laws[n + 1 :]).scatter_(-1, block.tokens.unsqueeze(-1), 1.0)])


def _candidates(block: Block, both: Tensor, lse: Tensor) -> dict[str, Tensor]:
    """The best tokens of every law, and where the drafted ones stand."""
    n = len(block.tokens)
    logits, ids = both.topk(min(CANDIDATES, both.shape[-1]), -1)
    z = block.target[:n].gather(-1, block.tokens.unsqueeze(-1))  # [N, 1]
    return {
        "tokens": block.tokens,
        "top_ids": ids[: n + 1],
        "top_logits": logits[: n + 1],
        "draft_ids": ids[n + 1 :],
        "draft_logits": logits[n + 1 :],
        "logsumexp": lse[: n + 1],
        "draft_logsumexp": lse[n + 1 :],
        "z": z.squeeze(-1),
        "ranks": (block.target[:n] > z).sum(-1) + 1,
    }


def _draws(block: Block, settings: Settings, laws: Tensor) -> dict[str, Tensor]:
    """Above temperature 0: the law at the drafted tokens, and every row's candidate emissions."""
    n, x = len(block.tokens), block.tokens.unsqueeze(-1)  # [N, 1]
    ps, qs = laws[: n + 1], laws[n + 1 :]
    px, qx = ps[:n].gather(-1, x), qs.gather(-1, x)
    residual = _or_law((ps[:n] - qs).clamp_(min=0), ps)
    lowered = _or_law(ps[:n].scatter(-1, x, (px - qx).clamp_(min=0)), ps)
    sample_u = position_uniforms(settings.seed, block.start, n + 1)
    residual_u = round_uniforms(settings.seed, block.start, Purpose.RESIDUAL, n + 1)
    uniforms = torch.from_numpy(np.stack([sample_u, residual_u, residual_u])).to(wide(ps.device)).to(ps.device)
    drawn = draw(torch.stack([ps, residual, lowered]), uniforms)  # [3, N + 1]
    emissions = torch.cat([block.target.argmax(-1).unsqueeze(0), drawn]).T.contiguous()  # [N + 1, 4]
    emission_z = block.target.gather(-1, emissions)
    return {
        "p": px.squeeze(-1),
        "q": qx.squeeze(-1),
        "support": (ps > 0).sum(-1),
        "logsumexp_t": (block.target / settings.temperature).logsumexp(-1),
        "emissions": emissions,
        "emission_z": emission_z,
        "emission_p": ps.gather(-1, emissions),
        "emission_ranks": torch.stack([(block.target > z.unsqueeze(-1)).sum(-1) for z in emission_z.T], -1) + 1,
    }


def _or_law(mass: Tensor, ps: Tensor) -> Tensor:
    """The mass [N, V] where there is any, else p; p on the last row. [N + 1, V]"""
    usable = mass.sum(-1, keepdim=True) > 1e-9
    return torch.cat([torch.where(usable, mass, ps[:-1]), ps[-1:]])


def _divergences(laws: Tensor, logs: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """How far p and q lie apart at each node, nats, from the laws [2N + 1, V] and their logarithms."""
    n, x = len(tokens), tokens.unsqueeze(-1)
    ps, log_p, qs, log_q = laws[:n], logs[:n], laws[n + 1 :], logs[n + 1 :]
    px, qx = ps.gather(-1, x).squeeze(-1), qs.gather(-1, x).squeeze(-1)
    dot = torch.linalg.vecdot
    minus_hp, minus_hq = dot(ps, log_p), dot(qs, log_q)
    kl_pq, kl_qp = minus_hp - dot(ps, log_q), minus_hq - dot(qs, log_p)
    return {
        "p": px,
        "q": qx,
        "q_max": qs.amax(-1),
        "q_entropy": -minus_hq,
        "total_variation": torch.linalg.vector_norm(ps - qs, 1, -1) * 0.5,
        "kl_pq": kl_pq.masked_fill(kl_pq > 1e20, torch.inf),
        "kl_qp": kl_qp.masked_fill(kl_qp > 1e20, torch.inf),
        "js": (minus_hp + minus_hq) * 0.5 + torch.special.entr((ps + qs).mul_(0.5)).sum(-1),
        "block_mass": _block_mass(laws, px / qx),
    }


def _block_mass(laws: Tensor, ratios: Tensor) -> Tensor:
    """Block verification's mass after each node; see `Speculation.block_mass`."""
    n, exact = len(ratios), wide(laws.device)
    carried = [ratios[0].to(exact).clamp(max=1.0)]
    for ratio in ratios[1:].to(exact):
        carried.append((carried[-1] * ratio).clamp(max=1.0))
    weights = torch.stack(carried[:-1]).unsqueeze(-1) if n > 1 else laws.new_zeros(0, 1, dtype=exact)
    mass = (weights * laws[1:n] - laws[n + 2 :]).clamp_(min=0).sum(-1)
    return torch.cat([mass, mass.new_zeros(1)])


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


def _record(block: Block, settings: Settings, found: dict[str, np.ndarray]) -> Speculation:
    """The record, with equals in the order of their ids and the fields that follow from others filled in."""
    found["top_ids"], found["top_logits"] = _by_logit_then_id(found["top_ids"], found["top_logits"])
    found["draft_ids"], found["draft_logits"] = _by_logit_then_id(found["draft_ids"], found["draft_logits"])
    n = len(found["tokens"])
    if settings.temperature == 0:
        shape = (n + 1, len(Emission))
        z1 = found["top_logits"][:, :1]
        p1 = np.exp(z1 - found["logsumexp"][:, None])
        found["emissions"] = np.broadcast_to(found["top_ids"][:, :1], shape)
        found["emission_z"], found["emission_p"] = np.broadcast_to(z1, shape), np.broadcast_to(p1, shape)
        found["emission_ranks"] = np.ones(shape, np.int32)
        found["support"] = np.full(n + 1, block.target.shape[-1], np.int32)
        found["logsumexp_t"] = found["logsumexp"]
    found["ranks"] = _listed_rank(found["tokens"][:, None], found["top_ids"][:n], found["ranks"][:, None])[:, 0]
    found["emission_ranks"] = _listed_rank(found["emissions"], found["top_ids"], found["emission_ranks"])
    depth = np.arange(n, dtype=np.int32)
    unknown = np.full(n, np.nan, np.float32)
    known = {name: array.astype(_DTYPES.get(array.dtype, array.dtype)) for name, array in found.items()}
    return Speculation(
        start=block.start,
        parents=depth - 1,
        depths=depth + 1,
        siblings=np.zeros(n, np.int32),
        temperature=settings.temperature,
        sampled=block.sampled,
        coins=round_uniforms(settings.seed, block.start, Purpose.COIN, n),
        **(dict.fromkeys(_OPTIONAL, unknown) | {"entropy": np.full(n + 1, np.nan, np.float32)} | known),
    )


_OPTIONAL = ("p", "q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass")
"""Fields of a node that decoding without recording leaves unknown."""
_DTYPES = {np.dtype(np.int64): np.int32}


def _by_logit_then_id(ids: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort((ids, -logits), axis=-1)
    return np.take_along_axis(ids, order, -1), np.take_along_axis(logits, order, -1)


def _listed_rank(tokens: np.ndarray, listed: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Rank of each token [R, C] by its place in the row's list [R, K], which settles ties; else as counted."""
    places = tokens[:, :, None] == listed[:, None, :]  # [R, C, K]
    return np.where(places.any(-1), places.argmax(-1) + 1, otherwise)
