"""The target by itself, a pass a token: what speculative decoding is compared with. Knows models; knows no rules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from mars_viz.randomness import position_uniforms
from mars_viz.run import Settings
from mars_viz.speculators.largest import best
from mars_viz.speculators.laws import draw, law, on_device, wait_for
from mars_viz.speculators.loading import Pair
from mars_viz.speculators.trouble import inference


@dataclass(frozen=True, slots=True)
class Written:
    """One token that the target wrote by itself."""

    token: int
    """Its id."""
    seconds: float
    """Wall-clock time from the start until it was there, the prompt's own pass excluded."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A text that the target wrote by itself."""

    token_ids: tuple[int, ...]
    """The emitted tokens."""
    seconds: float
    """Wall-clock time, the prompt's own pass excluded."""


def decode_alone(pair: Pair, prompt: Sequence[int], settings: Settings) -> Alone:
    """Decode with the target alone: its best token at temperature 0, else its sample keyed by position."""
    written = list(writing_alone(pair, prompt, settings))
    return Alone(tuple(each.token for each in written), written[-1].seconds)


def writing_alone(pair: Pair, prompt: Sequence[int], settings: Settings) -> Iterator[Written]:
    """The same, a token at a time; the clock stands still while the caller has one."""
    ending = pair.ending(settings)
    network = pair.open_target()
    ids = torch.tensor([list(prompt)], device=network.device)
    if ids.shape[1] > 1:
        with inference():
            network.score(ids[:, :-1], [0], 1)
    wait_for(network.device)
    ids, length, seconds = ids[:, -1:], len(prompt), 0.0
    text: list[int] = []
    while True:
        began = time.perf_counter()
        with inference():  # never across a yield: it would be the caller's mode too
            logits = network.score(ids, [length - 1], 1)  # [1, 1, V]
            if settings.temperature == 0:
                ids = best(logits)
            else:
                uniforms = on_device(position_uniforms(settings.seed, length, 1), network.device)
                ids = draw(law(logits, settings), uniforms[None])
            text.append(int(ids))
        length += 1
        seconds += time.perf_counter() - began
        yield Written(text[-1], seconds)
        if ending.reached(text):
            return
