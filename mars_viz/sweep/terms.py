"""Terms of a sweep's judgement: the tolerated accuracy loss, the confidence, and the method of intervals.

The page, the command and the evidence pack state them once, in these words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Method
from mars_viz.errors import SettingError
from mars_viz.words import counted, number

FEWEST = 5  # minimum number of prompts or questions for a bootstrap interval; with fewer it would be far too narrow
ROUGH = 30  # number of prompts below which intervals are called rough
METHODS = {method.value.lower(): method for method in (Method.BCA, Method.PERCENTILE)}
"""Selectable methods by name on the command line and in links."""
_MADE = {Method.BCA: "BCa bootstrap (corrected for bias and skew)", Method.PERCENTILE: "percentile bootstrap"}


@dataclass(frozen=True, slots=True)
class Terms:
    """Definition of safe settings and of the intervals in brackets."""

    points: float = 1.0  # tolerated accuracy loss in percentage points, above 0 and at most 100
    how: Bootstrap = DEFAULT  # the confidence, at least 0.5, and the method of intervals

    def __post_init__(self) -> None:
        """Raise SettingError for an invalid loss or confidence."""
        if not (0 < self.points <= 100 and 0.5 <= self.how.confidence < 1):
            raise SettingError(
                "The tolerated loss is above 0 and at most 100 points, the confidence at least 0.5 and below 1. "
                "Mend the values (--loss, --confidence)."
            )

    @property
    def confidence(self) -> float:
        """Confidence of the recommendation, one-sided, and of the intervals, two-sided."""
        return self.how.confidence

    @property
    def safe(self) -> str:
        """A sentence that defines a safe setting."""
        lost = f"{self.points:.4g} point{'' if self.points == 1 else 's'}"
        return f"Safe: accuracy falls by at most {lost}, with {100 * self.confidence:.4g} % confidence."

    def brackets(self, drawn: str, count: int) -> str:
        """Return sentences that define the brackets. `drawn` is the unit of resampling, 'prompts' or 'questions', and
        `count` their number."""
        words = (
            f"In brackets: {100 * self.confidence:.4g} % intervals, {_MADE[self.how.method]} over {drawn}, in pairs "
            f"where settings are compared. {ALL_AGREE}"
        )
        if count < FEWEST:
            return (
                f"{words} Of {counted(count, drawn.removesuffix('s'))} a bootstrap says nothing: shares alone have one."
            )
        return f"{words} Of fewer than {number(ROUGH)} {drawn} they are rough." if count < ROUGH else words

    def facts(self) -> dict[str, Any]:
        """Return the terms as JSON values."""
        return {"loss_points": self.points, "confidence": self.confidence, "method": self.how.method.value}


ALL_AGREE = (
    "Where all prompts agree, a share has Wilson's interval, and an accuracy change the wider of its score and exact "
    "binomial bounds."
)
"""Method of intervals if resampling shows no spread."""
