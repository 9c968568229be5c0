"""Why drafting pays: the speed-up that theory expects, and what a run's own clock says of the same numbers.

Knows records and formulas; knows no figures and no models. α is the chance that a judged token is kept, γ the tokens
drafted per block, c what a drafter's step costs in passes of the target (Leviathan et al., arXiv 2211.17192).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.records import Outcome
from mars_viz.run import Run


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
    """Tokens drafted per block."""
    c: float
    """Median drafting time of a token over the median time of a target pass. NaN without timings."""
    tau: float
    """Tokens per target pass, counted."""
    speed_up: float
    """Target passes' worth of tokens per time spent drafting and verifying: modelled from the run's clock, since a pass
    over γ + 1 positions stands for a plain one. What is spent on evidence and records is left out, as in the formula.
    NaN without timings."""
    draft_step: float
    """Median seconds of a drafted token."""
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
    step = _median([round_.timing.draft / len(round_.speculation) for round_ in timed])
    verify = _median([round_.timing.verify for round_ in timed])
    spent = sum(round_.timing.draft + round_.timing.verify for round_ in timed)
    tokens = sum(len(round_.token_ids) for round_ in timed)
    return Gain(
        alpha=kept / judged if judged else np.nan,
        gamma=run.settings.gamma,
        c=step / verify,
        tau=run.tau,
        speed_up=tokens * verify / spent if spent else np.nan,
        draft_step=step,
        target_pass=verify,
    )


def _median(seconds: list[float]) -> float:
    return float(np.median(seconds)) if seconds else np.nan
