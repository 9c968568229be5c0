"""Evidence of a block: the columns for the decision at once, the rest when needed.

There are two levels: columns that all rules need plus one rule's, and all columns. One block's laws are too few numbers
to keep a processor busy, and each step has a start-up cost, so chains of several rounds are processed at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mars_viz.errors import EvidenceError, ModelError
from mars_viz.randomness import Purpose, position_uniforms, round_uniforms, tree_uniforms
from mars_viz.records import CANDIDATES, COLUMNS, Emission, Speculation, chain
from mars_viz.run import Settings
from mars_viz.speculators.draft import NO_SAMPLE, Draft, DraftBatch, Scored, TopLogits, at_nodes
from mars_viz.speculators.sampling import draw, largest, law, on_device, ranks, to_host, wide
from mars_viz.speculators.tree_laws import NOTHING, TREE_COLUMNS, refused_in_turn, tree_columns, tree_residuals
from mars_viz.trees import depths_of, siblings_of

DAMAGED = (
    "The {whose}'s logits hold NaN or infinity. Decode in float32 (--dtype float32); if that does not help, its "
    "weights are damaged: take a fresh copy."
)
TURNS = 4
"""Multiple of the chains processed at once to wait for: the first batch finds neither code nor data in the processor's
caches, because the models' weights have passed through them."""
OF_WHOLE_ROWS = {"z", "p", "emission_p", "logsumexp", "logsumexp_t", "entropy", "total_variation", "kl_pq", "kl_qp"}
OF_WHOLE_ROWS |= {"js", "block_mass"}  # columns that need all of the target's logits


def records_of(
    starts: tuple[int, ...],
    draft: Draft,
    scored: Scored,
    settings: Settings,
    vocabulary: int,
    needs: Collection[str] | None = None,
    waiting: Waiting | None = None,
) -> list[Speculation]:
    """Return the records of drafts that start at these positions; those of equal length by one drafter are processed
    together.

    The last two arguments are as in `gather_evidence`. A target that returns only its best tokens has no law, so that
    nothing can be sampled. Raises BadInput for such a target above temperature 0 or with fewer than two candidates, and
    for logits that are no numbers.
    """
    top = scored if isinstance(scored, TopLogits) else None
    if isinstance(scored, TopLogits):
        scored, needs, waiting = _whole_rows(scored, settings, draft.tokens.device, vocabulary), None, None
    logits = draft.spread(scored.shape[-1])
    lengths = draft.lengths or (draft.tokens.shape[1],) * len(starts)
    kinds = list(zip(lengths, draft.by or (None,) * len(starts), strict=True))
    records: dict[int, Speculation] = {}
    for length, by in dict.fromkeys(kinds):
        some = [i for i, each in enumerate(kinds) if each == (length, by)]
        index = slice(None) if len(some) == len(starts) else torch.tensor(some, device=scored.device)
        blocks = DraftBatch(
            tuple(starts[i] for i in some),
            draft.tokens[index, :length],
            None if logits is None or by == 0 else logits[index, :length],
            scored[index, : length + 1],
            settings.temperature > 0,
            draft.trees and draft.trees.some(some),
            None if draft.passes is None else np.stack([draft.passes[i] for i in some]),
            by,
        )
        records |= zip(some, gather_evidence(blocks, settings, needs, waiting), strict=True)
    in_order = [records[i] for i in range(len(starts))]
    return in_order if top is None else [_of_best(record, top, i) for i, record in enumerate(in_order)]


def _whole_rows(top: TopLogits, settings: Settings, device: torch.device, vocabulary: int) -> Tensor:
    """Return logits [B, N + 1, V] that are -inf except for the best tokens'."""
    if settings.temperature > 0:
        raise EvidenceError(NO_SAMPLE)
    if top.ids.shape[-1] < 2:
        raise ModelError(f"The target gives {top.ids.shape[-1]} candidates for a token; ask it for two at least.")
    if not all(np.isfinite(each).all() for each in (top.logits, top.drafted) if each is not None):
        raise ModelError(DAMAGED.format(whose="target"))
    rows = torch.full((*top.ids.shape[:2], vocabulary), -torch.inf)
    return rows.scatter_(-1, torch.from_numpy(top.ids), torch.from_numpy(top.logits)).to(device)


def _of_best(record: Speculation, top: TopLogits, i: int) -> Speculation:
    """Return draft i's record, from the target's best tokens alone."""
    width, n = top.ids.shape[-1], len(record)
    columns = {name: values for name, values in record.columns.items() if name not in OF_WHOLE_ROWS}
    columns |= {name: columns[name][:, :width] for name in ("top_ids", "top_logits")}
    columns["ranks"] = np.where(record.ranks > width, 0, record.ranks)
    if top.drafted is not None:
        columns["z"] = top.drafted[i, :n]
    return replace(record, columns=columns)


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
        records = _recorded(blocks, settings, needs)
        waiting.take(blocks, records)
        return records
    columns = needs if waiting is None else None
    return [record for part in blocks.parts() for record in _recorded(part, settings, columns)]


class Waiting:
    """Holds chains with only decision columns until there is enough work, or all evidence is requested."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._batches: list[DraftBatch] = []
        self._records: list[Speculation] = []
        self._completed: dict[Speculation, Speculation] = {}

    def take(self, blocks: DraftBatch, records: Sequence[Speculation]) -> None:
        if self._batches and blocks.like != self._batches[0].like:
            self._work()
        self._batches.append(blocks)
        self._records += records
        if len(self._records) >= TURNS * blocks.seats:
            self._work()

    def complete(self, speculations: Sequence[Speculation]) -> list[Speculation]:
        """Return the record with all columns for each of them, once each; unchanged if it is complete."""
        self._work()
        return [self._completed.pop(speculation, speculation) for speculation in speculations]

    def _work(self) -> None:
        while self._batches:
            count, chains = 0, 0
            while count < len(self._batches) and chains < self._batches[0].seats:
                chains += len(self._batches[count].starts)
                count += 1
            together, unfinished = self._batches[:count], self._records[:chains]
            columns = standing(together, self._settings, apart=True)
            if together[0].laws is not None and together[0].trees is not None:  # all are trees, or none is
                of_trees = [  # columns that no decision needed
                    tree_columns(each, self._settings, TREE_COLUMNS.difference(each.columns)) for each in together
                ]
                columns |= {name: torch.cat([each[name] for each in of_trees]) for name in of_trees[0]}
            self._completed |= zip(unfinished, _completed(unfinished, self._settings, to_host(columns)), strict=True)
            self._batches, self._records = self._batches[count:], self._records[chains:]


def _recorded(blocks: DraftBatch, settings: Settings, needs: Collection[str] | None) -> list[Speculation]:
    """Return the records of a batch, with the columns of `standing` if they are needed."""
    _decide(blocks, settings, needs)
    later = dict[str, Tensor]()
    if needs is None or not TREE_COLUMNS.issuperset(needs):
        later = standing([blocks], settings, apart=needs is None)
    found = to_host(blocks.columns | later)
    n, peaks = blocks.tokens.shape[1], found["listed_logits"][..., 0]  # NaN and infinity count as largest
    for whose, logits in (("target", peaks[:, : n + 1]), ("drafter", peaks[:, n + 1 :])):
        if not np.isfinite(logits).all():
            raise ModelError(DAMAGED.format(whose=whose))
    records = _records(blocks, settings, {name: found[name] for name in blocks.columns})
    return _completed(records, settings, {name: found[name] for name in later}) if later else records


def _decide(blocks: DraftBatch, settings: Settings, needs: Collection[str] | None) -> None:
    """Add the columns that all rules use to a batch, and those for trees if needed.

    These are the tokens, both models' best ones as `listed_ids` and `listed_logits`, int64 and float32 [B, R, K], and
    above temperature 0 the draws and their probabilities.
    """
    logits, ids = largest(blocks.logits, CANDIDATES)
    blocks.columns |= {"tokens": blocks.tokens, "listed_ids": ids, "listed_logits": logits}
    if settings.temperature > 0:
        n, laws = blocks.tokens.shape[1], law(blocks.logits, settings)
        if not blocks.sampled:  # the drafter did not draw: q is 1 at its tokens
            certain = torch.zeros_like(laws[:, :n]).scatter_(-1, blocks.tokens.unsqueeze(-1), 1.0)
            laws = torch.cat([laws[:, : n + 1], certain], 1)
        blocks.laws = laws
        blocks.columns |= _draws(blocks, settings, laws)
        if blocks.trees is not None:
            blocks.columns |= tree_columns(blocks, settings, TREE_COLUMNS if needs is None else needs)


def _draws(blocks: DraftBatch, settings: Settings, laws: Tensor) -> dict[str, Tensor]:
    """Return the laws at the drafted tokens, and every row's candidate emissions; above temperature 0."""
    n, x, ids = blocks.tokens.shape[1], blocks.tokens.unsqueeze(-1), blocks.columns["listed_ids"]
    ps, qs = laws[:, : n + 1], laws[:, n + 1 :]
    px, qx = at_nodes(ps, blocks.judging, n).gather(-1, x), qs.gather(-1, x)  # [B, N, 1]
    masses = torch.stack([ps] * 4, 2)  # [B, N + 1, 4, V], of the plain, residual, lowered and block samples
    tree_values: dict[str, Tensor] = {}
    if blocks.judging is None:
        weights = _weights((px / qx).squeeze(-1))[:, :-1]  # [B, N - 1]
        masses[:, 1:n, 3].mul_(weights.unsqueeze(-1))
        masses[:, :n, 1::2].sub_(qs.unsqueeze(2))
        masses[:, :n, 2].scatter_(-1, x, px - qx)
        masses.clamp_(min=0)
    else:  # as if each drafted token had been certain
        masses[torch.arange(len(ps), device=ps.device).unsqueeze(1), blocks.judging, 1:, blocks.tokens] = 0
        if blocks.sampled:
            left, tree_values = refused_in_turn(blocks, ps, qs)
            masses[:, :, 1::2] = left.unsqueeze(2)
    masses = torch.where(masses.sum(-1, keepdim=True) > NOTHING, masses, ps.unsqueeze(2))
    drawn = draw(masses, _uniforms(blocks, settings))  # [B, N + 1, 4]
    emissions = torch.cat([ids[:, : n + 1, :1], drawn], -1)  # [B, N + 1, 5]
    return {
        "p": px.squeeze(-1),
        "q": qx.squeeze(-1),
        "best_q": qs.gather(-1, at_nodes(ids, blocks.judging, n)),
        "support": torch.linalg.vector_norm(ps, 0, -1),  # the number of entries that are not 0
        "emissions": emissions,
        "emission_p": ps.gather(-1, emissions),
        **tree_values,
    }


def _uniforms(blocks: DraftBatch, settings: Settings) -> Tensor:
    """Return uniforms [B, N + 1, 4] for the samples; the last three share one."""
    count, device = blocks.target.shape[1], blocks.target.device
    plain = np.stack([position_uniforms(settings.seed, start, count) for start in blocks.starts])
    if blocks.trees is None:
        residual = np.stack([round_uniforms(settings.seed, start, Purpose.RESIDUAL, count) for start in blocks.starts])
    else:
        rows = [np.append(0, depths_of(parents)) for parents in blocks.trees.parents]
        plain = np.stack([each[depths] for each, depths in zip(plain, rows, strict=True)])
        residual = tree_residuals(blocks, settings)
    return on_device(np.stack([plain, residual, residual, residual], -1), device)


def _records(blocks: DraftBatch, settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """Return one record per draft, with the columns of `_decide`."""
    n, trees, columns = blocks.tokens.shape[1], blocks.trees, _typed(found)
    columns["top_ids"] = found["listed_ids"][:, : n + 1].astype(np.int32)
    columns["top_logits"] = found["listed_logits"][:, : n + 1]
    if settings.temperature == 0:  # all candidates are one token
        columns["emissions"] = columns["top_ids"][..., :1].repeat(len(Emission), -1)
    if blocks.passes is not None:
        columns["drafter_passes"] = blocks.passes
    if blocks.by is not None:
        columns["drafted_by"] = np.full((len(blocks.starts), n), blocks.by, np.int32)
    records = []
    for i, start in enumerate(blocks.starts):
        own = dict(_shared(n, blocks.target.shape[-1]))
        if trees is not None:
            parents = trees.parents[i]
            own |= {"parents": np.array(parents, np.int32), "depths": depths_of(parents)}
            own |= {"siblings": siblings_of(parents), "budgets": trees.budgets[i]}
            own |= {} if trees.draws is None else {"draws": trees.draws[i]}
        if settings.temperature > 0:
            own["coins"] = _coins(settings.seed, start, own["parents"])
        own |= {name: values[i] for name, values in columns.items()}
        records.append(Speculation(start, settings.temperature, blocks.sampled, own))
    return records


def _completed(records: Sequence[Speculation], settings: Settings, found: dict[str, np.ndarray]) -> list[Speculation]:
    """Return the records with the columns of `standing`."""
    columns = _typed(found)
    if settings.temperature == 0:
        z1 = np.stack([record.top_logits[:, :1] for record in records])
        columns["emission_z"] = z1.repeat(len(Emission), -1)
        columns["emission_ranks"] = np.ones(columns["emission_z"].shape, np.int32)
        columns["emission_p"] = np.exp(z1 - found["logsumexp"][..., None]).repeat(len(Emission), -1)
        columns["logsumexp_t"] = found["logsumexp"]
        columns["coins"] = np.stack([_coins(settings.seed, each.start, each.parents) for each in records])
    return [record.with_columns({name: columns[name][i] for name in columns}) for i, record in enumerate(records)]


def _typed(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns of a Speculation among these, in their dtypes."""
    return {name: found[name].astype(COLUMNS[name].dtype, copy=False) for name in found if name in COLUMNS}


def _coins(seed: int, start: int, parents: np.ndarray) -> np.ndarray:
    """Return coins, float64 [N]; unused at temperature 0."""
    if parents is chain(len(parents)):  # as below, but faster
        return round_uniforms(seed, start, Purpose.COIN, len(parents))
    return tree_uniforms(seed, start, Purpose.COIN, parents.tolist())


@lru_cache(maxsize=64)
def _shared(n: int, vocabulary: int) -> dict[str, np.ndarray]:
    """Return the columns that all chains of N tokens share: their shape, and the full support of temperature 0."""
    columns = {
        "parents": chain(n),
        "depths": np.arange(1, n + 1, dtype=np.int32),
        "siblings": np.zeros(n, np.int32),
        "support": np.full(n + 1, vocabulary, np.int32),
    }
    for array in columns.values():
        array.setflags(write=False)
    return columns


LOWEST = torch.finfo(torch.float32).min  # replaces log 0, so that its product with 0 is 0
SMALLEST = torch.finfo(torch.float32).tiny  # replaces 0 inside a logarithm
DIVERGENCES = frozenset(
    ("p", "q", "q_max", "q_entropy", "total_variation", "kl_pq", "kl_qp", "js", "block_mass", "entropy")
)
"""Fields of a Speculation that `_divergences` computes; p and q already exist if tokens are drawn."""


def standing(batches: Sequence[DraftBatch], settings: Settings, *, apart: bool) -> dict[str, Tensor]:
    """Return ranks and logits of tokens in both models' laws, concatenated; with the divergences if `apart`."""
    tokens, ids, best = (
        _cat([one.columns[name] for one in batches]) for name in ("tokens", "listed_ids", "listed_logits")
    )
    logits = _cat([one.logits for one in batches])
    n, x = tokens.shape[1], tokens.unsqueeze(-1)
    target, peaks, draft_ids, draft_logits = logits[:, : n + 1], best[..., :1], ids[:, n + 1 :], best[:, n + 1 :]
    rows = [one.judging for one in batches if one.judging is not None]  # all are trees, or none is
    judging = _cat(rows) if rows else None
    judged = at_nodes(target, judging, n)
    if batches[0].drafter is None:  # q is 1 at the drafted tokens
        draft_ids, draft_logits = x, torch.zeros_like(x, dtype=logits.dtype)
        certain = torch.full_like(logits[:, :n], LOWEST).scatter_(-1, x, 0.0)
        logits, peaks = torch.cat([logits, certain], 1), torch.cat([peaks, draft_logits], 1)
        if batches[0].by is not None:  # lists as long as those of the other drafter
            others = torch.arange(ids.shape[-1] - 1, device=x.device).expand(*x.shape[:2], -1)
            draft_ids = torch.cat([x, others + (others >= x)], -1)
            draft_logits = pad(draft_logits, (0, others.shape[-1]), value=-torch.inf)
    values = {
        "draft_ids": draft_ids,
        "draft_logits": draft_logits,
        "z": judged.gather(-1, x).squeeze(-1),
        "ranks": ranks(judged, x, at_nodes(ids, judging, n)).squeeze(-1),
    }
    if settings.temperature > 0:
        emissions = _cat([one.columns["emissions"] for one in batches])  # [B, N + 1, 5]
        values |= {
            "logsumexp_t": (target / settings.temperature).logsumexp(-1),
            "emission_z": target.gather(-1, emissions),
            "emission_ranks": ranks(target, emissions, ids[:, : n + 1]),
        }
    below = logits - peaks if len(batches) == 1 else logits.sub_(peaks)  # a copy is not read any more
    below.clamp_(min=LOWEST)
    shares = below.exp()
    totals = shares.sum(-1, keepdim=True)
    normalisers = (peaks + totals.log()).squeeze(-1)
    values |= {"logsumexp": normalisers[:, : n + 1], "draft_logsumexp": normalisers[:, n + 1 :]}
    if apart:
        drawn = [one.laws for one in batches if one.laws is not None]
        values |= _divergences(tokens, below, totals, shares, _cat(drawn) if drawn else None, judging)
    return values


def _divergences(
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
        weights = _weights(px / qx)[:, :-1].unsqueeze(-1)  # [B, N - 1, 1]
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


def _weights(ratios: Tensor) -> Tensor:
    """Return block verification's weight w = min(1, w_parent p/q) after each node of chains, from the ratios p/q, [B,
    N]: their product so far over its largest value so far, which is at least 1."""
    sums = ratios.to(wide(ratios.device)).log().cumsum(-1)
    return (sums - sums.cummax(-1).values.clamp_(min=0)).exp().to(ratios.dtype)


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
