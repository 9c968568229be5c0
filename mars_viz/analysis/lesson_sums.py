"""Calculations for lessons: gain from drafting, overlap of two laws, and runner-ups.

Laws are exact: a record contains the best tokens of both and their exact distance, which determines the others' common
area.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from mars_viz.errors import BadInput
from mars_viz.records import Outcome
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.shapes import shape_named


def expected_tokens(alpha: np.ndarray | float, gamma: int) -> np.ndarray:
    """Return (1 - α^(γ+1)) / (1 - α): tokens per target pass if every judged token is kept with chance α,
    independently. 1 + α + … + α^γ, so γ + 1 at α = 1 (equation 1 of the paper)."""
    powers = np.asarray(alpha, np.float64)[..., None] ** np.arange(gamma + 1)
    return np.asarray(powers.sum(-1))


def round_cost(gamma: int, c: float) -> float:
    """Return γc + 1: a round's drafting and pass in passes of the target, so that `expected_tokens` over it is the
    speed-up (theorem 3.8 of the paper). Assumes that a pass over γ + 1 positions costs as much as one over a single
    position."""
    return gamma * c + 1


@dataclass(frozen=True, slots=True)
class Gain:
    """Values of the formula's symbols measured on one run."""

    alpha: float  # kept tokens per judged one. NaN if none was judged.
    gamma: int  # tokens drafted per block; for trees, those of the longest path
    c: float  # median drafting time of a token over the median time of a target pass. NaN without timings.
    tau: float  # tokens per target pass, counted
    speed_up: float
    """Tokens in units of target passes, over the time spent drafting and verifying. Modelled from the run's clock,
    because a pass over γ + 1 positions is used for a plain one. Time for evidence and records is excluded, as in the
    formula. NaN without timings."""
    draft_step: float  # median seconds of a drafted token; for trees, of a level

    @property
    def timed(self) -> bool:
        return bool(np.isfinite(self.c))


def gain(run: Run) -> Gain:
    """Return α, γ, c and the speed-up from the run's records."""
    outcomes = [outcome for round_ in run.rounds for outcome in round_.outcomes]
    kept = sum(round_.kept for round_ in run.rounds)
    judged = kept + outcomes.count(Outcome.REJECTED)
    timed = [
        round_ for round_ in run.rounds if round_.timing.draft > 0 < round_.timing.verify and len(round_.speculation)
    ]
    step = verify = np.nan
    if timed:
        step = float(np.median([round_.timing.draft / int(round_.speculation.depths.max()) for round_ in timed]))
        verify = float(np.median([round_.timing.verify for round_ in timed]))
    spent = sum(round_.timing.draft + round_.timing.verify for round_ in timed)
    tokens = sum(len(round_.token_ids) for round_ in timed)
    return Gain(
        alpha=kept / judged if judged else np.nan,
        gamma=shape_named(run.settings.tree).depth or run.settings.gamma,
        c=step / verify,
        tau=run.tau,
        speed_up=tokens * verify / spent if spent else np.nan,
        draft_step=step,
    )


OTHERS = -1  # replaces a token id: all tokens that are not shown separately
SHOWN = 7  # maximum number of tokens shown separately
SEED = 0x9E3779B9  # seed of the trials, the same for every viewer


Place = tuple[int, int]  # a drafted position of a run: index of the round, and of the drafted token in the round


@dataclass(frozen=True, slots=True)
class Overlap:
    """Both laws over M groups: single tokens, the likeliest first, and all others as the last one."""

    tokens: tuple[int, ...]  # token ids; the last is `OTHERS`
    p: np.ndarray  # float64 [M]; the target's law. Sums to 1.
    q: np.ndarray  # float64 [M]; the drafter's law. Sums to 1.
    shared: np.ndarray  # float64 [M]; the sum of min(p, q) over the tokens of each group: drafted and kept

    @property
    def acceptance(self) -> float:
        """Chance that a drafted token is kept: the common area of both laws."""
        return float(self.shared.sum())

    @property
    def telling(self) -> float:
        """Suitability as an example: largest if half of the drafts are kept and the single tokens cover most
        probability."""
        return self.acceptance * (1 - self.acceptance) * float(self.p[:-1].sum())

    @property
    def residual(self) -> np.ndarray:
        """float64 [M]; (p - q)+ summed over each group: the law after a rejection, before normalising."""
        return np.maximum(self.p - self.shared, 0.0)


def places(run: Run) -> tuple[Place, ...]:
    """Return the positions whose laws are recorded: the drafted token is in the drafter's list, in order."""
    recorded = []
    for index, spec in enumerate(round_.speculation for round_ in run.rounds):
        if spec.sampled and len(spec):
            known = (spec.draft_ids == spec.tokens[:, None]).any(1) & (spec.q > 0) & np.isfinite(spec.total_variation)
            recorded += [(index, node) for node in np.flatnonzero(known).tolist()]
    return tuple(recorded)


def overlap(run: Run, place: Place) -> Overlap:
    """Return both laws at a position from `places`."""
    index, node = place
    spec = run.rounds[index].speculation
    row, temperature = int(spec.judging_rows[node]), spec.temperature
    target_logits = spec.top_logits[row].astype(np.float64)
    p_of = dict(
        zip(spec.top_ids[row].tolist(), np.exp(target_logits / temperature - spec.logsumexp_t[row]), strict=True)
    )
    logits = spec.draft_logits[node].astype(np.float64) / temperature
    at = int(np.flatnonzero(spec.draft_ids[node] == spec.tokens[node])[0])
    normaliser = logits[at] - np.log(float(spec.q[node]))  # of which only q(x) was recorded at this temperature
    q_of = dict(zip(spec.draft_ids[node].tolist(), np.exp(logits - normaliser), strict=True))
    shared_tokens = sorted(p_of.keys() & q_of.keys(), key=lambda token: (-max(p_of[token], q_of[token]), token))[:SHOWN]
    p, q = (np.array([float(law[token]) for token in shared_tokens]) for law in (p_of, q_of))
    others = [max(0.0, 1 - float(law.sum())) for law in (p, q)]
    apart = float(spec.total_variation[node])
    common = min(max(0.0, 1 - apart - float(np.minimum(p, q).sum())), *others)
    return Overlap(
        (*shared_tokens, OTHERS), np.append(p, others[0]), np.append(q, others[1]), np.append(np.minimum(p, q), common)
    )


def trials(laws: Overlap, draws: Sequence[int]) -> np.ndarray:
    """Return counts of each group in trials of rejection sampling, int64 [D, M].

    `draws` ascend; each row counts the first ones of the same trials. A trial drafts x from q and keeps it with chance
    min(1, p/q), its group's share of the laws' common area. Otherwise it writes from (p - q)+, normalised (Leviathan et
    al., arXiv 2211.17192, section 2.3).
    """
    draft, coin, instead = np.random.default_rng(SEED).random((3, draws[-1]))
    written = _drawn(laws.q, draft)
    if laws.residual.sum() > 0:
        keeps = coin * laws.q[written] <= laws.shared[written]
        written = np.where(keeps, written, _drawn(laws.residual, instead))
    parts = np.split(written, list(draws[:-1]))
    return np.cumsum([np.bincount(part, minlength=len(laws.p)) for part in parts], axis=0)


def total_variation(shares: np.ndarray, law: np.ndarray) -> np.ndarray:
    """Return the share of the text that would have to change, float64 [...]; `shares` is [..., M]."""
    return np.asarray(np.abs(shares - law).sum(-1) / 2)


def _drawn(mass: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return the group that each uniform falls into, by mass, int64 [N]; never a group without mass."""
    edges = np.cumsum(mass)
    return np.minimum(np.searchsorted(edges, uniforms * edges[-1], side="right"), np.flatnonzero(mass > 0)[-1])


@dataclass(frozen=True, slots=True)
class RunnerUps:
    """Positions at which the drafter proposed the target's second choice, closest first."""

    z1: np.ndarray  # float64 [M]; the best token's raw logit
    z2: np.ndarray  # float64 [M]; the runner-up's raw logit
    positions: np.ndarray  # int64 [M]; index among the run's drafted positions

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def odds(self) -> np.ndarray:
        """float64 [M]; p2/p1 = exp(z2 - z1), unchanged by a constant added to all logits."""
        return np.exp(self.z2 - self.z1)

    def ratio(self, c: np.ndarray | float) -> np.ndarray:
        """Return z2/z1 after c is added to every logit, float64 [..., M]; NaN for z1 <= 0, at which the rule is
        strict."""
        z1, z2 = (z + np.asarray(c, np.float64)[..., None] for z in (self.z1, self.z2))
        return np.divide(z2, z1, out=np.full(np.broadcast_shapes(z1.shape, z2.shape), np.nan), where=z1 > 0)


def close_calls(run: Run) -> RunnerUps:
    """Return the run's drafted runner-ups."""
    drafts, rows = run.trace.speculations.whole, run.trace.judging_rows
    at = np.flatnonzero(drafts.top_ids[rows, 1] == drafts.tokens)
    z1, z2 = drafts.top_logits[rows[at], :2].astype(np.float64).T
    order = np.argsort(z1 - z2, kind="stable")
    return RunnerUps(z1[order], z2[order], at[order])


def strict_runs(run: Run) -> dict[int, Run]:
    """Return the run at its rule's strict end for each block length at which that text is known, ascending."""
    strict, runs = rule_named(run.settings.rule).strict, dict[int, Run]()
    if run.settings.dial == strict:
        runs[run.settings.gamma] = run
    if run.dial_map is not None and strict is not None:
        for gamma in run.dial_map.span.gammas:
            with suppress(BadInput):  # the map does not reach the strict end
                runs.setdefault(gamma, run.dial_map.at(strict, gamma))
    return dict(sorted(runs.items()))
