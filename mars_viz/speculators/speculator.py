"""Speculations from a target and a drafter: draft, score, compute the evidence."""

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
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import Branches, Draft, Drafter, Scored, ScoresTrees, Target, TopLogits
from mars_viz.speculators.draft_batch import DraftBatch, Trees
from mars_viz.speculators.evidence import Waiting, gather_evidence, record_top_logits
from mars_viz.trees import first_path, leaves, path_to
from mars_viz.walk import Answer, Prefix


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of texts that a target and a drafter can continue."""

    vocabulary_size: int  # V; ids are below it
    context: int  # maximum number of tokens


class DraftAndScore:
    """The speculator over an open target and an open drafter, whose caches follow the requested prefixes."""

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
        """Choose the evidence of answers: everything, or the columns that all rules use plus `needs`.

        With `later`, inputs of the remaining evidence are kept for `complete`. If a controller cuts drafts, all
        evidence is computed at once, because the controller decides by it.
        """
        self._target, self._drafter, self._limits = target, drafter, limits
        self._settings, self._control = settings, settings.control
        self._needs = needs if self._control is None else None
        self._waiting = Waiting(settings) if later and self._control is None else None

    def prefill(self, *prompts: Prefix) -> float:
        """Read all of each prompt except its last token; return the seconds it took."""
        began = time.perf_counter()
        unread = [prompt[:-1] for prompt in prompts if len(prompt) > 1]
        with inference():
            self._target.prefill(unread)
            self._drafter.prefill(unread)
        return time.perf_counter() - began

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """Draft after each prefix, score the drafts in one batch, and remove tokens after a controller's cut.

        There are several batches only if the context limits the draft length of some prefixes. The time of a batch is
        divided among its answers. Raises BadInput for a prefix that the models cannot read or that fills their context,
        for logits that are no numbers, and if the device runs out of memory.
        """
        for prefix in prefixes:
            _check(prefix, self._limits)
        lengths = [min(self._settings.gamma, self._limits.context - len(prefix)) for prefix in prefixes]
        answers: dict[int, Answer] = {}
        with inference():
            if len(set(lengths)) == 1:
                return [cut_by(self._control, answer) for answer in self._speculate(prefixes, lengths[0])]
            for length in sorted(set(lengths), reverse=True):
                batch = [i for i, each in enumerate(lengths) if each == length]
                batch_answers = self._speculate([prefixes[i] for i in batch], length)
                answers |= dict(zip(batch, batch_answers, strict=True))
        return [cut_by(self._control, answers[i]) for i in range(len(prefixes))]

    def drafted(self, prefix: Prefix, steps: int, count: int) -> Answer:
        """Draft `steps` tokens after one prefix and score the first `count` of them.

        This is the cost of a drafter that detects a controller's cut with its last pass; used without a controller in
        `settings`. Raises BadInput like `speculate`.
        """
        _check(prefix, self._limits)
        with inference():
            (answer,) = self._speculate([prefix], min(steps, self._limits.context - len(prefix)), count)
        return answer

    def complete(self, speculations: Sequence[Speculation]) -> list[Speculation]:
        """Return these speculations with all evidence. Each can be completed once."""
        if self._waiting is None:
            return list(speculations)
        with inference():
            return self._waiting.complete(speculations)

    def _speculate(self, prefixes: Sequence[Prefix], steps: int, count: int | None = None) -> list[Answer]:
        """Draft `steps` tokens after each prefix and score the first `count` of them (None: all)."""
        began, share = time.perf_counter(), 1 / len(prefixes)
        full = self._drafter.draft(prefixes, steps)
        draft = full if count is None else full.first(count)
        drafted = time.perf_counter()
        scored = scored_by(self._target, prefixes, draft)
        verified = time.perf_counter()
        speculations = self._recorded(tuple(map(len, prefixes)), draft, scored)
        read = [speculation.tokens.tolist() for speculation in speculations]
        self._drafter.observe(read if draft is full else full.tokens.tolist())
        if draft.branches is not None:  # of a tree, the first path stands in the cache as a chain does
            read = [tokens[: first_path(parents)] for tokens, parents in zip(read, draft.branches, strict=True)]
        self._target.observe(read)
        timing = Timing(
            draft=(drafted - began) * share,
            verify=(verified - drafted) * share,
            evidence=(time.perf_counter() - verified) * share,
        )
        return [Answer(speculation, timing) for speculation in speculations]

    def _recorded(self, starts: tuple[int, ...], draft: Draft, scored: Scored) -> list[Speculation]:
        """Return the records of the drafts; drafts of equal length are recorded together."""
        if isinstance(scored, TopLogits):
            return record_top_logits(starts, draft, scored, self._settings, self._limits.vocabulary_size)
        logits = draft.spread(scored.shape[-1])
        lengths = draft.lengths or (draft.tokens.shape[1],) * len(starts)
        speculations: dict[int, Speculation] = {}
        for length in dict.fromkeys(lengths):
            some = [i for i, each in enumerate(lengths) if each == length]
            whole = len(some) == len(starts)
            index: slice | Tensor = slice(None) if whole else torch.tensor(some, device=scored.device)
            blocks = DraftBatch.of(
                tuple(starts[i] for i in some),
                draft.tokens[index, :length],
                None if logits is None else logits[index, :length],
                scored[index, : length + 1],
                sampled=self._settings.temperature > 0,
                trees=Trees.of(draft, some),
                passes=None if draft.passes is None else np.stack([draft.passes[i] for i in some]),
            )
            speculations |= zip(some, gather_evidence(blocks, self._settings, self._needs, self._waiting), strict=True)
        return [speculations[i] for i in range(len(starts))]


def scored_by(target: Target, prefixes: Sequence[Prefix], draft: Draft) -> Scored:
    """Return the target's scores of a draft; trees are scored path by path if the target cannot score them in one
    pass."""
    if draft.branches is None or not draft.tokens.shape[1]:
        return target.score(prefixes, draft.tokens)
    if isinstance(target, ScoresTrees):
        return target.score_trees(prefixes, draft.tokens, draft.branches)
    return _by_paths(target, prefixes, draft.tokens, draft.branches)


def _by_paths(target: Target, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Scored:
    """Score each path of each tree after its prefix, all in one batch."""
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
