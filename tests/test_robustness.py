"""Models and devices that fail while decoding, prefixes that cannot be read, and the types of errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from factories import ROOT, with_passes
from torch import Tensor
from transformers import LlamaForCausalLM

import mars_viz
from mars_viz import errors
from mars_viz.errors import BadInput, DeviceLost, MarsVizError, TooLarge
from mars_viz.recording import Recording
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
        self.device, self.copy = network.device, network.copy

    def score(self, *args: object) -> Tensor:
        self._left -= 1
        found = self._network.score(*args)
        return found if self._left >= 0 else self._otherwise(found)


def failing(pair: Backend, whose: str, after: int, otherwise: Callable[[Tensor], Tensor]) -> Backend:
    opened: Callable[[], Network] = getattr(pair, whose).passes
    return with_passes(pair, **{whose: lambda: Failing(opened(), after, otherwise)})


@pytest.mark.parametrize(("whose", "temperature"), [("target", 0.8), ("drafter", 0.0)])
def test_a_model_that_returns_nan_is_named_and_earlier_rounds_are_kept(pair, whose, temperature):
    spoiled = failing(pair, whose, 12, lambda logits: logits.index_fill(-1, torch.tensor([9]), torch.nan))
    settings = replace(SETTINGS, temperature=temperature, max_new_tokens=60)
    recording = Recording(spoiled, PROMPT, settings)
    with pytest.raises(BadInput, match=f"^The {whose}'s logits hold NaN.*$"):
        recording.finish()
    assert recording.run().rounds
    unspoiled = Recording(pair, PROMPT, settings).finish()
    assert unspoiled.token_ids[: len(recording.token_ids)] == recording.token_ids


def raising(error: Exception) -> Callable[..., Tensor]:
    def fail(*_):
        raise error

    return fail


GPU_FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
GONE = torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might be …")
CASES = [
    (lambda logits: torch.empty(1 << 60), "target", BadInput, "ran out of memory"),
    (raising(MemoryError()), "target", BadInput, "ran out of memory"),
    (raising(GPU_FULL), "drafter", BadInput, "ran out of memory"),
    (raising(GONE), "target", DeviceLost, r"\(CUDA"),
    (raising(RuntimeError("CUDA driver error: device is lost")), "drafter", DeviceLost, r"\(CUDA"),
    (raising(RuntimeError("shapes do not match")), "target", RuntimeError, "shapes do not match"),
]


def test_memory_and_devices_that_fail_while_decoding_are_one_line(pair):
    for how, whose, error, message in CASES:
        recording = Recording(failing(pair, whose, 12, how), PROMPT, replace(SETTINGS, max_new_tokens=100))
        with pytest.raises(error, match=message) as caught:
            recording.finish()
        assert "\n" not in str(caught.value) and recording.run().rounds, message
    assert Recording(pair, PROMPT, SETTINGS).finish().token_ids  # the models themselves are unharmed
    for how, message in ((raising(GONE), "does not answer"), (raising(MemoryError()), "ran out of memory")):
        broken = failing(pair, "target", 3, how)
        with pytest.raises(MarsVizError, match=message):
            decode_alone(broken, (5, 6, 7), SETTINGS)
        with pytest.raises(MarsVizError, match=message):
            measure_costs(broken, 2, settings=SETTINGS)


def test_a_device_that_fails_while_the_models_move_there(monkeypatch):
    gone = torch.AcceleratorError("CUDA error: no CUDA-capable device is detected")
    monkeypatch.setattr(LlamaForCausalLM, "to", raising(gone))
    with pytest.raises(DeviceLost, match="no CUDA-capable device"):
        load_backend(device="cpu")
    monkeypatch.setattr(LlamaForCausalLM, "to", raising(GPU_FULL))
    with pytest.raises(TooLarge, match=r"need \d+ MB .*, and [\d.]+ .B are free on cpu. Take smaller") as error:
        load_backend(device="cpu")
    assert error.value.need > 1e6 and "\n" not in str(error.value)


def test_prefixes_that_the_models_cannot_read(pair):
    speculator = pair.speculator(SETTINGS)
    for prefix, message in (
        ((), "at least one token"),
        ((5, 4096, 7), "token 4096 is outside the models' vocabulary of 4096"),
        ((5, -1), "token -1 is outside"),
        ((5,) * 512, "context of 512"),
        ((5,) * 600, "fills the models' context"),
    ):
        with pytest.raises(BadInput, match=message):
            speculator.speculate([(5, 6, 7), prefix])
    long = tuple(range(5, 5 + pair.context))
    for length in (pair.context - 3, pair.context - 1):
        full, roomy = speculator.speculate([long[:length], (5, 6, 7)])
        assert (len(full.speculation), len(roomy.speculation)) == (min(4, pair.context - length), 4)
    with pytest.raises(BadInput, match="shorten the prompt") as error:
        Recording(pair, "The cat sat on the mat. " * 4_000, SETTINGS)
    assert len(str(error.value)) < 200


def test_callers_tell_errors_apart_by_type(tmp_path):
    run = mars_viz.load_run(ROOT / "sample_runs" / "1-story-mars")
    how = ({"rule": "no-such-rule"}, {"dial": 7.0}, {"gamma": 0}, {"drafter": "ngram:n=0"}, {"device": "abacus"})
    for kind, wrong in (
        *((errors.SettingError, lambda how=how: mars_viz.record("x", **how)) for how in how),
        (errors.PromptError, lambda: mars_viz.record("")),
        (errors.PromptError, lambda: mars_viz.record([])),
        (errors.ModelError, lambda: mars_viz.record("x", target=tmp_path / "none", drafter=tmp_path / "none")),
        (errors.ModelError, lambda: mars_viz.record("x", drafter=tmp_path)),
        (errors.EvidenceError, lambda: run.dial_map.segment(run.dial_map.span.high + 1)),
        (errors.RunFileError, lambda: mars_viz.load_run(tmp_path / "none")),
        (errors.RunFileError, lambda: mars_viz.load_run(tmp_path)),
        (errors.StorageError, lambda: run.save(tmp_path)),
    ):
        with pytest.raises(BadInput) as caught:
            wrong()
        assert type(caught.value) is kind and caught.value.exit_code == 2
