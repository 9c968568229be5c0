"""Speculations from a target and a drafter on this machine. Knows when each reads what; knows no rules."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from mars_viz.errors import BadInput
from mars_viz.records import Timing
from mars_viz.run import Settings
from mars_viz.speculators.blocks import Blocks
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.drafters.model import ModelDrafter
from mars_viz.speculators.evidence import gather_evidence
from mars_viz.speculators.extent import Extent
from mars_viz.speculators.loading import Pair
from mars_viz.speculators.transfers import sent
from mars_viz.speculators.trouble import inference
from mars_viz.speculators.waiting import Waiting
from mars_viz.walk import Answer


class LocalSpeculator:
    """Keeps both models' caches in step with the prefixes it is asked about."""

    def __init__(self, pair: Pair, settings: Settings, extent: Extent = Extent.WHOLE):
        """`extent` says how much evidence an answer carries; see `complete`."""
        self._target = CachedModel(pair.open_target())
        self._drafting = CachedModel(pair.open_drafter())
        self._drafter = ModelDrafter(self._drafting, settings)
        self._settings = settings
        self._context, self._vocabulary_size = pair.context, pair.vocabulary_size
        self._extent, self._waiting = extent, Waiting(settings)

    def prefill(self, *prompts: tuple[int, ...]) -> float:
        """Read all of each prompt but its last token; returns the seconds it took."""
        began = time.perf_counter()
        unread = [prompt[:-1] for prompt in prompts if len(prompt) > 1]
        with inference():
            for model in (self._target, self._drafting):
                model.read(unread)
        return time.perf_counter() - began

    def speculate(self, prefixes: Sequence[tuple[int, ...]]) -> list[Answer]:
        """Draft after each prefix and score the drafts, all prefixes in one batch.

        Only where the context leaves some of them less room to draft are there more batches. The time of a batch is
        shared out among its answers. Raises BadInput for a prefix that the models cannot read or that fills their
        context, for logits that are no numbers, and when the device runs out of memory.
        """
        for prefix in prefixes:
            _check(prefix, self._vocabulary_size, self._context)
        rooms = [min(self._settings.gamma, self._context - len(prefix)) for prefix in prefixes]
        answers: dict[int, Answer] = {}
        with inference():
            if len(set(rooms)) == 1:
                return self._speculate(prefixes, rooms[0])
            for room in sorted(set(rooms), reverse=True):
                batch = [i for i, own in enumerate(rooms) if own == room]
                found = self._speculate([prefixes[i] for i in batch], room)
                answers |= dict(zip(batch, found, strict=True))
        return [answers[i] for i in range(len(prefixes))]

    def complete(self) -> None:
        """Fill in what the answers so far were left to hear of afterwards, in place."""
        with inference():
            self._waiting.complete()

    def _speculate(self, prefixes: Sequence[tuple[int, ...]], count: int) -> list[Answer]:
        began, share = time.perf_counter(), 1 / len(prefixes)
        starts = tuple(map(len, prefixes))
        own = self._drafter.rewind(prefixes)
        reading = time.perf_counter()
        unread = self._target.rewind(prefixes)
        reading = time.perf_counter() - reading
        tails = sent([prefix[-max(own, unread) :] for prefix in prefixes], self._target.device)
        drafted = self._drafter.draft(tails[:, -own:], starts, count)
        drafting = time.perf_counter()
        ids = torch.cat([tails[:, -unread:], *drafted.tokens], 1)  # [B, n + N]
        logits = self._target.logits(ids, rows=count + 1)
        verifying = time.perf_counter()
        sampled = self._settings.temperature > 0
        blocks = Blocks.of(starts, ids[:, -count:], drafted.logits, logits, sampled=sampled)
        speculations = gather_evidence(blocks, self._settings, self._extent, self._waiting)
        read = [speculation.tokens.tolist() for speculation in speculations]
        self._target.remember(read)
        self._drafter.committed(read)
        timing = Timing(
            draft=(drafting - began - reading) * share,
            verify=(verifying - drafting + reading) * share,
            evidence=(time.perf_counter() - verifying) * share,
        )
        return [Answer(speculation, timing) for speculation in speculations]


def _check(prefix: tuple[int, ...], vocabulary_size: int, context: int) -> None:
    if not prefix:
        raise BadInput("There is nothing to go on from; write a prompt of at least one token.")
    if min(prefix) < 0 or max(prefix) >= vocabulary_size:
        foreign = next(token for token in prefix if not 0 <= token < vocabulary_size)
        raise BadInput(
            f"The token {foreign} is outside the models' vocabulary of {vocabulary_size}; "
            "take the pair that the text was made with."
        )
    if len(prefix) >= context:
        raise BadInput(
            f"The text has {len(prefix)} tokens, which fills the models' context of {context}; "
            "ask for fewer new tokens, or shorten the prompt."
        )
