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


def test_plays_are_compared_until_settled_only() -> None:
    calls = 0

    def counting(x: Tensor) -> Tensors:
        nonlocal calls
        calls += 1
        return (x * 2,)

    class Playing(Calling):
        def __call__(self, function: Callable[..., Tensors], inputs: Tensors) -> Recorded:
            output = inputs[0] * 2
            return Recorded(lambda: output.copy_(inputs[0] * 2), (output,))  # type: ignore[arg-type, return-value]

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


def test_forgotten_recordings_are_made_again_in_a_new_pool() -> None:
    captures = [Calling(), Calling()]
    remaining = iter(captures)
    graphs = Graphs(lambda: next(remaining), close, [].append)
    for recorded in ([1, 0], [1, 1]):
        for _ in range(WORTH):
            graphs.run("plus", plus, (torch.ones(1), torch.ones(1)))
        assert [each.recorded for each in captures] == recorded
        graphs.forget()
        assert len(graphs) == 0


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        (Failing(RuntimeError("operation not permitted\nCompile with …")), "not permitted"),
        (Failing(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")), "too little memory"),
        (Frozen(), "other results"),
    ],
)
def test_a_failed_or_wrong_recording_is_given_up_and_reported_once(capture: Calling, reason: str) -> None:
    reports: list[str] = []
    graphs = kept(capture, reports)
    for turn in range(2 * SETTLED):
        x, y = torch.full((1,), float(turn)), torch.ones(1)
        assert close(graphs.run("plus", plus, (x, y)), plus(x, y))
    assert graphs.given_up and len(graphs) == 0
    assert len(reports) == 1 and reason in reports[0] and "\n" not in reports[0]


def test_an_error_of_the_function_is_raised() -> None:
    graphs = kept(Calling())
    for _ in range(2 * WORTH):
        with pytest.raises(RuntimeError):  # shapes that do not fit
            graphs.run("broken", lambda x: (x @ x.T.expand(2, 3),), (torch.ones(2, 2),))
