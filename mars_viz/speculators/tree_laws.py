"""What is left of both models' laws while the children of a drawn tree's nodes are tried one after the other.

Knows laws and the fields of a Speculation; knows no models, no caches and no rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mars_viz.speculators.draft_batch import DraftBatch
from mars_viz.speculators.host_copy import sent
from mars_viz.speculators.sampling import wide
from mars_viz.trees import siblings_of

NOTHING = 1e-9
"""A law of which less than this is left counts as used up."""


def refused_in_turn(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Recursive rejection sampling without replacement (Sequoia, Chen et al. 2024, arXiv 2402.12374): what is left of
    the target's laws [B, N + 1, V] once all children of each row were refused, and `p_left` and `q_left` [B, N].

    `qs` [B, N, V] is what each node was drawn from. The distinct values of several draws, in the order in which they
    were first drawn, are draws without replacement, whatever number of them there came to be: a refused token is taken
    out of q, and p is norm((p - q)+).
    """
    assert blocks.trees is not None and blocks.judging is not None
    kind = wide(ps.device)
    p, now = ps.to(kind, copy=True), _drawn_first(blocks, ps, qs)
    left = {name: torch.ones(blocks.tokens.shape, dtype=kind, device=ps.device) for name in ("p_left", "q_left")}
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
    """[B, N + 1, V]; of each row what its first child was drawn from, zero where it has none."""
    assert blocks.trees is not None and blocks.judging is not None
    firsts = np.stack([siblings_of(parents) == 0 for parents in blocks.trees.parents])
    texts, nodes = (sent(places, ps.device) for places in np.nonzero(firsts))
    found = torch.zeros(ps.shape, dtype=wide(ps.device), device=ps.device)
    found[texts, blocks.judging[texts, nodes]] = qs[texts, nodes].to(found.dtype)
    return found


def normalised(mass: Tensor, otherwise: Tensor | None) -> Tensor:
    """Laws [M, V] of masses [M, V]; where nothing is left `otherwise`, None for nothing."""
    total = mass.sum(-1, keepdim=True)
    usable = total > NOTHING
    found = mass / total.where(usable, torch.ones_like(total))
    return torch.where(usable, found, torch.zeros_like(mass) if otherwise is None else otherwise)


def traversed(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Traversal verification (arXiv 2505.12398) of trees whose equal paths are one: what is left of the target's laws
    [B, N + 1, V] where a walk ends at each row, and `traversal_stop` [B, N], the chance that it ends at each node.

    It goes through the nodes children first. All that come before one were taken away when it is tried, whatever the
    coins said: so its chance follows from the laws alone.
    """
    assert blocks.trees is not None and blocks.judging is not None
    kind, device = wide(ps.device), ps.device
    p, now = ps.to(kind, copy=True), _drawn_first(blocks, ps, qs)
    weights = torch.ones(p.shape[:2], dtype=kind, device=device)  # of each row
    stops = torch.zeros(blocks.tokens.shape, dtype=kind, device=device)
    for step in zip(*map(_events, blocks.trees.parents), strict=True):
        for begins in (True, False):
            chosen = [(text, node) for text, (node, enters) in enumerate(step) if enters is begins]
            if not chosen:
                continue
            texts, nodes = sent(np.array(chosen, np.int64).T, device)
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
    """Of a tree in preorder when a walk through it comes to each node, True, and when it leaves it, False."""
    found: list[tuple[int, bool]] = []
    path: list[int] = []
    for node, parent in enumerate(parents):
        while path and path[-1] != parent:
            found.append((path.pop(), False))
        path.append(node)
        found.append((node, True))
    return found + [(node, False) for node in reversed(path)]


def greedily(blocks: DraftBatch, ps: Tensor, qs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Greedy multi-path block verification (Thomas and Pal 2026, arXiv 2602.16961): what is left of the target's laws
    [B, N + 1, V] where a walk ends at each row of the path that is chosen, and `greedy_stop` [B, N], the chance that it
    ends at each of its nodes; 0 beside it.

    From the prefix on the child with the largest p/q is taken, of equals the one with the larger id. That is a draw
    from a law that leans towards such tokens, by which block verification then judges.
    """
    assert blocks.trees is not None and blocks.trees.draws is not None and blocks.judging is not None
    p, stops = ps.to(wide(ps.device), copy=True), torch.zeros(blocks.tokens.shape, dtype=wide(ps.device))
    stops, tokens = stops.to(ps.device), blocks.tokens.tolist()
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
            low, own = (below + mass * before) / so_far, mass * q / so_far
            leaning = q * _powers(low + own, low, count) / _powers(so_far / so_far, below / so_far, count)
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
    """(a^K - b^K) / (a - b), without the difference."""
    return torch.stack([one**i * other ** (count - 1 - i) for i in range(count)]).sum(0)
