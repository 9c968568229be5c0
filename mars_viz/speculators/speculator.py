"""Speculations from a target and a drafter: draft, score, compute the evidence. Knows when each reads what; knows no
rules."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.errors import ModelError, PromptError
from mars_viz.records import Speculation, Timing
from mars_viz.replay import cut_by
from mars_viz.run import Settings
from mars_viz.speculators.device_errors import inference
from mars_viz.speculators.draft import Branches, Draft, Drafter, Scored, ScoresTrees, Target, TopLogits
from mars_viz.speculators.draft_batch import DraftBatch, Trees
from mars_viz.speculators.evidence import gather_evidence, record_top_logits
from mars_viz.speculators.waiting import Waiting
from mars_viz.trees import first_path, leaves, path_to
from mars_viz.walk import Answer, Prefix


@dataclass(frozen=True, slots=True)
class Limits:
    """What texts a target and a drafter can go on with."""

    vocabulary_size: int
    """V; ids are below it."""
    context: int
    """Tokens at most."""


class DraftAndScore:
    """The speculator over an open target and an open drafter, whose caches follow the prefixes it is asked about."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        limits: Limits,
        settings: Settings,
        needs: Collection[str] | None = None,
        *,
        later: bool = False,
    ):
        """An answer carries all evidence, or what every rule decides by and the columns of `needs`; `later` then keeps
        what the rest is made of for `complete`. Where a controller cuts drafts, all evidence is made at once: by it
        the controller decides, and what it leaves is what there is.
        """
        self._target, self._drafter, self._limits = target, drafter, limits
        self._settings, self._control = settings, settings.control
        self._needs = needs if self._control is None else None
        self._waiting = Waiting(settings) if later and self._control is None else None

    def prefill(self, *prompts: Prefix) -> float:
        """Read all of each prompt but its last token; returns the seconds it took."""
        began = time.perf_counter()
        unread = [prompt[:-1] for prompt in prompts if len(prompt) > 1]
        with inference():
            self._target.prefill(unread)
            self._drafter.prefill(unread)
        return time.perf_counter() - began

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """Draft after each prefix and score the drafts, all prefixes in one batch; what a controller would not have
        drafted is then cut away.

        Only where the context leaves some of them less room to draft are there more batches. The time of a batch is
        shared out among its answers. Raises BadInput for a prefix that the models cannot read or that fills their
        context, for logits that are no numbers, and when the device runs out of memory.
        """
        for prefix in prefixes:
            _check(prefix, self._limits)
        rooms = [min(self._settings.gamma, self._limits.context - len(prefix)) for prefix in prefixes]
        answers: dict[int, Answer] = {}
        with inference():
            if len(set(rooms)) == 1:
                return [cut_by(self._control, answer) for answer in self._speculate(prefixes, rooms[0])]
            for room in sorted(set(rooms), reverse=True):
                batch = [i for i, own in enumerate(rooms) if own == room]
                found = self._speculate([prefixes[i] for i in batch], room)
                answers |= dict(zip(batch, found, strict=True))
        return [cut_by(self._control, answers[i]) for i in range(len(prefixes))]

    def drafted(self, prefix: Prefix, steps: int, count: int) -> Answer:
        """Draft so many passes long after one prefix, and score the first `count` tokens: what a drafter does that sees
        with its last pass that the next token is not to be drafted, where no controller of `settings` cuts. Raises
        BadInput as `speculate` does."""
        _check(prefix, self._limits)
        with inference():
            (answer,) = self._speculate([prefix], min(steps, self._limits.context - len(prefix)), count)
        return answer

    def complete(self, speculations: Sequence[Speculation]) -> list[Speculation]:
        """Of each of these answers' speculations the one with all evidence, which is handed out once."""
        if self._waiting is None:
            return list(speculations)
        with inference():
            return self._waiting.complete(speculations)

    def _speculate(self, prefixes: Sequence[Prefix], steps: int, count: int | None = None) -> list[Answer]:
        """Of drafts that took so many steps the first `count` tokens; None for all."""
        began, share = time.perf_counter(), 1 / len(prefixes)
        whole = self._drafter.draft(prefixes, steps)
        draft = whole if count is None else whole.first(count)
        drafted = time.perf_counter()
        scored = scored_by(self._target, prefixes, draft)
        verified = time.perf_counter()
        speculations = self._recorded(tuple(map(len, prefixes)), draft, scored)
        read = [speculation.tokens.tolist() for speculation in speculations]
        self._drafter.observe(read if draft is whole else whole.tokens.tolist())
        if draft.branches is not None:  # of a tree, the first path stands in the cache as a chain does
            read = [own[: first_path(parents)] for own, parents in zip(read, draft.branches, strict=True)]
        self._target.observe(read)
        timing = Timing(
            draft=(drafted - began) * share,
            verify=(verified - drafted) * share,
            evidence=(time.perf_counter() - verified) * share,
        )
        return [Answer(speculation, timing) for speculation in speculations]

    def _recorded(self, starts: tuple[int, ...], draft: Draft, scored: Scored) -> list[Speculation]:
        """The chains' records; those of one length together."""
        if isinstance(scored, TopLogits):
            return record_top_logits(starts, draft, scored, self._settings, self._limits.vocabulary_size)
        logits = draft.spread(scored.shape[-1])
        lengths = draft.lengths or (draft.tokens.shape[1],) * len(starts)
        found: dict[int, Speculation] = {}
        for length in dict.fromkeys(lengths):
            some = [i for i, own in enumerate(lengths) if own == length]
            own = None if len(some) == len(starts) else torch.tensor(some, device=scored.device)
            blocks = DraftBatch.of(
                tuple(starts[i] for i in some),
                _rows(draft.tokens, own, length),
                None if logits is None else _rows(logits, own, length),
                _rows(scored, own, length + 1),
                sampled=self._settings.temperature > 0,
                trees=Trees.of(draft, some),
                passes=None if draft.passes is None else np.stack([draft.passes[i] for i in some]),
            )
            found |= zip(some, gather_evidence(blocks, self._settings, self._needs, self._waiting), strict=True)
        return [found[i] for i in range(len(starts))]


def scored_by(target: Target, prefixes: Sequence[Prefix], draft: Draft) -> Scored:
    """What the target says of a draft; of trees path by path, where it does not score them in one pass."""
    if draft.branches is None or not draft.tokens.shape[1]:
        return target.score(prefixes, draft.tokens)
    if isinstance(target, ScoresTrees):
        return target.score_trees(prefixes, draft.tokens, draft.branches)
    return _by_paths(target, prefixes, draft.tokens, draft.branches)


def _by_paths(target: Target, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Scored:
    """Each path of each tree after a prefix of its own, all in one batch."""
    paths = [(i, path_to(parents, leaf)) for i, parents in enumerate(branches) for leaf in leaves(parents)]
    longest = max(len(path) for _, path in paths)
    padded = [path + path[-1:] * (longest - len(path)) for _, path in paths]
    ids = torch.stack([tokens[i, path] for (i, _), path in zip(paths, padded, strict=True)])
    scored = target.score([prefixes[i] for i, _ in paths], ids)
    b, n = tokens.shape
    at = np.zeros((b, n + 1, 2), np.int64)  # which path says it of each row, and in which place
    for k, (i, path) in enumerate(paths):
        at[i, 0] = k, 0
        at[i, np.array(path) + 1] = [(k, place) for place in range(1, len(path) + 1)]
    if isinstance(scored, Tensor):
        return scored[at[..., 0], at[..., 1]]
    nodes = at[:, 1:, 0], at[:, 1:, 1] - 1
    drafted = None if scored.drafted is None else scored.drafted[nodes]
    return TopLogits(scored.ids[at[..., 0], at[..., 1]], scored.logits[at[..., 0], at[..., 1]], drafted)


def _rows(values: Tensor, chains: Tensor | None, count: int) -> Tensor:
    """[b, count, …] of [B, N, …]: these chains, None for all, and the first of their places."""
    return values[:, :count] if chains is None else values[chains, :count]


def _check(prefix: Prefix, limits: Limits) -> None:
    if not prefix:
        raise PromptError("There is nothing to go on from; write a prompt of at least one token.")
    if min(prefix) < 0 or max(prefix) >= limits.vocabulary_size:
        foreign = next(token for token in prefix if not 0 <= token < limits.vocabulary_size)
        raise ModelError(
            f"The token {foreign} is outside the models' vocabulary of {limits.vocabulary_size}; "
            "take the pair that the text was made with."
        )
    if len(prefix) >= limits.context:
        raise PromptError(
            f"The text has {len(prefix)} tokens, which fills the models' context of {limits.context}; "
            "ask for fewer new tokens, or shorten the prompt."
        )
