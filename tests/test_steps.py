"""Step functions of the dial: half-open segments, exact unions and sums, against evaluation point by point."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_viz.analysis.steps import Steps, combined, stacked, total, union_edges
from mars_viz.errors import BadInput

A = Steps(np.array([0.0, 0.5, 1.0]), np.array([1, 2]))
B = Steps(np.array([0.0, 0.25, 0.5, 1.0]), np.array([10, 20, 30]))


@st.composite
def functions(draw, least=1, most=6):
    found = []
    for _ in range(draw(st.integers(least, most))):
        inner = draw(st.lists(st.integers(1, 31), unique=True, max_size=8))
        edges = np.array([0.0, *(i / 32 for i in sorted(inner)), 1.0])
        found.append(
            Steps(edges, np.array(draw(st.lists(st.integers(-9, 9), min_size=len(edges) - 1, max_size=len(edges) - 1))))
        )
    return found


def probes(edges):
    near = np.concatenate([edges, np.nextafter(edges, -1), np.nextafter(edges, 2), (edges[1:] + edges[:-1]) / 2])
    return near[(near >= edges[0]) & (near <= edges[-1])]


def test_steps_by_hand_and_bad_input():
    assert [int(A.at(dial)) for dial in (0.0, np.nextafter(0.5, 0), 0.5, 1.0)] == [1, 1, 2, 2]
    for outside in (-0.1, 1.1, np.nan):
        with pytest.raises(BadInput, match="lies outside 0 to 1"):
            A.at(outside)
    assert union_edges([A, B]).tolist() == [0, 0.25, 0.5, 1]
    assert stacked([A, B]).values.tolist() == [[1, 1, 2], [10, 20, 30]]
    assert total([A, B]).values.tolist() == [11, 21, 32]
    assert combined(lambda a, b: b / a, A, B).values.tolist() == [10, 20, 15]
    function = Steps(np.array([0.0, 1, 2, 3]), np.array([np.nan, np.nan, 1]))
    assert function.simplified().edges.tolist() == [0, 2, 3]
    for edges, values in (([0.0], []), ([0.0, 1], [1, 2]), ([[0.0, 1]], [1])):
        with pytest.raises(BadInput, match="do not bound"):
            Steps(np.array(edges), np.array(values))
    for edges in ([0.0, 0, 1], [0.0, 2, 1], [0.0, np.nan, 1], [0.0, 1, np.inf]):
        with pytest.raises(BadInput, match="must be numbers that ascend"):
            Steps(np.array(edges), np.array([1, 2]))
    other = Steps(np.array([0.0, 2.0]), np.array([1]))
    for together in (union_edges, total):
        with pytest.raises(BadInput, match="same range"):
            together([A, other])
        with pytest.raises(BadInput, match="Give at least one"):
            together([])
    with pytest.raises(BadInput, match="Only finite"):
        total([Steps(np.array([0.0, 1.0]), np.array([np.nan]))])
    with pytest.raises(BadInput, match="is no range"):
        A.clipped(0.5, 0.5)


@given(functions())
def test_putting_together_agrees_with_every_point(found):
    side, added = stacked(found), total(found)
    for dial in probes(side.edges):
        expected = [int(function.at(dial)) for function in found]
        assert side.at(dial).tolist() == expected
        assert added.at(dial) == sum(expected)


@given(functions(most=1))
def test_simplified_keeps_the_function_and_only_true_edges(found):
    (function,) = found
    simple = function.simplified()
    assert all(simple.at(dial) == function.at(dial) for dial in probes(function.edges))
    assert (np.diff(simple.values) != 0).all()


@given(functions(most=1), st.integers(0, 31), st.integers(1, 32))
def test_clipped_is_the_same_inside(found, start, length):
    low, high = start / 32, min(start + length, 32) / 32
    (function,) = found
    part = function.clipped(low, high)
    assert (part.low, part.high) == (low, high)
    inside = [dial for dial in probes(part.edges) if dial < high]
    assert all(part.at(dial) == function.at(dial) for dial in inside)


def test_adding_up_needs_no_table_of_prompts_and_segments():
    rng = np.random.default_rng(0)
    count, jumps = 1000, 20  # side by side: 1,000 × 20,001 numbers, 160 MB

    def many():
        for _ in range(count):
            yield Steps(np.concatenate([[0.0], np.sort(rng.random(jumps)), [1.0]]), np.arange(jumps + 1))

    tracemalloc.start()
    added = total(many())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(added) == count * jumps + 1
    assert added.at(1.0) == count * jumps
    assert peak < 20e6
