"""Everything that a rule, a view or a later re-judging may ask of a block: what decides at once, the rest when wanted.

Knows logits and the fields of a Speculation; knows no models, no caches and no rules.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from mars_viz.errors import BadInput
from mars_viz.randomness import Purpose, position_uniforms, round_uniforms
from mars_viz.records import CANDIDATES, Speculation
from mars_viz.run import Settings
from mars_viz.speculators.assembly import Origin, complete, records
from mars_viz.speculators.blocks import Blocks, Seen
from mars_viz.speculators.divergences import parent_weights
from mars_viz.speculators.extent import Extent
from mars_viz.speculators.largest import largest
from mars_viz.speculators.laws import draw, law, on_device, to_host
from mars_viz.speculators.standing import standing
from mars_viz.speculators.waiting import Waiting


def gather_evidence(
    blocks: Blocks, settings: Settings, extent: Extent = Extent.WHOLE, waiting: Waiting | None = None
) -> list[Speculation]:
    """Compute the record of every block and bring them to the host in one transfer.

    What is left for afterwards goes to `waiting`, unless a single chain is enough to work on. Raises BadInput where a
    model's logits are no numbers.
    """
    if extent.waits and blocks.seats > 1:
        return _gathered(blocks, settings, extent, waiting or Waiting(settings))
    return [record for part in blocks.parts() for record in _gathered(part, settings, extent, None)]


def _gathered(blocks: Blocks, settings: Settings, extent: Extent, waiting: Waiting | None) -> list[Speculation]:
    seen = _seen(blocks, settings)
    whole = waiting is None and extent not in (Extent.DECIDING, Extent.STANDING)
    later = standing([seen], settings, apart=whole) if whole or extent.stands else {}
    found = to_host(seen.found | later)
    _check(found["listed_logits"][..., 0], blocks.tokens.shape[1])
    made = records(Origin(blocks.starts, blocks.sampled, blocks.logits.shape[-1]), settings, found)
    if later:
        complete(made, settings, {name: found[name] for name in later})
    if waiting is not None:
        waiting.take(seen, made)
    return made


def _seen(blocks: Blocks, settings: Settings) -> Seen:
    """What every rule decides by."""
    best = largest(blocks.logits, CANDIDATES)
    found = {"tokens": blocks.tokens, "listed_ids": best.ids, "listed_logits": best.values}
    if settings.temperature == 0:
        return Seen(blocks, found, None)
    drawn = _drawn_from(blocks, law(blocks.logits, settings))
    return Seen(blocks, found | _draws(blocks, settings, drawn, best.ids), drawn)


def _check(peaks: np.ndarray, n: int) -> None:
    """Of every row's largest logit [B, 2N + 1]: a NaN counts as the largest, and an infinity is."""
    if not all(all(map(math.isfinite, chain)) for chain in peaks.tolist()):
        whose = "drafter" if np.isfinite(peaks[:, : n + 1]).all() else "target"
        raise BadInput(
            f"The {whose}'s logits hold NaN or infinity. Decode in float32 (--dtype float32); if that does not "
            "help, its weights are damaged: take a fresh copy."
        )


def _drawn_from(blocks: Blocks, laws: Tensor) -> Tensor:
    """The laws [B, 2N + 1, V], with q one-hot where the drafter did not draw."""
    if blocks.sampled:
        return laws
    rows = blocks.tokens.shape[1] + 1
    one_hot = torch.zeros_like(laws[:, rows:]).scatter_(-1, blocks.tokens.unsqueeze(-1), 1.0)
    return torch.cat([laws[:, :rows], one_hot], 1)


def _draws(blocks: Blocks, settings: Settings, laws: Tensor, best: Tensor) -> dict[str, Tensor]:
    """Above temperature 0: the laws at the drafted and at both models' `best` tokens [B, 2N + 1, K], and every row's
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
    return {
        "p": px.squeeze(-1),
        "q": qx.squeeze(-1),
        "best_q": qs.gather(-1, best[:, :n]),
        "support": (ps > 0).sum(-1),
        "emissions": emissions,
        "emission_p": ps.gather(-1, emissions),
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
