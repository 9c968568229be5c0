"""Target's and drafter's laws at one drafted position, laid over each other.

Knows records; knows no figures. A record holds the best tokens of both laws and their exact distance, so a few tokens
are shown by themselves and all others as one. What is drawn is exact: the others' common area is what the recorded
total variation leaves to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.records import Speculation
from mars_viz.run import Run

OTHERS = -1
"""In place of a token id: all tokens that are not shown by themselves."""
SHOWN = 7
"""Tokens shown by themselves, at most."""
SEED = 0x9E3779B9
"""Of the trials: the same for everyone who looks."""


@dataclass(frozen=True, slots=True)
class Place:
    """A drafted position of a run."""

    round: int
    """Index of the round."""
    node: int
    """Index of the drafted token in it."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Both laws over M groups: tokens by themselves, the likeliest first, and all others as the last one."""

    tokens: tuple[int, ...]
    """Token ids; the last is `OTHERS`."""
    p: np.ndarray
    """float64 [M]; the target's law. Sums to 1."""
    q: np.ndarray
    """float64 [M]; the drafter's law. Sums to 1."""
    shared: np.ndarray
    """float64 [M]; the sum of min(p, q) over the tokens of each group: drafted and kept."""

    @property
    def acceptance(self) -> float:
        """Chance that a drafted token is kept: the area that both laws share."""
        return float(self.shared.sum())

    @property
    def telling(self) -> float:
        """Largest where half of the drafts are kept and the tokens shown by themselves tell most of the story."""
        return self.acceptance * (1 - self.acceptance) * float(self.p[:-1].sum())

    @property
    def residual(self) -> np.ndarray:
        """float64 [M]; (p - q)+ summed over each group: what is written after a rejection, before normalising."""
        return np.maximum(self.p - self.shared, 0.0)


def places(run: Run) -> tuple[Place, ...]:
    """Positions whose laws the records tell: a drafted token among those recorded for the drafter, in order."""
    return tuple(
        Place(index, int(node))
        for index, round_ in enumerate(run.rounds)
        for node in np.flatnonzero(_known(round_.speculation))
    )


def overlap(run: Run, place: Place) -> Overlap:
    """Both laws at a position that `places` names."""
    spec, node = run.rounds[place.round].speculation, place.node
    row, temperature = int(spec.judging_rows[node]), spec.temperature
    target_logits = spec.top_logits[row].astype(np.float64)
    p_of = dict(
        zip(spec.top_ids[row].tolist(), np.exp(target_logits / temperature - spec.logsumexp_t[row]), strict=True)
    )
    logits = spec.draft_logits[node].astype(np.float64) / temperature
    at = int(np.flatnonzero(spec.draft_ids[node] == spec.tokens[node])[0])
    normaliser = logits[at] - np.log(float(spec.q[node]))  # of which only q(x) was recorded at this temperature
    q_of = dict(zip(spec.draft_ids[node].tolist(), np.exp(logits - normaliser), strict=True))
    both = sorted(p_of.keys() & q_of.keys(), key=lambda token: (-max(p_of[token], q_of[token]), token))[:SHOWN]
    p, q = (np.array([float(law[token]) for token in both]) for law in (p_of, q_of))
    others = [max(0.0, 1 - float(law.sum())) for law in (p, q)]
    apart = float(spec.total_variation[node])
    common = min(max(0.0, 1 - apart - float(np.minimum(p, q).sum())), *others)
    return Overlap(
        (*both, OTHERS), np.append(p, others[0]), np.append(q, others[1]), np.append(np.minimum(p, q), common)
    )


def trials(laws: Overlap, draws: Sequence[int]) -> np.ndarray:
    """int64 [D, M]; how often each group is written in so many trials of rejection sampling; `draws` ascend, each the
    first ones of the same trials.

    A trial drafts x from q and keeps it with chance min(1, p/q), which is its group's share of what both laws have in
    common; else it writes from (p - q)+, normalised (Leviathan et al., arXiv 2211.17192, section 2.3).
    """
    draft, coin, instead = np.random.default_rng(SEED).random((3, draws[-1]))
    written = _drawn(laws.q, draft)
    if laws.residual.sum() > 0:
        keeps = coin * laws.q[written] <= laws.shared[written]
        written = np.where(keeps, written, _drawn(laws.residual, instead))
    parts = np.split(written, list(draws[:-1]))
    return np.cumsum([np.bincount(part, minlength=len(laws.p)) for part in parts], axis=0)


def total_variation(shares: np.ndarray, law: np.ndarray) -> np.ndarray:
    """float64 [...]; the share of the text that would have to change; `shares` [..., M]."""
    return np.asarray(np.abs(shares - law).sum(-1) / 2)


def _drawn(mass: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """int64 [N]; the group that each uniform falls into, by mass; never one without any."""
    edges = np.cumsum(mass)
    return np.minimum(np.searchsorted(edges, uniforms * edges[-1], side="right"), np.flatnonzero(mass > 0)[-1])


def _known(spec: Speculation) -> np.ndarray:
    """bool [N]"""
    if not spec.sampled or not len(spec):
        return np.zeros(len(spec), bool)
    found = (spec.draft_ids == spec.tokens[:, None]).any(1) & (spec.q > 0) & np.isfinite(spec.total_variation)
    return np.asarray(found)
