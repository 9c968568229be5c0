"""The Tune page's dial: it follows the hand in the browser, and tells Python of its rest.

Knows sweeps and the element; what it reads at every value was worked out before, by `readings`.
"""

from __future__ import annotations

from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.readings import readings

LARGEST_DIGITS = 3
"""Decimals of a dial that moves in steps smaller than 1."""


def turned(study: CachedSweep, dial: float, home: float, sweep: str, *, paired: bool) -> float:
    """Show the dial at this value, with the key figures under it, and return where it rests.

    `home` is where a double click leads: the setting that the sweep speaks for. `paired` says which frontier is shown.
    """
    told = study.kept(("readings", paired), lambda: readings(study, paired=paired))
    label = "Key figures at the dial and at strict"
    stands = lesson_figure(
        Kind.SETTING, [_knob(study, home)], told, {"dial": dial}, key=f"tune-dial-{sweep}", label=label
    )
    return stands["dial"]


def _knob(study: CachedSweep, home: float) -> Knob:
    plan = study.plan
    dial = plan.rule.dial
    assert dial is not None  # a sweep is one of a dial
    ends = ("looser", "strict") if dial.strict_is_high else ("strict", "looser")
    return Knob(
        "dial",
        f"{ends[0]} ← {dial.name} {plan.symbol} → {ends[1]}",
        home,
        plan.low,
        plan.high,
        dial.step,
        digits=0 if dial.step >= 1 else LARGEST_DIGITS,
        help=f"{plan.strict:g} is strict, {dial.default:g} the rule's default; a double click goes to {home:g}",
        exact=True,
    )
