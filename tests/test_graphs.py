"""What is recorded, played again, compared, dropped and given up; with a capture that calls the function instead.

Only how CUDA records is missing here; tests/test_cuda.py has that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from mars_viz.speculators.networks.graphs import CHECKS, MOST, SETTLED, WORTH, Graphs, Recorded, Tensors


class Calling:
    """In place of a CUDA graph: same buffers in, same buffers out, the function called in between.

    What the function does on the host is not done again by a CUDA graph; it is here, and `called` counts it.
    """

    def __init__(self) -> None:
        self.recorded = self.played = 0

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        outputs = tuple(output.clone() for output in function(*inputs))
        self.recorded += 1

        def play() -> None:
            self.played += 1
            for output, found in zip(outputs, function(*inputs), strict=True):
                output.copy_(found)

        return Recorded(play, outputs)


class Failing(Calling):
    """Cannot record."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        raise self._error


class Frozen(Calling):
    """Plays what it recorded whatever the buffers hold, as a graph does of a number that came from the host."""

    def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
        return Recorded(lambda: None, tuple(output.clone() for output in function(*inputs)))


def close(found: Tensors, expected: Tensors) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def kept(capture: Calling, said: list[str] | None = None) -> Graphs:
    return Graphs(lambda: capture, close, ([] if said is None else said).append)


def plus(x: Tensor, y: Tensor, *, bias: float = 0.0) -> Tensors:
    return x + y + bias, x - y


def test_a_shape_that_comes_back_is_recorded_and_played_on_what_it_is_given() -> None:
    capture = Calling()
    graphs = kept(capture)
    results = []
    for turn in range(SETTLED + 4):
        x, y = torch.full((2, 3), float(turn)), torch.ones(2, 3)
        results.append((graphs.run(("plus", 2), plus, (x, y)), plus(x, y)))
        assert capture.recorded == (turn + 1 >= WORTH)
    assert capture.played == SETTLED + 4 - (WORTH - 1)
    for found, expected in results:  # a later play has not overwritten what an earlier one gave
        assert close(found, expected)
    assert not graphs.given_up


def test_plays_are_compared_until_it_is_settled_and_not_after() -> None:
    calls = 0

    def counting(x: Tensor) -> Tensors:
        nonlocal calls
        calls += 1
        return (x * 2,)

    class Playing(Calling):
        def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
            (output,) = (inputs[0] * 2,)

            def play() -> None:
                output.copy_(inputs[0] * 2)

            return Recorded(play, (output,))

    graphs = kept(Playing())
    for turn in range(SETTLED + 5):
        assert graphs.run("double", counting, (torch.tensor([float(turn)]),))[0].item() == 2.0 * turn
    assert calls == (WORTH - 1) + CHECKS


def test_each_key_has_its_own_recording_and_the_one_unused_for_longest_goes() -> None:
    capture = Calling()
    graphs = kept(capture)

    def asked(bias: int, times: int = WORTH) -> None:
        for _ in range(times):
            found = graphs.run(bias, partial(plus, bias=bias), (torch.ones(1), torch.ones(1)))
            assert found[0].item() == 2 + bias

    for bias in range(MOST):
        asked(bias)
    asked(0, 1)  # not the one unused for longest any more
    assert (len(graphs), capture.recorded) == (MOST, MOST)
    asked(MOST)
    assert (len(graphs), capture.recorded) == (MOST, MOST + 1)
    asked(0, 1)
    assert capture.recorded == MOST + 1
    asked(1, WORTH - 1)  # dropped, and worth no recording yet
    assert capture.recorded == MOST + 1
    asked(1, 1)
    assert capture.recorded == MOST + 2


def test_what_the_recordings_were_made_on_is_no_more() -> None:
    begun: list[Calling] = []

    def begin() -> Calling:
        begun.append(Calling())
        return begun[-1]

    graphs = Graphs(begin, close, [].append)
    one = (torch.ones(1), torch.ones(1))
    for _ in range(WORTH):
        graphs.run("plus", plus, one)
    graphs.forget()
    assert len(graphs) == 0
    for _ in range(WORTH):
        graphs.run("plus", plus, one)
    assert [each.recorded for each in begun] == [1, 1]  # each in a pool of its own


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with …"), "not permitted"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "too little memory"),
    ],
)
def test_where_recording_fails_the_function_is_called_and_it_is_said_once(error: Exception, said: str) -> None:
    heard: list[str] = []
    graphs = kept(Failing(error), heard)
    for turn in range(2 * SETTLED):
        x, y = torch.full((1,), float(turn)), torch.ones(1)
        assert close(graphs.run("plus", plus, (x, y)), plus(x, y))
    assert graphs.given_up and len(graphs) == 0
    assert len(heard) == 1 and said in heard[0] and "\n" not in heard[0]


def test_a_recording_that_does_not_do_what_the_function_does_is_given_up_before_anyone_gets_its_results() -> None:
    heard: list[str] = []
    graphs = kept(Frozen(), heard)
    for turn in range(2 * SETTLED):
        x, y = torch.full((1,), float(turn)), torch.ones(1)
        assert close(graphs.run("plus", plus, (x, y)), plus(x, y))
    assert graphs.given_up and heard == ["a recorded pass gave other results than the pass itself"]


def test_an_error_of_the_function_is_its_own() -> None:
    def broken(x: Tensor) -> Tensors:
        raise RuntimeError("shapes do not match")

    graphs = kept(Calling())
    for _ in range(2 * WORTH):
        with pytest.raises(RuntimeError, match="shapes do not match"):
            graphs.run("broken", broken, (torch.ones(1),))
