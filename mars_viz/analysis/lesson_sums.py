"""What the lessons work out of a run: what drafting gains, two laws laid over each other, and how close calls were.

Knows records and costs; knows no figures. What is drawn of laws is exact: a record holds the best tokens of both and
their exact distance, which leaves the others' common area.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.records import Outcome, Speculation
from mars_viz.run import Run
from mars_viz.shapes import shape_named


def expected_tokens(alpha: np.ndarray | float, gamma: int) -> np.ndarray:
    """(1 - α^(γ+1)) / (1 - α): tokens per target pass if every judged token is kept with chance α, independently.

    1 + α + … + α^γ, so γ + 1 at α = 1 (equation 1 of the paper).
    """
    powers = np.asarray(alpha, np.float64)[..., None] ** np.arange(gamma + 1)
    return np.asarray(powers.sum(-1))


def round_cost(gamma: int, c: float) -> float:
    """γc + 1: a round's drafting and pass in passes of the target, where one over γ + 1 positions costs what one over a
    single position does."""
    return gamma * c + 1


def expected_speed_up(alpha: np.ndarray | float, gamma: int, c: float) -> np.ndarray:
    """(1 - α^(γ+1)) / ((1 - α)(γc + 1)): over the target alone (theorem 3.8 of the paper)."""
    return np.asarray(expected_tokens(alpha, gamma) / round_cost(gamma, c))


@dataclass(frozen=True, slots=True)
class Gain:
    """What one run measured of the formula's letters."""

    alpha: float
    """Kept tokens per judged one. NaN where none was judged."""
    gamma: int
    """Tokens drafted per block; of trees, those of the longest path."""
    c: float
    """Median drafting time of a token over the median time of a target pass. NaN without timings."""
    tau: float
    """Tokens per target pass, counted."""
    speed_up: float
    """Target passes' worth of tokens per time spent drafting and verifying: modelled from the run's clock, since a pass
    over γ + 1 positions stands for a plain one. What is spent on evidence and records is left out, as in the formula.
    NaN without timings."""
    draft_step: float
    """Median seconds of a drafted token; of trees, of a level."""
    target_pass: float
    """Median seconds of the target's pass over a block and one more position."""

    @property
    def timed(self) -> bool:
        """True if the run carries timings."""
        return bool(np.isfinite(self.c))


def gain(run: Run) -> Gain:
    """What the run's records say of α, γ, c and the speed-up."""
    outcomes = [outcome for round_ in run.rounds for outcome in round_.outcomes]
    kept = sum(round_.kept for round_ in run.rounds)
    judged = kept + outcomes.count(Outcome.REJECTED)
    timed = [
        round_ for round_ in run.rounds if round_.timing.draft > 0 < round_.timing.verify and len(round_.speculation)
    ]
    step = _median([round_.timing.draft / int(round_.speculation.depths.max()) for round_ in timed])
    verify = _median([round_.timing.verify for round_ in timed])
    spent = sum(round_.timing.draft + round_.timing.verify for round_ in timed)
    tokens = sum(len(round_.token_ids) for round_ in timed)
    return Gain(
        alpha=kept / judged if judged else np.nan,
        gamma=shape_named(run.settings.tree).shape.depth or run.settings.gamma,
        c=step / verify,
        tau=run.tau,
        speed_up=tokens * verify / spent if spent else np.nan,
        draft_step=step,
        target_pass=verify,
    )


def _median(seconds: list[float]) -> float:
    return float(np.median(seconds)) if seconds else np.nan


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


@dataclass(frozen=True, slots=True)
class RunnerUps:
    """Positions at which the drafter proposed the target's second choice, closest first."""

    tokens: np.ndarray
    """int64 [M]; the drafted runner-up."""
    best: np.ndarray
    """int64 [M]; the target's best token."""
    z1: np.ndarray
    """float64 [M]; its raw logit."""
    z2: np.ndarray
    """float64 [M]; the runner-up's."""
    positions: np.ndarray
    """int64 [M]; which of the run's drafted positions it is, in order."""

    def __len__(self) -> int:
        """Number of positions."""
        return len(self.tokens)

    @property
    def odds(self) -> np.ndarray:
        """float64 [M]; p2/p1 = exp(z2 - z1), which no constant changes."""
        return np.exp(self.z2 - self.z1)

    def ratio(self, c: np.ndarray | float) -> np.ndarray:
        """float64 [..., M]; z2/z1 after c is added to every logit; NaN where z1 is then not above 0, where a ratio
        means nothing and the rule is strict."""
        z1, z2 = (z + np.asarray(c, np.float64)[..., None] for z in (self.z1, self.z2))
        return np.divide(z2, z1, out=np.full(np.broadcast_shapes(z1.shape, z2.shape), np.nan), where=z1 > 0)


def close_calls(run: Run) -> RunnerUps:
    """The run's drafted runner-ups."""
    columns: list[list[float]] = [[], [], [], [], []]
    first = 0
    for round_ in run.rounds:
        spec = round_.speculation
        rows = spec.judging_rows
        for node in np.flatnonzero(spec.top_ids[rows, 1] == spec.tokens):
            row = rows[node]
            found = (spec.tokens[node], spec.top_ids[row, 0], spec.z1[row], spec.z2[row], first + node)
            for column, value in zip(columns, found, strict=True):
                column.append(float(value))
        first += len(spec)
    order = np.argsort(np.subtract(columns[2], columns[3]), kind="stable")
    tokens, best, z1, z2, positions = (np.array(column, np.float64)[order] for column in columns)
    return RunnerUps(tokens.astype(np.int64), best.astype(np.int64), z1, z2, positions.astype(np.int64))
