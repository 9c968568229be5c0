"""Residuals of the target's law after rejected children, for each rule for trees of drawn paths, and their columns.

The columns are computed if one of these rules, or all evidence, is requested.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms, tree_uniforms
from mars_viz.run import Settings
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import DraftBatch
from mars_viz.speculators.sampling import draw, on_device, wide
from mars_viz.trees import siblings_of

NOTHING = 1e-9  # remaining mass below which a law counts as used up
_LEAST = torch.finfo(torch.float32).tiny  # replaces 0 as a divisor
_HALVINGS = 60  # number of halvings of the interval of k-SEQ's r


def refused_in_turn(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Apply recursive rejection sampling without replacement (Sequoia, Chen et al. 2024, arXiv 2402.12374).

    Returns the residual of the target's laws [B, N + 1, V] after all children of each row were rejected, and `p_left`
    and `q_left` [B, N]. `qs` [B, N, V] are the laws of each node's draw. The distinct values of several draws, in the
    order in which they were first drawn, are draws without replacement, for any number of them: a rejected token is
    removed from q, and p becomes norm((p - q)+).
    """
    assert blocks.trees is not None and blocks.judging is not None
    p, now = ps.to(wide(ps.device), copy=True), _drawn_first(blocks, ps, qs)
    left = {name: p.new_ones(blocks.tokens.shape) for name in ("p_left", "q_left")}
    ranks = np.stack([siblings_of(parents) for parents in blocks.trees.parents])
    for rank in range(int(ranks.max(initial=-1)) + 1):
        texts, nodes = (sent(places, ps.device) for places in np.nonzero(ranks == rank))
        rows, tokens = blocks.judging[texts, nodes], blocks.tokens[texts, nodes].unsqueeze(-1)  # [M], [M, 1]
        law, drawn_from = p[texts, rows], now[texts, rows]  # [M, V]
        left["p_left"][texts, nodes] = law.gather(-1, tokens).squeeze(-1)
        left["q_left"][texts, nodes] = drawn_from.gather(-1, tokens).squeeze(-1)
        p[texts, rows] = normalised((law - drawn_from).clamp_(min=0), law)
        now[texts, rows] = normalised(drawn_from.scatter(-1, tokens, 0.0), None)
    return p.to(ps.dtype), {name: values.to(ps.dtype) for name, values in left.items()}


def _drawn_first(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> Tensor:
    """Return the law of each row's first child's draw, [B, N + 1, V]; zero without a child."""
    assert blocks.trees is not None and blocks.judging is not None
    firsts = np.stack([siblings_of(parents) == 0 for parents in blocks.trees.parents])
    texts, nodes = (sent(places, ps.device) for places in np.nonzero(firsts))
    laws = torch.zeros(ps.shape, dtype=wide(ps.device), device=ps.device)
    laws[texts, blocks.judging[texts, nodes]] = qs[texts, nodes].to(laws.dtype)
    return laws


def normalised(mass: Tensor, otherwise: Tensor | None) -> Tensor:
    """Return the laws [M, V] of masses [M, V]; `otherwise` if nothing is left, or zeros for None."""
    total = mass.sum(-1, keepdim=True)
    usable = total > NOTHING
    law = mass / total.where(usable, torch.ones_like(total))
    return torch.where(usable, law, torch.zeros_like(mass) if otherwise is None else otherwise)


def with_replacement(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Apply recursive rejection sampling with replacement (SpecInfer, Miao et al. 2023, arXiv 2305.09781).

    Returns the residual of the target's laws [B, N + 1, V] after all draws at each row were rejected, and
    `recursive_keep` [B, N]. Every draw counts, including repeated ones: p becomes norm((p - q)+) after each, and q is
    unchanged. After i draws p is (p - c_i q)+ / S_i, with S_i its sum, c_0 = 0, S_0 = 1 and c_(i+1) = c_i + S_i. A
    rejected token has no probability left, so a node is kept at its first draw or not at all.
    """
    at, draws, counts = _rows_with_draws(blocks, ps.device)
    laws = ps.to(wide(ps.device), copy=True)
    chances, p, q = laws.new_zeros(blocks.tokens.shape), laws[at], _drawn_first(blocks, ps, qs)[at]
    taken, total, left = torch.zeros_like(counts), torch.ones_like(counts), p
    for turn in range(max(map(len, draws), default=0)):
        first = [(i, each[turn]) for i, each in enumerate(draws) if len(each) > turn and each[turn] not in each[:turn]]
        if first:
            places, nodes = sent(np.array(first, np.int64).T, ps.device)
            texts = at[0][places]
            tokens = blocks.tokens[texts, nodes].unsqueeze(-1)
            drawn_by = (total[places] * q[places].gather(-1, tokens)).clamp(min=_LEAST)
            chances[texts, nodes] = (left[places].gather(-1, tokens) / drawn_by).squeeze(-1).clamp(max=1.0)
        further = (p - (taken + total) * q).clamp_(min=0)
        rest = further.sum(-1, keepdim=True)
        goes_on = (counts > turn) & (rest > NOTHING)  # if nothing is left the law stays as it was
        taken = torch.where(goes_on, taken + total, taken)
        left, total = torch.where(goes_on, further, left), torch.where(goes_on, rest, total)
    laws[at] = left / total
    return laws.to(ps.dtype), {"recursive_keep": chances}


def k_sequentially(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Apply k-SEQ (SpecTr, Sun et al. 2023, arXiv 2310.15141, algorithm 2).

    Returns the residual of the target's laws [B, N + 1, V] after all k draws at each row were rejected, and
    `k_seq_keep` [B, N]. Each draw is kept with min(1, p/(r q)), with p unchanged. b = sum of min(p/r, q) is the chance
    that one is kept, r in [1, k] solves 1 - (1 - b)^k = r b, rounded up, and the residual is p - min(p/r, q) (1 - (1 -
    b)^k)/b. The first kept draw counts, each with its own coin. A node that several paths drew has one coin for all:
    its chance is that of being the first, given that no earlier sibling is.
    """
    at, draws, k = _rows_with_draws(blocks, ps.device)
    laws = ps.to(wide(ps.device), copy=True)
    p, q, low, high = laws[at], _drawn_first(blocks, ps, qs)[at], torch.ones_like(k), k
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        kept = torch.minimum(p / middle, q).sum(-1, keepdim=True)
        above = 1 - (1 - kept) ** k <= middle * kept
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    shared = torch.minimum(p / high, q)
    kept = shared.sum(-1, keepdim=True)
    any_kept = 1 - (1 - kept) ** k
    left = (p - shared * any_kept / kept.clamp(min=NOTHING)).clamp_(min=0)
    laws[at] = normalised(left, p)
    each = (p / (high * q).clamp(min=_LEAST)).clamp_(max=1.0)
    tokens, values = blocks.tokens.tolist(), np.zeros(blocks.tokens.shape)
    for text, nodes, accepts in zip(at[0].tolist(), draws, each, strict=True):
        acceptances = accepts[[tokens[text][node] for node in nodes]].tolist()
        first, rest = dict.fromkeys(nodes, 0.0), 1.0
        for node, accept in zip(nodes, acceptances, strict=True):
            first[node] += rest * accept
            rest *= 1 - accept
        rest = 1.0  # now node by node
        for node, chance in first.items():
            values[text, node] = min(1.0, chance / rest) if rest > NOTHING else 0.0
            rest -= chance
    return laws.to(ps.dtype), {"k_seq_keep": sent(values, ps.device, laws.dtype)}


def _rows_with_draws(blocks: DraftBatch, device: torch.device) -> tuple[tuple[Tensor, Tensor], list[list[int]], Tensor]:
    """Return the rows with draws as indices of trees and of rows, int64 [M] each; for each row, the nodes in the order
    of the paths that drew them, a node once per draw; and the number of draws of each row, [M, 1]."""
    assert blocks.trees is not None and blocks.trees.draws is not None
    by_row: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for text, (parents, paths_of) in enumerate(zip(blocks.trees.parents, blocks.trees.draws, strict=True)):
        for node, (parent, paths) in enumerate(zip(parents, paths_of.tolist(), strict=True)):
            node_draws = [(path, node) for path in range(paths.bit_length()) if paths >> path & 1]
            by_row.setdefault((text, parent + 1), []).extend(node_draws)
    places = np.array(list(by_row), np.int64).reshape(-1, 2)
    draws = [[node for _, node in sorted(node_draws)] for node_draws in by_row.values()]
    counts = np.array([len(nodes) for nodes in draws], np.float64).reshape(-1, 1)
    return (sent(places[:, 0], device), sent(places[:, 1], device)), draws, sent(counts, device, wide(device))


def traversed(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Apply traversal verification (arXiv 2505.12398) to trees whose equal paths are merged.

    Returns the residual of the target's laws [B, N + 1, V] for a walk that ends at each row, and `traversal_stop` [B,
    N], the chance that it ends at each node. Nodes are visited children first. When a node is tried, all nodes before
    it were removed regardless of coins, so its chance depends only on the laws.
    """
    assert blocks.trees is not None and blocks.judging is not None
    p, now = ps.to(wide(ps.device), copy=True), _drawn_first(blocks, ps, qs)
    weights, stops = p.new_ones(p.shape[:2]), p.new_zeros(blocks.tokens.shape)  # weights of each row
    for step in zip(*map(_events, blocks.trees.parents), strict=True):
        for begins in (True, False):
            chosen = [(text, node) for text, (node, enters) in enumerate(step) if enters is begins]
            if not chosen:
                continue
            texts, nodes = sent(np.array(chosen, np.int64).T, ps.device)
            rows, tokens = blocks.judging[texts, nodes], blocks.tokens[texts, nodes].unsqueeze(-1)
            law, drawn_from, weight = p[texts, rows], now[texts, rows], weights[texts, rows].unsqueeze(-1)
            if begins:
                ratio = law.gather(-1, tokens) / drawn_from.gather(-1, tokens).clamp_(min=NOTHING)
                weights[texts, nodes + 1] = (weight * ratio).squeeze(-1).clamp(max=1.0)
                continue
            stops[texts, nodes] = weights[texts, nodes + 1]
            mass = (weight * law - drawn_from).clamp_(min=0)
            left = mass.sum(-1, keepdim=True)
            p[texts, rows] = normalised(mass, law)
            lower = torch.where(left > NOTHING, left / (left + 1 - weight), torch.zeros_like(left))
            weights[texts, rows] = torch.where((rows == 0).unsqueeze(-1), torch.ones_like(lower), lower).squeeze(-1)
            now[texts, rows] = normalised(drawn_from.scatter(-1, tokens, 0.0), None)
    return p.to(ps.dtype), {"traversal_stop": stops}


def _events(parents: Sequence[int]) -> list[tuple[int, bool]]:
    """Return a walk through a tree in preorder: each node with True on entry and False on exit."""
    events: list[tuple[int, bool]] = []
    path: list[int] = []
    for node, parent in enumerate(parents):
        while path and path[-1] != parent:
            events.append((path.pop(), False))
        path.append(node)
        events.append((node, True))
    return events + [(node, False) for node in reversed(path)]


def greedily(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Apply greedy multi-path block verification (Thomas and Pal 2026, arXiv 2602.16961).

    Returns the residual of the target's laws [B, N + 1, V] for a walk that ends at each row of the chosen path, and
    `greedy_stop` [B, N], the chance that it ends at each of its nodes; 0 off the path. From the prefix on, the child
    with the largest p/q is taken; if several are equal, the one with the largest id. That is a draw from a law that
    favours such tokens, and block verification judges by this law.
    """
    assert blocks.trees is not None and blocks.trees.draws is not None and blocks.judging is not None
    p, tokens = ps.to(wide(ps.device), copy=True), blocks.tokens.tolist()
    stops = p.new_zeros(blocks.tokens.shape)
    for text, (parents, draws) in enumerate(zip(blocks.trees.parents, blocks.trees.draws, strict=True)):
        paths = int(np.bitwise_or.reduce(draws)).bit_count() if len(parents) else 0
        below, mass, weight = (p.new_tensor(value) for value in (0.0, 1.0, 1.0))
        row, branched = 0, False
        while children := [node for node, parent in enumerate(parents) if parent == row - 1]:
            branched |= int(np.bitwise_or.reduce(draws[children])).bit_count() == paths  # before that, one path is
            law, q = p[text, row].clone(), qs[text, children[0]].to(p.dtype)
            order = torch.argsort(torch.where(q > 0, law / q, torch.inf), stable=True)
            places, before = torch.empty_like(order), torch.empty_like(q)
            places[order] = torch.arange(len(order), device=order.device)
            before[order] = q[order].cumsum(0) - q[order]
            ranks = places[[tokens[text][child] for child in children]].tolist()
            node = children[ranks.index(max(ranks))]
            token, count, so_far = tokens[text][node], paths if branched else 1, below + mass
            low, interval = (below + mass * before) / so_far, mass * q / so_far
            leaning = q * _powers(low + interval, low, count) / _powers(so_far / so_far, below / so_far, count)
            left = (weight * law - leaning).clamp_(min=0)
            p[text, row] = normalised(left, law)
            if row:
                total = left.sum() + 1 - weight
                stops[text, row - 1] = torch.where(total > NOTHING, left.sum() / total, torch.ones_like(total))
            weight = (weight * law[token] / leaning[token]).clamp(max=1.0)
            if branched:
                below, mass = below + mass * before[token], mass * q[token]
            row = node + 1
        if row:
            stops[text, row - 1] = weight
    return p.to(ps.dtype), {"greedy_stop": stops}


def _powers(one: Tensor, other: Tensor, count: int) -> Tensor:
    """Return (a^K - b^K) / (a - b) without the difference."""
    return torch.stack([one**i * other ** (count - 1 - i) for i in range(count)]).sum(0)


_OF_DRAWN = (
    ("traversal_stop", "traversal_emission", traversed),
    ("greedy_stop", "greedy_emission", greedily),
    ("recursive_keep", "recursive_emission", with_replacement),
    ("k_seq_keep", "k_seq_emission", k_sequentially),
)
"""By rule for drawn paths: the column with the chance that it ends at, or keeps, each node; the column with a sample of
its residual at each row; and the function that computes its residual laws."""
OWN_Q = "own_q"  # the additional column of trees of the likeliest tokens
TREE_COLUMNS = frozenset((OWN_Q, *(name for *names, _ in _OF_DRAWN for name in names)))
"""All columns that only rules for trees read."""


def tree_columns(blocks: DraftBatch, settings: Settings, names: Collection[str]) -> dict[str, Tensor]:
    """Return those of these columns that exist for trees above temperature 0, [B, N] or [B, N + 1], by name."""
    assert blocks.laws is not None
    n, laws, columns = blocks.tokens.shape[1], blocks.laws, dict[str, Tensor]()
    if not blocks.sampled:
        if OWN_Q not in names:
            return {}
        if (rows := blocks.drafter) is None:
            return {OWN_Q: torch.ones_like(blocks.target[:, 1:, 0])}
        z = rows.gather(-1, blocks.tokens.unsqueeze(-1)).squeeze(-1)
        return {OWN_Q: (z - rows.logsumexp(-1)).exp()}
    for chance, emission, residuals in _OF_DRAWN:
        if chance in names or emission in names:
            left, chances = residuals(blocks, laws[:, : n + 1], laws[:, n + 1 :])
            after = on_device(tree_residuals(blocks, settings), blocks.target.device)
            columns |= chances | {emission: draw(left, after)}
    return columns


def tree_residuals(blocks: DraftBatch, settings: Settings) -> np.ndarray:
    """Return the uniforms of emissions after rejections at trees' rows, keyed by round and path; float64 [B, N + 1]."""
    assert blocks.trees is not None
    seed, rows = settings.seed, []
    for start, parents in zip(blocks.starts, blocks.trees.parents, strict=True):
        first = round_uniforms(seed, start, Purpose.RESIDUAL, 1)
        rows.append(np.append(first, tree_uniforms(seed, start, Purpose.RESIDUAL, parents, after=True)))
    return np.stack(rows)
