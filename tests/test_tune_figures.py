"""The figures of the Tune page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from sweep_cases import toy_sweep

from mars_viz import figures
from mars_viz.analysis.intervals import Band, Frontier, Interval, Method
from mars_viz.analysis.steps import Steps
from mars_viz.figures.dial_curve import MOST, DialCurve, dial_curve, share_bars
from mars_viz.figures.frontier import RulePath, _hull, frontier_figure
from mars_viz.sweep import relaxed_at
from mars_viz.sweep.columns import RANK_WORDS, SHARE_WORDS
from mars_viz.ui.tune.cached_sweep import CachedSweep

theme = figures.DARK


def band(values: list[float], spread: float = 0.01) -> Band:
    estimate = np.array(values)
    return Band(estimate, estimate - spread, estimate + spread, 0.95, Method.BCA)


def rule_path(name: str, speeds: list[float], lost: list[float], marked: float = 0.9) -> RulePath:
    """Dial values 0.8, 0.9 and 1; strict at 1."""
    path = Frontier(np.array([0.8, 0.9, 1.0]), band([-each / 100 for each in lost]), band(speeds), "strict", True)
    return RulePath(name, "θ", path, 1.0, 0.8, marked)


def test_the_best_setting_is_the_fastest_within_the_loss():
    path = rule_path("A", [1.5, 1.2, 1.0], [5, 1, 0]).path
    assert [path.best_within(1.0, points) for points in (0.5, 1.0, 5.0)] == [2, 1, 0]
    alone = replace(path, accuracy=band([0.45, 0.49, 0.5]), paired=False)
    assert alone.lost(1.0) == pytest.approx([5, 1, 0]) and alone.best_within(1.0, 1.0) == 1


def test_a_setting_can_be_put_on_the_path():
    path = rule_path("A", [1.5, 1.2, 1.0], [5, 1, 0]).path
    found = path.through(
        0.85, Interval(-0.03, -0.04, -0.02, 0.95, Method.BCA), Interval(1.3, 1.2, 1.4, 0.95, Method.BCA)
    )
    assert found.dials.tolist() == [0.8, 0.85, 0.9, 1.0]
    assert found.speed_up.low[1] == 1.2 and found.accuracy.estimate[1] == -0.03 and found.near(0.87) == 1
    assert path.through(0.9, *[Interval(0, 0, 0, 0.95, Method.BCA)] * 2) is path


def test_the_title_says_the_finding():
    one = frontier_figure([rule_path("A", [1.5, 1.2, 1.0], [5, 1, 0])], theme, 1.0)
    assert figures.spoken_title(one) == (
        "A at θ = 0.90 is 1.20× as fast as strict and loses 1 point of accuracy on these prompts"
    )
    two = [rule_path("A", [1.5, 1.2, 1.0], [5, 1, 0], 0.8), rule_path("B", [1.4, 1.3, 1.0], [2, 0.5, 0])]
    assert figures.spoken_title(frontier_figure(two, theme, 1.0)) == (
        "For at most 1 point lost on these prompts, B is fastest: 1.30× strict, at θ = 0.90"
    )
    assert one.layout.paper_bgcolor == "rgba(0,0,0,0)" and not one.layout.showlegend
    assert figures.spoken_title(frontier_figure([], theme)) == "No sweep to show yet"


def test_names_are_escaped_and_every_interval_is_in_view():
    figure = frontier_figure([rule_path("<b>A</b>", [1.5, 1.2, 1.0], [5, 1, 0])], figures.LIGHT, 1.0)
    assert "<b>A</b>" not in figure.to_json() and "&lt;b&gt;A" in figure.to_json()
    (left, right), (low, high) = figure.layout.xaxis.range, figure.layout.yaxis.range
    assert left < -6 and right > 1 and low < 0.99 and high > 1.51


def area(ring: np.ndarray) -> float:
    x, y = ring[:, 0], ring[:, 1]
    return float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) / 2)


def test_a_hull_goes_round_all_points_anticlockwise():
    for seed in range(20):
        points = np.random.default_rng(seed).integers(0, 6, (8, 2)).astype(float)
        ring = _hull(points)
        assert area(ring) > 0
        for a, b in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            turns = (b[0] - a[0]) * (points[:, 1] - a[1]) - (b[1] - a[1]) * (points[:, 0] - a[0])
            assert (turns >= -1e-9).all()


def curve(places: int, percent: bool = False) -> DialCurve:
    edges = np.linspace(0, 1, places + 1)
    values = np.linspace(0.5, 0.25, places)
    return DialCurve(
        "τ", "θ", Steps(edges, values), edges, band(np.linspace(0.5, 0.25, places + 1).tolist()), 1.0, percent
    )


def test_a_curve_says_both_values_and_stays_small():
    figure = dial_curve(curve(4), 0.3, theme)
    assert figures.spoken_title(figure) == "At θ = 0.30: 0.417, strict 0.250"
    assert figures.spoken_title(dial_curve(curve(4, percent=True), 1.0, theme)) == (
        "At θ = 1.00: 25 %, the same as strict"
    )
    steps = dial_curve(curve(50_000), 0.3, theme).data[-1]
    assert len(steps.x) == MOST + 1 and steps.line.shape == "hv"


def test_bars_by_hand():
    shares = Band(np.array([0.75, 0.25]), np.array([0.5, 0.0]), np.array([1.0, 0.5]), 0.95, Method.BCA)
    make = {"axis": "rank", "noun": "relaxed token"}
    figure = share_bars(["2", "3"], np.array([3, 1]), shares, figures.LIGHT, **make)
    assert figures.spoken_title(figure) == "75 % of 4 relaxed tokens have rank 2"
    assert list(figure.data[0].x) == [75, 25] and list(figure.data[0].error_x.array) == [25, 25]
    assert list(figure.data[0].y) == ["2", "3"] and figure.layout.yaxis.autorange == "reversed"  # the first on top
    none = share_bars(["2", "3"], np.zeros(2, int), shares, figures.LIGHT, **make)
    assert figures.spoken_title(none) == "There is no relaxed token at this setting" and not none.data
    for counts, words in (([0, 1], "The one relaxed token has rank 3"), ([5, 0], "All 5 relaxed tokens have rank 2")):
        same = share_bars(["2", "3"], np.array(counts), shares, figures.LIGHT, **make)
        assert figures.spoken_title(same) == words


def test_a_studys_figures_are_those_of_the_sweep(tmp_path: Path):
    study = CachedSweep(toy_sweep(tmp_path / "sweep", 8).finish())
    path = study.path(0.4321, paired=True)
    place = path.near(0.4321)
    assert path.dials[place] == 0.4321
    assert path.accuracy.estimate[place] == study.value("accuracy_change", 0.4321).estimate
    assert path.speed_up.estimate[place] == pytest.approx(study.value("speed_up_strict", 0.4321).estimate)
    assert study.path(0.4321, paired=True) is path
    counts, shares = relaxed_at(study.result, 0.4), study.relaxed(0.4)
    assert shares.by_rank.estimate == pytest.approx(counts.by_rank / counts.by_rank.sum())
    assert (len(RANK_WORDS), len(SHARE_WORDS)) == (len(counts.by_rank), len(counts.by_share))
    for name in study.measures:
        figure = dial_curve(study.curve(name), 0.4, figures.LIGHT)
        assert isinstance(figure, go.Figure) and "At θ = 0.40" in figures.spoken_title(figure)
    assert 0 < study.value("agreed", 0.2).estimate < 1 and study.value("agreed", 1.0).estimate == 1
