"""Rounds of batches on this device, measured with the decoding code itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from mars_viz.errors import ModelError, SettingError
from mars_viz.load import SIZES, Load
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import inference, wait_for
from mars_viz.speculators.networks.batched import SETTLED
from mars_viz.walk import Prefix, step

LEAST = 5  # repeats, at any duration
SECONDS = 20.0  # after which no further repeat begins


def measuring(
    backend: Backend, settings: Settings, sizes: Sequence[int] = SIZES, length: int = 128, seconds: float = SECONDS
) -> Iterator[float | Load]:
    """Measure rounds of `sizes` texts of `length` tokens in turn; yield the finished share, and the result at the end.

    Sizes for which the device has too little memory are left out. Raises BadInput for drafts of trees or a controller,
    and if the context is too small.
    """
    gamma = settings.gamma
    length = min(length, backend.context - gamma - 2)
    if settings.drafts_trees or settings.control is not None or length < 2:
        raise SettingError("Batches are measured for chains without a controller that fit the context; take such.")
    lengths = sorted({0, gamma, *(count for count in (1, 2, 4, 8) if count < gamma)})
    rounds: dict[tuple[int, int], Callable[[], object]] = {}
    for size in sizes:
        try:
            made = {(size, count): _round(backend, settings, size, count, length) for count in lengths}
            for each in made.values():
                for _ in range(1 if backend.place.type == "cpu" else SETTLED):
                    each()
        except ModelError:  # too little memory
            if not rounds:
                raise
            break
        rounds |= made
        yield 0.0
    times: dict[tuple[int, int], list[float]] = {key: [] for key in rounds}
    began = time.perf_counter()
    for done in itertools.count(1):
        for key, each in rounds.items():
            wait_for(backend.place)
            start = time.perf_counter()
            each()
            wait_for(backend.place)
            times[key].append(time.perf_counter() - start)
        spent = time.perf_counter() - began
        yield min(1.0, done / LEAST, spent / max(seconds, 1e-3))
        if done >= LEAST and spent >= seconds:
            break
    kept = tuple(dict.fromkeys(size for size, _ in rounds))
    found = tuple(tuple(float(np.quantile(times[size, count], 0.25)) for count in lengths) for size in kept)
    yield Load(backend.device, backend.dtype, kept, tuple(lengths), found, done)


def _round(backend: Backend, settings: Settings, size: int, count: int, length: int) -> Callable[[], object]:
    """Return a round of `size` different texts that draft `count` tokens; of none, a pass of the target."""
    texts: list[Prefix] = [
        tuple((text * 131 + place * 7919) % backend.vocabulary_size for place in range(length)) for text in range(size)
    ]
    short = replace(settings.law, rule=settings.rule, gamma=max(1, count), seed=settings.seed)
    if not count:
        target, _ = backend.opened(short)
        with inference():
            target.prefill([text[:-1] for text in texts])
        return partial(_scored, target, texts, torch.zeros(size, 0, dtype=torch.int64))
    rule = rule_named(settings.rule)
    speculator = backend.speculator(short, rule.needs)
    speculator.prefill(*texts)
    ending, dial = backend.ending(replace(short, max_new_tokens=count + 1)), rule.checked_dial(settings.dial)

    def decided() -> None:
        for answer in speculator.speculate(texts):
            step(answer, rule.judge(answer.speculation), dial, ending, text=())

    return decided


def _scored(target: object, texts: Sequence[Prefix], none: torch.Tensor) -> None:
    with inference():
        target.score(texts, none.to(target.device)).argmax(-1).cpu()  # type: ignore[attr-defined]
