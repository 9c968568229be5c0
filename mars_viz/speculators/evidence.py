"""Evidence of a block: the columns for the decision at once, the rest when needed.

There are two levels: columns that all rules need plus one rule's, and all columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mars_viz.errors import EvidenceError, ModelError
from mars_viz.randomness import Purpose, position_uniforms, round_uniforms
from mars_viz.records import CANDIDATES, COLUMNS, Speculation
from mars_viz.run import Settings
from mars_viz.speculators.build_records import Origin, completed, records
from mars_viz.speculators.divergences import DIVERGENCES, parent_weights
from mars_viz.speculators.draft import NO_SAMPLE, Draft, TopLogits
from mars_viz.speculators.draft_batch import DraftBatch, Seen, Trees
from mars_viz.speculators.logit_stats import one_hot, standing
from mars_viz.speculators.sampling import draw, law, on_device, to_host
from mars_viz.speculators.topk import Largest, best, largest, settled
from mars_viz.speculators.tree_columns import TREE_COLUMNS, tree_columns, tree_residuals
from mars_viz.speculators.tree_laws import refused_in_turn
from mars_viz.speculators.waiting import Waiting
from mars_viz.trees import depths_of

DAMAGED = (
    "The {whose}'s logits hold NaN or infinity. Decode in float32 (--dtype float32); if that does not help, its "
    "weights are damaged: take a fresh copy."
)


def gather_evidence(
    blocks: DraftBatch, settings: Settings, needs: Collection[str] | None = None, waiting: Waiting | None = None
) -> list[Speculation]:
    """Compute the record of every block and bring the records to the host in one transfer.

    `needs` are columns in addition to those that all rules use; None for all. The remaining columns go to `waiting`, if
    given, unless a single chain is enough work. Raises BadInput for logits that are no numbers.
    """
    if needs is not None:
        needs = {name for name in needs if COLUMNS[name].of.includes(blocks.kind, settings.temperature)}
        if not DIVERGENCES.isdisjoint(needs):
            needs = None
    if waiting is not None and needs is not None and blocks.seats > 1:
        seen, recorded = _recorded(_seen(blocks, settings, needs, both=True), settings, needs)
        waiting.take(seen, recorded)
        return recorded
    columns = needs if waiting is None else None
    both = _goes_on(columns)
    parts = (_recorded(_seen(part, settings, columns, both=both), settings, columns) for part in blocks.parts())
    return [record for _, recorded in parts for record in recorded]


def record_top_logits(
    starts: tuple[int, ...], draft: Draft, top: TopLogits, settings: Settings, vocabulary: int
) -> list[Speculation]:
    """Return records from a target that returns only its best tokens, which has no law and so no sampling. Raises
    BadInput above temperature 0, for fewer than two candidates, and for logits that are no numbers."""
    if settings.temperature > 0:
        raise EvidenceError(NO_SAMPLE)
    if top.ids.shape[-1] < 2:
        raise ModelError(f"The target gives {top.ids.shape[-1]} candidates for a token; ask it for two at least.")
    if not all(np.isfinite(each).all() for each in (top.logits, top.drafted) if each is not None):
        raise ModelError(DAMAGED.format(whose="target"))
    drafted, tokens, completed_records = _drafter_alone(draft, vocabulary), draft.tokens.cpu().numpy(), []
    for i, start in enumerate(starts):
        n = len(tokens[i]) if draft.lengths is None else draft.lengths[i]
        chain = {
            "tokens": tokens[i : i + 1, :n],
            "listed_ids": top.ids[i : i + 1, : n + 1],
            "listed_logits": top.logits[i : i + 1, : n + 1],
        }
        passes = None if draft.passes is None else draft.passes[i][None]
        origin = Origin((start,), sampled=False, vocabulary=vocabulary, trees=Trees.of(draft, [i]), passes=passes)
        (record,) = chains = records(origin, settings, chain)
        listed = record.at_nodes(record.top_ids) == record.tokens[:, None]  # [N, K]
        columns = {name: array[i : i + 1, :n] for name, array in drafted.items()}
        if top.drafted is not None:
            columns["z"] = top.drafted[i : i + 1, :n]
        columns["ranks"] = np.where(listed.any(1), listed.argmax(1) + 1, 0)[None]
        completed_records += completed(chains, settings, columns)
    return completed_records


def _drafter_alone(draft: Draft, vocabulary: int) -> dict[str, np.ndarray]:
    """Return the drafter's values at its tokens, [B, N, ...], by the fields of a Speculation."""
    x = draft.tokens.unsqueeze(-1)
    rows = draft.spread(vocabulary)
    if rows is None:
        rows = one_hot(x, torch.empty(0, vocabulary, device=x.device))
    listed, law = largest(rows, CANDIDATES if draft.logits is not None else 1), rows.softmax(-1)
    values = {
        "q": law.gather(-1, x).squeeze(-1),
        "q_max": law.amax(-1),
        "q_entropy": -torch.special.xlogy(law, law).sum(-1),
        "draft_ids": listed.ids,
        "draft_logits": listed.values,
        "draft_logsumexp": rows.logsumexp(-1),
    }
    return {name: array.cpu().numpy() for name, array in values.items()}


def _recorded(seen: Seen, settings: Settings, needs: Collection[str] | None) -> tuple[Seen, list[Speculation]]:
    """Return the records with the values from which they were computed."""
    blocks = seen.blocks
    later = standing([seen], settings, apart=needs is None) if _goes_on(needs) else {}
    fetched = to_host(seen.found | later)
    if "tied" in fetched and fetched.pop("tied").any():
        return _recorded(_settled(seen), settings, needs)
    rows, peaks = blocks.target.shape[1], fetched["listed_logits"][..., 0]
    _check(peaks[:, :rows], fetched["peaks"] if "peaks" in fetched else peaks[:, rows:])
    origin = Origin(blocks.starts, blocks.sampled, blocks.target.shape[-1], blocks.trees, blocks.passes)
    recorded = records(origin, settings, fetched)
    if later:
        recorded = completed(recorded, settings, {name: fetched[name] for name in later})
    return seen, recorded


def _goes_on(needs: Collection[str] | None) -> bool:
    """Return True if `standing` is needed, which reads both models' lists."""
    return needs is None or not TREE_COLUMNS.issuperset(needs)


def _seen(blocks: DraftBatch, settings: Settings, needs: Collection[str] | None, *, both: bool) -> Seen:
    """Return the columns that all rules use, and those for trees if needed. Lists contain `both` models' best tokens,
    or only the target's."""
    listed = largest(blocks.logits if both else blocks.target, CANDIDATES)
    columns, drawn = {"tokens": blocks.tokens}, None
    if not both and blocks.drafter is not None:
        columns["peaks"] = blocks.drafter.amax(-1)
    if settings.temperature > 0:
        drawn = _drawn_from(blocks, law(blocks.logits, settings))
        columns |= _draws(blocks, settings, drawn)
        if blocks.trees is not None:
            columns |= tree_columns(blocks, settings, drawn, TREE_COLUMNS if needs is None else needs)
    return Seen(blocks, columns | _listed(listed, drawn, blocks), drawn)


def _settled(seen: Seen) -> Seen:
    """Return the values with the order of equal logits resolved."""
    columns = dict(seen.found)
    listed, blocks = Largest(columns["listed_logits"], columns["listed_ids"], columns.pop("tied")), seen.blocks
    rows = blocks.target if listed.ids.shape[1] == blocks.target.shape[1] else blocks.logits
    return replace(seen, found=columns | _listed(settled(rows, listed), seen.drawn, blocks))


def _listed(listed: Largest, drawn: Tensor | None, blocks: DraftBatch) -> dict[str, Tensor]:
    """Return the best tokens, [B, R, K], and above temperature 0 the drafter's probabilities of the target's."""
    columns = {"listed_ids": listed.ids, "listed_logits": listed.values}
    if listed.tied is not None:
        columns["tied"] = listed.tied
    if drawn is not None:
        n = drawn.shape[1] // 2
        columns["best_q"] = drawn[:, n + 1 :].gather(-1, blocks.at_nodes(listed.ids))
    return columns


def _check(target: np.ndarray, drafter: np.ndarray) -> None:
    """Check every row's largest logit, [B, N + 1] and [B, N]: NaN and infinity count as largest."""
    for whose, peaks in (("target", target), ("drafter", drafter)):
        if not all(map(math.isfinite, peaks.ravel().tolist())):
            raise ModelError(DAMAGED.format(whose=whose))


def _drawn_from(blocks: DraftBatch, laws: Tensor) -> Tensor:
    """Return the laws [B, 2N + 1, V], with one-hot q if the drafter did not draw."""
    if blocks.sampled:
        return laws
    n = blocks.tokens.shape[1]
    one_hot = torch.zeros_like(laws[:, :n]).scatter_(-1, blocks.tokens.unsqueeze(-1), 1.0)
    return torch.cat([laws[:, : n + 1], one_hot], 1)


def _draws(blocks: DraftBatch, settings: Settings, laws: Tensor) -> dict[str, Tensor]:
    """Return the laws at the drafted tokens, and every row's candidate emissions; above temperature 0."""
    n, x = blocks.tokens.shape[1], blocks.tokens.unsqueeze(-1)  # [B, N, 1]
    ps, qs = laws[:, : n + 1], laws[:, n + 1 :]
    px, qx = blocks.at_nodes(ps).gather(-1, x), qs.gather(-1, x)
    tree_values: dict[str, Tensor] = {}
    if blocks.judging is not None:
        left = lowered = _without_children(ps, blocks.judging, blocks.tokens)
        if blocks.sampled:
            left, tree_values = refused_in_turn(blocks, ps, qs)
        masses = torch.stack([ps, left, lowered, left], 2)
    else:
        residual = _or_law((ps[:, :n] - qs).clamp_(min=0), ps)
        lowered = _or_law(ps[:, :n].scatter(-1, x, (px - qx).clamp_(min=0)), ps)
        weights = parent_weights(px.squeeze(-1) / qx.squeeze(-1)).unsqueeze(-1)  # [B, N, 1]
        weighted = _or_law((weights * ps[:, :n] - qs).clamp_(min=0), ps)
        masses = torch.stack([ps, residual, lowered, weighted], 2)
    drawn = draw(masses, _uniforms(blocks, settings))  # [B, N + 1, 4]
    emissions = torch.cat([best(blocks.target).unsqueeze(-1), drawn], -1)  # [B, N + 1, 5]
    return {
        "p": px.squeeze(-1),
        "q": qx.squeeze(-1),
        "support": (ps > 0).sum(-1),
        "emissions": emissions,
        "emission_p": ps.gather(-1, emissions),
        **tree_values,
    }


def _uniforms(blocks: DraftBatch, settings: Settings) -> Tensor:
    """Return uniforms, float64 [B, N + 1, 4], for the plain, residual, lowered and block samples; the last three share
    one."""
    count, device = blocks.target.shape[1], blocks.target.device
    plain = np.stack([position_uniforms(settings.seed, start, count) for start in blocks.starts])
    if blocks.trees is None:
        residual = np.stack([round_uniforms(settings.seed, start, Purpose.RESIDUAL, count) for start in blocks.starts])
    else:
        rows = [np.append(0, depths_of(parents)) for parents in blocks.trees.parents]
        plain = np.stack([each[depths] for each, depths in zip(plain, rows, strict=True)])
        residual = tree_residuals(blocks, settings)
    return on_device(np.stack([plain, residual, residual, residual], -1), device)


def _without_children(ps: Tensor, judging: Tensor, tokens: Tensor) -> Tensor:
    """Return the laws [B, N + 1, V] without the tokens drafted at each row, as if each had been certain. A law with
    nothing left is unchanged."""
    tried = torch.zeros_like(ps, dtype=torch.bool)
    texts = torch.arange(len(ps), device=ps.device).unsqueeze(1)
    tried[texts, judging, tokens] = True
    left = ps.masked_fill(tried, 0.0)
    return torch.where(left.sum(-1, keepdim=True) > 1e-9, left, ps)


def _or_law(mass: Tensor, ps: Tensor) -> Tensor:
    """Return the mass [B, N, V] if there is any, otherwise p, and p for the last row: [B, N + 1, V]."""
    usable = mass.sum(-1, keepdim=True) > 1e-9
    return torch.cat([torch.where(usable, mass, ps[:, :-1]), ps[:, -1:]], 1)
