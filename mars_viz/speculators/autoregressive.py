"""The target alone, one pass per token, as the reference for speculative decoding."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from mars_viz.errors import EvidenceError
from mars_viz.randomness import position_uniforms
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import inference, wait_for
from mars_viz.speculators.draft import NO_SAMPLE, Scored, TopLogits
from mars_viz.speculators.sampling import draw, law, on_device
from mars_viz.speculators.topk import best
from mars_viz.walk import Prefix


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """A token written by the target alone."""

    token: int
    seconds: float  # wall-clock time from the start, without the prompt's own pass


@dataclass(frozen=True, slots=True)
class Alone:
    """A text written by the target alone."""

    token_ids: tuple[int, ...]  # the emitted tokens
    seconds: float  # wall-clock time, without the prompt's own pass


def decode_alone(backend: Backend, prompt: Sequence[int], settings: Settings) -> Alone:
    """Decode with the target alone: its best token at temperature 0, otherwise its sample keyed by position."""
    written = list(writing_alone(backend, prompt, settings))
    return Alone(tuple(each.token for each in written), written[-1].seconds)


def writing_alone(backend: Backend, prompt: Sequence[int], settings: Settings) -> Iterator[WrittenToken]:
    """Yield tokens of the target alone; the clock is paused between tokens."""
    ending, target = backend.ending(settings), backend.target.open()
    prefix, nothing = tuple(prompt), torch.empty((1, 0), dtype=torch.int64, device=target.device)
    if len(prefix) > 1:
        with inference():
            target.prefill([prefix[:-1]])
    wait_for(target.device)
    seconds = 0.0
    while True:
        began = time.perf_counter()
        with inference():  # never across a yield: it would be the caller's mode too
            token = _next(target.score([prefix], nothing), settings, len(prefix))
            target.observe([()])
        prefix += (token,)
        seconds += time.perf_counter() - began
        yield WrittenToken(token, seconds)
        if ending.reached(prefix[len(prompt) :]):
            return


def writes(backend: Backend, prompt: Prefix, token_ids: Prefix) -> bool:
    """Return True if the target at temperature 0 writes these tokens after the prompt, by a plain pass over the
    complete text.

    Caches are not reused. A token counts as the target's best one if their logits differ by no more than rounding: 1e-4
    of the larger one in float32, two steps of the dtype in others.
    """
    target = backend.target.open()
    ids = torch.tensor([token_ids], dtype=torch.int64, device=target.device)
    with inference():
        if len(prompt) > 1:
            target.prefill([prompt[:-1]])
        scored = target.score([prompt], ids)
    if isinstance(scored, TopLogits):
        top, written = torch.from_numpy(scored.logits[0, :-1, 0]), scored.drafted
        if written is None:
            return scored.ids[0, :-1, 0].tolist() == list(token_ids)
        logits = torch.from_numpy(written[0])
    else:
        top = scored[0, :-1].amax(-1)
        logits = scored[0, :-1].gather(-1, ids[0, :, None])[:, 0]
    dtype = getattr(torch, backend.dtype, torch.bfloat16)  # a server does not name its own
    return bool((top - logits <= max(1e-4, 2 * torch.finfo(dtype).eps) * top.abs()).all())


def _next(scored: Scored, settings: Settings, position: int) -> int:
    """Return the token for this position: the best one at temperature 0, otherwise the sample keyed by position."""
    if isinstance(scored, TopLogits):
        if settings.temperature > 0:
            raise EvidenceError(NO_SAMPLE)
        return int(scored.ids[0, 0, 0])
    if settings.temperature == 0:
        return int(best(scored))
    uniforms = on_device(position_uniforms(settings.seed, position, 1), scored.device)
    return int(draw(law(scored, settings), uniforms[None]))
