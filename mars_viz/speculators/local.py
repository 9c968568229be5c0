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
from mars_viz.speculators.evidence import Block, gather_evidence
from mars_viz.speculators.loading import Pair
from mars_viz.walk import Answer


class LocalSpeculator:
    """Keeps both models' caches in step with the prefixes it is asked about."""

    def __init__(self, pair: Pair, settings: Settings, *, full_evidence: bool = True):
        self._target = CachedModel(pair.target, pair.vocabulary_size)
        self._drafting = CachedModel(pair.drafter, pair.vocabulary_size)
        self._drafter = ModelDrafter(self._drafting, settings)
        self._settings = settings
        self._context = pair.context
        self._full = full_evidence

    def prefill(self, prompt: tuple[int, ...]) -> float:
        """Read all of the prompt but its last token; returns the seconds it took."""
        began = time.perf_counter()
        with _on_device():
            for model in (self._target, self._drafting):
                unread = model.rewind(prompt)[:-1]
                if unread:
                    model.logits(torch.tensor(unread, device=model.device), rows=1)
                    model.remember(unread)
        return time.perf_counter() - began

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """Draft after each prefix and score the drafts, one prefix after the other.

        Raises BadInput when the device runs out of memory.
        """
        with _on_device():
            return [self._speculate(prefix) for prefix in prefixes]

    def _speculate(self, prefix: tuple[int, ...]) -> Answer:
        clock = [time.perf_counter()]
        count = min(self._settings.gamma, self._context - len(prefix))
        tokens, draft_logits = self._drafter.draft(prefix, count)
        clock.append(time.perf_counter())
        unread = self._target.rewind(prefix)
        ids = torch.cat([torch.tensor(unread, device=self._target.device), tokens.to(self._target.device)])
        logits = self._target.logits(ids, rows=count + 1)
        clock.append(time.perf_counter())
        block = Block(
            start=len(prefix),
            tokens=ids[-count:],
            drafter=draft_logits.to(logits.device),
            target=logits,
            sampled=self._settings.temperature > 0,
        )
        speculation = gather_evidence(block, self._settings, full=self._full)
        drafted = speculation.tokens.tolist()
        self._target.remember([*unread, *drafted])
        self._drafter.committed(drafted)
        clock.append(time.perf_counter())
        draft, verify, evidence = (later - earlier for earlier, later in zip(clock, clock[1:], strict=False))
        return Answer(speculation, Timing(draft=draft, verify=verify, evidence=evidence))


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
