"""The record of a race: three texts for one prompt, with timings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from mars_viz.costs import Factor, too_fast
from mars_viz.errors import RunFileError
from mars_viz.run import Run

if TYPE_CHECKING:
    import pandas as pd

BY_THE_CLOCK = (
    "A race is by the clock, and the models draft all γ tokens whatever a draft-length controller leaves of them; race "
    "without one."
)
"""Message for settings with a controller."""


class RaceLane(Enum):
    """The three ways to decode."""

    ALONE = "alone"  # the target alone, one token per pass
    STRICT = "strict"  # speculative and lossless
    RELAXED = "relaxed"  # speculative, with the chosen rule


@dataclass(frozen=True, slots=True)
class Solo:
    """The text of the target alone."""

    token_ids: tuple[int, ...]
    clock: tuple[float, ...]  # seconds from the start to each token, without the prompt's pass

    def __post_init__(self) -> None:
        """Raise BadInput if the clock decreases or does not match the text."""
        times = np.array([0.0, *self.clock])
        if not self.token_ids or len(self.token_ids) != len(self.clock):
            raise RunFileError("The autoregressive lane needs a time for each token. Record the race again.")
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise RunFileError("The autoregressive lane's clock does not go forward. Record the race again.")


@dataclass(frozen=True, slots=True)
class Race:
    """Three decodes of one prompt on one device.

    The rounds' timings are those of the speculative lanes, measured with the minimal evidence.
    """

    title: str
    alone: Solo  # the autoregressive lane; its pieces are in the strict run
    strict: Run
    relaxed: Run
    turns: tuple[tuple[float, ...], ...] = ()
    """Seconds of each turn by lane, in the order of `RaceLane`. Clocks of `alone` and the runs are those of the lane's
    middle turn. Empty for a single turn, as in older files."""

    def __post_init__(self) -> None:
        """Raise BadInput if the lanes do not belong together."""
        one, other = self.strict, self.relaxed
        names = ("target", "drafter", "dtype", "eos_ids")
        same_models = all(getattr(one.provenance, name) == getattr(other.provenance, name) for name in names)
        # device details after the comma may differ
        same_models &= len({run.provenance.device.partition(",")[0] for run in (one, other)}) == 1
        if one.prompt_ids != other.prompt_ids or not same_models:
            raise RunFileError("The lanes of a race have one prompt, one pair and one device. Record the race again.")
        for run in (one, other):
            clock = round_clock(run)
            if not len(clock) or not np.isfinite(clock).all() or (np.diff(clock, prepend=0.0) <= 0).any():
                raise RunFileError("A lane of the race has rounds that took no time. Record the race again.")
        if not set(self.alone.token_ids) <= one.pieces.keys():
            raise RunFileError("The autoregressive lane has a token without a text. Record the race again.")
        fits = all(len(turn) == len(RaceLane) and np.isfinite(turn).all() and min(turn) > 0 for turn in self.turns)
        if not fits or not all(np.isclose(self.taken[lane], end).any() for lane, end in self.seconds.items()):
            raise RunFileError("The turns of the race do not fit its clocks. Record the race again.")

    @property
    def taken(self) -> dict[RaceLane, np.ndarray]:
        """float64 [turns]; seconds of every turn of each lane, without the prompt's pass."""
        turns = np.array(self.turns or [tuple(self.seconds.values())], np.float64)
        return {lane: turns[:, place] for place, lane in enumerate(RaceLane)}

    def over(self, lane: RaceLane, other: RaceLane) -> Factor:
        """Return the measured ratio of tokens per second: median and range over turns, compared within each turn.

        The range is NaN for a single turn. Over the target alone it is capped at τ, the theoretical maximum.
        """
        ratios = self.taken[other] / self.taken[lane] * len(self.token_ids[lane]) / len(self.token_ids[other])
        estimate = float(np.median(ratios))
        if len(ratios) == 1:
            return Factor(estimate, np.nan, np.nan)
        run = self.runs[lane]
        most = run.tau if run is not None and other is RaceLane.ALONE else np.inf
        return Factor(estimate, float(ratios.min()), max(estimate, min(float(ratios.max()), most)))

    @property
    def objection(self) -> str:
        """Why its speed-ups are impossible, as a sentence; empty if they are possible."""
        for lane, run in self.runs.items():
            if run is not None and (speed_up := self.over(lane, RaceLane.ALONE).estimate) > run.tau:
                return too_fast(speed_up, run.tau, "race again")
        return ""

    @property
    def seconds(self) -> dict[RaceLane, float]:
        """Measured wall clock of each lane's middle turn, without the prompt's pass."""
        ends = (self.alone.clock[-1], float(round_clock(self.strict)[-1]), float(round_clock(self.relaxed)[-1]))
        return dict(zip(RaceLane, ends, strict=True))

    @property
    def runs(self) -> dict[RaceLane, Run | None]:
        """Runs of the speculative lanes; None for the target alone."""
        return {RaceLane.ALONE: None, RaceLane.STRICT: self.strict, RaceLane.RELAXED: self.relaxed}

    @property
    def token_ids(self) -> dict[RaceLane, tuple[int, ...]]:
        """Text of each lane."""
        return {lane: (self.alone if run is None else run).token_ids for lane, run in self.runs.items()}

    @property
    def figures(self) -> dict[RaceLane, Figures]:
        """Results of each lane."""
        texts, seconds, turns = self.token_ids, self.seconds, self.taken
        return {
            lane: Figures(
                seconds=seconds[lane],
                least=float(turns[lane].min()),
                most=float(turns[lane].max()),
                pace=len(texts[lane]) / seconds[lane],
                over_alone=self.over(lane, RaceLane.ALONE),
                tokens=len(texts[lane]),
                passes=len(texts[lane]) if run is None else len(run.rounds),
                rolled_back=0 if run is None else sum(round_.rolled_back for round_ in run.rounds),
                as_alone=texts[lane] == texts[RaceLane.ALONE],
            )
            for lane, run in self.runs.items()
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """Results of a lane."""

    seconds: float  # measured wall clock of the middle turn, without the prompt's pass
    least: float  # seconds of the fastest turn
    most: float  # seconds of the slowest turn
    pace: float  # measured tokens per second of the middle turn
    over_alone: Factor  # pace over that of the target alone: median and range of the turns
    tokens: int  # emitted tokens; exact
    passes: int  # target passes without the prompt's; exact
    rolled_back: int  # rolled-back drafted tokens; exact
    as_alone: bool  # True if the text equals that of the target alone

    @property
    def tau(self) -> float:
        """Tokens per target pass; exact."""
        return self.tokens / self.passes


def round_clock(run: Run) -> np.ndarray:
    """float64 [R]; seconds from the start to the end of each round."""
    return np.cumsum([round_.timing.total for round_ in run.rounds], dtype=np.float64)


def race_frame(race: Race) -> pd.DataFrame:
    """Return a row per lane with measured times and exact counts, without impossible speed-ups."""
    import pandas as pd  # slow import, rarely needed

    possible = not race.objection
    rows = [
        {
            "lane": lane.value,
            "rule": "" if run is None else run.settings.rule,
            "dial": None if run is None else run.settings.dial,
            "draft": "" if run is None else run.settings.draft,
            "turns": len(race.taken[lane]),
            "seconds_measured": figures.seconds,
            "seconds_least": figures.least,
            "seconds_most": figures.most,
            "tokens_per_second_measured": figures.pace,
            "over_autoregressive_measured": figures.over_alone.estimate if possible else None,
            "over_autoregressive_low": figures.over_alone.low if possible else None,
            "over_autoregressive_high": figures.over_alone.high if possible else None,
            "tokens": figures.tokens,
            "target_passes": figures.passes,
            "tau": figures.tau,
            "rolled_back": figures.rolled_back,
            "same_text": figures.as_alone,
        }
        for (lane, figures), run in zip(race.figures.items(), race.runs.values(), strict=True)
    ]
    return pd.DataFrame(rows)
