"""Speculations from a target and a drafter on this machine. Knows when each reads what; knows no rules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from mars_viz.errors import BadInput
from mars_viz.records import Timing
from mars_viz.run import Settings
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.drafters.model import ModelDrafter
from mars_viz.speculators.evidence import Blocks, gather_evidence
from mars_viz.speculators.loading import Pair
from mars_viz.walk import Answer


class LocalSpeculator:
    """Keeps both models' caches in step with the prefixes it is asked about."""

    def __init__(self, pair: Pair, settings: Settings, *, full_evidence: bool = True):
        self._target = CachedModel(pair.open_target())
        self._drafting = CachedModel(pair.open_drafter())
        self._drafter = ModelDrafter(self._drafting, settings)
        self._settings = settings
        self._context = pair.context
        self._full = full_evidence

    def prefill(self, prompt: tuple[int, ...]) -> float:
        """Read all of the prompt but its last token; returns the seconds it took."""
        began = time.perf_counter()
        with _on_device():
            for model in (self._target, self._drafting) if len(prompt) > 1 else ():
                model.logits(model.rewind([prompt[:-1]]), rows=1)
        return time.perf_counter() - began

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """Draft after each prefix and score the drafts, all prefixes in one batch.

        Only where the context leaves some of them less room to draft are there more batches. The time of a batch is
        shared out among its answers. Raises BadInput when the device runs out of memory.
        """
        rooms = [min(self._settings.gamma, self._context - len(prefix)) for prefix in prefixes]
        answers: dict[int, Answer] = {}
        with _on_device():
            for room in sorted(set(rooms), reverse=True):
                batch = [i for i, own in enumerate(rooms) if own == room]
                found = self._speculate([prefixes[i] for i in batch], room)
                answers |= dict(zip(batch, found, strict=True))
        return [answers[i] for i in range(len(prefixes))]

    def _speculate(self, prefixes: Sequence[tuple[int, ...]], count: int) -> list[Answer]:
        clock = [time.perf_counter()]
        tokens, draft_logits = self._drafter.draft(prefixes, count)
        clock.append(time.perf_counter())
        unread = self._target.rewind(prefixes)
        ids = torch.cat([unread, tokens.to(unread.device)], 1)
        logits = self._target.logits(ids, rows=count + 1)
        clock.append(time.perf_counter())
        blocks = Blocks(
            starts=tuple(len(prefix) for prefix in prefixes),
            tokens=ids[:, -count:],
            drafter=draft_logits.to(logits.device),
            target=logits,
            sampled=self._settings.temperature > 0,
        )
        speculations = gather_evidence(blocks, self._settings, full=self._full)
        drafted = [speculation.tokens.tolist() for speculation in speculations]
        self._target.remember(drafted)
        self._drafter.committed(drafted)
        clock.append(time.perf_counter())
        shares = ((later - earlier) / len(prefixes) for earlier, later in zip(clock, clock[1:], strict=False))
        timing = Timing(*shares)
        return [Answer(speculation, timing) for speculation in speculations]


@contextmanager
def _on_device() -> Iterator[None]:
    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError as error:
        raise BadInput(
            "The device ran out of memory while decoding. Shorten the prompt, ask for fewer tokens, take a smaller "
            "dtype, or decode on the CPU (--device cpu)."
        ) from error
