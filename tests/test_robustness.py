"""What goes wrong while decoding is one line with the remedy, and an end of text ends it wherever it stands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from factories import with_passes
from torch import Tensor
from transformers import LlamaForCausalLM

from mars_viz.errors import BadInput, DeviceLost, MarsVizError, TooLarge
from mars_viz.recording import Recording, record_all
from mars_viz.run import Settings
from mars_viz.speculators.autoregressive import decode_alone
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.costs import measure_costs
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.networks import Network

PROMPT = "Once upon a time, there was a little"
SETTINGS = Settings(rule="strict", gamma=4, max_new_tokens=32)


class Failing:
    """A network that does something else after so many passes."""

    def __init__(self, network: Network, after: int, otherwise: Callable[[Tensor], Tensor]):
        self._network, self._left, self._otherwise = network, after, otherwise
        self.device = network.device

    def score(self, *args: object) -> Tensor:
        """Raw logits, or whatever is made of them."""
        self._left -= 1
        found = self._network.score(*args)
        return found if self._left >= 0 else self._otherwise(found)

    def copy(self, source: int, slot: int, length: int) -> None:
        """As ever."""
        self._network.copy(source, slot, length)


def failing(pair: Backend, whose: str, after: int, otherwise: Callable[[Tensor], Tensor]) -> Backend:
    opened: Callable[[], Network] = getattr(pair, whose).passes
    return with_passes(pair, **{whose: lambda: Failing(opened(), after, otherwise)})


def one_line(error: pytest.ExceptionInfo[BadInput]) -> str:
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    return str(error.value)


@pytest.mark.parametrize(("whose", "temperature"), [("target", 0.8), ("drafter", 0.0)])
def test_a_model_that_returns_nan_is_named_and_what_came_before_is_kept(pair, whose, temperature):
    spoiled = failing(pair, whose, 12, lambda logits: logits.index_fill(-1, torch.tensor([9]), torch.nan))
    settings = replace(SETTINGS, temperature=temperature, max_new_tokens=60)
    recording = Recording(spoiled, PROMPT, settings)
    with pytest.raises(BadInput) as error:
        recording.finish()
    assert f"The {whose}'s logits hold NaN" in one_line(error)
    assert recording.run().rounds
    whole = Recording(pair, PROMPT, settings).finish()
    assert whole.token_ids[: len(recording.token_ids)] == recording.token_ids


def _too_much_on_the_cpu(logits: Tensor) -> Tensor:
    return torch.empty(1 << 60)


def _no_memory(logits: Tensor) -> Tensor:
    raise MemoryError


def _no_memory_on_the_gpu(logits: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("how", [_too_much_on_the_cpu, _no_memory, _no_memory_on_the_gpu])
def test_out_of_memory_in_the_middle_says_what_to_do(pair, how):
    with pytest.raises(BadInput) as error:
        Recording(failing(pair, "target", 3, how), PROMPT, SETTINGS).finish()
    assert "ran out of memory" in one_line(error)
    assert Recording(pair, PROMPT, SETTINGS).finish().token_ids  # the models themselves are as they were


def _gone(logits: Tensor) -> Tensor:
    raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might be …")


def _gone_without_a_class(logits: Tensor) -> Tensor:
    raise RuntimeError("CUDA driver error: device is lost")


@pytest.mark.parametrize(("whose", "how"), [("target", _gone), ("drafter", _gone_without_a_class)])
def test_a_device_that_vanishes_is_named_and_what_came_before_is_kept(pair, whose, how):
    recording = Recording(failing(pair, whose, 12, how), PROMPT, replace(SETTINGS, max_new_tokens=100))
    with pytest.raises(DeviceLost) as error:
        recording.finish()
    assert "\n" not in str(error.value) and "(CUDA" in str(error.value)
    assert recording.run().rounds


@pytest.mark.parametrize(("how", "said"), [(_gone, "does not answer"), (_no_memory, "ran out of memory")])
def test_the_target_alone_and_the_measuring_of_passes_say_the_same(pair, how, said):
    broken = failing(pair, "target", 3, how)
    with pytest.raises(MarsVizError, match=said):
        decode_alone(broken, (5, 6, 7), SETTINGS)
    with pytest.raises(MarsVizError, match=said):
        measure_costs(broken, 2, settings=SETTINGS)


def _falls_off_the_bus(self: object, *place: object) -> None:
    raise torch.AcceleratorError("CUDA error: no CUDA-capable device is detected")


def _is_full(self: object, *place: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory.")


def test_a_device_that_fails_while_the_models_move_there(monkeypatch):
    monkeypatch.setattr(LlamaForCausalLM, "to", _falls_off_the_bus)
    with pytest.raises(DeviceLost, match="no CUDA-capable device"):
        load_backend(device="cpu")
    monkeypatch.setattr(LlamaForCausalLM, "to", _is_full)
    with pytest.raises(TooLarge, match=r"need \d+ MB .*, and [\d.]+ .B are free on cpu. Take smaller") as error:
        load_backend(device="cpu")
    assert error.value.need > 1e6 and "\n" not in str(error.value)


def test_a_fault_is_not_taken_for_a_lack_of_memory(pair):
    def fault(logits):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        Recording(failing(pair, "target", 3, fault), PROMPT, SETTINGS).finish()


def test_prefixes_that_the_models_cannot_read(pair):
    speculator = pair.speculator(SETTINGS)
    for prefix, message in (
        ((), "at least one token"),
        ((5, 4096, 7), "token 4096 is outside the models' vocabulary of 4096"),
        ((5, -1), "token -1 is outside"),
        ((5,) * 512, "context of 512"),
        ((5,) * 600, "fills the models' context"),
    ):
        with pytest.raises(BadInput) as error:
            speculator.speculate([(5, 6, 7), prefix])
        assert message in one_line(error)
    assert speculator.speculate([(5, 6, 7)])
    for prompt in ("", " ", "\n\t \u3000"):
        with pytest.raises(BadInput, match="at least one word"):
            Recording(pair, prompt, SETTINGS)


def test_the_context_fills_up_to_its_last_place_and_no_further(pair):
    speculator = pair.speculator(SETTINGS)
    long = tuple(range(5, 5 + pair.context - 4))
    for length in (pair.context - 3, pair.context - 1):
        prefix = (*long, 9, 9, 9, 9)[:length]
        full, roomy = speculator.speculate([prefix, (5, 6, 7)])
        assert (len(full.speculation), len(roomy.speculation)) == (min(4, pair.context - length), 4)


def test_a_prompt_of_a_megabyte_is_refused_at_once(pair):
    began = time.process_time()
    with pytest.raises(BadInput) as error:
        Recording(pair, "The cat sat on the mat. " * 44_000, SETTINGS)
    assert "shorten the prompt" in one_line(error) and len(one_line(error)) < 200
    assert time.process_time() - began < 30


def test_an_end_of_text_within_a_block_ends_that_text_and_no_other(pair):
    whole = Recording(pair, PROMPT, SETTINGS).finish()
    starts = np.cumsum([0, *(len(round_.token_ids) for round_ in whole.rounds)]).tolist()
    first, end = next(
        (start + 1, round_.token_ids[1])
        for start, round_ in zip(starts, whole.rounds, strict=False)
        if round_.kept > 2 and round_.token_ids[1] not in whole.token_ids[: start + 1]
    )
    ended = replace(pair, eos_ids=frozenset({end}))
    one, other = record_all(ended, [PROMPT, "Tom and his dog"], SETTINGS)
    assert one.token_ids == whole.token_ids[: first + 1]
    assert one.rounds[-1].kept < len(one.rounds[-1].speculation)
    alone = Recording(ended, "Tom and his dog", SETTINGS).finish()
    assert other.token_ids == alone.token_ids
