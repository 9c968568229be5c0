"""Batches: what is modelled from measured rounds, and the measurement with the built-in pair."""

import json

import numpy as np
import pytest

from mars_viz.errors import BadInput
from mars_viz.load import Load, taus_of
from mars_viz.run import Settings
from mars_viz.speculators.load import measuring

SECONDS = ((1.0, 1.1, 1.2, 1.4), (1.2, 1.5, 2.4, 4.0), (2.0, 3.6, 6.0, 9.0))
LOAD = Load("Toy", "float32", (1, 4, 16), (0, 1, 2, 4), SECONDS, 9)


def test_speed_over_batches_by_hand():
    taus = taus_of(np.array([4, 4, 2, 0]), 4)
    assert taus == [1, 1.75, 2.5, 3, 3.5]
    speeds = LOAD.speed_ups(taus)
    assert speeds[:, 0].tolist() == [1, 1, 1] and speeds[0].tolist() == pytest.approx([1, 1.75 / 1.1, 2.5 / 1.2, 2.5])
    assert LOAD.best(taus) == (4, 1, 0) and LOAD.schedule(taus) == [[1, 3, 4], [4, 15, 1], [16, 1024, 0]]
    assert Load.from_json(LOAD.to_json()) == LOAD
    found = json.loads(LOAD.to_json())
    for wrong in (
        {"seconds": [[1]]},
        {"sizes": [4, 1, 16]},
        {"lengths": [1, 2, 3, 4]},
        {"format": "x"},
        {"repeats": "x"},
    ):
        with pytest.raises(BadInput, match="Measure them again"):
            Load.from_json(json.dumps(found | wrong).encode())


def test_rounds_of_the_built_in_pair_are_measured(pair):
    *shares, load = measuring(pair, Settings(gamma=3), (1, 3), 24, seconds=0.0)
    assert load.sizes == (1, 3) and load.lengths == (0, 1, 2, 3) and load.repeats == 5
    assert shares[-1] == 1 and shares == sorted(shares) and min(map(min, load.seconds)) > 0
    with pytest.raises(BadInput, match="chains without a controller"):
        next(measuring(pair, Settings(tree="dynamic:depth=3,topk=2,nodes=5")))
