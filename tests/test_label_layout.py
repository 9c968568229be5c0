"""Names on a plot: none lies on another, whatever the width."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mars_viz.figures.frontier import WIDTHS, Label, _box, _overlap, spots

HEIGHT = 300


def covered(labels: list[Label], taken: list[Label] | None = None) -> float:
    """Pixels of names that lie on one another or outside, over all widths."""
    found, area = list(zip(labels, spots(labels, HEIGHT, taken or []), strict=True)), 0.0
    for width in WIDTHS:
        boxes = [_box(*each, width, HEIGHT) for each in found]
        area += sum(_overlap(*pair) for pair in itertools.combinations(boxes, 2))
        area += sum((b[1] - b[0]) * (b[3] - b[2]) - _overlap(b, (0, width, 0, HEIGHT)) for b in boxes)
    return area


@pytest.mark.parametrize("place", [(0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (0.02, 0.97), (0.9, 0.1)])
def test_names_of_one_point_stand_apart(place):
    names = ["θ = 0.90", "MARS, θ = 0.50", "MARS by margin, m = 10", "Typical acceptance, ε = 0"]
    assert covered([Label(name, *place) for name in names]) == 0


def test_names_of_few_points_stand_apart():
    for seed in range(50):
        points = np.random.default_rng(seed).random((5, 2))
        points = points[np.random.default_rng(seed + 99).integers(0, 3, 5)]  # several at one place
        assert covered([Label(f"rule {i}, θ = 0.50", *point) for i, point in enumerate(points.tolist())]) == 0


def test_a_name_keeps_off_what_is_taken():
    label, taken = Label("θ = 0.90", 0.29, 0.02), Label("1 lost", 0.3, 0.0)
    (spot,) = spots([label], HEIGHT, [taken])
    (fixed,) = {(0.3 * width - 3) for width in WIDTHS[:1]}
    assert _box(label, spot, WIDTHS[0], HEIGHT)[2] >= 15 or _box(label, spot, WIDTHS[0], HEIGHT)[0] >= fixed


def test_the_nearest_free_spot_is_taken():
    (spot,) = spots([Label("θ = 0.90", 0.4, 0.5)], HEIGHT)
    assert (spot.xanchor, spot.yanchor) == ("left", "bottom")
