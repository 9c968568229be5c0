"""Modelled acceptance of k children instead of one at a node, by the rules that verify siblings, from sampled chains.

p and q are the target's and the drafter's laws at a node, after temperature, top-k and top-p; acceptance is the chance
that one of k children drawn from q is kept. All rules are lossless. A recording contains only the best tokens of both
laws (`records.CANDIDATES`). The rest is merged so that one child's acceptance equals the recorded one, and its mass is
reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mars_viz import shapes
from mars_viz.errors import EvidenceError
from mars_viz.records import Emission, Round, Speculation
from mars_viz.run import Run

MOST_CHILDREN = 4  # maximum number of children of a node; without replacement every order of them is enumerated
MOST_NODES = 60  # maximum number of nodes per depth; more are thinned in even steps
PIECES = 4
"""Number of tokens that represent the shared rest of both laws. With a single one, the naive rule would accept it too
often."""
NEEDS = ("total_variation", "draft_logits", "q_max")  # additional columns that the recording must contain
_NOTHING = 1e-5  # probability that float32 lists may lack of 1
_HALVINGS = 60
_AT_ONCE = 1 << 22  # maximum number of array elements while orders are enumerated

Solver = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def naive(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the chance that the target's own sample is among k i.i.d. children, float64 [...]: sum of p (1 - (1 -
    q)^k). p and q are float64 [..., M], each sums to 1 (2602.16994 calls it NSS)."""
    return (p * (1 - (1 - q) ** k)).sum(-1)


def with_replacement(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance of recursive rejection sampling of i.i.d. children, float64 [...] (SpecInfer, 2305.09781).

    After i rejections p is norm((p - c_i q)+) with c_i = 1 + S_1 + ... + S_{i-1}; S_i = sum of (p - c_i q)+ is the
    chance that the first i are all rejected.
    """
    refused, c = np.ones(p.shape[:-1]), np.zeros(p.shape[:-1])
    for _ in range(k):
        c = c + refused
        refused = np.maximum(p - c[..., None] * q, 0).sum(-1)
    return 1 - refused


def without_replacement(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance of recursive rejection sampling of distinct children, float64 [...] (Sequoia, 2402.12374).
    After a rejection of x, q(x) also becomes 0 and q is renormalised. Enumerates every order of rejected children."""
    tokens = p.shape[-1]
    flat_p, flat_q = p.reshape(-1, tokens), q.reshape(-1, tokens)
    step = max(1, _AT_ONCE // tokens**k)
    parts = [_refused(flat_p[at : at + step], flat_q[at : at + step], k) for at in range(0, len(flat_p), step)]
    refused: np.ndarray = np.concatenate([np.empty(0), *parts]).reshape(p.shape[:-1])
    return 1 - refused


def _refused(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the chance that k distinct children are all rejected, float64 [...]; 1 if nothing of q is left."""
    rest = np.maximum(p - q, 0)
    left = rest.sum(-1)
    if k == 1:
        return left
    residual = _share(rest, left[..., None])[..., None, :]  # after a refusal, the same whichever token that was of
    others = q[..., None, :] * (1 - np.eye(q.shape[-1]))  # [..., M, M]; q without the refused token
    others = _share(others, others.sum(-1, keepdims=True))
    further = _refused(np.broadcast_to(residual, others.shape), others, k - 1)
    return np.where(q.any(-1), (np.maximum(q - p, 0) * further).sum(-1), 1)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, 0 if the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def k_seq(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the acceptance of SpecTr's k-SEQ of i.i.d. children, float64 [...] (2310.15141, algorithm 2). 1 - (1 -
    b)^k with b the sum of min(p / r, q) at the r in [1, k] that solves 1 - (1 - b)^k = r b, rounded up."""
    low, high = np.ones(p.shape[:-1]), np.full(p.shape[:-1], float(k))
    for _ in range(_HALVINGS if k > 1 else 0):
        middle = (low + high) / 2
        kept = np.minimum(p / middle[..., None], q).sum(-1)
        above = 1 - (1 - kept) ** k <= middle * kept
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    kept = np.minimum(p / high[..., None], q).sum(-1)
    return 1 - (1 - kept) ** k


def best_possible(p: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Return the upper limit of lossless rules for k i.i.d. children, float64 [...]. The least p(H) + 1 - q(H)^k over
    prefixes H of the tokens by rising p/q (2502.18779, 2511.15898)."""
    ratio = np.divide(p, q, out=np.full(p.shape, np.inf), where=q > 0)  # without q it never helps to be in H
    order = np.argsort(ratio, axis=-1, kind="stable")
    in_p, in_q = (np.take_along_axis(law, order, -1).cumsum(-1) for law in (p, q))
    return np.minimum(1.0, (in_p + 1 - np.minimum(in_q, 1.0) ** k).min(-1))


SOLVERS: Mapping[str, Solver] = {
    "naive, i.i.d.": naive,
    "k-SEQ, i.i.d.": k_seq,
    "recursive, i.i.d.": with_replacement,
    "recursive, distinct": without_replacement,
    "best possible, i.i.d.": best_possible,
}
"""Solvers by label in figures: the rule, and the way in which children are drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeLaws:
    """Both laws at some of a run's drafted positions, on the tokens of both lists and the merged rest."""

    p: np.ndarray  # float64 [n, M]; each row sums to 1
    q: np.ndarray  # float64 [n, M]; each row sums to 1
    depths: np.ndarray  # int64 [n]; place in the block, from 1
    reached: np.ndarray
    """float64 [n]; the chance that rejection sampling of the recorded chain reaches the position: the product of min(1,
    p/q) of the tokens before it in its block."""
    left_p: float  # mean mass of p on tokens that are not on both lists
    left_q: float  # mean mass of q on tokens that are not on both lists


@dataclass(frozen=True, slots=True, eq=False)
class Branching:
    """The effect of k children at each depth: means over recorded prefixes, weighted by the chance to reach them."""

    laws: NodeLaws
    children: int  # k
    depths: np.ndarray  # int64 [D]; places in a block, from 1
    reached: np.ndarray  # float64 [D]; the share of blocks in which rejection sampling reaches the depth
    alone: np.ndarray  # float64 [D]; acceptance of one child by every rule except the naive one
    acceptance: Mapping[str, np.ndarray]  # float64 [D]; acceptance of k children by the names of `SOLVERS`

    def gains(self, name: str) -> np.ndarray:
        """Return the additional tokens per block that a branch at only this depth keeps there, float64 [D]."""
        return self.reached * (self.acceptance[name] - self.alone)


def why_not(run: Run) -> str:
    """Return a sentence if the run cannot be used, otherwise an empty text."""
    speculations = run.trace.speculations
    if not run.settings.temperature:
        return (
            "Not shown for a greedy run: nothing is drawn, and every one of these rules keeps the target's best "
            "token if it is among the children. Record a run with a temperature above 0."
        )
    if run.settings.drafts_trees:
        return "Not shown of a run that drafted trees: this is modelled from chains. Record the prompt with chains."
    columns = speculations.columns
    sampled = speculations.sampled.all() and all(name in columns for name in NEEDS)
    if not sampled or columns["draft_ids"].shape[-1] <= 1:
        return "Not shown of this run: it holds no law that its drafter drew from. Record it with a drafting model."
    return ""


def node_laws(run: Run) -> NodeLaws:
    """Return the laws at the run's drafted positions, at most `MOST_NODES` per depth. Raises BadInput as in `why_not`.

    Beyond the tokens on both lists, `PIECES` tokens represent the mass that the laws share there (from the recorded
    total variation), with equal probability in both, and one token the rest of each law. So one child's acceptance
    equals the recorded one, by every rule except the naive one. Tokens only on the drafter's list stay, with p = 0.
    """
    if reason := why_not(run):
        raise EvidenceError(reason)
    block, temperature = run.trace.speculations.whole, run.settings.temperature
    groups = [np.flatnonzero(block.depths == depth) for depth in np.unique(block.depths)]
    few = [each[np.linspace(0, len(each) - 1, min(len(each), MOST_NODES)).astype(np.int64)] for each in groups]
    chosen = np.sort(np.concatenate([np.empty(0, np.int64), *few]))

    def odds(logits: np.ndarray) -> np.ndarray:
        wide = logits.astype(np.float64)
        return np.exp((wide - wide[:, :1]) / temperature)  # relative to the first one

    rows = block.judging_rows[chosen]
    listed_p = block.emission_p[rows, Emission.ARGMAX, None] * odds(block.top_logits[rows])
    listed_p[np.arange(listed_p.shape[1]) >= block.support[rows, None]] = 0
    q = block.q_max[chosen, None] * odds(block.draft_logits[chosen])
    q[q.cumsum(-1) - q > 1 - _NOTHING] = 0  # what top-k and top-p leave out
    same = block.draft_ids[chosen][:, :, None] == block.top_ids[rows][:, None, :]
    p = (same * listed_p[:, None, :]).sum(-1)  # of the drafter's tokens
    both = (p > 0) & (q > 0)
    p = np.where(both, p, 0)
    left_p, left_q = (np.maximum(1 - (law * both).sum(-1), 0) for law in (p, q))
    shared = 1 - block.total_variation[chosen] - np.minimum(p, q).sum(-1)
    shared = np.clip(shared, 0, np.minimum(left_p, left_q))
    apart = 1 - _share(shared, left_q)[:, None]  # of q beyond both lists, what p has not
    unlisted = np.maximum(1 - q.sum(-1), 0) * apart[:, 0]
    nothing = np.zeros_like(shared)
    pieces = np.repeat(shared[:, None] / PIECES, PIECES, axis=1)
    p = np.column_stack([p, pieces, left_p - shared, nothing])
    q = np.column_stack([np.where(both, q, q * apart), pieces, nothing, unlisted])
    p, q = (law / law.sum(-1, keepdims=True) for law in (p, q))
    return NodeLaws(p, q, block.depths[chosen].astype(np.int64), _reached(block)[chosen], left_p.mean(), left_q.mean())


def branching(laws: NodeLaws, children: int) -> Branching:
    """Return the effect of `children` at each depth of a run's chains."""
    depths = np.unique(laws.depths)
    at = laws.depths[None] == depths[:, None]  # [D, n]
    weights = _share(at * laws.reached, (at * laws.reached).sum(-1, keepdims=True))
    return Branching(
        laws=laws,
        children=children,
        depths=depths,
        reached=(at * laws.reached).sum(-1) / at.sum(-1),
        alone=weights @ with_replacement(laws.p, laws.q, 1),
        acceptance={name: weights @ solver(laws.p, laws.q, children) for name, solver in SOLVERS.items()},
    )


def _reached(chains: Speculation) -> np.ndarray:
    """Return `NodeLaws.reached` of every position, float64 [P]."""
    reached = np.ones(len(chains))
    kept = np.minimum(1, _share(chains.p.astype(np.float64), chains.q.astype(np.float64)))
    for depth in range(2, int(chains.depths.max(initial=0)) + 1):
        nodes = np.flatnonzero(chains.depths == depth)
        reached[nodes] = reached[nodes - 1] * kept[nodes - 1]  # a chain's parent is the node before
    return reached


_ROUNDS = 500  # maximum number of rounds of a run used for the chances of children
_FEWEST = 20  # minimum number of places for reliable chances
_RAREST = 0.01  # children with a lower chance are left out


def choices(run: Run, most: int | None = None) -> Counter[int]:
    """Count the ranks, from 0, of the target's best token in the drafter's list, -1 if it is not listed: at the rows on
    the path taken whose draft has a recorded law, in at most this many rounds."""
    return Counter(rank for round_ in run.rounds[:most] for rank in _ranks(round_))


def chances(ranks: Counter[int]) -> tuple[float, float]:
    """Return the share of places with the drafter's first choice, and that of the second among the others; 0 without
    places."""
    return ranks[0] / max(1, ranks.total()), ranks[1] / max(1, ranks.total() - ranks[0])


def child_chances(run: Run) -> tuple[tuple[float, ...], int]:
    """Return the chances that the target's best token is the drafter's first, second, ... choice, falling, and the
    number of places used.

    In a greedy decode by the strict rule these are the chances that a node's children are kept, from which static trees
    are built. There are none above temperature 0, at which other tokens may be kept, and for too few places.
    """
    ranks = choices(run, _ROUNDS)
    places = ranks.total()
    if run.settings.temperature or places < _FEWEST:
        return (), places
    shares = sorted((count / places for rank, count in ranks.items() if rank >= 0), reverse=True)
    return tuple(round(share, 3) for share in shares if share >= _RAREST)[: shapes.MOST_CHILDREN], places


def _ranks(round_: Round) -> list[int]:
    """Return the rank of the target's best token in the drafter's list at each row of the path; -1 if it is not
    listed."""
    spec = round_.speculation
    if spec.draft_ids.shape[1] < 2:
        return []
    first_child = {int(row): node for node, row in reversed(list(enumerate(spec.judging_rows)))}
    ranks = []
    for row in [0, *(node + 1 for node in round_.decision.kept[: round_.kept])]:
        if row in first_child:
            at = np.flatnonzero(spec.draft_ids[first_child[row]] == spec.top_ids[row, 0])
            ranks.append(int(at[0]) if len(at) else -1)
    return ranks


def tree_tokens(alpha: float, rescued: float, nodes: int) -> np.ndarray:
    """Return the mean tokens per pass with the best tree of 1, 2, ... nodes, float64 [nodes].

    A node's first child is the target's token with probability α, otherwise its second child with probability
    `rescued`. A node is kept with the product along its path, and the correction or bonus adds one token: 1 plus the
    sum of the products, which the best tree maximises (Sequoia, Chen et al. 2024, arXiv 2402.12374, section 3.1).
    """
    chances = sorted((alpha, (1 - alpha) * rescued), reverse=True)
    accept = tuple(chance for chance in chances if chance > 0)
    if not accept:
        return np.ones(nodes)
    paths = shapes.best_paths(accept, shapes.LONGEST_PATH, nodes)
    kept = np.array([np.prod([accept[rank] for rank in path]) for path in paths])
    return 1 + np.cumsum(np.append(kept, np.zeros(nodes - len(kept))))
