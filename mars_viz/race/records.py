"""What a race was: three texts after one prompt, and when each token was there. Knows runs; knows no models."""

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
"""Why settings with a controller are not raced."""


class RaceLane(Enum):
    """The three ways to decode."""

    ALONE = "alone"
    """The target by itself, one token a pass."""
    STRICT = "strict"
    """Speculative, keeping only what the target itself would have written."""
    RELAXED = "relaxed"
    """Speculative, by the chosen rule."""


@dataclass(frozen=True, slots=True)
class Solo:
    """What the target wrote by itself."""

    token_ids: tuple[int, ...]
    """The emitted tokens."""
    clock: tuple[float, ...]
    """Seconds after the start at which each was there, the prompt's own pass excluded."""

    def __post_init__(self) -> None:
        """Raise BadInput for a clock that goes backwards or does not fit the text."""
        times = np.array([0.0, *self.clock])
        if not self.token_ids or len(self.token_ids) != len(self.clock):
            raise RunFileError("The autoregressive lane needs a time for each token. Record the race again.")
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise RunFileError("The autoregressive lane's clock does not go forward. Record the race again.")


@dataclass(frozen=True, slots=True)
class Race:
    """Three decodes of one prompt on one device. The rounds' timings are the clock of the two speculative lanes:
    measured while nothing but what the rule needs was computed."""

    title: str
    """A line for lists."""
    alone: Solo
    """The autoregressive lane; the text of its tokens is among the strict run's pieces."""
    strict: Run
    """The strict lane."""
    relaxed: Run
    """The relaxed lane."""
    turns: tuple[tuple[float, ...], ...] = ()
    """Seconds of each turn by lane, in the order in which the lanes stand; the clocks of `alone` and of the runs are
    those of the lane's middle turn. Empty for a race of one turn, as in files of before."""

    def __post_init__(self) -> None:
        """Raise BadInput where the lanes do not belong together."""
        one, other = self.strict, self.relaxed
        same_models = (
            all(
                getattr(one.provenance, name) == getattr(other.provenance, name)
                for name in ("target", "drafter", "dtype", "eos_ids")
            )
            and len({run.provenance.device.partition(",")[0] for run in (one, other)}) == 1
        )  # what follows may change
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
        """float64 [turns]; seconds of every turn of each lane, the prompt's own pass excluded."""
        turns = np.array(self.turns or [tuple(self.seconds.values())], np.float64)
        return {lane: turns[:, place] for place, lane in enumerate(RaceLane)}

    def over(self, lane: RaceLane, other: RaceLane) -> Factor:
        """How many times as many tokens a second, measured: the median of the turns, each turn's lanes compared with
        each other, and their range; NaN for its ends where there was one turn. Over the target alone the range ends at
        τ, which nothing exceeds."""
        found = self.taken[other] / self.taken[lane] * len(self.token_ids[lane]) / len(self.token_ids[other])
        estimate = float(np.median(found))
        if len(found) == 1:
            return Factor(estimate, np.nan, np.nan)
        run = self.runs[lane]
        most = run.tau if run is not None and other is RaceLane.ALONE else np.inf
        return Factor(estimate, float(found.min()), max(estimate, min(float(found.max()), most)))

    @property
    def objection(self) -> str:
        """Why its speed-ups cannot be, in a sentence; empty where they can."""
        for lane, run in self.runs.items():
            if run is not None and (found := self.over(lane, RaceLane.ALONE).estimate) > run.tau:
                return too_fast(found, run.tau, "race again")
        return ""

    @property
    def seconds(self) -> dict[RaceLane, float]:
        """Measured wall clock of each lane's middle turn, the prompt's own pass excluded."""
        return {
            RaceLane.ALONE: self.alone.clock[-1],
            RaceLane.STRICT: float(round_clock(self.strict)[-1]),
            RaceLane.RELAXED: float(round_clock(self.relaxed)[-1]),
        }

    @property
    def pace(self) -> dict[RaceLane, float]:
        """Tokens a second of each lane's middle turn, measured; their texts may differ in length."""
        return {lane: len(token_ids) / self.seconds[lane] for lane, token_ids in self.token_ids.items()}

    @property
    def runs(self) -> dict[RaceLane, Run | None]:
        """What was decoded speculatively; None for the target alone."""
        return {RaceLane.ALONE: None, RaceLane.STRICT: self.strict, RaceLane.RELAXED: self.relaxed}

    @property
    def figures(self) -> dict[RaceLane, Figures]:
        """What each lane took."""
        texts, seconds, pace, taken = self.token_ids, self.seconds, self.pace, self.taken
        return {
            lane: Figures(
                seconds=seconds[lane],
                least=float(taken[lane].min()),
                most=float(taken[lane].max()),
                pace=pace[lane],
                over_alone=self.over(lane, RaceLane.ALONE),
                tokens=len(texts[lane]),
                passes=len(texts[lane]) if run is None else len(run.rounds),
                rolled_back=0 if run is None else sum(round_.rolled_back for round_ in run.rounds),
                as_alone=texts[lane] == texts[RaceLane.ALONE],
            )
            for lane, run in self.runs.items()
        }

    @property
    def token_ids(self) -> dict[RaceLane, tuple[int, ...]]:
        """The text of each lane."""
        return {
            RaceLane.ALONE: self.alone.token_ids,
            RaceLane.STRICT: self.strict.token_ids,
            RaceLane.RELAXED: self.relaxed.token_ids,
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """What a lane took, for the end board."""

    seconds: float
    """Wall clock of the middle turn, measured, the prompt's own pass excluded."""
    least: float
    """Of the fastest turn."""
    most: float
    """Of the slowest."""
    pace: float
    """Tokens a second of the middle turn, measured."""
    over_alone: Factor
    """Its pace over that of the target alone, the median of the turns and their range."""
    tokens: int
    """Emitted; exact."""
    passes: int
    """Of the target, the prompt's own excluded; exact."""
    rolled_back: int
    """Drafted tokens that were thrown away; exact."""
    as_alone: bool
    """True if its text is, token for token, that of the target alone."""

    @property
    def tau(self) -> float:
        """Tokens a pass of the target; exact."""
        return self.tokens / self.passes


def round_clock(run: Run) -> np.ndarray:
    """float64 [R]; seconds after the start at which each round was settled."""
    return np.cumsum([round_.timing.total for round_ in run.rounds], dtype=np.float64)


def race_frame(race: Race) -> pd.DataFrame:
    """A row a lane: seconds and tokens a second measured on the race's device, in so many turns; the counts exact. No
    speed-up where it cannot be."""
    import pandas as pd  # which takes a while, and few ask for the table

    known = not race.objection
    rows = [
        {
            "lane": lane.value,
            "rule": "" if run is None else run.settings.rule,
            "dial": None if run is None else run.settings.dial,
            "draft": "" if run is None else run.settings.draft,
            "turns": len(race.taken[lane]),
            "seconds_measured": found.seconds,
            "seconds_least": found.least,
            "seconds_most": found.most,
            "tokens_per_second_measured": found.pace,
            "over_autoregressive_measured": found.over_alone.estimate if known else None,
            "over_autoregressive_low": found.over_alone.low if known else None,
            "over_autoregressive_high": found.over_alone.high if known else None,
            "tokens": found.tokens,
            "target_passes": found.passes,
            "tau": found.tau,
            "rolled_back": found.rolled_back,
            "same_text": found.as_alone,
        }
        for (lane, found), run in zip(race.figures.items(), race.runs.values(), strict=True)
    ]
    return pd.DataFrame(rows)
