"""Which setting a sweep speaks for: the recommended one, or else one to look at. Knows sweeps; draws nothing."""

from __future__ import annotations

from mars_viz.analysis.recommendation import DECIMALS, Finding, Recommendation, recommend
from mars_viz.sweep.result import SweepResult


def recommended(result: SweepResult, points: float, confidence: float) -> Recommendation | None:
    """The loosest setting that loses at most `points` with this confidence; None where no prompt is graded.

    Raises BadInput for a limit or a confidence that is none.
    """
    if not result.graded.any():
        return None
    dial = result.plan.rule.dial
    assert dial is not None  # a sweep is one of a dial
    decimals = 0 if dial.step >= 1 else DECIMALS
    return recommend(result.graded_steps(), points, confidence, symbol=dial.symbol, decimals=decimals)


def chosen_dial(result: SweepResult, found: Recommendation | None) -> float:
    """The recommended setting, else the rule's default if it is in the range, else the loosest."""
    dial = result.plan.rule.dial
    assert dial is not None  # a sweep is one of a dial
    if found is not None and found.finding is Finding.RECOMMENDED and found.dial is not None:
        return found.dial
    if result.plan.low <= dial.default <= result.plan.high:
        return dial.default
    return result.plan.loosest
