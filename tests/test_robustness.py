"""Faults of models, devices and records: each is one line, in its place, and keeps what was made before."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from factories import ROOT, with_passes
from torch import Tensor
from transformers import LlamaForCausalLM

import mars_viz
from mars_viz import errors, runfiles, samples
from mars_viz.errors import BadInput, DeviceLost, MarsVizError, TooLarge, contained
from mars_viz.exploration import mapped
from mars_viz.race import load_race, save_race
from mars_viz.recording import Recording
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.costs import measure_costs
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.networks import Network
from mars_viz.sweep import load_sweep
from mars_viz.ui import library, live
from mars_viz.ui.tune import catalogue
from mars_viz.ui.tune.catalogue import CachedSweep
from tests.sweep_cases import toy_sweep
from tests.tabs import opened
from tests.test_race import toy_race
from tests.test_runfiles import run_with_map

PROMPT = "Once upon a time, there was a little"
SETTINGS = Settings(rule="strict", gamma=4, max_new_tokens=32)


class Failing(Network):
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


@dataclass
class Fault:
    at: int  # the access at which it is raised
    error: type[Exception]
    accesses: int = 0

    def put(self, record: Any) -> Any:
        """Return the same record, which raises the fault."""
        fault, kind = self, type(record)

        class Watched(kind):
            __slots__ = ()

            def __getattribute__(self, name: str) -> Any:
                fault.accesses += not name.startswith("_")
                if fault.accesses == fault.at and not name.startswith("_"):
                    raise fault.error("a fault that was put here")
                return super().__getattribute__(name)

        watched = copy(record)
        object.__setattr__(watched, "__class__", Watched)
        return watched


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    for name in ("a-good", "b-bad"):
        run = run_with_map(0.5, (2, 6), temperature=0.0, dial=0.8)
        mapped(replace(run.unmapped, title=f"A {name[2:]} story"), run.dial_map).save(folder / "runs" / name)
    save_race(toy_race(), folder / "races" / "1-race")
    toy_sweep(folder / "sweeps" / "a-mars", 4).finish()
    return folder


@pytest.fixture
def folder(made, monkeypatch):
    for variable, name in (("RUNS", "runs"), ("SAMPLES", "runs"), ("SWEEPS", "sweeps")):
        monkeypatch.setenv(f"MARS_VIZ_{variable}", str(made / name))
    monkeypatch.setattr(samples, "RACES", made / "races")
    return made


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("gallery", {}),
        ("learn", {"run": "b-bad"}),
        ("compare", {"run": "b-bad"}),
        ("compare", {"run": "a-good", "across": "runs"}),
        ("explore", {"run": "b-bad"}),
        ("rules", {"run": "b-bad"}),
        ("live", {"view": "race"}),
        ("tune", {}),
    ],
)
def test_a_fault_in_a_record_stays_where_it_is_drawn(faults, folder, monkeypatch, page, link):
    for at, error in ((1, OverflowError), (12, MemoryError)):
        fault = Fault(at, error)
        broken = fault.put(load_run(folder / "runs" / "b-bad"))
        runs = lambda path, changed: broken if path.name == "b-bad" else load_run(path)  # noqa: B023, E731
        monkeypatch.setattr(library, "_loaded", runs)
        race = fault.put(load_race(folder / "races" / "1-race"))
        monkeypatch.setattr(live, "_loaded", lambda path, changed: race)  # noqa: B023
        study = fault.put(CachedSweep(load_sweep(folder / "sweeps" / "a-mars")))
        monkeypatch.setattr(catalogue, "_study", lambda path, finished, changed: study)  # noqa: B023
        tab = opened(f"pages/{page}.py", **link)  # asserts that the page does not fail
        assert fault.accesses >= at
        shown = " ".join(html.body for html in tab.html)
        assert error.__name__ in shown or page == "gallery" or "across" in link, at
        assert [one.exc_info[0] for one in faults if one.exc_info] == [error] * len(faults) and faults, at
        if page == "gallery":
            assert any("A good story" in html.body and "<img" in html.body for html in tab.html)
        faults.clear()


def test_a_run_that_cannot_be_listed_is_listed_with_its_fault(faults, folder, monkeypatch):
    real, error = runfiles._remembered, KeyError

    def about(data):
        if b"A bad story" in data:
            raise error("a fault that was put here")
        return real(data)

    monkeypatch.setattr(runfiles, "_remembered", about)
    for error in (OSError, RecursionError, KeyError):
        good, bad = runfiles.list_runs(folder / "runs")
        assert not good.error and (error.__name__ in bad.error or error is OSError)
    faults.clear()


def test_what_is_contained_is_in_the_log_with_its_traceback(faults):
    with pytest.raises(BadInput, match="^This run cannot be shown .KeyError;"), contained("This run"):
        {}["missing"]
    for error in (BadInput("as it is"), KeyboardInterrupt("as it is")):
        with pytest.raises(type(error), match="^as it is$"), contained("This run"):
            raise error
    (record,) = faults
    assert record.exc_info is not None and record.exc_info[0] is KeyError
    faults.clear()
