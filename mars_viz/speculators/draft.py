"""Interfaces between drafters, targets and the speculator, and drafts with both models' logits. Imports tensors only.

An open target or drafter has its own cache, which follows the requested prefixes: the next prefix shows the accepted
part of the last block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mars_viz.records import Of
from mars_viz.speculators.devices import sent
from mars_viz.trees import leaves, path_to
from mars_viz.walk import Prefix

CACHED = 1 << 18
"""Logits processed at once on a processor: enough for its cores, and few enough for their caches, which need about four
times as much while divergences are computed."""
STARTED = 1 << 23
"""Logits processed at once on other devices: 32 MiB, so that the computation outweighs about two hundred kernel starts.
On an H200 the starts took most of a round's evidence, with a vocabulary of 128,256."""
NO_SAMPLE = "This target gives its best tokens alone, which no sample can be drawn from; decode at temperature 0."
Branches = Sequence[Sequence[int]]
"""Parents of the nodes of each of B trees, -1 for the prefix; in depth-first preorder, see `trees`."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Branching of B trees, on the host. Without `draws` the trees' tokens are the likeliest ones."""

    parents: Branches
    budgets: tuple[np.ndarray, ...]  # int32 [N] each; see `Speculation.budgets`
    draws: tuple[np.ndarray, ...] | None = None  # int32 [N] each, if tokens were drawn; see `Speculation.draws`

    def some(self, chosen: Sequence[int]) -> Trees:
        draws = self.draws and tuple(self.draws[i] for i in chosen)
        return Trees(tuple(self.parents[i] for i in chosen), tuple(self.budgets[i] for i in chosen), draws)


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafts after each of B prefixes: chains or trees of up to N tokens."""

    tokens: Tensor  # int64 [B, N]; arbitrary tokens after a draft's end
    logits: Tensor | None = None
    """float32 [B, N, V']; the raw logits of each draft step. None for deterministic drafts, with q = 1."""
    vocabulary: Tensor | None = None
    """int64 [V']; the target's token of each entry of the drafter's vocabulary; None for the first V' tokens."""
    lengths: tuple[int, ...] | None = None  # number of tokens of each draft; None if all have N
    trees: Trees | None = None  # branching; None for chains
    passes: tuple[np.ndarray, ...] | None = None
    """For drafts as text or in one pass, int32 [n + 1] for n tokens; see `Speculation.drafter_passes`."""
    by: tuple[int, ...] | None = None
    """Which of two drafters made each draft, see `Speculation.drafted_by`; the first has no logits. None for one
    drafter."""

    @classmethod
    def of_chains(
        cls,
        chains: Sequence[Sequence[int]],
        device: torch.device,
        passes: tuple[np.ndarray, ...] | None = None,
        by: tuple[int, ...] | None = None,
    ) -> Draft:
        """Build deterministic chains of any lengths on a device."""
        longest = max(map(len, chains))
        tokens = [[*chain, *(longest - len(chain)) * (0,)] for chain in chains]
        ids = torch.tensor(tokens, dtype=torch.int64, device=device).reshape(len(chains), longest)
        return cls(ids, lengths=tuple(map(len, chains)), passes=passes, by=by)

    def first(self, count: int) -> Draft:
        logits = None if self.logits is None else self.logits[:, :count]
        passes = self.passes and tuple(each[: count + 1] for each in self.passes)
        return replace(self, tokens=self.tokens[:, :count], logits=logits, passes=passes)

    def spread(self, vocabulary_size: int) -> Tensor | None:
        """Return the logits [B, N, V] over the target's vocabulary; tokens that cannot be drafted get -inf."""
        if self.logits is None:
            return None
        if self.vocabulary is None:
            missing = vocabulary_size - self.logits.shape[-1]
            return pad(self.logits, (0, missing), value=-torch.inf) if missing > 0 else self.logits
        rows = self.logits.new_full((*self.logits.shape[:-1], vocabulary_size), -torch.inf)
        rows[..., self.vocabulary] = self.logits
        return rows


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """Return rows [B, n, ...] of [B, R, ...] at these places, int64 [B, n]. Selects whole rows, because gathering
    single entries takes a processor ten times as long."""
    if len(rows) == 1:
        return rows[0].index_select(0, places[0]).unsqueeze(0)
    return rows[torch.arange(len(rows), device=rows.device).unsqueeze(1), places]


@dataclass(frozen=True, slots=True)
class TopLogits:
    """Scores of a target that returns only its best tokens, on the host."""

    ids: np.ndarray  # int64 [B, N + 1, K]; its best tokens, best first, the lower id first if logits are equal
    logits: np.ndarray  # float32 [B, N + 1, K]
    drafted: np.ndarray | None  # float32 [B, N]; the raw logits of the drafted tokens; None if unknown

    @classmethod
    def of_rows(
        cls, rows: Sequence[Sequence[Mapping[int, float]]], width: int, drafted: Sequence[Sequence[float]] | None
    ) -> TopLogits:
        """Build from dicts of token to logit for B texts' N + 1 rows, keeping the best `width`; `drafted` is [B, N]."""
        ordered = [[sorted(row.items(), key=lambda pair: (-pair[1], pair[0]))[:width] for row in each] for each in rows]
        pairs = np.array(ordered, np.float64)  # [B, N + 1, K, 2]; ids are far below 2^53
        logits = None if drafted is None else np.array(drafted, np.float32).reshape(len(rows), -1)
        return cls(pairs[..., 0].astype(np.int64), pairs[..., 1].astype(np.float32), logits)


Scored = Tensor | TopLogits
"""A target's scores after each of B prefixes and each of the N tokens that follow: raw float32 logits [B, N + 1, V], or
its best ones only."""


class Target:
    """The model that writes the text, with its own cache."""

    device: torch.device  # device for drafted tokens

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts into the cache, if there is one."""

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Scored:
        """Score each prefix and each of the tokens [B, N] after it in one pass."""
        raise NotImplementedError

    def score_trees(self, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Scored:
        """Score each prefix and each of the nodes [B, N] after it; here path by path, all in one batch."""
        paths = [(i, path_to(parents, leaf)) for i, parents in enumerate(branches) for leaf in leaves(parents)]
        longest = max(len(path) for _, path in paths)
        padded = [path + path[-1:] * (longest - len(path)) for _, path in paths]
        ids = torch.stack([tokens[i, path] for (i, _), path in zip(paths, padded, strict=True)])
        scored = self.score([prefixes[i] for i, _ in paths], ids)
        b, n = tokens.shape
        at = np.zeros((b, n + 1, 2), np.int64)  # the path that scores each row, and its place there
        for k, (i, path) in enumerate(paths):
            at[i, 0] = k, 0
            at[i, np.array(path) + 1] = [(k, place) for place in range(1, len(path) + 1)]
        rows = at[..., 0], at[..., 1]
        if isinstance(scored, Tensor):
            return scored[rows]
        drafted = None if scored.drafted is None else scored.drafted[at[:, 1:, 0], at[:, 1:, 1] - 1]
        return TopLogits(scored.ids[rows], scored.logits[rows], drafted)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Receive the scored tokens once they are on the host."""


@dataclass(slots=True)
class Spent:
    """Totals over all drafts so far."""

    passes: int = 0  # drafter passes
    tokens: int = 0  # drafted tokens, in the target's tokens


class Drafter:
    """A proposer of tokens, with its own cache."""

    spent: Spent | None = None  # totals of a drafter whose number of passes differs from its number of tokens
    reads_target = False  # True if it reads hidden states of the target
    at_once = False  # True if one pass drafts all tokens

    def follow(self, target: Target) -> None:
        """Set the target; called before any read."""

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts into the cache, if there is one."""

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Draft at most `count` tokens after each prefix."""
        raise NotImplementedError

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Receive the drafted tokens once they are on the host. The next prefixes show the accepted ones."""


def scored_by(target: Target, prefixes: Sequence[Prefix], draft: Draft) -> Scored:
    """Return the target's scores of a draft."""
    if draft.trees is None or not draft.tokens.shape[1]:
        return target.score(prefixes, draft.tokens)
    return target.score_trees(prefixes, draft.tokens, draft.trees.parents)


@dataclass(eq=False)  # no slots: both models' logits are laid side by side when they are first asked for so
class DraftBatch:
    """Drafts of one length and both models' logits on the device; B chains, or B trees, of N tokens."""

    starts: tuple[int, ...]  # absolute position of each chain's first drafted token
    tokens: Tensor  # int64 [B, N]
    drafter: Tensor | None
    """float32 [B, N, V]; the drafter's logits, from which each token was drafted; None for a deterministic draft."""
    target: Tensor  # float32 [B, N + 1, V]; the target's raw logits after the prefix and after each token
    sampled: bool  # whether decoding samples; from then on, whether the tokens were drawn from the drafter's law
    trees: Trees | None = None  # branching; None for chains
    passes: np.ndarray | None = None  # int32 [B, N + 1]; see `Draft.passes`
    by: int | None = None  # which of two drafters made the drafts; None if there is only one
    judging: Tensor | None = None  # int64 [B, N]; the target's row that judges each node of a tree
    columns: dict[str, Tensor] = field(default_factory=dict)
    """Columns of the Speculations, [B, ...] each, that were computed for the decision; see `evidence`."""
    laws: Tensor | None = None
    """float32 [B, 2N + 1, V]; the laws that tokens were drawn from, the target's rows first; None at temperature 0."""

    def __post_init__(self) -> None:
        if self.trees is not None and self.judging is None:
            self.judging = sent(np.array(self.trees.parents, np.int64) + 1, self.target.device)
        self.sampled &= self.drafter is not None and (self.trees is None or self.trees.draws is not None)

    @cached_property
    def logits(self) -> Tensor:
        """float32 [B, R, V]; the target's rows, then the drafter's: R is 2N + 1, or N + 1 for a deterministic draft."""
        return self.target if self.drafter is None else torch.cat([self.target, self.drafter], 1)

    @property
    def like(self) -> tuple[int, int | None]:
        """Equal for batches whose evidence can be computed together: their length and drafter."""
        return self.tokens.shape[1], self.by

    @property
    def kind(self) -> Of:
        if self.trees is None:
            return Of.CHAINS
        return Of.LIKELIEST if self.trees.draws is None else Of.DRAWN

    @property
    def seats(self) -> int:
        """Number of such chains processed at once."""
        rows, vocabulary = self.target.shape[1:]
        at_once = CACHED if self.target.device.type == "cpu" else STARTED
        return at_once // ((rows if self.drafter is None else 2 * rows - 1) * vocabulary)

    def parts(self) -> Iterator[DraftBatch]:
        """Yield the chains, on a processor a few at a time, so that their data stay in its cache."""
        chains = len(self.starts)
        step = max(1, self.seats) if self.target.device.type == "cpu" else chains
        if step >= chains:
            yield self
            return
        for at in range(0, chains, step):
            some = slice(at, at + step)
            fields = {
                name: getattr(self, name) for name in ("starts", "tokens", "drafter", "target", "passes", "judging")
            }
            fields = {name: None if value is None else value[some] for name, value in fields.items()}
            yield replace(self, **fields, trees=self.trees and self.trees.some(range(chains)[some]), columns={})


def at_nodes(rows: Tensor, judging: Tensor | None, n: int) -> Tensor:
    """Index rows [B, R, ...] by each node's judging row, in order for chains; returns [B, n, ...]."""
    return rows[:, :n] if judging is None else rows_at(rows, judging)
