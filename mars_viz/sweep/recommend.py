"""Which setting a sweep speaks for: the recommended one, or else one to look at. Knows sweeps; draws nothing."""

from __future__ import annotations

from dataclasses import replace

from mars_viz.analysis.recommendation import DECIMALS, Finding, Recommendation, recommend
from mars_viz.sweep.result import SweepResult


def recommended(result: SweepResult, points: float, confidence: float, among: int = 1) -> Recommendation | None:
    """The loosest setting that loses at most `points` with this confidence; None where no prompt is graded.

    Where the best `among` several sweeps is to be chosen, the confidence is that of all of them together, and each is
    tested more strictly. Raises BadInput for a limit or a confidence that is none.
    """
    if not result.graded.any():
        return None
    dial = result.plan.rule.dial
    assert dial is not None  # a sweep is one of a dial
    decimals = 0 if dial.step >= 1 else DECIMALS
    each = confidence_of_each(confidence, among)
    found = recommend(result.graded_steps(), points, each, symbol=dial.symbol, decimals=decimals)
    return replace(found, sentence=f"{found.sentence} {together(confidence, among)}".rstrip())


def confidence_of_each(confidence: float, among: int) -> float:
    """With which each of so many is tested, that the one chosen of them holds with this confidence: Bonferroni's,
    1 - (1 - confidence) / among."""
    return 1 - (1 - confidence) / among if among > 1 else confidence


def together(confidence: float, among: int) -> str:
    """The same as a sentence; empty where nothing is chosen among several."""
    if among < 2:
        return ""
    each, whole = (f"{100 * share:.4g} %" for share in (confidence_of_each(confidence, among), confidence))
    return f"Each of the {among} variants is tested at {each}, so that whichever is chosen holds at {whole}."


def chosen_dial(result: SweepResult, found: Recommendation | None) -> float:
    """The recommended setting, else the rule's default if it is in the range, else the loosest."""
    dial = result.plan.rule.dial
    assert dial is not None  # a sweep is one of a dial
    if found is not None and found.finding is Finding.RECOMMENDED and found.dial is not None:
        return found.dial
    if result.plan.low <= dial.default <= result.plan.high:
        return dial.default
    return result.plan.loosest
