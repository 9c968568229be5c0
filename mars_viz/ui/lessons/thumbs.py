"""Each lesson as a small picture, made of the run that serves it: what the lesson's own figure shows, without words.

Knows runs and what the lessons compute; knows no Streamlit. Each takes a run that the lesson does not lack anything of.
"""

from __future__ import annotations

import numpy as np

from mars_viz.analysis.lesson_sums import OTHERS, close_calls, expected_speed_up, expected_tokens, gain, overlap, places
from mars_viz.analysis.map_grid import along_dial
from mars_viz.analysis.rollback import prices
from mars_viz.analysis.tree_gain import choices, tree_tokens
from mars_viz.demo.tasks import final_answer
from mars_viz.figures.svg import AMBER, BLUE, QUIET, RED, Area, BarPart, Line, lines, stacked_bars
from mars_viz.prompts import recognised
from mars_viz.rules.mars import THETA
from mars_viz.run import Run

_POSITIONS = 64
_FLOOR = 0.5  # of the bars of ratios: few lie below, and the differences are above
_CALLS = 8
_REACH = 40.0


def speed_up(run: Run) -> str:
    """The formula's curve over α, at the run's own γ and cost."""
    found = gain(run)
    alpha = np.linspace(0, 1, 61)
    curve = expected_speed_up(alpha, found.gamma, found.c if found.timed else 0.1)
    top = 1.1 * max(1.0, float(curve[-1]))
    return lines([Line(alpha, np.ones(61), QUIET, dashed=True), Line(alpha, curve, BLUE)], top)


def branches(run: Run) -> str:
    """Tokens a pass yields with the best tree of so many nodes, and with a chain, at the run's own drafter."""
    found, nodes = choices(run), np.arange(1, 25)
    tree = tree_tokens(found.alpha, np.nan_to_num(found.rescued), len(nodes))
    chain = np.array([float(expected_tokens(found.alpha, int(n))) for n in nodes])
    x = (nodes - 1) / (len(nodes) - 1)
    return lines([Line(x, chain, QUIET), Line(x, tree, BLUE)], 1.1 * float(tree[-1]))


def kept_and_lost(run: Run) -> str:
    """Drafted tokens at every block length: kept below, rolled back above."""
    return stacked_bars([(BarPart(price.kept, QUIET), BarPart(price.rolled_back, RED)) for price in prices(run)])


def two_laws(run: Run) -> str:
    """Both laws at the place where most can be seen: shared, of the target alone, of the drafter alone."""
    laws = max((overlap(run, place) for place in places(run)[:40]), key=lambda found: found.telling)
    shown = [i for i, token in enumerate(laws.tokens) if token != OTHERS]
    return stacked_bars(
        [
            (
                BarPart(float(laws.shared[i]), QUIET),
                BarPart(float(laws.residual[i]), BLUE),
                BarPart(float(laws.q[i] - laws.shared[i]), RED),
            )
            for i in shown
        ]
    )


def ratios(run: Run) -> str:
    """z2/z1 at the first drafted positions, those above the run's θ in the colour of what is relaxed."""
    theta = THETA.default if run.settings.dial is None else run.settings.dial
    found = []
    for round_ in run.rounds:
        spec = round_.speculation
        z1, z2 = (z[spec.judging_rows].astype(np.float64) for z in (spec.z1, spec.z2))
        found += np.where(z1 > 0, np.maximum(z2, 0) / np.where(z1 > 0, z1, 1), 0).tolist()
    return stacked_bars(
        [(BarPart(max(0.0, ratio - _FLOOR), AMBER if ratio > theta else QUIET),) for ratio in found[:_POSITIONS]]
    )


def shifted_ratios(run: Run) -> str:
    """How the closest runner-ups' ratios move when a constant is added to every logit."""
    c = np.linspace(-_REACH, _REACH, 81)
    moved = close_calls(run).ratio(c)[:, :_CALLS]  # [81, M]
    theta = Line(c, np.full(81, THETA.default), BLUE, dashed=True)
    return lines([*(Line(c, column, AMBER) for column in moved.T), theta], 1.1)


def tau_and_damage(run: Run, gamma: int) -> str:
    """Tokens per pass along the dial at this block length; the ground says where the answer is wrong."""
    made = run.dial_map
    assert made is not None  # the lesson's `lacks` saw to it
    segments = made.segments_for(gamma)
    tau, exercise = along_dial(segments, lambda segment: segment.tau), recognised(run.prompt)
    bands = [
        Area(segment.low, segment.high, RED)
        for segment in segments
        if segment.complete and exercise and final_answer(run.decode(segment.token_ids)) != exercise.answer
    ]
    x, y = np.repeat(tau.edges, 2)[1:-1], np.repeat(tau.values, 2)
    known = tau.values[np.isfinite(tau.values)]  # none where the map was cut short everywhere
    return lines([Line(x, y, AMBER)], 1.15 * float(known.max(initial=1.0)), bands)
