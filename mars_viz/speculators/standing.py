"""Where tokens stand in both models' laws, and how far the laws lie apart: evidence that few rules decide by.

One block's laws are too few numbers to keep a processor busy, and each step costs its start: so it takes the chains of
several rounds at once. Knows logits and the fields of a Speculation; knows no models, no caches and no rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mars_viz.records import CANDIDATES
from mars_viz.run import Settings
from mars_viz.speculators.blocks import Seen
from mars_viz.speculators.divergences import LOWEST, Laws, divergences
from mars_viz.speculators.largest import count_above, largest


def standing(seen: Sequence[Seen], settings: Settings, *, apart: bool) -> dict[str, Tensor]:
    """All that is known of these chains, one after the other, where tokens stand included; where `apart`, with the
    divergences."""
    found = {name: _cat([one.found[name] for one in seen]) for name in seen[0].found}
    tokens, best = found["tokens"], found["top_logits"]
    n, x = tokens.shape[1], tokens.unsqueeze(-1)
    pairs = (pair for one in seen for pair in zip(one.blocks.target, one.blocks.drafter, strict=True))
    both = torch.cat([rows for pair in pairs for rows in pair]).view(len(tokens), 2 * n + 1, -1)
    target, drafter = both[:, : n + 1], both[:, n + 1 :]
    own = largest(drafter, CANDIDATES)
    z = target[:, :n].gather(-1, x)  # [B, N, 1]
    found |= {
        "draft_ids": own.ids,
        "draft_logits": own.values,
        "z": z.squeeze(-1),
        "ranks": count_above(target[:, :n], z) + 1,
    }
    if settings.temperature > 0:
        found |= _standing_emissions(target, found["emissions"], settings)
    peaks = torch.cat([best[..., :1], own.values[..., :1]], 1)
    below = both.sub_(peaks).clamp_(min=LOWEST)  # the logits themselves are not read any more
    shares = below.exp()
    totals = shares.sum(-1, keepdim=True)
    normalisers = (peaks + totals.log()).squeeze(-1)
    found |= {"logsumexp": normalisers[:, : n + 1], "draft_logsumexp": normalisers[:, n + 1 :]}
    if apart:
        drawn = [one.drawn for one in seen if one.drawn is not None]
        found |= divergences(Laws(tokens, below, totals, _cat(drawn) if drawn else None), shares)
    return found


def _standing_emissions(target: Tensor, emissions: Tensor, settings: Settings) -> dict[str, Tensor]:
    """Above temperature 0: of the candidate emissions [B, N + 1, 5], and the normaliser of the law."""
    emission_z = target.gather(-1, emissions)
    above = [count_above(target, z.unsqueeze(-1)) for z in emission_z.unbind(-1)]
    return {
        "logsumexp_t": (target / settings.temperature).logsumexp(-1),
        "emission_z": emission_z,
        "emission_ranks": torch.stack(above, -1) + 1,
    }


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
