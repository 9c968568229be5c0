"""A small picture without text of each lesson, made from a suitable run."""

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
_FLOOR = 0.5  # start of the axis: few ratios are below
_CALLS = 8
_REACH = 40.0


def speed_up(run: Run) -> str:
    """Return the speed-up formula's curve over α, at the run's own γ and cost."""
    run_gain = gain(run)
    alpha = np.linspace(0, 1, 61)
    curve = expected_speed_up(alpha, run_gain.gamma, run_gain.c if run_gain.timed else 0.1)
    top = 1.1 * max(1.0, float(curve[-1]))
    return lines([Line(alpha, np.ones(61), QUIET, dashed=True), Line(alpha, curve, BLUE)], top)


def branches(run: Run) -> str:
    """Return the tokens per pass of the best tree and of a chain, by number of nodes, for the run's drafter."""
    drafter_choices, nodes = choices(run), np.arange(1, 25)
    tree = tree_tokens(drafter_choices.alpha, np.nan_to_num(drafter_choices.rescued), len(nodes))
    chain = np.array([float(expected_tokens(drafter_choices.alpha, int(n))) for n in nodes])
    x = (nodes - 1) / (len(nodes) - 1)
    return lines([Line(x, chain, QUIET), Line(x, tree, BLUE)], 1.1 * float(tree[-1]))


def kept_and_lost(run: Run) -> str:
    """Return bars of accepted and rolled-back tokens at every block length."""
    return stacked_bars([(BarPart(price.kept, QUIET), BarPart(price.rolled_back, RED)) for price in prices(run)])


def two_laws(run: Run) -> str:
    """Return both distributions at the most instructive position: shared, target only and drafter only."""
    laws = max((overlap(run, place) for place in places(run)[:40]), key=lambda candidate: candidate.telling)
    token_indices = [i for i, token in enumerate(laws.tokens) if token != OTHERS]
    return stacked_bars(
        [
            (
                BarPart(float(laws.shared[i]), QUIET),
                BarPart(float(laws.residual[i]), BLUE),
                BarPart(float(laws.q[i] - laws.shared[i]), RED),
            )
            for i in token_indices
        ]
    )


def ratios(run: Run) -> str:
    """Return bars of z2/z1 at the first drafted positions, with relaxed ones in another colour."""
    theta = THETA.default if run.settings.dial is None else run.settings.dial
    values = []
    for round_ in run.rounds:
        spec = round_.speculation
        z1, z2 = (z[spec.judging_rows].astype(np.float64) for z in (spec.z1, spec.z2))
        values += np.where(z1 > 0, np.maximum(z2, 0) / np.where(z1 > 0, z1, 1), 0).tolist()
    return stacked_bars(
        [(BarPart(max(0.0, ratio - _FLOOR), AMBER if ratio > theta else QUIET),) for ratio in values[:_POSITIONS]]
    )


def shifted_ratios(run: Run) -> str:
    """Return curves of the closest runner-ups' ratios when a constant is added to every logit."""
    c = np.linspace(-_REACH, _REACH, 81)
    moved = close_calls(run).ratio(c)[:, :_CALLS]  # [81, M]
    theta = Line(c, np.full(81, THETA.default), BLUE, dashed=True)
    return lines([*(Line(c, column, AMBER) for column in moved.T), theta], 1.1)


def tau_and_damage(run: Run, gamma: int) -> str:
    """Return the tokens per pass over the dial at this block length, shaded at wrong answers."""
    dial_map = run.dial_map
    assert dial_map is not None  # ensured by the lesson's `lacks`
    segments = dial_map.segments_for(gamma)
    tau, exercise = along_dial(segments, lambda segment: segment.tau), recognised(run.prompt)
    bands = [
        Area(segment.low, segment.high, RED)
        for segment in segments
        if segment.complete and exercise and final_answer(run.decode(segment.token_ids)) != exercise.answer
    ]
    x, y = np.repeat(tau.edges, 2)[1:-1], np.repeat(tau.values, 2)
    finite = tau.values[np.isfinite(tau.values)]  # empty if every text was cut short
    return lines([Line(x, y, AMBER)], 1.15 * float(finite.max(initial=1.0)), bands)
