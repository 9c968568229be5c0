"""On what terms a sweep is judged: the accuracy loss that is tolerated, the confidence, and how intervals are made.

Whatever tells of a sweep (the page, the command, the evidence pack) says them once, in these words. Knows numbers and
sentences; knows no sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Method
from mars_viz.errors import SettingError
from mars_viz.words import counted, number

FEWEST = 5
"""Prompts, or questions, from which a bootstrap says anything of how sure a figure is; of fewer its interval is far too
narrow, and none is given."""
ROUGH = 30
"""Prompts below which intervals are called rough."""
METHODS = {method.value.lower(): method for method in (Method.BCA, Method.PERCENTILE)}
"""What a person can choose, by the name on the command line and in links."""
_MADE = {
    Method.BCA: "BCa bootstrap (corrected for bias and skew)",
    Method.PERCENTILE: "percentile bootstrap",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """What counts as safe, and what stands in brackets."""

    points: float = 1.0
    """Accuracy loss that is tolerated, percentage points, above 0 and at most 100."""
    how: Bootstrap = DEFAULT
    """The confidence, at least 0.5, and the method of intervals."""

    def __post_init__(self) -> None:
        """Raise SettingError for a loss or a confidence that is none."""
        if not (0 < self.points <= 100 and 0.5 <= self.how.confidence < 1):
            raise SettingError(
                "The tolerated loss is above 0 and at most 100 points, the confidence at least 0.5 and below 1. "
                "Mend the values (--loss, --confidence)."
            )

    @property
    def confidence(self) -> float:
        """Of the recommendation, one-sided, and of the intervals, two-sided."""
        return self.how.confidence

    @property
    def safe(self) -> str:
        """What a safe setting is, in a sentence."""
        lost = f"{self.points:.4g} point{'' if self.points == 1 else 's'}"
        return f"Safe: accuracy falls by at most {lost}, with {100 * self.confidence:.4g} % confidence."

    def brackets(self, drawn: str, count: int) -> str:
        """What stands in brackets, in a sentence or two; `drawn` says what resampling draws, 'prompts' or 'questions',
        and `count` how many there are."""
        said = (
            f"In brackets: {100 * self.confidence:.4g} % intervals, {_MADE[self.how.method]} over {drawn}, in pairs "
            f"where settings are compared. {ALL_AGREE}"
        )
        if count < FEWEST:
            return (
                f"{said} Of {counted(count, drawn.removesuffix('s'))} a bootstrap says nothing: shares alone have one."
            )
        return f"{said} Of fewer than {number(ROUGH)} {drawn} they are rough." if count < ROUGH else said

    def facts(self) -> dict[str, Any]:
        """The numbers in JSON's terms."""
        return {"loss_points": self.points, "confidence": self.confidence, "method": self.how.method.value}


ALL_AGREE = (
    "Where all prompts agree, a share has Wilson's interval, and an accuracy change the wider of its score and exact "
    "binomial bounds."
)
"""How an interval is made where resampling shows no spread."""


def method_named(name: str) -> Method:
    """The method of this name, whatever its case. Raises SettingError for another."""
    if (found := METHODS.get(name.lower())) is None:
        raise SettingError(f"Intervals are made by {' or '.join(METHODS)}, not by {name!r}. Choose one of these.")
    return found
